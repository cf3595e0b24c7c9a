//! How far the other end may send: receive windows that follow what the path carries.

use core::time::Duration;

use units::Instant;

/// A stream's window, in round trips of what arrives: one is on the way, one waits for a repair,
/// and one lets the sender grow.
const ROUNDS: u64 = 3;
/// The most room for what waits behind holes, beyond [`ROUNDS`]: a round trip and this. The connection's first
/// credit may come on top.
const REPAIR_ROOM: u64 = 16_000_000;
/// A reader that comes back after more round trips than these does not keep up.
const PATIENCE: u32 = 2;

/// The most that arrived within one round trip: the bandwidth-delay product, as the receiver
/// sees it.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    most: u64,
    start: Instant,
    /// What had arrived in all at `start`, and at the last look.
    at_start: u64,
    at_last: u64,
    last: Instant,
}

impl Arrivals {
    /// `total` bytes have arrived by now. What came in a time that nobody looked at is left out.
    pub(super) fn look(&mut self, now: Instant, total: u64, rtt: Duration) -> u64 {
        if now.since(self.last) > rtt * PATIENCE {
            (self.start, self.at_start) = (now, total);
        } else if now.since(self.start) > rtt {
            (self.start, self.at_start) = (now, self.at_last);
        }
        (self.last, self.at_last) = (now, total);
        self.most = self.most.max(total - self.at_start);
        self.most
    }

    pub(super) fn most(&self) -> u64 {
        self.most
    }
}

/// What a connection knows that lets the window of a stream that is read grow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    pub(super) rtt: Duration,
    /// Bytes of this stream that the path is said to carry in a round trip.
    pub(super) share: u64,
    /// The largest window that memory allows now.
    pub(super) most: u64,
}

/// The credit of one stream. It starts small and grows only while the reader keeps up, so that a
/// reader that stalls holds little, and only its own.
#[derive(Debug)]
pub(super) struct Window {
    size: u64,
    /// Bytes the application has read.
    consumed: u64,
    arrivals: Arrivals,
}

impl Window {
    pub(super) fn new(size: u64) -> Self {
        Self { size, consumed: 0, arrivals: Arrivals::default() }
    }

    /// The offset that the other end must not pass.
    pub(super) fn credit(&self) -> u64 {
        self.consumed + self.size
    }

    /// How much more credit is worth telling.
    pub(super) fn step(&self) -> u64 {
        self.size / 8
    }

    fn grow(&mut self, size: u64, most: u64) {
        self.size = self.size.max(size.min(most));
    }

    /// `held` bytes have arrived and wait, most of them for a hole to be filled. Repairing one
    /// takes a round trip and more, in which the sender should go on. `round` is the most that the
    /// connection saw arrive in a round trip: the stream's own count stands still with its reader.
    /// The window becomes no larger than `most`.
    pub(super) fn on_held(&mut self, held: u64, round: u64, most: u64) {
        if held > self.size / 2 {
            let useful = (ROUNDS + 1) * round + REPAIR_ROOM;
            self.grow((self.size * 2).min(useful), most);
        }
    }

    /// The application has read `amount` bytes of what arrived, up to offset `arrived` so far.
    pub(super) fn on_consumed(&mut self, now: Instant, amount: u64, arrived: u64, growth: Growth) {
        self.consumed += amount;
        let round = self.arrivals.look(now, arrived, growth.rtt).max(growth.share);
        if arrived - self.consumed <= self.size / 4 {
            self.grow(ROUNDS * round, growth.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn path(share: u64, most: u64) -> Growth {
        Growth { rtt: RTT, share, most }
    }

    /// Reads a twentieth of what may come each 10 ms, and every eighth time only half of that.
    fn read(window: &mut Window, rounds: u32, every: Duration) {
        let (mut now, mut read) = (Instant::from_nanos(1_000_000_000), 0);
        for _ in 0..rounds {
            now += every;
            let amount = (window.credit() - read) / 4;
            read += amount;
            window.on_consumed(now, amount, read, path(0, 50_000));
        }
    }

    #[test]
    fn grows_with_a_reader_that_keeps_up_and_not_with_a_slow_one() {
        let (mut fast, mut slow) = (Window::new(1000), Window::new(1000));
        read(&mut fast, 40, RTT / 10);
        read(&mut slow, 40, RTT * 5);
        assert_eq!((fast.size, slow.size), (50_000, 1000));
    }

    #[test]
    fn settles_at_three_round_trips_of_what_arrives() {
        let mut window = Window::new(64 << 10);
        let mut now = Instant::from_nanos(1_000_000_000);
        for count in 1..1000 {
            now += Duration::from_millis(1);
            window.on_consumed(now, 10_000, count * 10_000, path(0, u64::MAX));
        }
        let rounds = window.size as f64 / 1_000_000.0;
        assert!((3.0..3.1).contains(&rounds), "{rounds}");
    }

    #[test]
    fn who_reads_has_at_once_what_the_path_is_said_to_carry() {
        let mut window = Window::new(1000);
        window.on_consumed(Instant::ZERO, 10, 500, path(10_000, u64::MAX));
        assert_eq!(window.size, 1000, "much waits for the reader");
        window.on_consumed(Instant::ZERO, 240, 500, path(10_000, u64::MAX));
        assert_eq!(window.size, 30_000);
    }

    #[test]
    fn holes_find_room_up_to_a_bound() {
        let mut window = Window::new(1000);
        (0..100).for_each(|_| window.on_held(window.size, 0, u64::MAX));
        assert_eq!(window.size, REPAIR_ROOM);
        (0..100).for_each(|_| window.on_held(window.size, 1000, u64::MAX));
        assert_eq!(window.size, REPAIR_ROOM + 4000);
    }
}

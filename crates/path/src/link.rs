//! One direction of a path.

use std::collections::VecDeque;

use core::time::Duration;
use units::{Bytes, Instant, Rate};

use crate::loss::Loss;
use crate::queue::{Queue, Waiting};
use crate::{Counters, DropCause, LinkConfig};

/// The most packets one link holds, queued and under way.
pub const MAX_HELD: usize = 1 << 22;

/// Room made in advance, in packets; more is made when a path needs it.
const INITIAL_ROOM: usize = 1 << 12;

/// How a packet's way ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// Reached the other end.
    Delivered,
    /// Did not, for this reason.
    Dropped(DropCause),
}

/// A packet that leaves the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit<T> {
    /// When the model says it leaves; at or before the `now` of the poll.
    pub due: Instant,
    /// Its size, without framing.
    pub size: Bytes,
    /// What was sent with it.
    pub item: T,
    /// How it went.
    pub fate: Fate,
}

/// A packet the link did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<T> {
    /// Why.
    pub cause: DropCause,
    /// What was sent with it.
    pub item: T,
}

/// One direction of a path, carrying packets marked with a `T` of the caller's choice.
///
/// [`send`](Self::send), then [`poll`](Self::poll) until it returns nothing, then come back at
/// [`next_exit`](Self::next_exit). Time must not run backwards between calls.
pub struct Link<T> {
    queue: Queue<T>,
    transmitter: Transmitter,
    loss: Loss,
    delay: Duration,
    framing: Bytes,
    /// Packets on the transmitter and the line, by the time they leave.
    line: VecDeque<Exit<T>>,
    counters: Counters,
}

impl<T> Link<T> {
    pub(crate) fn new(config: &LinkConfig, seed: u64) -> Self {
        Self {
            queue: Queue::new(config.queue, config.rate),
            transmitter: Transmitter::new(config.rate),
            loss: Loss::new(config.loss, seed),
            delay: config.delay,
            framing: config.framing,
            line: VecDeque::with_capacity(INITIAL_ROOM),
            counters: Counters::default(),
        }
    }

    /// Sends a packet of `size` bytes into the link at `now`.
    ///
    /// # Errors
    /// The queue had no room for it.
    pub fn send(&mut self, now: Instant, size: Bytes, item: T) -> Result<(), Refused<T>> {
        self.advance(now);
        self.counters.offered += size;
        let free = self.queue.len() == 0 && self.transmitter.free_at <= now;
        let admitted = if self.held() < MAX_HELD {
            self.queue.admit(size, free)
        } else {
            Err(DropCause::Overflow)
        };
        if let Err(cause) = admitted {
            self.counters.drop_one(cause, size);
            return Err(Refused { cause, item });
        }
        self.queue.push(Waiting { size, arrived: now, item });
        self.advance(now);
        Ok(())
    }

    /// The next packet whose way has ended at or before `now`, in the order of `due`.
    pub fn poll(&mut self, now: Instant) -> Option<Exit<T>> {
        self.advance(now);
        self.line.front().filter(|exit| exit.due <= now)?;
        let exit = self.line.pop_front()?;
        match exit.fate {
            Fate::Delivered => self.counters.delivered += exit.size,
            Fate::Dropped(cause) => self.counters.drop_one(cause, exit.size),
        }
        Some(exit)
    }

    /// When the next packet leaves; `None` when the link is empty.
    pub fn next_exit(&self) -> Option<Instant> {
        // Whatever waits in the queue waits for one on the transmitter, which is in `line`.
        self.line.front().map(|exit| exit.due)
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets inside: waiting, on the transmitter and on the line.
    pub fn held(&self) -> usize {
        self.queue.len() + self.line.len()
    }

    /// Bytes waiting in the queue at the last call.
    pub fn queued(&self) -> Bytes {
        self.queue.bytes()
    }

    /// Puts on the line every packet whose turn comes by `now`, each at its own exact time, so
    /// that the result does not depend on when this is called.
    fn advance(&mut self, now: Instant) {
        while let Some(arrived) = self.queue.head_arrived() {
            let start = self.transmitter.free_at.max(arrived);
            if start > now {
                break;
            }
            let Some(Waiting { size, item, .. }) = self.queue.take() else {
                break;
            };
            let sent = self.transmitter.send(start, size + self.framing);
            let fate =
                if self.loss.strikes() { Fate::Dropped(DropCause::Loss) } else { Fate::Delivered };
            let due = sent + self.delay;
            self.line.push_back(Exit { due, size, item, fate });
        }
    }
}

/// Puts packets on the line one after another at an exact rate.
struct Transmitter {
    rate: Rate,
    free_at: Instant,
    /// What the last packet took beyond whole nanoseconds, in units of 1/rate ns; carried to the
    /// next one, so that rounding does not change the rate.
    carry: u128,
}

impl Transmitter {
    fn new(rate: Rate) -> Self {
        Self { rate, free_at: Instant::ZERO, carry: 0 }
    }

    /// Starts a packet at `start`, not before `free_at`; returns when its last bit is out.
    fn send(&mut self, start: Instant, size: Bytes) -> Instant {
        if start > self.free_at {
            self.carry = 0;
        }
        let rate = u128::from(self.rate.as_bits_per_sec());
        let work = u128::from(size.0) * 8 * 1_000_000_000 + self.carry;
        self.carry = work % rate;
        let nanos = u64::try_from(work / rate).unwrap_or(u64::MAX);
        self.free_at = start + Duration::from_nanos(nanos);
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limit, PathConfig, QueueConfig};
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn link(config: PathConfig) -> Link<u64> {
        config.links().expect("a valid path").0
    }

    fn path(bits: u64, rtt: Duration) -> PathConfig {
        PathConfig::new(Rate::from_bits_per_sec(bits), rtt)
    }

    #[test]
    fn delay_is_exact() {
        let mut link = link(path(1_000_000_000, 200 * MS));
        for i in 0..1000 {
            let now = Instant::ZERO + MS * u32::try_from(i).expect("small");
            link.send(now, Bytes(1500), i).expect("an idle link");
            let due = now + Duration::from_micros(12) + 100 * MS;
            assert!(link.poll(due - Duration::from_nanos(1)).is_none());
            assert_eq!(link.poll(due).map(|exit| exit.due), Some(due));
        }
    }

    /// Keeps the link busy for a second; the rate must hold for rates that divide badly.
    #[test]
    fn rate_is_exact() {
        for bits in [9_600, 1_544_000, 622_080_000, 7_777_777_777, 100_000_000_000] {
            for size in [Bytes(40), Bytes(1500), Bytes(9000)] {
                let mut link = link(path(bits, Duration::ZERO));
                let (mut now, mut sent, mut last) = (Instant::ZERO, 0u64, Instant::ZERO);
                while sent < 20_000 {
                    while sent < 20_000 && link.send(now, size, 0).is_ok() {
                        sent += 1;
                    }
                    now = link.next_exit().expect("busy");
                    while let Some(exit) = link.poll(now) {
                        last = exit.due;
                    }
                }
                while let Some(due) = link.next_exit() {
                    last = link.poll(due).expect("due").due;
                }
                let expected = (sent * size.0 * 8) as f64 / bits as f64;
                let took = last.as_nanos() as f64 / 1e9;
                assert!((took / expected - 1.0).abs() < 1e-3, "{took} {expected} at {bits}");
                assert!((took - expected).abs() < 2e-9, "no rounding adds up: {took} {expected}");
            }
        }
    }

    #[test]
    fn queue_holds_its_limit_beside_the_packet_being_sent() {
        let limits = [
            Limit::Packets(100),
            Limit::Bytes(Bytes(150_000)),
            Limit::Time(Duration::from_micros(1200)),
        ];
        for limit in limits {
            let config = path(1_000_000_000, MS).with_queue(QueueConfig::DropTail(limit));
            let mut link = link(config);
            let taken = (0..1000).filter(|&i| link.send(Instant::ZERO, Bytes(1500), i).is_ok());
            assert_eq!(taken.count(), 101, "{limit}");
            assert_eq!(link.counters().dropped(DropCause::Queue).packets, 899);
            assert_eq!(link.queued(), Bytes(150_000));
            // One packet time later there is room for exactly one more.
            let later = Instant::ZERO + Duration::from_micros(12);
            assert!(link.send(later, Bytes(1500), 0).is_ok());
            assert!(link.send(later, Bytes(1500), 0).is_err());
        }
    }

    #[test]
    fn loss_uses_the_line_and_is_within_the_binomial_interval() {
        let (n, p) = (1_000_000, 0.01);
        let mut link = link(path(1_000_000_000, MS).with_loss(p).with_seed(7));
        let mut now = Instant::ZERO;
        for i in 0..n {
            now = Instant::ZERO + Duration::from_micros(12) * u32::try_from(i).expect("small");
            link.send(now, Bytes(1500), i).expect("sent at the rate");
            while link.poll(now).is_some() {}
        }
        assert_eq!(link.transmitter.free_at, now + Duration::from_micros(12));
        while link.poll(Instant::FAR_FUTURE).is_some() {}
        let lost = link.counters().dropped(DropCause::Loss).packets as f64;
        let mean = n as f64 * p;
        assert!((lost - mean).abs() <= 3.2905 * (mean * (1.0 - p)).sqrt(), "{lost}");
    }

    #[test]
    fn framing_costs_rate() {
        let mut config = path(1_000_000, Duration::ZERO);
        config.forward.framing = Bytes(25);
        let mut link = link(config);
        link.send(Instant::ZERO, Bytes(100), 0).expect("idle");
        assert_eq!(link.next_exit(), Some(Instant::ZERO + MS));
    }

    proptest! {
        /// Nothing appears, vanishes, overtakes or leaves early; when the link is polled changes
        /// nothing.
        #[test]
        fn conserves_packets(
            sends in prop::collection::vec((0u64..50_000, 1u64..9000), 1..300),
            bits in 1_000_000u64..10_000_000_000,
            limit in 1u64..50,
            loss in 0.0..0.5f64,
            lazy in any::<bool>(),
        ) {
            let queue = QueueConfig::DropTail(Limit::Packets(limit));
            let config = path(bits, MS).with_loss(loss).with_queue(queue);
            let (mut eager, mut other) = (link(config.clone()), link(config));
            let mut exits = [Vec::new(), Vec::new()];
            let mut now = Instant::ZERO;
            for (i, &(gap, size)) in sends.iter().enumerate() {
                now += Duration::from_nanos(gap);
                let first = eager.send(now, Bytes(size), i as u64).is_ok();
                let second = other.send(now, Bytes(size), i as u64).is_ok();
                prop_assert_eq!(first, second);
                exits[0].extend(core::iter::from_fn(|| eager.poll(now)));
                if !lazy {
                    exits[1].extend(core::iter::from_fn(|| other.poll(now)));
                }
                let c = eager.counters();
                let dropped: u64 = DropCause::ALL.iter().map(|&d| c.dropped(d).packets).sum();
                let held = eager.held() as u64;
                prop_assert_eq!(c.offered.packets, c.delivered.packets + dropped + held);
            }
            exits[0].extend(core::iter::from_fn(|| eager.poll(Instant::FAR_FUTURE)));
            exits[1].extend(core::iter::from_fn(|| other.poll(Instant::FAR_FUTURE)));
            prop_assert_eq!(eager.held(), 0);
            prop_assert!(exits[0].is_sorted_by_key(|exit| (exit.due, exit.item)));
            let [first, second] = exits;
            prop_assert_eq!(first, second);
        }
    }
}

//! Receive windows that grow to what the path needs.

use core::time::Duration;

use units::Instant;

/// The credit side of a buffer: how far the other end may send.
///
/// The window doubles while its owner reads an eighth of it within a round trip, so it is always
/// ahead of a sender that doubles its rate each round trip, and ends at no less than four times
/// the bandwidth-delay product. A reader that does not read never grows it.
#[derive(Debug)]
pub(super) struct Window {
    size: u64,
    max: u64,
    /// Bytes the application has read.
    consumed: u64,
    epoch_start: Instant,
    epoch_consumed: u64,
}

impl Window {
    pub(super) fn new(size: u64, max: u64) -> Self {
        let size = size.min(max);
        Self { size, max, consumed: 0, epoch_start: Instant::ZERO, epoch_consumed: 0 }
    }

    /// The offset, or the sum of bytes, that the other end must not pass.
    pub(super) fn credit(&self) -> u64 {
        self.consumed + self.size
    }

    /// `held` bytes have arrived and wait, most of them for a hole to be filled. Repairing one
    /// takes a round trip and more, in which the sender should go on.
    pub(super) fn on_held(&mut self, held: u64) {
        if held > self.size / 2 {
            self.size = (self.size * 2).min(self.max);
        }
    }

    /// So many bytes will never be read, and need no room any more.
    pub(super) fn on_abandoned(&mut self, amount: u64) {
        self.consumed += amount;
    }

    /// The application has read `amount` bytes. `rtt` is what is known of the round-trip time.
    pub(super) fn on_consumed(&mut self, now: Instant, amount: u64, rtt: Duration) {
        self.consumed += amount;
        if now.since(self.epoch_start) > rtt {
            self.epoch_start = now;
            self.epoch_consumed = self.consumed - amount;
        }
        if self.consumed - self.epoch_consumed > self.size / 8 && self.size < self.max {
            self.size = (self.size * 2).min(self.max);
            self.epoch_start = now;
            self.epoch_consumed = self.consumed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_a_fast_reader_up_to_the_cap_and_not_with_a_slow_one() {
        let rtt = Duration::from_millis(100);
        let mut fast = Window::new(1000, 5000);
        let mut slow = Window::new(1000, 5000);
        let mut now = Instant::ZERO;
        for _ in 0..100 {
            now += Duration::from_millis(10);
            fast.on_consumed(now, 200, rtt);
            slow.on_consumed(now, 2, rtt);
        }
        assert_eq!(fast.credit(), 100 * 200 + 5000);
        assert_eq!(slow.credit(), 100 * 2 + 1000);
    }
}

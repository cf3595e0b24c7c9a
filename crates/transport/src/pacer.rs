//! When the next batch may be sent.

use core::time::Duration;

use units::{Bytes, Instant, Rate};

/// A batch holds what the rate gives in this time (anchors: 0.25 to 0.5 ms), so that GSO pays
/// and shallow queues are not overrun.
const BATCH_TIME: Duration = Duration::from_micros(500);
/// How much sending time a late wake-up may catch up on, at least and at most: as long as packets waited at the
/// bottleneck, for that queue has drained meanwhile. Who is preempted waits for a tick or two, of 4 ms where the
/// kernel has 250 a second; what is not caught up on is not in flight for a round trip, and then the link idles. What
/// is caught up on beyond that queue overruns a short one (`bench virtual`, part `late`).
const CATCH_UP: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(10));

/// Spreads batches over time at a rate.
#[derive(Debug)]
pub(crate) struct Pacer {
    next: Instant,
    catch_up: Duration,
}

impl Default for Pacer {
    fn default() -> Self {
        Self { next: Instant::ZERO, catch_up: CATCH_UP.0 }
    }
}

impl Pacer {
    /// When the next batch may go out.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Whether sending has fallen behind further than it may catch up.
    pub(crate) fn is_behind(&self, now: Instant) -> bool {
        self.next + self.catch_up < now
    }

    /// So long do packets wait on the path.
    pub(crate) fn on_queue(&mut self, waiting: Duration) {
        self.catch_up = waiting.clamp(CATCH_UP.0, CATCH_UP.1);
    }

    /// How many datagrams of `size` bytes make a batch at `rate`, at most `max`.
    pub(crate) fn batch(rate: Rate, size: usize, max: usize) -> usize {
        let bytes = rate.bytes_in(BATCH_TIME).0;
        ((bytes / size as u64) as usize).clamp(1, max)
    }

    /// There was nothing to send until now: that time is not caught up on.
    pub(crate) fn skip_to(&mut self, now: Instant) {
        self.next = self.next.max(now);
    }

    /// The window, or the socket, was full until now: no more than the least goes at once.
    pub(crate) fn on_opened(&mut self, now: Instant) {
        self.skip_to(now - CATCH_UP.0);
    }

    /// `amount` goes out now.
    pub(crate) fn on_sent(&mut self, now: Instant, amount: Bytes, rate: Rate) {
        self.next = rate.end_of(self.next.max(now - self.catch_up), amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_rate_in_spite_of_late_wake_ups() {
        let rate = Rate::from_bits_per_sec(1_000_000_000);
        let mut pacer = Pacer::default();
        let (mut now, mut sent) = (Instant::from_nanos(1_000_000_000), 0);
        let end = now + Duration::from_secs(1);
        let mut late = 0;
        while now < end {
            let count = Pacer::batch(rate, 1500, 44);
            pacer.on_sent(now, Bytes(1500 * count as u64), rate);
            sent += 1500 * count as u64;
            late = (late + 377) % 2000;
            now = now.max(pacer.next() + Duration::from_micros(late));
        }
        let ideal = 125_000_000.0;
        assert!((sent as f64 / ideal - 1.0).abs() < 0.01, "{sent}");
    }

    #[test]
    fn catches_up_on_late_wake_ups_and_not_on_idle_time() {
        let (rate, now) = (Rate::from_bits_per_sec(8_000_000), Instant::from_nanos(1_000_000_000));
        let mut late = Pacer::default();
        late.on_queue(Duration::from_secs(1));
        let mut held = Pacer::default();
        held.on_opened(now);
        let mut idle = Pacer::default();
        idle.skip_to(now);
        let mut sent = [0, 0, 0];
        for (pacer, sent) in [&mut late, &mut held, &mut idle].into_iter().zip(&mut sent) {
            while pacer.next() <= now {
                pacer.on_sent(now, Bytes(1000), rate);
                *sent += 1;
            }
        }
        assert_eq!(sent, [11, 5, 1]);
    }

    #[test]
    fn batches_follow_the_rate() {
        let batch = |mbit: u64| Pacer::batch(Rate::from_bits_per_sec(mbit * 1_000_000), 1500, 44);
        assert_eq!((batch(1), batch(1000), batch(10_000)), (1, 41, 44));
    }
}

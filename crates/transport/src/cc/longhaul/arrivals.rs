//! How fast bytes arrive at the receiver.

use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

/// Samples of a span that are kept, at most: of reports closer to each other the first.
const KEPT: u32 = 64;

/// Bytes received, by the receiver's clock, over a sliding span.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    samples: VecDeque<(Instant, u64)>,
}

impl Arrivals {
    /// `received` bytes had arrived by `at`; gives the rate in bits a second over the last
    /// `span`, once that much time has been seen.
    pub(super) fn rate(&mut self, received: u64, at: Instant, span: Duration) -> Option<f64> {
        if self.samples.back().is_none_or(|&(last, _)| at > last && at.since(last) >= span / KEPT) {
            self.samples.push_back((at, received));
        }
        while self.samples.len() > 2 && at.since(self.samples[1].0) >= span {
            self.samples.pop_front();
        }
        let &(from, bytes) = self.samples.front()?;
        let elapsed = at.since(from);
        let arrived = received.saturating_sub(bytes) as f64 * 8.0;
        (elapsed >= span).then(|| arrived / elapsed.as_secs_f64())
    }

    /// Forgets what is past.
    pub(super) fn clear(&mut self) {
        self.samples.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_span() {
        let mut arrivals = Arrivals::default();
        let (span, mut received, mut rate) = (Duration::from_millis(50), 0, None);
        for step in 0..100u64 {
            received += if step < 50 { 1000 } else { 3000 };
            let at = Instant::from_nanos(step * 5_000_000);
            rate = arrivals.rate(received, at, span);
            assert_eq!(rate.is_some(), step >= 10);
        }
        assert!((rate.unwrap() / 4_800_000.0 - 1.0).abs() < 1e-9, "{rate:?}");
    }

    #[test]
    fn a_receiver_cannot_fill_memory_with_times() {
        let mut arrivals = Arrivals::default();
        let span = Duration::from_millis(1);
        let mut rate = None;
        for at in 0..2_000_000u64 {
            rate = arrivals.rate(at, Instant::from_nanos(at), span);
            assert!(arrivals.samples.len() <= KEPT as usize + 2);
        }
        assert!((rate.unwrap() / 8e9 - 1.0).abs() < 1e-9, "{rate:?}");
    }
}

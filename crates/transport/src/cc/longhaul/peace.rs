//! What we had while nobody filled the queue, by which it is judged what others leave to us when somebody does.

use core::time::Duration;
use std::collections::VecDeque;

/// Shares are averaged over so long, and so many rounds, in which nobody filled the queue. On most paths a flow of CUBIC's
/// leaves it short for less after a loss.
const SPAN: (Duration, u32) = (Duration::from_secs(5), 9);
/// So many of these are remembered, and so many must have been: BBR rests once in ten seconds, and then shows whether what was
/// taken for the path's length was its queue.
const SPANS: usize = 4;
const LEAST_SPANS: usize = 2;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Peace {
    /// Mean shares, in bits a second, the latest last.
    spans: VecDeque<f64>,
    /// Of the span that has not ended: bits, rounds, and how long they were.
    bits: f64,
    rounds: u32,
    time: Duration,
    /// The longest round trip without a queue, as it was thought to be.
    base: Duration,
}

impl Peace {
    /// A round of this length ended in which nobody filled the queue, with such a share.
    pub(super) fn on_round(&mut self, length: Duration, share: f64, base: Duration) {
        self.base = self.base.max(base);
        self.bits += share * length.as_secs_f64();
        self.rounds += 1;
        self.time += length;
        if self.rounds < SPAN.1 || self.time < SPAN.0 {
            return;
        }
        if self.spans.len() == SPANS {
            self.spans.pop_front();
        }
        self.spans.push_back(self.bits / self.time.as_secs_f64());
        self.interrupt();
    }

    /// The round trip without a queue turns out to be so long. What was taken for a part of it, longer than this queue, was
    /// somebody's: then there was no peace.
    pub(super) fn on_base(&mut self, base: Duration, queue: Duration) {
        if base + queue < self.base {
            *self = Self::default();
        }
    }

    /// The span that has not ended says nothing.
    pub(super) fn interrupt(&mut self) {
        (self.bits, self.rounds, self.time) = (0.0, 0, Duration::ZERO);
    }

    /// The most that we had, if there has been peace.
    pub(super) fn most(&self) -> Option<f64> {
        let most = self.spans.iter().copied().reduce(f64::max);
        most.filter(|_| self.spans.len() >= LEAST_SPANS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(50);

    /// So many rounds of 100 ms with a share.
    fn rounds(peace: &mut Peace, count: u32, share: f64) {
        (0..count).for_each(|_| peace.on_round(Duration::from_millis(100), share, BASE));
    }

    fn most(peace: &Peace) -> Option<i64> {
        peace.most().map(|most| most.round() as i64)
    }

    #[test]
    fn shares_are_means_of_five_seconds_of_which_four_are_remembered() {
        let mut peace = Peace::default();
        rounds(&mut peace, 49, 9.0);
        assert_eq!(most(&peace), None);
        // What has not ended is void.
        peace.interrupt();
        rounds(&mut peace, 25, 3.0);
        rounds(&mut peace, 25, 5.0);
        assert_eq!(most(&peace), None);
        rounds(&mut peace, 3 * 50, 1.0);
        assert_eq!(most(&peace), Some(4));
        rounds(&mut peace, 50, 1.0);
        assert_eq!(most(&peace), Some(1));
    }

    #[test]
    fn of_long_rounds_it_takes_enough() {
        let mut peace = Peace::default();
        for _ in 0..17 {
            peace.on_round(Duration::from_secs(1), 1.0, BASE);
            assert_eq!(most(&peace), None);
        }
        peace.on_round(Duration::from_secs(1), 1.0, BASE);
        assert_eq!(most(&peace), Some(1));
    }

    /// Step by step, as a queue goes.
    #[test]
    fn a_path_that_turns_out_shorter_was_not_at_peace() {
        let mut peace = Peace::default();
        rounds(&mut peace, 100, 1.0);
        for shorter in 0..=2 {
            assert_eq!(most(&peace), Some(1));
            peace.on_base(BASE - Duration::from_millis(shorter), Duration::from_millis(2));
        }
        assert_eq!(most(&peace), Some(1));
        peace.on_base(BASE - Duration::from_millis(3), Duration::from_millis(2));
        assert_eq!(most(&peace), None);
    }
}

//! Which part of the loss is the path's own.

use core::time::Duration;
use std::collections::VecDeque;

/// Measurements that are remembered.
const REMEMBERED: usize = 6;
/// Bytes settled that make a measurement good, unless the window is smaller; and the fewest.
const ENOUGH: u64 = 500_000;
const FEWEST: u64 = 30_000;
/// A path that loses more than this of itself is not compensated further.
const MOST: f64 = 0.4;

/// The least loss ratio of the recent rounds in which the pace lay below the capacity: what is
/// lost even then is not our doing.
#[derive(Debug, Default)]
pub(super) struct OwnLoss {
    ratios: VecDeque<f64>,
    /// The longest round trip without a queue, as it was thought to be.
    base: Duration,
}

impl OwnLoss {
    /// A round below the capacity ended in which `lost` of `settled` bytes were lost. `window`
    /// is what a round can hold at most.
    pub(super) fn on_round(&mut self, lost: u64, settled: u64, window: u64) {
        if settled < ENOUGH.min(window / 4).max(FEWEST) {
            return;
        }
        if self.ratios.len() == REMEMBERED {
            self.ratios.pop_front();
        }
        self.ratios.push_back(lost as f64 / settled as f64);
    }

    /// The round trip without a queue turns out to be so long. What was taken for a part of it, longer than this queue, may
    /// have overflowed while it was learnt.
    pub(super) fn on_base(&mut self, base: Duration, queue: Duration) {
        if base + queue < self.base {
            *self = Self { base, ..Self::default() };
        }
        self.base = self.base.max(base);
    }

    /// The path's own loss ratio was found to be this one by other means.
    pub(super) fn is(&mut self, ratio: f64) {
        self.ratios = VecDeque::from([ratio]);
    }

    /// The path lost no more than this while its queue was gone.
    pub(super) fn is_at_most(&mut self, ratio: f64) {
        if self.ratio() > ratio {
            self.is(ratio);
        }
    }

    /// The path's own loss ratio, once it was measured.
    pub(super) fn known(&self) -> Option<f64> {
        self.ratios.iter().copied().reduce(f64::min).map(|ratio| ratio.min(MOST))
    }

    /// The same, zero before.
    pub(super) fn ratio(&self) -> f64 {
        self.known().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_the_recent_rounds_counts() {
        let mut own = OwnLoss::default();
        assert_eq!((own.known(), own.ratio()), (None, 0.0));
        own.on_round(300_000, 1_000_000, 2_000_000);
        own.on_round(10_000, 1_000_000, 2_000_000);
        assert_eq!(own.ratio(), 0.01);
        own.on_round(0, 100, 2_000_000);
        assert_eq!(own.ratio(), 0.01, "too little to tell");
        for _ in 0..REMEMBERED {
            own.on_round(900_000, 1_000_000, 2_000_000);
        }
        assert_eq!(own.ratio(), MOST);
    }

    #[test]
    fn what_is_lost_while_a_queue_is_taken_for_the_path_is_not_its_own() {
        let mut own = OwnLoss::default();
        let [millis, queue] = [50, 3].map(Duration::from_millis);
        own.on_base(millis, queue);
        own.is(0.4);
        own.on_base(millis - queue, queue);
        assert_eq!(own.known(), Some(0.4), "not shorter than by chance");
        own.on_base(millis - queue - Duration::from_millis(1), queue);
        assert_eq!(own.known(), None);
        own.is(0.1);
        own.on_base(millis - queue - Duration::from_millis(1), queue);
        assert_eq!(own.known(), Some(0.1));
    }
}

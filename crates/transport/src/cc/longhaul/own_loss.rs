//! Which part of the loss is the path's own.

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
}

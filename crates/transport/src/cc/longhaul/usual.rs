//! The queue that flows of our kind usually keep between them. It makes each give as much as all take. What it makes one
//! give is known, and can be given at once, and so much more be taken: all see the same queue, so that what all take and give
//! together is nothing, and they are equal sooner.

use core::time::Duration;

/// So long after a drain the queue comes back: taken for what is usual, what the drain left would let all take so much that
/// the next one follows.
const SETTLING: Duration = Duration::from_millis(400);
/// The same in rounds, at least and at most.
const SETTLING_ROUNDS: (f64, f64) = (2.0, 8.0);
/// Who hastens so many times knows the usual queue from this many times as many rounds. By what he is wrong about it the
/// queue grows or falls as many times, until he hears of that.
const STEADY: f64 = 1.6;
/// Rounds over which the queue is smoothed, at least.
const LEAST_ROUNDS: f64 = 12.0;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Usual {
    /// Rounds since the last drain in which the queue came back.
    settling: u32,
    /// Rounds since then, from which it is known. At a drain somebody may have come, and all begin anew together.
    rounds: u32,
    /// What the queue is longer than we would keep it alone, smoothed, in seconds.
    excess: f64,
}

impl Usual {
    /// A round ended with a queue so many seconds longer than we keep it, on a path of such a length, of who hastens so
    /// many times once he knows enough.
    pub(super) fn on_round(&mut self, excess: f64, base: Duration, most_haste: f64) {
        let (least, most) = SETTLING_ROUNDS;
        let settling = SETTLING.as_secs_f64() / base.as_secs_f64().max(1e-3);
        if f64::from(self.settling) < settling.clamp(least, most) {
            self.settling += 1;
            return;
        }
        self.rounds = self.rounds.saturating_add(1);
        let over = f64::from(self.rounds).min((most_haste * STEADY).max(LEAST_ROUNDS));
        self.excess += (excess - self.excess) / over;
    }

    /// How many times as much may be taken and given by now, of so many at most.
    pub(super) fn haste(&self, most_haste: f64) -> f64 {
        (f64::from(self.rounds) / STEADY).min(most_haste).max(1.0)
    }

    /// What the queue usually is longer than we keep it, in seconds; shorter when negative.
    pub(super) const fn excess(&self) -> f64 {
        self.excess
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: f64 = 14.0;
    const BASE: Duration = Duration::from_millis(200);
    const USUAL: f64 = 0.01;

    fn after(rounds: u32, base: Duration) -> Usual {
        let mut usual = Usual::default();
        (0..rounds).for_each(|_| usual.on_round(USUAL, base, MOST));
        usual
    }

    #[test]
    fn haste_grows_with_what_is_known() {
        assert_eq!(after(3, BASE).haste(MOST), 1.0);
        assert!((after(18, BASE).haste(MOST) - 10.0).abs() < 0.01);
        assert_eq!(after(60, BASE).haste(MOST), MOST);
        // It takes more rounds over a short path, where there is little need of it.
        assert!((after(18, BASE / 4).haste(MOST) - 6.25).abs() < 0.01);
        assert_eq!(after(60, BASE / 40).haste(0.9), 1.0);
    }

    #[test]
    fn what_a_drain_left_is_not_usual() {
        let mut usual = Usual::default();
        (0..2).for_each(|_| usual.on_round(0.0, BASE, MOST));
        usual.on_round(0.008, BASE, MOST);
        assert!((usual.excess() - 0.008).abs() < 1e-9);
    }

    #[test]
    fn one_round_says_little_where_much_is_made_of_it() {
        let mut usual = after(60, BASE);
        usual.on_round(USUAL * 3.0, BASE, MOST);
        assert!(usual.excess() < 0.011, "{}", usual.excess());
    }
}

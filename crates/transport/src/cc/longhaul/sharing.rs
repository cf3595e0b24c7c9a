//! How flows of our kind come to equal shares. Each takes from the others in proportion to what it lacks, and the queue grows by
//! what all take, until it makes each give as much. What the queue makes one give is known from its usual length, and can be
//! given at once, and so much more be taken: all see the same queue, so that what all take and give together is nothing, and
//! they are equal sooner.

use core::time::Duration;

use super::model::{FLOWS, Model};
use super::path::Path;

/// The proportional gain of the queue's control. Feedback comes a round trip late; up to 1/e
/// there is no overshoot.
pub(super) const QUEUE_GAIN: f64 = 0.35;
/// Convergence of flows that share a path: within so long, each would come e times nearer to its share if what it does were
/// heard of at once.
const FAIR_TIME: f64 = 1.5;
/// The same for the part of it that makes a queue.
const FAIR_QUEUE_TIME: f64 = 2.5;
/// The queue, in seconds, that this costs for each flow, at least and at most. All see the same queue, and each gives by it in
/// proportion to what it has, over its own round trip: flows of unlike round trips are equal if it is the same for all of them.
const FAIR_QUEUE: (f64, f64) = (0.0028, 0.003);
/// No more is won in a round trip: it is heard of a round trip late.
const MOST_GAIN: f64 = 0.25;
/// The most by which what is balanced among flows may speed them up.
const MOST_HASTE: f64 = 14.0;

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

fn seconds(path: &Path) -> f64 {
    path.base.as_secs_f64().max(1e-3)
}

/// The part of the link that others have which a flow tries to win in a round trip.
fn gain(path: &Path) -> f64 {
    let by_queue = |queue: f64| QUEUE_GAIN * queue / seconds(path);
    let (least, most) = FAIR_QUEUE;
    (seconds(path) / FAIR_QUEUE_TIME).clamp(by_queue(least), by_queue(most)).min(MOST_GAIN)
}

/// How many times as much it could be if the queue did not grow by it.
fn most_haste(path: &Path) -> f64 {
    (seconds(path) / FAIR_TIME / gain(path)).min(MOST_HASTE)
}

/// The longest queue that flows of our own kind keep between them.
pub(super) fn longest_queue(path: &Path) -> Duration {
    let each = gain(path) * seconds(path) / QUEUE_GAIN;
    let target = path.steady_target();
    let steady = (target + Duration::from_secs_f64((FLOWS - 1.0).sqrt() * each)).max(target * 4);
    steady + path.allowance()
}

/// See the module.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sharing {
    /// Rounds since the last drain in which the queue came back.
    settling: u32,
    /// Rounds since then, from which it is known. At a drain somebody may have come, and all begin anew together.
    rounds: u32,
    /// What the queue is longer than we would keep it alone, smoothed, in seconds.
    excess: f64,
}

impl Sharing {
    /// A round ended with such a queue, and none was drained in it, which is done beyond `most`.
    pub(super) fn on_round(&mut self, path: &Path, most: Duration) {
        let excess = path.queue.min(most).as_secs_f64() - path.kept().as_secs_f64();
        self.learn(excess, seconds(path), most_haste(path));
    }

    /// The queue is so many seconds longer than we keep it, after a round trip of `rtt` seconds.
    fn learn(&mut self, excess: f64, rtt: f64, most_haste: f64) {
        let (least, most) = SETTLING_ROUNDS;
        let settling = SETTLING.as_secs_f64() / rtt;
        if f64::from(self.settling) < settling.clamp(least, most) {
            self.settling += 1;
            return;
        }
        self.rounds = self.rounds.saturating_add(1);
        let over = f64::from(self.rounds).min((most_haste * STEADY).max(LEAST_ROUNDS));
        self.excess += (excess - self.excess) / over;
    }

    /// How many times as much may be taken and given by now, of so many at most.
    fn haste(&self, most_haste: f64) -> f64 {
        (f64::from(self.rounds) / STEADY).min(most_haste).max(1.0)
    }

    /// What we take from the others, in bits a second. What the queue makes us give is in the pace besides, but for what haste
    /// adds to both.
    pub(super) fn wins(&self, model: &Model) -> f64 {
        let path = &model.path;
        let lacks = (model.link() - model.share).max(0.0);
        let wins = (lacks * model.share).sqrt() * gain(path);
        let gives = model.share * QUEUE_GAIN * self.excess.max(0.0) / seconds(path);
        wins + (self.haste(most_haste(path)) - 1.0) * (wins - gives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: f64 = 14.0;
    const BASE: Duration = Duration::from_millis(200);
    const USUAL: f64 = 0.01;

    fn after(rounds: u32, base: Duration) -> Sharing {
        let mut sharing = Sharing::default();
        (0..rounds).for_each(|_| sharing.learn(USUAL, base.as_secs_f64(), MOST));
        sharing
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
        let mut sharing = Sharing::default();
        (0..2).for_each(|_| sharing.learn(0.0, BASE.as_secs_f64(), MOST));
        sharing.learn(0.008, BASE.as_secs_f64(), MOST);
        assert!((sharing.excess - 0.008).abs() < 1e-9);
    }

    #[test]
    fn one_round_says_little_where_much_is_made_of_it() {
        let mut sharing = after(60, BASE);
        sharing.learn(USUAL * 3.0, BASE.as_secs_f64(), MOST);
        assert!(sharing.excess < 0.011, "{}", sharing.excess);
    }

    #[test]
    fn haste_takes_more_from_who_has_much_for_who_has_little() {
        const LINK: f64 = 100e6;
        let mut model = Model::new(Path::new(BASE, 1.0));
        model.trains = Some(LINK);
        // One of four gives as much as he takes.
        let excess = 3_f64.sqrt() * gain(&model.path) * seconds(&model.path) / QUEUE_GAIN;
        let hastened = |share, model: &mut Model| {
            model.share = share * LINK;
            let sharing = Sharing { excess, ..after(60, BASE) };
            let more = sharing.wins(model) - Sharing::default().wins(model);
            more / LINK
        };
        assert!(hastened(0.1, &mut model) > 0.005);
        assert!(hastened(0.25, &mut model).abs() < 1e-9);
        assert!(hastened(0.5, &mut model) < -0.01);
    }
}

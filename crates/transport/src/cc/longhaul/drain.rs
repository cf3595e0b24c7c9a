//! The drain: the queue is far too long, and the pace falls until it is gone. All flows of our kind see the same and do
//! the same, so that each of them sees the path without a queue then. Who does not is a stranger.

use core::time::Duration;

use super::model::Model;
use super::path::Path;

/// The pace, as a share of what arrives, and of what arrived when it began.
const PACE: f64 = 0.7;
const LEAST_PACE: f64 = 0.5;
/// Rounds until another pace shows: one to act, one to hear of it.
pub(super) const BLIND_ROUNDS: u32 = 2;
/// When all drain, the queue shrinks in a round by 1 - [`PACE`] of it. Less than this share of
/// a round, for [`STUCK_ROUNDS`], and somebody does not.
const SHRINKS: f64 = 0.1;
/// See [`SHRINKS`].
const STUCK_ROUNDS: u32 = 3;
/// So often one round that shrinks ends the count of who has just come: what he takes for the path's length, and a share of it,
/// may be too long, and the next starts fill what all drain.
const MOST_SHRINKS: u32 = 3;
/// A queue that grows so many times is filled by somebody who starts.
const SURGE: f64 = 1.25;
/// So often in a drain. Who fills the queue of a link that changes makes it grow and shrink for ever.
const MOST_SURGES: u32 = 8;
/// A full queue cannot grow: its losses show that somebody starts. So many rounds of them are waited for in a drain, whoever
/// else surges: who heeds no loss would make them for ever.
pub(super) const WAITED_ROUNDS: u32 = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct Drain {
    /// Our share when it began.
    share: f64,
    rounds: u32,
    stuck: u32,
    queue: Duration,
    /// The shortest queue since it began, or since somebody last surged, of the rounds that looked for more than the
    /// path's length.
    least: Duration,
    /// It began not for a long queue, but because what is taken for the path's length may be one.
    looks: bool,
    /// It is the first of who has just come.
    newcomer: Option<Newcomer>,
    /// Starts of others, which were waited for.
    surges: u32,
    /// Rounds in which it was waited for who overflows the queue.
    waited: u32,
}

/// Who has just come, and drains for the first time.
#[derive(Debug)]
struct Newcomer {
    /// What he took for the path's length.
    took: Duration,
    /// The most that was his since, in bits a second: what he has when the drain ends is what the others leave him, who
    /// by then take again.
    most: f64,
    /// Rounds that have shrunk, and ended his count of those that did not.
    shrinks: u32,
}

/// What a round has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The queue shrinks, or it is too early to say.
    GoesOn,
    /// There was no long queue behind what is taken for the path's length.
    Looked,
    /// The queue is short again and shrinks slowly: others keep it so. Nobody fills it, unless all should have drained it.
    Short,
    /// Somebody does not drain.
    Stuck,
}

impl Drain {
    /// Begins for a long queue, or because it `looks` for the path's length.
    pub(super) fn new(model: &Model, looks: bool) -> Self {
        let (share, queue) = (model.share, model.path.queue);
        Self {
            share,
            rounds: 0,
            stuck: 0,
            queue,
            least: queue,
            looks,
            newcomer: None,
            surges: 0,
            waited: 0,
        }
    }

    /// Of who has just come: what he takes for the path's length may be the queue that the others kept.
    pub(super) fn of_newcomer(model: &Model) -> Self {
        let newcomer = Newcomer { took: model.path.base, most: 0.0, shrinks: 0 };
        Self { newcomer: Some(newcomer), ..Self::new(model, true) }
    }

    /// Whether it has shown who has just come that the path is shorter than that, with no queue beyond `most`, which is
    /// drained. The others, who know that length, end their drain just now: who went on would leave them what he has.
    pub(super) fn finds_length(&self, path: &Path, most: Duration) -> bool {
        let shorter = |it: &Newcomer| it.took > path.base + path.target() / 2;
        self.newcomer.as_ref().is_some_and(shorter) && path.queue < most
    }

    /// Whether it is the first of who has just come.
    pub(super) const fn is_newcomers(&self) -> bool {
        self.newcomer.is_some()
    }

    /// So much is ours by now.
    pub(super) fn on_share(&mut self, share: f64) {
        if let Some(newcomer) = &mut self.newcomer {
            newcomer.most = newcomer.most.max(share);
        }
    }

    /// The most that was his in it, of who has just come.
    pub(super) fn newcomers_share(&self) -> Option<f64> {
        self.newcomer.as_ref().map(|newcomer| newcomer.most)
    }

    /// Our share when it began, in bits a second.
    pub(super) const fn share(&self) -> f64 {
        self.share
    }

    /// Whether it is over once the queue is gone.
    pub(super) const fn is_for_queue(&self) -> bool {
        !self.looks
    }

    /// The path turns out to be shorter: how long the queue is is not known yet.
    pub(super) const fn on_shorter_path(&mut self, queue: Duration) {
        (self.rounds, self.stuck, self.queue) = (0, 0, queue);
    }

    /// A round ended with such a queue, of which `most` is not drained, and which overflows or not.
    pub(super) fn on_round(
        &mut self,
        base: Duration,
        queue: Duration,
        most: Duration,
        overflows: bool,
    ) -> Progress {
        self.rounds += 1;
        self.looks &= queue <= most;
        if self.looks {
            // What others keep is no longer than ours keep it. They have to hear of us first, and we of them.
            let heard = self.rounds > 2 * BLIND_ROUNDS;
            return if heard { Progress::Looked } else { Progress::GoesOn };
        }
        let has_acted = self.rounds > BLIND_ROUNDS;
        let little = base.mul_f64(SHRINKS);
        // If all drain it is gone with the next round.
        if has_acted && queue < most / 2 && queue + little > self.queue {
            return Progress::Short;
        }
        self.least = self.least.min(queue);
        if queue > self.least.mul_f64(SURGE) + little && self.surges < MOST_SURGES {
            // Somebody has come, and his start fills the queue: what he sees now, he drains too.
            self.surges += 1;
            (self.rounds, self.stuck, self.least, self.queue) = (0, 0, queue, queue);
            return Progress::GoesOn;
        }
        let waits = has_acted && overflows && self.waited < WAITED_ROUNDS;
        self.waited += u32::from(waits);
        let stays = has_acted && !waits && queue + little.min(self.queue / 4) > self.queue;
        self.stuck += u32::from(stays);
        if let Some(newcomer) = &mut self.newcomer
            && self.stuck > 0
            && !stays
            && !waits
            && newcomer.shrinks < MOST_SHRINKS
        {
            (newcomer.shrinks, self.stuck) = (newcomer.shrinks + 1, 0);
        }
        // One that grows may be filled by somebody's start, which is clear by the next round. Where starts follow each other it
        // may grow by little in each round.
        let before = if self.surges > 1 { self.least } else { self.queue };
        let is_early = self.stuck == STUCK_ROUNDS && queue > before + little / 2;
        self.queue = queue;
        let is_stuck = stays && self.stuck >= STUCK_ROUNDS && !is_early;
        if is_stuck { Progress::Stuck } else { Progress::GoesOn }
    }

    /// In bits a second, of who has such a share by now. Who yields goes as low as it takes.
    pub(super) fn pace(&self, share: f64, yields: bool) -> f64 {
        let least = if yields { 0.0 } else { (self.share * LEAST_PACE).min(share * 0.9) };
        (share * PACE).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::Path;
    use super::*;

    const BASE: Duration = Duration::from_millis(50);
    const MOST: Duration = Duration::from_millis(16);

    /// Behind a queue of so many milliseconds.
    fn behind(queue: u64) -> Model {
        let mut model = Model::new(Path::new(BASE, 1.0));
        model.path.queue = Duration::from_millis(queue);
        model
    }

    /// Rounds until somebody shows who keeps the queue full, which overflows in these.
    fn stuck_after(overflows: impl Fn(u32) -> bool) -> u32 {
        let queue = BASE;
        let mut drain = Drain::new(&behind(50), false);
        let mut is_stuck =
            |round| drain.on_round(BASE, queue, MOST, overflows(round)) == Progress::Stuck;
        (1..100).find(|round| is_stuck(*round)).unwrap()
    }

    /// In which of these rounds, of queues of so many tenths of a millisecond, it meets somebody who fills the queue.
    fn meets_after(mut drain: Drain, queues: &[u64]) -> Option<usize> {
        let queue = |tenths: &u64| Duration::from_micros(tenths * 100);
        queues
            .iter()
            .position(|at| drain.on_round(BASE, queue(at), MOST, false) == Progress::Stuck)
            .map(|at| at + 1)
    }

    #[test]
    fn a_queue_that_grows_little_in_each_round_may_be_filled_by_starts_that_follow_each_other() {
        let grows = [500, 400, 306, 286, 296, 320, 450];
        assert_eq!(meets_after(Drain::new(&behind(50), false), &grows), Some(6));
        let surges = [250, 450, 200, 450];
        let after = |rounds: &[u64]| {
            let all: Vec<u64> = surges.iter().chain(rounds).copied().collect();
            meets_after(Drain::new(&behind(50), false), &all)
        };
        assert_eq!(after(&grows[1..]), None);
        assert_eq!(after(&[400, 306, 286, 296, 310]), Some(9));
    }

    #[test]
    fn of_a_newcomer_a_round_that_shrinks_ends_the_count_but_not_for_ever() {
        let starts = [600, 500, 360, 350, 260, 230, 200];
        assert_eq!(meets_after(Drain::new(&behind(60), false), &starts), Some(7));
        let newcomers = || Drain::of_newcomer(&behind(60));
        assert_eq!(meets_after(newcomers(), &starts), None);
        assert_eq!(meets_after(newcomers(), &[500; 10]), Some(5));
        let waves: Vec<u64> = (0..20).map(|round| if round % 2 == 0 { 520 } else { 460 }).collect();
        let met = meets_after(newcomers(), &waves);
        assert!(met.is_some_and(|round| round > 9), "{met:?}");
    }

    #[test]
    fn whoever_overflows_a_full_queue_is_waited_for_but_not_for_ever() {
        let soonest = BLIND_ROUNDS + STUCK_ROUNDS;
        assert_eq!(stuck_after(|_| false), soonest);
        assert_eq!(stuck_after(|round| round <= BLIND_ROUNDS), soonest, "sent before we drained");
        assert_eq!(stuck_after(|round| round == 4), soonest + 1);
        assert_eq!(stuck_after(|_| true), soonest + WAITED_ROUNDS);
    }

    #[test]
    fn a_queue_that_grows_and_shrinks_for_ever_is_somebodys() {
        let mut drain = Drain::new(&behind(0), false);
        let queues = [100, 75, 50, 75, 100, 125].map(Duration::from_millis);
        let mut rounds = queues.iter().cycle();
        let mut is_stuck = |_: &u32| {
            let queue = *rounds.next().expect("no end");
            drain.on_round(BASE, queue, MOST, false) == Progress::Stuck
        };
        let stuck = (1..1000).find(|round| is_stuck(round)).expect("it ends");
        assert!((4 * MOST_SURGES..8 * MOST_SURGES).contains(&stuck), "{stuck}");
    }
}

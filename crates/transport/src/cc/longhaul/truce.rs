//! Flows of our own kind that learned to fill the queue from somebody else would go on when he has left: each
//! sees the queue that the others keep. So at whole multiples of [`PERIOD`] on the clock, which hosts share
//! nearly, all of them drain it together. It goes if nobody else fills it. Many of our own kind (see [`super::crowd`]) do so
//! more often, from one time to another.

use core::time::Duration;

use units::Instant;

use super::model::{Model, Round};
use super::path::Path;

/// The time between truces.
const PERIOD: Duration = Duration::from_secs(30);
/// Truces of many last for so many round trips at least, and two seconds. They see the path as long as anything up to its full queue:
/// the next power of two, in seconds, is the same for most of them. The time between two is two and a half times that.
const MANY_ROUNDS: u32 = 15;
/// After every so many, by the clock, who insists looks whether the others heed loss.
const LOOK: u64 = 2;
/// The paces, as shares of what we had: until the queue is gone, and while it is watched whether it stays so.
/// Who heeds loss alone takes what is left then, and fills it.
const DRAIN: f64 = 0.7;
const WATCH: f64 = 0.9;
/// The queue shrinks in a round trip by what is not sent; so many times longer is waited for it ...
const ALLOWANCE: f64 = 1.5;
/// ... and so many round trips: one until the other pace acts, one to hear of it, and three more for a flow that took
/// the others' queue for a part of the path, and so thinks it gone.
const ROUNDS: u32 = 5;
/// So many round trips it is watched: BBR looks for more in one of eight, and two pass until that is heard of.
const WATCHED: u32 = 10;
/// Rounds in a row with a queue show that it is back. A thin flow has few reports in one.
const BACK: u32 = 2;
/// The least time, for clocks that differ, and the most, for round trips that a host slept through.
const LEAST: Duration = Duration::from_millis(300);
const MOST: Duration = Duration::from_secs(6);
/// The most for the watch: enough for eight round trips of the longest paths.
const MOST_WATCHED: Duration = Duration::from_secs(10);
/// Who drained takes back so much of what he had.
const RESTORED: f64 = 0.95;
/// So long what a truce has shown is doubted, and so little of what was had then is too little.
const DOUBTED: (Duration, f64) = (Duration::from_secs(10), 0.5);
/// Who had less than this part of the link has no doubt: among several, some lose half to others of our kind.
const WORTH_DOUBT: f64 = 0.42;

/// See the module.
#[derive(Debug)]
pub(super) struct Truce {
    /// Among many of our own kind.
    many: bool,
    next: Instant,
    held: Option<Held>,
    /// What the last one lost once the queue had gone, if anything was sent then.
    loss: Option<f64>,
}

/// One that is on.
#[derive(Debug)]
struct Held {
    /// What we had, in bits a second.
    share: f64,
    /// Until then the queue must have gone, or stay so.
    until: Instant,
    /// The queue was so long when it began that somebody who keeps his window would show. After a loss of his it is
    /// short anyway.
    tells: bool,
    /// The queue has gone.
    gone: bool,
    /// Rounds in a row in which it was back since then.
    back: u32,
    /// Bytes that have arrived and that were lost in the latter half of one of many.
    settled: (u64, u64),
}

impl Held {
    /// From when the queue has gone on it is watched; among many until the time that all know.
    fn on_report(&mut self, now: Instant, path: &Path, many: bool) {
        if self.gone || now >= self.until || path.queue >= path.target() / 2 {
            return;
        }
        self.gone = true;
        if !many {
            self.until = now + (path.base * WATCHED).clamp(LEAST, MOST_WATCHED);
        }
    }

    /// Whether nobody but our kind was there, once it is over.
    fn on_round(&mut self, now: Instant, path: &Path, round: &Round, many: bool) -> Option<bool> {
        // What was sent before is lost for a round trip or two more.
        if self.gone && now + lasts(path.base) / 2 >= self.until {
            self.settled.0 += round.acked;
            self.settled.1 += round.lost;
        }
        let queue = round.least_queue?;
        self.back = if self.gone && queue >= path.target() { self.back + 1 } else { 0 };
        let ends = now >= self.until;
        let is_over = if many { ends } else { self.back >= BACK || ends && self.back == 0 };
        // Those among many who saw the queue go too late are not strangers.
        let alone = self.gone && (many || self.tells && self.back == 0);
        is_over.then_some(alone)
    }
}

/// What a truce has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Nobody but our kind was there.
    Alone,
    /// Somebody fills the queue.
    Others {
        /// It is time to look whether they heed loss.
        look: bool,
    },
}

impl Truce {
    /// The next one is at the next whole multiple of the period.
    pub(super) fn new(now: Instant) -> Self {
        Self { many: false, next: after(now, PERIOD), held: None, loss: None }
    }

    /// The same among many of our own kind.
    pub(super) fn among_many(now: Instant, base: Duration) -> Self {
        Self { many: true, next: after(now, many_period(base)), ..Self::new(now) }
    }

    /// To be told of every report while the queue is contended for.
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        model: &mut Model,
        round: Option<&Round>,
    ) -> Option<Shown> {
        let Some(held) = &mut self.held else {
            if now >= self.next {
                self.begin(now, model);
            }
            return None;
        };
        held.on_report(now, &model.path, self.many);
        let alone = held.on_round(now, &model.path, round?, self.many)?;
        let (acked, lost) = held.settled;
        self.loss = (acked + lost > 0).then(|| lost as f64 / (acked + lost) as f64);
        model.share = model.share.max(held.share * RESTORED);
        self.held = None;
        let look = period(now).is_multiple_of(LOOK);
        Some(if alone { Shown::Alone } else { Shown::Others { look } })
    }

    /// It is time for one.
    fn begin(&mut self, now: Instant, model: &mut Model) {
        let Model { path, share, crowd, .. } = model;
        // Who had nothing to say at the time would drain alone.
        let is_late = now.since(self.next) > LEAST + path.rtt();
        let begins = self.next;
        let period = if self.many { many_period(path.base) } else { PERIOD };
        self.next = after(now, period);
        let until = if self.many {
            // Who sees no queue may take more for his share than arrives.
            *share = crowd.arrived().map_or(*share, |arrived| share.min(arrived));
            begins + lasts(path.base)
        } else {
            let wait = path.queue.mul_f64(ALLOWANCE / (1.0 - DRAIN)) + path.base * ROUNDS;
            now + wait.clamp(LEAST, MOST)
        };
        // What the watch leaves empty takes so much of the queue away.
        let shows = path.base.mul_f64(1.0 - WATCH) + path.target();
        let tells = path.queue > shows.min(path.longest_queue() / 2);
        let held = Held { share: *share, until, tells, gone: false, back: 0, settled: (0, 0) };
        self.held = (!is_late).then_some(held);
    }

    /// On another path it tells nothing.
    pub(super) fn stop(&mut self) {
        self.held = None;
    }

    pub(super) const fn is_among_many(&self) -> bool {
        self.many
    }

    /// The share of what was sent that the last one lost once the queue had gone, if anything was.
    pub(super) const fn loss(&self) -> Option<f64> {
        self.loss
    }

    /// The pace while one is on, in bits a second.
    pub(super) fn pace(&self) -> Option<f64> {
        self.held.as_ref().map(|held| held.share * if held.gone { WATCH } else { DRAIN })
    }
}

/// Flows that do not heed loss do not fill the queue that a calm flow leaves to them: they take what it gives up to keep
/// the queue short, until next to nothing is left. A truce that misses them, as they look for more in one round of eight
/// and may not find it, costs all of that until the next one. So who insisted with about half of the link, and then loses half of what he
/// had, was not alone.
#[derive(Debug)]
pub(super) struct Doubt {
    /// What we had, in bits a second.
    had: f64,
    until: Instant,
}

impl Doubt {
    /// At the end of a truce, with so much of the link, in bits a second.
    pub(super) fn new(now: Instant, had: f64, link: f64) -> Option<Self> {
        (had > link * WORTH_DOUBT).then(|| Self { had, until: now + DOUBTED.0 })
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// With so much left to us, in bits a second, we were not alone.
    pub(super) fn is_justified(&self, share: f64) -> bool {
        share < self.had * DOUBTED.1
    }
}

/// How long a truce of many lasts on a path of such a length.
fn lasts(base: Duration) -> Duration {
    let seconds = (base * MANY_ROUNDS).as_secs_f64().ceil() as u64;
    Duration::from_secs(seconds.clamp(2, 64).next_power_of_two())
}

/// The time between two of them.
fn many_period(base: Duration) -> Duration {
    lasts(base) * 5 / 2
}

/// So many periods have ended.
fn period(now: Instant) -> u64 {
    now.as_nanos() / PERIOD.as_nanos() as u64
}

/// The beginning of the next one.
fn after(now: Instant, period: Duration) -> Instant {
    Instant::ZERO + period * (now.as_nanos() / period.as_nanos() as u64 + 1) as u32
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    const BASE: Duration = Duration::from_millis(50);
    const SHARE: f64 = 40e6;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// From one time to another there is a round every 50 ms, each with so many milliseconds of queue; when
    /// something shows, and what.
    fn watch(
        truce: &mut Truce,
        times: (u64, u64),
        queue: impl Fn(u64) -> u64,
    ) -> Option<(u64, Shown)> {
        let mut model = Model::new(Path::new(BASE, 1.0));
        model.share = SHARE;
        (times.0..times.1).step_by(50).find_map(|millis| {
            let long = Duration::from_millis(queue(millis));
            model.path.on_rtt(at(millis), BASE + long, Bytes(1452), SHARE);
            let round = Round { least_queue: Some(long), ..Round::default() };
            let shown = truce.on_report(at(millis), &mut model, Some(&round));
            shown.map(|shown| (millis, shown))
        })
    }

    #[test]
    fn a_queue_that_goes_is_our_own() {
        let mut truce = Truce::new(at(1000));
        let queue = |millis: u64| 40_u64.saturating_sub(millis.saturating_sub(30_000) / 5);
        let (when, shown) = watch(&mut truce, (1000, 40_000), queue).expect("it ends");
        assert_eq!(shown, Shown::Alone);
        assert!((30_300..31_000).contains(&when), "{when}");
        assert_eq!(truce.pace(), None);
    }

    #[test]
    fn a_queue_that_stays_or_comes_back_is_somebody_elses() {
        let stays = |_| 40_u64;
        let back = |millis| if (30_100..30_300).contains(&millis) { 0 } else { 40 };
        // As BBR's does, that looks for more once in eight round trips.
        let late = |millis| if (30_100..30_500).contains(&millis) { 0 } else { 40 };
        for queue in [&stays as &dyn Fn(u64) -> u64, &back, &late] {
            let mut truce = Truce::new(at(1000));
            let (first, shown) = watch(&mut truce, (1000, 40_000), queue).expect("it ends");
            assert_eq!(shown, Shown::Others { look: false });
            // Every second one is the time to look.
            let (second, shown) = watch(&mut truce, (first, 70_000), queue).expect("it ends");
            assert_eq!(shown, Shown::Others { look: true });
            assert!(second > 60_000, "{second}");
        }
    }

    #[test]
    fn a_queue_that_was_short_before_shows_nothing() {
        let mut truce = Truce::new(at(1000));
        let queue = |millis| if millis < 29_500 { 40 } else { 1 };
        let (_, shown) = watch(&mut truce, (28_000, 40_000), queue).expect("it ends");
        assert_eq!(shown, Shown::Others { look: false });
    }

    #[test]
    fn it_slows_down_while_it_lasts_and_never_lasts_long() {
        let mut truce = Truce::new(at(1000));
        assert_eq!(watch(&mut truce, (29_900, 30_050), |_| 40), None);
        assert_eq!(truce.pace(), Some(SHARE * DRAIN));
        let mut truce = Truce::new(at(1000));
        let (when, _) = watch(&mut truce, (29_900, 60_000), |_| 3_600_000).expect("it ends");
        assert!(when <= 36_100, "{when}");
        // And where the queue goes late.
        let mut truce = Truce::new(at(1000));
        let late = |millis| if millis < 35_900 { 3_600_000 } else { 0 };
        let (when, _) = watch(&mut truce, (29_900, 60_000), late).expect("it ends");
        assert!((36_300..46_100).contains(&when), "{when}");
    }

    #[test]
    fn one_round_with_a_queue_is_nobody() {
        let mut truce = Truce::new(at(1000));
        let queue = |millis| if millis < 30_100 || millis == 30_300 { 40 } else { 0 };
        let (_, shown) = watch(&mut truce, (1000, 40_000), queue).expect("it ends");
        assert_eq!(shown, Shown::Alone);
    }

    /// Those who saw the queue go late, or saw another of them fill it again, are not taken for strangers, and all come back
    /// together. If it never went, somebody else is there.
    #[test]
    fn among_many_it_ends_for_all_at_one_time() {
        let went =
            |gone: u64| move |millis| if (gone..gone + 100).contains(&millis) { 0 } else { 40 };
        for gone in [5200, 6000, 6600] {
            let mut truce = Truce::among_many(at(1000), BASE);
            let (when, shown) = watch(&mut truce, (1000, 9000), went(gone)).expect("it ends");
            assert_eq!((when, shown), (7000, Shown::Alone));
            assert_eq!(truce.loss(), None, "nothing was settled");
        }
        let mut truce = Truce::among_many(at(1000), BASE);
        let (when, shown) = watch(&mut truce, (1000, 9000), |_| 40).expect("it ends");
        assert!(when == 7000 && shown != Shown::Alone, "{when}, {shown:?}");
        assert_eq!(truce.pace(), None);
    }

    #[test]
    fn who_was_silent_at_the_time_keeps_none() {
        let mut truce = Truce::new(at(1000));
        assert_eq!(watch(&mut truce, (31_000, 59_000), |_| 40), None);
        assert_eq!(truce.pace(), None);
        assert!(watch(&mut truce, (59_000, 70_000), |_| 40).is_some());
    }
}

//! Alone, or among flows of our own kind: the pace keeps a short queue.
//!
//! Pacing at the rate that arrives, corrected in proportion to how far the queue is from a small
//! target, keeps the pipe full. What a flow lacks of the link it tries to win at a rate in
//! proportion to that: small flows win more than large ones, so that all become equal.

use core::time::Duration;

use units::Instant;

use super::ask::Ask;
use super::drain::{BLIND_ROUNDS, Drain, Progress};
use super::lent::Lent;
use super::longer::Longer;
use super::model::{Model, Round, Tells};
use super::sharing::{QUEUE_GAIN, Sharing, longest_queue};
use super::startup::{Ended, shortest_train};
use super::trial::{Trial, Tried};

/// The pace dips below the capacity, uncompensated, for [`DIP_ROUNDS`] of so many rounds: the
/// queue drains, the least round-trip time shows, and so does loss that is not our doing.
const DIP_PERIOD: u32 = 32;
/// See [`DIP_PERIOD`].
const DIP_ROUNDS: u32 = 3;
/// Rounds until a dip that was spoilt is made up for.
const DIP_AGAIN: u32 = 4;
/// The pace of a dip, as a share of the capacity.
const DIP: f64 = 0.95;
/// A round that loses so much more than the path's own share has overrun something that does not
/// queue: the capacity is what arrived.
const EXCESS_LOSS: f64 = 0.05;
/// The same while the path's own share is not known.
const MAX_EXCESS: f64 = 0.5;
/// A round may lose so many times the path's own share by chance.
const USUAL: f64 = 1.5;
/// The most that is usual among many, whose overflow looks like the path's own loss.
const MANY_USUAL: f64 = 0.1;
/// A queue is full that is longer than this part of the longest, and overflows when it loses so much more of a round than
/// is usual.
const FULL: f64 = 0.9;
/// See [`FULL`].
const OVERFLOW_LOSS: f64 = 0.02;
/// Loss that stays, up to this share of it, while the rate falls to so much of what it was, is not made by
/// the rate: it is the path's own.
const STAYS: f64 = 0.7;
/// See [`STAYS`].
const FALLS: f64 = 0.5;
/// Rounds without any queue after which the pace probes upwards faster.
const QUIET_ROUNDS: u32 = 2;
/// Factors of the pace while probing, each for two quiet rounds: one to act, one to hear of it.
const PROBE_GAINS: [f64; 6] = [1.02, 1.05, 1.12, 1.25, 1.5, 2.0];
/// So many reports in a row show a queue that a stall of this host or of the way back does not make.
const LASTING: u32 = 8;
/// Who drained alone takes back so much of what he had.
const RESTORED: f64 = 0.95;
/// A queue that shrinks no more has met somebody who fills it, if it is longer than this part of one that is drained. Others
/// of our kind keep less: one of eight that drains alone sees half. (One of twelve still sees most of it.) Who has not known
/// peace takes all of it for theirs, once.
const KEPT_BY_OTHERS: f64 = 0.65;
/// A queue that is long again so few rounds after it fell, without having been gone, and so often
/// in a row, is filled by somebody.
const RELAPSE_ROUNDS: u32 = 8;
/// See [`RELAPSE_ROUNDS`].
const RELAPSES: u32 = 3;
/// So often after a drain that was given up to others who keep a queue: once it is long again by what they took of it.
const KEPT_RELAPSES: u32 = 2;
/// This part of a queue that is drained is taken for none.
const NEARLY_GONE: u32 = 3;
/// The share of what we have that we give others at once, at most.
const MOST_GIVEN: f64 = 0.2;
/// How far beyond what our own kind keeps a queue must be.
const CLEARLY: f64 = 1.25;
/// So many times its own target the background level does not bear.
const BACKGROUND_MOST: f64 = 2.5;
/// Who had this share of the link when a drain began was alone.
const ALONE: f64 = 0.85;

/// Who came so late that the queue ended his start does not know the link, and sends trains for so
/// many rounds more: with a smaller link in mind he would never want his share of it.
const LATE_ROUNDS: u32 = 96;

/// See the module.
#[derive(Debug)]
pub(super) struct Calm {
    rounds: u32,
    /// Rounds since a dip began.
    since_dip: u32,
    /// The last dip was spoilt.
    again: bool,
    /// Rounds in a row without a queue though the sender was not held back.
    quiet: u32,
    drain: Option<Drain>,
    /// The rounds whose loss has not been judged yet.
    trial: Trial,
    /// The round, our share, and the loss, when too much was lost for the first of several times in a row.
    overrun: Option<(u32, f64, f64)>,
    /// The round in which the last drain ended before the queue was gone, and how often one came
    /// back soon after that.
    drained: Option<u32>,
    relapses: u32,
    lent: Lent,
    /// The background level: any queue is somebody else's.
    yields: bool,
    /// Trains may be sent: the queue has not been found too short for them.
    trains: bool,
    /// The start has overrun something, of which no queue has been seen yet.
    overran: bool,
    sharing: Sharing,
    /// The path's length as it was known at the ends of the last two rounds, the older first.
    lengths: Option<[Duration; 2]>,
    /// Whether a queue that others may keep has been borne: who has not known peace bears it once.
    has_borne: bool,
    ask: Ask,
    longer: Box<Longer>,
}

impl Calm {
    /// The first dip drains what the start left, unless nothing is queued: then it can wait.
    pub(super) fn new(nothing_queued: bool, yields: bool) -> Self {
        Self {
            rounds: 0,
            since_dip: if nothing_queued { DIP_PERIOD - 2 } else { 0 },
            again: false,
            quiet: 0,
            drain: None,
            trial: Trial::default(),
            overrun: None,
            drained: None,
            relapses: 0,
            lent: Lent::default(),
            yields,
            trains: !yields,
            overran: false,
            sharing: Sharing::default(),
            lengths: None,
            has_borne: false,
            ask: Ask::default(),
            longer: Box::default(),
        }
    }

    /// After the start. What was overrun holds no trains. Who came to a link that others use drains first, as they do
    /// since he came: else he takes what they give up, and what they keep for the path's length.
    pub(super) fn after(start: Ended, yields: bool, model: &Model) -> Self {
        let mut calm = Self::new(start == Ended::Told, yields);
        calm.overran = calm.trains && start == Ended::Overrun;
        calm.trains &= !calm.overran;
        calm.lengths = Some([model.path.base; 2]);
        if start != Ended::Told && !yields && model.share < model.link() * ALONE {
            calm.drain = Some(Drain::of_newcomer(model));
        }
        calm
    }

    pub(super) const fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// What arrives now tells so much of our share. Who has just come has none yet that he could keep.
    pub(super) fn tells(&self, now: Instant) -> Tells {
        match &self.drain {
            Some(drain) if self.yields || drain.is_newcomers() => Tells::All,
            drain => self.lent.tells(now, drain.is_some()),
        }
    }

    /// A longer queue is drained.
    fn most_queue(&self, model: &Model) -> Duration {
        if self.yields {
            return model.path.target().mul_f64(BACKGROUND_MOST);
        }
        longest_queue(&model.path).mul_f64(CLEARLY)
    }

    /// A report came; true when others fill the queue.
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        model: &mut Model,
        round: Option<&Round>,
    ) -> bool {
        if let Some(drain) = &mut self.drain {
            self.lent.on_drain(now, model.path.rtt());
            drain.on_share(model.share);
        }
        model.share = model.share.min(self.ask.most());
        let queue = model.path.queue;
        let most = self.most_queue(model);
        let is_long = queue > most && model.queued > 1;
        let shortens = self.shortens(model);
        if self.drain.is_none() && (is_long || shortens) {
            let soon = self.drained.is_some_and(|at| self.rounds < at + RELAPSE_ROUNDS);
            self.relapses = if soon && is_long { self.relapses + 1 } else { 0 };
            self.drain = Some(Drain::new(model, !is_long));
            self.lent.on_drain(now, model.path.rtt());
            self.longer.interrupt(now);
            model.peace.interrupt();
            if is_long {
                self.ask.on_drain();
            }
            if self.relapses >= RELAPSES && !self.yields {
                return true;
            }
        }
        let ends = self.drain.as_ref().is_some_and(|drain| drain.is_for_queue() && !shortens);
        if ends && queue < model.path.target() / 2 {
            (self.drain, self.drained) = (None, None);
            self.ask.answer();
        }
        // What the probe was to find is there, a round trip late as it is.
        if model.queued > LASTING {
            self.quiet = 0;
            // It was full when our start overran it.
            self.trains |= core::mem::take(&mut self.overran);
        }
        // Whose host is busy seldom sees the queue when it is shortest.
        if queue < most / NEARLY_GONE {
            self.drained = None;
        }
        round.is_some_and(|round| self.end_round(model, round))
    }

    /// The path turns out to be shorter than it was a round or two ago: what was taken for its length was a queue, which
    /// others drain, and some of which may still be there.
    fn shortens(&self, model: &Model) -> bool {
        let path = &model.path;
        self.lengths.is_some_and(|[before, _]| before > path.base + path.target() / 2)
    }

    /// It was no drain of a queue. Who has just come has what was his while the others drained.
    fn end_look(&mut self, model: &mut Model) {
        let newcomers = self.drain.take().and_then(|drain| drain.newcomers_share());
        model.share = model.share.max(newcomers.unwrap_or(0.0));
    }

    /// The queue is short again and not gone: others keep it so, and nobody fills it. What was
    /// given up was lent, but not by who has just come, and had what his start took.
    fn give_up_drain(&mut self, model: &mut Model) {
        let Some(drain) = self.drain.take() else { return };
        self.drained = Some(self.rounds);
        if !self.yields && model.peace.most().is_some() {
            model.share = model.share.max(drain.share() * RESTORED);
        }
    }

    fn end_round(&mut self, model: &mut Model, round: &Round) -> bool {
        let shortens = self.shortens(model);
        let base = model.path.base;
        let last = self.lengths.map_or(base, |[_, last]| last);
        self.lengths = Some([last, base]);
        let falls = last > base + model.path.target() / 4;
        let most = self.most_queue(model);
        let finds = |drain: &Drain| drain.finds_length(&model.path, most);
        if !falls && self.drain.as_ref().is_some_and(finds) {
            self.end_look(model);
            self.lengths = Some([base; 2]);
        }
        self.rounds += 1;
        self.since_dip = (self.since_dip + 1) % DIP_PERIOD;
        let usual = model.own_loss.known().map_or(MAX_EXCESS, |own| own * USUAL + EXCESS_LOSS);
        let usual = if model.crowd.is_known() { usual.min(MANY_USUAL) } else { usual };
        if round.limited {
            // Later it would not be the next time in a row.
            self.overrun = None;
        }
        let tried = self.trial.end(round, model.packet.0, usual);
        if self.was_dipping() {
            self.learn_own_loss(model, round);
        }
        let no_queue = round.least_queue.is_some_and(|queue| queue < model.path.target() / 4);
        // That a dip leaves no queue says nothing.
        let dipped = self.is_dipping() || self.was_dipping();
        self.quiet = if no_queue && !round.limited && !dipped { self.quiet + 1 } else { 0 };
        if let Some(tried) = tried {
            self.on_tried(model, &tried);
        }
        if !self.yields {
            let slow = self.drain.is_some() || self.is_dipping();
            self.ask.on_round(model, round, most, slow);
        }
        self.look_for_length(model, round);
        let Some(queue) = round.least_queue else { return false };
        self.learn_to_share(model, round);
        self.learn_share(model, round);
        self.meets_strangers(model, round, queue, shortens)
    }

    /// What never changes may be the way itself. Who yields to everything drains it for ever.
    fn look_for_length(&mut self, model: &mut Model, round: &Round) {
        let drains = self.drain.is_some() && !self.yields;
        let free = !drains && !self.is_dipping() && !self.was_dipping() && self.ask.bytes() == 0.0;
        let Some(by) = self.longer.on_round(model, round, free) else { return };
        model.path.becomes_longer(by);
        self.lengths = Some([model.path.base; 2]);
        (self.drain, self.sharing) = (None, Sharing::default());
    }

    /// What is lost beyond the usual has overrun something that does not queue, unless it is lost at any rate. While a
    /// queue is drained that somebody fills, it says nothing of the path.
    fn on_tried(&mut self, model: &mut Model, tried: &Tried) {
        if !tried.is_excess {
            self.overrun = None;
            return;
        }
        if self.drain.is_some() {
            self.overrun = None;
        } else if self.is_lost_anyway(model, tried) {
            model.own_loss.is(tried.loss);
            self.overrun = None;
            return;
        }
        model.share = model.share.min(tried.arrived);
        self.quiet = 0;
        // What is lost in a queue that somebody fills says nothing of what it holds.
        self.trains &= self.drain.is_some();
    }

    /// Whether the loss has stayed while the rate fell.
    fn is_lost_anyway(&mut self, model: &Model, tried: &Tried) -> bool {
        if model.crowd.is_known() {
            return false;
        }
        let first = (self.rounds, model.share, tried.loss);
        let (round, share, loss) = *self.overrun.get_or_insert(first);
        // Before that, what is reported was sent at the old rate.
        let has_acted = self.rounds > round + BLIND_ROUNDS;
        has_acted && model.share < share * FALLS && tried.loss > loss * STAYS
    }

    /// What a dip loses is the path's own, unless the queue was still long: then somebody may have
    /// overrun it, and another dip follows soon, once.
    fn learn_own_loss(&mut self, model: &mut Model, round: &Round) {
        let long = round.most_queue > self.most_queue(model) || round.least_queue.is_none();
        if self.drain.is_some() || long {
            if !core::mem::replace(&mut self.again, true) {
                self.since_dip = DIP_PERIOD - DIP_AGAIN;
            }
            return;
        }
        self.again = false;
        let window = model.share / 8.0 * model.path.base.as_secs_f64() * 2.0;
        model.own_loss.on_round(round.lost, round.acked + round.lost, window as u64);
    }

    /// How much longer the queue usually is than we keep it. While the application holds us back, it is not what makes us
    /// give.
    fn learn_to_share(&mut self, model: &Model, round: &Round) {
        if self.drain.is_some() || round.limited {
            self.sharing = Sharing::default();
            return;
        }
        let most = self.most_queue(model);
        self.sharing.on_round(&model.path, most);
    }

    /// What we have while nobody fills the queue.
    fn learn_share(&self, model: &mut Model, round: &Round) {
        if self.drain.is_none() && !round.limited {
            let length = round.ends.since(round.started);
            model.peace.on_round(length, model.share, model.path.base);
        }
    }

    /// Goes on with a drain; true when it has met somebody who fills the queue.
    fn meets_strangers(
        &mut self,
        model: &mut Model,
        round: &Round,
        queue: Duration,
        shortens: bool,
    ) -> bool {
        let most = self.most_queue(model);
        let Some(drain) = &mut self.drain else { return false };
        if shortens {
            drain.on_shorter_path(queue);
            return false;
        }
        // Behind a shorter queue it is random loss.
        let is_full = queue > model.path.longest_queue().mul_f64(FULL);
        let overflows = is_full && round.loss() > model.own_loss.ratio() * USUAL + OVERFLOW_LOSS;
        // What we ask with all of our kind see, and drain until it is nearly gone.
        let stays = self.ask.is_open() && queue > most / NEARLY_GONE;
        let progress = drain.on_round(model.path.base, queue, most, overflows);
        let kept = self.ask.on_drained(stays && progress == Progress::Short);
        let answered = stays && (kept || progress == Progress::Stuck);
        match progress {
            Progress::Short | Progress::Stuck if answered => {
                self.drain = None;
                true
            }
            Progress::GoesOn => false,
            Progress::Short if stays => false,
            Progress::Looked => {
                self.end_look(model);
                false
            }
            Progress::Short => {
                self.give_up_drain(model);
                false
            }
            Progress::Stuck => !self.yields && self.is_filled(model, queue, most),
        }
    }

    /// Whether it is somebody else who fills the queue that does not shrink while we drain it.
    fn is_filled(&mut self, model: &mut Model, queue: Duration, most: Duration) -> bool {
        let link = model.link();
        let alone = self.drain.as_ref().is_some_and(|drain| drain.share() > link * ALONE);
        let had = model.peace.most();
        let kept = match had {
            Some(had) if had < link * ALONE => KEPT_BY_OTHERS,
            // While others come, they take all that a drain gives up.
            None if !self.has_borne => 1.0,
            _ => 0.0,
        };
        if !alone && queue < most.mul_f64(kept) {
            self.give_up_drain(model);
            if had.is_some() {
                // If somebody fills it after all, it is long again soon, and once more.
                self.relapses = self.relapses.max(RELAPSES - KEPT_RELAPSES);
            } else {
                // While others come it is long again soon as well: the next drain shows who they are.
                self.has_borne = true;
            }
            return false;
        }
        self.drain = None;
        if alone {
            model.path.becomes_longer(queue);
        }
        !alone
    }

    /// Whether what the ended round reported was sent during a dip, with the queue drained.
    fn was_dipping(&self) -> bool {
        (2..=DIP_ROUNDS).contains(&self.since_dip)
    }

    fn is_dipping(&self) -> bool {
        self.since_dip < DIP_ROUNDS
    }

    /// Datagrams to be sent in one go.
    pub(super) fn train(&self, model: &Model) -> usize {
        let late = model.trains.is_none() && self.rounds < LATE_ROUNDS;
        if late && self.trains { shortest_train(model.packet) } else { 1 }
    }

    /// Bytes in flight beyond what is ours.
    pub(super) fn asked(&self) -> f64 {
        self.ask.bytes() + self.longer.bytes()
    }

    /// On another path nothing is known, and trains are to tell its capacity.
    pub(super) fn on_other_path(&mut self) {
        *self = Self::new(false, self.yields);
    }

    /// A truce leaves no queue that is usual.
    pub(super) fn on_truce(&mut self, now: Instant) {
        self.sharing = Sharing::default();
        self.longer.interrupt(now);
    }

    /// For people to read.
    pub(super) fn name(&self) -> &'static str {
        if self.is_draining() { "drain" } else { "calm" }
    }

    /// The pace, in bits a second.
    pub(super) fn pace(&self, model: &Model) -> f64 {
        if let Some(pace) = self.longer.pace() {
            return pace;
        }
        if let Some(drain) = &self.drain {
            return drain.pace(model.share, self.yields);
        }
        if let Some(pace) = self.ask.pace() {
            return pace;
        }
        let target = model.path.kept().as_secs_f64();
        let rtt = model.path.base.as_secs_f64().max(0.001);
        let excess = target - model.path.queue.as_secs_f64();
        let gain = (1.0 + QUEUE_GAIN * excess / rtt).clamp(0.7, 1.1);
        // With much haste the usual queue would make us give half of it at once.
        let wins =
            if self.yields { 0.0 } else { self.sharing.wins(model).max(-model.share * MOST_GIVEN) };
        if self.is_dipping() {
            return model.share * gain.min(DIP) + wins;
        }
        if self.quiet >= QUIET_ROUNDS {
            let index = ((self.quiet - QUIET_ROUNDS) as usize / 2).min(PROBE_GAINS.len() - 1);
            // The first is for a link that is nearly full: by when it is heard of, the queue is as long as it should be.
            let most = if index == 0 { 1.0 + target / rtt } else { f64::INFINITY };
            return model.compensated(model.share * PROBE_GAINS[index].min(most) + wins);
        }
        model.compensated(model.share * gain + wins)
    }
}

#[cfg(test)]
mod tests {
    use units::{Bytes, Instant};

    use super::super::drain::WAITED_ROUNDS;
    use super::super::path::Path;
    use super::*;

    const BASE: Duration = Duration::from_millis(50);

    /// What is taken for the path's own loss when six tenths are lost at any rate, behind a queue.
    fn own_loss(queue: Duration) -> Option<f64> {
        let mut model = Model::new(Path::new(BASE, 1.0));
        (model.share, model.trains) = (80e6, Some(100e6));
        let (mut calm, mut now) = (Calm::new(true, false), Instant::ZERO);
        // No dip tells of it.
        calm.since_dip = DIP_ROUNDS + 1;
        for _ in 0..12 {
            let started = now;
            now += BASE;
            model.path.on_rtt(now, BASE + queue, Bytes(1452), 100e6);
            model.queued += 1;
            model.share *= 0.8;
            let (acked, lost) = (200_000, 300_000);
            let (least_queue, most_queue) = (Some(queue), queue);
            let round = Round {
                started,
                ends: now,
                acked,
                lost,
                least_queue,
                most_queue,
                ..Round::default()
            };
            if calm.on_report(now, &mut model, Some(&round)) {
                break;
            }
        }
        model.own_loss.known()
    }

    #[test]
    fn what_is_lost_at_any_rate_is_the_paths_own_unless_others_fill_its_queue() {
        assert!(own_loss(Duration::ZERO).is_some());
        assert_eq!(own_loss(Duration::from_millis(50)), None);
    }

    /// Rounds with a share, of who had so much in peace, behind queues of these parts of the longest that is not
    /// drained: the model at last, and whether we contend then.
    fn rounds(share: f64, had: Option<f64>, limited: bool, parts: &[f64]) -> (Model, bool) {
        let (model, contends) = lossy_rounds(share, had, limited, 0, parts);
        (model, contends.is_some())
    }

    /// The same, each of which loses so many of 1000 bytes; and after how many we contend.
    fn lossy_rounds(
        share: f64,
        had: Option<f64>,
        limited: bool,
        lost: u64,
        parts: &[f64],
    ) -> (Model, Option<usize>) {
        driven(Calm::new(true, false), share, had, (limited, lost), parts)
    }

    fn driven(
        mut calm: Calm,
        share: f64,
        had: Option<f64>,
        (limited, lost): (bool, u64),
        parts: &[f64],
    ) -> (Model, Option<usize>) {
        let mut model = Model::new(Path::new(BASE, 1.0));
        (model.share, model.trains, model.queued) = (share, Some(100e6), 2);
        for had in had.iter().cycle().take(20) {
            model.peace.on_round(Duration::from_secs(1), *had, BASE);
        }
        let mut now = Instant::ZERO;
        let contends = parts.iter().position(|part| {
            let started = now;
            now += BASE;
            let queue = calm.most_queue(&model).mul_f64(*part);
            model.path.on_rtt(now, BASE + queue, Bytes(1452), 100e6);
            let (acked, lost, least_queue) = (75 * (1000 - lost), 75 * lost, Some(queue));
            let ends = now;
            let round =
                Round { started, ends, acked, lost, limited, least_queue, ..Round::default() };
            calm.on_report(now, &mut model, Some(&round))
        });
        (model, contends)
    }

    #[test]
    fn a_full_queue_is_waited_for_while_it_overflows() {
        let full = [&[0.8, 0.8][..], &[3.0; 20]].concat();
        let after = |lost, parts: &[f64]| lossy_rounds(12e6, None, false, lost, parts).1;
        let soonest = after(0, &full);
        assert!(soonest.is_some());
        assert_eq!(after(15, &full), soonest, "no more than by chance");
        assert_eq!(after(30, &full), soonest.map(|at| at + WAITED_ROUNDS as usize));
        // What is lost behind a queue that was longer is random.
        let shorter = [&[0.8, 0.8, 3.4][..], &[3.0; 20]].concat();
        assert_eq!(after(30, &shorter), after(0, &shorter));
    }

    /// The same, with an eighth of the link, now and in peace.
    fn contends(parts: &[f64]) -> bool {
        rounds(12e6, Some(12e6), false, parts).1
    }

    #[test]
    fn what_we_have_is_learnt_while_the_queue_is_short() {
        let had = |limited, parts: &[f64]| rounds(12e6, None, limited, parts).0.peace.most();
        let short = [0.3; 210];
        assert!(had(false, &short).is_some_and(|had| (had / 12e6 - 1.0).abs() < 1e-6));
        assert_eq!(had(true, &short), None);
        // A drain each four seconds leaves nothing whole.
        let drained = [&[0.3; 80][..], &[1.1, 0.1]].concat().repeat(5);
        assert_eq!(had(false, &drained), None);
    }

    /// Who is alone by now has nobody beside him who keeps a queue.
    #[test]
    fn a_way_that_became_a_little_longer_is_seen_by_who_is_alone() {
        let parts = [&[0.3; 5][..], &[1.02, 1.0, 0.9], &[0.6; 6]].concat();
        let (model, contends) = rounds(95e6, Some(50e6), false, &parts);
        assert!(!contends && model.path.base > BASE, "{:?}", model.path.base);
    }

    #[test]
    fn a_queue_that_others_keep_while_we_drain_alone_is_no_strangers() {
        let begins = [0.8, 0.8, 1.02, 1.0, 0.9];
        let (stays, falls) = ([begins, [0.9; 5]].concat(), [begins, [0.56; 5]].concat());
        assert!(contends(&stays));
        assert!(!contends(&falls));
        // Who has not known others of our kind reckons with them once.
        assert!(!rounds(12e6, None, false, &falls).1);
        let again = [falls.clone(), vec![0.8; 10], falls[2..].to_vec()].concat();
        assert!(rounds(12e6, None, false, &again).1);
        assert!(!contends(&again));
        // The first time he bears all that is not long, and that it is long again while others come.
        let comes = [stays.clone(), vec![1.02, 1.0, 0.3]].concat();
        assert!(!rounds(12e6, None, false, &comes).1);
        assert!(rounds(12e6, None, false, &[comes, stays.clone()].concat()).1);
        assert!(rounds(12e6, None, false, &[&begins[..], &[1.1; 5]].concat()).1);
        // It is what it was before, or longer once; or it comes back and back, and somebody has filled it.
        assert!(!contends(&[falls.clone(), vec![0.8; 20]].concat()));
        let returns = [falls.clone(), vec![0.8, 0.9, 1.02]].concat();
        assert!(!contends(&[returns.clone(), vec![0.3; 5]].concat()));
        let again = [1.0, 0.9, 0.56, 0.56, 0.56, 0.56, 0.56, 0.8, 1.02];
        assert!(contends(&[&returns[..], &again].concat()));
        // Much later it is another stall.
        let later = [falls, vec![0.8; 10], vec![1.02, 0.56, 0.56, 0.56, 0.56, 0.56, 0.8]];
        assert!(!contends(&later.concat()));
    }

    #[test]
    fn what_is_asked_with_nobody_of_our_kind_keeps() {
        let begins = [0.8, 0.8, 1.02, 1.0, 0.9];
        let contends = |ask: Ask, had: Option<f64>, stays: &[f64]| {
            let calm = Calm { ask, ..Calm::new(true, false) };
            let parts = [&begins[..], stays].concat();
            driven(calm, 12e6, had, (false, 0), &parts).1.is_some()
        };
        for had in [None, Some(12e6)] {
            for (stays, unlike) in [(0.56, true), (0.4, true), (0.3, false)] {
                assert_eq!(contends(Ask::open(), had, &[stays; 5]), unlike, "{stays}");
                assert!(!contends(Ask::default(), had, &[stays; 5]), "others may keep {stays}");
            }
            // One late report does not tell.
            assert!(!contends(Ask::open(), had, &[0.4, 0.2, 0.2]));
        }
        assert!(contends(Ask::open(), None, &[0.9; 5]));
        assert!(!contends(Ask::default(), None, &[0.9; 5]), "what is not long he bears once");
    }

    /// It has not shrunk for three rounds, and a start is seen in the round after the last of them.
    #[test]
    fn a_queue_that_grows_while_it_is_drained_is_waited_for() {
        let seen = |last: &[f64]| {
            let stays = [0.8, 0.8, 3.0, 3.0, 3.0, 2.9];
            contends(&[&stays, last, &[0.1; 5]].concat())
        };
        assert!(seen(&[2.8]));
        // It was a start, and all drain by now.
        assert!(!seen(&[3.2, 2.2, 1.5]));
        assert!(!seen(&[3.2, 6.0, 4.0, 2.5, 1.5]));
        // For a round.
        assert!(seen(&[3.2, 3.5]));
        assert!(seen(&[3.2, 3.2]));
    }

    /// Its queue grows as strangers' do, for some rounds.
    #[test]
    fn whoever_starts_while_a_queue_is_drained_is_waited_for() {
        let falls = [3.0, 2.4, 1.8, 1.2];
        let another = [2.0, 2.6, 3.0];
        let parts = [&[0.8, 0.8][..], &falls, &another, &falls, &another, &falls, &[0.1; 5]];
        assert!(!contends(&parts.concat()));
        // A queue that then stays is somebody's.
        let parts = [&[0.8, 0.8][..], &falls, &another, &[3.0; 6]];
        assert!(contends(&parts.concat()));
    }

    /// A flow that has just come to others, and took 20 ms of their queue for the path, hears of such round trips, each of
    /// them twice, for it takes two to believe one.
    fn hears(model: &mut Model, calm: &mut Calm, now: &mut Instant, rtt: u64) {
        let started = *now;
        *now += BASE;
        for _ in 0..2 {
            model.path.on_rtt(*now, Duration::from_millis(rtt), Bytes(1452), 100e6);
        }
        let least_queue = Some(model.path.queue);
        let round = Round { started, ends: *now, acked: 75_000, least_queue, ..Round::default() };
        assert!(!calm.on_report(*now, model, Some(&round)));
    }

    fn newcomer(ended: Ended) -> (Model, Calm) {
        let mut model = Model::new(Path::new(BASE, 1.0));
        (model.share, model.trains, model.queued) = (20e6, Some(100e6), 2);
        let calm = Calm::after(ended, false, &model);
        (model, calm)
    }

    #[test]
    fn who_overran_a_queue_sends_trains_once_he_has_seen_it() {
        let (mut model, mut calm) = newcomer(Ended::Overrun);
        model.trains = None;
        for (queued, sends) in [(0, false), (LASTING, false), (LASTING + 1, true)] {
            model.queued = queued;
            calm.on_report(Instant::ZERO, &mut model, None);
            assert_eq!(calm.train(&model) > 1, sends, "{queued} reports");
        }
    }

    #[test]
    fn what_arrives_while_others_drain_is_not_ours_but_a_newcomers() {
        let (mut model, mut calm) = newcomer(Ended::Full);
        assert_eq!(calm.tells(Instant::ZERO), Tells::All);
        let mut now = Instant::ZERO;
        for (rtt, share) in [(50, 20e6), (50, 20e6), (40, 15e6), (30, 8e6), (30, 5e6)] {
            model.share = share;
            hears(&mut model, &mut calm, &mut now, rtt);
        }
        assert_eq!((calm.name(), model.share), ("calm", 20e6), "the most that was his");
        let rtt = Duration::from_millis(30);
        assert_eq!(calm.tells(now + rtt - Duration::from_millis(1)), Tells::Nothing);
        assert_eq!(calm.tells(now + rtt), Tells::All);
        calm.drain = Some(Drain::new(&model, false));
        assert_eq!(calm.tells(now + rtt), Tells::Less);
        calm.yields = true;
        assert_eq!(calm.tells(now + rtt), Tells::All, "nobody lends to him");
    }

    #[test]
    fn the_usual_queue_is_forgotten_with_what_made_it() {
        let learnt = |limited| {
            let mut model = Model::new(Path::new(BASE, 1.0));
            let mut calm = Calm::new(true, false);
            let round = Round { limited, ..Round::default() };
            for _ in 0..100 {
                model.path.queue = model.path.kept() + Duration::from_millis(4);
                calm.learn_to_share(&model, &round);
            }
            calm
        };
        let nothing = Sharing::default();
        assert_eq!(learnt(true).sharing, nothing, "what the application holds back");
        assert_ne!(learnt(false).sharing, nothing);
        let drains = |calm: &mut Calm| {
            let model = Model::new(Path::new(BASE, 1.0));
            calm.drain = Some(Drain::new(&model, false));
            calm.learn_to_share(&model, &Round::default());
        };
        let truce = |calm: &mut Calm| calm.on_truce(Instant::ZERO);
        for forget in [truce as fn(&mut Calm), Calm::on_other_path, drains] {
            let mut calm = learnt(false);
            forget(&mut calm);
            assert_eq!(calm.sharing, nothing);
        }
    }

    #[test]
    fn who_comes_to_others_drains_until_the_path_is_no_shorter() {
        let mut model = Model::new(Path::new(BASE, 1.0));
        (model.share, model.trains, model.queued) = (20e6, Some(100e6), 2);
        assert_eq!(Calm::after(Ended::Told, false, &model).name(), "calm");
        assert_eq!(Calm::after(Ended::Full, true, &model).name(), "calm", "it yields as it is");
        model.share = 90e6;
        assert_eq!(Calm::after(Ended::Full, false, &model).name(), "calm", "nobody else is there");
        model.share = 20e6;
        // Who comes to a full queue sees none, and overruns it.
        assert_eq!(Calm::after(Ended::Overrun, false, &model).name(), "drain");
        let ((mut model, mut calm), mut now) = (newcomer(Ended::Full), Instant::ZERO);
        // The others' queue goes after three rounds, and he had taken 20 ms of it for the path.
        for rtt in [50, 50, 50, 45, 40, 35, 30] {
            hears(&mut model, &mut calm, &mut now, rtt);
            assert_eq!(calm.name(), "drain", "{rtt} ms");
        }
        // With the others, as soon as the length stays so, whose queue may be back by then.
        hears(&mut model, &mut calm, &mut now, 36);
        assert_eq!(calm.name(), "calm");
    }
}

//! Among flows that fill the queue: CUBIC's law (RFC 9438), so that such a flow gets as much as
//! we do.
//!
//! Only loss behind a long queue counts as congestion; what is lost behind a short one is the
//! path's own. After each reduction the window rests while we watch the queue: when it stays
//! short and does not grow, nobody fills it any more. Losses that come too soon while little is left to us of what we
//! are owed, or next to nothing that is left, show that the others do not heed loss.

use core::time::Duration;

use units::Instant;

use super::super::AckSample;
use super::super::cubic::Curve;
use super::super::window::Avoidance;
use super::model::{Model, Round};
use super::sharing::longest_queue;

/// The least window, in packets.
const MIN_WINDOW: f64 = 4.0;
/// The pace, in windows a round trip.
const PACING_GAIN: f64 = 1.1;
/// How long the window rests, beyond two round trips.
const WATCH: Duration = Duration::from_millis(3000);
/// Who gets so much of the link, for so many rounds, is alone.
const ALONE: (f64, u32) = (0.93, 6);
/// Losses that come so many times sooner than CUBIC's law makes them ...
const TOO_SOON: f64 = 2.0;
/// ... so many times more often than others do are made by somebody who does not heed them ...
const TOO_OFTEN: u32 = 5;
/// ... if little has been left to us of what we are owed. Flows that heed loss and come make as many losses: four of them
/// bring us from half of the link to a fifth.
const SQUEEZED: Little = Little { part: 0.35, time: Duration::from_secs(2), rounds: 20 };
/// ... or, when those who did not heed loss are looked at again, little of what we had at the look. Flows that all look, and
/// heed loss, leave each other more.
const FALLEN: Little = Little { part: 0.6, time: Duration::from_secs(1), rounds: 10 };
/// So many of [`TOO_OFTEN`] are counted from then on, for they did not heed loss before. Two more must show it again.
const SUSPECTED: u32 = 3;
/// Who is left with so little of what he is owed is not among flows that heed loss; or among ten and more whom he did not
/// know in peace.
const STARVED: Little = Little { part: 0.2, time: Duration::from_secs(4), rounds: 40 };
/// For no longer is any of these borne: truces begin it anew.
const MOST_BORNE: Duration = Duration::from_secs(12);
/// Who has plenty waits for so long after he reduced his window, or began to contend. Then nobody may be there to make a
/// loss, and what looks like a queue be the way.
const HELD: Duration = Duration::from_secs(20);
/// More of the link than this is plenty: somewhat more than half, for some of it is lost.
const PLENTY: f64 = 0.6;

/// See the module.
#[derive(Debug)]
pub(super) struct Contend {
    curve: Curve,
    /// In packets.
    window: f64,
    /// Losses of packets sent before belong to the last reduction.
    reduced_at: Instant,
    /// When the next loss should come at the earliest, by our own law.
    next_loss: Instant,
    soon: u32,
    watch: Option<Watch>,
    alone: u32,
    /// The queue has not been full yet since we contend.
    first: bool,
    squeezed: Borne,
    starved: Borne,
    fallen: Borne,
    /// What we had at a look, in bits a second, until the next truce; else 0, of which nothing is little.
    had: f64,
    /// Among many of our own kind any loss is congestion, nobody is heedless, and truces end it.
    many: bool,
}

/// Less than a part of something, for so long and so many round trips.
#[derive(Debug)]
struct Little {
    part: f64,
    time: Duration,
    rounds: u32,
}

/// Since when little has been left to us.
#[derive(Debug, Default)]
struct Borne(Option<Instant>);

impl Borne {
    /// Whether what we have has been little of this, in bits a second, for as long as it should.
    fn on_report(&mut self, of: f64, little: &Little, model: &Model, sample: &AckSample) -> bool {
        if sample.limited || model.share >= of * little.part {
            self.0 = None;
            return false;
        }
        let patience = (model.path.rtt() * little.rounds).clamp(little.time, MOST_BORNE);
        sample.now.since(*self.0.get_or_insert(sample.now)) >= patience
    }
}

#[derive(Debug)]
struct Watch {
    until: Instant,
    /// The shortest queue since it began, and that of the last round.
    least: Option<Duration>,
}

/// What has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nobody fills the queue any more.
    Calm,
    /// The others do not heed loss.
    Heedless,
}

impl Contend {
    pub(super) fn new(now: Instant, window: f64) -> Self {
        Self {
            curve: Curve::default(),
            window: window.max(MIN_WINDOW),
            reduced_at: now,
            next_loss: now,
            soon: 0,
            watch: None,
            alone: 0,
            first: true,
            squeezed: Borne::default(),
            starved: Borne::default(),
            fallen: Borne::default(),
            had: 0.0,
            many: false,
        }
    }

    /// Among many of our own kind: with what we have.
    pub(super) fn among_many(now: Instant, window: f64) -> Self {
        Self { many: true, first: false, ..Self::new(now, window) }
    }

    /// Among flows that did not heed loss before, beside whom we had so much, in bits a second.
    pub(super) fn again(now: Instant, window: f64, had: f64) -> Self {
        Self { had, soon: SUSPECTED, ..Self::new(now, window) }
    }

    pub(super) const fn is_among_many(&self) -> bool {
        self.many
    }

    pub(super) fn on_report(
        &mut self,
        model: &Model,
        sample: &AckSample,
        round: Option<&Round>,
    ) -> Option<Finding> {
        self.heed(model, sample);
        if self.meets_heedless(model, sample) {
            return Some(Finding::Heedless);
        }
        self.grow(model, sample);
        let round = round?;
        let (share, rounds) = ALONE;
        let alone = model.share > share * model.link() && !round.limited;
        self.alone = if alone { self.alone + 1 } else { 0 };
        let watched = self.watch(model, sample.now, round);
        (watched || self.alone >= rounds).then_some(Finding::Calm)
    }

    /// A report during a truce, of which nothing is found out here: what was watched before it is void.
    pub(super) fn on_truce(&mut self, model: &Model, sample: &AckSample) {
        self.heed(model, sample);
        self.curve.on_idle(sample.now);
        (self.watch, self.alone) = (None, 0);
        (self.squeezed, self.starved, self.fallen) = Default::default();
        // By now they have shown what they do.
        if core::mem::take(&mut self.had) > 0.0 {
            self.soon = self.soon.saturating_sub(SUSPECTED);
        }
    }

    /// Whether losses that come too soon leave us little, or we are left with next to nothing.
    fn meets_heedless(&mut self, model: &Model, sample: &AckSample) -> bool {
        let owed = model.owed();
        let squeezed = self.squeezed.on_report(owed, &SQUEEZED, model, sample);
        let fallen = self.fallen.on_report(self.had, &FALLEN, model, sample);
        let starved = self.starved.on_report(owed, &STARVED, model, sample);
        !self.many && ((squeezed || fallen) && self.soon >= TOO_OFTEN || starved)
    }

    /// What arrives lets the window grow by CUBIC's curve, if we need it and may have it.
    fn grow(&mut self, model: &Model, sample: &AckSample) {
        let before = sample.in_flight.0 + sample.acked.0 + sample.lost.0;
        let idles = ((before * 2) as f64) < self.window(model);
        if idles || self.has_plenty(model, sample.now) {
            self.curve.on_idle(sample.now);
            return;
        }
        // While it rests the curve goes on.
        let packets = sample.acked.0 as f64 / model.packet.0 as f64;
        let acked = if self.rests(model) { 0.0 } else { packets };
        self.window = self.curve.grown(sample.now, self.window, acked, model.path.rtt());
    }

    /// Whether the window rests. Behind a queue that our kind does not keep there is nothing to wait for.
    fn rests(&self, model: &Model) -> bool {
        self.watch.is_some() && model.path.queue < longest_queue(&model.path)
    }

    /// We have most of a link that trains told, and others fill its queue: BBR keeps but two round trips in
    /// flight, and would be left with what these are of a long queue.
    fn has_plenty(&self, model: &Model, now: Instant) -> bool {
        let has_most = model.trains.is_some() && model.share > PLENTY * model.link();
        has_most && is_long(model) && now.since(self.reduced_at) < HELD
    }

    /// Reduces the window where loss or marks tell of congestion.
    fn heed(&mut self, model: &Model, sample: &AckSample) {
        let long = is_long(model);
        let newest = sample.lost_sent.map_or(Instant::ZERO, |(_, newest)| newest);
        let lost = (long || self.many) && newest > self.reduced_at;
        let marked = sample.marked > 0 && sample.now > self.reduced_at + model.path.rtt();
        if lost || marked {
            self.reduce(model, sample.now);
        }
    }

    fn reduce(&mut self, model: &Model, now: Instant) {
        let rtt = model.path.rtt().as_secs_f64();
        self.reduced_at = now;
        // Without fast convergence, which is for flows that stay here: ours converge when calm.
        self.curve = Curve::default();
        if core::mem::take(&mut self.first) {
            // It came after nothing, neither soon nor late. Only now is it known how much the path holds.
            let owed = model.half() / 8.0 * rtt / model.packet.0 as f64;
            self.window = self.window.max(owed);
        } else if now < self.next_loss {
            self.soon += 1;
        } else {
            self.soon = self.soon.saturating_sub(1);
        }
        self.window = self.curve.reduced(self.window).max(MIN_WINDOW);
        // CUBIC comes back to where it was after the cube root of 0.75 W seconds, Reno with
        // CUBIC's factor after 0.57 W round trips.
        let before = self.window / 0.7;
        let back = (0.75 * before).cbrt().min(0.57 * before * rtt);
        self.next_loss = now + Duration::from_secs_f64(back / TOO_SOON);
        let until = now + model.path.rtt() * 2 + WATCH;
        self.watch = (!self.many).then_some(Watch { until, least: None });
    }

    /// True when a watch ended and the queue stayed short and did not grow.
    fn watch(&mut self, model: &Model, now: Instant, round: &Round) -> bool {
        let Some(watch) = &mut self.watch else { return false };
        let Some(queue) = round.least_queue else { return false };
        if round.started < self.reduced_at + model.path.rtt() {
            return false;
        }
        let least = watch.least.map_or(queue, |least| least.min(queue));
        watch.least = Some(least);
        if now < watch.until {
            return false;
        }
        self.watch = None;
        let grew = queue > least + (least / 8).max(model.path.target() / 4);
        queue < longest_queue(&model.path) && !grew
    }

    /// The window in bytes.
    pub(super) fn window(&self, model: &Model) -> f64 {
        self.window * model.packet.0 as f64
    }

    pub(super) fn pace(&self, model: &Model) -> f64 {
        self.window(model) * 8.0 * PACING_GAIN / model.path.rtt().as_secs_f64().max(1e-3)
    }
}

/// The queue is nearer to being full than to being empty.
fn is_long(model: &Model) -> bool {
    model.path.queue * 2 > model.path.longest_queue()
}

#[cfg(test)]
mod tests {
    use units::{Bytes, Rate};

    use super::super::insist::Insist;
    use super::super::path::Path;
    use super::*;

    const BASE: Duration = Duration::from_millis(50);
    const LINK: f64 = 100e6;

    /// Reports every 50 ms behind a queue of 50 ms, of which some tell of a loss; with what part of the link at
    /// which round.
    struct Reports {
        model: Model,
        contend: Contend,
        now: Instant,
    }

    impl Reports {
        fn new() -> Self {
            let mut model = Model::new(Path::new(BASE, 1.0));
            model.packet = Bytes(1452);
            model.trains = Some(LINK);
            let now = Instant::from_nanos(1_000_000_000);
            Self { model, contend: Contend::new(now, 200.0), now }
        }

        fn report(&mut self, part: f64, loses: bool) -> Option<Finding> {
            self.now += BASE;
            let (packet, share) = (self.model.packet, part * LINK);
            self.model.share = share;
            let rtt = self.model.path.base + BASE;
            self.model.path.on_rtt(self.now, rtt, packet, LINK);
            let acked = Bytes((share / 8.0 * BASE.as_secs_f64()) as u64);
            let sample = AckSample {
                now: self.now,
                acked,
                in_flight: acked + acked,
                lost_sent: loses.then_some((self.now, self.now)),
                datagram: packet,
                capacity: Some(Rate::from_bits_per_sec(LINK as u64)),
                ..AckSample::default()
            };
            self.contend.on_report(&self.model, &sample, Some(&Round::default()))
        }

        /// So many reports with a part of the link, and a loss in one of so many; what was found, and after how many.
        fn reports(&mut self, count: u32, part: f64, every: u32) -> Option<(u32, Finding)> {
            (1..=count).find_map(|at| {
                let found = self.report(part, at.is_multiple_of(every))?;
                Some((at, found))
            })
        }
    }

    #[test]
    fn flows_that_come_are_not_taken_for_heedless() {
        let mut reports = Reports::new();
        assert_eq!(reports.reports(10, 0.45, 100), None);
        // A loss each quarter of a second, by which we come down to an eighth within three, and then peace.
        for part in [0.3, 0.22, 0.15, 0.12] {
            assert_eq!(reports.reports(15, part, 5), None);
        }
        assert_eq!(reports.reports(600, 0.2, 100), None);
    }

    #[test]
    fn losses_that_do_not_cease_while_little_is_left_are_heedless() {
        let (after, found) = Reports::new().reports(400, 0.12, 6).expect("it is found");
        assert_eq!(found, Finding::Heedless);
        // Two seconds.
        assert!((40..=50).contains(&after), "{after}");
        assert!(Reports::new().reports(400, 0.16, 6).is_some());
        // With a fifth of the link there is nothing to complain of.
        assert_eq!(Reports::new().reports(400, 0.185, 6), None);
        // Nor of few losses, unless next to nothing is left.
        assert_eq!(Reports::new().reports(400, 0.12, 100), None);
        let (after, _) = Reports::new().reports(400, 0.05, 100).expect("it is found");
        assert!((80..=90).contains(&after), "{after}");
    }

    /// Who had 0.4 of the link when he looked again finds them heedless at 0.22 of it, which is not little at first.
    #[test]
    fn who_did_not_heed_loss_before_is_found_sooner() {
        let again = |had: f64| {
            let mut reports = Reports::new();
            reports.contend = Contend::again(reports.now, 200.0, had * LINK);
            reports
        };
        assert_eq!(Reports::new().reports(400, 0.22, 6), None);
        let (after, found) = again(0.4).reports(400, 0.22, 6).expect("it is found");
        assert_eq!(found, Finding::Heedless);
        // One second, however little he had.
        assert!((20..=25).contains(&after), "{after}");
        let (after, _) = again(0.2).reports(400, 0.1, 6).expect("it is found");
        assert!((20..=25).contains(&after), "{after}");
        // By fewer losses than at first, too.
        let (first, _) = Reports::new().reports(400, 0.16, 12).expect("it is found");
        let (after, _) = again(0.4).reports(400, 0.22, 12).expect("it is found");
        assert!(first >= 72 && after <= 50, "{first}, {after}");
        // Those who heed it by now leave more, or make no more losses than we do.
        assert_eq!(again(0.4).reports(400, 0.26, 6), None);
        // Two that look beside one that heeds it have a third each, and had half.
        assert_eq!(again(0.5).reports(400, 0.33, 6), None);
        assert_eq!(again(0.4).reports(400, 0.22, 100), None);
        // Who had a fifth of the link keeps that among four that look with him and one that heeds loss.
        assert_eq!(again(0.2).reports(400, 0.19, 6), None);
    }

    #[test]
    fn after_a_truce_what_is_little_is_as_at_first() {
        let mut reports = Reports::new();
        reports.contend = Contend::again(reports.now, 200.0, 0.4 * LINK);
        let sample = AckSample { now: reports.now, ..AckSample::default() };
        reports.contend.on_truce(&reports.model, &sample);
        assert_eq!(reports.reports(400, 0.22, 6), None);
    }

    #[test]
    fn among_many_any_loss_is_heeded_and_nobody_is_heedless() {
        let mut reports = Reports::new();
        reports.contend = Contend::among_many(reports.now, 200.0);
        // Nor does any watch end it.
        assert_eq!(reports.reports(400, 0.02, 6), None);
        assert!(reports.contend.window < 20.0, "{}", reports.contend.window);
        // Behind what looks like no queue at all.
        let mut reports = Reports::new();
        reports.contend = Contend::among_many(reports.now, 200.0);
        reports.model.path.base += BASE;
        reports.report(0.02, true);
        assert!(reports.contend.window < 150.0, "{}", reports.contend.window);
    }

    /// Who had an eighth of the link in peace is not squeezed by having that.
    #[test]
    fn what_is_little_depends_on_what_one_had() {
        let among_eight = || {
            let mut reports = Reports::new();
            let round = Duration::from_millis(100);
            (0..120).for_each(|_| reports.model.peace.on_round(round, LINK / 8.0, BASE));
            reports
        };
        assert_eq!(among_eight().reports(400, 0.08, 6), None);
        let (_, found) = among_eight().reports(400, 0.03, 6).expect("it is found");
        assert_eq!(found, Finding::Heedless);
        let insist = Insist::new(Instant::ZERO, LINK / 2.0);
        let most = insist.pace(&among_eight().model);
        assert!((most / (LINK / 8.0 * 1.1 * 1.2) - 1.0).abs() < 0.01, "{most}");
    }

    /// How many times larger the window is after rounds with parts of the link, behind a loss.
    fn grown(rounds: &[(u32, f64)]) -> f64 {
        let mut reports = Reports::new();
        reports.report(rounds[0].1, true);
        let before = reports.contend.window;
        for &(count, part) in rounds {
            reports.reports(count, part, u32::MAX);
        }
        reports.contend.window / before
    }

    #[test]
    fn who_has_plenty_does_not_grow() {
        assert!(grown(&[(190, 0.5)]) > 1.2, "{}", grown(&[(190, 0.5)]));
        assert_eq!(grown(&[(390, 0.65)]), 1.0);
        // Nor at once to where the curve would be by now, when he has less.
        let after = grown(&[(390, 0.65), (20, 0.55)]);
        assert!(after < 1.25, "{after}");
    }

    #[test]
    fn who_has_plenty_and_sees_no_loss_grows_after_all() {
        let grown = grown(&[(500, 0.7)]);
        assert!(grown > 1.2, "{grown}");
    }

    #[test]
    fn it_is_found_between_two_truces_on_the_longest_paths() {
        let mut reports = Reports::new();
        reports.model.path = Path::new(Duration::from_millis(600), 1.0);
        // Reports of 50 ms behind more than a second.
        let found = reports.reports(500, 0.05, 400);
        assert_eq!(found.map(|(_, found)| found), Some(Finding::Heedless));
    }
}

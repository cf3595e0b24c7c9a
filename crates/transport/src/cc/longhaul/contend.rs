//! Among flows that fill the queue: CUBIC's law (RFC 9438), so that such a flow gets as much as
//! we do.
//!
//! Only loss behind a long queue counts as congestion; what is lost behind a short one is the
//! path's own. After each reduction the window rests while we watch the queue: when it stays
//! short and does not grow, nobody fills it any more. Losses that come too soon, or next to nothing that
//! is left to us, show that the others do not heed loss.

use core::time::Duration;

use units::Instant;

use super::super::AckSample;
use super::super::cubic::Curve;
use super::super::window::Avoidance;
use super::model::{Model, Round};

/// The least window, in packets.
const MIN_WINDOW: f64 = 4.0;
/// The pace, in windows a round trip.
const PACING_GAIN: f64 = 1.1;
/// Who was pushed out comes back with this part of the link.
pub(super) const COME_BACK: f64 = 0.5;
/// How long the window rests, beyond two round trips.
const WATCH: Duration = Duration::from_millis(3000);
/// Who gets so much of the link, for so many rounds, is alone.
const ALONE: (f64, u32) = (0.93, 6);
/// Losses that come so many times sooner than CUBIC's law makes them ...
const TOO_SOON: f64 = 2.0;
/// ... so many times more often than others do are made by somebody who does not heed them.
const TOO_OFTEN: u32 = 5;
/// Who is left with less than this part of the link, for so long, is not among flows that heed
/// loss; or among more than ten.
const STARVED: (f64, Duration) = (0.1, Duration::from_secs(4));
/// So many round trips at least.
const STARVED_ROUNDS: u32 = 40;

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
    /// Since then we have had too little.
    starved: Option<Instant>,
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
            starved: None,
        }
    }

    pub(super) fn on_report(
        &mut self,
        model: &Model,
        sample: &AckSample,
        round: Option<&Round>,
    ) -> Option<Finding> {
        if self.heed(model, sample) && self.soon >= TOO_OFTEN {
            return Some(Finding::Heedless);
        }
        if self.is_starved(model, sample) {
            return Some(Finding::Heedless);
        }
        let before = sample.in_flight.0 + sample.acked.0 + sample.lost.0;
        if ((before * 2) as f64) < self.window(model) {
            self.curve.on_idle(sample.now);
        } else {
            // While it rests the curve goes on. Behind a queue that our kind does not keep there is
            // nothing to wait for.
            let calm = model.calm_queue(super::calm::QUEUE_GAIN);
            let resting = self.watch.is_some() && model.path.queue < calm;
            let acked = if resting { 0.0 } else { sample.acked.0 as f64 / model.packet.0 as f64 };
            self.window = self.curve.grown(sample.now, self.window, acked, model.path.rtt());
        }
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
        (self.watch, self.alone, self.starved) = (None, 0, None);
    }

    /// Reduces the window where loss or marks tell of congestion; whether they do.
    fn heed(&mut self, model: &Model, sample: &AckSample) -> bool {
        let long = model.path.queue * 2 > model.path.longest_queue();
        let newest = sample.lost_sent.map_or(Instant::ZERO, |(_, newest)| newest);
        let lost = long && newest > self.reduced_at;
        let marked = sample.marked > 0 && sample.now > self.reduced_at + model.path.rtt();
        if lost || marked {
            self.reduce(model, sample.now);
        }
        lost || marked
    }

    fn is_starved(&mut self, model: &Model, sample: &AckSample) -> bool {
        let ((part, patience), now) = (STARVED, sample.now);
        if sample.limited || model.share >= part * model.link() {
            self.starved = None;
            return false;
        }
        now.since(*self.starved.get_or_insert(now))
            >= patience.max(model.path.rtt() * STARVED_ROUNDS)
    }

    fn reduce(&mut self, model: &Model, now: Instant) {
        let rtt = model.path.rtt().as_secs_f64();
        self.soon = if now < self.next_loss { self.soon + 1 } else { self.soon.saturating_sub(1) };
        self.reduced_at = now;
        // Without fast convergence, which is for flows that stay here: ours converge when calm.
        self.curve = Curve::default();
        if core::mem::take(&mut self.first) {
            // Only now is it known how much the path holds.
            let owed = model.link() * COME_BACK / 8.0 * rtt / model.packet.0 as f64;
            self.window = self.window.max(owed);
        }
        self.window = self.curve.reduced(self.window).max(MIN_WINDOW);
        // CUBIC comes back to where it was after the cube root of 0.75 W seconds, Reno with
        // CUBIC's factor after 0.57 W round trips.
        let before = self.window / 0.7;
        let back = (0.75 * before).cbrt().min(0.57 * before * rtt);
        self.next_loss = now + Duration::from_secs_f64(back / TOO_SOON);
        let until = now + model.path.rtt() * 2 + WATCH;
        self.watch = Some(Watch { until, least: None });
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
        queue < model.calm_queue(super::calm::QUEUE_GAIN) && !grew
    }

    /// The window in bytes.
    pub(super) fn window(&self, model: &Model) -> f64 {
        self.window * model.packet.0 as f64
    }

    pub(super) fn pace(&self, model: &Model) -> f64 {
        self.window(model) * 8.0 * PACING_GAIN / model.path.rtt().as_secs_f64().max(1e-3)
    }
}

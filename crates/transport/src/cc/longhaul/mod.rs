//! Our own controller: a model of the bottleneck made from what the receiver reports.
//!
//! **The rate at which bytes arrive is the capacity while there is a queue, and a lower bound of
//! it while there is none** (`arrivals`). Random loss says nothing of congestion: what is lost
//! even while the pace dips below the capacity is the path's own (`own_loss`), and is sent on top while calm.
//!
//! ```text
//! Startup --capacity told, queue--> Calm --queue does not drain--> Contend --losses unheeded--> Insist
//!                                    ^-------queue drains, alone------+ ^----heeded, looks again---+
//! ```
//!
//! Whose share fades in the calm makes a queue himself, by which he sees whether the others drain it (`ask`).
//!
//! Whose share fades behind a queue that never changes sends a little besides: what does not queue shows a path that has become
//! longer (`longer`).
//!
//! Many of us that overflow the link together (`crowd`) contend without claims, until a truce shows them the path.
//!
//! Whoever contends or insists joins the `truce` of every half minute, from which all of our kind come back calm. Who
//! insisted, and loses half of what he had soon after one, contends again.

mod arrivals;
mod ask;
mod calm;
mod contend;
mod crowd;
mod drain;
mod insist;
mod lent;
mod longer;
mod model;
mod noise;
mod own_loss;
mod path;
mod peace;
mod sharing;
mod startup;
mod trial;
mod truce;

use core::ops::ControlFlow;
use core::time::Duration;

use units::{Bytes, Instant, Rate};

use self::calm::Calm;
use self::contend::{Contend, Finding};
use self::crowd::Crowd;
use self::insist::Insist;
use self::model::{Model, Round, Tells};
use self::own_loss::OwnLoss;
use self::path::Path;
use self::startup::{INITIAL_RATE, INITIAL_WINDOW, Startup};
use self::truce::{Doubt, Shown, Truce};
use super::{AckSample, Controller, Remembered};

/// Until the first round trip.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// The part of the target queue that the background level keeps.
const BACKGROUND: f64 = 0.3;
/// The window never falls below this: enough for a few reports' worth of probing.
const MIN_WINDOW: Bytes = Bytes::kib(16);
/// What may arrive between two reports of a thin flow, which stay below 1% of it.
const UNREPORTED: Bytes = Bytes::kib(32);
/// The pace never falls below this.
const MIN_RATE: Rate = Rate::from_bits_per_sec(64_000);

/// How a flow stands to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Wants its share.
    Normal,
    /// Yields to everything.
    Background,
}

impl Level {
    fn path(self, rtt: Duration) -> Path {
        Path::new(rtt, if self == Self::Background { BACKGROUND } else { 1.0 })
    }
}

#[derive(Debug)]
enum Mode {
    Startup(Startup),
    Calm(Calm),
    Contend(Contend),
    Insist(Insist),
}

/// See the module.
#[derive(Debug)]
pub struct Longhaul {
    level: Level,
    remembered: Option<Remembered>,
    model: Model,
    mode: Mode,
    truce: Truce,
    /// Whether a truce was right to end what we insisted on.
    doubt: Option<Doubt>,
    rate: Rate,
    window: Bytes,
}

impl Longhaul {
    /// A controller that knows nothing of the path yet.
    pub fn new(level: Level) -> Self {
        Self {
            level,
            remembered: None,
            model: Model::new(level.path(INITIAL_RTT)),
            mode: Mode::Startup(Startup::new(level == Level::Background)),
            truce: Truce::new(Instant::ZERO),
            doubt: None,
            rate: INITIAL_RATE,
            window: INITIAL_WINDOW,
        }
    }

    /// Somebody who is not of our kind takes our share.
    fn end_calm(&mut self, now: Instant) -> Mode {
        self.doubt = None;
        self.truce = if self.model.crowd.is_known() {
            Truce::among_many(now, self.model.path.base)
        } else {
            Truce::new(now)
        };
        self.model.peace.interrupt();
        self.contend(now)
    }

    fn contend(&self, now: Instant) -> Mode {
        let model = &self.model;
        if model.crowd.is_known() {
            return among_many(now, model, model.share);
        }
        let rate = model.half().max(model.share);
        let window = rate / 8.0 * model.path.rtt().as_secs_f64() / model.packet.0 as f64;
        Mode::Contend(Contend::new(now, window))
    }

    /// A round ended; true when many of us overflow the link. Who is calm, and loses much, joins their truces.
    fn meets_many(&mut self, now: Instant, round: &Round) -> bool {
        let yields = self.level == Level::Background;
        if matches!(self.mode, Mode::Startup(_)) || self.truce.pace().is_some() || yields {
            return false;
        }
        let link = (self.model.link(), self.model.trains.is_some());
        let calm = matches!(self.mode, Mode::Calm(_));
        let meets = self.model.crowd.on_round(now, round, calm, link);
        let joins = calm && self.model.crowd.is_suspected();
        if (meets || joins) && !self.truce.is_among_many() {
            (self.truce, self.doubt) = (Truce::among_many(now, self.model.path.base), None);
        }
        meets
    }

    /// Goes on with a truce, if it is one's part to keep them: what follows from it, if anything does or one is on.
    fn keep_truce(
        &mut self,
        sample: &AckSample,
        round: Option<&Round>,
    ) -> ControlFlow<Option<Mode>> {
        let yields = self.level == Level::Background;
        let model = &mut self.model;
        let is_kept = match self.mode {
            Mode::Startup(_) => false,
            Mode::Calm(_) => model.crowd.is_suspected(),
            Mode::Contend(_) | Mode::Insist(_) => true,
        };
        if !is_kept {
            return ControlFlow::Continue(());
        }
        let was_on = self.truce.pace().is_some();
        let shown = self.truce.on_report(sample.now, model, round);
        if let Some(shown) = shown.filter(|_| self.truce.is_among_many()) {
            learn_of_many(model, sample.now, shown, self.truce.loss());
        }
        // From the report that begins one to the one that ends it.
        let is_on = was_on || self.truce.pace().is_some();
        ControlFlow::Break(match (shown, &mut self.mode) {
            _ if !is_on => return ControlFlow::Continue(()),
            (_, Mode::Startup(_)) => None,
            (_, Mode::Calm(calm)) => {
                calm.on_truce(sample.now);
                None
            }
            (Some(Shown::Alone), mode) => {
                if let Mode::Insist(_) = mode {
                    self.doubt = Doubt::new(sample.now, model.share, model.link());
                }
                Some(Mode::Calm(Calm::new(false, yields)))
            }
            (Some(Shown::Others { look: true }), Mode::Insist(insist)) => {
                Some(look_again(insist, sample.now, model))
            }
            (Some(_), Mode::Contend(contend))
                if contend.is_among_many() && !model.crowd.is_known() =>
            {
                self.truce = Truce::new(sample.now);
                let window = contend.window(model) / model.packet.0 as f64;
                Some(Mode::Contend(Contend::new(sample.now, window)))
            }
            (_, Mode::Contend(contend)) => {
                contend.on_truce(model, sample);
                None
            }
            (_, Mode::Insist(insist)) => {
                insist.on_truce(sample.now);
                None
            }
        })
    }

    /// The mode that follows, if another does.
    fn next_mode(&mut self, sample: &AckSample) -> Option<Mode> {
        let yields = self.level == Level::Background;
        let tells = match &self.mode {
            Mode::Calm(calm) => calm.tells(sample.now),
            _ => Tells::All,
        };
        let round = self.model.on_ack(sample, tells);
        let round = round.as_ref();
        if round.is_some_and(|round| self.meets_many(sample.now, round)) {
            self.model.own_loss = OwnLoss::default();
            let has = self.model.crowd.arrived().unwrap_or(self.model.share);
            return Some(among_many(sample.now, &self.model, has));
        }
        if let ControlFlow::Break(next) = self.keep_truce(sample, round) {
            return next;
        }
        let model = &mut self.model;
        match &mut self.mode {
            Mode::Startup(startup) => {
                let ended = startup.on_report(model, round)?;
                model.growing = false;
                model.forget_arrivals();
                Some(Mode::Calm(Calm::after(ended, yields, model)))
            }
            Mode::Calm(calm) => {
                let contended = calm.on_report(sample.now, model, round);
                // What an application holds back, or we drain, nobody takes.
                self.doubt.take_if(|doubt| sample.limited || doubt.is_over(sample.now));
                let robbed = self.doubt.as_ref().is_some_and(|it| it.is_justified(model.share))
                    && !model.crowd.is_known()
                    && round.is_some()
                    && !calm.is_draining()
                    && tells == Tells::All;
                (contended || robbed).then(|| self.end_calm(sample.now))
            }
            Mode::Contend(contend) => match contend.on_report(model, sample, round)? {
                Finding::Calm => Some(Mode::Calm(Calm::new(false, yields))),
                // Each of many would find the others heedless.
                Finding::Heedless if model.crowd.is_likely() => None,
                Finding::Heedless => Some(insist(sample.now, model)),
            },
            Mode::Insist(insist) => {
                let gave_way = insist.on_report(sample.now, model, round);
                gave_way.then(|| look_again(insist, sample.now, model))
            }
        }
    }

    fn update(&mut self) {
        let model = &self.model;
        // Twice the bandwidth-delay product, and what reports are late by: a time, and among thin
        // flows the bytes that must arrive to pay for them. A window that holds less would make a
        // flow ever thinner.
        let ahead = |rate: f64| {
            let time = model.path.base * 2 + Duration::from_millis(20);
            rate / 8.0 * time.as_secs_f64() + UNREPORTED.0 as f64
        };
        let (pace, window, least) = match &self.mode {
            Mode::Startup(startup) => {
                (startup.pace(model), ahead(startup.rate(model)), INITIAL_WINDOW)
            }
            Mode::Calm(calm) => {
                let window = ahead(model.compensated(model.share)) + calm.asked();
                (calm.pace(model), window, MIN_WINDOW)
            }
            Mode::Contend(contend) => (contend.pace(model), contend.window(model), MIN_WINDOW),
            Mode::Insist(insist) => (insist.pace(model), insist.window(model), MIN_WINDOW),
        };
        // Another mode would never end it.
        let contends = matches!(self.mode, Mode::Contend(_) | Mode::Insist(_));
        let keeps_truce = contends || model.crowd.is_suspected();
        debug_assert!(keeps_truce || self.truce.pace().is_none(), "it would never end");
        let pace = self.truce.pace().unwrap_or(pace);
        self.rate = Rate::from_bits_per_sec(pace as u64).max(MIN_RATE);
        self.window = Bytes(window as u64).max(least);
    }
}

/// A truce of many has lost so much once the queue had gone; nothing is known of who sent nothing then.
fn learn_of_many(model: &mut Model, now: Instant, shown: Shown, loss: Option<f64>) {
    match (shown, loss) {
        (Shown::Alone, Some(loss)) if model.crowd.on_peace(now, loss) => model.own_loss.is(loss),
        (Shown::Alone, Some(loss)) => model.own_loss.is_at_most(loss),
        (Shown::Alone, None) => {}
        (Shown::Others { .. }, _) => model.crowd.on_strangers(now),
    }
}

/// Among many of our own kind, with so much, in bits a second.
fn among_many(now: Instant, model: &Model, has: f64) -> Mode {
    let window = has / 8.0 * model.path.rtt().as_secs_f64() / model.packet.0 as f64;
    Mode::Contend(Contend::among_many(now, window))
}

/// Among flows that do not heed loss.
fn insist(now: Instant, model: &Model) -> Mode {
    Mode::Insist(Insist::new(now, model.owed().max(model.share)))
}

/// Whether the others heed loss.
fn look_again(insist: &Insist, now: Instant, model: &Model) -> Mode {
    let window = insist.window(model) / model.packet.0 as f64;
    Mode::Contend(Contend::again(now, window, model.share.min(model.owed())))
}

impl Default for Longhaul {
    fn default() -> Self {
        Self::new(Level::Normal)
    }
}

impl Controller for Longhaul {
    fn on_start(&mut self, _now: Instant, rtt: Duration) {
        self.model.path = self.level.path(rtt);
        if let (Mode::Startup(startup), Some(remembered)) = (&mut self.mode, self.remembered) {
            startup.resume(remembered, rtt);
        }
        self.update();
    }

    fn on_sent(&mut self, _now: Instant, _amount: Bytes, in_flight: Bytes) {
        self.model.in_flight = in_flight;
        if matches!(self.mode, Mode::Startup(_)) {
            self.update();
        }
    }

    fn on_ack(&mut self, sample: &AckSample) {
        self.model.in_flight = sample.in_flight;
        if let Some(next) = self.next_mode(sample) {
            self.mode = next;
        }
        self.update();
    }

    fn forget_capacity(&mut self) {
        self.model.trains = None;
        self.model.crowd = Crowd::default();
        self.truce.stop();
        self.doubt = None;
        if let Mode::Calm(calm) = &mut self.mode {
            calm.on_other_path();
        }
    }

    fn window(&self) -> Bytes {
        self.window
    }

    fn pacing_rate(&self) -> Rate {
        self.rate
    }

    fn state(&self) -> &'static str {
        match self.mode {
            Mode::Startup(_) => "startup",
            Mode::Calm(_) => "calm",
            Mode::Contend(_) => "contend",
            Mode::Insist(_) => "insist",
        }
    }

    fn resume(&mut self, remembered: Remembered) {
        self.remembered = Some(remembered);
    }

    fn remembered(&self) -> Option<Remembered> {
        let known = !matches!(self.mode, Mode::Startup(_));
        let rate = Rate::from_bits_per_sec(self.model.most() as u64);
        known.then_some(Remembered { rate, rtt: self.model.path.base })
    }

    fn describe(&self) -> String {
        let mode = match &self.mode {
            Mode::Startup(_) => "startup",
            _ if self.truce.pace().is_some() => "truce",
            Mode::Calm(calm) => calm.name(),
            Mode::Contend(_) => "contend",
            Mode::Insist(_) => "insist",
        };
        let Model { path, share, .. } = &self.model;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        format!(
            "{mode:8} share {:6.1} of {:6.1}, pace {:6.1}, base {:6.1} queue {:5.1}, own {:.4}, noise {:.1}",
            share / 1e6,
            self.model.link() / 1e6,
            self.rate.as_bits_per_sec() as f64 / 1e6,
            ms(path.base),
            ms(path.queue),
            self.model.own_loss.ratio(),
            ms(path.allowance()),
        )
    }

    fn known_rate(&self) -> Rate {
        match &self.mode {
            Mode::Startup(_) => self.rate.min(Startup::known_rate(&self.model)),
            _ => self.rate,
        }
    }

    fn may_insure(&self) -> bool {
        self.level == Level::Normal && matches!(self.mode, Mode::Startup(_) | Mode::Calm(_))
    }

    fn train(&self) -> usize {
        match &self.mode {
            Mode::Startup(startup) => startup.train(&self.model),
            Mode::Calm(calm) => calm.train(&self.model),
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: f64 = 100e6;
    const BASE: Duration = Duration::from_millis(50);

    fn contends(flow: &Longhaul) -> Mode {
        flow.contend(Instant::ZERO)
    }

    fn insists(flow: &Longhaul) -> Mode {
        insist(Instant::ZERO, &flow.model)
    }

    /// Reports every 50 ms from one time to another.
    fn report(flow: &mut Longhaul, times: (u64, u64), queue: impl Fn(u64) -> u64, limited: bool) {
        for millis in (times.0..times.1).step_by(50) {
            flow.on_ack(&AckSample {
                now: Instant::from_nanos(millis * 1_000_000),
                rtt: Some(BASE + Duration::from_millis(queue(millis))),
                datagram: Bytes(1452),
                capacity: Some(Rate::from_bits_per_sec(LINK as u64)),
                limited,
                ..AckSample::default()
            });
        }
    }

    /// What a flow does that had a part of the link, and whom a truce found alone, with so much of that left to him at
    /// so many milliseconds.
    fn after_truce(
        mode: fn(&Longhaul) -> Mode,
        (had, left): (f64, f64),
        at: u64,
        limited: bool,
    ) -> &'static str {
        let mut flow = Longhaul::new(Level::Normal);
        flow.model.path = Path::new(BASE, 1.0);
        flow.model.share = had * LINK;
        flow.mode = mode(&flow);
        flow.truce = Truce::new(Instant::from_nanos(29_000_000_000));
        let queue = |millis: u64| 40_u64.saturating_sub(millis.saturating_sub(30_000) / 5);
        report(&mut flow, (29_000, 31_000), queue, false);
        assert_eq!(flow.state(), "calm");
        report(&mut flow, (31_000, at), |_| 2, limited);
        flow.model.share = had * left * LINK;
        report(&mut flow, (at, at + 150), |_| 2, false);
        flow.state()
    }

    #[test]
    fn a_truce_that_missed_others_costs_half_of_what_was_had_at_most() {
        assert_eq!(after_truce(insists, (0.5, 0.45), 33_000, false), "contend");
        assert_eq!(after_truce(insists, (0.5, 0.55), 33_000, false), "calm");
        // Among several our own kind becomes equal.
        assert_eq!(after_truce(insists, (0.3, 0.45), 33_000, false), "calm");
        // Who heeds loss fills the queue, and is met there.
        assert_eq!(after_truce(contends, (0.5, 0.45), 33_000, false), "calm");
        // Others come later.
        assert_eq!(after_truce(insists, (0.5, 0.45), 42_000, false), "calm");
    }

    #[test]
    fn another_path_is_another_rate() {
        let mut flow = Longhaul::new(Level::Normal);
        flow.doubt = Doubt::new(Instant::ZERO, 0.5 * LINK, LINK);
        assert!(flow.doubt.is_some());
        flow.forget_capacity();
        assert!(flow.doubt.is_none());
    }

    #[test]
    fn what_the_application_holds_back_nobody_took() {
        assert_eq!(after_truce(insists, (0.5, 0.45), 33_000, true), "calm");
    }
}

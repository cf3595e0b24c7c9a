//! Our own controller: a model of the bottleneck made from what the receiver reports.
//!
//! **The rate at which bytes arrive is the capacity while there is a queue, and a lower bound of
//! it while there is none** (`arrivals`). So the model takes the arrival rate as it is when the
//! round-trip time stands above its minimum, and only ever raises the estimate when it does not.
//! Pacing at that estimate, corrected in proportion to how far the queue is from a small target,
//! keeps the pipe full and the queue short. Random loss says nothing of congestion: what is lost
//! even while the pace dips below the capacity is the path's own (`own_loss`), and is sent on top.
//!
//! The start multiplies the rate each round trip until the trains of packets that arrive
//! (packet pairs, drawn out to trains) agree on a capacity; then it goes there at once.

mod arrivals;
mod own_loss;

use core::time::Duration;
use std::collections::VecDeque;

use units::{Bytes, Instant, Rate};

use self::arrivals::Arrivals;
use self::own_loss::OwnLoss;
use super::{AckSample, Controller};

/// In flight at the start.
const INITIAL_WINDOW: Bytes = Bytes::kib(64);
/// A full packet, in bits.
const PACKET_BITS: f64 = 12_000.0;
/// The pace before the round-trip time is known.
const INITIAL_RATE: Rate = Rate::from_bits_per_sec(10_000_000);
/// The window never falls below this: enough for a few reports' worth of probing.
const MIN_WINDOW: Bytes = Bytes::kib(16);
/// The pace never falls below this.
const MIN_RATE: Rate = Rate::from_bits_per_sec(64_000);
/// Growth of the rate in a round trip of the start.
const STARTUP_GAIN: f64 = 2.885;
/// The start is over when the estimate grew less than this in [`STILL_ROUNDS`] rounds.
const STARTUP_GROWTH: f64 = 1.25;
/// See [`STARTUP_GROWTH`].
const STILL_ROUNDS: u32 = 3;
/// Datagrams sent in one go during the start, so that their spacing on arrival tells the
/// capacity.
const TRAIN: usize = 32;
/// The share of the capacity that trains have told at which the start goes on.
const JUMP: f64 = 0.8;
/// The proportional gain of the queue's control. Feedback comes a round trip late; up to 1/e
/// there is no overshoot.
const QUEUE_GAIN: f64 = 0.35;
/// How long a report of a short queue is believed against longer ones.
const QUEUE_MEMORY: Duration = Duration::from_millis(10);
/// A round lasts at least so long, to hold enough reports.
const MIN_ROUND: Duration = Duration::from_millis(10);
/// The pace dips below the capacity, uncompensated, for [`DIP_ROUNDS`] of so many rounds: the
/// queue drains, the least round-trip time shows, and so does loss that is not our doing.
const DIP_PERIOD: u32 = 32;
/// See [`DIP_PERIOD`].
const DIP_ROUNDS: u32 = 3;
/// The pace of a dip, as a share of the capacity.
const DIP: f64 = 0.95;
/// A queue that does not shrink for so many rounds, though the pace lies below the capacity, is
/// none, or is not ours: the path has become longer, or others keep it full.
const STUCK_ROUNDS: u32 = 6;
/// A round that loses so much more than the path's own share has overrun something that does not
/// queue: the capacity is what arrived.
const EXCESS_LOSS: f64 = 0.05;
/// The same while the path's own share is not known.
const MAX_EXCESS: f64 = 0.5;
/// Rounds without any queue after which the pace probes upwards faster.
const QUIET_ROUNDS: u32 = 2;
/// Factors of the pace while probing, each for two quiet rounds: one to act, one to hear of it.
const PROBE_GAINS: [f64; 6] = [1.02, 1.05, 1.12, 1.25, 1.5, 2.0];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The rate multiplies each round trip until trains or a queue tell the capacity, or the
    /// estimate stands still.
    Startup,
    /// Around the estimate, for so many rounds.
    Steady { rounds: u32 },
}

/// See the module.
#[derive(Debug)]
pub struct Longhaul {
    phase: Phase,
    /// Estimate of the bottleneck's rate, in bits a second as received.
    capacity: f64,
    arrivals: Arrivals,
    own_loss: OwnLoss,
    /// The round-trip time without a queue: the least seen, unless draining no longer gets near.
    base_rtt: Duration,
    /// The round-trip time above that: the least of the last moments, so that a late wake-up
    /// is not taken for a queue.
    queue: Duration,
    /// What each report of the last [`QUEUE_MEMORY`] said of it.
    queues: VecDeque<(Instant, Duration)>,
    /// Rounds in a row in which the pace lay below the capacity and the queue did not shrink,
    /// and its least length in the last of them.
    stuck: (u32, Duration),
    round: Round,
    /// Rounds of the start in which the estimate stood still, and the estimate before them.
    still: (u32, f64),
    /// What trains told of the capacity, in bits a second.
    trains: Option<f64>,
    /// Rounds in a row without a queue though the sender was not held back.
    quiet: u32,
    /// Reports in a row that showed a queue.
    queued: u32,
    rate: Rate,
    window: Bytes,
}

/// Sums over a round trip.
#[derive(Debug, Default)]
struct Round {
    started: Instant,
    ends: Instant,
    acked: u64,
    lost: u64,
    limited: bool,
    least_queue: Option<Duration>,
}

impl Longhaul {
    /// A controller that knows nothing of the path yet.
    pub fn new() -> Self {
        Self {
            phase: Phase::Startup,
            capacity: 0.0,
            arrivals: Arrivals::default(),
            own_loss: OwnLoss::default(),
            base_rtt: Duration::from_millis(100),
            queue: Duration::ZERO,
            queues: VecDeque::new(),
            stuck: (0, Duration::ZERO),
            round: Round::default(),
            still: (0, 0.0),
            trains: None,
            quiet: 0,
            queued: 0,
            rate: INITIAL_RATE,
            window: INITIAL_WINDOW,
        }
    }

    /// The queue that is kept: a few milliseconds, less on short paths.
    fn target_queue(&self) -> Duration {
        (self.base_rtt / 32).clamp(Duration::from_millis(1), Duration::from_millis(6))
    }

    /// The time over which arrivals are counted: long enough to smooth over late wake-ups.
    fn span(&self) -> Duration {
        let shortest = if self.phase == Phase::Startup { 10 } else { 25 };
        (self.base_rtt / 4).clamp(Duration::from_millis(shortest), Duration::from_millis(50))
    }

    fn on_arrival_rate(&mut self, rate: f64, limited: bool) {
        let queued = self.queue > self.target_queue();
        self.queued = if queued { self.queued + 1 } else { 0 };
        if rate > self.capacity {
            self.capacity = rate;
        } else if self.phase != Phase::Startup && queued && !limited {
            // Smoothed over about a span's reports, against bunched arrivals.
            self.capacity += (rate - self.capacity) / 8.0;
        }
    }

    fn end_round(&mut self, now: Instant) {
        let ends = now + self.base_rtt.max(MIN_ROUND);
        let next = Round { started: now, ends, ..Round::default() };
        let round = core::mem::replace(&mut self.round, next);
        let settled = round.acked + round.lost;
        let usual = self.own_loss.known().map_or(MAX_EXCESS, |own| own * 1.5 + EXCESS_LOSS);
        let excess = round.lost as f64 > usual * settled as f64;
        if self.was_dipping() {
            self.own_loss.on_round(round.lost, settled, self.window.0);
        }
        let no_queue = round.least_queue.is_some_and(|queue| queue < self.target_queue() / 4);
        self.quiet = if no_queue && !round.limited { self.quiet + 1 } else { 0 };
        self.notice_longer_path(round.least_queue.filter(|_| !excess));
        match &mut self.phase {
            Phase::Startup if round.limited => {}
            Phase::Startup => {
                let (still, before) = self.still;
                let grew = self.capacity > before * STARTUP_GROWTH;
                self.still = if grew { (0, self.capacity) } else { (still + 1, before) };
            }
            Phase::Steady { rounds } => {
                *rounds += 1;
                let elapsed = now.since(round.started).as_secs_f64();
                if excess && !round.limited && elapsed > 0.0 {
                    self.capacity = self.capacity.min(round.acked as f64 * 8.0 / elapsed);
                    self.quiet = 0;
                }
            }
        }
    }

    fn notice_longer_path(&mut self, least_queue: Option<Duration>) {
        let Some(queue) = least_queue else { return };
        let (rounds, before) = self.stuck;
        let steady = self.phase != Phase::Startup;
        let shrank = queue < before.mul_f64(0.95);
        let rounds = if steady && queue > self.target_queue() && !shrank { rounds + 1 } else { 0 };
        self.stuck = (rounds, queue);
        if rounds > STUCK_ROUNDS {
            self.base_rtt += queue;
            self.stuck.0 = 0;
        }
    }

    /// The start ends at a queue, at what trains told, or when nothing grows any more.
    fn leave_startup_when_full(&mut self) {
        let queue = self.queue > self.target_queue() * 2 && self.queued >= 2;
        let told = self.trains.is_some_and(|told| self.capacity >= told * JUMP * 0.9);
        let known = self.phase == Phase::Startup && self.capacity > 0.0;
        if known && (queue || told || self.still.0 >= STILL_ROUNDS) {
            // Where trains told the capacity there is nothing to drain: it can wait a little.
            let rounds = if told && !queue { DIP_PERIOD - 2 } else { 0 };
            self.phase = Phase::Steady { rounds };
            if told && !queue {
                self.capacity = self.trains.unwrap_or(self.capacity).max(self.capacity);
            }
            self.arrivals.clear();
        }
    }

    /// Whether what the ended round reported was sent during a dip, with the queue drained.
    fn was_dipping(&self) -> bool {
        let Phase::Steady { rounds } = self.phase else { return false };
        (2..=DIP_ROUNDS).contains(&(rounds % DIP_PERIOD))
    }

    fn is_dipping(&self) -> bool {
        matches!(self.phase, Phase::Steady { rounds } if rounds % DIP_PERIOD < DIP_ROUNDS)
    }

    fn gain(&self) -> f64 {
        if self.quiet >= QUIET_ROUNDS && !self.is_dipping() {
            let index = ((self.quiet - QUIET_ROUNDS) as usize / 2).min(PROBE_GAINS.len() - 1);
            return PROBE_GAINS[index];
        }
        let excess = self.target_queue().as_secs_f64() - self.queue.as_secs_f64();
        let rtt = self.base_rtt.as_secs_f64().max(0.001);
        (1.0 + QUEUE_GAIN * excess / rtt).clamp(0.7, 1.1)
    }

    fn update(&mut self) {
        let compensated = self.capacity / (1.0 - self.own_loss.ratio());
        let (pace, in_flight) = match self.phase {
            Phase::Startup => {
                let rtt = self.base_rtt.as_secs_f64().max(0.001);
                let least = INITIAL_WINDOW.0 as f64 * 8.0 / rtt;
                let grown = (compensated * STARTUP_GAIN).max(least);
                let pace = self.trains.map_or(grown, |told| told * JUMP);
                (pace, pace)
            }
            Phase::Steady { .. } if self.is_dipping() => {
                (self.capacity * self.gain().min(DIP), compensated)
            }
            Phase::Steady { .. } => (compensated * self.gain(), compensated),
        };
        self.rate = Rate::from_bits_per_sec(pace as u64).max(MIN_RATE);
        // Twice the bandwidth-delay product, and what reports are late by.
        let time = self.base_rtt * 2 + Duration::from_millis(20);
        let window = Rate::from_bits_per_sec(in_flight as u64).bytes_in(time);
        let least = if self.phase == Phase::Startup { INITIAL_WINDOW } else { MIN_WINDOW };
        self.window = window.max(least);
    }
}

impl Default for Longhaul {
    fn default() -> Self {
        Self::new()
    }
}

impl Controller for Longhaul {
    fn on_start(&mut self, _now: Instant, rtt: Duration) {
        self.base_rtt = rtt;
        self.update();
    }

    fn on_ack(&mut self, sample: &AckSample) {
        if let Some(rtt) = sample.rtt {
            self.base_rtt = self.base_rtt.min(rtt);
            // The shortest round trips were those of short packets.
            let packet = PACKET_BITS / self.capacity.max(1e3);
            let waited = rtt - self.base_rtt;
            let queue = waited.saturating_sub(Duration::from_secs_f64(packet));
            self.queues.push_back((sample.now, queue));
            while self.queues.front().is_some_and(|&(at, _)| at + QUEUE_MEMORY < sample.now) {
                self.queues.pop_front();
            }
            self.queue = self.queues.iter().map(|&(_, queue)| queue).min().unwrap_or_default();
            let least = self.round.least_queue.map_or(self.queue, |least| least.min(self.queue));
            self.round.least_queue = Some(least);
        }
        self.round.acked += sample.acked.0;
        self.round.lost += sample.lost.0;
        self.round.limited |= sample.limited;
        self.trains = sample.capacity.map(|rate| rate.as_bits_per_sec() as f64).or(self.trains);
        let (received, at) = sample.received;
        if let Some(rate) = self.arrivals.rate(received.0, at, self.span()) {
            self.on_arrival_rate(rate, sample.limited);
        }
        if sample.now >= self.round.ends {
            self.end_round(sample.now);
        }
        self.leave_startup_when_full();
        self.update();
    }

    fn window(&self) -> Bytes {
        self.window
    }

    fn pacing_rate(&self) -> Rate {
        self.rate
    }

    fn train(&self) -> usize {
        if self.phase == Phase::Startup { TRAIN } else { 1 }
    }
}

//! Our own controller: a model of the bottleneck made from what the receiver reports.
//!
//! **The rate at which bytes arrive is the capacity while there is a queue, and a lower bound of
//! it while there is none.** So the model takes the arrival rate as it is when the round-trip
//! time stands above its minimum, and only ever raises the estimate when it does not. Pacing at
//! that estimate, corrected in proportion to how far the queue is from a small target, keeps the
//! pipe full and the queue short. Random loss says nothing of congestion: the least loss ratio of
//! the recent rounds is taken as the path's own, and what it takes away is sent on top.

use core::time::Duration;
use std::collections::VecDeque;

use units::{Bytes, Instant, Rate};

use super::{AckSample, Controller};

/// In flight at the start.
const INITIAL_WINDOW: Bytes = Bytes::kib(64);
/// The window never falls below this: enough for a few reports' worth of probing.
const MIN_WINDOW: Bytes = Bytes::kib(16);
/// The pace never falls below this.
const MIN_RATE: Rate = Rate::from_bits_per_sec(64_000);
/// Growth of the rate in a round trip of the start.
const STARTUP_GAIN: f64 = 2.885;
/// The start is over when the estimate grew less than this in three rounds.
const STARTUP_GROWTH: f64 = 1.25;
/// The proportional gain of the queue's control. Feedback comes a round trip late; up to 1/e
/// there is no overshoot.
const QUEUE_GAIN: f64 = 0.35;
/// Rounds over which the path's own loss ratio is sought.
const LOSS_ROUNDS: usize = 10;
/// Packets' worth of bytes that a round must have to give a loss ratio.
const LOSS_ROUND_BYTES: u64 = 500_000;
/// A path that loses more than this of itself is not compensated further.
const MAX_OWN_LOSS: f64 = 0.4;
/// Rounds without any queue after which the pace probes upwards faster.
const QUIET_ROUNDS: u32 = 2;
/// Factors of the pace while probing, by quiet rounds.
const PROBE_GAINS: [f64; 4] = [1.02, 1.05, 1.12, 1.25];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The rate multiplies each round trip until a queue appears or the estimate stands still.
    Startup,
    /// Around the estimate.
    Steady,
}

/// See the module.
#[derive(Debug)]
pub struct Longhaul {
    phase: Phase,
    /// Estimate of the bottleneck's rate, in bits a second as received.
    capacity: f64,
    /// Bytes received, by arrival at the receiver.
    arrivals: VecDeque<(Instant, u64)>,
    min_rtt: Duration,
    queue: Duration,
    round: Round,
    own_loss: VecDeque<f64>,
    /// Rounds of the start in which the estimate stood still, and the estimate before them.
    still: (u32, f64),
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
    ends: Instant,
    acked: u64,
    lost: u64,
    limited: bool,
    least_queue: Option<Duration>,
    most_queue: Duration,
}

impl Longhaul {
    /// A controller that knows nothing of the path yet.
    pub fn new() -> Self {
        Self {
            phase: Phase::Startup,
            capacity: 0.0,
            arrivals: VecDeque::new(),
            min_rtt: Duration::from_millis(100),
            queue: Duration::ZERO,
            round: Round::default(),
            own_loss: VecDeque::new(),
            still: (0, 0.0),
            quiet: 0,
            queued: 0,
            rate: INITIAL_WINDOW_RATE,
            window: INITIAL_WINDOW,
        }
    }

    /// The queue that is kept: a few milliseconds, less on short paths.
    fn target_queue(&self) -> Duration {
        (self.min_rtt / 32).clamp(Duration::from_millis(1), Duration::from_millis(6))
    }

    /// The time over which arrivals are counted: long enough to smooth over late wake-ups.
    fn span(&self) -> Duration {
        let shortest = if self.phase == Phase::Startup { 10 } else { 25 };
        (self.min_rtt / 4).clamp(Duration::from_millis(shortest), Duration::from_millis(50))
    }

    /// The arrival rate over the last [`Self::span`], once that much time has been seen.
    fn arrival_rate(&mut self, received: Bytes, at: Instant) -> Option<f64> {
        if self.arrivals.back().is_none_or(|&(last, _)| at > last) {
            self.arrivals.push_back((at, received.0));
        }
        let span = self.span();
        while self.arrivals.len() > 2 && at.since(self.arrivals[1].0) >= span {
            self.arrivals.pop_front();
        }
        let &(from, bytes) = self.arrivals.front()?;
        let elapsed = at.since(from);
        (elapsed >= span).then(|| (received.0 - bytes) as f64 * 8.0 / elapsed.as_secs_f64())
    }

    fn path_loss(&self) -> f64 {
        self.own_loss.iter().copied().reduce(f64::min).unwrap_or(0.0).min(MAX_OWN_LOSS)
    }

    fn on_rate(&mut self, rate: f64, limited: bool) {
        let queued = self.queue > self.target_queue();
        self.queued = if queued { self.queued + 1 } else { 0 };
        if rate > self.capacity {
            self.capacity = rate;
        } else if self.phase == Phase::Steady && queued && !limited {
            // Smoothed over about a span's reports, against bunched arrivals.
            self.capacity += (rate - self.capacity) / 8.0;
        }
    }

    fn end_round(&mut self, now: Instant) {
        let round = core::mem::take(&mut self.round);
        self.round.ends = now + self.min_rtt.max(Duration::from_millis(2));
        let settled = round.acked + round.lost;
        let loss = round.lost as f64 / settled.max(1) as f64;
        // What was lost behind a long queue may be our own doing.
        let short_queue = round.most_queue < self.target_queue() * 4;
        if settled >= LOSS_ROUND_BYTES.min(self.window.0) && (short_queue || loss < self.path_loss())
        {
            if self.own_loss.len() == LOSS_ROUNDS {
                self.own_loss.pop_front();
            }
            self.own_loss.push_back(loss);
        }
        let no_queue = round.least_queue.is_some_and(|queue| queue < self.target_queue() / 4);
        self.quiet = if no_queue && !round.limited { self.quiet + 1 } else { 0 };
        if self.phase == Phase::Startup && !round.limited {
            let (still, before) = self.still;
            if self.capacity > before * STARTUP_GROWTH {
                self.still = (0, self.capacity);
            } else {
                self.still.0 = still + 1;
            }
        }
    }

    fn leave_startup_when_full(&mut self) {
        let clear_queue = self.queue > self.target_queue() * 2 && self.queued >= 2;
        if self.phase == Phase::Startup && (clear_queue || self.still.0 >= 3) {
            self.phase = Phase::Steady;
            self.arrivals.clear();
        }
    }

    fn gain(&self) -> f64 {
        if self.phase == Phase::Startup {
            return STARTUP_GAIN;
        }
        if self.quiet >= QUIET_ROUNDS {
            let index = ((self.quiet - QUIET_ROUNDS) as usize).min(PROBE_GAINS.len() - 1);
            return PROBE_GAINS[index];
        }
        let excess = self.target_queue().as_secs_f64() - self.queue.as_secs_f64();
        let rtt = self.min_rtt.as_secs_f64().max(0.001);
        (1.0 + QUEUE_GAIN * excess / rtt).clamp(0.7, 1.1)
    }

    fn update(&mut self) {
        let sent = self.capacity / (1.0 - self.path_loss());
        let reports = Duration::from_millis(20);
        let least = INITIAL_WINDOW.0 as f64 * 8.0 / self.min_rtt.as_secs_f64().max(0.001);
        let floor = if self.phase == Phase::Startup { least } else { 0.0 };
        let paced = (sent * self.gain()).max(floor);
        self.rate = Rate::from_bits_per_sec(paced as u64).max(MIN_RATE);
        let in_flight = Rate::from_bits_per_sec(sent.max(floor) as u64);
        self.window = in_flight.bytes_in(self.min_rtt * 2 + reports);
        if self.phase == Phase::Startup {
            self.window = Bytes((self.window.0 as f64 * STARTUP_GAIN) as u64).max(INITIAL_WINDOW);
        }
        self.window = self.window.max(MIN_WINDOW);
    }
}

/// Before the round-trip time is known.
const INITIAL_WINDOW_RATE: Rate = Rate::from_bits_per_sec(10_000_000);

impl Default for Longhaul {
    fn default() -> Self {
        Self::new()
    }
}

impl Controller for Longhaul {
    fn on_start(&mut self, _now: Instant, rtt: Duration) {
        self.min_rtt = rtt;
        self.update();
    }

    fn on_ack(&mut self, sample: &AckSample) {
        self.min_rtt = sample.min_rtt;
        if let Some(rtt) = sample.rtt {
            self.queue = rtt.saturating_sub(sample.min_rtt);
            let least = self.round.least_queue.map_or(self.queue, |least| least.min(self.queue));
            self.round.least_queue = Some(least);
            self.round.most_queue = self.round.most_queue.max(self.queue);
        }
        self.round.acked += sample.acked.0;
        self.round.lost += sample.lost.0;
        self.round.limited |= sample.limited;
        let (received, at) = sample.received;
        if let Some(rate) = self.arrival_rate(received, at) {
            self.on_rate(rate, sample.limited);
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
}

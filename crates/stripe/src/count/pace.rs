//! How fast connections may send that do not slow down by themselves: those of BBR, version 1.
//!
//! Such a connection sends as much as it ever saw delivered of late, and heeds no loss. Of several, each
//! remembers the best of its shares, which together are more than there is: the queue is always full, and
//! what does not fit is lost. So once the path shows that it is full, by a queue or by losses beyond those
//! that were always there, all together may send what arrives and a little less, until the queue has
//! gone; then a little more, until it shows again.
//!
//! A queue that stays although we send less is somebody else's. We do not go below a part of what we
//! had, and after a while send freely for some time, to see what is ours.

use core::time::Duration;

use units::{Instant, Rate};

use super::{Sample, TICK, queued};

/// Round-trip times swing by themselves, too: what they do from one half of a round trip to the next,
/// so many times, is no queue.
const SWINGS: u32 = 2;
/// The least of what was seen is trusted for once to twice this long: paths change.
const TRUST: Duration = Duration::from_secs(15);
/// Losses are of our making when this share more is lost than was at least,
const LOSSY: f64 = 0.02;
/// not only now, for losses come in bursts, but of so many segments,
const ENOUGH: f64 = 1000.0;
/// which keep so much of their weight each time.
const FADE: f64 = 0.93;
/// Fewer segments tell nothing.
const FEW: f64 = 40.0;
/// A queue is to have drained after so many round trips, or the second;
const DRAIN: u32 = 8;
const DRAIN_LEAST: Duration = Duration::from_secs(1);
/// for that we send less by this at least and at most.
const LESS: [f64; 2] = [0.02, 0.25];
/// What that brings shows after so many round trips.
const EFFECT: u32 = 2;
/// So much more is tried every half round trip,
const MORE: f64 = 0.005;
/// and ever more when that went well so often, but no more than this.
const CALM: u32 = 24;
const FASTER: f64 = 0.004;
const FASTEST: f64 = 0.1;
/// Who uses less than this of a limit
const USED: f64 = 0.7;
/// so often in a row needs none. BBR rests for two or three round trips now and then.
const UNUSED: u32 = 16;
/// Never less than this of the rate that we had,
const KEPT: f64 = 0.6;
/// and when that was too much so often, with never more than this of it between, we send freely
const PATIENCE: u32 = 4;
const BACK: f64 = 0.8;
/// for so many round trips, or the second.
const FREE: u32 = 24;
const FREE_LEAST: Duration = Duration::from_secs(3);

/// See the module.
#[derive(Debug, Default)]
pub struct Pace {
    step: Option<Step>,
    /// Smoothed round-trip times: where they swing by themselves, the least of all is no base.
    base: Least<Duration>,
    /// That of the last step, and by how much it changes from one to the next.
    last: Option<Duration>,
    swing: Duration,
    /// Segments of late that were lost, and that arrived.
    outcomes: [f64; 2],
    /// The shares of these that were lost.
    least_lost: Least<f64>,
    /// What all connections together may send, in bytes a second.
    limit: Option<f64>,
    /// The best rate since there is a limit.
    best: f64,
    /// Whether no queue has come since then.
    begins: bool,
    /// The effect of the last change does not show before.
    until: Option<Instant>,
    /// How often in a row more went well, and the limit was not used; and how often it was too much all
    /// the same.
    calm: u32,
    unused: u32,
    in_vain: u32,
}

/// The least of late.
#[derive(Debug, Default)]
struct Least<T> {
    /// Of this time and of the one before.
    halves: [Option<T>; 2],
    ends: Instant,
}

impl<T: Copy + PartialOrd> Least<T> {
    /// Takes in another.
    fn with(&mut self, now: Instant, new: T) -> T {
        if now >= self.ends {
            self.halves = [None, self.halves[0]];
            self.ends = now + TRUST;
        }
        let lesser = |a: T, b: T| if b < a { b } else { a };
        self.halves[0] = Some(self.halves[0].map_or(new, |least| lesser(least, new)));
        self.halves.into_iter().flatten().fold(new, lesser)
    }
}

/// Half a round trip or so, as it was at its start.
#[derive(Debug)]
struct Step {
    start: Instant,
    arrived: u64,
    lost: u64,
    /// The least in it.
    rtt: Duration,
    /// Whether there was too little to send at a time.
    idle: bool,
}

/// What a step has shown.
struct Seen {
    /// Bytes a second that arrived.
    rate: f64,
    /// What waits in the path, and from what on that is a queue.
    queue: Duration,
    queued: Duration,
    /// Whether more is lost than always.
    lossy: bool,
    /// Whether too little arrived to tell.
    few: bool,
    idle: bool,
}

impl Pace {
    /// What each connection may send from now on; `None` for no limit. To be called every
    /// [`TICK`] or so.
    pub fn limit(&mut self, sample: &Sample) -> Option<Rate> {
        match self.measure(sample) {
            // Losses of our making show that there was enough to send all the same.
            Some(seen) if seen.idle && !seen.lossy => self.waste(),
            Some(seen) => self.decide(sample, &seen),
            None => {}
        }
        // All that rest begin again together.
        let sending = match sample.connections.saturating_sub(sample.resting) {
            0 => sample.connections.max(1),
            sending => sending,
        };
        Some(Rate::from_bits_per_sec((self.limit? / sending as f64 * 8.0) as u64))
    }

    /// Whether there is a limit: more connections would not help.
    pub const fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    fn measure(&mut self, sample: &Sample) -> Option<Seen> {
        let Sample { now, arrived, lost, least_rtt: rtt, segment, idle, .. } = *sample;
        let base = self.base.with(now, rtt);
        // What arrives after that, and the round-trip time that nothing new smooths, tell nothing.
        if sample.resting >= sample.connections {
            self.until = self.until.max(Some(now + rtt * EFFECT));
        }
        let fresh = Step { start: now, arrived, lost, rtt, idle };
        let Some(step) = &mut self.step else {
            self.step = Some(fresh);
            return None;
        };
        step.rtt = step.rtt.min(rtt);
        step.idle |= idle;
        let time = now.since(step.start);
        if time < (rtt / 2).max(TICK / 2) {
            return None;
        }
        let step = self.step.replace(fresh)?;
        let arrived = arrived.saturating_sub(step.arrived) as f64;
        let lost = lost.saturating_sub(step.lost) as f64;
        for (sum, new) in self.outcomes.iter_mut().zip([lost, arrived]) {
            *sum = *sum * FADE + new;
        }
        let [all_lost, all_arrived] = self.outcomes;
        let lossy = all_arrived > ENOUGH && lost + arrived > FEW && {
            let of_late = all_lost / (all_lost + all_arrived);
            let most = self.least_lost.with(now, of_late) + LOSSY;
            of_late > most && lost > (lost + arrived) * most
        };
        let change =
            self.last.replace(step.rtt).map_or(Duration::ZERO, |last| step.rtt.abs_diff(last));
        self.swing = self.swing.mul_f64(FADE) + change.mul_f64(1.0 - FADE);
        Some(Seen {
            rate: arrived * segment.0 as f64 / time.as_secs_f64(),
            queue: step.rtt.saturating_sub(base),
            queued: queued(base) + self.swing * SWINGS,
            lossy,
            few: arrived < FEW,
            idle: step.idle,
        })
    }

    fn decide(&mut self, sample: &Sample, seen: &Seen) {
        let Sample { now, least_rtt: rtt, .. } = *sample;
        let full = seen.queue > seen.queued || seen.lossy;
        let waits = self.until.is_some_and(|until| now < until);
        let drain = (rtt * DRAIN).max(DRAIN_LEAST).as_secs_f64();
        let less = (seen.queue.as_secs_f64() / drain).clamp(LESS[0], LESS[1]);
        // While the path is full, what arrives is all that it carries.
        let lower = seen.rate * (1.0 - less);
        match self.limit {
            None if waits || !full || seen.few => {}
            None => {
                (self.limit, self.best, self.begins) = (Some(lower), seen.rate, true);
                (self.calm, self.unused, self.in_vain) = (CALM, 0, 0);
                self.until = Some(now + rtt * EFFECT);
            }
            // The first queue comes of bursts, before the path is quite full.
            Some(limit) if waits => {
                if full || self.begins {
                    self.best = self.best.max(seen.rate);
                    self.limit = Some(limit.max(lower));
                }
            }
            Some(_) if full => self.lower(lower, seen.rate, now, rtt),
            Some(limit) => {
                if limit > self.best * BACK {
                    self.in_vain = 0;
                }
                if seen.rate < limit * USED {
                    return self.waste();
                }
                let faster = f64::from(self.calm.saturating_sub(CALM)) * FASTER;
                self.limit = Some(limit * (1.0 + (MORE + faster).min(FASTEST)));
                (self.calm, self.unused) = (self.calm + 1, 0);
            }
        }
    }

    /// Sends no more than this, or what is kept of the best rate.
    fn lower(&mut self, lower: f64, rate: f64, now: Instant, rtt: Duration) {
        (self.begins, self.calm, self.unused) = (false, 0, 0);
        self.best = self.best.max(rate);
        let kept = self.best * KEPT;
        self.limit = Some(lower.max(kept));
        self.until = Some(now + rtt * EFFECT);
        self.in_vain += u32::from(lower < kept);
        if self.in_vain > PATIENCE {
            self.limit = None;
            // What waits now is not ours.
            self.base = Least::default();
            self.until = Some(now + (rtt * FREE).max(FREE_LEAST));
        }
    }

    /// The limit was not used.
    fn waste(&mut self) {
        self.unused += 1;
        if self.unused >= UNUSED {
            self.limit = None;
        }
    }
}

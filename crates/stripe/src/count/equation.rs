//! Paper 1's equation (2)': a rate Tp needs N = Tp D / (k W') connections.

use core::time::Duration;

use units::{Bytes, Instant, Rate};

use super::{Controller, Sample};

/// Weight of a new measurement of k.
const GAIN: f64 = 0.25;
/// What k can be: 1 is all that the windows allow.
const RANGE: core::ops::RangeInclusive<f64> = 0.05..=1.0;
/// A measurement of k covers so many round trips.
const ROUND_TRIPS: u32 = 2;

/// As many connections as a target rate needs, by what each may have on its way (W'), the round-trip
/// time (D) and the *system parameter* k: the share of N W' / D that is reached. The paper measured
/// k = 0.75 for its workstations; here it is learnt while the stream runs, beginning with 1, the
/// paper's equation (2).
#[derive(Debug)]
pub struct Equation {
    target: Rate,
    k: f64,
    since: Option<(Instant, Bytes)>,
    /// The window and round-trip time of the last measurement of k.
    measured: Option<(Bytes, Duration)>,
}

/// What the equation needs to know of a destination: the paper stores it for the next time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System {
    /// k in thousandths.
    pub k: u16,
    /// What each connection may have on its way.
    pub window: Bytes,
    /// The round-trip time.
    pub rtt: Duration,
}

impl System {
    /// Equation (2)': how many connections reach this rate of payload; 1 at least.
    pub fn connections(&self, target: Rate) -> usize {
        let one = by_window(self.window, self.rtt) * f64::from(self.k) / THOUSAND;
        count(target, one).unwrap_or(1)
    }
}

const THOUSAND: f64 = 1000.0;

impl Equation {
    /// For this rate of payload, with what is known of k in thousandths; 0 for nothing.
    pub fn new(target: Rate, k: u16) -> Self {
        let k = if k > 0 { f64::from(k) / THOUSAND } else { 1.0 };
        Self { target, k: k.clamp(*RANGE.start(), *RANGE.end()), since: None, measured: None }
    }

    /// The system parameter as it is known now.
    pub const fn k(&self) -> f64 {
        self.k
    }

    /// Measures k, unless the writer was the slower.
    fn learn(&mut self, sample: &Sample) {
        let (start, delivered) = *self.since.get_or_insert((sample.now, sample.delivered));
        if sample.idle {
            self.since = None;
            return;
        }
        let time = sample.now.since(start);
        if time < sample.rtt * ROUND_TRIPS {
            return;
        }
        self.since = Some((sample.now, sample.delivered));
        let Some(rate) = Rate::of(sample.delivered - delivered, time) else { return };
        let ideal = sample.connections as f64 * by_window(sample.window, sample.rtt);
        if ideal > 0.0 {
            let k = (rate.as_bits_per_sec() as f64 / ideal).clamp(*RANGE.start(), *RANGE.end());
            self.k += GAIN * (k - self.k);
            self.measured = Some((sample.window, sample.rtt));
        }
    }
}

/// Equation (1): W / D, in bits a second.
fn by_window(window: Bytes, rtt: Duration) -> f64 {
    window.0 as f64 * 8.0 / rtt.as_secs_f64().max(1e-6)
}

/// As many as reach a rate, if each reaches `one`.
fn count(target: Rate, one: f64) -> Option<usize> {
    let count = || ((target.as_bits_per_sec() as f64 / one).ceil() as usize).max(1);
    (one > 0.0).then(count)
}

impl Controller for Equation {
    fn connections(&mut self, sample: &Sample) -> usize {
        self.learn(sample);
        let one = by_window(sample.window, sample.rtt) * self.k;
        count(self.target, one).unwrap_or(sample.connections.max(1))
    }

    fn learnt(&self) -> Option<System> {
        let (window, rtt) = self.measured?;
        Some(System { k: (self.k * THOUSAND).round() as u16, window, rtt })
    }
}

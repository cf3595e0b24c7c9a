//! Paper 1's equation (2)': a rate Tp needs N = Tp D / (k W') connections.

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
}

impl Equation {
    /// For this rate of payload.
    pub const fn new(target: Rate) -> Self {
        Self { target, k: 1.0, since: None }
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
        let ideal = by_windows(sample);
        if ideal > 0.0 {
            let k = (rate.as_bits_per_sec() as f64 / ideal).clamp(*RANGE.start(), *RANGE.end());
            self.k += GAIN * (k - self.k);
        }
    }
}

/// Equation (2): N W / D, in bits a second.
fn by_windows(sample: &Sample) -> f64 {
    let per_second = 8.0 / sample.rtt.as_secs_f64().max(1e-6);
    sample.connections as f64 * sample.window.0 as f64 * per_second
}

impl Controller for Equation {
    fn connections(&mut self, sample: &Sample) -> usize {
        self.learn(sample);
        let one = by_windows(&Sample { connections: 1, ..*sample }) * self.k;
        if one <= 0.0 {
            return sample.connections.max(1);
        }
        ((self.target.as_bits_per_sec() as f64 / one).ceil() as usize).max(1)
    }
}

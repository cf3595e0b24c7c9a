//! Paper 1's equation (2)': a rate Tp needs N = Tp D / (k W') connections.

use core::time::Duration;

use units::{Bytes, Instant, Rate};

use super::{Controller, Sample};

/// Weight of a new measurement of k.
const GAIN: f64 = 0.25;
/// What k can be: 1 is all that the windows allow.
const RANGE: core::ops::RangeInclusive<f64> = 0.05..=1.0;
/// What one measurement of k may show: whole records are confirmed, not bytes, so that it comes out too
/// high as often as too low. Held to 1, all of them together would be too low.
const MEASURED: core::ops::RangeInclusive<f64> = 0.05..=2.0;
/// So many round trips pass before the windows of new connections have opened, and what they send is
/// confirmed. A measurement of k covers as many.
const ROUND_TRIPS: u32 = 2;
/// Who is so near a target has reached it: measurements vary by as much, and one connection more for
/// each that came out low would be too many.
const REACHED: f64 = 0.95;
/// A measurement of k takes so long at least.
const LEAST: Duration = Duration::from_secs(1);

/// As many connections as come within a twentieth of a target rate, by what each may have on its way
/// (W'), the round-trip time (D) and the *system parameter* k: the share of N W' / D that is reached.
/// The paper measured k = 0.75 for its workstations; here it is learnt while the stream runs, beginning
/// with 1, the paper's equation (2).
#[derive(Debug)]
pub struct Equation {
    target: Rate,
    k: f64,
    /// What was asked for last.
    count: usize,
    period: Option<Period>,
    /// The window and round-trip time of the last measurement of k.
    measured: Option<(Bytes, Duration)>,
}

/// A measurement of k.
#[derive(Debug)]
struct Period {
    /// That may be yet to come.
    start: Instant,
    last: Instant,
    delivered: Bytes,
    connections: usize,
    /// Bits that all windows that there were allowed by now.
    ideal: f64,
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

    /// The wire form: k, bytes and microseconds.
    pub(crate) fn numbers(self) -> [u64; 3] {
        let rtt = u64::try_from(self.rtt.as_micros()).unwrap_or(u64::MAX);
        [self.k.into(), self.window.0, rtt]
    }

    /// Reads it; `None` where k is none: a part of a thousand.
    pub(crate) fn from_numbers([k, window, rtt]: [u64; 3]) -> Option<Self> {
        let k = u16::try_from(k).ok().filter(|k| (1..=1000).contains(k))?;
        Some(Self { k, window: Bytes(window), rtt: Duration::from_micros(rtt) })
    }
}

const THOUSAND: f64 = 1000.0;

impl Equation {
    /// For this rate of payload, with so many connections at first, and what is known of k in
    /// thousandths; 0 for nothing.
    pub fn new(target: Rate, first: u16, k: u16) -> Self {
        let k = if k > 0 { f64::from(k) / THOUSAND } else { 1.0 };
        let (k, count) = (k.clamp(*RANGE.start(), *RANGE.end()), usize::from(first.max(1)));
        Self { target, k, count, period: None, measured: None }
    }

    /// The system parameter as it is known now.
    pub const fn k(&self) -> f64 {
        self.k
    }

    /// Measures k below the target. False while the windows say nothing: the writer is the slower, or this is not the
    /// side that sends, or connections are new.
    fn learn(&mut self, sample: &Sample) -> bool {
        let Sample { now, delivered, connections, .. } = *sample;
        let pause = sample.rtt * ROUND_TRIPS;
        let after = |time: Duration| Period {
            start: now + time,
            last: now,
            delivered,
            connections,
            ideal: 0.0,
        };
        let goes_on = |period: &Period| !sample.idle && connections <= period.connections;
        let Some(period) = self.period.as_mut().filter(|period| goes_on(period)) else {
            self.period = (!sample.idle).then(|| after(pause));
            return false;
        };
        if now < period.start {
            let start = period.start;
            *period = Period { start, ..after(pause) };
            return false;
        }
        let allowed = connections as f64 * by_window(sample.window, sample.rtt);
        period.ideal += allowed * now.since(period.last).as_secs_f64();
        (period.last, period.connections) = (now, connections);
        if now.since(period.start) < LEAST.max(pause) {
            return true;
        }
        let (bits, ideal) = ((delivered - period.delivered).0 as f64 * 8.0, period.ideal);
        let rate = bits / now.since(period.start).as_secs_f64();
        *period = after(Duration::ZERO);
        if ideal > 0.0 {
            let k = (bits / ideal).clamp(*MEASURED.start(), *MEASURED.end());
            // Where as many as there are should reach the target, and do, a `Hold` keeps the rest back: that says
            // nothing of k.
            let target = self.target.as_bits_per_sec() as f64;
            let should = allowed * self.k >= target;
            if !should || rate < target * REACHED {
                self.k = (self.k + GAIN * (k - self.k)).clamp(*RANGE.start(), *RANGE.end());
            }
            self.measured = Some((sample.window, sample.rtt));
        }
        true
    }
}

/// Equation (1): W / D, in bits a second.
fn by_window(window: Bytes, rtt: Duration) -> f64 {
    window.0 as f64 * 8.0 / rtt.as_secs_f64().max(1e-6)
}

/// As many as reach a rate, or nearly, if each reaches `one`.
fn count(target: Rate, one: f64) -> Option<usize> {
    let count = || ((target.as_bits_per_sec() as f64 * REACHED / one).ceil() as usize).max(1);
    (one > 0.0).then(count)
}

impl Controller for Equation {
    fn connections(&mut self, sample: &Sample) -> usize {
        if self.learn(sample) {
            let one = by_window(sample.window, sample.rtt) * self.k;
            self.count = count(self.target, one).unwrap_or(sample.connections.max(1));
        }
        self.count
    }

    fn learnt(&self) -> Option<System> {
        let (window, rtt) = self.measured?;
        Some(System { k: (self.k * THOUSAND).round() as u16, window, rtt })
    }
}

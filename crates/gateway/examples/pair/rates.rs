//! What some connections that send at once came to, second by second.

use units::Instant;

use crate::load::{LATE, WEIGHTS};

/// Seconds after which all have begun, the late one too, and have found their rates.
const STEADY: usize = LATE.as_secs() as usize + 2;

/// A look at them, one a second.
pub struct Look {
    pub at: Instant,
    /// Bytes of each that have arrived.
    pub delivered: Vec<u64>,
    /// Bytes of each that the near gateway has scheduled into the trunk, where it tells.
    pub scheduled: Vec<u64>,
    /// Seconds of processor time so far, the far gateway's and the near one's.
    pub cpu: Vec<f64>,
}

pub struct Rates {
    pub looks: Vec<Look>,
    /// The share of the packets towards the receivers that found the path's queue full, from the start.
    pub dropped: f64,
    /// Whether every connection was carried, and none went past the gateways; nothing if they do not
    /// tell.
    pub carried: Option<bool>,
}

impl Rates {
    /// Bits a second of all together, from the start and in the second half.
    pub fn whole(&self) -> f64 {
        rate(&self.looks)
    }

    /// See [`Self::whole`].
    pub fn late(&self) -> f64 {
        rate(self.second_half())
    }

    fn second_half(&self) -> &[Look] {
        &self.looks[self.looks.len() / 2..]
    }

    /// Bytes of each in the second half.
    fn bytes(&self) -> Vec<u64> {
        between(self.second_half(), |look| &look.delivered)
    }

    /// Processor time for a Gbit in the second half.
    pub fn cpu(&self) -> Vec<f64> {
        let gbit = self.bytes().iter().sum::<u64>() as f64 * 8e-9;
        let [first, .., last] = self.second_half() else { return Vec::new() };
        last.cpu.iter().zip(&first.cpu).map(|(last, first)| (last - first) / gbit).collect()
    }

    /// The largest deviation from the mean in the second half.
    pub fn deviation(&self) -> f64 {
        deviation(&self.bytes())
    }

    /// The largest in any second once all have begun, of what was scheduled.
    pub fn scheduled(&self) -> f64 {
        self.largest(1, |look| &look.scheduled)
    }

    /// The largest over any ten seconds once all have begun, of what was delivered.
    pub fn delivered(&self) -> f64 {
        self.largest(10, |look| &look.delivered)
    }

    /// The largest deviation over any so many seconds once all have begun, or all of them if they are
    /// fewer.
    fn largest(&self, seconds: usize, of: impl Fn(&Look) -> &Vec<u64>) -> f64 {
        let steady = self.looks.get(STEADY..).unwrap_or_default();
        let windows = steady.windows((seconds + 1).min(steady.len()).max(1));
        let deviations = windows.map(|window| deviation(&between(window, &of)));
        deviations.max_by(f64::total_cmp).unwrap_or(f64::NAN)
    }

    /// The largest deviation from what is due by [`WEIGHTS`].
    pub fn unweighted(&self) -> f64 {
        let bytes = self.bytes();
        let all: u32 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let unit = bytes.iter().sum::<u64>() as f64 / f64::from(all);
        let due = bytes
            .iter()
            .zip(WEIGHTS)
            .map(|(&bytes, (_, weight))| (bytes as f64 / (unit * f64::from(weight)) - 1.0).abs());
        due.fold(0.0, f64::max)
    }

    /// Jain's index of fairness.
    pub fn jain(&self) -> f64 {
        let bytes = self.bytes();
        let sum: f64 = bytes.iter().map(|&bytes| bytes as f64).sum();
        let squares: f64 = bytes.iter().map(|&bytes| (bytes as f64).powi(2)).sum();
        sum * sum / (squares * bytes.len() as f64)
    }
}

/// Bytes of each from the first look to the last; none if not the same ones were seen.
fn between(looks: &[Look], of: impl Fn(&Look) -> &Vec<u64>) -> Vec<u64> {
    let [first, .., last] = looks else { return Vec::new() };
    let (first, last) = (of(first), of(last));
    if first.len() != last.len() {
        return Vec::new();
    }
    last.iter().zip(first).map(|(last, first)| last.saturating_sub(*first)).collect()
}

/// Bits a second of all together.
fn rate(looks: &[Look]) -> f64 {
    let [first, .., last] = looks else { return f64::NAN };
    let bytes = between(looks, |look| &look.delivered).iter().sum::<u64>();
    bytes as f64 * 8.0 / last.at.since(first.at).as_secs_f64()
}

/// The largest from the mean; not a number of none.
fn deviation(bytes: &[u64]) -> f64 {
    let mean = bytes.iter().sum::<u64>() as f64 / bytes.len() as f64;
    let far = bytes.iter().map(|&bytes| (bytes as f64 / mean - 1.0).abs());
    far.max_by(f64::total_cmp).unwrap_or(f64::NAN)
}

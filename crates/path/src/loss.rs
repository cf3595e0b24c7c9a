//! Loss on the line.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::PathError;
use crate::random::Events;
use crate::spelling::{Pairs, ParseConfigError, read, share, split};

/// Which packets the line loses.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum LossConfig {
    /// None.
    #[default]
    None,
    /// Each with this probability (0 to 1), independent of all others.
    Bernoulli(f64),
    /// In bursts.
    GilbertElliott(GilbertElliott),
    /// Those of a recording, again from its start when it ends.
    Trace(LossTrace),
}

/// Two states, each losing packets with a probability of its own (E. N. Gilbert, 1960; E. O.
/// Elliott, 1963). The state may change behind each packet and begins as it is on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// From the good state to the bad one, a packet (the p of the literature).
    pub to_bad: f64,
    /// Back again (r). The bad state lasts 1/r packets on average.
    pub to_good: f64,
    /// Loss in the good state (1 - k).
    pub good: f64,
    /// Loss in the bad state (1 - h).
    pub bad: f64,
}

impl GilbertElliott {
    /// Everything is lost in the bad state and nothing in the good one: `loss` overall, in bursts
    /// of `length` packets on average, at least 1, and `loss / (1 - loss)`, for one passes between two bursts.
    pub fn bursts(loss: f64, length: f64) -> Self {
        let to_good = 1.0 / length.max(1.0);
        let to_bad = (to_good * loss / (1.0 - loss)).min(1.0);
        Self { to_bad, to_good, good: 0.0, bad: 1.0 }
    }

    /// The share of packets that meet the bad state.
    pub fn bad_share(&self) -> f64 {
        let both = self.to_bad + self.to_good;
        if both > 0.0 { self.to_bad / both } else { 0.0 }
    }

    /// The share of packets lost.
    pub fn mean_loss(&self) -> f64 {
        self.good + (self.bad - self.good) * self.bad_share()
    }
}

/// The most packets that a loss trace tells of.
pub const MAX_LOSS_TRACE: usize = 1 << 24;

/// A recording of packet fates.
#[derive(Clone, PartialEq)]
pub struct LossTrace {
    /// One bit a packet, lowest first; set when lost.
    bits: Arc<[u64]>,
    len: usize,
}

impl LossTrace {
    /// How many packets it tells of before it repeats.
    pub fn packets(&self) -> usize {
        self.len
    }

    /// The share of packets lost.
    pub fn mean_loss(&self) -> f64 {
        let lost: u64 = self.bits.iter().map(|bits| u64::from(bits.count_ones())).sum();
        lost as f64 / self.len as f64
    }

    fn lost(&self, packet: usize) -> bool {
        self.bits[packet / 64] >> (packet % 64) & 1 == 1
    }
}

impl fmt::Debug for LossTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LossTrace({} packets, {} lost)", self.len, self.mean_loss())
    }
}

/// Reads a `1` for each packet lost and a `0` for each that passes; white space and lines that
/// begin with `#` do not count.
impl FromStr for LossTrace {
    type Err = ParseConfigError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut bits, mut len) = (Vec::new(), 0);
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with('#') {
                continue;
            }
            let error = |reason: &str| {
                ParseConfigError::new(line, format_args!("line {}: {reason}", number + 1))
            };
            for sign in line.chars().filter(|sign| !sign.is_whitespace()) {
                if !matches!(sign, '0' | '1') {
                    return Err(error("a loss trace has 0 (passed) and 1 (lost) alone"));
                }
                if len == MAX_LOSS_TRACE {
                    return Err(error("a loss trace has at most 16,777,216 packets"));
                }
                if len % 64 == 0 {
                    bits.push(0u64);
                }
                bits[len / 64] |= u64::from(sign == '1') << (len % 64);
                len += 1;
            }
        }
        if len == 0 {
            return Err(ParseConfigError::new(text, "a loss trace tells of no packet"));
        }
        Ok(Self { bits: bits.into(), len })
    }
}

impl LossConfig {
    /// The share of packets lost.
    pub fn mean_loss(&self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Bernoulli(p) => *p,
            Self::GilbertElliott(states) => states.mean_loss(),
            Self::Trace(trace) => trace.mean_loss(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), PathError> {
        let bad = |p: f64| !(0.0..=1.0).contains(&p);
        match self {
            Self::Bernoulli(p) if bad(*p) => Err(PathError::Loss(*p)),
            Self::GilbertElliott(GilbertElliott { to_bad, to_good, good, bad: worse }) => {
                let all = [*to_bad, *to_good, *good, *worse];
                all.into_iter().find(|&p| bad(p)).map_or(Ok(()), |p| Err(PathError::Loss(p)))
            }
            Self::None | Self::Bernoulli(_) | Self::Trace(_) => Ok(()),
        }
    }
}

/// Reads `none`, `1%` or `0.01` (Bernoulli), `bursts:loss=1%,length=5`,
/// `gilbert-elliott:to_bad=0.01,to_good=0.2,good=0,bad=1` and `trace:00010`.
impl FromStr for LossConfig {
    type Err = ParseConfigError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(signs) = text.trim().strip_prefix("trace:") {
            return signs.parse().map(Self::Trace);
        }
        if let Ok(probability) = share(text.trim()) {
            return Ok(if probability == 0.0 { Self::None } else { Self::Bernoulli(probability) });
        }
        let (name, pairs) = split(text)?;
        let error = |reason| ParseConfigError::new(text, reason);
        match name {
            "none" if pairs.is_empty() => Ok(Self::None),
            "bursts" => {
                let (mut loss, mut length) = (0.0, 1.0);
                for (key, value) in pairs {
                    match key {
                        "loss" => share(value).map(|share| loss = share),
                        "length" => read(&mut length, value),
                        _ => Err(format!("bursts have loss and length, not '{key}'")),
                    }
                    .map_err(error)?;
                }
                if !(1.0..1e12).contains(&length) || loss >= 1.0 {
                    return Err(error("give a loss below 1 and a length of 1 or more".into()));
                }
                // At least one packet passes between two bursts.
                let shortest = loss / (1.0 - loss);
                // But for what is rounded.
                if length < shortest * (1.0 - 1e-9) {
                    let why = format!("so much is lost only in bursts of {shortest:.2} or more");
                    return Err(error(why));
                }
                Ok(Self::GilbertElliott(GilbertElliott::bursts(loss, length)))
            }
            "gilbert-elliott" => {
                let mut states = GilbertElliott { to_bad: 0.0, to_good: 1.0, good: 0.0, bad: 1.0 };
                for (key, value) in pairs {
                    let place = match key {
                        "to_bad" => Ok(&mut states.to_bad),
                        "to_good" => Ok(&mut states.to_good),
                        "good" => Ok(&mut states.good),
                        "bad" => Ok(&mut states.bad),
                        _ => Err(format!("the keys are to_bad, to_good, good, bad, not '{key}'")),
                    };
                    *place.map_err(error)? = share(value).map_err(error)?;
                }
                Ok(Self::GilbertElliott(states))
            }
            _ => Err(error(
                "is no loss; give a probability (1%, 0.01), bursts:loss=1%,length=5, \
                 gilbert-elliott:to_bad=...,to_good=... or trace:0001"
                    .into(),
            )),
        }
    }
}

/// Shows what [`FromStr`] reads; of a trace only its length and its share of losses.
impl fmt::Display for LossConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Bernoulli(p) => write!(f, "{p}"),
            Self::GilbertElliott(GilbertElliott { to_bad, to_good, good, bad }) => {
                let mut pairs = Pairs::new(f, "gilbert-elliott")?;
                pairs.pair(true, "to_bad", to_bad)?.pair(true, "to_good", to_good)?;
                pairs.pair(true, "good", good)?.pair(true, "bad", bad)?;
                Ok(())
            }
            Self::Trace(trace) => {
                write!(f, "trace of {} packets, {} lost", trace.len, trace.mean_loss())
            }
        }
    }
}

/// Chooses the lost packets, one decision a packet.
pub(crate) enum Loss {
    None,
    Bernoulli(Events),
    GilbertElliott(States),
    Trace { trace: LossTrace, next: usize },
}

impl Loss {
    pub(crate) fn new(config: &LossConfig, mut rng: Pcg64Mcg) -> Self {
        match config {
            LossConfig::None => Self::None,
            LossConfig::Bernoulli(p) => Self::Bernoulli(Events::new(*p, rng)),
            LossConfig::GilbertElliott(config) => {
                Self::GilbertElliott(States::new(config, &mut rng))
            }
            LossConfig::Trace(trace) => Self::Trace { trace: trace.clone(), next: 0 },
        }
    }

    /// Whether the packet now on the line is lost.
    pub(crate) fn strikes(&mut self) -> bool {
        match self {
            Self::None => false,
            Self::Bernoulli(events) => events.next(),
            Self::GilbertElliott(states) => states.strikes(),
            Self::Trace { trace, next } => {
                let lost = trace.lost(*next);
                *next = (*next + 1) % trace.len;
                lost
            }
        }
    }
}

/// Gilbert and Elliott's two states, the good one first.
pub(crate) struct States {
    bad: usize,
    lose: [Events; 2],
    leave: [Events; 2],
}

impl States {
    fn new(config: &GilbertElliott, rng: &mut Pcg64Mcg) -> Self {
        let bad = usize::from(rng.random::<f64>() < config.bad_share());
        let mut events = |p| Events::new(p, Pcg64Mcg::seed_from_u64(rng.random()));
        Self {
            bad,
            lose: [events(config.good), events(config.bad)],
            leave: [events(config.to_bad), events(config.to_good)],
        }
    }

    fn strikes(&mut self) -> bool {
        let lost = self.lose[self.bad].next();
        if self.leave[self.bad].next() {
            self.bad ^= 1;
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::statistics::{Z, assert_binomial, assert_mean};
    use crate::random::{Stream, stream};
    use proptest::prelude::*;

    fn fates(config: &LossConfig, seed: u64, n: u64) -> Vec<bool> {
        let mut loss = Loss::new(config, stream(seed, Stream::Loss));
        (0..n).map(|_| loss.strikes()).collect()
    }

    fn count(fates: &[bool]) -> u64 {
        fates.iter().filter(|&&lost| lost).count() as u64
    }

    #[test]
    fn ratio_and_pairs_are_binomial() {
        let n = 1_000_000;
        for (seed, p) in [(1, 0.001), (2, 0.01), (3, 0.05), (4, 0.5)] {
            let fates = fates(&LossConfig::Bernoulli(p), seed, n);
            assert_binomial(count(&fates), n, p);
            // Independence: two in a row (disjoint pairs, so that pairs are independent) are p^2.
            let pairs = fates.chunks_exact(2).filter(|c| c[0] && c[1]).count() as u64;
            assert_binomial(pairs, n / 2, p * p);
        }
    }

    #[test]
    fn certain_and_impossible() {
        assert_eq!(count(&fates(&LossConfig::Bernoulli(1.0), 1, 1000)), 1000);
        assert_eq!(count(&fates(&LossConfig::Bernoulli(0.0), 1, 1000)), 0);
    }

    /// The lengths of runs of losses.
    fn bursts(fates: &[bool]) -> Vec<f64> {
        fates
            .split(|&lost| !lost)
            .filter(|run| !run.is_empty())
            .map(|run| run.len() as f64)
            .collect()
    }

    /// With everything lost in the bad state a burst is a stay in it: geometric, so mean 1/r,
    /// standard deviation sqrt(1 - r)/r and P(longer than k) = (1 - r)^k. The overall ratio is
    /// p/(p + r); its standard deviation is the binomial one times sqrt((1 + c)/(1 - c)), c =
    /// 1 - p - r being the chain's correlation from packet to packet.
    #[test]
    fn gilbert_bursts_are_geometric() {
        let n = 4_000_000;
        for (seed, loss, length) in [(1, 0.01, 5.0), (2, 0.001, 20.0), (3, 0.1, 2.0)] {
            let states = GilbertElliott::bursts(loss, length);
            assert!((states.mean_loss() - loss).abs() < 1e-12);
            let fates = fates(&LossConfig::GilbertElliott(states), seed, n);
            let bursts = bursts(&fates);
            let many = bursts.len() as u64;
            let r = 1.0 / length;
            let mean = bursts.iter().sum::<f64>() / many as f64;
            assert_mean(mean, length, (1.0 - r).sqrt() / r, many);
            for k in [1, 2, 5, 10] {
                let longer = bursts.iter().filter(|&&length| length > f64::from(k)).count();
                assert_binomial(longer as u64, many, (1.0 - r).powi(k));
            }
            let c = 1.0 - states.to_bad - states.to_good;
            let sigma = (loss * (1.0 - loss) * (1.0 + c) / (1.0 - c)).sqrt();
            assert_mean(count(&fates) as f64 / n as f64, loss, sigma, n);
        }
    }

    /// All four parameters: the ratio, and P(two in a row) = sum over states of pi_s l_s (sum over
    /// next states of P_st l_t), within five times the interval of independent pairs, for pairs of
    /// a chain with memory vary more.
    #[test]
    fn elliott_has_loss_in_both_states() {
        let n = 4_000_000;
        let states = GilbertElliott { to_bad: 0.02, to_good: 0.1, good: 0.005, bad: 0.4 };
        let fates = fates(&LossConfig::GilbertElliott(states), 9, n);
        let (pi, l) = ([5.0 / 6.0, 1.0 / 6.0], [0.005, 0.4]);
        let expected = pi[0] * l[0] + pi[1] * l[1];
        assert!((states.mean_loss() - expected).abs() < 1e-12);
        // The covariance of packets k apart is pi_0 pi_1 (l_1 - l_0)^2 c^k.
        let c: f64 = 1.0 - 0.02 - 0.1;
        let covariance = pi[0] * pi[1] * (l[1] - l[0]) * (l[1] - l[0]) * c / (1.0 - c);
        let sigma = (expected * (1.0 - expected) + 2.0 * covariance).sqrt();
        assert_mean(count(&fates) as f64 / n as f64, expected, sigma, n);
        let pair =
            pi[0] * l[0] * (0.98 * l[0] + 0.02 * l[1]) + pi[1] * l[1] * (0.1 * l[0] + 0.9 * l[1]);
        let pairs = fates.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64;
        let half = 5.0 * Z * (n as f64 * pair * (1.0 - pair)).sqrt();
        assert!((pairs - n as f64 * pair).abs() < half, "{pairs} {}", n as f64 * pair);
    }

    #[test]
    fn a_trace_is_followed_and_repeated() {
        let config: LossConfig = "trace:0010 1".parse().expect("a trace");
        let expected = [false, false, true, false, true];
        for (i, lost) in fates(&config, 1, 1000).into_iter().enumerate() {
            assert_eq!(lost, expected[i % 5]);
        }
        assert_eq!(config.mean_loss(), 0.4);
        let error = "01\n# remark 2\n02".parse::<LossTrace>().unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
        assert!("# nothing\n".parse::<LossTrace>().is_err());
    }

    #[test]
    fn spellings_are_read() {
        let read = |text: &str| text.parse::<LossConfig>();
        assert_eq!(read("1%"), Ok(LossConfig::Bernoulli(0.01)));
        assert_eq!(read("0"), Ok(LossConfig::None));
        let bursts = GilbertElliott::bursts(0.01, 5.0);
        assert_eq!(read("bursts:loss=1%,length=5"), Ok(LossConfig::GilbertElliott(bursts)));
        for bad in ["2", "101%", "bursts:loss=1", "bursts:length=0.5", "gilbert-elliott:x=1", "NaN"]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
        // What is lost in bursts of 5 is 5 of 6 at most.
        assert!((read("bursts:loss=83%,length=5").unwrap().mean_loss() - 0.83).abs() < 1e-9);
        assert!((read("bursts:loss=90%,length=9").unwrap().mean_loss() - 0.9).abs() < 1e-9);
        let error = read("bursts:loss=90%,length=5").unwrap_err().to_string();
        assert!(error.contains("bursts of 9.00 or more"), "{error}");
        for shown in ["none", "0.01", "gilbert-elliott:to_bad=0.01,to_good=0.2,good=0,bad=1"] {
            assert_eq!(read(shown).map(|loss| loss.to_string()).as_deref(), Ok(shown));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_read_or_refused(text in "(bursts|trace|gilbert-elliott|)[:=,%.a-z0-9 é\n]*") {
            let _ = text.parse::<LossConfig>();
            let _ = text.parse::<LossTrace>();
        }
    }
}

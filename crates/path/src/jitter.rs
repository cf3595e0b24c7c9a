//! Delay that varies from packet to packet.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::spelling::{ParseConfigError, time};

/// Time added to a packet's delay, drawn for each on its own. Packets that keep their order are later: each waits
/// for those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jitter {
    /// None.
    #[default]
    None,
    /// Evenly between nothing and this.
    Uniform(Duration),
    /// Exponential with this mean, as of a wait elsewhere.
    Exponential(Duration),
}

impl Jitter {
    /// The mean, or the most of an even spread, which bounds what one parameter may be.
    pub(crate) fn parameter(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Uniform(time) | Self::Exponential(time) => time,
        }
    }

    /// The longest that is ever drawn.
    pub fn most(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Uniform(most) => most,
            // The smallest uniform number is 2^-53, and 53 ln 2 is below 37.
            Self::Exponential(mean) => mean * 37,
        }
    }

    pub(crate) fn draw(self, rng: &mut Pcg64Mcg) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Uniform(most) => most.mul_f64(rng.random::<f64>()),
            Self::Exponential(mean) => mean.mul_f64(-(1.0 - rng.random::<f64>()).ln()),
        }
    }
}

/// Reads `5ms` or `uniform:5ms`, `exponential:2ms` and `none`.
impl FromStr for Jitter {
    type Err = ParseConfigError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(Self::None);
        }
        let (kind, length) = text.split_once(':').unwrap_or(("uniform", text));
        let length = time(length).map_err(|reason| ParseConfigError::new(text, reason))?;
        match kind {
            "uniform" => Ok(Self::Uniform(length)),
            "exponential" => Ok(Self::Exponential(length)),
            _ => Err(ParseConfigError::new(text, "jitter is uniform:TIME or exponential:TIME")),
        }
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Uniform(most) => write!(f, "uniform:{}", humantime::format_duration(*most)),
            Self::Exponential(mean) => {
                write!(f, "exponential:{}", humantime::format_duration(*mean))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Stream, stream};

    /// Kolmogorov and Smirnov's largest distance between the drawn and the true distribution is
    /// below 1.949/sqrt(n) in 99.9% of cases.
    fn assert_distributed(jitter: Jitter, truth: impl Fn(f64) -> f64) {
        let n = 100_000;
        let mut rng = stream(11, Stream::Jitter);
        let mut drawn: Vec<_> = (0..n).map(|_| jitter.draw(&mut rng).as_secs_f64()).collect();
        drawn.sort_by(f64::total_cmp);
        let n = f64::from(n);
        let distance = drawn
            .iter()
            .enumerate()
            .map(|(i, &x)| {
                (truth(x) - i as f64 / n).abs().max((truth(x) - (i + 1) as f64 / n).abs())
            })
            .fold(0.0, f64::max);
        assert!(distance < 1.949 / n.sqrt(), "{distance}");
        assert!(drawn.last().is_some_and(|&last| last <= jitter.most().as_secs_f64()));
    }

    #[test]
    fn draws_are_distributed_as_named() {
        let time = Duration::from_millis(5);
        assert_distributed(Jitter::Uniform(time), |x| (x / 0.005).clamp(0.0, 1.0));
        assert_distributed(Jitter::Exponential(time), |x| 1.0 - (-x / 0.005).exp());
    }

    #[test]
    fn spellings_are_read() {
        for text in ["none", "uniform:5ms", "exponential:2ms 500us"] {
            assert_eq!(
                text.parse::<Jitter>().map(|jitter| jitter.to_string()).as_deref(),
                Ok(text)
            );
        }
        assert_eq!("5ms".parse(), Ok(Jitter::Uniform(Duration::from_millis(5))));
        assert!("gauss:5ms".parse::<Jitter>().is_err());
    }
}

//! What a path is like.

use core::time::Duration;

use units::{Bytes, Rate};

use crate::{Link, LossConfig, QueueConfig};

/// The longest one-way delay: an hour, beyond Mars at its farthest.
pub const MAX_DELAY: Duration = Duration::from_secs(3600);

/// Separates the random numbers of the two directions.
const BACK_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// One direction of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// What the transmitter puts on the line.
    pub rate: Rate,
    /// Propagation, added to the time on the transmitter.
    pub delay: Duration,
    /// Loss on the line.
    pub loss: LossConfig,
    /// What waits for the transmitter.
    pub queue: QueueConfig,
    /// Bytes of framing that each packet costs on the line beside its own size; the queue does
    /// not count them.
    pub framing: Bytes,
}

impl LinkConfig {
    fn check(&self) -> Result<(), PathError> {
        if self.rate == Rate::ZERO {
            return Err(PathError::NoRate);
        }
        if self.delay > MAX_DELAY {
            return Err(PathError::Delay(self.delay));
        }
        match self.loss {
            LossConfig::Bernoulli(p) if !(0.0..=1.0).contains(&p) => Err(PathError::Loss(p)),
            LossConfig::Bernoulli(_) | LossConfig::None => Ok(()),
        }
    }
}

/// Both directions of a path. `forward` goes from the near host to the far one, `back` returns.
#[derive(Clone, Debug, PartialEq)]
pub struct PathConfig {
    /// Near to far: the data direction in the project's measurements.
    pub forward: LinkConfig,
    /// Far to near.
    pub back: LinkConfig,
    /// Fixes every random choice of both directions.
    pub seed: u64,
}

impl PathConfig {
    /// A path of the same `rate` both ways, half of `rtt` each way, without loss, behind the
    /// default queue (50 ms drop-tail), with seed 1.
    pub fn new(rate: Rate, rtt: Duration) -> Self {
        let link = |delay| LinkConfig {
            rate,
            delay,
            loss: LossConfig::None,
            queue: QueueConfig::default(),
            framing: Bytes::ZERO,
        };
        Self { forward: link(rtt - rtt / 2), back: link(rtt / 2), seed: 1 }
    }

    /// Loses packets from near to far with `probability`, each on its own. The way back stays
    /// clean, as in the measurements this project compares itself with; see
    /// [`with_loss_back`](Self::with_loss_back).
    #[must_use]
    pub fn with_loss(mut self, probability: f64) -> Self {
        self.forward.loss = LossConfig::Bernoulli(probability);
        self
    }

    /// Loses packets from far to near with `probability`.
    #[must_use]
    pub fn with_loss_back(mut self, probability: f64) -> Self {
        self.back.loss = LossConfig::Bernoulli(probability);
        self
    }

    /// Sets the queue of both directions.
    #[must_use]
    pub fn with_queue(mut self, queue: QueueConfig) -> Self {
        self.forward.queue = queue;
        self.back.queue = queue;
        self
    }

    /// Sets the seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Propagation delay there and back.
    pub fn rtt(&self) -> Duration {
        self.forward.delay + self.back.delay
    }

    /// The forward and the back link, both empty.
    ///
    /// # Errors
    /// A value of the configuration is outside its range.
    pub fn links<T>(&self) -> Result<(Link<T>, Link<T>), PathError> {
        self.forward.check()?;
        self.back.check()?;
        let forward = Link::new(&self.forward, self.seed);
        let back = Link::new(&self.back, self.seed ^ BACK_SEED);
        Ok((forward, back))
    }
}

/// Why a path cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PathError {
    /// A link of rate zero.
    #[error("a link needs a rate above zero")]
    NoRate,
    /// A probability outside 0 to 1.
    #[error("a loss of {0} is no probability; give a value from 0 to 1")]
    Loss(f64),
    /// More than [`MAX_DELAY`].
    #[error("a one-way delay of {0:?} is above the {MAX_DELAY:?} this model holds")]
    Delay(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_makes_no_path() {
        let path = PathConfig::new(Rate::from_bits_per_sec(1), Duration::from_millis(1));
        assert!(path.links::<()>().is_ok());
        let error = |p: PathConfig| p.links::<()>().err();
        assert_eq!(error(path.clone().with_loss(1.5)), Some(PathError::Loss(1.5)));
        assert!(matches!(error(path.clone().with_loss_back(f64::NAN)), Some(PathError::Loss(_))));
        assert_eq!(error(PathConfig::new(Rate::ZERO, Duration::ZERO)), Some(PathError::NoRate));
        let far = PathConfig::new(Rate::from_bits_per_sec(1), 3 * MAX_DELAY);
        assert!(matches!(error(far), Some(PathError::Delay(_))));
    }

    #[test]
    fn an_odd_round_trip_is_kept_whole() {
        let rtt = Duration::from_nanos(7);
        assert_eq!(PathConfig::new(Rate::from_bits_per_sec(1), rtt).rtt(), rtt);
    }
}

//! Round-trip time.

use core::time::Duration;

use units::Instant;

/// How long a minimum is trusted: afterwards the path may have become longer.
const MIN_TRUST: Duration = Duration::from_secs(10);

/// Smoothed round-trip time and its variation (RFC 6298), and the recent minimum.
#[derive(Clone, Debug, Default)]
pub struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    /// Minima of this and of the previous half of the trusted time.
    minima: [Option<Duration>; 2],
    half_ends: Instant,
}

impl Rtt {
    /// Takes in a sample.
    pub fn on_sample(&mut self, now: Instant, sample: Duration) {
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                let error = smoothed.abs_diff(sample);
                self.variation = (self.variation * 3 + error) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
        if now >= self.half_ends {
            self.minima = [None, self.minima[0]];
            self.half_ends = now + MIN_TRUST / 2;
        }
        self.minima[0] = Some(self.minima[0].map_or(sample, |min| min.min(sample)));
    }

    /// The smoothed time, once there is a sample.
    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The mean deviation.
    pub fn variation(&self) -> Duration {
        self.variation
    }

    /// The least sample of the last 5 to 10 seconds; zero before the first.
    pub fn min(&self) -> Duration {
        self.minima.iter().flatten().min().copied().unwrap_or_default()
    }

    /// How long an answer may take before it is missed, without the other end's own delay.
    pub fn patience(&self) -> Duration {
        self.smoothed.map_or(Duration::from_millis(500), |smoothed| {
            smoothed + (self.variation * 4).max(Duration::from_millis(1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_is_forgotten_when_old() {
        let mut rtt = Rtt::default();
        let ms = Duration::from_millis;
        let mut now = Instant::ZERO;
        rtt.on_sample(now, ms(10));
        assert_eq!((rtt.smoothed(), rtt.min()), (Some(ms(10)), ms(10)));
        for _ in 0..30 {
            now += ms(500);
            rtt.on_sample(now, ms(30));
        }
        assert_eq!(rtt.min(), ms(30));
        assert!(rtt.patience() >= rtt.smoothed().unwrap());
    }
}

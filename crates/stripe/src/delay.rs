//! How long a confirmation takes.

use core::time::Duration;

/// Before anything was confirmed: longer than a satellite's round trip and its queue.
const UNKNOWN: Duration = Duration::from_secs(3);
/// Nothing is late before, for threads may be slow to run.
const LEAST: Duration = Duration::from_millis(100);
/// Nor before so many smoothed delays: a connection that repairs a loss takes two of them for
/// everything behind it, and on a lossy path that is one record in ten.
const REPAIR: f64 = 2.5;

/// Smoothed delay and its variation, as TCP has them for its timer (RFC 6298).
#[derive(Clone, Debug, Default)]
pub struct Delay {
    smoothed: Option<Duration>,
    variation: Duration,
}

impl Delay {
    /// Takes in a sample.
    pub fn on_sample(&mut self, sample: Duration) {
        match self.smoothed {
            None => (self.smoothed, self.variation) = (Some(sample), sample / 2),
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    /// What takes longer is late.
    pub fn patience(&self) -> Duration {
        let Some(smoothed) = self.smoothed else { return UNKNOWN };
        (smoothed + self.variation * 4).max(smoothed.mul_f64(REPAIR)).max(LEAST)
    }
}

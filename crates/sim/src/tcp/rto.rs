//! The retransmission time-out (RFC 6298).

use core::time::Duration;

/// The first time-out, before any measurement (section 2.1).
const FIRST: Duration = Duration::from_secs(1);
/// The longest (section 2.4).
const LONGEST: Duration = Duration::from_secs(60);

/// Round-trip times and what follows from them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rto {
    least: Duration,
    /// Smoothed round-trip time and its variation.
    smoothed: Option<(Duration, Duration)>,
    /// Doublings since the last measurement.
    backoff: u32,
}

impl Rto {
    pub(super) fn new(least: Duration) -> Self {
        Self { least, smoothed: None, backoff: 0 }
    }

    /// A measurement, of a segment that was sent once (Karn) or carries its time.
    pub(super) fn sample(&mut self, rtt: Duration) {
        self.backoff = 0;
        self.smoothed = Some(match self.smoothed {
            None => (rtt, rtt / 2),
            Some((smoothed, variation)) => {
                let variation = (variation * 3 + smoothed.abs_diff(rtt)) / 4;
                ((smoothed * 7 + rtt) / 8, variation)
            }
        });
    }

    /// The time-out has struck.
    pub(super) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(|(smoothed, _)| smoothed)
    }

    /// How long to wait now.
    pub(super) fn get(&self) -> Duration {
        let usual = self.smoothed.map_or(FIRST, |(smoothed, variation)| smoothed + variation * 4);
        (usual.max(self.least) * (1 << self.backoff)).min(LONGEST)
    }
}

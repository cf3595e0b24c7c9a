//! The retransmission time-out (RFC 6298).

use core::time::Duration;

/// The first time-out, before any measurement (section 2.1).
const FIRST: Duration = Duration::from_secs(1);
/// That of data, when the one of a SYN has struck and nothing is measured (section 5.7).
const FALLBACK: Duration = Duration::from_secs(3);
/// The longest (section 2.4).
const LONGEST: Duration = Duration::from_secs(60);

/// Round-trip times and what follows from them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rto {
    least: Duration,
    /// Before any measurement.
    first: Duration,
    /// Smoothed round-trip time and its variation.
    smoothed: Option<(Duration, Duration)>,
    /// Doublings since the last measurement.
    backoff: u32,
    /// What comes of all that.
    current: Duration,
}

impl Rto {
    pub(super) fn new(least: Duration) -> Self {
        let mut rto = Self { least, first: FIRST, smoothed: None, backoff: 0, current: FIRST };
        rto.update();
        rto
    }

    /// A measurement, of a segment that was sent once (Karn) or carries its time.
    pub(super) fn sample(&mut self, rtt: Duration) {
        self.backoff = 0;
        self.smoothed = Some(match self.smoothed {
            None => (rtt, rtt / 2),
            Some((smoothed, variation)) => {
                // In nanoseconds: `Duration` reckons seconds and the rest of them each by itself.
                let [rtt, smoothed, variation] = [rtt, smoothed, variation].map(nanos);
                let variation = (variation * 3 + smoothed.abs_diff(rtt)) / 4;
                let smoothed = (smoothed * 7 + rtt) / 8;
                (Duration::from_nanos(smoothed), Duration::from_nanos(variation))
            }
        });
        self.update();
    }

    /// The time-out has struck.
    pub(super) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
        self.update();
    }

    /// Data begins to be sent, and nothing is measured, for a SYN was sent more than once.
    pub(super) fn fall_back(&mut self) {
        (self.first, self.backoff) = (FALLBACK, 0);
        self.update();
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(|(smoothed, _)| smoothed)
    }

    /// How long to wait now.
    pub(super) fn get(&self) -> Duration {
        self.current
    }

    fn update(&mut self) {
        let usual =
            self.smoothed.map_or(self.first, |(smoothed, variation)| smoothed + variation * 4);
        self.current = (usual.max(self.least) * (1 << self.backoff)).min(LONGEST);
    }
}

/// Nanoseconds of a round-trip time, which are far from 64 bits.
fn nanos(time: Duration) -> u64 {
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}

//! The retransmission time-out (RFC 6298, and Linux's of it).

use core::time::Duration;

use units::Instant;

use super::config::MinRto;

/// The first time-out, before any measurement (section 2.1).
const FIRST: Duration = Duration::from_secs(1);
/// That of data, when the one of a SYN has struck and nothing is measured (section 5.7).
const FALLBACK: Duration = Duration::from_secs(3);
/// The longest (section 2.4).
const LONGEST: Duration = Duration::from_secs(60);

/// Round-trip times and what follows from them, in nanoseconds: `Duration` reckons seconds and the rest of them each by
/// itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rto {
    least: MinRto,
    /// Before any measurement.
    first: u64,
    /// Smoothed round-trip time and its variation.
    smoothed: Option<(u64, u64)>,
    /// Doublings since the last measurement.
    backoff: u32,
    /// What comes of all that.
    current: u64,
}

impl Rto {
    pub(super) fn new(least: MinRto) -> Self {
        let first = nanos(FIRST);
        let mut rto = Self { least, first, smoothed: None, backoff: 0, current: first };
        rto.update();
        rto
    }

    /// A measurement, of a segment that was sent once (Karn) or carries its time.
    pub(super) fn sample(&mut self, rtt: Duration) {
        let rtt = nanos(rtt);
        self.backoff = 0;
        self.smoothed = Some(match self.smoothed {
            None => (rtt, rtt / 2),
            Some((smoothed, variation)) => {
                let variation = (variation * 3 + smoothed.abs_diff(rtt)) / 4;
                ((smoothed * 7 + rtt) / 8, variation)
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
        (self.first, self.backoff) = (nanos(FALLBACK), 0);
        self.update();
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(|(smoothed, _)| Duration::from_nanos(smoothed))
    }

    /// When a time-out strikes that begins now.
    #[inline]
    pub(super) fn strikes_at(&self, now: Instant) -> Instant {
        Instant::from_nanos(now.as_nanos() + self.current)
    }

    /// Something has changed that the time-out comes of.
    fn update(&mut self) {
        let (smoothed, margin) = match self.smoothed {
            // The first is one in all.
            None => (0, self.first),
            Some((smoothed, variation)) => (smoothed, variation * 4),
        };
        let usual = match self.least {
            MinRto::Whole(least) => (smoothed + margin).max(nanos(least)),
            MinRto::Beyond(least) => smoothed + margin.max(nanos(least)),
        };
        self.current = usual.saturating_mul(1 << self.backoff).min(nanos(LONGEST));
    }
}

/// Nanoseconds of a round-trip time or a time-out, of which 64 bits hold 584 years.
fn nanos(time: Duration) -> u64 {
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Rto {
        fn get(&self) -> Duration {
            self.strikes_at(Instant::ZERO).since(Instant::ZERO)
        }
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// After many equal round trips, whose variation is gone.
    fn settled(least: MinRto, rtt: Duration) -> Duration {
        let mut rto = Rto::new(least);
        (0..200).for_each(|_| rto.sample(rtt));
        rto.get()
    }

    #[test]
    fn linux_waits_beyond_the_round_trip_and_rfc_6298_in_all() {
        assert_eq!(settled(MinRto::Beyond(ms(200)), ms(600)), ms(800));
        assert_eq!(settled(MinRto::Whole(ms(200)), ms(600)), ms(600));
        assert_eq!(settled(MinRto::Whole(ms(1000)), ms(600)), ms(1000));
        assert_eq!(settled(MinRto::Beyond(ms(200)), ms(10)), ms(210));
    }

    #[test]
    fn it_doubles_until_it_is_a_minute() {
        let mut rto = Rto::new(MinRto::Beyond(ms(200)));
        assert_eq!(rto.get(), FIRST);
        // Twice a first measurement would be beyond it, but that is less than the least.
        rto.sample(ms(60));
        assert_eq!(rto.get(), ms(260));
        rto.back_off();
        assert_eq!(rto.get(), ms(520));
        (0..10).for_each(|_| rto.back_off());
        assert_eq!(rto.get(), LONGEST);
    }
}

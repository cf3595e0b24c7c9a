//! When slow start should end before it loses packets: HyStart++ (RFC 9406), for a paced sender.

use core::time::Duration;

use units::Instant;

/// How much the least round-trip time of a round may exceed that of the round before: an eighth,
/// within these bounds.
const MIN_THRESHOLD: Duration = Duration::from_millis(4);
const MAX_THRESHOLD: Duration = Duration::from_millis(16);
const THRESHOLD_SHARE: u32 = 8;
/// Samples that a round must have to be judged.
const MIN_SAMPLES: u32 = 8;
/// Rounds of slower growth before slow start is over.
const SLOW_ROUNDS: u32 = 5;

/// How the window may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// By what arrived.
    Full,
    /// By [`HyStart::DIVISOR`] times less: a queue seems to build.
    Slow,
    /// Slow start is over.
    Over,
}

/// Watches round-trip times grow, round by round.
#[derive(Debug, Default)]
pub(super) struct HyStart {
    /// The round ends when a packet sent after this has arrived.
    began: Instant,
    samples: u32,
    /// Least round-trip times of this round and of the one before.
    least: Option<Duration>,
    before: Option<Duration>,
    /// In slower growth: the least round-trip time when it began, and its rounds.
    slow: Option<(Duration, u32)>,
}

impl HyStart {
    pub(super) const DIVISOR: f64 = 4.0;

    /// A report brought this round-trip time; `latest` is when the latest packet was sent that is
    /// known to have arrived.
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        rtt: Option<Duration>,
        latest: Instant,
    ) -> Growth {
        if latest >= self.began {
            self.began = now;
            self.samples = 0;
            self.before = self.least.take().or(self.before);
            self.slow = self.slow.map(|(baseline, rounds)| (baseline, rounds + 1));
        }
        if let Some(rtt) = rtt {
            self.samples += 1;
            self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        }
        self.judge();
        match self.slow {
            None => Growth::Full,
            Some((_, rounds)) if rounds < SLOW_ROUNDS => Growth::Slow,
            Some(_) => Growth::Over,
        }
    }

    fn judge(&mut self) {
        let (Some(least), Some(before)) = (self.least, self.before) else { return };
        if self.samples < MIN_SAMPLES {
            return;
        }
        match self.slow {
            None => {
                let threshold = (before / THRESHOLD_SHARE).clamp(MIN_THRESHOLD, MAX_THRESHOLD);
                if least >= before + threshold {
                    self.slow = Some((least, 0));
                }
            }
            // The delay was not a queue of ours.
            Some((baseline, _)) if least < baseline => self.slow = None,
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten reports a round, with these round-trip times in milliseconds; the last of each round.
    fn run(rtts: &[u64]) -> Vec<Growth> {
        let (mut hystart, mut now) = (HyStart::default(), Instant::from_nanos(1));
        rtts.iter()
            .map(|&rtt| {
                let (rtt, mut growth) = (Duration::from_millis(rtt), Growth::Full);
                let sent = now;
                for _ in 0..10 {
                    now += rtt / 10;
                    growth = hystart.on_report(now, Some(rtt), sent);
                }
                now += Duration::from_nanos(1);
                growth
            })
            .collect()
    }

    #[test]
    fn a_growing_delay_slows_and_then_ends_it() {
        use Growth::{Full, Over, Slow};
        assert_eq!(run(&[100, 100, 103, 104]), [Full; 4]);
        let slow = [Full, Full, Slow, Slow, Slow, Slow, Slow, Over];
        assert_eq!(run(&[100, 100, 120, 120, 120, 120, 120, 120]), slow);
    }

    #[test]
    fn a_delay_that_falls_again_was_no_queue() {
        use Growth::{Full, Slow};
        assert_eq!(run(&[100, 120, 100, 100]), [Full, Slow, Full, Full]);
    }
}

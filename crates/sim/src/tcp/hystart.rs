//! HyStart: the end of slow start before the queue is full (S. Ha and I. Rhee, "Taming the elephants: New TCP slow
//! start", Computer Networks 55(9), 2011), with the constants of Linux. The transport has its successor, HyStart++
//! (RFC 9406).

use core::time::Duration;

use units::Instant;

use super::congestion::Acked;

/// It looks at no smaller window, in segments.
const LEAST_WINDOW: f64 = 16.0;
/// Acknowledgements closer than this belong to one train.
const CLOSE: Duration = Duration::from_millis(2);
/// Round-trip times of a round that are looked at before they are judged.
const SAMPLES: u32 = 8;
/// How much longer than the shortest, an eighth of it within these, means a queue.
const LONGER: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));

/// What it knows of the path and of this round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HyStart {
    /// The shortest round-trip time of all.
    shortest: Option<Duration>,
    round: Option<Round>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    /// What had been sent when it began.
    end: u64,
    start: Instant,
    /// The last acknowledgement of the train that began with it.
    last: Instant,
    samples: u32,
    shortest: Duration,
}

impl HyStart {
    /// It took so long to a host and back.
    pub(super) fn on_rtt(&mut self, rtt: Duration) {
        self.shortest = Some(self.shortest.map_or(rtt, |shortest| shortest.min(rtt)));
    }

    /// Whether slow start ends with this acknowledgement and a window of so many segments.
    pub(super) fn ends(&mut self, now: Instant, acked: &Acked, window: f64) -> bool {
        if let Some(rtt) = acked.rtt {
            self.on_rtt(rtt);
        }
        let Some(shortest) = self.shortest.filter(|_| window >= LEAST_WINDOW) else { return false };
        let round = match &mut self.round {
            Some(round) if acked.una <= round.end => round,
            _ => {
                let start = now;
                let fresh = Round {
                    end: acked.next,
                    start,
                    last: now,
                    samples: 0,
                    shortest: Duration::MAX,
                };
                self.round.insert(fresh)
            }
        };
        if now.since(round.last) <= CLOSE {
            round.last = now;
            if now.since(round.start) > shortest / 2 {
                return true;
            }
        }
        let Some(rtt) = acked.rtt else { return false };
        round.shortest = round.shortest.min(rtt);
        round.samples += 1;
        let longer = (shortest / 8).clamp(LONGER.0, LONGER.1);
        round.samples > SAMPLES && round.shortest > shortest + longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn acked(una: u64, next: u64, rtt: Duration) -> Acked {
        Acked { una, next, rtt: Some(rtt) }
    }

    /// Rounds of 40 acknowledgements each: how many of a round pass before slow start ends.
    fn ends_after(first: Duration, then: Duration, apart: Duration) -> Option<u64> {
        let mut hystart = HyStart::default();
        let rtts = [first, then];
        (0..80).find(|&number| {
            let at = Instant::from_nanos(1) + 100 * MS * (number / 40) as u32;
            let now = at + apart * (number % 40) as u32;
            let rtt = rtts[number as usize / 40];
            hystart.ends(now, &acked(number + 1, 40 * (number / 40 + 1), rtt), 40.0)
        })
    }

    #[test]
    fn a_round_trip_time_that_has_grown_ends_it_after_eight_samples() {
        let sparse = 3 * MS;
        assert_eq!(ends_after(100 * MS, 113 * MS, sparse), Some(48));
        assert_eq!(ends_after(100 * MS, 112 * MS, sparse), None, "an eighth is not yet a queue");
        assert_eq!(ends_after(10 * MS, 15 * MS, sparse), Some(48));
        assert_eq!(ends_after(10 * MS, 14 * MS, sparse), None, "nor are 4 ms");
    }

    #[test]
    fn who_knows_the_path_sees_the_queue_that_the_first_bursts_of_all_make() {
        let ends = |handshake: Option<Duration>| {
            let mut hystart = HyStart::default();
            handshake.into_iter().for_each(|rtt| hystart.on_rtt(rtt));
            (0..40).find(|&number| {
                let now = Instant::from_nanos(1) + 3 * MS * number as u32;
                hystart.ends(now, &acked(number + 1, 40, 115 * MS), 40.0)
            })
        };
        assert_eq!((ends(Some(100 * MS)), ends(None)), (Some(8), None));
    }

    #[test]
    fn a_train_of_half_a_round_trip_ends_it() {
        assert_eq!(ends_after(40 * MS, 40 * MS, MS), Some(21));
        assert_eq!(ends_after(40 * MS, 40 * MS, 3 * MS), None, "with gaps it is none");
        assert_eq!(ends_after(100 * MS, 100 * MS, MS), None, "it is too short");
    }

    #[test]
    fn small_windows_are_left_alone() {
        let mut hystart = HyStart::default();
        let mut late = |n: u64| {
            let now = Instant::from_nanos(1) + MS * n as u32;
            hystart.ends(now, &acked(n, 100, 10 * MS * n as u32), 15.9)
        };
        assert!(!(1..100).any(&mut late));
    }
}

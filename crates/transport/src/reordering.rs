//! How far packets overtake each other on the path in use, and so how long a missing one may still come.
//!
//! The reorder margin begins as a share of the round-trip time, as a path that nothing is known of
//! deserves, shrinks to next to nothing on a path that has kept its order for a while, and grows to what
//! was seen on one that does not (RFC 8985, 6.2, steps 3 and 4, with times in the place of duplicates).

use core::time::Duration;

use units::Instant;

/// The margin while nothing is known of the path, as a share of the round-trip time, and its bounds.
const USUAL_SHARE: u32 = 8;
const USUAL: (Duration, Duration) = (LEAST, Duration::from_millis(25));
/// The margin on a path that keeps the order.
const LEAST: Duration = Duration::from_millis(1);
/// The most that it grows to, as a share of the round-trip time, and its bounds.
const MOST_SHARE: u32 = 4;
const MOST: (Duration, Duration) = (LEAST, Duration::from_millis(100));
/// An epoch lasts for so many round trips and so many packets; what was seen counts until the end of the next.
const EPOCH: (u32, u64) = (8, 512);

/// The reorder margin of a path of which nothing is known.
pub(crate) fn usual_margin(rtt: Duration) -> Duration {
    (rtt / USUAL_SHARE).clamp(USUAL.0, USUAL.1)
}

/// How long, in the sender's time, a packet that was given up is watched: the most that the margin can be.
pub(crate) fn longest_margin(rtt: Duration) -> Duration {
    (rtt / MOST_SHARE).clamp(MOST.0, MOST.1)
}

/// By how much packets were overtaken of late.
#[derive(Debug, Default)]
pub(crate) struct Reordering {
    /// The most in this epoch.
    seen: Duration,
    /// The most in the epoch before; `None` in the first.
    before: Option<Duration>,
    /// When the epoch began, and how many packets have arrived in it.
    began: Instant,
    arrived: u64,
}

impl Reordering {
    /// How much later than a missing packet another must have been sent to prove it lost.
    pub(crate) fn margin(&self, rtt: Duration) -> Duration {
        let least = self.before.unwrap_or_else(|| usual_margin(rtt));
        self.seen.max(least).clamp(LEAST, longest_margin(rtt))
    }

    /// So many packets more have arrived, the latest sent at `latest`; if one was reported missing first, how
    /// much later than it that was.
    pub(crate) fn on_arrived(
        &mut self,
        (rtt, latest): (Duration, Instant),
        packets: u64,
        overtaken: Option<Duration>,
    ) {
        self.seen = self.seen.max(overtaken.unwrap_or_default());
        self.arrived += packets;
        let (round_trips, fewest) = EPOCH;
        if self.arrived >= fewest && latest >= self.began + rtt * round_trips {
            let before = Some(self.seen);
            *self = Self { before, began: latest, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(200);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A round trip after the other, 200 packets in each; gives the margin after each.
    fn margins(
        reordering: &mut Reordering,
        rounds: u32,
        overtaken: Option<Duration>,
    ) -> Vec<Duration> {
        let mut on_round = || {
            let latest = reordering.began + RTT * (reordering.arrived / 200 + 1) as u32;
            reordering.on_arrived((RTT, latest), 200, overtaken);
            reordering.margin(RTT)
        };
        (0..rounds).map(|_| on_round()).collect()
    }

    #[test]
    fn a_path_that_keeps_the_order_needs_no_patience() {
        let mut reordering = Reordering::default();
        let margins = margins(&mut reordering, 9, None);
        assert_eq!((margins[0], margins[6], margins[8]), (ms(25), ms(25), ms(1)));
    }

    #[test]
    fn what_was_seen_counts_for_two_epochs_and_never_more_than_a_quarter_of_a_round_trip() {
        let mut reordering = Reordering::default();
        assert_eq!(margins(&mut reordering, 1, Some(ms(40))), [ms(40)]);
        let later = margins(&mut reordering, 20, None);
        let expected = |ms| later.iter().filter(|&&margin| margin == ms).count();
        assert_eq!((expected(ms(40)), expected(ms(1))), (14, 6));
        assert_eq!(margins(&mut reordering, 1, Some(ms(90))), [ms(50)]);
    }

    #[test]
    fn few_packets_prove_nothing() {
        let mut reordering = Reordering::default();
        for round in 1..=100 {
            reordering.on_arrived((RTT, Instant::ZERO + RTT * round), 5, None);
        }
        assert_eq!(reordering.margin(RTT), ms(25));
    }
}

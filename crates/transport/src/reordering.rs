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
const EPOCH: (u32, u64) = (4, 512);
/// A packet may come later than any before by this share of what was seen.
const MORE_SHARE: u32 = 8;

/// The reorder margin of a path of which nothing is known.
pub(crate) fn usual_margin(rtt: Duration) -> Duration {
    (rtt / USUAL_SHARE).clamp(USUAL.0, USUAL.1)
}

/// How long, in the sender's time, a packet that was given up is watched: the most that the margin can be.
pub(crate) fn longest_margin(rtt: Duration) -> Duration {
    (rtt / MOST_SHARE).clamp(MOST.0, MOST.1)
}

/// By how much packets were overtaken of late on one path.
#[derive(Debug, Default)]
pub(crate) struct Reordering {
    /// What was sent before that says nothing of the path.
    since: Instant,
    /// The most in this epoch.
    seen: Duration,
    /// The most in the epoch before; `None` in the first.
    before: Option<Duration>,
    /// When the first packet was sent that was counted in this epoch, and how many have arrived in it.
    began: Option<Instant>,
    arrived: u64,
}

impl Reordering {
    /// Of a path that is used from now on.
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, ..Self::default() }
    }

    /// Whether an epoch has been seen.
    pub(crate) fn is_known(&self) -> bool {
        self.before.is_some()
    }

    /// How much later than a missing packet another must have been sent to prove it lost.
    pub(crate) fn margin(&self, rtt: Duration) -> Duration {
        let least = self.before.unwrap_or_else(|| usual_margin(rtt));
        let more = self.seen + self.seen / MORE_SHARE;
        more.max(least).clamp(LEAST, longest_margin(rtt))
    }

    /// A packet sent at `sent_at` has arrived. If a report lacked it before, `lacked_at` is when the latest
    /// was sent that had arrived by then.
    pub(crate) fn on_arrived(&mut self, sent_at: Instant, lacked_at: Option<Instant>) {
        if sent_at >= self.since {
            self.arrived += 1;
            self.began.get_or_insert(sent_at);
            self.seen = self.seen.max(lacked_at.unwrap_or_default().since(sent_at));
        }
    }

    /// All that one report told has been counted; the latest that has arrived was sent at `latest`.
    pub(crate) fn on_report(&mut self, rtt: Duration, latest: Instant) {
        let (round_trips, fewest) = EPOCH;
        let over = self.began.is_some_and(|began| latest >= began + rtt * round_trips);
        if over && self.arrived >= fewest {
            let more = self.seen + self.seen / MORE_SHARE;
            *self = Self { before: Some(more), ..Self::new(self.since) };
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

    /// Times of the net's clock, which counts from 1970.
    fn round(number: u32) -> Instant {
        Instant::from_nanos(1 << 60) + RTT * number
    }

    /// 200 packets arrive in a round trip, and of each the last was overtaken by so much; gives the margin then.
    fn margin_after(reordering: &mut Reordering, number: u32, overtaken: Duration) -> Duration {
        (0..199).for_each(|_| reordering.on_arrived(round(number), None));
        reordering.on_arrived(round(number), Some(round(number) + overtaken));
        reordering.on_report(RTT, round(number));
        reordering.margin(RTT)
    }

    #[test]
    fn a_path_that_keeps_the_order_needs_no_patience() {
        let mut reordering = Reordering::default();
        let seen: Vec<_> = (0..5)
            .map(|number| {
                let margin = margin_after(&mut reordering, number, Duration::ZERO);
                (margin, reordering.is_known())
            })
            .collect();
        let unknown = (ms(25), false);
        assert_eq!(seen, [unknown, unknown, unknown, unknown, (ms(1), true)]);
    }

    #[test]
    fn what_was_seen_counts_for_two_epochs_and_never_more_than_a_quarter_of_a_round_trip() {
        let mut reordering = Reordering::default();
        assert_eq!(margin_after(&mut reordering, 0, ms(40)), ms(45));
        let later: Vec<_> =
            (1..20).map(|number| margin_after(&mut reordering, number, Duration::ZERO)).collect();
        // The first has five rounds, for it lasts from its first packet to one that is four later.
        assert_eq!((later[8], later[9]), (ms(1), ms(1)), "{later:?}");
        assert!(later[..8].iter().all(|&margin| margin == ms(45)), "{later:?}");
        assert_eq!(margin_after(&mut reordering, 20, ms(90)), ms(50));
    }

    #[test]
    fn few_packets_prove_nothing() {
        let mut reordering = Reordering::default();
        for number in 0..100 {
            reordering.on_arrived(round(number), None);
            reordering.on_report(RTT, round(number));
        }
        assert_eq!(reordering.margin(RTT), ms(25));
    }

    #[test]
    fn what_was_sent_on_another_path_says_nothing() {
        let mut reordering = Reordering::new(round(9));
        for number in 0..9 {
            assert_eq!(margin_after(&mut reordering, number, ms(90)), ms(25));
        }
        assert_eq!(margin_after(&mut reordering, 9, ms(40)), ms(45));
    }
}

//! What others lend while all drain a queue. They leave us the link; who took what arrives then for his own would leave nothing
//! to who has just come. Drains that go on for longer than anybody takes to come are the link's doing: it changes all the
//! time, and what arrives is all that tells of it.

use core::time::Duration;

use units::Instant;

use super::model::Tells;

/// Somebody who comes has come after so many round trips, and so long at least.
const COMES: (u32, Duration) = (20, Duration::from_secs(1));
/// After so long without a drain the next one is somebody's again.
const RESTS: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// When the first of the drains that follow each other began.
    began: Option<Instant>,
    /// The last report of one.
    last: Instant,
    /// The round trip then.
    rtt: Duration,
}

impl Lent {
    /// A report came in a drain.
    pub(super) fn on_drain(&mut self, now: Instant, rtt: Duration) {
        let rests = RESTS.max(rtt * COMES.0);
        let goes_on = self.began.filter(|_| now < self.last + rests);
        *self = Self { began: Some(goes_on.unwrap_or(now)), last: now, rtt };
    }

    /// How much of what arrives tells of our share, while we drain and until a round trip after it.
    pub(super) fn tells(&self, now: Instant, drains: bool) -> Tells {
        let (rounds, least) = COMES;
        let Some(began) = self.began else { return Tells::All };
        if now > began + (self.rtt * rounds).max(least) {
            return Tells::All;
        }
        match drains {
            true => Tells::Less,
            false if now < self.last + self.rtt => Tells::Nothing,
            false => Tells::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_drain_lends_until_a_round_trip_after_it() {
        let mut lent = Lent::default();
        assert_eq!(lent.tells(at(0), false), Tells::All);
        lent.on_drain(at(10), RTT);
        lent.on_drain(at(300), RTT);
        assert_eq!(lent.tells(at(300), true), Tells::Less);
        assert_eq!(lent.tells(at(399), false), Tells::Nothing);
        assert_eq!(lent.tells(at(400), false), Tells::All);
    }

    #[test]
    fn drains_without_end_are_the_links_own() {
        let mut lent = Lent::default();
        let tells = |lent: &mut Lent, times: core::ops::Range<u64>| {
            times.step_by(100).for_each(|time| lent.on_drain(at(time), RTT));
            let last = lent.last;
            (lent.tells(last, true), lent.tells(last, false))
        };
        assert_eq!(tells(&mut lent, 100..2100), (Tells::Less, Tells::Nothing));
        assert_eq!(tells(&mut lent, 2100..9000), (Tells::All, Tells::All));
        assert_eq!(tells(&mut lent, 13_000..13_100), (Tells::All, Tells::All), "too soon");
        assert_eq!(tells(&mut lent, 19_000..19_100), (Tells::Less, Tells::Nothing));
    }
}

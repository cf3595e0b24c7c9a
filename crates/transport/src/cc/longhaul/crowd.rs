//! Whether many of us overflow the link together: for seconds much is lost, and little of the link is ours.
//!
//! Who came when it did takes the full queue for a part of the path, and what it drops for the path's own loss. Nothing that
//! he does alone shows him that he is wrong: only when all drain at one time, in a [`super::truce`], it does.

use core::time::Duration;

use units::Instant;

use super::model::Round;

/// Loss is judged over so long, and so many rounds, and bytes.
const SPAN: (Duration, u32, u64) = (Duration::from_secs(1), 4, 87_000);
/// It has to be heavy for so many of these: starts, and claims of who comes back, end by themselves.
const TIMES: u32 = 3;
/// A few flows of any kind do not lose so much for so long; and with more of the link than this, one may be alone with a path
/// that does.
const HEAVY: (f64, f64) = (0.25, 0.25);
/// The same for who is calm: behind a short queue no stranger makes it.
const CALM_HEAVY: (f64, f64) = (0.12, 0.6);
/// What truces find the path to lose by itself is exceeded by chance up to so many times.
const CHANCE: f64 = 1.5;
/// More than this part of the loss that a truce is to explain is left: it was not the overflow of who kept it. So many in a row have to
/// find that, since others may have missed one.
const STAYS: (f64, u32) = (0.5, 3);
/// Until who is calm asks again.
const AGAIN: Duration = Duration::from_secs(30);
/// That many are here is known for so long since one had less than this part of the link, unless so many truces in a row
/// show strangers.
const KNOWN: (Duration, f64) = (Duration::from_secs(60), 0.125);
const STRANGERS: u32 = 6;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// Until when it is known that many are here.
    known: Option<Instant>,
    /// The loss that a truce is to explain.
    suspected: Option<f64>,
    /// What the path loses by itself, as truces have told.
    path: f64,
    /// Who is calm does not ask before.
    not_before: Instant,
    /// Truces in a row that found as much lost, and that showed strangers.
    stays: u32,
    strangers: u32,
    span: Span,
    /// Spans in a row with heavy loss, and with more than who is calm bears.
    heavy: u32,
    calm_heavy: u32,
    /// What arrived in the last span, in bits a second.
    arrived: Option<f64>,
}

/// Sums over some rounds.
#[derive(Debug, Default)]
struct Span {
    acked: u64,
    lost: u64,
    rounds: u32,
    time: Duration,
}

impl Crowd {
    /// A round ended while no truce was on, of who is `calm` or not; `link` is the bottleneck's rate in bits a second, which trains
    /// have `told`, or which may be more. True when many are here.
    pub(super) fn on_round(
        &mut self,
        now: Instant,
        round: &Round,
        calm: bool,
        (link, told): (f64, bool),
    ) -> bool {
        if round.limited {
            // Nor does what arrived before tell of what could.
            (self.span, self.arrived) = (Span::default(), None);
            return false;
        }
        let span = &mut self.span;
        span.acked += round.acked;
        span.lost += round.lost;
        span.rounds += 1;
        span.time += round.ends.since(round.started);
        let settled = span.acked + span.lost;
        if span.time < SPAN.0 || span.rounds < SPAN.1 || settled < SPAN.2 {
            return false;
        }
        let loss = span.lost as f64 / settled as f64;
        let arrived = span.acked as f64 * 8.0 / span.time.as_secs_f64();
        self.span = Span::default();
        self.arrived = Some(arrived);
        let has_less = |part: f64| arrived < link * part;
        if self.is_known() && has_less(KNOWN.1) {
            self.known = Some(now + KNOWN.0);
        }
        let in_a_row = |times: u32, again| if again { times + 1 } else { 0 };
        let heavy = loss > self.path * CHANCE + HEAVY.0 && has_less(HEAVY.1) && told;
        self.heavy = in_a_row(self.heavy, heavy);
        let asks = calm && loss > CALM_HEAVY.0 && (has_less(CALM_HEAVY.1) || !told);
        self.calm_heavy = in_a_row(self.calm_heavy, asks && now >= self.not_before);
        let meets = self.heavy >= TIMES;
        if meets {
            (self.known, self.strangers, self.heavy) = (Some(now + KNOWN.0), 0, 0);
        }
        if meets || self.calm_heavy >= TIMES {
            self.suspected = self.suspected.or(Some(loss));
        }
        meets
    }

    /// Time goes on.
    pub(super) fn on_time(&mut self, now: Instant) {
        self.known.take_if(|until| now >= *until);
    }

    /// A truce of many has shown that nobody but our kind is here, and lost so much without a queue. True when that is the
    /// path's own.
    pub(super) fn on_peace(&mut self, now: Instant, loss: f64) -> bool {
        (self.span, self.strangers) = (Span::default(), 0);
        let Some(suspected) = self.suspected else { return false };
        self.stays = if loss > suspected * STAYS.0 { self.stays + 1 } else { 0 };
        if self.stays == 0 {
            self.known = Some(now + KNOWN.0);
        } else if self.stays < STAYS.1 {
            return false;
        } else {
            (self.known, self.not_before) = (None, now + AGAIN);
        }
        let is_paths = self.stays > 0;
        (self.path, self.suspected, self.stays) = (loss, None, 0);
        is_paths
    }

    /// A truce of many has shown strangers.
    pub(super) fn on_strangers(&mut self, now: Instant) {
        self.span = Span::default();
        self.strangers += 1;
        if self.strangers >= STRANGERS {
            (self.known, self.suspected, self.stays, self.strangers) = (None, None, 0, 0);
            self.not_before = now + AGAIN;
        }
    }

    /// Whether many are known to be here.
    pub(super) const fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Whether it may be that many are here.
    pub(super) const fn is_likely(&self) -> bool {
        self.heavy > 0
    }

    /// Whether a truce is to tell why so much is lost.
    pub(super) const fn is_suspected(&self) -> bool {
        self.suspected.is_some()
    }

    /// What arrived lately, in bits a second.
    pub(super) const fn arrived(&self) -> Option<f64> {
        self.arrived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: f64 = 100e6;

    /// A crowd, and the time.
    #[derive(Default)]
    struct Seen {
        crowd: Crowd,
        now: Instant,
    }

    impl Seen {
        /// So many rounds of 250 ms, in which this part of the link arrives and this part of what is sent does not; after how
        /// many seconds many are here.
        fn rounds(&mut self, seconds: u64, share: f64, loss: f64) -> Option<u64> {
            (0..seconds * 4).find_map(|number| {
                let started = self.now;
                self.now += Duration::from_millis(250);
                let acked = (share * LINK / 32.0) as u64;
                let lost = (acked as f64 * loss / (1.0 - loss)) as u64;
                let round = Round { started, ends: self.now, acked, lost, ..Round::default() };
                self.crowd.on_time(self.now);
                self.crowd.on_round(self.now, &round, true, (LINK, true)).then_some(number / 4 + 1)
            })
        }
    }

    #[test]
    fn many_are_here_when_little_is_left_and_much_is_lost_for_long() {
        let after = |share, loss| Seen::default().rounds(10, share, loss);
        assert_eq!(after(0.05, 0.3), Some(3));
        assert_eq!(after(0.05, 0.2), None, "as beside a flow that heeds no loss");
        assert_eq!(after(0.3, 0.6), None, "one may be alone with a path that loses so much");
        let mut seen = Seen::default();
        for _ in 0..5 {
            assert_eq!(seen.rounds(2, 0.05, 0.5), None, "a start");
            assert_eq!(seen.rounds(1, 0.05, 0.0), None);
        }
        assert!(!seen.crowd.is_known() && !seen.crowd.is_suspected());
    }

    #[test]
    fn it_is_known_for_as_long_as_little_is_left() {
        let mut seen = Seen::default();
        assert!(seen.rounds(3, 0.05, 0.3).is_some());
        assert_eq!(seen.rounds(200, 0.05, 0.0), None);
        assert!(seen.crowd.is_known());
        seen.rounds(59, 0.2, 0.0);
        assert!(seen.crowd.is_known());
        seen.rounds(2, 0.2, 0.0);
        assert!(!seen.crowd.is_known());
    }

    /// Among five on a path that loses a third.
    #[test]
    fn what_truces_have_told_of_the_path_is_not_taken_for_many_again() {
        let mut seen = Seen::default();
        assert!(seen.rounds(3, 0.2, 0.33).is_some());
        for _ in 0..STAYS.1 {
            seen.crowd.on_peace(seen.now, 0.33);
        }
        assert!(!seen.crowd.is_known());
        assert_eq!(seen.rounds(100, 0.2, 0.33), None);
    }

    #[test]
    fn strangers_end_it_if_truces_go_on_to_show_them() {
        let mut seen = Seen::default();
        assert!(seen.rounds(3, 0.05, 0.3).is_some());
        for _ in 1..STRANGERS {
            seen.crowd.on_strangers(seen.now);
        }
        seen.crowd.on_peace(seen.now, 0.0);
        for _ in 1..STRANGERS {
            seen.crowd.on_strangers(seen.now);
        }
        assert!(seen.crowd.is_known());
        seen.crowd.on_strangers(seen.now);
        assert!(!seen.crowd.is_known());
    }

    #[test]
    fn a_truce_tells_whether_it_is_overflow_or_the_path() {
        // It ends with the truce: that was overflow.
        let mut seen = Seen::default();
        seen.rounds(3, 0.2, 0.15);
        assert!(seen.crowd.is_suspected() && !seen.crowd.is_known());
        assert!(!seen.crowd.on_peace(seen.now, 0.01));
        assert!(!seen.crowd.is_suspected() && seen.crowd.is_known());
        // It stays, again and again: that is the path.
        let mut seen = Seen::default();
        seen.rounds(3, 0.2, 0.15);
        for count in 1..=STAYS.1 {
            assert!(seen.crowd.is_suspected());
            assert_eq!(seen.crowd.on_peace(seen.now, 0.15), count == STAYS.1);
        }
        seen.rounds(29, 0.2, 0.15);
        assert!(!seen.crowd.is_suspected() && !seen.crowd.is_known());
        // It is asked anew some time later.
        seen.rounds(10, 0.2, 0.15);
        assert!(seen.crowd.is_suspected());
        // Who has most of the link has no need to ask.
        let mut seen = Seen::default();
        seen.rounds(10, 0.7, 0.3);
        assert!(!seen.crowd.is_suspected());
    }
}

//! A queue that we make ourselves tells who takes our share.
//!
//! BBR asks for a quarter more in one of eight rounds, and for as much less in the next. The queue is long for a round, and
//! short again before a drain of ours would show who fills it; but each drain leaves some of our share to him who does not
//! drain. Flows of our own kind that come one after the other look the same. So who fades under drains makes a queue some
//! rounds after the last: our kind drains it, and BBR, who has no part in it, leaves it for our drain to meet him.

use core::time::Duration;

use super::model::{Model, Round};

/// Rounds over which shares are averaged: two of BBR's cycles.
const LOOK: u32 = 16;
/// A share that falls below this part of what it was [`LOOKS`] before, with a drain in each since, fades. Beside BBR each look
/// leaves 0.5 to 0.8, or the first nearly nothing.
const FADES: f64 = 0.6;
/// See [`FADES`].
const LOOKS: usize = 3;
/// Who has more than this part of the link may have to give others of our kind theirs.
const LITTLE: f64 = 0.25;
/// Rounds without a drain that must pass first: BBR's own queue is gone by then, and the next still to come.
const AFTER: u32 = 4;
/// Up to so many more, by chance: others of our kind may fade as well, and would all ask at one time.
const SPREAD: u32 = 16;
/// So many times what our kind drains: enough to be seen as that for a round.
const MADE: f64 = 1.3;
/// At least so many times, where no longer queue has been seen: the link may drop more.
const LEAST_MADE: f64 = 1.1;
/// Rounds in which what is asked with arrives, and is drained.
const ARRIVES: u32 = 3;
/// Rounds after which a queue has another reason.
const OPEN: u32 = 16;
/// Rounds in a row that end with a short queue which does not shrink: one may be a late report.
const KEPT: u32 = 2;
/// So often one looks whether it fits: who fades long after the others of our kind have come knows nothing of them.
const TRIES: u32 = 8;
/// Rounds until one looks again: a question that nobody answered was for nothing, and may cost others of our kind a drain.
const REST: u32 = 200;

/// See the module.
#[derive(Debug)]
pub(super) enum Ask {
    Looks(Look),
    /// We ask in so many rounds, if it fits then.
    Waits {
        rounds: u32,
        tries: u32,
    },
    Asked(Question),
}

/// A queue that we make in a round, and what follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    /// Since it was asked.
    rounds: u32,
    /// What we had, in bits a second.
    had: f64,
    /// In bits a second.
    pace: f64,
    /// The queue, in bytes.
    bytes: f64,
    /// Rounds in a row in which somebody kept a short queue.
    kept: u32,
}

/// What became of our share.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Of this look: rounds, the sum of our shares in bits a second, and whether a long queue began to be drained.
    rounds: u32,
    shares: f64,
    saw_drain: bool,
    /// The mean shares of the looks before, the newest last, as far back as each since saw a drain; else 0.
    before: [f64; LOOKS],
}

impl Look {
    /// A round ended with such a share of such a link, in bits a second; true when it fades, and is little.
    fn on_round(&mut self, share: f64, link: f64) -> bool {
        self.rounds += 1;
        self.shares += share;
        if self.rounds < LOOK {
            return false;
        }
        let mean = self.shares / f64::from(self.rounds);
        let mut before = if self.saw_drain { self.before } else { Default::default() };
        let fades = mean < before[0] * FADES;
        before.rotate_left(1);
        before[LOOKS - 1] = mean;
        *self = Self { before, ..Self::default() };
        fades && mean < link * LITTLE
    }
}

impl Default for Ask {
    fn default() -> Self {
        Self::Looks(Look::default())
    }
}

impl Ask {
    /// A drain of a long queue began.
    pub(super) fn on_drain(&mut self) {
        match self {
            Self::Looks(look) => look.saw_drain = true,
            Self::Waits { rounds, .. } => *rounds = AFTER.max(*rounds),
            Self::Asked(_) => {}
        }
    }

    /// A round ended. Our kind drains a queue that is longer than `most`; in a drain or a dip (`slow`) there is nothing to ask.
    pub(super) fn on_round(&mut self, model: &Model, round: &Round, most: Duration, slow: bool) {
        match self {
            // The application takes shares too, and among many everybody is poor.
            Self::Looks(_) | Self::Waits { .. } if round.limited || model.crowd.is_known() => {
                *self = Self::default();
            }
            Self::Looks(look) => {
                if look.on_round(model.share, model.link()) {
                    *self = Self::Waits { rounds: spread(round), tries: TRIES };
                }
            }
            Self::Waits { .. } if slow => {}
            Self::Waits { rounds: rounds @ 1.., .. } => *rounds -= 1,
            Self::Waits { tries: 0, .. } => *self = Self::default(),
            Self::Waits { tries, .. } => {
                let wait = Self::Waits { rounds: spread(round), tries: *tries - 1 };
                *self = Question::new(model, most).map_or(wait, Self::Asked);
            }
            Self::Asked(Question { rounds: REST.., .. }) => *self = Self::default(),
            // There was not enough to send, and nothing has been asked.
            Self::Asked(Question { rounds: 0, .. }) if round.limited => *self = Self::default(),
            Self::Asked(question) => question.rounds += 1,
        }
    }

    /// What we have asked with arrives by now.
    #[cfg(test)]
    pub(super) const fn open() -> Self {
        Self::Asked(Question {
            rounds: ARRIVES,
            had: f64::INFINITY,
            pace: 0.0,
            bytes: 0.0,
            kept: 0,
        })
    }

    /// What we ask with, until it has arrived.
    fn question(&self) -> Option<&Question> {
        match self {
            Self::Asked(question) if question.rounds <= ARRIVES => Some(question),
            _ => None,
        }
    }

    /// The pace in the round in which we ask, in bits a second.
    pub(super) fn pace(&self) -> Option<f64> {
        self.question().filter(|it| it.rounds == 0).map(|it| it.pace)
    }

    /// Whether a queue may be what we asked with.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Asked(Question { rounds: 0..OPEN, .. }))
    }

    /// The queue is gone, and so are all who might have kept it.
    pub(super) fn answer(&mut self) {
        if let Self::Asked(question @ Question { rounds: ARRIVES.., .. }) = self {
            question.rounds = question.rounds.max(OPEN);
        }
    }

    /// A round of the drain ended, with a queue that somebody keeps short, or without; true when he has for long enough.
    pub(super) fn on_drained(&mut self, kept: bool) -> bool {
        let Self::Asked(question) = self else { return false };
        question.kept = if kept { question.kept + 1 } else { 0 };
        question.kept >= KEPT
    }

    /// Bytes in flight beyond what is ours.
    pub(super) fn bytes(&self) -> f64 {
        self.question().map_or(0.0, |it| it.bytes)
    }

    /// The most that is ours of what arrives, in bits a second.
    pub(super) fn most(&self) -> f64 {
        self.question().map_or(f64::INFINITY, |it| it.had)
    }
}

/// Rounds until others of our kind, who fade as well, do not all ask at one time.
fn spread(round: &Round) -> u32 {
    AFTER + (round.ends.as_nanos() / 1000 % u64::from(SPREAD)) as u32
}

impl Question {
    /// What a queue that is longer than `most` lacks, unless none of that length has been seen: it might be dropped.
    fn new(model: &Model, most: Duration) -> Option<Self> {
        let path = &model.path;
        let queue = most.mul_f64(MADE).min(path.longest_queue());
        if queue < most.mul_f64(LEAST_MADE) {
            return None;
        }
        let lacks = queue.saturating_sub(path.queue).as_secs_f64();
        let (had, bytes) = (model.share, model.link() / 8.0 * lacks);
        let pace = model.compensated(had + bytes * 8.0 / model.round_time().as_secs_f64());
        Some(Self { rounds: 0, had, pace, bytes, kept: 0 })
    }
}

#[cfg(test)]
mod tests {
    use units::{Bytes, Instant};

    use super::super::path::Path;
    use super::*;

    /// Not a whole number of anything.
    const BASE: Duration = Duration::from_micros(50_007);
    const LINK: f64 = 100e6;
    /// What our kind drains, and the longest queue that has been seen.
    const MOST: Duration = Duration::from_millis(15);
    const LONGEST: Duration = Duration::from_millis(40);

    /// Rounds of which each eighth begins to drain the longest queue, if any does; our share is so much of 100 Mbit/s, and so
    /// much of that is left after each sixteenth round.
    struct Rounds {
        model: Model,
        ask: Ask,
        longest: Duration,
        drains: bool,
        number: u32,
        left: f64,
    }

    impl Rounds {
        fn new(share: f64, left: f64, longest: Duration) -> Self {
            let mut model = Model::new(Path::new(BASE, 1.0));
            (model.trains, model.share) = (Some(LINK), share * LINK);
            Self { model, ask: Ask::default(), longest, drains: true, number: 0, left }
        }

        fn fading() -> Self {
            Self::new(0.3, 0.8, LONGEST)
        }

        fn round(&mut self, limited: bool) {
            self.number += 1;
            let now = Instant::ZERO + BASE * self.number;
            let drains = self.drains && self.number.is_multiple_of(8);
            let queue = if self.number.is_multiple_of(8) { self.longest } else { Duration::ZERO };
            // What jumps with each report would be noise.
            for _ in 0..3 {
                self.model.path.on_rtt(now, BASE + queue, Bytes(1452), LINK);
            }
            if self.number.is_multiple_of(LOOK) {
                self.model.share *= self.left;
            }
            if drains {
                self.ask.on_drain();
            }
            let round = Round { ends: now, limited, ..Round::default() };
            self.ask.on_round(&self.model, &round, MOST, drains);
        }

        /// In which of so many rounds we ask.
        fn asks(&mut self, count: u32) -> Vec<u32> {
            let asks = |_| {
                self.round(false);
                self.ask.pace().map(|_| self.number)
            };
            (0..count).filter_map(asks).collect()
        }

        /// With little, eight rounds on, about to ask.
        fn waiting() -> Self {
            let mut rounds = Self::new(0.2, 1.0, LONGEST);
            (0..8).for_each(|_| rounds.round(false));
            rounds.ask = Ask::Waits { rounds: 0, tries: TRIES };
            rounds
        }

        /// Until we ask.
        fn asking() -> Self {
            let mut rounds = Self::fading();
            let asks = |rounds: &mut Self| {
                assert_eq!((rounds.ask.most(), rounds.ask.bytes()), (f64::INFINITY, 0.0));
                rounds.round(false);
                rounds.ask.pace().is_some()
            };
            assert!((0..200).any(|_| asks(&mut rounds)), "we ask");
            rounds
        }
    }

    #[test]
    fn who_fades_under_drains_asks_once_and_rests() {
        let asked = Rounds::fading().asks(500);
        let [first, second] = asked[..] else { panic!("{asked:?}") };
        // The first look has none three before it.
        assert!((4 * LOOK + AFTER..4 * LOOK + 2 * (AFTER + SPREAD)).contains(&first), "{asked:?}");
        assert!(second - first > REST, "{asked:?}");
        assert_eq!((first % 8).clamp(AFTER, 7), first % 8, "between two drains: {asked:?}");
        // Who has more than little fades first.
        let later = Rounds::new(0.6, 0.8, LONGEST).asks(500)[0];
        assert!(later > 5 * LOOK, "{later}");
        assert_eq!(Rounds::new(0.3, 0.95, LONGEST).asks(500), [], "he hardly fades");
        // As that of who drains for newcomers of our own kind.
        assert_eq!(Rounds::new(0.3, 0.88, LONGEST).asks(500), [], "he fades slowly");
        assert_eq!(Rounds::new(0.3, 0.8, MOST).asks(500), [], "the queue may be too short");
        let undrained = Rounds { drains: false, ..Rounds::fading() }.asks(500);
        assert_eq!(undrained, [], "nobody took it by a drain of ours");
    }

    #[test]
    fn who_fell_far_at_once_asks_though_he_hardly_fades_since() {
        let asked = |left: f64| {
            let mut rounds = Rounds::new(0.5, left, LONGEST);
            (0..LOOK).for_each(|_| rounds.round(false));
            rounds.left = 0.99;
            !rounds.asks(4 * LOOK + AFTER).is_empty()
        };
        assert!(asked(0.2));
        assert!(!asked(0.55), "he has more than little");
    }

    #[test]
    fn each_look_since_sees_a_drain() {
        let asks = |drained: [bool; 4]| {
            let mut rounds = Rounds::fading();
            for drains in drained {
                rounds.drains = drains;
                (0..LOOK).for_each(|_| rounds.round(false));
            }
            matches!(rounds.ask, Ask::Waits { .. })
        };
        assert!(asks([true; 4]));
        assert!(asks([false, true, true, true]));
        for at in 1..4 {
            let mut drained = [true; 4];
            drained[at] = false;
            assert!(!asks(drained), "{at}");
        }
    }

    #[test]
    fn a_drain_puts_it_off() {
        let mut rounds = Rounds::waiting();
        rounds.ask = Ask::Waits { rounds: 1, tries: TRIES };
        rounds.ask.on_drain();
        (0..AFTER).for_each(|_| rounds.round(false));
        assert!(rounds.ask.pace().is_none());
        rounds.round(false);
        assert!(rounds.ask.pace().is_some());
    }

    #[test]
    fn what_does_not_fit_is_tried_again_for_a_while() {
        let waiting = || {
            let mut rounds = Rounds { longest: MOST, ..Rounds::waiting() };
            // What is longer is forgotten after 10 s.
            rounds.model.path = Path::new(BASE, 1.0);
            assert_eq!(rounds.asks(20), []);
            rounds
        };
        let mut rounds = waiting();
        rounds.longest = LONGEST;
        assert_eq!(rounds.asks(2 * (AFTER + SPREAD)).len(), 1);
        // The last chances may be short.
        let mut rounds = waiting();
        let ends = (0..(TRIES + 1) * (2 * AFTER + SPREAD)).any(|_| {
            rounds.round(false);
            matches!(rounds.ask, Ask::Looks(_))
        });
        assert!(ends);
    }

    #[test]
    fn who_finds_no_room_together_does_not_try_again_together() {
        let mut rounds = Rounds { longest: MOST, ..Rounds::waiting() };
        rounds.model.path = Path::new(BASE, 1.0);
        let mut wait = |micros: u64| {
            let round = Round { ends: Instant::from_nanos(micros * 1000), ..Round::default() };
            rounds.ask = Ask::Waits { rounds: 0, tries: TRIES };
            rounds.ask.on_round(&rounds.model, &round, MOST, false);
            let Ask::Waits { rounds, .. } = rounds.ask else { panic!("it does not fit") };
            rounds
        };
        assert_ne!(wait(3), wait(8));
    }

    #[test]
    fn no_more_is_made_than_the_queue_lacks_of_the_longest_that_was_seen() {
        for (longest, queue, made) in [(40, 0, 19.5), (40, 6, 13.5), (18, 6, 12.0), (17, 0, 17.0)] {
            let mut rounds = Rounds::waiting();
            rounds.model.path = Path::new(BASE, 1.0);
            for queue in [longest, queue] {
                rounds.number += 1;
                let rtt = BASE + Duration::from_millis(queue);
                rounds.model.path.on_rtt(
                    Instant::ZERO + BASE * rounds.number,
                    rtt,
                    Bytes(1452),
                    LINK,
                );
            }
            let question = Question::new(&rounds.model, MOST).expect("it fits");
            // A packet's time counts as path.
            let millis = question.bytes * 8.0 / LINK * 1e3;
            assert!((millis - made).abs() < 0.15, "{longest} {queue}: {millis}");
        }
    }

    #[test]
    fn what_the_application_holds_back_nobody_took() {
        let mut rounds = Rounds::fading();
        for _ in 0..20 {
            assert_eq!(rounds.asks(40), []);
            rounds.round(true);
        }
    }

    #[test]
    fn what_is_asked_with_is_not_ours() {
        let mut rounds = Rounds::asking();
        let share = rounds.model.share;
        // 19.5 ms of the link, within a round trip.
        let pace = rounds.ask.pace().expect("we ask");
        assert!((pace - share - 39e6).abs() < 1e6, "{pace}");
        for _ in 0..=ARRIVES {
            assert_eq!(rounds.ask.most(), share);
            assert!(
                (rounds.ask.bytes() - 19.5e-3 * LINK / 8.0).abs() < 1.0 && rounds.ask.is_open()
            );
            rounds.round(false);
        }
        let Ask::Asked(_) = rounds.ask else { panic!("it rests") };
        assert_eq!((rounds.ask.most(), rounds.ask.bytes()), (f64::INFINITY, 0.0));
        (ARRIVES + 2..OPEN).for_each(|_| rounds.round(false));
        assert!(rounds.ask.is_open());
        rounds.round(false);
        assert!(!rounds.ask.is_open(), "a queue has another reason");
    }

    #[test]
    fn a_queue_that_is_gone_is_an_answer() {
        let mut rounds = Rounds::asking();
        rounds.ask.answer();
        assert!(rounds.ask.is_open(), "it has not arrived yet");
        (0..ARRIVES).for_each(|_| rounds.round(false));
        rounds.ask.answer();
        assert!(!rounds.ask.is_open());
        assert_eq!(rounds.asks(REST - 40), [], "and it rests");
    }

    #[test]
    fn what_was_held_back_was_not_asked() {
        let mut rounds = Rounds::asking();
        rounds.round(true);
        assert!(matches!(rounds.ask, Ask::Looks(_)));
    }

    #[test]
    fn rounds_of_short_paths_are_longer_than_a_round_trip() {
        let mut model = Model::new(Path::new(Duration::from_millis(2), 1.0));
        (model.trains, model.share) = (Some(LINK), 0.1 * LINK);
        model.path.on_rtt(Instant::ZERO, LONGEST, Bytes(1452), LINK);
        let now = Instant::ZERO + Duration::from_millis(1);
        model.path.on_rtt(now, Duration::from_millis(2), Bytes(1452), LINK);
        let question = Question::new(&model, MOST).expect("it fits");
        let made = (question.pace - model.share) * 0.01 / 8.0;
        assert!((made - question.bytes).abs() < 1.0, "{made}");
    }
}

//! Whether the path has become longer: what looks like a queue that never changes may be the way itself.
//!
//! Who took it for a queue would give way to it for ever, and keep next to nothing of an idle link. But a queue stands
//! only before a link that is full, where whatever is sent besides makes it longer. So who has little of the link behind such
//! a queue, and ever less, sends some milliseconds of data besides, and looks.

use core::time::Duration;

use units::Instant;

use super::model::{Model, Round};

/// The queue has not changed for so many rounds, and so long.
const UNCHANGED: (u32, Duration) = (24, Duration::from_millis(1500));
/// Our share was this part of the link, and so much of it is left: several of our kind keep a queue that hardly changes, and
/// give each other some of theirs.
const FALLEN: (f64, f64) = (0.4, 0.75);
/// So many times what is taken for a change is sent besides.
const SENT: f64 = 2.0;
/// Rounds in which that arrives, and shows.
const SHOWS: u32 = 3;
/// Until one looks again, at first and at last: it was a queue, which costs others some of theirs.
const REST: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// See the module.
#[derive(Debug)]
pub(super) struct Longer {
    state: State,
    not_before: Instant,
    rest: Duration,
    /// The most that the link has been known to carry, in bits a second: who has had little for long may know of no more.
    link: f64,
}

#[derive(Debug)]
enum State {
    Looks(Look),
    Asked(Question),
}

/// The rounds in which the queue has not changed.
#[derive(Debug, Default)]
struct Look {
    rounds: u32,
    time: Duration,
    /// The shortest and the longest of their shortest queues.
    range: Option<(Duration, Duration)>,
    /// The longest queue.
    longest: Duration,
    /// The most that we had, in bits a second.
    share: f64,
}

/// What is sent besides, and what came of it.
#[derive(Debug)]
struct Question {
    rounds: u32,
    /// The shortest and the longest queue before, and the longest since.
    before: (Duration, Duration),
    most: Duration,
    /// In bytes: what was sent besides, and what was lost since.
    sent: f64,
    lost: u64,
    /// In bits a second.
    pace: f64,
}

impl Default for Longer {
    fn default() -> Self {
        Self {
            state: State::Looks(Look::default()),
            not_before: Instant::ZERO,
            rest: REST.0,
            link: 0.0,
        }
    }
}

impl Longer {
    /// A round ended; what was sent in it was `free` of dips, drains and other questions. Gives by how much the path is longer, if
    /// that is found.
    pub(super) fn on_round(
        &mut self,
        model: &Model,
        round: &Round,
        free: bool,
    ) -> Option<Duration> {
        self.link = self.link.max(model.link());
        match &mut self.state {
            State::Looks(look) => {
                let before = free.then(|| look.on_round(model, round, self.link)).flatten()?;
                if round.ends >= self.not_before {
                    self.state = State::Asked(Question::new(model, before, self.link));
                }
                None
            }
            State::Asked(question) => {
                let longer = question.on_round(model, round)?;
                self.state = State::Looks(Look::default());
                self.rests(round.ends);
                if longer.is_zero() {
                    return None;
                }
                self.rest = REST.0;
                Some(longer)
            }
        }
    }

    /// A long queue is drained, maybe what we asked with: what is seen of it begins anew.
    pub(super) fn interrupt(&mut self, now: Instant) {
        if let State::Asked(_) = self.state {
            self.rests(now);
        }
        self.state = State::Looks(Look::default());
    }

    fn rests(&mut self, now: Instant) {
        self.not_before = now + self.rest;
        self.rest = (self.rest * 2).min(REST.1);
    }

    /// The pace in the round in which it is sent, in bits a second.
    pub(super) fn pace(&self) -> Option<f64> {
        match &self.state {
            State::Asked(question) if question.rounds == 0 => Some(question.pace),
            _ => None,
        }
    }

    /// Bytes in flight beyond what is ours.
    pub(super) fn bytes(&self) -> f64 {
        match &self.state {
            State::Asked(question) => question.sent,
            State::Looks(_) => 0.0,
        }
    }
}

impl Look {
    /// The shortest and the longest that a queue was which has not changed for long enough while our share fell, if one has not.
    fn on_round(
        &mut self,
        model: &Model,
        round: &Round,
        link: f64,
    ) -> Option<(Duration, Duration)> {
        let queue = round.least_queue.filter(|_| !round.limited);
        let is_queue = |queue: &Duration| *queue > model.path.kept();
        let Some(queue) = queue.filter(is_queue) else {
            *self = Self::default();
            return None;
        };
        let (least, most) = self.range.unwrap_or((queue, queue));
        let (least, most) = (least.min(queue), most.max(queue));
        let longest = self.longest.max(round.most_queue);
        let target = model.path.target();
        if most - least > target / 4 || longest > least + target {
            *self = Self::default();
            return None;
        }
        (self.range, self.longest) = (Some((least, most)), longest);
        self.share = self.share.max(model.share);
        self.rounds += 1;
        self.time += round.ends.since(round.started);
        let is_long = self.rounds >= UNCHANGED.0 && self.time >= UNCHANGED.1;
        let has_fallen = model.share < self.share * FALLEN.1 && self.share > link * FALLEN.0;
        (is_long && has_fallen).then_some((least, self.longest))
    }
}

impl Question {
    fn new(model: &Model, before: (Duration, Duration), link: f64) -> Self {
        let sent = link / 8.0 * model.path.target().as_secs_f64() * SENT;
        let pace = model.compensated(model.share) + sent * 8.0 / model.round_time().as_secs_f64();
        Self { rounds: 0, before, most: Duration::ZERO, sent, lost: 0, pace }
    }

    /// By how much the path is longer, once that is known: by nothing if it is a queue, or cannot be told.
    fn on_round(&mut self, model: &Model, round: &Round) -> Option<Duration> {
        self.rounds += 1;
        self.most = self.most.max(round.most_queue);
        self.lost += round.lost;
        if round.limited {
            // There was not enough to send.
            return Some(Duration::ZERO);
        }
        if self.rounds <= SHOWS {
            return None;
        }
        let grows = self.most > self.before.1 + model.path.target() / 2;
        // What has been dropped could not make the queue longer.
        let is_dropped =
            self.lost as f64 > self.sent / 4.0 + model.own_loss.ratio() * self.expected(model);
        Some(if grows || is_dropped { Duration::ZERO } else { self.before.0 })
    }

    /// Bytes that were sent since.
    fn expected(&self, model: &Model) -> f64 {
        let time = model.round_time().as_secs_f64() * f64::from(self.rounds);
        model.share / 8.0 * time + self.sent
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::super::path::Path;
    use super::*;

    const BASE: Duration = Duration::from_millis(50);
    const LINK: f64 = 100e6;

    /// Rounds, each of which leaves us so much of our share, with a queue in milliseconds that may depend on the round, and on what was sent
    /// besides in the last three, in milliseconds of the link; by how much the path is found to be longer, if it is.
    fn found(
        left: f64,
        free: bool,
        limited: bool,
        queue: impl Fn(u64, f64) -> f64,
    ) -> Option<Duration> {
        let mut model = Model::new(Path::new(BASE, 1.0));
        (model.trains, model.share) = (Some(LINK), 0.9 * LINK);
        let (mut longer, mut now) = (Longer::default(), Instant::ZERO);
        (0..200).find_map(|number| {
            let besides = longer.bytes() * 8.0 / LINK;
            let queue = Duration::from_secs_f64(queue(number, besides * 1e3) / 1e3);
            let started = now;
            now += BASE;
            model.share *= left;
            for _ in 0..4 {
                model.path.on_rtt(now, BASE + queue, Bytes(1452), LINK);
            }
            let acked = (model.share / 8.0 * BASE.as_secs_f64()) as u64;
            let (least_queue, most_queue) = (Some(model.path.queue), model.path.queue);
            let round = Round {
                started,
                ends: now,
                acked,
                limited,
                least_queue,
                most_queue,
                ..Round::default()
            };
            longer.on_round(&model, &round, free)
        })
    }

    #[test]
    fn what_does_not_grow_is_no_queue() {
        let by = found(0.97, true, false, |_, _| 10.0).expect("a longer path");
        assert!(by > Duration::from_millis(9) && by <= Duration::from_millis(10), "{by:?}");
    }

    #[test]
    fn what_grows_is_one_and_so_may_be_what_changes() {
        assert_eq!(found(0.97, true, false, |_, besides| 10.0 + besides), None);
        assert_eq!(found(0.97, true, false, |number, _| 8.0 + (number % 8) as f64), None);
    }

    #[test]
    fn who_keeps_what_he_has_or_is_busy_otherwise_does_not_ask() {
        assert_eq!(found(1.0, true, false, |_, _| 10.0), None);
        assert_eq!(found(0.97, false, false, |_, _| 10.0), None);
        assert_eq!(found(0.97, true, true, |_, _| 10.0), None, "the application takes it");
        assert_eq!(found(0.97, true, false, |_, _| 1.0), None, "it is kept");
    }

    const QUEUE: Duration = Duration::from_millis(10);

    /// Asked behind a queue by who has half of the link, and a round behind the same.
    fn asked() -> (Model, Question, Round) {
        let mut model = Model::new(Path::new(BASE, 1.0));
        (model.trains, model.share) = (Some(LINK), 0.5 * LINK);
        let question = Question::new(&model, (QUEUE, QUEUE), LINK);
        let round = Round { least_queue: Some(QUEUE), most_queue: QUEUE, ..Round::default() };
        (model, question, round)
    }

    #[test]
    fn what_was_not_sent_tells_nothing() {
        let (model, mut question, round) = asked();
        let round = Round { limited: true, ..round };
        assert_eq!(question.on_round(&model, &round), Some(Duration::ZERO));
    }

    #[test]
    fn what_a_queue_drops_does_not_make_it_longer() {
        let (model, mut question, round) = asked();
        let drops = Round { lost: question.sent as u64 / 2, ..asked().2 };
        assert_eq!(question.on_round(&model, &drops), None);
        let rest = [0; 3].map(|_| question.on_round(&model, &round));
        assert_eq!(rest, [None, None, Some(Duration::ZERO)]);
    }
}

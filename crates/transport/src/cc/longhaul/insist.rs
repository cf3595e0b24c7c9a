//! Among flows that fill the queue and do not heed loss: what they do (BBR's law), as far as we are owed it: the
//! best rate of the last rounds, a quarter more in one round of eight, and two round trips of it in flight.

use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

use super::model::{Model, Round};

/// Rounds whose best rate counts.
const ROUNDS: usize = 10;
/// Factors of the pace, each for a round.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// So many times what we are owed is insisted on, for some of it is lost.
const INSISTED: f64 = 1.2;
/// Round trips in flight.
const IN_FLIGHT: f64 = 1.9;
/// After so many rounds that ended with less than the target queue, and so long a time, the others have given way, or
/// left. BBR rests for 200 ms every 10 s, and the queue needs some round trips more until it is back.
const GIVE_WAY: (u32, Duration) = (8, Duration::from_secs(1));

/// See the module.
#[derive(Debug)]
pub(super) struct Insist {
    best: VecDeque<f64>,
    phase: usize,
    /// Rounds in a row with a short queue, and when it last was long.
    short: (u32, Instant),
    rate: f64,
}

impl Insist {
    pub(super) fn new(now: Instant, rate: f64) -> Self {
        Self {
            best: VecDeque::from([rate]),
            phase: 2 + now.as_nanos() as usize / 1000 % 6,
            short: (0, now),
            rate,
        }
    }

    /// True when the others have given way.
    pub(super) fn on_report(&mut self, now: Instant, model: &Model, round: Option<&Round>) -> bool {
        self.rate = self.rate.max(model.share);
        if round.is_none() {
            return false;
        }
        self.phase = (self.phase + 1) % CYCLE.len();
        if self.best.len() == ROUNDS {
            self.best.pop_front();
        }
        self.best.push_back(core::mem::take(&mut self.rate));
        if model.path.queue >= model.path.target() {
            self.short = (0, now);
            return false;
        }
        let (rounds, since) = &mut self.short;
        *rounds += 1;
        *rounds >= GIVE_WAY.0 && now.since(*since) >= GIVE_WAY.1
    }

    /// A truce is on: that the queue is short says nothing.
    pub(super) fn on_truce(&mut self, now: Instant) {
        self.short = (0, now);
    }

    /// No more than about what we are owed: who pushes harder pushes others out.
    fn best(&self, model: &Model) -> f64 {
        let best = self.best.iter().copied().fold(self.rate, f64::max);
        best.min(model.owed() * INSISTED)
    }

    /// The window in bytes.
    pub(super) fn window(&self, model: &Model) -> f64 {
        IN_FLIGHT * self.best(model) / 8.0 * model.path.shortest().as_secs_f64()
    }

    /// The pace, in bits a second. Nothing is sent on top for the path's own loss, nor does BBR: what was taken for that
    /// may have been somebody's full queue.
    pub(super) fn pace(&self, model: &Model) -> f64 {
        self.best(model) * CYCLE[self.phase]
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::super::path::Path;
    use super::*;

    const BASE: Duration = Duration::from_millis(50);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    /// A second of queue, then none of it for so many rounds of 50 ms, with a truce in one of them; whether the others
    /// are taken to have given way.
    fn gave_way(rounds: u64, truce: Option<u64>) -> bool {
        let mut model = Model::new(Path::new(BASE, 1.0));
        let mut insist = Insist::new(at(0), 40e6);
        (0..20 + rounds).any(|number| {
            let now = at(50 * number);
            let queue = Duration::from_millis(if number < 20 { 40 } else { 0 });
            model.path.on_rtt(now, BASE + queue, Bytes(1452), 40e6);
            if truce == Some(number) {
                insist.on_truce(now);
                return false;
            }
            insist.on_report(now, &model, Some(&Round::default()))
        })
    }

    #[test]
    fn a_rest_is_no_giving_way() {
        assert!(!gave_way(15, None));
        assert!(gave_way(25, None));
    }

    #[test]
    fn a_truce_makes_the_queue_short_for_all() {
        assert!(!gave_way(25, Some(36)));
        assert!(gave_way(45, Some(36)));
    }

    #[test]
    fn nothing_is_sent_on_top_for_loss() {
        let mut model = Model::new(Path::new(BASE, 1.0));
        model.trains = Some(100e6);
        let insist = Insist::new(at(0), 40e6);
        let pace = insist.pace(&model);
        assert!(pace >= 30e6, "{pace}");
        model.own_loss.is(0.4);
        assert_eq!(insist.pace(&model), pace);
    }
}

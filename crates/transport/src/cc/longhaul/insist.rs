//! Among flows that fill the queue and do not heed loss: what they do (BBR's law): the best rate
//! of the last rounds, a quarter more in one round of eight, and two round trips of it in flight.

use std::collections::VecDeque;

use units::Instant;

use core::time::Duration;

use super::model::{Model, Round};

/// Rounds whose best rate counts.
const ROUNDS: usize = 10;
/// Factors of the pace, each for a round.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Round trips in flight.
const IN_FLIGHT: f64 = 1.9;
/// Others who leave us so much of the link, for so many rounds, do heed loss.
const GIVE_WAY: (f64, u32) = (0.72, 8);
/// After so long, look again.
const PATIENCE: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Debug)]
pub(super) struct Insist {
    best: VecDeque<f64>,
    phase: usize,
    gave_way: u32,
    until: Instant,
    rate: f64,
}

impl Insist {
    pub(super) fn new(now: Instant, rate: f64) -> Self {
        Self {
            best: VecDeque::from([rate]),
            phase: 2 + now.as_nanos() as usize / 1000 % 6,
            gave_way: 0,
            until: now + PATIENCE,
            rate,
        }
    }

    /// True when it is time to look whether the others heed loss.
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
        let (share, rounds) = GIVE_WAY;
        self.gave_way = if model.share > share * model.link() { self.gave_way + 1 } else { 0 };
        self.gave_way >= rounds || now >= self.until
    }

    fn best(&self) -> f64 {
        self.best.iter().copied().fold(self.rate, f64::max)
    }

    /// The window in bytes.
    pub(super) fn window(&self, model: &Model) -> f64 {
        IN_FLIGHT * self.best() / 8.0 * model.path.shortest().as_secs_f64()
    }

    /// The pace, in bits a second.
    pub(super) fn pace(&self, model: &Model) -> f64 {
        model.compensated(self.best() * CYCLE[self.phase])
    }
}

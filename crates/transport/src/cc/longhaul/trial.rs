//! Rounds are judged together until they hold enough packets to tell excess loss from chance.

use core::time::Duration;

use super::model::Round;

/// Fewer packets than these do not tell excess loss from chance: they are judged together with
/// those of the next rounds.
const ENOUGH: u64 = 24;

/// What rounds in a row, none of which was held back, have settled, and in which time.
#[derive(Debug, Default)]
pub(super) struct Trial {
    acked: u64,
    lost: u64,
    time: Duration,
}

impl Trial {
    /// Goes on with a round; once they hold enough, tells what came of them, of which the `usual` share
    /// should be lost.
    pub(super) fn end(&mut self, round: &Round, packet: u64, usual: f64) -> Option<Tried> {
        if round.limited {
            *self = Self::default();
            return None;
        }
        self.acked += round.acked;
        self.lost += round.lost;
        self.time += round.ends.since(round.started);
        let settled = self.acked + self.lost;
        if settled < ENOUGH * packet {
            return None;
        }
        let Self { acked, lost, time } = core::mem::take(self);
        let deviation = (usual * (1.0 - usual) * packet as f64 / settled as f64).sqrt();
        let loss = lost as f64 / settled as f64;
        let arrived = acked as f64 * 8.0 / time.as_secs_f64().max(1e-3);
        Some(Tried { arrived, loss, is_excess: loss > usual + 2.0 * deviation })
    }
}

/// What came of a [`Trial`].
#[derive(Debug)]
pub(super) struct Tried {
    /// In bits a second.
    pub(super) arrived: f64,
    pub(super) loss: f64,
    /// More was lost than is usual, and than chance explains.
    pub(super) is_excess: bool,
}

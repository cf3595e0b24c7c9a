//! NewReno: half the window after losses, one packet more each round trip without (RFC 5681,
//! RFC 6582). Recovery is selective, so this is what the literature calls TCP SACK.

use core::time::Duration;

use units::Instant;

use super::window::{Avoidance, Window};

/// Additive increase, multiplicative decrease.
#[derive(Debug)]
pub(super) struct Aimd;

/// See the module.
pub(super) type NewReno = Window<Aimd>;

impl NewReno {
    /// A controller for a new connection.
    pub(super) fn new() -> Self {
        Self::with(Aimd)
    }
}

impl Avoidance for Aimd {
    fn reduced(&mut self, window: f64) -> f64 {
        window / 2.0
    }

    fn grown(&mut self, _now: Instant, window: f64, acked: f64, _rtt: Duration) -> f64 {
        window + acked / window
    }

    fn forget(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::super::window::tests::Rounds;
    use super::*;

    #[test]
    fn half_at_a_loss_and_one_packet_a_round_trip() {
        let mut rounds = Rounds::of(NewReno::new());
        let windows = [0, 0, 0, 2, 0, 0, 0, 1].map(|lost| rounds.round(lost));
        assert_eq!(windows[2..], [88.0, 44.0, 45.0, 46.0, 47.0, 23.5]);
    }
}

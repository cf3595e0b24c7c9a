//! CUBIC (RFC 9438): after losses the window returns to where it was along a cubic curve of the
//! time since, so that growth does not depend on the round-trip time; with fast convergence
//! (section 4.7), and never slower than Reno (section 4.3).

use core::time::Duration;

use units::Instant;

use super::window::{Avoidance, Window};

/// The window's share that a loss leaves (section 4.6).
const BETA: f64 = 0.7;
/// Steepness of the curve, in packets a second cubed (section 5).
const C: f64 = 0.4;
/// Additive increase that, with [`BETA`], gives Reno's mean window (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The most growth towards the curve in a round trip (section 4.2).
const MAX_GROWTH: f64 = 1.5;

/// The curve; windows in packets.
#[derive(Debug, Default)]
pub(super) struct Curve {
    /// Where the curve is flat (`W_max`), and the window before the last reduction.
    plateau: f64,
    prior: f64,
    epoch: Option<Epoch>,
    /// When a report last told of growth.
    last: Instant,
}

/// Since congestion avoidance began.
#[derive(Debug)]
struct Epoch {
    started: Instant,
    /// Seconds until the curve reaches its plateau (`K`).
    until_plateau: f64,
    /// The window that Reno would have (`W_est`).
    reno: f64,
}

/// See the module.
pub(super) type Cubic = Window<Curve>;

impl Cubic {
    /// A controller for a new connection.
    pub(super) fn new() -> Self {
        Self::with(Curve::default())
    }
}

impl Avoidance for Curve {
    fn reduced(&mut self, window: f64) -> f64 {
        // A window that did not come back to the plateau leaves room for another flow.
        let leaves = window < self.plateau;
        self.plateau = if leaves { window * (1.0 + BETA) / 2.0 } else { window };
        self.prior = window;
        self.epoch = None;
        window * BETA
    }

    fn grown(&mut self, now: Instant, window: f64, acked: f64, rtt: Duration) -> f64 {
        self.last = now;
        if self.epoch.is_none() {
            self.plateau = self.plateau.max(window);
        }
        let plateau = self.plateau;
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            started: now,
            until_plateau: ((plateau - window) / C).cbrt(),
            reno: window,
        });
        let increase = if epoch.reno < self.prior { ALPHA } else { 1.0 };
        epoch.reno += increase * acked / window;
        let at = |time: f64| C * (time - epoch.until_plateau).powi(3) + plateau;
        let elapsed = now.since(epoch.started).as_secs_f64();
        if at(elapsed) < epoch.reno {
            return epoch.reno.max(window);
        }
        let target = at(elapsed + rtt.as_secs_f64()).clamp(window, window * MAX_GROWTH);
        window + (target - window) / window * acked
    }

    fn on_idle(&mut self, now: Instant) {
        if let Some(epoch) = &mut self.epoch {
            epoch.started += now.since(self.last.max(epoch.started));
        }
        self.last = now;
    }

    fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::tests::{RTT, Rounds};
    use super::*;

    /// Slow start to 1408 packets, then a loss.
    fn after_a_loss() -> (Rounds<Cubic>, f64) {
        let mut rounds = Rounds::of(Cubic::new());
        let before = [(); 7].map(|()| rounds.round(0))[6];
        let after = rounds.round(1);
        assert!((after / before - BETA).abs() < 1e-3, "{before} {after}");
        (rounds, before)
    }

    #[test]
    fn the_window_returns_along_the_curve() {
        let (mut rounds, plateau) = after_a_loss();
        let until = ((1.0 - BETA) * plateau / C).cbrt();
        let count = (until / RTT.as_secs_f64()) as usize;
        let windows: Vec<f64> = (0..count * 2).map(|_| rounds.round(0)).collect();
        for (index, window) in windows.iter().enumerate() {
            let time = (index + 1) as f64 * RTT.as_secs_f64();
            let curve = C * (time - until).powi(3) + plateau;
            assert!((window / curve - 1.0).abs() < 0.02, "{time} s: {window} for {curve}");
        }
    }

    #[test]
    fn a_flow_that_did_not_come_back_gives_way() {
        let (mut rounds, before) = after_a_loss();
        let between = rounds.round(0);
        rounds.round(1);
        let until = (0..).position(|_| rounds.round(0) >= between * 0.84).unwrap();
        // Flat at 0.85 of the window before the second loss, not at the window itself.
        let windows = [(); 8].map(|()| rounds.round(0));
        assert!(windows.iter().all(|&window| window < between), "{until}: {windows:?} of {before}");
    }

    #[test]
    fn small_windows_grow_as_reno_does() {
        let mut rounds = Rounds::of(Cubic::new());
        rounds.round(0);
        let before = rounds.round(1);
        let after = [(); 10].map(|()| rounds.round(0))[9];
        // The curve alone would give 22 x 0.85 at most by then.
        assert!((after - before - 10.0 * ALPHA).abs() < 1.0, "{before} {after}");
    }
}

//! CUBIC's window (RFC 9438, and where Linux differs as Linux has it), in segments.

use core::time::Duration;

use units::Instant;

/// Section 4.1.
const C: f64 = 0.4;
/// Section 4.6.
const BETA: f64 = 0.7;
/// Of the window, a round trip: Linux adds no less before the first loss, behind HyStart or a time-out.
const FIRST_GROWTH: f64 = 0.05;
/// Section 4.3: what AIMD with CUBIC's decrease adds a round trip to be as fast as Reno. Linux does not
/// raise it to 1 once the window is what it was.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

#[derive(Clone, Copy, Debug)]
pub(super) struct Cubic {
    /// Nothing was lost since it began, or since the last time-out.
    untried: bool,
    /// The window before the last decrease.
    w_max: f64,
    /// The time since that decrease at which the window is there again, and its beginning.
    epoch: Option<(Instant, f64)>,
    /// What Reno would have by now (section 4.3).
    w_est: f64,
}

impl Cubic {
    pub(super) fn new() -> Self {
        Self { untried: true, w_max: 0.0, epoch: None, w_est: 0.0 }
    }

    /// Segments to add to the window for `acked` segments.
    #[inline(never)]
    pub(super) fn growth(&mut self, now: Instant, window: f64, acked: f64, rtt: Duration) -> f64 {
        let (start, k) = *self.epoch.get_or_insert_with(|| {
            self.w_est = window;
            self.w_max = self.w_max.max(window);
            (now, ((self.w_max - window) / C).cbrt())
        });
        let t = now.since(start).as_secs_f64();
        let at = |t: f64| C * (t - k).powi(3) + self.w_max;
        self.w_est += ALPHA * acked / window;
        let target = at(t + rtt.as_secs_f64()).max(self.w_est).clamp(window, 1.5 * window);
        let least = if self.untried { FIRST_GROWTH } else { 0.0 };
        ((target - window) / window).max(least) * acked
    }

    /// The window after a loss; with fast convergence (section 4.7).
    pub(super) fn decrease(&mut self, window: f64) -> f64 {
        self.w_max = if window < self.w_max { window * (1.0 + BETA) / 2.0 } else { window };
        (self.epoch, self.untried) = (None, false);
        window * BETA
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments after so many round trips of 100 ms.
    fn after(cubic: &mut Cubic, mut window: f64, rounds: u32) -> f64 {
        let rtt = Duration::from_millis(100);
        for round in 0..rounds {
            let now = Instant::from_nanos(1) + rtt * round;
            for _ in 0..window as u64 {
                window += cubic.growth(now, window, 1.0, rtt);
            }
        }
        window
    }

    #[test]
    fn it_is_in_a_hurry_until_the_first_loss() {
        let mut cubic = Cubic::new();
        let found = after(&mut cubic, 1000.0, 10);
        assert!((found / (1000.0 * 1.05f64.powi(10)) - 1.0).abs() < 0.02, "{found}");
        // From then on by the curve, which is flat at first, and Reno's.
        assert_eq!(cubic.decrease(1000.0), 700.0);
        let found = after(&mut cubic, 700.0, 10);
        assert!(found < 1000.0, "{found}");
    }

    #[test]
    fn small_windows_grow_by_alpha_a_round_trip() {
        let mut cubic = Cubic::new();
        let window = cubic.decrease(10.0);
        let grown = after(&mut cubic, window, 10) - window;
        assert!((grown / (10.0 * ALPHA) - 1.0).abs() < 0.25, "{grown}");
    }
}

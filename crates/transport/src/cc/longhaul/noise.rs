//! How noisy round trips are. A queue grows for a while, and shrinks for a while; radio links hold packets back, and let them go
//! in bunches, so that round trips turn with each report. What is noise must not be taken for a queue.

use core::time::Duration;
use std::collections::VecDeque;

/// Reports whose turns are averaged, and how many of these averages are remembered, of which the least counts: who comes or
/// leaves makes a queue turn, but not for long.
const REPORTS: u32 = 32;
/// See [`REPORTS`].
const SPANS: usize = 4;
/// Round trips that are drawn at random differ by so many times their mean turn.
const TURNS: f64 = 2.5;
/// So much is usual, as threads wake up late.
const USUAL: Duration = Duration::from_micros(500);
/// So much a turn, in seconds, says nothing of a start.
const LEAP: f64 = 0.001;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Noise {
    last: Option<Duration>,
    /// How much longer the last was than the one before it, in seconds.
    grew: f64,
    span: Span,
    /// The leaps of the span before.
    before: f64,
    /// Mean turns of the last spans, in seconds.
    means: VecDeque<f64>,
}

/// The reports that have not been averaged yet.
#[derive(Debug, Default)]
struct Span {
    reports: u32,
    /// Of round trips that became longer and then shorter, or shorter and then longer, the lesser difference, in seconds.
    turns: f64,
    /// The same of each that is beyond [`LEAP`].
    leaps: f64,
}

impl Noise {
    /// The next report told of such a round trip.
    pub(super) fn on_rtt(&mut self, rtt: Duration) {
        let Some(last) = self.last.replace(rtt) else { return };
        let span = &mut self.span;
        span.reports += 1;
        let grows = rtt.as_secs_f64() - last.as_secs_f64();
        let before = core::mem::replace(&mut self.grew, grows);
        if grows * before < 0.0 {
            let turn = grows.abs().min(before.abs());
            span.turns += turn;
            span.leaps += (turn - LEAP).max(0.0);
        }
        if span.reports < REPORTS {
            return;
        }
        if self.means.len() == SPANS {
            self.means.pop_front();
        }
        self.means.push_back(span.turns / f64::from(span.reports));
        self.before = core::mem::take(&mut self.span).leaps;
    }

    /// By how much round trips differ, beyond what is usual.
    pub(super) fn level(&self) -> Duration {
        if self.means.len() < SPANS {
            return Duration::ZERO;
        }
        let least = self.means.iter().copied().reduce(f64::min).unwrap_or_default();
        Duration::from_secs_f64(least * TURNS).saturating_sub(USUAL)
    }

    /// What round trips have turned by lately, beyond what threads make of them: the queue that a start makes does not.
    pub(super) fn leaps(&self) -> Duration {
        Duration::from_secs_f64(self.span.leaps + self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After so many reports of round trips that take so many microseconds.
    fn after(reports: u64, rtt: impl Fn(u64) -> u64) -> Noise {
        let mut noise = Noise::default();
        (0..reports).for_each(|at| noise.on_rtt(Duration::from_micros(rtt(at))));
        noise
    }

    #[test]
    fn a_queue_is_not_noise() {
        // It grows for a while, and shrinks for a while.
        let queue = |at: u64| 50_000 + 5000 * if at % 16 < 8 { at % 16 } else { 16 - at % 16 };
        let level = after(1000, queue).level();
        assert!(level < Duration::from_millis(2), "5 ms in each eighth report: {level:?}");
        assert_eq!(after(1000, |at| queue(at / 8) / 10).level(), Duration::ZERO);
        // Somebody starts.
        let start = |at: u64| 50_000 + if at % 128 < 32 { at % 32 * 10_000 } else { 0 };
        assert_eq!(after(1000, start).level(), Duration::ZERO);
    }

    #[test]
    fn what_turns_for_long_is() {
        let turns = |at: u64| if at.is_multiple_of(2) { 50_000 } else { 51_000 };
        let level = after(1000, turns).level();
        assert!(level.abs_diff(Duration::from_millis(2)) < USUAL / 10, "{level:?}");
        assert_eq!(after(32, turns).level(), Duration::ZERO, "too early to say");
        let ends = |at| if at < 500 { turns(at) } else { 50_000 };
        assert_eq!(after(600, ends).level(), Duration::ZERO);
    }

    #[test]
    fn a_start_does_not_leap() {
        // It fills a queue, which empties, and fills it again.
        let start = |at: u64| 50_000 + 2000 * if at < 20 { at } else { 40_u64.abs_diff(at) };
        assert!(after(60, start).leaps() <= Duration::from_millis(2), "it turns twice");
        assert_eq!(after(60, |at| 50_000 + at % 2 * 900).leaps(), Duration::ZERO);
        let leaps = after(60, |at| 50_000 + at % 2 * 11_000).leaps();
        assert!(leaps.abs_diff(Duration::from_millis(10) * 58) < USUAL, "{leaps:?}");
    }
}

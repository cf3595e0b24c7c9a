//! What losses leave of a connection's window, and how many of its segments are lost.

use core::time::Duration;

/// How a connection's congestion control answers losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Law {
    /// AIMD (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// Not at all: BBR, version 1. A [`Pace`](super::Pace) sees to them.
    Bbr,
    /// Not by its window, or in no way that is known.
    #[default]
    Unknown,
}

impl Law {
    /// By the kernel's name for it.
    pub fn of(name: &[u8]) -> Self {
        match name {
            b"cubic" => Self::Cubic,
            b"reno" => Self::Reno,
            b"bbr" => Self::Bbr,
            _ => Self::Unknown,
        }
    }

    /// The mean window in segments that random losses of this share leave.
    fn window(self, share: f64, rtt: Duration) -> Option<f64> {
        // RFC 9438, section 5.1: CUBIC is never below Reno.
        let reno = (1.5 / share).sqrt();
        match self {
            Self::Reno => Some(reno),
            Self::Cubic => Some((1.054 * (rtt.as_secs_f64() / share).powf(0.75)).max(reno)),
            Self::Bbr | Self::Unknown => None,
        }
    }
}

/// What is counted loses so much of its weight with each window.
const FADE: f64 = 0.95;
/// Fewer losses say nothing yet.
const ENOUGH: f64 = 16.0;
/// The least share is forgotten by so much a window, for paths change.
const FORGET: f64 = 1.01;

/// The share of segments that are lost whatever we do: those lost while no queue stood in the path,
/// and of their share the least, for what is lost only since there are more connections is our own
/// doing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    sent: f64,
    lost: f64,
    /// The counts at the end of the last window, what it sent, and whether there was a queue.
    last: Option<(u64, u64)>,
    before: Option<u64>,
    crowded: bool,
    least: Option<f64>,
}

impl Losses {
    /// Takes in a window, by the counts at its end, and whether a queue stood at any time of it.
    pub(super) fn note(&mut self, sent: u64, resent: u64, crowded: bool) {
        if let Some((sent_then, resent_then)) = self.last.replace((sent, resent)) {
            let (new, lost) = (sent.saturating_sub(sent_then), resent.saturating_sub(resent_then));
            // What is lost shows a round trip later.
            if let Some(before) = self.before.replace(new)
                && !crowded
                && !self.crowded
            {
                self.sent = self.sent * FADE + before as f64;
                self.lost = self.lost * FADE + lost as f64;
                self.compare();
            }
        }
        self.crowded = crowded;
    }

    fn compare(&mut self) {
        let least = self.least.map(|least| (least * FORGET).min(1.0));
        let share = (self.lost >= ENOUGH).then(|| self.lost / self.sent.max(self.lost));
        self.least = least.into_iter().chain(share).reduce(f64::min);
    }

    /// The mean window in segments to which they bring a connection down, once it can be told.
    pub(super) fn window(&self, law: Law, rtt: Duration) -> Option<f64> {
        law.window(self.least?, rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_that_kernels_were_seen_to_have() {
        // One connection over 200 ms: 4 Mbit/s at 0.1%, 0.7 at 1% (and 9 and 2 with slow start).
        let mbps = |share| {
            let window = Law::of(b"cubic").window(share, Duration::from_millis(200)).unwrap();
            window * 1448.0 * 8.0 / 0.2 / 1e6
        };
        assert!((3.0..4.5).contains(&mbps(0.001)) && (0.5..0.9).contains(&mbps(0.01)));
        assert_eq!(Law::of(b"bbr").window(0.01, Duration::from_millis(200)), None);
        assert_eq!(Law::Reno.window(0.015, Duration::ZERO), Some(10.0));
    }

    #[test]
    fn only_losses_without_a_queue_count() {
        let mut losses = Losses::default();
        let (mut sent, mut resent) = (0, 0);
        let mut window = |losses: &mut Losses, lost, crowded| {
            sent += 10_000;
            resent += lost;
            losses.note(sent, resent, crowded);
        };
        for _ in 0..4 {
            window(&mut losses, 10, false);
        }
        assert!((losses.least.unwrap() - 0.001).abs() < 2e-4, "{losses:?}");
        for crowded in [true, false] {
            window(&mut losses, 2000, crowded);
        }
        for _ in 0..10 {
            window(&mut losses, 30, false);
        }
        let least = losses.least.unwrap();
        assert!((least - 0.001).abs() < 2e-4, "more connections, more losses: {losses:?}");
    }
}

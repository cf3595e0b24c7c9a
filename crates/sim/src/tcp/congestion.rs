//! The congestion window.

use core::time::Duration;

use units::Instant;

use super::config::{Config, Congestion};
use super::cubic::Cubic;
use super::hystart::HyStart;
use super::rto::Rto;

/// Window and threshold in bytes, and the law by which they change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    mss: f64,
    window: f64,
    /// The window in whole bytes.
    whole: u64,
    threshold: f64,
    /// As in [`Config::byte_counting`].
    byte_counting: bool,
    hystart: Option<HyStart>,
    law: Law,
}

/// What an acknowledgement of new data says of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    /// All before this has been acknowledged, and before that sent.
    pub(super) una: u64,
    pub(super) next: u64,
    /// The round-trip time, if this acknowledgement has measured it.
    pub(super) rtt: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum Law {
    Reno,
    Cubic(Cubic),
}

impl Control {
    pub(super) fn new(config: &Config) -> Self {
        let mss = config.mss.0 as f64;
        let law = match config.congestion {
            Congestion::Reno => Law::Reno,
            Congestion::Cubic => Law::Cubic(Cubic::new()),
        };
        let threshold = config.initial_ssthresh.map_or(f64::INFINITY, |bytes| bytes.0 as f64);
        let cubic = config.congestion == Congestion::Cubic;
        let window = mss * f64::from(config.initial_window);
        Self {
            mss,
            window,
            whole: window as u64,
            threshold,
            byte_counting: config.byte_counting,
            hystart: (cubic && config.hystart).then(HyStart::default),
            law,
        }
    }

    /// In whole bytes.
    #[inline(always)]
    pub(super) fn window(&self) -> u64 {
        self.whole
    }

    /// The window is so many bytes from now on.
    fn set(&mut self, window: f64) {
        self.window = window;
        // It is far below 2^63, and signed numbers are converted in one step.
        self.whole = window as i64 as u64;
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Where slow start ends.
    #[cfg(test)]
    pub(super) fn threshold(&self) -> Option<u64> {
        self.threshold.is_finite().then_some(self.threshold as u64)
    }

    /// The handshake took so long. Linux looks at the first data alone, but that is hardly ever a burst: programs greet each
    /// other first.
    pub(super) fn on_handshake(&mut self, rtt: Duration) {
        if let Some(hystart) = &mut self.hystart {
            hystart.on_rtt(rtt);
        }
    }

    /// New data was acknowledged in slow start, which may end with this.
    #[cold]
    pub(super) fn watch(&mut self, now: Instant, acked: &Acked) {
        if let Some(hystart) = &mut self.hystart
            && hystart.ends(now, acked, self.window / self.mss)
        {
            self.threshold = self.window;
        }
    }

    /// So many bytes of new data were acknowledged; the window grows only if it was `full` (RFC 7661).
    #[inline(always)]
    pub(super) fn on_ack(&mut self, now: Instant, bytes: u64, rto: &Rto, full: bool) {
        if !full {
            return;
        }
        // As in `set`.
        let bytes = bytes as i64 as f64;
        if self.in_slow_start() {
            // RFC 5681, equation 2; RFC 3465, section 2.2.
            return self.set(if self.byte_counting {
                (self.window + bytes).min(self.threshold)
            } else {
                self.window + bytes.min(self.mss)
            });
        }
        let grown = match &mut self.law {
            // RFC 5681, equation 3: a segment a round trip, with each segment acknowledged or by bytes.
            Law::Reno => {
                let share = if self.byte_counting { bytes } else { self.mss };
                self.mss * share / self.window
            }
            Law::Cubic(cubic) => {
                let (segments, acked) = (self.window / self.mss, bytes / self.mss);
                self.mss * cubic.growth(now, segments, acked, rto.smoothed().unwrap_or_default())
            }
        };
        self.set(self.window + grown);
    }

    /// A loss, seen with so many bytes in flight.
    pub(super) fn on_loss(&mut self, in_flight: u64) {
        let left = match &mut self.law {
            // RFC 5681, equation 4.
            Law::Reno => in_flight as f64 / 2.0,
            Law::Cubic(cubic) => self.mss * cubic.decrease(self.window / self.mss),
        };
        self.threshold = left.max(2.0 * self.mss);
        self.set(self.threshold);
    }

    /// Begins again from one segment, knowing nothing but the threshold (RFC 9438, section 4.8).
    pub(super) fn restart(&mut self) {
        self.set(self.mss);
        if let Law::Cubic(cubic) = &mut self.law {
            *cubic = Cubic::new();
        }
        if let Some(hystart) = &mut self.hystart {
            *hystart = HyStart::default();
        }
    }

    /// Leaves a recovery with no more than this in flight, so that no burst follows (RFC 6582,
    /// section 3.2, step 3).
    pub(super) fn settle(&mut self, in_flight: u64) {
        self.set(self.threshold.min((in_flight as f64).max(self.mss) + self.mss));
    }
}

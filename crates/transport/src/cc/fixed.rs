//! A rate given by the user.

use core::time::Duration;

use units::{Bytes, Instant, Rate};

use super::{AckSample, Controller};

/// In flight at least, so that a short round trip does not hold the rate back.
const MIN_WINDOW: Bytes = Bytes::mib(1);
/// Paces at one rate whatever happens; the window only bounds what a silent path can swallow.
#[derive(Debug)]
pub struct Fixed {
    rate: Rate,
    rtt: Duration,
}

impl Fixed {
    /// A controller that sends at `rate`.
    pub fn new(rate: Rate) -> Self {
        Self { rate, rtt: Duration::from_secs(1) }
    }
}

impl Controller for Fixed {
    fn on_start(&mut self, _now: Instant, rtt: Duration) {
        self.rtt = rtt;
    }

    fn on_ack(&mut self, sample: &AckSample) {
        self.rtt = sample.rtt.unwrap_or(self.rtt);
    }

    fn window(&self) -> Bytes {
        self.rate.bytes_in(self.rtt * 2 + Duration::from_millis(100)).max(MIN_WINDOW)
    }

    fn pacing_rate(&self) -> Rate {
        self.rate
    }

    fn state(&self) -> &'static str {
        "fixed"
    }
}

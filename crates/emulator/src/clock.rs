//! The one place of this crate that reads a clock.

use core::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use units::Instant;

/// A monotonic clock that starts when it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    #[allow(clippy::disallowed_methods, reason = "the emulator's clock is read here alone")]
    pub(crate) fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }
}

/// Processor time this thread has used.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

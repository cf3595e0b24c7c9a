//! The one place of this crate that reads a clock.

use core::time::Duration;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;
use std::time::UNIX_EPOCH;

use units::Instant;

/// A monotonic clock that starts when it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
    /// The same moment as people count, since 1970.
    epoch: Duration,
}

impl Clock {
    #[allow(clippy::disallowed_methods, reason = "the emulator's clock is read here alone")]
    pub(crate) fn start() -> Self {
        let epoch = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: std::time::Instant::now(), epoch }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// An instant as time since 1970, which keeps its pace when the machine's clock is set.
    pub(crate) fn since_epoch(&self, at: Instant) -> Duration {
        self.epoch + at.since(Instant::ZERO)
    }
}

/// Processor time a thread has used; nothing when it has ended. Asked from outside, so that the
/// thread itself spends none on it.
pub(crate) fn thread_cpu_time<T>(thread: &JoinHandle<T>) -> Duration {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the thread was not joined, for its handle exists, so its identity is valid; both
    // functions write to the variables they are given.
    let result = unsafe {
        match libc::pthread_getcpuclockid(thread.as_pthread_t() as _, &raw mut clock) {
            0 => libc::clock_gettime(clock, &raw mut time),
            error => error,
        }
    };
    if result != 0 {
        return Duration::ZERO;
    }
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

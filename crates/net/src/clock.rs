//! The real clocks: the one place of this crate that reads them.

use std::sync::OnceLock;
use std::time::{self, Duration};

use units::Instant;

/// Monotonic time, counted from 1970 as the wall clock told when this process first asked. So hosts whose
/// clocks agreed then do at nearly the same time what they do at fixed times, which the congestion control
/// makes use of.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    /// Off zero, so that times before the first reading can be told.
    const LEAST: Duration = Duration::from_secs(1);
    static START: OnceLock<(time::Instant, Duration)> = OnceLock::new();
    let (start, told) = START.get_or_init(|| (time::Instant::now(), wall().max(LEAST)));
    Instant::ZERO + *told + start.elapsed()
}

/// Wall-clock time since 1970, in which the kernel stamps what it receives. It may jump.
#[allow(clippy::disallowed_methods)]
pub fn wall() -> Duration {
    time::SystemTime::now().duration_since(time::UNIX_EPOCH).unwrap_or_default()
}

/// Both clocks, read at one time: two readings between which the thread had to wait are repeated.
pub fn both() -> (Instant, Duration) {
    const AT_ONCE: Duration = Duration::from_micros(20);
    const TRIES: usize = 5;
    let read = || {
        let before = now();
        let wall = wall();
        (before, wall, now().since(before))
    };
    let mut best = read();
    for _ in 1..TRIES {
        if best.2 <= AT_ONCE {
            break;
        }
        let next = read();
        if next.2 < best.2 {
            best = next;
        }
    }
    (best.0, best.1)
}

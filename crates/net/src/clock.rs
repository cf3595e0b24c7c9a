//! The real clocks: the one place of this crate that reads them.

use std::sync::OnceLock;
use std::time::{self, Duration};

use units::Instant;

/// Time since this process first asked.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    static START: OnceLock<time::Instant> = OnceLock::new();
    let elapsed = START.get_or_init(time::Instant::now).elapsed();
    // Off zero, so that times before the first reading can be told.
    Instant::from_nanos(1_000_000_000) + elapsed
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

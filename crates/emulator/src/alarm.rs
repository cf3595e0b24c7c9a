//! When the emulator's thread wakes.

use core::time::Duration;
use std::thread;

use units::Instant;

use crate::clock::Clock;
use crate::sources::{Ready, Sources};

/// Packets leave up to this long after they are due, together with what became due meanwhile:
/// fewer wake-ups, for packets that are late by half of it on average.
pub(crate) const WINDOW: Duration = Duration::from_micros(45);

/// The thread looks around at least this often, so that it knows when it was kept from running.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(10);

/// Wakes the thread in time for the [`WINDOW`], whatever this machine takes to wake up.
#[derive(Default)]
pub(crate) struct Alarm {
    /// How late timers ring, a moving average.
    late: Duration,
}

impl Alarm {
    /// When to begin with packets the first of which is due at `due`.
    pub(crate) fn time_for(&self, due: Instant) -> Instant {
        due + (WINDOW - self.late)
    }

    /// Waits for `next`, a source or the [`HEARTBEAT`], and fills in which sources are ready.
    ///
    /// With `next` within the [`WINDOW`] it sleeps through until then, since every wake-up costs
    /// as much as a packet. Then it returns when the sources were last looked at. What is ready
    /// came later; to take that moment for its arrival makes packets early by as much as the
    /// window makes them late.
    pub(crate) fn wait(
        &mut self,
        next: Option<Instant>,
        sources: &Sources,
        ready: &mut Ready,
        clock: &Clock,
    ) -> Option<Instant> {
        let now = clock.now();
        let at = next.map_or(now + HEARTBEAT, |next| next.min(now + HEARTBEAT));
        let left = at.since(now);
        if left > WINDOW {
            sources.wait(left, ready);
            if ready.is_empty() {
                self.rang(clock.now().since(at));
            }
            return None;
        }
        let any = sources.look(ready);
        let looked = clock.now();
        if any || at <= looked {
            return None;
        }
        thread::sleep(at.since(looked));
        self.rang(clock.now().since(at));
        sources.look(ready);
        Some(looked)
    }

    /// Learns how late a timer rang.
    fn rang(&mut self, late: Duration) {
        self.late = (self.late * 15 + late.min(WINDOW)) / 16;
    }
}

//! The thread that carries packets, for labs and relays alike.

use core::num::NonZeroU64;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::thread::set_current_timer_slack;
use units::Instant;

use crate::awake::Awake;
use crate::clock::{Clock, thread_cpu_time};
use crate::priority;
use crate::report::{LabReport, LaneReport};

/// Packets leave up to this long after they are due, together with what became due meanwhile:
/// fewer wake-ups, for packets that are late by half of it on average.
const WINDOW: Duration = Duration::from_micros(50);

/// Processors may halt when nothing was under way for so long.
const LULL: Duration = Duration::from_millis(100);

/// The thread looks around at least this often, so that it knows when it was kept from running.
const HEARTBEAT: Duration = Duration::from_millis(10);

/// What an engine's thread drives.
pub(crate) trait Carrier: Send + 'static {
    /// Emits what is due.
    fn emit_due(&mut self, clock: &Clock);
    /// Takes in a batch from each side; returns whether more may wait.
    fn take_in(&mut self, clock: &Clock) -> bool;
    /// When the next packet is due.
    fn next_due(&self) -> Option<Instant>;
    /// What happened forward and back.
    fn report(&self) -> [LaneReport; 2];
}

/// A running thread. Stops on drop.
pub(crate) struct Engine<C> {
    shared: Arc<Shared<C>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared<C> {
    /// Held by the thread while it works, not while it waits.
    state: Mutex<State<C>>,
    /// How many others wait for the state.
    waiting: AtomicUsize,
    wake: OwnedFd,
    clock: Clock,
}

struct State<C> {
    carrier: C,
    /// The longest the thread was kept from running, until it was last seen.
    stall: Duration,
    /// When the thread last began to work.
    seen: Instant,
    /// Somebody wrote to `wake`.
    woken: bool,
    stop: bool,
}

impl<C> State<C> {
    /// The longest the thread was kept from running, also if it is so still.
    fn stall_until(&self, now: Instant) -> Duration {
        self.stall.max(now.since(self.seen + HEARTBEAT))
    }
}

impl<C> Shared<C> {
    /// A panic in the thread leaves counters that are as true as before it.
    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state for others than the thread, which makes way for them.
    fn state_in_turn(&self) -> MutexGuard<'_, State<C>> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let state = self.state();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// Cannot fail but by a bug in this file: the descriptor is ours, the counter far from full.
    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl<C: Carrier> Engine<C> {
    /// Starts a thread that drives `carrier` whenever a source registered in `sources` is ready
    /// or a packet is due.
    pub(crate) fn start(carrier: C, sources: Arc<OwnedFd>) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        watch(&sources, &wake)?;
        let clock = Clock::start();
        let (stall, seen) = (Duration::ZERO, clock.now());
        let state = Mutex::new(State { carrier, stall, seen, woken: false, stop: false });
        let shared = Arc::new(Shared { state, waiting: AtomicUsize::new(0), wake, clock });
        let thread = thread::Builder::new().name("emulator".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || run(&shared, &sources)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What happened so far.
    pub(crate) fn report(&self) -> LabReport {
        let state = self.shared.state_in_turn();
        let [forward, back] = state.carrier.report();
        let now = self.shared.clock.now();
        let cpu = self.thread.as_ref().map(thread_cpu_time).unwrap_or_default();
        // Before the engine is dropped it ends in no other way than by a panic.
        let died = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let (elapsed, stall) = (now.since(Instant::ZERO), state.stall_until(now));
        LabReport { elapsed, cpu, stall, died, forward, back }
    }

    /// Does something to what the thread drives, and lets the thread see what has changed.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut C, Instant) -> R) -> R {
        let mut state = self.shared.state_in_turn();
        let result = act(&mut state.carrier, self.shared.clock.now());
        state.woken = true;
        self.shared.wake();
        result
    }

    /// The clock of all that happens here.
    pub(crate) fn clock(&self) -> Clock {
        self.shared.clock
    }
}

impl<C> Drop for Engine<C> {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.wake();
        // Fails when the thread has panicked, which has been said then.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A set of sources to wait for.
pub(crate) fn sources() -> io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?))
}

/// Adds a source.
pub(crate) fn watch(sources: &OwnedFd, source: impl AsFd) -> io::Result<()> {
    Ok(epoll::add(sources, source, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
}

fn run<C: Carrier>(shared: &Shared<C>, sources: &OwnedFd) {
    // Without this, which cannot fail on a kernel of this decade, timers are 50 us late.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    priority::raise();
    let mut awake = Awake::new();
    let mut alarm = Alarm::default();
    let mut busy = shared.clock.now();
    loop {
        let mut state = shared.state();
        if state.stop {
            return;
        }
        let now = shared.clock.now();
        state.stall = state.stall_until(now);
        state.seen = now;
        if core::mem::take(&mut state.woken) {
            let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
        }
        let ripe = |state: &State<C>| state.carrier.next_due().map(|due| alarm.time_for(due));
        // First what is due: the receiving host may answer within the write, and the answer is
        // then taken in without another wake-up.
        if ripe(&state).is_some_and(|ripe| ripe <= now) {
            state.carrier.emit_due(&shared.clock);
        }
        let more = state.carrier.take_in(&shared.clock);
        let next = ripe(&state);
        drop(state);
        if more {
            // The mutex is not fair: whoever waits for it gets the time to wake up and take it.
            // A real pause, since this thread may run before all others; but a short one, and
            // then packets again, since those may have to wait for a processor.
            if shared.waiting.load(Ordering::Relaxed) > 0 {
                thread::sleep(WINDOW);
            }
            continue;
        }
        if let Some(at) = next {
            busy = now;
            awake.hold(true);
            alarm.wait(sources, at.min(now + HEARTBEAT), &shared.clock);
        } else {
            if now.since(busy) > LULL {
                awake.hold(false);
            }
            wait(sources, HEARTBEAT);
        }
    }
}

/// Wakes the thread in time for the [`WINDOW`], whatever this machine takes to wake up.
#[derive(Default)]
struct Alarm {
    /// How late timers ring, a moving average.
    late: Duration,
}

impl Alarm {
    /// When to begin with packets the first of which is due at `due`.
    fn time_for(&self, due: Instant) -> Instant {
        due + (WINDOW - self.late)
    }

    /// Waits for `at` or a source.
    fn wait(&mut self, sources: &OwnedFd, at: Instant, clock: &Clock) {
        let left = at.since(clock.now());
        if !left.is_zero() && !wait(sources, left) {
            let late = clock.now().since(at).min(WINDOW);
            self.late = (self.late * 15 + late) / 16;
        }
    }
}

/// Waits until a source is ready or `timeout` is over; returns whether one is. Which does not
/// matter, and an interruption only means a look too many. The set is polled as one descriptor,
/// because `ppoll` waits to the nanosecond on every kernel, `epoll_wait` to the millisecond.
fn wait(sources: &OwnedFd, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).ok();
    poll(&mut [PollFd::new(sources, PollFlags::IN)], timeout.as_ref()) != Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, Limits};

    /// Carries nothing, until it is told to break.
    struct Fragile {
        broken: bool,
    }

    impl Carrier for Fragile {
        fn emit_due(&mut self, _: &Clock) {}

        fn take_in(&mut self, _: &Clock) -> bool {
            assert!(!self.broken, "as the test asked for");
            true
        }

        fn next_due(&self) -> Option<Instant> {
            None
        }

        fn report(&self) -> [LaneReport; 2] {
            Default::default()
        }
    }

    #[test]
    fn a_thread_that_stands_still_is_seen_from_outside() {
        let ms = Duration::from_millis;
        let at = |time| Instant::ZERO + ms(time);
        let mut state =
            State { carrier: (), stall: ms(7), seen: at(100), woken: false, stop: false };
        assert_eq!(state.stall_until(at(110)), ms(7), "it was not to run before");
        assert_eq!(state.stall_until(at(610)), ms(500));
        state.seen = at(610);
        assert_eq!(state.stall_until(at(610)), ms(7), "reports change nothing");
    }

    /// It is busy all the time, so that it would keep the state to itself.
    #[test]
    fn a_thread_that_panicked_is_a_fault() {
        let engine = Engine::start(Fragile { broken: false }, sources().unwrap()).unwrap();
        assert!(!engine.report().died);
        engine.with(|carrier, _| carrier.broken = true);
        while engine.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            thread::yield_now();
        }
        let limits = Limits { late_p99: WINDOW, stall: Duration::MAX, outside: 0 };
        assert_eq!(engine.report().verdict(&limits).faults, [Fault::Died]);
    }
}

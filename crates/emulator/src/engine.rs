//! The thread that carries packets, for labs and relays alike.

use core::num::NonZeroU64;
use core::time::Duration;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::set_current_timer_slack;
use units::Instant;

use crate::alarm::{Alarm, HEARTBEAT, WINDOW};
use crate::awake::Awake;
use crate::backlog::Backlog;
use crate::clock::{Clock, thread_cpu_time};
use crate::priority;
use crate::report::{LabReport, LaneReport};
use crate::sources::{Ready, Sources};

/// Processors may halt when nothing was under way for so long.
const LULL: Duration = Duration::from_millis(100);

/// The number of the engine's own source.
const WAKE: u64 = u64::MAX;

/// What an engine's thread drives.
pub(crate) trait Carrier: Send + 'static {
    /// Emits what is due.
    fn emit_due(&mut self, clock: &Clock);
    /// Takes in a batch from the source of this number, and says whether more may wait there. It
    /// `arrived` then at the earliest when nobody looked meanwhile, else now; and has `waited` at
    /// most for so long, because others were read first.
    fn take_in(
        &mut self,
        clock: &Clock,
        source: u64,
        arrived: Option<Instant>,
        waited: Duration,
    ) -> bool;
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
    /// Starts a thread that drives `carrier` whenever a source in `sources` is ready
    /// or a packet is due.
    pub(crate) fn start(carrier: C, sources: Arc<Sources>) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        sources.add(&wake, WAKE)?;
        let clock = Clock::start();
        let (stall, seen) = (Duration::ZERO, clock.now());
        let state = Mutex::new(State { carrier, stall, seen, stop: false });
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

fn run<C: Carrier>(shared: &Shared<C>, sources: &Sources) {
    // Without this, which cannot fail on a kernel of this decade, timers are 50 us late.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    priority::raise();
    let (mut awake, mut alarm) = (Awake::new(), Alarm::default());
    let (mut ready, mut arrived, mut backlog) = (Ready::new(), None, Backlog::default());
    let mut busy = shared.clock.now();
    loop {
        let mut state = shared.state();
        if state.stop {
            return;
        }
        let now = shared.clock.now();
        state.stall = state.stall_until(now);
        state.seen = now;
        backlog.look(&ready);
        // Before what is due leaves: the path knows no arrival in its past.
        for source in ready.numbers() {
            if source == WAKE {
                let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
            } else {
                let since = backlog.since(source).unwrap_or(now);
                let waited = shared.clock.now().since(since);
                let more = state.carrier.take_in(&shared.clock, source, arrived, waited);
                backlog.note(source, more.then_some(since));
            }
        }
        let ripe = |state: &State<C>| state.carrier.next_due().map(|due| alarm.time_for(due));
        if ripe(&state).is_some_and(|ripe| ripe <= shared.clock.now()) {
            state.carrier.emit_due(&shared.clock);
        }
        let next = ripe(&state);
        drop(state);
        // The mutex is not fair: whoever waits for it gets the time to wake up and take it. A real
        // pause, since this thread may run before all others; but a short one, and then packets
        // again, since those may have to wait for a processor.
        if shared.waiting.load(Ordering::Relaxed) > 0 {
            thread::sleep(WINDOW);
        }
        if next.is_some() {
            busy = now;
        }
        awake.hold(now.since(busy) <= LULL);
        // Who may have more is looked at before the wait, in which what is empty may fill again.
        arrived = None;
        if backlog.is_empty() || !sources.look(&mut ready) {
            backlog.clear();
            arrived = alarm.wait(next, sources, &mut ready, &shared.clock);
        }
    }
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
        fn emit_due(&mut self, _: &Clock) {
            assert!(!self.broken, "as the test asked for");
        }

        fn take_in(&mut self, _: &Clock, _: u64, _: Option<Instant>, _: Duration) -> bool {
            false
        }

        fn next_due(&self) -> Option<Instant> {
            Some(Instant::ZERO)
        }

        fn report(&self) -> [LaneReport; 2] {
            Default::default()
        }
    }

    /// Reads a source that never is empty: a batch from it, and another, and then what there is, and again.
    struct Flooded {
        waited: Vec<Duration>,
    }

    impl Carrier for Flooded {
        fn emit_due(&mut self, _: &Clock) {}

        fn take_in(&mut self, _: &Clock, _: u64, _: Option<Instant>, waited: Duration) -> bool {
            self.waited.push(waited);
            thread::sleep(Duration::from_millis(20));
            !self.waited.len().is_multiple_of(3)
        }

        fn next_due(&self) -> Option<Instant> {
            None
        }

        fn report(&self) -> [LaneReport; 2] {
            Default::default()
        }
    }

    #[test]
    fn what_is_never_seen_empty_has_waited() {
        let (sources, source) =
            (Sources::new().unwrap(), eventfd(1, EventfdFlags::CLOEXEC).unwrap());
        sources.add(&source, 0).unwrap();
        let engine = Engine::start(Flooded { waited: vec![] }, Arc::new(sources)).unwrap();
        let waited = || engine.with(|carrier, _| carrier.waited.clone());
        while waited().len() < 6 {
            thread::yield_now();
        }
        for batches in waited().chunks_exact(3) {
            let ms = Duration::from_millis(20);
            assert!(batches[1] >= batches[0] + ms && batches[2] >= batches[1] + ms, "{batches:?}");
        }
        // It came anew there.
        let waited = waited();
        assert!(waited[3] < waited[2], "{waited:?}");
    }

    #[test]
    fn a_thread_that_stands_still_is_seen_from_outside() {
        let ms = Duration::from_millis;
        let at = |time| Instant::ZERO + ms(time);
        let mut state = State { carrier: (), stall: ms(7), seen: at(100), stop: false };
        assert_eq!(state.stall_until(at(110)), ms(7), "it was not to run before");
        assert_eq!(state.stall_until(at(610)), ms(500));
        state.seen = at(610);
        assert_eq!(state.stall_until(at(610)), ms(7), "reports change nothing");
    }

    /// It is busy all the time, so that it would keep the state to itself.
    #[test]
    fn a_thread_that_panicked_is_a_fault() {
        let engine =
            Engine::start(Fragile { broken: false }, Arc::new(Sources::new().unwrap())).unwrap();
        assert!(!engine.report().died);
        engine.with(|carrier, _| carrier.broken = true);
        while engine.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            thread::yield_now();
        }
        let limits = Limits { late_p99: WINDOW, stall: Duration::MAX, outside: 0 };
        assert_eq!(engine.report().verdict(&limits).faults, [Fault::Died]);
    }
}

//! The thread that carries packets, for labs and relays alike.

use core::num::NonZeroU64;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::thread::set_current_timer_slack;
use units::Instant;

use crate::clock::{Clock, thread_cpu_time};
use crate::priority;
use crate::report::{LabReport, LaneReport};

/// The thread wakes this long after the first packet is due, and emits with it what became due
/// meanwhile: fewer wake-ups, for packets that are late by half of it on average.
const COALESCE: Duration = Duration::from_micros(30);

/// What an engine's thread drives.
pub(crate) trait Carrier: Send + 'static {
    /// Emits what is due and takes in a batch from each side; returns whether more may wait.
    fn carry(&mut self, clock: &Clock) -> bool;
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
    wake: OwnedFd,
    clock: Clock,
}

struct State<C> {
    carrier: C,
    cpu: Duration,
    stop: bool,
}

impl<C> Shared<C> {
    /// A panic in the thread leaves counters that are as true as before it.
    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Carrier> Engine<C> {
    /// Starts a thread that drives `carrier` whenever a source registered in `sources` is ready
    /// or a packet is due.
    pub(crate) fn start(carrier: C, sources: Arc<OwnedFd>) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        watch(&sources, &wake)?;
        let state = Mutex::new(State { carrier, cpu: Duration::ZERO, stop: false });
        let shared = Arc::new(Shared { state, wake, clock: Clock::start() });
        let thread = thread::Builder::new().name("emulator".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || run(&shared, &sources)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What happened so far.
    pub(crate) fn report(&self) -> LabReport {
        let state = self.shared.state();
        let [forward, back] = state.carrier.report();
        let elapsed = self.shared.clock.now().since(Instant::ZERO);
        LabReport { elapsed, cpu: state.cpu, forward, back }
    }
}

impl<C> Drop for Engine<C> {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        // Neither can fail but by a bug in this file: the descriptor is ours, the counter at 0.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
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
    loop {
        let mut state = shared.state();
        if state.stop {
            return;
        }
        let more = state.carrier.carry(&shared.clock);
        state.cpu = thread_cpu_time();
        let next_due = state.carrier.next_due();
        drop(state);
        if !more {
            wait(sources, next_due.map(|due| (due + COALESCE).since(shared.clock.now())));
        }
    }
}

/// Waits until a source is ready or `timeout` is over. Which source does not matter, and an
/// interruption only means a look too many. The set is polled as one descriptor, because `ppoll`
/// waits to the nanosecond on every kernel, `epoll_wait` to the millisecond.
fn wait(sources: &OwnedFd, timeout: Option<Duration>) {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let _ = poll(&mut [PollFd::new(sources, PollFlags::IN)], timeout.as_ref());
}

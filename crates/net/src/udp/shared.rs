//! What the driver's thread and the application share: a connection behind a lock, with those who
//! wait for it.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use transport::{CloseReason, Connection, Delivery, Event};
use units::Instant;

use crate::clock;

/// Locks; a thread that panicked while it held the lock has left the connection's state as any
/// hostile packet could, and the checks made on every packet still hold.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the driver's thread.
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    pub(super) fn new() -> std::io::Result<Self> {
        let flags = rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC;
        Ok(Self(rustix::event::eventfd(0, flags)?))
    }

    pub(super) fn ring(&self) {
        // Fails only when the counter is full, and then the driver is awake anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

/// The code of a reset or stop of a stream that nobody accepts.
const REFUSED: u64 = 2;

/// Who waits on a stream.
#[derive(Default)]
struct Waiting {
    read: Option<Waker>,
    write: Option<Waker>,
}

/// A connection and those who wait for it.
pub(super) struct Inner {
    pub(super) connection: Connection,
    pub(super) established: bool,
    pub(super) closed: Option<CloseReason>,
    /// Streams that the other end opened and nobody has accepted yet.
    pub(super) incoming: VecDeque<u64>,
    /// Nobody will accept streams any more.
    deaf: bool,
    /// When the driver comes again by itself.
    driver_at: Instant,
    streams: HashMap<u64, Waiting>,
    /// Waiting for the connection to be established, or for a stream to be opened.
    waiting: Vec<Waker>,
    /// Waiting until all of a stream is delivered.
    flushing: Vec<(u64, Waker)>,
}

/// Which side of a stream a task waits for.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    Read,
    Write,
}

impl Inner {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            established: false,
            closed: None,
            incoming: VecDeque::new(),
            deaf: false,
            driver_at: Instant::ZERO,
            streams: HashMap::new(),
            waiting: Vec::new(),
            flushing: Vec::new(),
        }
    }

    pub(super) fn wait_for_stream(&mut self, id: u64, wait: Wait, waker: &Waker) {
        let waiting = self.streams.entry(id).or_default();
        match wait {
            Wait::Read => waiting.read = Some(waker.clone()),
            Wait::Write => waiting.write = Some(waker.clone()),
        }
    }

    pub(super) fn wait_for_delivery(&mut self, id: u64, waker: &Waker) {
        self.flushing.retain(|(waiting, _)| *waiting != id);
        self.flushing.push((id, waker.clone()));
    }

    pub(super) fn wait_for_change(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|known| known.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }

    /// Nobody will accept what the other end opens: it must not wait for that.
    pub(super) fn stop_accepting(&mut self) {
        self.deaf = true;
        while let Some(id) = self.incoming.pop_front() {
            self.refuse(id);
        }
    }

    fn refuse(&mut self, id: u64) {
        self.connection.reset(id, REFUSED);
        self.connection.stop(id, REFUSED);
        self.connection.release(id);
    }

    /// Ends the connection as if the network had.
    pub(super) fn fail(&mut self, why: &'static str) {
        self.closed.get_or_insert(CloseReason::Violation(why));
        self.wake_all();
    }

    /// Nobody holds the stream any more.
    pub(super) fn forget_stream(&mut self, id: u64) {
        self.streams.remove(&id);
        self.flushing.retain(|(waiting, _)| *waiting != id);
    }

    /// Passes the connection's events on to those who wait; whether it was established now.
    pub(super) fn wake(&mut self) -> bool {
        let mut established = false;
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Established => {
                    self.established = true;
                    established = true;
                    self.waiting.drain(..).for_each(Waker::wake);
                }
                Event::Opened(id) if self.deaf => self.refuse(id),
                Event::Opened(id) => {
                    self.incoming.push_back(id);
                    self.waiting.drain(..).for_each(Waker::wake);
                }
                Event::Readable(id) => self.wake_stream(id, Wait::Read),
                Event::Writable(id) => self.wake_stream(id, Wait::Write),
                Event::Closed(reason) => {
                    self.closed.get_or_insert(reason);
                    self.wake_all();
                }
            }
        }
        let connection = &self.connection;
        self.flushing.retain(|(id, waker)| {
            let pending = connection.delivery(*id) == Delivery::Pending;
            if !pending {
                waker.wake_by_ref();
            }
            pending
        });
        established
    }

    fn wake_stream(&mut self, id: u64, wait: Wait) {
        if let Some(waiting) = self.streams.get_mut(&id) {
            let waker = match wait {
                Wait::Read => waiting.read.take(),
                Wait::Write => waiting.write.take(),
            };
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn wake_all(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
        self.flushing.drain(..).for_each(|(_, waker)| waker.wake());
        for (_, waiting) in self.streams.drain() {
            waiting.read.into_iter().chain(waiting.write).for_each(Waker::wake);
        }
    }

    /// The driver goes to sleep; gives when it wants to be back for this connection.
    pub(super) fn plan(&mut self) -> Instant {
        self.driver_at = self.connection.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        self.driver_at
    }

    /// After the application did something: rings if the driver would come too late for it.
    pub(super) fn ring_if_due(&mut self, alarm: &Alarm) {
        let due = self.connection.poll_timeout().unwrap_or(Instant::ZERO);
        if due < self.driver_at {
            // Once is enough until the driver plans anew.
            self.driver_at = due.min(clock::now());
            alarm.ring();
        }
    }
}

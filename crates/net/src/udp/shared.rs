//! What the driver's thread and the application share: a connection behind a lock, with those who
//! wait for it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use transport::{CloseReason, Connection, Event};
use units::Instant;

use crate::clock;

/// Locks; a thread that panicked while it held the lock has left the state as any hostile packet
/// could, and the checks made on every packet still hold.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection that driver and application hold.
#[derive(Clone)]
pub(super) struct Shared(Arc<parking_lot::Mutex<Inner>>);

impl Shared {
    pub(super) fn new(number: u32, owner: usize, connection: Connection) -> Self {
        Self(Arc::new(parking_lot::Mutex::new(Inner::new(number, owner, connection))))
    }

    /// For the driver.
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked { inner: Some(self.0.lock()), gives_way: false }
    }

    /// For the application: a driver that waits meanwhile is next. It has a pace to keep, and whoever writes
    /// much would otherwise have the lock again before the driver is awake.
    pub(super) fn lock_briefly(&self) -> Locked<'_> {
        Locked { inner: Some(self.0.lock()), gives_way: true }
    }
}

/// A locked connection; tasks that were found to have something to do are woken once it is not
/// locked any more, so that they need not wait for it.
pub(super) struct Locked<'a> {
    inner: Option<parking_lot::MutexGuard<'a, Inner>>,
    /// To whoever waits for the lock.
    gives_way: bool,
}

impl Deref for Locked<'_> {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        self.inner.as_deref().expect("only dropping takes it")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        self.inner.as_deref_mut().expect("only dropping takes it")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else { return };
        let awake = core::mem::take(&mut inner.awake);
        if self.gives_way {
            parking_lot::MutexGuard::unlock_fair(inner);
        } else {
            drop(inner);
        }
        awake.into_iter().for_each(Waker::wake);
    }
}

/// Tells a driver's thread which connections need it, and wakes it.
pub(super) struct Alarm {
    fd: OwnedFd,
    numbers: Mutex<Vec<u32>>,
    asleep: AtomicBool,
}

impl Alarm {
    pub(super) fn new() -> std::io::Result<Self> {
        let flags = rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC;
        let fd = rustix::event::eventfd(0, flags)?;
        Ok(Self { fd, numbers: Mutex::default(), asleep: AtomicBool::new(false) })
    }

    /// The driver must look at this connection.
    pub(super) fn ring(&self, number: u32) {
        lock(&self.numbers).push(number);
        self.wake();
    }

    /// The driver must look around.
    pub(super) fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            // Fails only when the counter is full, and then the driver is awake anyway.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// The connections that rang since the last time.
    pub(super) fn take(&self) -> Vec<u32> {
        core::mem::take(&mut *lock(&self.numbers))
    }

    /// The driver goes to sleep unless somebody rang.
    pub(super) fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let nobody = lock(&self.numbers).is_empty();
        if !nobody {
            self.silence(false);
        }
        nobody
    }

    /// The driver is awake; `rang` when it found the descriptor readable. One that becomes so
    /// later wakes it once for nothing.
    pub(super) fn silence(&self, rang: bool) {
        self.asleep.store(false, Ordering::SeqCst);
        if rang {
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
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

/// The system's number of an error.
#[derive(Clone, Copy)]
pub(super) struct Barred(i32);

impl Barred {
    pub(super) fn new(error: &io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or_default())
    }

    /// The error, in words that say what to do where the system's do not.
    pub(super) fn error(self) -> io::Error {
        match self.0 {
            libc::EPERM | libc::EACCES => io::Error::new(
                io::ErrorKind::PermissionDenied,
                "this host's own firewall or routes forbid it",
            ),
            code => io::Error::from_raw_os_error(code),
        }
    }
}

/// A connection and those who wait for it.
pub(super) struct Inner {
    pub(super) connection: Connection,
    pub(super) number: u32,
    /// Which driver serves it.
    pub(super) owner: usize,
    pub(super) established: bool,
    pub(super) closed: Option<CloseReason>,
    /// Why this host has sent nothing to the other end.
    pub(super) barred: Option<Barred>,
    /// Streams that the other end opened and nobody has accepted yet.
    pub(super) incoming: VecDeque<u64>,
    /// Nobody will accept streams any more.
    deaf: bool,
    /// Tasks that wait to open a stream.
    pub(super) opening: usize,
    /// When the driver comes again by itself.
    driver_at: Instant,
    streams: HashMap<u64, Waiting>,
    /// Waiting for the connection to be established, for a stream to be opened, or to open one.
    waiting: Vec<Waker>,
    /// To be woken when the connection is unlocked.
    awake: Vec<Waker>,
}

/// What a task waits for on a stream.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    Read,
    /// To write, or until all that was written has arrived.
    Write,
}

impl Inner {
    fn new(number: u32, owner: usize, connection: Connection) -> Self {
        Self {
            connection,
            number,
            owner,
            established: false,
            closed: None,
            barred: None,
            incoming: VecDeque::new(),
            deaf: false,
            opening: 0,
            driver_at: Instant::ZERO,
            streams: HashMap::new(),
            waiting: Vec::new(),
            awake: Vec::new(),
        }
    }

    pub(super) fn wait_for_stream(&mut self, id: u64, wait: Wait, waker: &Waker) {
        let waiting = self.streams.entry(id).or_default();
        match wait {
            Wait::Read => waiting.read = Some(waker.clone()),
            Wait::Write => waiting.write = Some(waker.clone()),
        }
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

    /// Ends the connection: its socket has failed.
    pub(super) fn fail(&mut self) {
        self.closed.get_or_insert(CloseReason::Failed);
        self.wake_all();
    }

    /// Nobody holds the stream any more.
    pub(super) fn forget_stream(&mut self, id: u64) {
        self.streams.remove(&id);
    }

    /// Passes the connection's events on to those who wait; whether it was established now.
    pub(super) fn wake(&mut self) -> bool {
        let mut established = false;
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Established => {
                    self.established = true;
                    established = true;
                    self.awake.append(&mut self.waiting);
                }
                Event::Opened(id) if self.deaf => self.refuse(id),
                Event::Opened(id) => {
                    self.incoming.push_back(id);
                    self.awake.append(&mut self.waiting);
                }
                Event::Openable => self.awake.append(&mut self.waiting),
                Event::Readable(id) => self.wake_stream(id, Wait::Read),
                Event::Writable(id) => self.wake_stream(id, Wait::Write),
                Event::Closed(reason) => {
                    self.closed.get_or_insert(reason);
                    self.wake_all();
                }
            }
        }
        established
    }

    fn wake_stream(&mut self, id: u64, wait: Wait) {
        if let Some(waiting) = self.streams.get_mut(&id) {
            self.awake.extend(match wait {
                Wait::Read => waiting.read.take(),
                Wait::Write => waiting.write.take(),
            });
        }
    }

    fn wake_all(&mut self) {
        self.awake.append(&mut self.waiting);
        for (_, waiting) in self.streams.drain() {
            self.awake.extend(waiting.read.into_iter().chain(waiting.write));
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
            alarm.ring(self.number);
        }
    }
}

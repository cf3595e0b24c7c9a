//! What the emulator's thread reads from: devices or sockets, each under a number.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

/// Sources that are seen to be ready at once; others are in the next look.
const MAX_READY: usize = 64;

/// A set of sources to wait for.
pub(crate) struct Sources(OwnedFd);

/// The sources of one look.
pub(crate) struct Ready(Vec<epoll::Event>);

impl Sources {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds a source under a number.
    pub(crate) fn add(&self, source: impl AsFd, number: u64) -> io::Result<()> {
        let number = epoll::EventData::new_u64(number);
        Ok(epoll::add(&self.0, source, number, epoll::EventFlags::IN)?)
    }

    /// Removes a source, which may live on.
    pub(crate) fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.0, source)?)
    }

    /// Fills in which sources are ready now, and says whether any is.
    pub(crate) fn look(&self, ready: &mut Ready) -> bool {
        self.wait(Duration::ZERO, ready);
        !ready.is_empty()
    }

    /// Waits until a source is ready or `timeout` is over, and fills in which are. After an
    /// interruption none is: only a look too many.
    pub(crate) fn wait(&self, timeout: Duration, ready: &mut Ready) {
        let timeout = Timespec::try_from(timeout).ok();
        ready.0.clear();
        let _ = epoll::wait(&self.0, spare_capacity(&mut ready.0), timeout.as_ref());
    }
}

impl Ready {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(MAX_READY))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether more may be ready than it shows.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    /// The numbers of the sources.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|event| event.data.u64())
    }
}

//! What a stream and the tasks of its connections hold together.
//!
//! Each direction has one lock, held for a copy of at most a record and never over an await.
//! Whoever finds nothing to do leaves a waker: the stream's user one in each direction, and each
//! connection one in each direction.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use socket2::SockRef;
use stripe::{Gather, GatherError, Header, MAX_QUEUED, Record, Scatter};
use tokio::net::TcpStream;

use crate::error::NetError;

pub(super) struct Shared {
    pub sockets: Vec<TcpStream>,
    peer: SocketAddr,
    outbound: Mutex<Outbound>,
    inbound: Mutex<Inbound>,
    /// Why the stream failed; the first reason counts.
    failure: OnceLock<String>,
}

struct Outbound {
    scatter: Scatter,
    /// The stream's user, waiting for room or for everything to be sent.
    user: Option<Waker>,
    /// The connections that wait for a record.
    idle: Vec<Option<Waker>>,
    /// Records taken by connections and not yet handed to the kernel.
    unwritten: usize,
    /// Connections that have not sent their fin.
    unfinished: usize,
    bytes: u64,
}

struct Inbound {
    gather: Gather,
    /// The stream's user, waiting for data.
    user: Option<Waker>,
    /// The connections that are held back.
    held: Vec<Option<Waker>>,
    bytes: u64,
}

/// Locks, whether or not somebody panicked: every critical section leaves the state whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

fn wait<T>(slot: &mut Option<Waker>, cx: &Context<'_>) -> Poll<T> {
    *slot = Some(cx.waker().clone());
    Poll::Pending
}

impl Shared {
    pub fn new(sockets: Vec<TcpStream>, peer: SocketAddr, buffer: units::Bytes) -> Self {
        let count = sockets.len();
        let outbound = Outbound {
            scatter: Scatter::new(),
            user: None,
            idle: vec![None; count],
            unwritten: 0,
            unfinished: count,
            bytes: 0,
        };
        let inbound = Inbound {
            gather: Gather::new(count, buffer),
            user: None,
            held: vec![None; count],
            bytes: 0,
        };
        Self {
            sockets,
            peer,
            outbound: Mutex::new(outbound),
            inbound: Mutex::new(inbound),
            failure: OnceLock::new(),
        }
    }

    // The user's side.

    pub fn poll_write(&self, cx: &Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let mut out = lock(&self.outbound);
        self.check()?;
        if out.scatter.is_finished() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = out.scatter.write(data);
        if written == 0 && !data.is_empty() {
            return wait(&mut out.user, cx);
        }
        let queued = out.scatter.queued();
        let idle = out.idle.iter_mut().filter(|waker| waker.is_some());
        idle.take(queued).for_each(wake);
        Poll::Ready(Ok(written))
    }

    /// Ready when the kernel has all that was written.
    pub fn poll_flush(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut out = lock(&self.outbound);
        self.check()?;
        if out.is_flushed() {
            return Poll::Ready(Ok(()));
        }
        wait(&mut out.user, cx)
    }

    /// Ready when the kernel has all that was written, and the end of it.
    pub fn poll_shutdown(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut out = lock(&self.outbound);
        if out.unfinished == 0 {
            return Poll::Ready(Ok(()));
        }
        self.check()?;
        out.scatter.finish();
        out.idle.iter_mut().for_each(wake);
        wait(&mut out.user, cx)
    }

    /// Gives what came in order even after a failure, and the failure only behind it.
    pub fn poll_read(&self, cx: &Context<'_>, to: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut inbound = lock(&self.inbound);
        let inbound = &mut *inbound;
        let read = inbound.gather.read(to);
        if read > 0 {
            for (connection, held) in inbound.held.iter_mut().enumerate() {
                if held.is_some() && inbound.gather.can_read(connection) {
                    wake(held);
                }
            }
            return Poll::Ready(Ok(read));
        }
        if to.is_empty() || inbound.gather.is_ended() {
            return Poll::Ready(Ok(0));
        }
        self.check()?;
        wait(&mut inbound.user, cx)
    }

    /// Whether both directions came to their end.
    pub fn is_done(&self) -> bool {
        lock(&self.outbound).unfinished == 0 && lock(&self.inbound).gather.is_ended()
    }

    /// Bytes handed to the kernel, and bytes received, without headers.
    pub fn bytes(&self) -> (units::Bytes, units::Bytes) {
        let (sent, received) = (lock(&self.outbound).bytes, lock(&self.inbound).bytes);
        (units::Bytes(sent), units::Bytes(received))
    }

    // The connections' side.

    /// The next record for `connection` to send; `None` when the stream failed.
    pub fn poll_take(&self, cx: &Context<'_>, connection: usize) -> Poll<Option<Record>> {
        let mut out = lock(&self.outbound);
        if self.failure.get().is_some() {
            return Poll::Ready(None);
        }
        let Some(record) = out.scatter.take() else {
            return wait(&mut out.idle[connection], cx);
        };
        if let Header::Data { .. } = record.header {
            out.unwritten += 1;
        }
        // Half a queue at a time, or user and connections would wake each other at every record.
        if out.scatter.queued() <= MAX_QUEUED / 2 {
            wake(&mut out.user);
        }
        Poll::Ready(Some(record))
    }

    /// The kernel has taken a record.
    pub fn sent(&self, header: Header) {
        let mut out = lock(&self.outbound);
        match header {
            Header::Data { length, .. } => {
                out.unwritten -= 1;
                out.bytes += length as u64;
            }
            Header::Fin { .. } => out.unfinished -= 1,
        }
        if out.is_flushed() {
            wake(&mut out.user);
        }
    }

    /// Ready when the next record of `connection` may be read, or the stream failed.
    pub fn poll_can_read(&self, cx: &Context<'_>, connection: usize) -> Poll<()> {
        let mut inbound = lock(&self.inbound);
        if inbound.gather.can_read(connection) || self.failure.get().is_some() {
            return Poll::Ready(());
        }
        wait(&mut inbound.held[connection], cx)
    }

    /// Takes a record that came over `connection`.
    pub fn accept(
        &self,
        connection: usize,
        header: Header,
        payload: Bytes,
    ) -> Result<(), GatherError> {
        let mut inbound = lock(&self.inbound);
        inbound.gather.accept(connection, header, payload)?;
        inbound.bytes += header.payload() as u64;
        if inbound.gather.has_data() || inbound.gather.is_ended() {
            wake(&mut inbound.user);
        }
        Ok(())
    }

    // Failure.

    /// Ends the stream: its user is told why, and its connections are closed.
    pub fn fail(&self, reason: String) {
        if self.failure.set(reason).is_err() {
            return;
        }
        for socket in &self.sockets {
            // One that is already closed cannot be, and need not.
            let _ = SockRef::from(socket).shutdown(Shutdown::Both);
        }
        let mut out = lock(&self.outbound);
        wake(&mut out.user);
        out.idle.iter_mut().for_each(wake);
        drop(out);
        let mut inbound = lock(&self.inbound);
        wake(&mut inbound.user);
        inbound.held.iter_mut().for_each(wake);
    }

    fn check(&self) -> io::Result<()> {
        let Some(reason) = self.failure.get() else {
            return Ok(());
        };
        let (address, reason) = (self.peer, reason.clone());
        Err(NetError::Lost { address, reason }.into())
    }
}

impl Outbound {
    fn is_flushed(&self) -> bool {
        self.scatter.queued() == 0 && self.unwritten == 0
    }
}

//! A transport stream as an async byte stream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use transport::{Delivery, Priority, ReadOutcome, WriteOutcome};

use super::connection::Handle;
use super::shared::{Inner, Wait};
use crate::clock;

/// Bytes that are copied at once: the driver waits meanwhile, for many times as long as copying takes when the
/// processor is busy.
const AT_ONCE: usize = 64 << 10;
/// The code of a reset or stop because the stream was dropped.
const DROPPED: u64 = 1;

/// Bytes in both directions, in order. Shutting it down waits until all that was written has
/// arrived; dropping it before gives it up in both directions.
pub struct UdpStream {
    handle: Arc<Handle>,
    id: u64,
    finished: bool,
    ended: bool,
}

impl UdpStream {
    pub(super) fn new(handle: Arc<Handle>, id: u64) -> Self {
        Self { handle, id, finished: false, ended: false }
    }

    /// The figures of the connection that carries the stream.
    pub fn stats(&self) -> transport::Stats {
        self.handle.lock().connection.stats()
    }

    /// Whether the connection that carries the stream should have no further one: see
    /// [`transport::Connection::is_crowded`].
    pub fn is_crowded(&self) -> bool {
        self.handle.lock().connection.is_crowded()
    }

    /// Sets when the bytes written here are sent, compared with those of the connection's other
    /// streams.
    pub fn set_priority(&self, priority: Priority) {
        self.handle.lock().connection.set_priority(self.id, priority);
    }

    /// What tells how much of it was sent, wherever the stream itself is.
    pub fn meter(&self) -> StreamMeter {
        StreamMeter { handle: Arc::downgrade(&self.handle), id: self.id }
    }

    /// Bytes that were written and are not known to have arrived.
    pub fn undelivered(&self) -> u64 {
        self.handle.lock().connection.undelivered(self.id)
    }

    /// Bytes that have arrived and were not read.
    pub fn unread(&self) -> u64 {
        self.handle.lock().connection.unread(self.id)
    }

    /// Whether the other end has finished it: all that is unread is all there will be.
    pub fn is_finished(&self) -> bool {
        self.handle.lock().connection.is_finished(self.id)
    }

    /// Whether the connection that carried it is no more.
    pub fn is_lost(&self) -> bool {
        self.handle.lock().closed.is_some()
    }

    /// Waits, in the task that writes, until nothing more is wanted here: the other end has given up
    /// reading, or the connection is no more.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let (handle, id) = (self.handle.clone(), self.id);
        poll_fn(move |cx| {
            let mut inner = handle.lock();
            if inner.closed.is_some() || inner.connection.delivery(id) == Delivery::GivenUp {
                return Poll::Ready(());
            }
            inner.wait_for_stream(id, Wait::Write, cx.waker());
            Poll::Pending
        })
    }

    /// Gives up writing; the other end reads an error with this code.
    pub fn reset(&mut self, code: u64) {
        self.finished = true;
        let mut inner = self.handle.lock();
        inner.connection.reset(self.id, code);
        inner.ring_if_due(self.handle.alarm());
    }

    /// Gives up reading; the other end's writing fails.
    pub fn stop(&mut self, code: u64) {
        self.ended = true;
        let mut inner = self.handle.lock();
        inner.connection.stop(self.id, code);
        inner.ring_if_due(self.handle.alarm());
    }

    fn lost(&self, inner: &Inner) -> io::Error {
        self.handle.error(inner).into()
    }
}

/// Counts what is sent of a stream.
pub struct StreamMeter {
    handle: Weak<Handle>,
    id: u64,
}

impl StreamMeter {
    /// Bytes that were sent, those that were sent again counted once; 0 when the stream is no more.
    pub fn sent(&self) -> u64 {
        self.handle.upgrade().map_or(0, |handle| handle.lock().connection.sent(self.id))
    }
}

fn unwanted() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the other side wants no more of the stream")
}

impl AsyncRead for UdpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let handle = self.handle.clone();
        let mut inner = handle.lock();
        let most = buffer.remaining().min(AT_ONCE);
        let take = |bytes: &[u8]| buffer.put_slice(bytes);
        match inner.connection.read_with(clock::now(), self.id, most, take) {
            ReadOutcome::Read(_) => {
                inner.ring_if_due(handle.alarm());
                Poll::Ready(Ok(()))
            }
            ReadOutcome::End => {
                self.ended = true;
                Poll::Ready(Ok(()))
            }
            ReadOutcome::Reset(code) => {
                self.ended = true;
                let message = format!("the other side gave the stream up (code {code})");
                Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, message)))
            }
            ReadOutcome::Blocked if inner.closed.is_some() => Poll::Ready(Err(self.lost(&inner))),
            ReadOutcome::Blocked => {
                inner.wait_for_stream(self.id, Wait::Read, cx.waker());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for UdpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.handle.lock();
        if inner.closed.is_some() {
            return Poll::Ready(Err(self.lost(&inner)));
        }
        match inner.connection.write(self.id, &bytes[..bytes.len().min(AT_ONCE)]) {
            WriteOutcome::Written(len) => {
                inner.ring_if_due(self.handle.alarm());
                Poll::Ready(Ok(len))
            }
            WriteOutcome::Stopped => Poll::Ready(Err(unwanted())),
            WriteOutcome::Blocked => {
                inner.wait_for_stream(self.id, Wait::Write, cx.waker());
                Poll::Pending
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let handle = self.handle.clone();
        let mut inner = handle.lock();
        if !self.finished {
            inner.connection.finish(self.id);
            inner.ring_if_due(handle.alarm());
            self.finished = true;
        }
        match inner.connection.delivery(self.id) {
            Delivery::Done => return Poll::Ready(Ok(())),
            Delivery::GivenUp => return Poll::Ready(Err(unwanted())),
            Delivery::Pending => {}
        }
        if inner.closed.is_some() {
            return Poll::Ready(Err(self.lost(&inner)));
        }
        inner.wait_for_stream(self.id, Wait::Write, cx.waker());
        Poll::Pending
    }
}

impl Drop for UdpStream {
    fn drop(&mut self) {
        let mut inner = self.handle.lock();
        if !self.finished {
            inner.connection.reset(self.id, DROPPED);
        }
        if !self.ended {
            inner.connection.stop(self.id, DROPPED);
        }
        inner.connection.release(self.id);
        inner.forget_stream(self.id);
        inner.ring_if_due(self.handle.alarm());
    }
}

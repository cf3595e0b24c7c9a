//! A stream that is written, and read, no faster than it may.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use units::Instant;

use crate::pacing::{Pacer, Pacers, Turn, least};
use crate::summary::Figures;

/// A stream, slowed down when it has a rate.
pub struct Paced<S> {
    stream: S,
    waits: Waits,
    writing: Turn,
    reading: Turn,
}

/// For how long bytes that are written waited for their time.
#[derive(Clone)]
pub struct Waits {
    pacers: Vec<Pacer>,
    begun: Instant,
    nanos: Arc<AtomicU64>,
}

impl Waits {
    /// Adds them to what the stream knows of itself.
    pub fn add_to(&self, figures: Figures) -> Figures {
        let waited = Duration::from_nanos(self.nanos.load(Relaxed));
        figures.held_by(least(&self.pacers), waited, net::clock::now().since(self.begun))
    }
}

impl<S> Paced<S> {
    /// Held back by these.
    pub fn by(stream: S, Pacers { writing, reading }: Pacers) -> Self {
        let (pacers, begun) = (writing.clone(), net::clock::now());
        let waits = Waits { pacers, begun, nanos: Arc::default() };
        Self { stream, waits, writing: Turn::new(writing), reading: Turn::new(reading) }
    }

    /// A look at how it goes.
    pub fn waits(&self) -> Waits {
        self.waits.clone()
    }

    /// The stream itself.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let wanted = buffer.remaining();
        if wanted == 0 || this.reading.pacers.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let most = ready!(this.reading.poll(cx, wanted, |_| ()));
        let mut piece = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut piece))?;
        let read = piece.filled().len();
        buffer.advance(read);
        this.reading.went(read);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if bytes.is_empty() {
            return Pin::new(&mut this.stream).poll_write(cx, bytes);
        }
        let waited = &this.waits.nanos;
        let waits = |wait: Duration| {
            waited.fetch_add(wait.as_nanos() as u64, Relaxed);
        };
        let most = ready!(this.writing.poll(cx, bytes.len(), waits));
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, &bytes[..most]))?;
        this.writing.went(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

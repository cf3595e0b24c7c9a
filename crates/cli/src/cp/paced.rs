//! A stream that is written no faster than the user allows.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use units::{Bytes, Instant, Rate};

/// Bytes go in pieces of so much time, so that the rate holds from one moment to the next.
const PIECE: Duration = Duration::from_millis(10);
/// Smaller pieces cost more than they are worth.
const PIECE_MIN: u64 = 1 << 10;
/// The most that a stream which was held up may catch up.
const CATCH_UP: Duration = Duration::from_millis(100);

/// A stream, slowed down when it has a rate.
pub struct Paced<S> {
    stream: S,
    rate: Option<Rate>,
    begun: Instant,
    /// For how long bytes waited for their time.
    held: Duration,
    /// When the next bytes may go.
    due: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    /// No faster than `rate`, payload alone; as fast as it goes without.
    pub fn new(stream: S, rate: Option<Rate>) -> Self {
        let begun = net::clock::now();
        Self { stream, rate, begun, held: Duration::ZERO, due: begun, timer: None }
    }

    /// The rate and the share of the time for which it held the stream back, if that was most of it.
    pub fn held_by(&self) -> Option<(Rate, f64)> {
        let whole = net::clock::now().since(self.begun).as_secs_f64();
        let share = self.held.as_secs_f64() / whole.max(1e-9);
        self.rate.filter(|_| share > 0.5).map(|rate| (rate, share.min(1.0)))
    }

    /// The stream itself.
    pub fn into_inner(self) -> S {
        self.stream
    }

    /// Waits until bytes may go.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let wait = self.due.since(net::clock::now());
        if self.timer.is_none() && !wait.is_zero() {
            self.held += wait;
            self.timer = Some(Box::pin(tokio::time::sleep(wait)));
        }
        if let Some(timer) = &mut self.timer {
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(rate) = self.rate else { return Pin::new(&mut self.stream).poll_write(cx, bytes) };
        ready!(self.poll_due(cx));
        let piece = rate.bytes_in(PIECE).0.max(PIECE_MIN) as usize;
        let piece = &bytes[..bytes.len().min(piece)];
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, piece))?;
        let now = net::clock::now();
        let behind = now.since(self.due).saturating_sub(CATCH_UP);
        self.due = self.due + behind + rate.time_for(Bytes(written as u64));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

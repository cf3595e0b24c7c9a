//! The face of a striped stream.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;
use transport::crypto::PublicKey;
use units::Instant;

use super::hello::Connection;
use super::info::Stats;
use super::lane;
use super::shared::Shared;
use crate::clock;

/// How long a finished stream that is dropped waits for the last bytes of its connections.
const LINGER: Duration = Duration::from_secs(30);

/// Several TCP connections that are one stream, with the face of a socket.
///
/// Shutting down ends the direction to the other side, and only that; it is ready when the kernel
/// has everything. A stream dropped before both directions ended is cut: the other side gets an
/// error, never a clean end. One connection that fails fails the stream.
pub struct StripedStream {
    shared: Arc<Shared>,
    /// Two for each connection; dropped with the stream, they stop.
    tasks: JoinSet<()>,
    since: Instant,
    peer: Option<PublicKey>,
}

impl StripedStream {
    /// Makes a stream of connections whose handshakes are done. To be called within a runtime.
    pub(super) fn new(
        connections: Vec<Connection>,
        address: SocketAddr,
        buffer: units::Bytes,
    ) -> Self {
        let peer = connections.first().and_then(|connection| connection.keys.peer);
        let (sockets, keys): (Vec<_>, Vec<_>) =
            connections.into_iter().map(|c| (c.socket, c.keys)).unzip();
        let shared = Arc::new(Shared::new(sockets, address, buffer));
        let mut tasks = JoinSet::new();
        for (connection, keys) in keys.into_iter().enumerate() {
            tasks.spawn(lane::send(shared.clone(), connection, keys.sealer));
            tasks.spawn(lane::receive(shared.clone(), connection, keys.opener));
        }
        let since = clock::now();
        Self { shared, tasks, since, peer }
    }

    /// Who the other end has proved to be, if both are known by static keys.
    pub fn peer(&self) -> Option<PublicKey> {
        self.peer
    }

    /// What the stream has done so far.
    pub fn stats(&self) -> Stats {
        let (sent, received) = self.shared.bytes();
        let elapsed = clock::now().since(self.since);
        Stats::collect(&self.shared.sockets, sent, received, elapsed)
    }
}

impl AsyncRead for StripedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.shared.poll_read(cx, buffer.initialize_unfilled());
        read.map_ok(|n| buffer.advance(n))
    }
}

impl AsyncWrite for StripedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.shared.poll_write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.poll_shutdown(cx)
    }
}

impl Drop for StripedStream {
    /// A socket that is closed with unread bytes resets its connection, and what the other side
    /// has still to receive is lost. So the fins on their way are awaited.
    fn drop(&mut self) {
        if !self.shared.is_done() {
            return;
        }
        let mut tasks = std::mem::take(&mut self.tasks);
        if let Ok(runtime) = Handle::try_current() {
            runtime
                .spawn(timeout(LINGER, async move { while tasks.join_next().await.is_some() {} }));
        }
    }
}

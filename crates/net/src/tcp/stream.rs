//! The face of a striped stream.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use stripe::count::Policy;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use transport::crypto::PublicKey;
use units::{Bytes, Instant};

use super::echo::Echo;
use super::hello::Connection;
use super::info::Stats;
use super::keeper::{Dialler, Keeper};
use super::lane;
use super::shared::Shared;
use crate::clock;

/// Several TCP connections that are one stream, with the face of a socket.
///
/// Connections come, and may be lost, while it lasts: what a lost one carried goes over others. Only
/// when there is none for [`super::ORPHAN_TIME`] is the stream lost.
///
/// Shutting down ends the direction to the other side, and only that; it is ready when the other
/// side has everything. A stream dropped before both directions ended is given up: the other side
/// gets an error, never a clean end.
pub struct StripedStream {
    shared: Arc<Shared>,
    since: Instant,
    peer: Option<PublicKey>,
}

impl StripedStream {
    /// A stream that begins with this connection. To be called within a runtime.
    pub(super) fn new(
        connection: Connection,
        address: SocketAddr,
        buffer: Bytes,
        policy: Policy,
        dialler: Option<Dialler>,
        echo: Option<Echo>,
    ) -> Self {
        let peer = connection.keys.peer;
        let shared = Arc::new(Shared::new(address, buffer));
        lane::run(&shared, connection);
        tokio::spawn(Keeper { shared: shared.clone(), policy, dialler, echo }.run());
        Self { shared, since: clock::now(), peer }
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// Waits until both sides of a stream that came to its end know that the other has everything.
    /// Without it the connections close by themselves as long as the runtime lives; a process that
    /// ends earlier leaves the other side in doubt.
    pub async fn close(self) {
        loop {
            let changed = self.shared.changed.notified();
            if !self.shared.is_over() || self.shared.is_agreed() {
                return;
            }
            changed.await;
        }
    }

    /// Whether it was cut.
    pub(super) fn has_failed(&self) -> bool {
        self.shared.has_failed()
    }

    /// Who the other end has proved to be, if both are known by static keys.
    pub fn peer(&self) -> Option<PublicKey> {
        self.peer
    }

    /// What the stream has done so far.
    pub fn stats(&self) -> Stats {
        self.shared.stats(clock::now().since(self.since))
    }

    /// The same for somebody else, while others read and write.
    pub fn watch(&self) -> Watch {
        Watch { shared: self.downgrade(), since: self.since }
    }
}

/// Looks at a stream that others use.
#[derive(Clone)]
pub struct Watch {
    shared: Weak<Shared>,
    since: Instant,
}

impl Watch {
    /// What the stream has done so far; `None` when it is gone.
    pub fn stats(&self) -> Option<Stats> {
        Some(self.shared.upgrade()?.stats(clock::now().since(self.since)))
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

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.poll_flush()
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.poll_shutdown(cx)
    }
}

impl Drop for StripedStream {
    fn drop(&mut self) {
        if !self.shared.is_over() {
            self.shared.fail("it was dropped".to_owned());
        }
    }
}

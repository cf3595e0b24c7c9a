//! A connection as the application holds it.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use transport::cc::Remembered;
use transport::crypto::PublicKey;
use transport::wire::Refusal;
use transport::{CloseReason, OpenError};

use super::core::Core;
use super::shared::{Alarm, Barred, Inner, Locked, Shared};
use super::stream::UdpStream;
use super::tracer::Tracer;
use crate::clock;
use crate::error::NetError;

/// Closes the connection when the last of its users is dropped.
pub(super) struct Handle {
    core: Arc<Core>,
    shared: Shared,
    address: SocketAddr,
    owner: usize,
    config: transport::Config,
    /// What the sockets had dropped before.
    drops_before: u64,
}

impl Handle {
    pub(super) fn lock(&self) -> Locked<'_> {
        self.shared.lock_briefly()
    }

    pub(super) fn alarm(&self) -> &Alarm {
        self.core.alarm(self.owner)
    }

    pub(super) fn stats(&self) -> transport::Stats {
        let socket_drops = self.core.drops().saturating_sub(self.drops_before);
        transport::Stats { socket_drops, ..self.lock().connection.stats() }
    }

    /// The error that tells why the connection ended.
    pub(super) fn error(&self, inner: &Inner) -> NetError {
        let address = self.address;
        match inner.closed.as_ref() {
            None | Some(CloseReason::Local) => NetError::Closed,
            Some(CloseReason::NoAnswer) => {
                let after = self.config.connect_timeout;
                NetError::NoAnswer { address, after, carrier: "UDP" }
            }
            Some(CloseReason::Unreachable) => {
                let refused = || io::ErrorKind::ConnectionRefused.into();
                NetError::Unreachable {
                    address,
                    source: inner.barred.map_or_else(refused, Barred::error),
                }
            }
            Some(CloseReason::Refused(Refusal::WrongKey)) => NetError::WrongKey { address },
            Some(CloseReason::Refused(Refusal::NotAllowed)) => NetError::NotAllowed { address },
            Some(CloseReason::Refused(Refusal::Pattern)) => NetError::OtherKind { address },
            Some(CloseReason::Refused(refusal)) => {
                NetError::Refused { address, reason: refusal.to_string() }
            }
            Some(reason) => NetError::Lost { address, reason: reason.to_string() },
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut inner = self.lock();
        inner.connection.close(clock::now(), 0, "done");
        self.core.ring(&inner);
    }
}

impl Drop for UdpConnection {
    fn drop(&mut self) {
        let mut inner = self.handle.lock();
        inner.stop_accepting();
        inner.ring_if_due(self.handle.alarm());
    }
}

/// Somebody waits to open a stream; with the last of them the other end is asked no more.
struct Wish<'a>(&'a Handle);

impl<'a> Wish<'a> {
    fn new(handle: &'a Handle, inner: &mut Inner) -> Self {
        inner.opening += 1;
        Self(handle)
    }
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.opening -= 1;
        if inner.opening == 0 {
            inner.connection.give_up_opening();
        }
    }
}

/// A connection over UDP. It ends when this and all its streams are dropped.
pub struct UdpConnection {
    handle: Arc<Handle>,
}

impl UdpConnection {
    pub(super) fn new(core: Arc<Core>, shared: Shared, config: transport::Config) -> Self {
        let (address, owner) = {
            let inner = shared.lock();
            (inner.connection.address(), inner.owner)
        };
        let drops_before = core.drops();
        Self { handle: Arc::new(Handle { core, shared, address, owner, config, drops_before }) }
    }

    /// Ends it for this reason, of which the other end is told.
    pub fn close(self, reason: &str) {
        self.handle.lock().connection.close(clock::now(), 0, reason);
    }

    /// The address of the other end.
    pub fn address(&self) -> SocketAddr {
        self.handle.address
    }

    /// Who the other end has proved to be, if both are known by static keys.
    pub fn peer(&self) -> Option<PublicKey> {
        self.handle.lock().connection.peer()
    }

    /// Sends no faster than this from now on, nor than the configuration says.
    pub fn limit_rate(&self, rate: units::Rate) {
        self.handle.lock().connection.limit_rate(rate);
    }

    /// Goes on from what an earlier connection learnt of the path, if nothing was sent yet; of use
    /// to who accepted this one, for who connects tells it by [`transport::Config::remembered`].
    pub fn resume(&self, remembered: Remembered) {
        self.handle.lock().connection.resume(remembered);
    }

    /// What the next connection to the same host should know of the path, once anything is known.
    pub fn remembered(&self) -> Option<Remembered> {
        self.handle.lock().connection.remembered()
    }

    /// Hands out what the connection notes of its steps.
    pub fn tracer(&self) -> Tracer {
        Tracer::new(self.handle.shared.clone())
    }

    /// The connection's figures.
    pub fn stats(&self) -> transport::Stats {
        self.handle.stats()
    }

    /// See [`transport::Connection::is_crowded`].
    pub fn is_crowded(&self) -> bool {
        self.handle.lock().connection.is_crowded()
    }

    /// Opens a stream, as soon as the other end takes another one. It learns of it with the first
    /// bytes.
    ///
    /// # Errors
    /// [`NetError::Lost`] when the connection has ended, [`NetError::Overloaded`] when more waits
    /// to be sent than [`transport::Config::admission`] allows.
    pub async fn open(&self) -> Result<UdpStream, NetError> {
        let mut wish = None;
        let mut open = |inner: &mut Inner| {
            // Nothing would ever leave it.
            if inner.closed.is_some() {
                return None;
            }
            match inner.connection.open() {
                Ok(id) => Some(Ok(id)),
                Err(OpenError::Blocked) => {
                    wish.get_or_insert_with(|| Wish::new(&self.handle, inner));
                    inner.ring_if_due(self.handle.alarm());
                    None
                }
                Err(error) => Some(Err(NetError::Overloaded(error))),
            }
        };
        let id = poll_fn(|cx| self.poll_change(cx, &mut open)).await??;
        Ok(UdpStream::new(self.handle.clone(), id))
    }

    /// The next stream that the other end opens.
    ///
    /// # Errors
    /// [`NetError::Lost`] when the connection has ended.
    pub async fn accept(&self) -> Result<UdpStream, NetError> {
        let id = poll_fn(|cx| self.poll_change(cx, |inner| inner.incoming.pop_front()));
        Ok(UdpStream::new(self.handle.clone(), id.await?))
    }

    /// Waits until the other end has proved to be who it should be.
    pub(super) async fn established(&self) -> Result<(), NetError> {
        poll_fn(|cx| self.poll_change(cx, |inner| inner.established.then_some(()))).await
    }

    fn poll_change<T>(
        &self,
        cx: &Context<'_>,
        look: impl FnOnce(&mut Inner) -> Option<T>,
    ) -> Poll<Result<T, NetError>> {
        let mut inner = self.handle.lock();
        let found = look(&mut inner);
        if let Some(found) = found {
            return Poll::Ready(Ok(found));
        }
        if inner.closed.is_some() {
            return Poll::Ready(Err(self.handle.error(&inner)));
        }
        inner.wait_for_change(cx.waker());
        Poll::Pending
    }
}

//! The transport over UDP.
//!
//! `socket` sends and receives batches, `driver` is the thread that moves them between the socket
//! and the connections, `shared` is what it has in common with the application, which holds an
//! [`UdpEndpoint`], [`UdpConnection`]s and [`UdpStream`]s.

mod connection;
mod driver;
mod shared;
mod socket;
mod stream;

use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use std::{io, thread};

use transport::crypto::SharedKey;
use transport::{Config, Endpoint};

pub use connection::UdpConnection;
pub use stream::UdpStream;

use driver::{Core, Driver};
use socket::BatchSocket;

use crate::error::NetError;

/// A UDP socket, its connections, and the thread that drives them.
pub struct UdpEndpoint {
    core: Arc<Core>,
    address: SocketAddr,
    config: Config,
}

impl UdpEndpoint {
    /// Listens on `address`, for connections from all who hold `key`.
    ///
    /// # Errors
    /// [`NetError::Bind`].
    pub fn listen(address: SocketAddr, key: SharedKey, config: Config) -> Result<Self, NetError> {
        Self::bind(address, key, config, true)
    }

    /// An endpoint that connects to hosts of `remote`'s address family.
    ///
    /// # Errors
    /// [`NetError::Bind`].
    pub fn client(remote: SocketAddr, key: SharedKey, config: Config) -> Result<Self, NetError> {
        let any = match remote {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        Self::bind(any, key, config, false)
    }

    fn bind(
        address: SocketAddr,
        key: SharedKey,
        config: Config,
        listens: bool,
    ) -> Result<Self, NetError> {
        let bind = || -> io::Result<Self> {
            let mut seed = [0; 32];
            getrandom::fill(&mut seed).map_err(io::Error::other)?;
            let socket = BatchSocket::bind(address)?;
            let address = socket.local_address()?;
            let core = Arc::new(Core::new(Endpoint::new(key, config, listens, seed))?);
            let driver = Driver::new(core.clone(), socket);
            thread::Builder::new().name("udp".to_owned()).spawn(|| driver.run())?;
            Ok(Self { core, address, config })
        };
        bind().map_err(|source| NetError::Bind { address, source })
    }

    /// The address that the socket is bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects to `address`.
    ///
    /// # Errors
    /// [`NetError`] says why not.
    pub async fn connect(&self, address: SocketAddr) -> Result<UdpConnection, NetError> {
        let shared = self.core.connect(address);
        let connection = UdpConnection::new(self.core.clone(), shared, self.config);
        connection.established().await?;
        Ok(connection)
    }

    /// The next connection that another end has made.
    ///
    /// # Errors
    /// [`NetError::Bind`] when the socket has failed.
    pub async fn accept(&self) -> Result<UdpConnection, NetError> {
        let accepted = poll_fn(|cx| match self.core.poll_accept(cx.waker()) {
            Ok(None) => Poll::Pending,
            Ok(Some(shared)) => Poll::Ready(Ok(shared)),
            Err(kind) => Poll::Ready(Err(kind)),
        });
        let shared = accepted
            .await
            .map_err(|kind| NetError::Bind { address: self.address, source: kind.into() })?;
        Ok(UdpConnection::new(self.core.clone(), shared, self.config))
    }

    /// Waits until every connection has ended, so that the last packets have gone out.
    pub async fn idle(&self) {
        poll_fn(|cx| match self.core.poll_idle(cx.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

impl Drop for UdpEndpoint {
    fn drop(&mut self) {
        self.core.stop();
    }
}

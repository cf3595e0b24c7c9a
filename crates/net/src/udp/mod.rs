//! The transport over UDP.
//!
//! `socket` sends and receives batches, `driver` is the thread that moves them between the socket
//! and the connections, of which its `roster` tells who has something to do; `core` and `shared`
//! are what it has in common with the application, which holds an [`UdpEndpoint`],
//! [`UdpConnection`]s and [`UdpStream`]s; [`Tracer`]s watch. `errors` reads what the network reports. [`ask`] asks a
//! host for its key.

mod ask;
mod connection;
mod core;
mod driver;
pub(crate) mod errors;
mod receive;
mod roster;
mod shared;
mod slice;
mod socket;
mod stream;
mod tracer;

use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::Poll;
use std::{io, thread};

use transport::crypto::{Credentials, Sealing};
use transport::{Config, Endpoint, Refusals};

pub use ask::ask;
pub use connection::UdpConnection;
pub use stream::{StreamMeter, UdpStream};
pub use tracer::Tracer;

use self::core::Core;
use driver::Driver;
use socket::BatchSocket;

use crate::error::NetError;

/// A UDP address, its connections, and the threads that drive them.
pub struct UdpEndpoint {
    core: Arc<Core>,
    address: SocketAddr,
    config: Config,
}

impl UdpEndpoint {
    /// Listens on `address`, for connections from all whom `credentials` let in.
    ///
    /// # Errors
    /// [`NetError::Bind`].
    pub fn listen(
        address: SocketAddr,
        credentials: impl Into<Credentials>,
        config: Config,
    ) -> Result<Self, NetError> {
        Self::listen_on_cores(address, credentials, config, NonZeroUsize::MIN)
    }

    /// As [`Self::listen`], with so many threads that share the connections.
    ///
    /// # Errors
    /// [`NetError::Bind`].
    pub fn listen_on_cores(
        address: SocketAddr,
        credentials: impl Into<Credentials>,
        config: Config,
        cores: NonZeroUsize,
    ) -> Result<Self, NetError> {
        Self::bind(address, credentials.into(), config, Some(cores))
    }

    /// An endpoint that connects to hosts of `remote`'s address family.
    ///
    /// # Errors
    /// [`NetError::Bind`].
    pub fn client(
        remote: SocketAddr,
        credentials: impl Into<Credentials>,
        config: Config,
    ) -> Result<Self, NetError> {
        let any = match remote {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        Self::bind(any, credentials.into(), config, None)
    }

    fn bind(
        address: SocketAddr,
        credentials: Credentials,
        config: Config,
        listens: Option<NonZeroUsize>,
    ) -> Result<Self, NetError> {
        let bind = || -> io::Result<Self> {
            if config.sealing != Sealing::Sealed {
                return Err(io::Error::other("packets without seals are for simulations alone"));
            }
            let mut seed = [0; 32];
            getrandom::fill(&mut seed).map_err(io::Error::other)?;
            let drivers = listens.map_or(1, NonZeroUsize::get);
            let sockets = BatchSocket::bind_group(address, drivers)?;
            let address = sockets[0].local_address()?;
            let endpoint = Endpoint::new(credentials, config, listens.is_some(), seed);
            let core = Arc::new(Core::new(endpoint.at(&place(address)), drivers)?);
            for (index, socket) in sockets.into_iter().enumerate() {
                let driver = Driver::new(core.clone(), index, socket);
                let spawned = thread::Builder::new().name("udp".to_owned()).spawn(|| driver.run());
                // Those before it would never end.
                spawned.inspect_err(|_| core.stop())?;
            }
            Ok(Self { core, address, config })
        };
        bind().map_err(|source| NetError::Bind { address, source })
    }

    /// Datagrams that arrived here and were lost because the socket's buffer was full.
    pub fn socket_drops(&self) -> u64 {
        self.core.drops()
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

    /// What was refused so far without being any connection's.
    pub fn refusals(&self) -> Refusals {
        self.core.refusals()
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

/// The host's name and the port: the same after a restart, and another one for each endpoint that
/// shares its keys with this one, as over a shared home directory.
fn place(address: SocketAddr) -> Vec<u8> {
    let mut place = address.port().to_be_bytes().to_vec();
    place.extend_from_slice(rustix::system::uname().nodename().to_bytes());
    place
}

impl Drop for UdpEndpoint {
    fn drop(&mut self) {
        self.core.stop();
    }
}

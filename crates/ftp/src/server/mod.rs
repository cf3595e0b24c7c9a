//! The server: sockets, TLS, users and a disk around [`Session`](crate::session::Session).
//!
//! Each client is one task ([`control`](self)), which reads commands, carries out what the session
//! asks for one at a time, and answers. What waits for a disk runs on the threads kept for that.

mod control;
mod guard;
mod store;
mod transfer;
mod users;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use net::tcp::Policy;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

pub use guard::{Limits, network};
pub use users::{Account, Users, UsersError};

use crate::session::Settings;
use guard::Guard;

/// Passwords that are checked at a time: each takes 19 MiB.
const CHECKS_MAX: usize = 2;

/// How long clients may take to be told that the server ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a server is set up.
pub struct Config {
    /// What every session keeps to; `offers_tls` follows from `tls`.
    pub settings: Settings,
    /// What anonymous users see as /, which they may only read; `None` lets no such users in.
    pub anonymous: Option<PathBuf>,
    /// Those who log in by name.
    pub users: Users,
    /// Nobody may change anything.
    pub read_only: bool,
    /// How many of its connections a striped transfer uses that clients receive.
    pub policy: Policy,
    /// The kernel's congestion control for what clients receive, as in [`net::tcp::Options`].
    pub congestion_control: Option<String>,
    /// Ports that data is awaited at; any free one when there is none.
    pub passive_ports: Option<RangeInclusive<u16>>,
    /// The most sessions.
    pub limits: Limits,
    /// Certificate and key.
    pub tls: Option<Arc<ServerConfig>>,
    /// The end of TLS without `close_notify` is taken for that of the file, as the end of a connection in
    /// clear is, for clients that know no better.
    pub lax_tls_end: bool,
    /// Where clients are served too that begin with TLS, instead of by AUTH TLS (port 990).
    pub implicit_tls: Option<SocketAddr>,
    /// Is told what happens.
    pub observer: Arc<dyn Fn(&Event) + Send + Sync>,
}

/// Something worth a line.
#[derive(Clone, Debug)]
pub struct Event {
    /// The client.
    pub peer: IpAddr,
    /// Who that is, once known.
    pub user: Option<String>,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum What {
    /// A user logged in.
    LoggedIn,
    /// A password was wrong, for this name.
    WrongPassword(String),
    /// A transfer came to its end.
    Transfer {
        /// Whether the client sent it.
        received: bool,
        /// The path as the client sees it.
        path: String,
        /// Bytes of this transfer.
        bytes: u64,
        /// How long it took.
        took: Duration,
        /// It had so many connections,
        connections: usize,
        /// and so many of them carried something.
        used: usize,
        /// Why it failed, if it did.
        failure: Option<crate::session::Failure>,
    },
}

/// A listening server.
pub struct Server {
    listener: TcpListener,
    /// For those who begin with TLS.
    tls_listener: Option<TcpListener>,
    shared: Arc<Shared>,
}

/// What every client's task needs.
struct Shared {
    config: Config,
    guard: Guard,
    checks: Semaphore,
    acceptor: Option<TlsAcceptor>,
    /// For data: without session tickets, which a client that only sends never reads. Closing its
    /// socket over them, it would reset the connection and lose the end of its file.
    data_acceptor: Option<TlsAcceptor>,
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// When an address cannot be used, or the kernel does not offer the congestion control.
    pub async fn bind(address: SocketAddr, mut config: Config) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let congestion_control = config.congestion_control.as_deref();
        net::tcp::set_congestion_control(&SockRef::from(&listener), congestion_control)
            .map_err(io::Error::other)?;
        let tls_listener = match config.implicit_tls {
            Some(address) => Some(TcpListener::bind(address).await?),
            None => None,
        };
        let acceptor = config.tls.clone().map(TlsAcceptor::from);
        let data_acceptor = config.tls.as_deref().map(|tls| {
            let mut silent = tls.clone();
            silent.send_tls13_tickets = 0;
            TlsAcceptor::from(Arc::new(silent))
        });
        config.settings.offers_tls = acceptor.is_some();
        let guard = Guard::new(config.limits);
        let checks = Semaphore::new(CHECKS_MAX);
        let shared = Shared { config, guard, checks, acceptor, data_acceptor };
        Ok(Self { listener, tls_listener, shared: Arc::new(shared) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not know.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Where it listens for those who begin with TLS.
    ///
    /// # Errors
    /// When the system does not know.
    pub fn tls_address(&self) -> io::Result<Option<SocketAddr>> {
        self.tls_listener.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// Serves until `stop` is ready. Then tells all clients, and returns how many transfers that cut
    /// off; what had arrived of them is kept.
    ///
    /// # Errors
    /// When the socket fails.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> io::Result<usize> {
        let (ending, ended) = watch::channel(false);
        let mut clients = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = self.accept() => match accepted {
                    Ok((stream, peer, secure)) => {
                        self.admit(&mut clients, stream, (peer, secure), &ended);
                    }
                    // Too many files are open, or the client is gone: others may have more luck.
                    Err(error) if is_passing(&error) => tokio::time::sleep(FAREWELL / 20).await,
                    Err(error) => return Err(error),
                },
                Some(_) = clients.join_next() => {}
            }
        }
        // Nobody listens when the last client is gone already.
        let _ = ending.send(true);
        let mut cut = 0;
        let farewell = async {
            while let Some(ended) = clients.join_next().await {
                cut += usize::from(ended.unwrap_or(false));
            }
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
        Ok(cut + clients.len())
    }

    /// The next client, and whether it begins with TLS.
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, bool)> {
        let tls = async {
            match &self.tls_listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.listener.accept() => accepted.map(|(stream, peer)| (stream, peer, false)),
            accepted = tls => accepted.map(|(stream, peer)| (stream, peer, true)),
        }
    }

    fn admit(
        &self,
        clients: &mut JoinSet<bool>,
        stream: TcpStream,
        (peer, secure): (SocketAddr, bool),
        ended: &watch::Receiver<bool>,
    ) {
        match self.shared.guard.admit(peer.ip().to_canonical()) {
            Some(place) => {
                let (shared, ended) = (self.shared.clone(), ended.clone());
                clients.spawn(async move {
                    let _place = place;
                    control::serve(shared, stream, secure, ended).await
                });
            }
            None => {
                // One try: a client that does not read is not waited for.
                let _ = stream.try_write(b"421 Too many sessions: close one, then try again\r\n");
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [Errno::MFILE, Errno::NFILE, Errno::CONNABORTED, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|error| passing.contains(&error))
}

/// The names of those who need no password (RFC 1635).
pub(crate) fn is_anonymous(name: &str) -> bool {
    ["anonymous", "ftp"].iter().any(|other| other.eq_ignore_ascii_case(name))
}

//! The client's way to a striped stream.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use stripe::count::Policy;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use transport::crypto::{Credentials, PublicKey};

use super::echo::Echo;
use super::hello::{self, Connection, Hello, initiate, random};
use super::keeper::Dialler;
use super::options::{MAX_STREAMS, Options};
use super::stream::StripedStream;
use crate::error::NetError;

/// An address that has not answered by then counts as unreachable.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Connects to a [`super::Listener`] at `address`. The stream can be used as soon as the first
/// connection is made; others join it as `policy` asks for them.
///
/// # Errors
/// [`NetError`] when no connection can be made: nobody answers within [`CONNECT_TIME`], nobody
/// listens, or whoever does holds another key or is no such listener.
pub async fn connect(
    address: SocketAddr,
    credentials: impl Into<Credentials>,
    policy: Policy,
    options: &Options,
) -> Result<StripedStream, NetError> {
    if !(1..=MAX_STREAMS).contains(&policy.first()) {
        return Err(NetError::Option {
            reason: format!(
                "a stream has 1 to {MAX_STREAMS} TCP connections, not {}",
                policy.first()
            ),
        });
    }
    let echo = Echo::start(options.rtt, address).map_err(|error| NetError::Option {
        reason: format!(
            "no echoes can be asked for ({error}); by ICMP they need root, or a group of \
             `sysctl net.ipv4.ping_group_range`"
        ),
    })?;
    let hello = Hello { group: random(), joins: false, policy };
    let mut dialler = Dialler::new(address, credentials.into(), options.clone(), hello);
    dialler.open(policy.first().min(options.most.max(1)));
    let mut failure = None;
    while let Some(dialled) = dialler.dials.join_next().await {
        match dialled.expect("a dial neither panics nor is aborted") {
            Ok(connection) => {
                dialler.hello.joins = true;
                let (buffer, dialler) = (options.buffer, Some(dialler));
                return Ok(StripedStream::new(connection, address, buffer, policy, dialler, echo));
            }
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.expect("at least one was dialled"))
}

pub(super) async fn dial(
    address: SocketAddr,
    credentials: &Credentials,
    hello: Hello,
    options: &Options,
) -> Result<Connection, NetError> {
    initiate(open(address, options).await?, address, credentials, hello).await
}

/// Asks the host at `address` for its key; see [`crate::udp::ask`].
///
/// # Errors
/// [`NetError`] when nobody answers, or whoever does is no such listener.
pub async fn ask(address: SocketAddr) -> Result<PublicKey, NetError> {
    hello::ask_host(open(address, &Options::default()).await?, address).await
}

async fn open(address: SocketAddr, options: &Options) -> Result<TcpStream, NetError> {
    let unreachable = |source| NetError::Unreachable { address, source };
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let socket = socket.map_err(unreachable)?;
    options.apply(SockRef::from(&socket))?;
    let connected = timeout(CONNECT_TIME, socket.connect(address)).await;
    let socket = connected.map_err(|_| NetError::NoAnswer {
        address,
        after: CONNECT_TIME,
        carrier: "TCP",
    })?;
    let socket = socket.and_then(refuse_self_connection).map_err(unreachable)?;
    // Again: a route may name a congestion control, which takes effect on connecting.
    options.apply(SockRef::from(&socket))?;
    Ok(socket)
}

/// A local port that nobody listens on may be picked as the source port too: TCP's simultaneous
/// open then joins the socket to itself.
fn refuse_self_connection(socket: TcpStream) -> io::Result<TcpStream> {
    if socket.local_addr()? == socket.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(socket)
}

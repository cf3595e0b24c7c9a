//! TCP sockets at addresses that are not this host's: for a gateway, which stands in for others
//! (the kernel's `Documentation/networking/tproxy.rst`). They need the right to administer the
//! network (CAP_NET_ADMIN).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::udp::errors;

/// Connections that wait to be taken.
const BACKLOG: i32 = 4096;

/// Listens at `port` of the loopback address for connections to any address that the kernel's rules
/// turn here; the local address of such a connection is the one that the client meant. A socket at
/// no address would take all connections to `port`, whoever they are meant for.
///
/// # Errors
/// What the system said: without the right to administer the network `PermissionDenied`.
pub fn listen(v6: bool, port: u16) -> io::Result<TcpListener> {
    let address: SocketAddr = match v6 {
        false => (Ipv4Addr::LOCALHOST, port).into(),
        true => (Ipv6Addr::LOCALHOST, port).into(),
    };
    let socket = open(address)?;
    if v6 {
        socket.set_only_v6(true)?;
    }
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Connects to `server` from `client`'s address and port, as `client` itself would, by packets
/// that carry `mark` on this host. What the server answers must come this way.
///
/// # Errors
/// What the system or the server said; `PermissionDenied` when a firewall on the way forbids it.
pub async fn connect(client: SocketAddr, server: SocketAddr, mark: u32) -> io::Result<TcpStream> {
    let socket = open(client)?;
    socket.set_mark(mark)?;
    socket.bind(&SockAddr::from(client))?;
    errors::enable(&socket, server.is_ipv6())?;
    // The same socket: who connects consumes one, and its errors are asked for afterwards.
    let asked = socket.try_clone()?;
    let connected = TcpSocket::from_std_stream(socket.into()).connect(server).await;
    match connected {
        Err(_) if errors::is_forbidden(asked.as_fd()) => {
            Err(io::ErrorKind::PermissionDenied.into())
        }
        Err(error) => Err(error),
        Ok(stream) => {
            errors::disable(asked.as_fd(), server.is_ipv6())?;
            Ok(stream)
        }
    }
}

/// Connects to `server` from an address of this host, by packets that carry `mark` on it if this
/// process may mark them.
///
/// # Errors
/// What the system or the server said.
pub async fn connect_marked(server: SocketAddr, mark: u32) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Who may not mark them has no rules either that look for the mark.
    let _ = socket.set_mark(mark);
    TcpSocket::from_std_stream(socket.into()).connect(server).await
}

/// Whether this host has IPv6, at least at its loopback address.
pub fn has_ipv6() -> bool {
    let switch = std::fs::read_to_string("/proc/sys/net/ipv6/conf/lo/disable_ipv6");
    switch.is_ok_and(|off| off.trim() == "0")
}

/// Whether the kernel lets this process have such sockets in its network namespace.
pub fn is_allowed() -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    !open((Ipv4Addr::UNSPECIFIED, 0).into()).is_err_and(refused)
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    match address {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
        SocketAddr::V6(_) => set_transparent_v6(&socket)?,
    }
    Ok(socket)
}

fn set_transparent_v6(socket: &Socket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int, whose address and size are given; the descriptor is
    // open as long as `socket` is.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_IPV6,
            libc::IPV6_TRANSPARENT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

//! A UDP socket that sends in batches, through quinn-udp (GSO), and [receives](super::receive) in batches.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{EcnCodepoint, UdpSockRef, UdpSocketState};
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};
use transport::{Transmit, Unreachable};

use super::errors;
use super::receive::Buffers;

/// Wanted from the kernel, so that a busy machine drops nothing for 60 ms at 1 Gbit/s.
const SOCKET_BUFFER: usize = 8 << 20;

/// A bound socket.
pub(super) struct BatchSocket {
    socket: Socket,
    state: UdpSocketState,
}

impl BatchSocket {
    /// Binds so many sockets to `address`, among which the system spreads who sends there. The first has to
    /// have the address for itself, and only then shares it: sockets that joined those of another
    /// process would draw its connections to themselves.
    pub(super) fn bind_group(address: SocketAddr, count: usize) -> io::Result<Vec<Self>> {
        let first = Self::bind(address, false)?;
        let address = first.local_address()?;
        first.socket.set_reuse_port(count > 1)?;
        let mut group = vec![first];
        for _ in 1..count {
            group.push(Self::bind(address, true)?);
        }
        Ok(group)
    }

    /// Binds to `address`; an unspecified IPv6 address takes IPv4 too, and only that where IPv6
    /// is switched off. With `shared`, other sockets may be bound there as well.
    pub(super) fn bind(address: SocketAddr, shared: bool) -> io::Result<Self> {
        match Self::bind_exactly(address, shared) {
            Err(error) if is_without_ipv6(&error) && address.ip() == Ipv6Addr::UNSPECIFIED => {
                Self::bind_exactly((Ipv4Addr::UNSPECIFIED, address.port()).into(), shared)
            }
            result => result,
        }
    }

    fn bind_exactly(address: SocketAddr, shared: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_port(shared)?;
        // Beyond the system's limit where we may, up to it otherwise.
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
            socket.set_recv_buffer_size(SOCKET_BUFFER)?;
        }
        if sockopt::set_socket_send_buffer_size_force(&socket, SOCKET_BUFFER).is_err() {
            socket.set_send_buffer_size(SOCKET_BUFFER)?;
        }
        socket.bind(&address.into())?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        errors::enable(&socket, address.is_ipv6())?;
        Ok(Self { socket, state })
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Sends what `transmit` describes, in one call where the kernel segments.
    ///
    /// Gives how many bytes are gone, which are fewer than all when there [is no room](is_full) for
    /// more; and the first error, which loses what it was about.
    pub(super) fn send(
        &mut self,
        transmit: &Transmit,
        contents: &[u8],
    ) -> (usize, Option<io::Error>) {
        let had = self.state.max_gso_segments();
        let (mut sent, mut failed) = (0, None);
        while sent < contents.len() {
            let most = self.state.max_gso_segments().max(1) * transmit.segment;
            let piece = &contents[sent..contents.len().min(sent + most)];
            match self.send_piece(transmit, piece) {
                Err(error) if is_full(&error) => return (sent, Some(error)),
                // The kernel seems not to segment, which is not asked for again.
                Err(_) if self.state.max_gso_segments() * transmit.segment < piece.len() => {
                    continue;
                }
                result => failed = failed.or(result.err()),
            }
            sent += piece.len();
        }
        // What cannot be sent in pieces either says nothing of segmenting, though quinn-udp takes it so: segments that are too
        // long (kernels before 6.14), a destination or a source that is none. Of the latter it also learns to send no marks.
        let misled = |error: &io::Error| is_invalid(error) || self.state.max_gso_segments() < had;
        if failed.as_ref().is_some_and(misled)
            && let Ok(state) = UdpSocketState::new(UdpSockRef::from(&self.socket))
        {
            self.state = state;
        }
        (sent, failed)
    }

    /// A call fails once for what the network said of an earlier datagram, perhaps to somebody
    /// else; that is no reason to lose this one.
    fn send_piece(&self, transmit: &Transmit, piece: &[u8]) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: transmit.to,
            ecn: transmit.ecn.then_some(EcnCodepoint::Ect0),
            contents: piece,
            segment_size: Some(transmit.segment),
            src_ip: transmit.from,
        };
        let send = || self.state.try_send(UdpSockRef::from(&self.socket), &transmit);
        match send() {
            Err(error) if !is_full(&error) => send(),
            result => result,
        }
    }

    /// The next thing that the network said of datagrams sent: see [`errors::next`].
    pub(super) fn next_error(&self) -> Option<Option<(SocketAddr, Unreachable)>> {
        errors::next(self.socket.as_fd())
    }

    /// Datagrams that found the receive buffer full.
    pub(super) fn drops(&self) -> u64 {
        errors::drops(self.socket.as_fd()).unwrap_or(0)
    }

    /// Receives batches into `buffers`; how many came.
    ///
    /// # Errors
    /// `WouldBlock` when nothing waits.
    pub(super) fn receive(&self, buffers: &mut Buffers) -> io::Result<usize> {
        buffers.receive(self.socket.as_fd())
    }
}

/// Whether there was no room: in the socket's buffer, or in the interface's queue, of which nothing tells
/// when it has some again.
pub(super) fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || is_queue_full(error)
}

/// Whether the interface's queue had no room.
pub(super) fn is_queue_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Whether no interface takes datagrams of that size.
pub(super) fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// Whether the kernel takes no datagram with such addresses.
fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// Whether this host sends nothing there: it has no way, or its own firewall forbids it.
pub(super) fn is_barred(error: &io::Error) -> bool {
    let barred = [libc::EPERM, libc::EACCES, libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ENETDOWN];
    error.raw_os_error().is_some_and(|code| barred.contains(&code))
}

/// Whether the socket itself is of no use any more. Everything else passes: anybody may send an
/// ICMP message, and a call then fails with whatever error that stands for.
pub(super) fn is_fatal(error: &io::Error) -> bool {
    let fatal = [libc::EBADF, libc::ENOTSOCK, libc::EINVAL, libc::EFAULT];
    error.raw_os_error().is_some_and(|code| fatal.contains(&code))
}

fn is_without_ipv6(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::EAFNOSUPPORT, libc::EADDRNOTAVAIL].map(Some).contains(&code)
}

impl AsFd for BatchSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Anybody may make us answer to port 0.
    #[test]
    fn a_destination_that_is_none_does_not_end_batches() {
        for home in ["127.0.0.1:0", "[::1]:0"] {
            let mut socket = BatchSocket::bind(home.parse().unwrap(), false).unwrap();
            let had = socket.state.max_gso_segments();
            assert!(had > 1);
            let own = socket.local_address().unwrap();
            for contents in [&[0; 12][..], &[0; 3000]] {
                let nobody = SocketAddr::new(own.ip(), 0);
                let transmit = Transmit { to: nobody, from: None, segment: 1000, ecn: true };
                let (_, failed) = socket.send(&transmit, contents);
                assert!(failed.is_some_and(|error| is_invalid(&error)), "{home}");
                assert_eq!(socket.state.max_gso_segments(), had);
            }
            let transmit = Transmit { to: own, from: None, segment: 1000, ecn: true };
            assert!(matches!(socket.send(&transmit, &[0; 3000]), (3000, None)));
        }
    }
}

//! What the network reported about datagrams sent: the socket's error queue (ip(7), IP_RECVERR).

use std::io;
use std::iter;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use socket2::SockAddr;
use transport::Unreachable;

/// Errors that are looked at, at most.
const MAX_ERRORS: usize = 16;
/// Room for what the kernel says beside an error: the error itself, a time stamp, an interface.
const CONTROL: usize = 512;

/// Asks for errors; the kernel then keeps them with the packet's destination.
pub(crate) fn enable(socket: &socket2::Socket, is_ipv6: bool) -> io::Result<()> {
    ask(socket.as_fd(), is_ipv6, true)
}

/// Asks for errors no longer. An established TCP connection that does is ended by each of them, which
/// it would outlive otherwise (RFC 1122, 4.2.3.9).
pub(crate) fn disable(socket: BorrowedFd<'_>, is_ipv6: bool) -> io::Result<()> {
    ask(socket, is_ipv6, false)
}

fn ask(socket: BorrowedFd<'_>, is_ipv6: bool, on: bool) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, on).or_else(|error| {
        // A socket for IPv6 alone has no IPv4 options.
        if is_ipv6 { Ok(()) } else { Err(error) }
    })?;
    if is_ipv6 { set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, on) } else { Ok(()) }
}

fn set(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, on: bool) -> io::Result<()> {
    let on = libc::c_int::from(on);
    let len = mem::size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is an int that outlives the call, and the length is its size.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const on).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes one error from the queue: `Some(Some(_))` when it says that a datagram's destination cannot
/// be reached, and why; `Some(None)` when it says something else, `None` at the end.
pub(super) fn next(socket: BorrowedFd<'_>) -> Option<Option<(SocketAddr, Unreachable)>> {
    let (destination, error) = take(socket)?;
    Some(destination.zip(error.and_then(unreachable)))
}

/// Whether one of the errors in the queue is an ICMP message that says that a firewall forbids it
/// (RFC 792 and RFC 1812, 5.2.7.1), for which the kernel has no error number of its own.
pub(crate) fn is_forbidden(socket: BorrowedFd<'_>) -> bool {
    const DESTINATION_UNREACHABLE: u8 = 3;
    /// Communication with the network, the host, or at all is administratively prohibited.
    const PROHIBITED: [u8; 3] = [9, 10, 13];
    let errors = iter::from_fn(|| take(socket)).filter_map(|(_, error)| error);
    errors.take(MAX_ERRORS).any(|error| {
        error.ee_origin == libc::SO_EE_ORIGIN_ICMP
            && error.ee_type == DESTINATION_UNREACHABLE
            && PROHIBITED.contains(&error.ee_code)
    })
}

/// Takes one error from the queue, with the destination of the packet that met it.
fn take(socket: BorrowedFd<'_>) -> Option<(Option<SocketAddr>, Option<libc::sock_extended_err>)> {
    #[repr(align(8))]
    struct Control([u8; CONTROL]);
    let mut control = Control([0; CONTROL]);
    let mut byte = [0u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    // SAFETY: all zeros is a valid message header.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: all of the header's pointers are to live buffers of the sizes that it states, and
    // the kernel writes the address and its length into the storage that `try_init` gives.
    let received = unsafe {
        SockAddr::try_init(|storage, len| {
            message.msg_name = storage.cast();
            message.msg_namelen = *len;
            if libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) < 0 {
                return Err(io::Error::last_os_error());
            }
            *len = message.msg_namelen;
            Ok(())
        })
    };
    let ((), destination) = received.ok()?;
    Some((destination.as_socket(), extended(&message)))
}

fn unreachable(error: libc::sock_extended_err) -> Option<Unreachable> {
    match error.ee_errno as i32 {
        libc::ECONNREFUSED => Some(Unreachable::Port),
        // So the kernel has what ICMPv6 calls prohibited, or against a policy (RFC 4443, 3.1).
        libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EACCES => Some(Unreachable::Address),
        _ => None,
    }
}

/// What the kernel says of an error.
fn extended(message: &libc::msghdr) -> Option<libc::sock_extended_err> {
    // SAFETY: the kernel filled the control buffer, which the header still points to; the macros
    // stay within the length that it stated, and data is read unaligned.
    unsafe {
        let mut item = libc::CMSG_FIRSTHDR(message);
        while !item.is_null() {
            let kind = ((*item).cmsg_level, (*item).cmsg_type);
            let error =
                [(libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)];
            if error.contains(&kind) {
                let data = libc::CMSG_DATA(item).cast::<libc::sock_extended_err>();
                return Some(data.read_unaligned());
            }
            item = libc::CMSG_NXTHDR(message, item);
        }
    }
    None
}

/// Datagrams that arrived and for which the socket's buffer had no room (SO_MEMINFO).
pub(super) fn drops(socket: BorrowedFd<'_>) -> io::Result<u64> {
    /// SK_MEMINFO_DROPS of linux/sock_diag.h, and the number of values there.
    const DROPS: usize = 8;
    let mut values = [0u32; DROPS + 1];
    let mut len = mem::size_of_val(&values) as libc::socklen_t;
    // SAFETY: the buffer is as long as stated.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(values[DROPS].into()) } else { Err(io::Error::last_os_error()) }
}

//! Batches of datagrams from a socket, each batch joined by GRO, with what the kernel says of them.
//!
//! quinn-udp has room for 96 bytes of that. A batch that GRO has joined comes with up to 120: the time stamp, the length
//! of a datagram, the address that it was sent to and, last and so the one that is left out, the mark of congestion.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::time::Duration;

use socket2::SockAddr;
use transport::Received;
use units::Instant;

/// Batches that one call receives at most.
const BATCHES: usize = 32;
/// Room for a batch that GRO has joined.
const BUFFER: usize = 64 << 10;
/// Room for what the kernel says beside one.
const CONTROL: usize = 256;
/// A datagram is not taken to have waited longer in the socket's buffer: the wall clock was set.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// Congestion experienced (RFC 3168, section 5), of the two bits for it.
const CE: u8 = 3;

#[derive(Clone, Copy)]
#[repr(align(8))]
struct Control([u8; CONTROL]);

/// What one receive call fills.
pub(super) struct Buffers {
    bytes: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    batches: Vec<Batch>,
}

/// Datagrams that came together: all of `stride` bytes, the last perhaps shorter.
struct Batch {
    len: usize,
    from: SocketAddr,
    said: Said,
}

/// What the kernel says of one.
struct Said {
    stride: usize,
    /// The address that it was sent to.
    to: Option<IpAddr>,
    ce: bool,
    /// When it came, by the wall clock.
    stamp: Option<Duration>,
}

impl Buffers {
    pub(super) fn new() -> Self {
        // SAFETY: all zeros is a valid address, of no family.
        let name: libc::sockaddr_storage = unsafe { mem::zeroed() };
        Self {
            bytes: vec![0; BUFFER * BATCHES],
            names: vec![name; BATCHES],
            controls: vec![Control([0; CONTROL]); BATCHES],
            batches: Vec::with_capacity(BATCHES),
        }
    }

    /// Receives what waits, up to all that there is room for; how many batches came.
    ///
    /// # Errors
    /// `WouldBlock` when nothing waits.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.batches.clear();
        // SAFETY: all zeros is a valid header, with no buffers.
        let mut headers: [libc::mmsghdr; BATCHES] = unsafe { mem::zeroed() };
        let mut parts = [libc::iovec { iov_base: ptr::null_mut(), iov_len: BUFFER }; BATCHES];
        let places = self.bytes.chunks_exact_mut(BUFFER).zip(&mut self.names);
        for (index, ((bytes, name), control)) in places.zip(&mut self.controls).enumerate() {
            parts[index].iov_base = bytes.as_mut_ptr().cast();
            let header = &mut headers[index].msg_hdr;
            header.msg_name = ptr::from_mut(name).cast();
            header.msg_namelen = mem::size_of_val(name) as libc::socklen_t;
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL as _;
        }
        let (fd, first, flags) = (socket.as_raw_fd(), headers.as_mut_ptr(), libc::MSG_DONTWAIT);
        // SAFETY: so many headers there are, and all of their pointers are to live buffers of the sizes that they state,
        // which nothing else uses until they have been read.
        let count = unsafe { libc::recvmmsg(fd, first, BATCHES as _, flags as _, ptr::null_mut()) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for (header, name) in headers[..count].iter().zip(&self.names) {
            let len = header.msg_len as usize;
            let said = Said::of(&header.msg_hdr, len);
            let from = address(name, header.msg_hdr.msg_namelen);
            self.batches.push(Batch { len, from, said });
        }
        Ok(count)
    }

    /// The datagrams of the batches that came last; `now` and `wall` are the time on both clocks.
    pub(super) fn datagrams(
        &mut self,
        (now, wall): (Instant, Duration),
    ) -> impl Iterator<Item = Received<'_>> {
        let batches = self.bytes.chunks_exact_mut(BUFFER).zip(&self.batches);
        batches.flat_map(move |(bytes, Batch { len, from, said })| {
            // The kernel's stamp is of the wall clock; the same time ago on ours.
            let waited = said.stamp.map(|stamp| wall.saturating_sub(stamp));
            let arrived = now - waited.unwrap_or_default().min(MAX_WAIT);
            let datagrams = bytes[..*len].chunks_mut(said.stride.max(1));
            datagrams.map(move |bytes| Received {
                from: *from,
                to: said.to,
                arrived,
                ce: said.ce,
                bytes,
            })
        })
    }
}

/// An address that the kernel has written; a port of 0, which nobody can answer, where it wrote none.
fn address(name: &libc::sockaddr_storage, len: libc::socklen_t) -> SocketAddr {
    if len == 0 {
        return (Ipv4Addr::UNSPECIFIED, 0).into();
    }
    // SAFETY: what is given is as large as an address may be, and the kernel wrote so much of it.
    let known = unsafe {
        SockAddr::try_init(|storage, size| {
            storage.cast::<libc::sockaddr_storage>().write(*name);
            *size = len;
            Ok(())
        })
    };
    let known = known.ok().and_then(|((), address)| address.as_socket());
    known.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into())
}

impl Said {
    /// Of a batch of so many bytes.
    fn of(header: &libc::msghdr, len: usize) -> Self {
        debug_assert_eq!(header.msg_flags & libc::MSG_CTRUNC, 0, "the kernel had more to say");
        let mut said = Self { stride: len, to: None, ce: false, stamp: None };
        // SAFETY: the kernel filled the control buffer, which the header still points to, and the macros stay within the
        // length that it stated.
        unsafe {
            let mut item = libc::CMSG_FIRSTHDR(header);
            while !item.is_null() {
                said.take(&*item, libc::CMSG_DATA(item));
                item = libc::CMSG_NXTHDR(header, item);
            }
        }
        said
    }

    /// Takes in an item of the control buffer, whose data is there.
    ///
    /// # Safety
    /// The item and its data are as the kernel has written them.
    unsafe fn take(&mut self, item: &libc::cmsghdr, data: *const u8) {
        // SAFETY: of such an item the data is such a value, which may stand anywhere.
        unsafe {
            match (item.cmsg_level, item.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_TOS) => self.ce = *data & CE == CE,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    self.ce = data.cast::<libc::c_int>().read_unaligned() as u8 & CE == CE;
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    self.to = Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    self.to = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let stride = data.cast::<libc::c_int>().read_unaligned();
                    self.stride = usize::try_from(stride).unwrap_or_default();
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let stamp = data.cast::<libc::timespec>().read_unaligned();
                    let seconds = u64::try_from(stamp.tv_sec).unwrap_or_default();
                    let nanos = u32::try_from(stamp.tv_nsec).unwrap_or_default();
                    self.stamp = Some(Duration::new(seconds, nanos));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use quinn_udp::{EcnCodepoint, Transmit, UdpSockRef, UdpSocketState};

    use super::super::socket::BatchSocket;
    use super::*;
    use crate::clock;

    /// Everything that the kernel says of a batch that it has joined is known: it comes as one, and all of it is marked.
    #[test]
    fn marks_of_congestion_survive_gro() {
        for home in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let socket = BatchSocket::bind(home.parse().unwrap(), false).unwrap();
            let port = socket.local_address().unwrap().port();
            let ways = match home {
                "[::]:0" => vec!["127.0.0.1", "::1"],
                one => vec![one.rsplit_once(':').unwrap().0.trim_matches(['[', ']'])],
            };
            for to in ways {
                let to: IpAddr = to.parse().unwrap();
                let any = if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
                let sender = std::net::UdpSocket::bind(any).unwrap();
                let state = UdpSocketState::new(UdpSockRef::from(&sender)).unwrap();
                let transmit = Transmit {
                    destination: (to, port).into(),
                    ecn: Some(EcnCodepoint::Ce),
                    contents: &[7; 4500],
                    segment_size: Some(1000),
                    src_ip: None,
                };
                let wall = clock::both().1;
                state.try_send(UdpSockRef::from(&sender), &transmit).unwrap();
                let mut buffers = Buffers::new();
                assert_eq!(buffers.receive(socket.as_fd()).unwrap(), 1, "GRO joins them");
                let stamp = buffers.batches[0].said.stamp.expect("a stamp");
                assert!(stamp.abs_diff(wall) < Duration::from_secs(5), "{stamp:?}, {wall:?}");
                let datagrams: Vec<_> = buffers.datagrams(clock::both()).collect();
                let lengths: Vec<_> = datagrams.iter().map(|it| it.bytes.len()).collect();
                assert_eq!(lengths, [1000, 1000, 1000, 1000, 500]);
                for it in &datagrams {
                    assert!(it.ce, "{home}, {to}");
                    assert_eq!(it.to.unwrap().to_canonical(), to);
                    assert_eq!(it.from.port(), sender.local_addr().unwrap().port());
                    assert_eq!(it.from.ip().to_canonical(), to);
                }
            }
        }
    }

    #[test]
    fn what_does_not_wait_is_not_waited_for() {
        let socket = BatchSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), false).unwrap();
        let error = Buffers::new().receive(socket.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}

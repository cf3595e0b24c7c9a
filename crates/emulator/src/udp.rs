//! UDP sockets that carry many datagrams a call (GSO and GRO).

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};

/// What a socket may hold while the thread is busy; users other than root get less (`rmem_max`).
const RECEIVE_BUFFER: usize = 16 << 20;

/// Where the drops are in the array that SO_MEMINFO returns, and how long it is
/// (`linux/sock_diag.h`).
const MEMINFO_DROPS: usize = 8;
const MEMINFO_LEN: usize = 9;

/// Datagrams received together: all of `stride` bytes, the last perhaps shorter.
pub(crate) struct Received {
    pub(crate) len: usize,
    pub(crate) stride: usize,
    pub(crate) from: SocketAddr,
    pub(crate) ecn: Option<EcnCodepoint>,
}

/// A non-blocking UDP socket.
pub(crate) struct Udp {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl Udp {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        if set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).is_err() {
            set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
        }
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        forgo_stamps(&socket)?;
        Ok(Self { socket, state })
    }

    pub(crate) fn connect(self, to: SocketAddr) -> io::Result<Self> {
        self.socket.connect(to)?;
        Ok(self)
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub(crate) fn receive(&self, space: &mut [u8]) -> io::Result<Received> {
        let mut meta = [RecvMeta::default()];
        self.state.recv((&self.socket).into(), &mut [IoSliceMut::new(space)], &mut meta)?;
        let [RecvMeta { addr: from, len, stride, ecn, .. }] = meta;
        Ok(Received { len, stride, from, ecn })
    }

    /// Sends `contents` as datagrams of `stride` bytes, in as few calls as the kernel allows.
    pub(crate) fn send(
        &self,
        contents: &[u8],
        stride: usize,
        destination: SocketAddr,
        ecn: Option<EcnCodepoint>,
    ) -> io::Result<()> {
        let batch = stride * self.state.max_gso_segments();
        let mut rest = contents;
        loop {
            let (contents, later) = rest.split_at(batch.min(rest.len()));
            let segment_size = (contents.len() > stride).then_some(stride);
            let transmit = Transmit { destination, ecn, contents, segment_size, src_ip: None };
            self.state.try_send((&self.socket).into(), &transmit)?;
            rest = later;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Datagrams that came while the socket's buffer was full.
    pub(crate) fn overflow(&self) -> u64 {
        let mut info = [0u32; MEMINFO_LEN];
        let mut len = size_of_val(&info) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, the size of `info`, and any bytes are
        // valid for it.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                info.as_mut_ptr().cast(),
                &mut len,
            )
        };
        if result == 0 { u64::from(info[MEMINFO_DROPS]) } else { 0 }
    }
}

/// quinn-udp asks for time stamps, beside which it has no room for the mark of congestion of a batch that GRO has joined.
fn forgo_stamps(socket: &UdpSocket) -> io::Result<()> {
    let off: libc::c_int = 0;
    // SAFETY: the value is an int that outlives the call, and the length is its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const off).cast(),
            size_of_val(&off) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_congestion_survive_gro() {
        let socket = Udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_address().unwrap();
        let sender = Udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        sender.send(&[7; 4500], 1000, address, Some(EcnCodepoint::Ce)).unwrap();
        let received = socket.receive(&mut [0; 65536]).unwrap();
        assert_eq!((received.len, received.stride), (4500, 1000), "GRO joins them");
        assert_eq!(received.ecn, Some(EcnCodepoint::Ce));
    }
}

//! What the kernel knows about the connections of a stream (`TCP_INFO`).

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use tokio::net::TcpStream;
use units::Bytes;

/// A striped stream's figures since its connections were opened.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Payload handed to the kernel.
    pub sent: Bytes,
    /// Payload received.
    pub received: Bytes,
    /// Time since the stream was opened.
    pub elapsed: Duration,
    /// How many TCP connections it has.
    pub connections: usize,
    /// The smallest round-trip time any connection saw; `None` before the first sample.
    pub rtt_min: Option<Duration>,
    /// The smoothed round-trip time, its mean over the connections.
    pub rtt_smoothed: Option<Duration>,
    /// Segments with payload that were sent, all connections together, repeated ones included.
    pub segments_sent: u64,
    /// Segments that were sent again.
    pub segments_resent: u64,
    /// Time with something to send, summed over the connections.
    pub busy: Duration,
    /// The part of `busy` that the receiver's window stopped.
    pub window_limited: Duration,
    /// The part of `busy` that the kernel's send buffer stopped.
    pub buffer_limited: Duration,
}

/// What kept a stream from sending faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Mostly there was nothing to send: the source, or whoever writes, is the slower.
    Application,
    /// The network: TCP's congestion control held back.
    Congestion,
    /// The receiver's window: its reader, or its buffer limit `net.ipv4.tcp_rmem`.
    ReceiveWindow,
    /// The sender's buffer: `net.ipv4.tcp_wmem` is too small for this path.
    SendBuffer,
}

impl Stats {
    /// Sums up. A connection of which the kernel says nothing counts as idle.
    pub(super) fn collect(
        sockets: &[TcpStream],
        sent: Bytes,
        received: Bytes,
        elapsed: Duration,
    ) -> Self {
        let mut stats =
            Self { sent, received, elapsed, connections: sockets.len(), ..Self::default() };
        let mut smoothed = Vec::with_capacity(sockets.len());
        for info in sockets.iter().filter_map(|s| tcp_info(s.as_fd()).ok()) {
            let known = |micros: u32| (micros > 0 && micros < u32::MAX).then_some(micros.into());
            let rtt_min = known(info.min_rtt).map(Duration::from_micros);
            stats.rtt_min = stats.rtt_min.into_iter().chain(rtt_min).min();
            smoothed.extend(known(info.rtt).map(Duration::from_micros));
            stats.segments_sent += u64::from(info.data_segs_out);
            stats.segments_resent += u64::from(info.total_retrans);
            stats.busy += Duration::from_micros(info.busy_time);
            stats.window_limited += Duration::from_micros(info.rwnd_limited);
            stats.buffer_limited += Duration::from_micros(info.sndbuf_limited);
        }
        let mean = |samples: &[Duration]| samples.iter().sum::<Duration>() / samples.len() as u32;
        stats.rtt_smoothed = (!smoothed.is_empty()).then(|| mean(&smoothed));
        stats
    }

    /// What took the largest part of the time.
    pub fn limit(&self) -> Limit {
        let idle = (self.elapsed * self.connections as u32).saturating_sub(self.busy);
        let congested = self.busy.saturating_sub(self.window_limited + self.buffer_limited);
        let parts = [
            (congested, Limit::Congestion),
            (self.window_limited, Limit::ReceiveWindow),
            (self.buffer_limited, Limit::SendBuffer),
            (idle, Limit::Application),
        ];
        let largest = parts.into_iter().max_by_key(|&(time, _)| time);
        largest.expect("there are four parts").1
    }
}

/// The kernel's `struct tcp_info` (`linux/tcp.h`) as far as we read it; the C library's ends
/// before the newer fields. Fields without meaning for us are left nameless.
#[repr(C)]
struct TcpInfo {
    _state_to_options: [u8; 8],
    _rto_to_rcv_rtt: [u32; 15],
    rtt: u32,
    _rttvar_to_rcv_space: [u32; 7],
    total_retrans: u32,
    _pacing_to_bytes_received: [u64; 4],
    _segs_out_to_notsent: [u32; 3],
    min_rtt: u32,
    _data_segs_in: u32,
    data_segs_out: u32,
    _delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
}

fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    // SAFETY: all fields are integers, for which zero is a value. An older kernel that fills only
    // the front leaves zeros behind.
    let mut info: TcpInfo = unsafe { zeroed() };
    let mut length = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: the descriptor is open while borrowed, and the kernel writes at most `length` bytes
    // to `info`, which is that large.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

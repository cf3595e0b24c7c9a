//! What the kernel knows about the connections of a stream (`TCP_INFO`).

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use stripe::count::{Law, Sample, System};
use tokio::net::TcpStream;
use units::{Bytes, Instant};

use super::options::MAX_STREAMS;

/// Segments that BBR leaves on the way while it looks at the round-trip time.
const RESTING: u32 = 4;

/// A striped stream's figures since its connections were opened.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Payload that the other side has confirmed.
    pub sent: Bytes,
    /// Payload received.
    pub received: Bytes,
    /// Time since the stream was opened.
    pub elapsed: Duration,
    /// The most TCP connections it had at a time.
    pub connections: usize,
    /// How many it has now.
    pub connected: usize,
    /// How many it should have, as its policy and the other side's saw it last.
    pub target: usize,
    /// What the policy of the side that sends learnt of the destination, if it is one that does.
    pub system: Option<System>,
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

/// What connections did that are gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    /// Bytes that the other side's kernel has confirmed.
    acked: u64,
    segments_sent: u64,
    segments_resent: u64,
    segments_arrived: u64,
    busy: Duration,
    window_limited: Duration,
    buffer_limited: Duration,
    /// Round-trip times of the last that went: smoothed and least.
    rtt: Option<Duration>,
    rtt_min: Option<Duration>,
}

impl Totals {
    /// What a controller is to know of the connections in use; the others count with what they did.
    /// `echoed` are the round-trip time and the least of it where the kernel's are not wanted. `None`
    /// while there are none.
    pub fn sample<S: AsFd>(
        mut self,
        now: Instant,
        sockets: &[S],
        echoed: Option<(Duration, Duration)>,
    ) -> Option<Sample> {
        let infos = infos(sockets);
        infos.iter().for_each(|info| self.add_info(info));
        let name = sockets.first().and_then(|socket| SockRef::from(socket).tcp_congestion().ok());
        let Condition { rtt, rtt_least, rtt_min, window, segment } = Condition::of_infos(&infos);
        let (rtt, base_rtt) = echoed.or(rtt.zip(rtt_min))?;
        let least_rtt = if echoed.is_some() { rtt } else { rtt_least? };
        Some(Sample {
            now,
            connections: sockets.len(),
            resting: infos.iter().filter(|info| info.snd_cwnd <= RESTING).count(),
            most: MAX_STREAMS,
            delivered: Bytes(self.acked),
            rtt,
            least_rtt,
            base_rtt,
            window,
            segment,
            sent: self.segments_sent,
            resent: self.segments_resent,
            arrived: self.segments_arrived,
            lost: self.segments_resent + infos.iter().map(TcpInfo::missing).sum::<u64>(),
            paced: false,
            // The kernel fills up with zeros.
            law: name.map_or(Law::Unknown, |name| {
                Law::of(name.split(|&byte| byte == 0).next().unwrap_or_default())
            }),
            idle: infos.iter().filter(|info| info.notsent == 0).count() * 4 > infos.len(),
        })
    }

    /// For how long the kernel's send buffers were too small.
    pub fn buffer_limited(&self) -> Duration {
        self.buffer_limited
    }

    /// Adds one. A connection of which the kernel says nothing counts as idle.
    pub fn add(&mut self, socket: &impl AsFd) {
        if let Ok(info) = tcp_info(socket.as_fd()) {
            self.add_info(&info);
            let condition = Condition::of_infos(&[info]);
            self.rtt = condition.rtt.or(self.rtt);
            self.rtt_min = self.rtt_min.into_iter().chain(condition.rtt_min).min();
        }
    }

    fn add_info(&mut self, info: &TcpInfo) {
        self.acked += info.acked;
        self.segments_sent += u64::from(info.data_segs_out);
        self.segments_resent += u64::from(info.total_retrans);
        self.segments_arrived += u64::from(info.delivered);
        self.busy += Duration::from_micros(info.busy_time);
        self.window_limited += Duration::from_micros(info.rwnd_limited);
        self.buffer_limited += Duration::from_micros(info.sndbuf_limited);
    }
}

/// What the living connections are like, on average.
#[derive(Clone, Copy, Debug, Default)]
struct Condition {
    /// The smoothed round-trip time, its mean over the connections.
    rtt: Option<Duration>,
    /// The least of these.
    rtt_least: Option<Duration>,
    /// The smallest that any of them saw.
    rtt_min: Option<Duration>,
    /// What a connection may have on its way, in whole segments.
    window: Bytes,
    /// Payload of a full segment.
    segment: Bytes,
}

impl Condition {
    fn of_infos(infos: &[TcpInfo]) -> Self {
        let known = |micros: u32| {
            (micros > 0 && micros < u32::MAX).then(|| Duration::from_micros(micros.into()))
        };
        let smoothed: Vec<_> = infos.iter().filter_map(|info| known(info.rtt)).collect();
        let mean = |of: fn(&TcpInfo) -> u64| {
            Bytes(infos.iter().map(of).sum::<u64>() / infos.len().max(1) as u64)
        };
        Self {
            rtt: (!smoothed.is_empty())
                .then(|| smoothed.iter().sum::<Duration>() / smoothed.len() as u32),
            rtt_least: smoothed.iter().min().copied(),
            rtt_min: infos.iter().filter_map(|info| known(info.min_rtt)).min(),
            window: mean(TcpInfo::window),
            segment: mean(|info| info.snd_mss.into()),
        }
    }
}

impl Stats {
    /// Sums up what the kernel knows.
    pub(super) fn collect(sockets: &[Arc<TcpStream>], mut totals: Totals) -> Self {
        let infos = infos(sockets);
        infos.iter().for_each(|info| totals.add_info(info));
        let condition = Condition::of_infos(&infos);
        Self {
            rtt_min: totals.rtt_min.into_iter().chain(condition.rtt_min).min(),
            rtt_smoothed: condition.rtt.or(totals.rtt),
            segments_sent: totals.segments_sent,
            segments_resent: totals.segments_resent,
            busy: totals.busy,
            window_limited: totals.window_limited,
            buffer_limited: totals.buffer_limited,
            ..Self::default()
        }
    }

    /// What took the largest part of the time.
    pub fn limit(&self) -> Limit {
        let idle = (self.elapsed * self.connections.max(1) as u32).saturating_sub(self.busy);
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
    _rto_ato: [u32; 2],
    snd_mss: u32,
    _rcv_mss_to_sacked: [u32; 3],
    lost: u32,
    retrans: u32,
    _fackets_to_rcv_ssthresh: [u32; 7],
    rtt: u32,
    _rttvar_ssthresh: [u32; 2],
    snd_cwnd: u32,
    _advmss_to_rcv_space: [u32; 4],
    total_retrans: u32,
    /// What it sends a second, and at most.
    pacing: [u64; 2],
    acked: u64,
    _bytes_received: u64,
    _segs_out_in: [u32; 2],
    notsent: u32,
    min_rtt: u32,
    _data_segs_in: u32,
    data_segs_out: u32,
    _delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    _delivered_ce: u32,
    _bytes_sent_retrans: [u64; 2],
    _dsack_dups_to_rcv_ooopack: [u32; 3],
    /// The receiver's window; zero from kernels before 5.4.
    snd_wnd: u32,
}

impl TcpInfo {
    /// Segments that are lost and not sent again yet: the kernel keeps those that are among the lost
    /// until they have arrived.
    fn missing(&self) -> u64 {
        self.lost.saturating_sub(self.retrans).into()
    }

    /// What may be on its way: by congestion control and by the receiver, in whole segments.
    fn window(&self) -> u64 {
        let segment = u64::from(self.snd_mss.max(1));
        let congestion = u64::from(self.snd_cwnd) * segment;
        let receiver = if self.snd_wnd > 0 { self.snd_wnd.into() } else { u64::MAX };
        congestion.min(receiver) / segment * segment
    }
}

/// Bytes in a socket's send queue: the other end has not acknowledged them (tcp(7), SIOCOUTQ).
pub fn unacknowledged(socket: &impl AsFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open while borrowed, and this request writes one int.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { bytes.max(0) as u64 } else { 0 }
}

/// The bytes a second at which a connection's congestion control lets it send, and how many the other
/// side has confirmed; zeros when the kernel does not say.
pub(super) fn sending(socket: &impl AsFd) -> [u64; 2] {
    tcp_info(socket.as_fd()).map_or([0; 2], |info| [info.pacing[0], info.acked])
}

/// Of those of which the kernel says something.
fn infos<S: AsFd>(sockets: &[S]) -> Vec<TcpInfo> {
    sockets.iter().filter_map(|socket| tcp_info(socket.as_fd()).ok()).collect()
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

#[cfg(test)]
mod tests {
    use units::Rate;

    use super::super::options::limit_rate;
    use super::*;

    #[test]
    fn what_was_sent_again_is_not_lost_twice() {
        use std::mem::offset_of;
        assert_eq!(offset_of!(TcpInfo, lost), offset_of!(libc::tcp_info, tcpi_lost));
        assert_eq!(offset_of!(TcpInfo, retrans), offset_of!(libc::tcp_info, tcpi_retrans));
        // SAFETY: all fields are integers, for which zero is a value.
        let info = TcpInfo { lost: 7, retrans: 5, ..unsafe { zeroed() } };
        assert_eq!(info.missing(), 2);
        // Others than those that are lost may have been sent again.
        assert_eq!(TcpInfo { retrans: 9, ..info }.missing(), 0);
    }

    #[test]
    fn a_limit_of_the_rate_reaches_the_kernel_and_is_lifted_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for (rate, bytes) in
            [(Some(Rate::from_bits_per_sec(80_000_000)), 10_000_000), (None, u64::MAX)]
        {
            limit_rate(&socket, rate);
            assert_eq!(tcp_info(socket.as_fd()).unwrap().pacing[1], bytes);
        }
    }
}

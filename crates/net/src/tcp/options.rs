//! What the kernel is told about each connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use units::{Bytes, Rate};

use crate::error::NetError;

/// The most connections one stream may have.
pub const MAX_STREAMS: usize = stripe::count::MAX_CONNECTIONS;

/// The default of [`Options::buffer`]: two seconds of 1 Gbit/s, so that some connections may wait for
/// retransmissions over a 200 ms path while the others go on.
pub const DEFAULT_BUFFER: Bytes = Bytes::mib(256);

/// A connection whose data nobody acknowledges for so long is given up; the kernel alone would try
/// for a quarter of an hour.
const UNANSWERED: Duration = Duration::from_secs(60);

/// What is used when none is named: random losses do not slow it down.
const PREFERRED: &[u8] = b"bbr";

/// A silent connection is probed after this time,
const KEEPALIVE_TIME: Duration = Duration::from_secs(15);
/// again and again with this interval,
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// and given up after so many unanswered probes.
const KEEPALIVE_PROBES: u32 = 4;

/// Where round-trip times come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RttSource {
    /// The kernel's own, of the connections (`TCP_INFO`).
    #[default]
    Tcp,
    /// ICMP echoes, which any host may answer.
    Icmp,
    /// UDP echoes of paper 3, which our servers answer.
    Udp,
}

/// How the TCP connections of a stream are set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The kernel's congestion control by its name there, such as `cubic` or `bbr`; `None` takes
    /// `bbr` where that is to be had, and the system's default elsewhere. It rules what this end
    /// sends.
    pub congestion_control: Option<String>,
    /// The most a stream holds of what came out of order or was not yet read, and the most of what
    /// it sent and the other side has not confirmed; but 1 MiB at least.
    pub buffer: Bytes,
    /// Where a client has the round-trip time from that the controller of whoever sends goes by: it
    /// tells the server what it sees.
    pub rtt: RttSource,
    /// The most connections that a client opens for a stream, whatever is asked for; 1 to
    /// [`MAX_STREAMS`].
    pub most: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            congestion_control: None,
            buffer: DEFAULT_BUFFER,
            rtt: RttSource::Tcp,
            most: MAX_STREAMS,
        }
    }
}

impl Options {
    /// Applies the options to a socket, listening or connecting. The buffer sizes are left alone:
    /// setting them would end the kernel's own tuning, which is what fills a long path.
    pub(super) fn apply(&self, socket: SockRef<'_>) -> Result<(), NetError> {
        let refused = |error| NetError::Option {
            reason: format!("the kernel does not take an option of a TCP socket: {error}"),
        };
        tune(&socket).map_err(refused)?;
        set_congestion_control(&socket, self.congestion_control.as_deref())
    }
}

/// Sets what rules what this end of a TCP connection sends, as [`Options::congestion_control`] has it.
///
/// # Errors
/// When the kernel does not offer what is named.
pub fn set_congestion_control(socket: &SockRef<'_>, name: Option<&str>) -> Result<(), NetError> {
    let Some(name) = name else {
        // Not every kernel has it, nor lets everybody use it.
        let _ = socket.set_tcp_congestion(PREFERRED);
        return Ok(());
    };
    let congestion_control = socket.set_tcp_congestion(name.as_bytes());
    congestion_control.map_err(|error| NetError::Option {
        reason: format!(
            "the kernel does not offer the congestion control '{name}' ({error}); see `sysctl \
             net.ipv4.tcp_allowed_congestion_control`, or load it with `modprobe tcp_{name}`"
        ),
    })
}

fn tune(socket: &SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNANSWERED))?;
    socket.set_tcp_nodelay(true)
}

/// Takes no more for a connection while so many bytes wait unsent in the kernel.
pub(super) fn limit_unsent(socket: &impl AsFd, bytes: u32) {
    // Without it all goes as well, but what waits can no longer go to a faster connection.
    let _ = SockRef::from(socket).set_tcp_notsent_lowat(bytes);
}

/// Bytes a second: none means no limit at all to the kernel.
const LEAST_RATE: libc::c_ulong = 1000;

/// Keeps a connection from sending faster; `None` for no limit.
pub(super) fn limit_rate(socket: &impl AsFd, rate: Option<Rate>) {
    let bytes = |rate: Rate| (rate.as_bits_per_sec().div_ceil(8) as libc::c_ulong).max(LEAST_RATE);
    let bytes = rate.map_or(libc::c_ulong::MAX, bytes);
    // SAFETY: the descriptor is open while borrowed, and the kernel reads the one number whose size
    // it is told. Should it refuse, the connection sends as its congestion control has it.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
}

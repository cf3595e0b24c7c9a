//! What the kernel is told about each connection.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use units::Bytes;

use crate::error::NetError;

/// The most connections one stream may have.
pub const MAX_STREAMS: usize = 64;

/// The default of [`Options::buffer`]: a second of 500 Mbit/s, so that one connection may wait
/// for a retransmission over a 200 ms path while the others go on at 1 Gbit/s.
pub const DEFAULT_BUFFER: Bytes = Bytes::mib(64);

/// Unsent bytes in the kernel above which a connection counts as busy. What waits in the kernel
/// can no longer go to a faster connection; two records keep this one from running dry.
const UNSENT_LOW_WATER: u32 = 64 << 10;

/// A connection whose data nobody acknowledges for so long is given up; the kernel alone would try
/// for a quarter of an hour.
const UNANSWERED: Duration = Duration::from_secs(60);

/// A silent connection is probed after this time,
const KEEPALIVE_TIME: Duration = Duration::from_secs(15);
/// again and again with this interval,
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// and given up after so many unanswered probes.
const KEEPALIVE_PROBES: u32 = 4;

/// How the TCP connections of a stream are set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The kernel's congestion control by its name there, such as `cubic` or `bbr`; `None` leaves
    /// the system's default. It rules what this end sends.
    pub congestion_control: Option<String>,
    /// The most a stream holds of what came out of order or was not yet read.
    pub buffer: Bytes,
}

impl Default for Options {
    fn default() -> Self {
        Self { congestion_control: None, buffer: DEFAULT_BUFFER }
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
        let Some(name) = &self.congestion_control else {
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
}

fn tune(socket: &SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNANSWERED))?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_LOW_WATER)
}

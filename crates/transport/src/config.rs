//! What can be set.

use core::time::Duration;

use units::{Bytes, Rate};

use crate::cc::Algorithm;
use crate::streams::Limits;

/// Settings of a connection. Defaults suit any path: windows grow to what it needs.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The congestion controller.
    pub congestion: Algorithm,
    /// Never send faster than this.
    pub rate_limit: Option<Rate>,
    /// The most memory for what arrived and was not read, of all streams together, and for what
    /// a stream wrote and the other end has not confirmed.
    pub receive_memory: Bytes,
    /// Streams that the other end may have open at a time.
    pub max_streams: u64,
    /// Without any authentic packet for so long, the connection is lost.
    pub idle_timeout: Duration,
    /// After so long without sending, a ping keeps the connection alive.
    pub keep_alive: Duration,
    /// How long to wait for an answer to the first hello.
    pub connect_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            congestion: Algorithm::default(),
            rate_limit: None,
            receive_memory: Bytes::mib(512),
            max_streams: 1024,
            idle_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// A stream's window at its start, half that of the connection: ahead of the first round trips
/// of any start.
const START_WINDOW: Bytes = Bytes::mib(32);
/// Bytes written but not sent that a stream holds: 60 ms at 1 Gbit/s.
const UNSENT: Bytes = Bytes::mib(8);

impl Config {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            stream_window: (START_WINDOW.0, self.receive_memory.0),
            connection_window: (START_WINDOW.0 * 2, self.receive_memory.0),
            streams: self.max_streams,
            unsent: UNSENT.0,
            held: self.receive_memory.0.max(UNSENT.0),
        }
    }
}

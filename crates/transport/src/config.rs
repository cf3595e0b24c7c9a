//! What can be set.

use core::str::FromStr;
use core::time::Duration;

use units::{Bytes, Rate};

use crate::cc::{Algorithm, Remembered};
use crate::crypto::{KEY_PACKETS, Sealing};
use crate::streams::{EARLY_STREAMS, Limits};
use crate::wire::{SPOKEN, Versions};

/// How a sender learns what has arrived. Both ends must have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeedbackKind {
    /// The receiver tells its whole state periodically (paper 5), and the sender sees what is missing.
    #[default]
    Periodic = 0,
    /// The receiver acknowledges each packet as it arrives, and the sender sends again what was
    /// not acknowledged in time: what paper 5 compares the other with.
    PositiveAck = 1,
}

/// There is no such kind of feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such feedback; write periodic or positive-ack")]
pub struct UnknownFeedback;

impl FromStr for FeedbackKind {
    type Err = UnknownFeedback;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "periodic" => Ok(Self::Periodic),
            "positive-ack" => Ok(Self::PositiveAck),
            _ => Err(UnknownFeedback),
        }
    }
}

/// Settings of a connection. Defaults suit any path: windows grow to what it needs.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The congestion controller.
    pub congestion: Algorithm,
    /// What an earlier connection learnt of the path (see [`Remembered`]).
    pub remembered: Option<Remembered>,
    /// How the ends tell each other what has arrived.
    pub feedback: FeedbackKind,
    /// The time between two periodic reports; `None`: RTT/32, between 1 and 10 ms, and longer where
    /// reports would be more than 1% of what arrives.
    pub report_interval: Option<Duration>,
    /// How old a packet must be to be given up for lost. `None`: as old as an acknowledgement may
    /// take to come; with periodic reports no age, for they show what is missing.
    pub retransmit_after: Option<Duration>,
    /// Keep a [`crate::trace::Record`] of each step, for [`crate::Connection::take_records`].
    pub trace: bool,
    /// Never send faster than this.
    pub rate_limit: Option<Rate>,
    /// The most memory for what arrived and was not read, of all streams together, and for what
    /// a stream wrote and the other end has not confirmed.
    pub receive_memory: Bytes,
    /// The most memory for what was written and not sent, of all streams together; beside it
    /// each stream may hold 64 KiB.
    pub send_memory: Bytes,
    /// Streams that the other end may have open at a time; at least 64.
    pub max_streams: u64,
    /// With more than this written and not sent, no stream is opened here, and the other end is
    /// not let open further ones while as much waits there (paper 5).
    pub admission: Option<Bytes>,
    /// Without any authentic packet for so long, the connection is lost; the shorter of both ends'
    /// times counts.
    pub idle_timeout: Duration,
    /// After so long without receiving, or a third of the idle time-out, a ping keeps the connection
    /// alive.
    pub keep_alive: Duration,
    /// How long to wait for an answer to the first hello.
    pub connect_timeout: Duration,
    /// Packets sealed under one key; never more than [`KEY_PACKETS`].
    pub key_packets: u64,
    /// Versions of the protocol to speak.
    pub versions: Versions,
    /// Whether packets are sealed: outside of simulations they are.
    pub sealing: Sealing,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            congestion: Algorithm::default(),
            remembered: None,
            feedback: FeedbackKind::default(),
            report_interval: None,
            retransmit_after: None,
            trace: false,
            rate_limit: None,
            receive_memory: Bytes::mib(512),
            send_memory: Bytes::mib(512),
            max_streams: 1 << 14,
            admission: None,
            idle_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            key_packets: KEY_PACKETS,
            versions: SPOKEN,
            sealing: Sealing::default(),
        }
    }
}

/// The first credit of a stream: what a reader that never reads holds of the other end's memory.
const STREAM_CREDIT: u64 = 64 << 10;
/// The first credit of the connection, ahead of the first round trips of any start.
const CONNECTION_CREDIT: u64 = 24 << 20;
/// Bytes written but not sent that a stream holds: 50 ms at 1 Gbit/s.
const UNSENT: u64 = 6 << 20;

impl Config {
    pub(crate) fn limits(&self) -> Limits {
        let memory = self.receive_memory.0;
        Limits {
            stream_credit: STREAM_CREDIT.min(memory),
            // It is lent beyond streams' windows: one that stalls must not fill the memory with it.
            connection_credit: CONNECTION_CREDIT.min(memory / 2),
            receive_memory: memory,
            streams: self.max_streams.max(EARLY_STREAMS),
            unsent: UNSENT,
            queued: self.send_memory.0,
            held: memory.max(UNSENT),
            admission: self.admission.map(|limit| limit.0),
        }
    }
}

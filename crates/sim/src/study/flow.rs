//! One flow: what is asked of it, and what a network asks of its two ends.

use core::time::Duration;

use smallvec::SmallVec;
use units::{Bytes, Instant, Rate};

use super::outcome::Documents;
use crate::tcp::{self, Segment, SenderStats, Source};

/// What carries a flow.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// A model of TCP.
    Tcp(tcp::Config),
    /// Our own transport: the product's code.
    Longhaul(transport::Config),
}

impl Protocol {
    /// In a word or two.
    pub fn name(&self) -> String {
        match self {
            Self::Tcp(config) => {
                format!("tcp {:?} {:?}", config.recovery, config.congestion).to_lowercase()
            }
            Self::Longhaul(config) => format!("longhaul {:?}", config.congestion).to_lowercase(),
        }
    }
}

/// A flow from one host to another across the path.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// What reports call it.
    pub name: String,
    /// What carries it.
    pub protocol: Protocol,
    /// What is sent.
    pub source: Source,
    /// When it begins.
    pub start: Duration,
    /// When it is cut off, if before the end.
    pub stop: Option<Duration>,
    /// Whether the latter of its ends sends.
    pub from_far: bool,
    /// The routers at its ends: `near` and `far`, or others.
    pub between: (usize, usize),
    /// Its host at the former, counted from 0, where that is the near side.
    pub near: usize,
    /// Its host at the latter, where that is the far side.
    pub far: usize,
}

/// What a packet carries.
#[derive(Clone)]
pub(super) enum Body {
    /// Of a TCP connection: its number, for a flow has one after the other.
    Segment(u32, Segment),
    /// Of our transport.
    Datagram(Trimmed),
}

/// A datagram of which the zeros at the end are not kept: nothing else is written by the
/// applications here, and what need not be stored need not be fetched when it arrives.
#[derive(Clone)]
pub(super) struct Trimmed {
    /// A queue may mark it, or has.
    pub(super) ecn_capable: bool,
    pub(super) ce: bool,
    /// In place, so that those in a queue lie side by side.
    head: SmallVec<[u8; HEAD]>,
    len: usize,
}

/// What else a datagram of data has, at most.
const HEAD: usize = 128;
/// Zeros are left out by so many.
const ZEROS: [u8; 64] = [0; 64];

impl Trimmed {
    pub(super) fn new(bytes: &[u8], ecn_capable: bool) -> Self {
        let chunks = bytes.rchunks_exact(ZEROS.len());
        let left_out = chunks.take_while(|chunk| **chunk == ZEROS).count() * ZEROS.len();
        let head = SmallVec::from_slice(&bytes[..bytes.len() - left_out]);
        Self { ecn_capable, ce: false, head, len: bytes.len() }
    }

    /// Puts the datagram into a buffer.
    pub(super) fn restore(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(&self.head);
        buffer.resize(self.len, 0);
    }
}

/// UDP and IPv4 headers.
pub(super) const HEADERS: u64 = 28;

impl Body {
    /// As an IP packet.
    pub(super) fn size(&self) -> Bytes {
        match self {
            Self::Segment(_, segment) => segment.size(),
            Self::Datagram(datagram) => Bytes(datagram.len as u64 + HEADERS),
        }
    }

    /// Whether a queue may mark it. Here TCP does without.
    pub(super) fn is_ecn_capable(&self) -> bool {
        matches!(self, Self::Datagram(datagram) if datagram.ecn_capable)
    }

    /// A queue has marked it.
    pub(super) fn mark(&mut self) {
        if let Self::Datagram(datagram) = self {
            datagram.ce = true;
        }
    }
}

/// The two ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

/// How a flow stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    /// Bytes that the receiving application has read.
    pub(super) delivered: u64,
    pub(super) rtt: Option<Duration>,
    pub(super) window: Bytes,
    /// At which it may send: of a window, that over the round-trip time.
    pub(super) rate: Option<Rate>,
    pub(super) sent: u64,
    pub(super) retransmitted: u64,
    pub(super) timeouts: u64,
    pub(super) documents: Documents,
    /// When all of a source with an end had arrived.
    pub(super) finished: Option<Instant>,
}

impl Standing {
    /// Of one TCP connection, without an end.
    pub(super) fn of_tcp(delivered: u64, stats: &SenderStats) -> Self {
        Self {
            delivered,
            rtt: stats.rtt.filter(|rtt| !rtt.is_zero()),
            window: stats.window,
            sent: stats.sent,
            retransmitted: stats.retransmitted,
            timeouts: stats.timeouts,
            ..Self::default()
        }
    }
}

/// A flow as the network sees it: two ends to which packets come and from which they go.
pub(super) trait Flow: Send {
    /// A packet arrives.
    fn arrive(&mut self, now: Instant, end: End, body: Body, out: &mut Vec<Body>);
    /// Does what is due at an end, and sends what may be sent.
    fn run(&mut self, now: Instant, end: End, out: &mut Vec<Body>);
    /// When an end is to be run next.
    fn next(&self, end: End) -> Option<Instant>;
    /// How it stands.
    fn standing(&self) -> Standing;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_arrive_as_they_were() {
        let mut buffer = vec![7; 9];
        for length in [0, 1, 63, 64, 65, 200] {
            for last in 0..length {
                let mut bytes = vec![0; length];
                bytes[last] = 1;
                let trimmed = Trimmed::new(&bytes, false);
                assert!(trimmed.head.len() <= last + ZEROS.len());
                trimmed.restore(&mut buffer);
                assert_eq!(buffer, bytes);
            }
        }
        Trimmed::new(&[0; 100], false).restore(&mut buffer);
        assert_eq!(buffer, [0; 100]);
    }
}

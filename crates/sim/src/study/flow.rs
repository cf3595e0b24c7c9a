//! One flow: what is asked of it, and what a network asks of its two ends.

use core::time::Duration;

use units::{Bytes, Instant, Rate};

use super::outcome::Documents;
use super::parcel::Parcel;
use super::striped::Striping;
use super::transit::{Inlet, Outlet};
use crate::tcp::{self, SenderStats, Source};

/// What carries a flow.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// A model of TCP.
    Tcp(tcp::Config),
    /// Many such connections for one stream, by the product's controllers.
    Striped(Striping),
    /// Our own transport: the product's code.
    Longhaul(transport::Config),
}

impl Protocol {
    /// In a word or two.
    pub fn name(&self) -> String {
        let tcp = |config: &tcp::Config| {
            format!("tcp {:?} {:?}", config.recovery, config.congestion).to_lowercase()
        };
        match self {
            Self::Tcp(config) => tcp(config),
            Self::Striped(striping) => {
                format!("{} x {}", striping.count(), tcp(&striping.connection))
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
    /// Those of one table are told of together: its number, from 0.
    pub table: usize,
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
    /// TCP connections that carry, of a stream that is striped.
    pub(super) connections: Option<u32>,
    pub(super) sent: u64,
    pub(super) retransmitted: u64,
    pub(super) timeouts: u64,
    pub(super) documents: Documents,
    /// When all of a source with an end had arrived; of a copy, when its client was through.
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
    fn arrive(&mut self, now: Instant, end: End, parcel: &Parcel, out: &mut Outlet<'_>);
    /// Does what is due at an end, and sends what may be sent.
    fn run(&mut self, now: Instant, end: End, out: &mut Outlet<'_>);
    /// When an end is to be run next; the far future when nothing is due.
    fn next(&self, end: End) -> Instant;
    /// Packets arrive, and with each its end does what is due; when it is to be run next. Nothing else is to be done here by any
    /// flow: it is one loop of its own for each kind.
    fn take(&mut self, inlet: &mut Inlet<'_>) -> Instant {
        let end = inlet.end();
        let mut next = Instant::FAR_FUTURE;
        let mut came = inlet.first();
        while let Some((now, parcel, out)) = came {
            self.arrive(now, end, parcel, out);
            self.run(now, end, out);
            next = self.next(end);
            came = inlet.next(next);
        }
        next
    }
    /// Whether its ends know of each other, and of ends at other routers, by packets alone.
    fn is_told_by_packets(&self) -> bool;
    /// How it stands.
    fn standing(&self) -> Standing;
}

//! What a connection did, and what held it back.

use core::time::Duration;

use units::{Bytes, Instant, Rate};

/// Why nothing more was sent at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// The application had nothing to send.
    #[default]
    Application,
    /// The receiver granted no more credit: its application reads slowly.
    Credit,
    /// Enough was in flight.
    Congestion,
    /// The rate said when.
    Pacing,
    /// This side's processor did not keep up with the rate.
    Cpu,
    /// The socket had no room.
    SocketBuffer,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Application,
        Self::Credit,
        Self::Congestion,
        Self::Pacing,
        Self::Cpu,
        Self::SocketBuffer,
    ];
}

/// How long each limit held.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitTimes {
    times: [Duration; Limit::ALL.len()],
    current: Limit,
    since: Instant,
}

impl LimitTimes {
    pub(crate) fn starting(now: Instant) -> Self {
        Self { since: now, ..Self::default() }
    }

    pub(crate) fn note(&mut self, now: Instant, limit: Limit) {
        self.times[self.current as usize] += now.since(self.since);
        self.current = limit;
        self.since = now;
    }

    pub(crate) fn current(&self) -> Limit {
        self.current
    }

    /// How long this limit held so far.
    pub fn of(&self, limit: Limit) -> Duration {
        self.times[limit as usize]
    }
}

/// A connection's figures, from its start on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Datagrams sent and their bytes, UDP and IP headers not counted.
    pub sent: (u64, Bytes),
    /// Authentic datagrams received and their bytes.
    pub received: (u64, Bytes),
    /// Packets that were lost, and their bytes.
    pub lost: (u64, Bytes),
    /// Bytes of reports and states sent.
    pub state_bytes: Bytes,
    /// Datagrams that were not authentic, malformed or replayed.
    pub refused: u64,
    /// Tail probes sent.
    pub probes: u64,
    /// Smoothed round-trip time; zero before it is known.
    pub rtt: Duration,
    /// Least round-trip time of the last seconds.
    pub min_rtt: Duration,
    /// The rate at which packets go out.
    pub pacing_rate: Rate,
    /// Bytes that may be in flight, and that are.
    pub window: Bytes,
    /// See `window`.
    pub in_flight: Bytes,
    /// Size of the datagrams.
    pub datagram: u64,
    /// What held the sender back, and for how long.
    pub limits: LimitTimes,
}

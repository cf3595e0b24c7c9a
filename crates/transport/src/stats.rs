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

    /// A word for it, for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Credit => "credit",
            Self::Congestion => "congestion",
            Self::Pacing => "pacing",
            Self::Cpu => "cpu",
            Self::SocketBuffer => "socket-buffer",
        }
    }
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

    /// Since `due`, or since the last note if that was later, only the processor kept things waiting.
    pub(crate) fn note_late(&mut self, now: Instant, due: Instant) {
        self.note(due.max(self.since), Limit::Cpu);
        self.note(now, Limit::Pacing);
    }

    /// What holds now.
    pub fn current(&self) -> Limit {
        self.current
    }

    /// How long this limit held so far.
    pub fn of(&self, limit: Limit) -> Duration {
        self.times[limit as usize]
    }
}

/// Datagrams that a connection refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// No packet of this protocol.
    pub malformed: u64,
    /// Packets whose number had come before, or is long settled.
    pub replayed: u64,
    /// Not sealed by the other end, or changed on the way.
    pub unauthentic: u64,
    /// Packets that came too late, too early, or more than there was room for.
    pub untimely: u64,
    /// Replies, refusals, retries and resets that nobody sent who could know the hello.
    pub forged: u64,
}

impl Refused {
    /// All together.
    pub fn total(&self) -> u64 {
        self.malformed + self.replayed + self.unauthentic + self.untimely + self.forged
    }
}

/// Datagrams that an endpoint refused, and why. None of them left any state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// No packet of this protocol, too short a hello, or a hello where nobody listens.
    pub malformed: u64,
    /// For a connection that is not known.
    pub unknown: u64,
    /// Hellos for another key.
    pub wrong_key: u64,
    /// Hellos from somebody who is not let in.
    pub not_allowed: u64,
    /// Hellos of another kind of handshake.
    pub pattern: u64,
    /// Hellos that want another feedback.
    pub feedback: u64,
    /// Hellos of a version that this end does not speak.
    pub version: u64,
    /// Hellos for which there was no room.
    pub busy: u64,
    /// Hellos that were sent back for a cookie.
    pub retries: u64,
    /// Hellos for which there was no time.
    pub ignored: u64,
    /// This end's own hellos sent back to it, and hellos changed to an older version.
    pub tricks: u64,
    /// Resets that the other end did not send.
    pub forged_resets: u64,
    /// Resets sent, to packets of connections that are not known.
    pub resets_sent: u64,
}

impl core::fmt::Display for Refusals {
    /// What was refused, in words; nothing if nothing was.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let counts = [
            (self.malformed, "malformed"),
            (self.unknown, "of unknown connections"),
            (self.wrong_key, "for another key"),
            (self.not_allowed, "of keys not let in"),
            (self.pattern, "of another kind of key"),
            (self.feedback, "of another feedback"),
            (self.version, "of another version"),
            (self.busy, "without room"),
            (self.retries, "sent back for a cookie"),
            (self.ignored, "without time"),
            (self.tricks, "reflected or downgraded"),
            (self.forged_resets, "forged resets"),
        ];
        let counts = counts.into_iter().filter(|&(count, _)| count > 0);
        for (index, (count, what)) in counts.enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{count} {what}")?;
        }
        Ok(())
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
    /// Packets that the other end sent before the latest that arrived, and that did not.
    pub missing: u64,
    /// The path's capacity as trains of packets told it last: to the other end, and from there.
    pub capacity: (Option<Rate>, Option<Rate>),
    /// Bytes of reports and states sent.
    pub state_bytes: Bytes,
    /// Datagrams that were refused.
    pub refused: Refused,
    /// Times that this end has changed its key.
    pub key_updates: u64,
    /// Times that the other end was found at another address.
    pub migrations: u64,
    /// Packets that arrived marked "congestion experienced", at this end and at the other.
    pub ce: (u64, u64),
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
    /// Bytes that have arrived in order on any stream, and that the application has not read yet.
    pub unread: Bytes,
    /// Size of the datagrams.
    pub datagram: u64,
    /// Datagrams for this and other connections that arrived and found no room in this host's socket, as
    /// far as who drives the connection says.
    pub socket_drops: u64,
    /// What held the sender back, and for how long.
    pub limits: LimitTimes,
    /// What held the other end back, as far as its states tell: the application, a stream's credit, or else
    /// congestion, which stands for all that it has to send and does not.
    pub remote_limits: LimitTimes,
}

//! What waits for the transmitter.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::collections::VecDeque;

use units::{Bytes, Instant, Rate};

use crate::DropCause;

/// How much may wait. The packet on the transmitter is not part of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// This many bytes.
    Bytes(Bytes),
    /// This many packets.
    Packets(u64),
    /// As many bytes as the link sends in this time.
    Time(Duration),
}

/// Reads `50ms` as a time, `100packets` as packets and `6MiB` as bytes.
impl FromStr for Limit {
    type Err = ParseLimitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let error = || ParseLimitError(text.to_owned());
        if let Some(number) = text.strip_suffix("packets") {
            return number.trim().parse().map(Self::Packets).map_err(|_| error());
        }
        if let Ok(bytes) = text.parse() {
            return Ok(Self::Bytes(bytes));
        }
        humantime::parse_duration(text).map(Self::Time).map_err(|_| error())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Packets(packets) => write!(f, "{packets} packets"),
            Self::Time(time) => humantime::format_duration(*time).fmt(f),
        }
    }
}

/// A limit that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no queue limit; write a time (50ms), packets (100packets) or bytes (6MiB)")]
pub struct ParseLimitError(String);

/// Which packets may wait, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueConfig {
    /// First in, first out; what does not fit is dropped on arrival.
    DropTail(Limit),
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self::DropTail(Limit::Time(Duration::from_millis(50)))
    }
}

/// One waiting packet.
pub(crate) struct Waiting<T> {
    pub(crate) size: Bytes,
    pub(crate) arrived: Instant,
    pub(crate) item: T,
}

/// The queue with its discipline, which decides on arrival ([`admit`](Self::admit)) and, for
/// those that drop at the head, on departure ([`take`](Self::take)).
pub(crate) struct Queue<T> {
    discipline: Discipline,
    waiting: VecDeque<Waiting<T>>,
    bytes: Bytes,
}

enum Discipline {
    DropTail { bytes: Bytes, packets: u64 },
}

impl<T> Queue<T> {
    pub(crate) fn new(config: QueueConfig, rate: Rate) -> Self {
        let QueueConfig::DropTail(limit) = config;
        let all = u64::MAX;
        let (bytes, packets) = match limit {
            Limit::Bytes(bytes) => (bytes, all),
            Limit::Packets(packets) => (Bytes(all), packets),
            Limit::Time(time) => (rate.bytes_in(time), all),
        };
        Self {
            discipline: Discipline::DropTail { bytes, packets },
            waiting: VecDeque::new(),
            bytes: Bytes::ZERO,
        }
    }

    /// Lets a packet in or says why not. A transmitter that is free takes it at once, so nothing
    /// is asked of the limit then.
    pub(crate) fn admit(&self, size: Bytes, transmitter_free: bool) -> Result<(), DropCause> {
        let Discipline::DropTail { bytes, packets } = self.discipline;
        let fits = self.bytes + size <= bytes && (self.waiting.len() as u64) < packets;
        if fits || transmitter_free { Ok(()) } else { Err(DropCause::Queue) }
    }

    pub(crate) fn push(&mut self, packet: Waiting<T>) {
        self.bytes += packet.size;
        self.waiting.push_back(packet);
    }

    /// When the packet at the head arrived.
    pub(crate) fn head_arrived(&self) -> Option<Instant> {
        self.waiting.front().map(|head| head.arrived)
    }

    /// Takes the packet at the head.
    pub(crate) fn take(&mut self) -> Option<Waiting<T>> {
        let head = self.waiting.pop_front()?;
        self.bytes -= head.size;
        Some(head)
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_shown() {
        let read = |text: &str| text.parse::<Limit>();
        assert_eq!(read("50ms"), Ok(Limit::Time(Duration::from_millis(50))));
        assert_eq!(read("100packets"), Ok(Limit::Packets(100)));
        assert_eq!(read("6MiB"), Ok(Limit::Bytes(Bytes::mib(6))));
        assert!(read("six").unwrap_err().to_string().contains("50ms"));
        assert_eq!(Limit::Time(Duration::from_millis(50)).to_string(), "50ms");
    }
}

//! How much may wait.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use units::{Bytes, Rate};

use crate::spelling::duration;

/// The size of packet with which packets and bytes are turned into each other.
pub(crate) const FULL_PACKET: Bytes = Bytes(1500);

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

impl Limit {
    /// The most bytes of packets up to `largest` that may wait.
    pub(crate) fn most(self, rate: Rate, largest: Bytes) -> Bytes {
        match self {
            Self::Packets(packets) => Bytes(packets.saturating_mul(largest.0)),
            Self::Bytes(_) | Self::Time(_) => self.bytes(rate),
        }
    }

    /// In bytes, on a link of `rate`; a packet counts as 1500 bytes.
    pub fn bytes(self, rate: Rate) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Packets(packets) => Bytes(packets.saturating_mul(FULL_PACKET.0)),
            Self::Time(time) => rate.bytes_in(time),
        }
    }
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
        duration(text).map(Self::Time).map_err(|_| error())
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

/// Shows a limit so that reading it gives the very same, not rounded for the eye.
pub(crate) struct Exact(pub(crate) Limit);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Limit::Bytes(bytes) => write!(f, "{}B", bytes.0),
            Limit::Packets(packets) => write!(f, "{packets}packets"),
            Limit::Time(time) => humantime::format_duration(time).fmt(f),
        }
    }
}

/// A limit that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no queue limit; write a time (50ms), packets (100packets) or bytes (6MiB)")]
pub struct ParseLimitError(String);

/// A limit on a link of known rate.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) bytes: Bytes,
    pub(crate) packets: u64,
}

impl Room {
    pub(crate) fn new(limit: Limit, rate: Rate) -> Self {
        match limit {
            Limit::Packets(packets) => Self { bytes: Bytes(u64::MAX), packets },
            Limit::Bytes(_) | Limit::Time(_) => {
                Self { bytes: limit.bytes(rate), packets: u64::MAX }
            }
        }
    }

    /// Whether `bytes` in `packets` fit.
    pub(crate) fn holds(&self, bytes: Bytes, packets: usize) -> bool {
        bytes <= self.bytes && packets as u64 <= self.packets
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

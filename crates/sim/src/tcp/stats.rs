//! What is told of a sender.

use core::time::Duration;

use units::Bytes;

/// What a sender did, and where it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Data segments sent.
    pub sent: u64,
    /// Of these, with data that had been sent before.
    pub retransmitted: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Losses that were seen without one.
    pub recoveries: u64,
    /// The last round-trip time that was measured.
    pub rtt: Option<Duration>,
    /// The congestion window.
    pub window: Bytes,
    /// Sent and not acknowledged.
    pub in_flight: Bytes,
}

//! Bounds of what streams hold.

/// Bounds of a connection's buffers, in bytes where not said otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The first credit of each stream.
    pub(crate) stream_credit: u64,
    /// The first credit of all streams together, which they may use beyond their own, once.
    pub(crate) connection_credit: u64,
    /// The most that waits for readers.
    pub(crate) receive_memory: u64,
    /// Streams that the other end may have open at a time.
    pub(crate) streams: u64,
    /// Written but not sent, of a stream.
    pub(crate) unsent: u64,
    /// Written but not sent, of all streams; each may have 64 KiB nevertheless.
    pub(crate) queued: u64,
    /// Written but not acknowledged, of a stream.
    pub(crate) held: u64,
    /// With more than this written and not sent, no further stream is opened.
    pub(crate) admission: Option<u64>,
}

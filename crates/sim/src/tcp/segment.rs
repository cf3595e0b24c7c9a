//! What the two ends send each other.

use smallvec::SmallVec;
use units::{Bytes, Instant};

/// IPv4 and TCP headers without options.
const HEADERS: u64 = 40;
/// The timestamps option with its padding.
const TIMESTAMPS: u64 = 12;
/// What a SYN carries beside timestamps: MSS, SACK permitted, window scale, padded.
const SYN_OPTIONS: u64 = 12;

/// Blocks that fit beside timestamps (RFC 2018).
pub const MAX_SACK_BLOCKS: usize = 3;

/// What a receiver holds out of order: first and one past the last byte of up to [`MAX_SACK_BLOCKS`], the
/// latest first. Most segments have none, and many are under way at a time: here they take little room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks(Option<Box<Blocks>>);

/// First and one past the last byte of each.
pub(super) type Blocks = SmallVec<[(u64, u64); MAX_SACK_BLOCKS]>;

impl SackBlocks {
    /// These blocks.
    pub(super) fn new(blocks: Blocks) -> Self {
        Self((!blocks.is_empty()).then(|| Box::new(blocks)))
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[(u64, u64)] {
        self.0.as_ref().map_or(&[], |blocks| blocks.as_slice())
    }
}

/// A segment, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What it carries.
    pub kind: Kind,
    /// When it was sent; on an acknowledgement, when that was which it answers.
    pub stamp: Instant,
    /// Whether this stands in it, as the timestamps option.
    pub timestamps: bool,
}

/// What a segment carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Opens the connection.
    Syn,
    /// The answer, with the receiver's window.
    SynAck {
        /// Bytes from the first on.
        window: u64,
    },
    /// Data.
    Data {
        /// Its first byte.
        seq: u64,
        /// How many.
        len: u64,
    },
    /// Acknowledges all data before `ack`.
    Ack {
        /// The first byte that is missing.
        ack: u64,
        /// Bytes from there on.
        window: u64,
        /// What is held beyond it.
        sack: SackBlocks,
    },
}

impl Segment {
    /// Its size as an IP packet.
    pub fn size(&self) -> Bytes {
        let options = if self.timestamps { TIMESTAMPS } else { 0 };
        let rest = match &self.kind {
            Kind::Syn | Kind::SynAck { .. } => SYN_OPTIONS,
            Kind::Data { len, .. } => *len,
            Kind::Ack { sack, .. } => match sack.as_slice().len() as u64 {
                0 => 0,
                blocks => 4 + 8 * blocks,
            },
        };
        Bytes(HEADERS + options + rest)
    }
}

//! One byte stream over several connections: the multi-connection sub-layer of paper 1 (section
//! 3), sans IO.
//!
//! [`Scatter`] cuts what is written into numbered records and hands each to the first connection
//! that can take one; it keeps them until the other side has confirmed them ([`Ack`]), so that
//! those of a connection that dies go over another. [`Gather`] puts the records that arrive over
//! all connections back in order in a bounded buffer. A stream that goes both ways has one of each
//! at either end. [`Header`] is the record of general streams, [`xftp`] that of paper 3.
#![forbid(unsafe_code)]

pub mod count;
mod delay;
mod gather;
mod record;
mod scatter;
pub mod xftp;

pub use gather::{Gather, GatherError};
pub use record::{ACK_LEN, Ack, HEADER_LEN, Header, HeaderError, MAX_PAYLOAD};
pub use scatter::{AckError, Assignment, LaneId, MAX_QUEUED, Record, Scatter};

/// Records that a receiver takes before it has said how many, so that the first need not wait for
/// a round trip.
pub const INITIAL_RECORDS: u64 = 32;

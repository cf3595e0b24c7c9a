//! One byte stream over several connections: the multi-connection sub-layer of paper 1 (section
//! 3), sans IO.
//!
//! [`Scatter`] cuts what is written into numbered records ([`Header`]) and hands each to the
//! first connection that can take one. [`Gather`] puts the records that arrive over all
//! connections back in order in a bounded buffer. A stream that goes both ways has one of each
//! at either end.
#![forbid(unsafe_code)]

mod gather;
mod record;
mod scatter;

pub use gather::{Gather, GatherError};
pub use record::{HEADER_LEN, Header, HeaderError, MAX_PAYLOAD};
pub use scatter::{MAX_QUEUED, Record, Scatter, TRAILER_ROOM};

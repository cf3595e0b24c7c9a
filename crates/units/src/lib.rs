//! The units every other crate speaks: an instant, a rate, a size and a sequence number; and the
//! versions of a protocol that releases speak.
//!
//! Each unit is a newtype over `u64`, so that a rate is never added to a size and nothing wraps at
//! 32 bits. Durations are [`core::time::Duration`].
#![forbid(unsafe_code)]

mod bytes;
mod instant;
mod parse;
mod rate;
mod seq;
mod versions;

pub use bytes::Bytes;
pub use instant::Instant;
pub use parse::ParseUnitError;
pub use rate::Rate;
pub use seq::SeqNo;
pub use versions::Versions;

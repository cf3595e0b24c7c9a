//! TCP as sans-IO machines: what the transport is compared with, and what the papers ran.
//!
//! A [`Sender`] and a [`Receiver`] of one connection that carries data one way. Segments are
//! [`Segment`]s without bytes, but with the size that real ones have. How losses are repaired is a
//! [`Recovery`], how fast to send a [`Congestion`]; all the rest of [`Config`] holds for any of
//! them. What is to be sent comes from a [`Source`].
//!
//! The receiving application reads at once, unless [`Receiver::read_to`] tells how far it has come. Nobody
//! probes a window that has closed: what opens it must not be lost. Numbers have 64 bits and do not wrap.
mod config;
mod congestion;
mod cubic;
mod hystart;
mod rack;
mod receiver;
mod rto;
mod scoreboard;
mod segment;
mod sender;
pub(crate) mod source;
mod stats;
#[cfg(test)]
mod tests;

pub use config::{Config, Congestion, Flight, MinRto, Recovery};
pub use receiver::Receiver;
pub use segment::{Kind, MAX_SACK_BLOCKS, SackBlocks, Segment};
pub use sender::Sender;
pub use source::{Http, Source};
pub use stats::SenderStats;

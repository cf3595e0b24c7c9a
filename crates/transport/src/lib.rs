//! The sans-IO transport protocol: a UDP transport that exchanges whole state periodically
//! (paper 5), recovers selectively and controls rate and window.
//!
//! It knows no socket, clock or thread: time and randomness come in as arguments, so the same
//! code runs over sockets and in simulation. A byte's way through the modules is
//! `streams` -> `connection` (`transmit`) -> `crypto` -> datagram -> `endpoint` -> `connection`
//! (`receive`) -> `streams`; `feedback` and `recovery` see to it that nothing is missing, `cc` and
//! `pacer` that nothing is sent too fast.
#![forbid(unsafe_code)]

mod admission;
pub mod cc;
mod config;
mod connection;
pub mod crypto;
mod endpoint;
mod feedback;
mod mtu;
mod pacer;
mod pairs;
mod recovery;
mod reordering;
mod rtt;
mod stats;
mod streams;
pub mod trace;
mod trains;
mod unsettled;
pub mod wire;

pub use admission::{HALF_OPEN_TIME, MAX_HALF_OPEN};
pub use config::{Config, FeedbackKind, UnknownFeedback};
pub use connection::{CloseReason, Connection, Event, Received, Side, Transmit, Unreachable};
pub use endpoint::{Endpoint, Routed};
pub use rtt::Rtt;
pub use stats::{Limit, LimitTimes, Refusals, Refused, Stats};
pub use streams::{Class, Delivery, OpenError, Priority, ReadOutcome, StreamError, WriteOutcome};

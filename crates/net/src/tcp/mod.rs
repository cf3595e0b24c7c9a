//! One stream over several TCP connections.
//!
//! In the order a byte travels: [`connect`] and [`Listener`] make a group of connections, each
//! with the transport's handshake (`hello`); [`StripedStream`] is its face; `shared` is what the
//! stream and its connections hold together, a scatter and a gather of the crate `stripe`; one
//! task a connection and direction seals and sends, or receives and opens (`lane`). `options`
//! and `info` are what the kernel is told and asked.

mod connect;
mod hello;
mod info;
mod lane;
mod listener;
mod options;
mod shared;
mod stream;
#[cfg(test)]
mod tests;

pub use connect::{CONNECT_TIME, ask, connect};
pub use hello::HANDSHAKE_TIME;
pub use info::{Limit, Stats};
pub use listener::{GROUP_TIME, Listener, MAX_HALF_OPEN, MAX_PENDING_GROUPS};
pub use options::{DEFAULT_BUFFER, MAX_STREAMS, Options};
pub use stream::StripedStream;

//! One stream over several TCP connections.
//!
//! In the order a byte travels: [`connect`] and [`Listener`] make connections, each with the
//! transport's handshake (`hello`); [`StripedStream`] is their face; `shared` is what the stream and
//! its connections hold together, behind one lock, and `state` what that holds: a scatter and a
//! gather of the crate `stripe`. One task a connection and direction seals and sends, or receives
//! and opens (`lane`). `keeper` sees that there are enough connections. `options` and `info` are
//! what the kernel is told and asked, `pacing` what it is told while a stream sends. [`Choice`] does
//! for connections of others what `keeper` does for ours. `fuzzing` is what the fuzzer reaches.

mod choice;
mod connect;
mod echo;
#[doc(hidden)]
pub mod fuzzing;
mod hello;
mod info;
mod keeper;
mod lane;
mod listener;
mod options;
mod pacing;
mod shared;
mod state;
mod stream;
#[cfg(test)]
mod tests;

pub use choice::Choice;
pub use connect::{CONNECT_TIME, ask, connect};
pub use hello::HANDSHAKE_TIME;
pub use info::{Limit, Stats, unacknowledged};
pub use keeper::ORPHAN_TIME;
pub use listener::{Listener, MAX_GROUPS, MAX_HALF_OPEN};
pub use options::{DEFAULT_BUFFER, MAX_STREAMS, Options, RttSource, set_congestion_control};
pub use stream::{StripedStream, Watch};
pub use stripe::count::{Policy, System, TICK};

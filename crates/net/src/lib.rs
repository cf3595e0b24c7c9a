//! The transport and the striping layer over real sockets, under the real clock.
//!
//! `udp` carries transport streams, `tcp` striped ones, of which `mux` makes many. Both are `tokio`
//! byte streams: what takes a socket takes either (paper 1's socket-like sub-layer). `transparent` are
//! TCP sockets of a gateway.

pub mod clock;
mod error;
pub mod mux;
pub mod tcp;
pub mod transparent;
pub mod udp;

pub use error::NetError;
pub use transport::crypto::{Credentials, Identity, PublicKey, SharedKey};
pub use transport::{Class, Config, Priority, Stats};

//! The transport and the striping layer over real sockets, under the real clock.
//!
//! `udp` carries transport streams, `tcp` striped ones. Both give a [`Stream`], which is a
//! `tokio` byte stream: what takes a socket takes either (paper 1's socket-like sub-layer).

pub mod clock;
mod error;
mod stream;
pub mod tcp;
pub mod udp;

pub use error::NetError;
pub use stream::Stream;
pub use transport::crypto::SharedKey;

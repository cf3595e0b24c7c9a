//! Security of both carriers, UDP and striped TCP: a Noise handshake (`handshake`), the AEAD that
//! seals everything after it (`aead`), and the key the two ends share (`key`).

mod aead;
mod handshake;
mod key;

pub use aead::{Keys, Opener, Sealer, TAG_LEN};
pub use handshake::{Initiator, Responder};
pub use key::SharedKey;

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// Not sealed with the key we hold, or changed on the way.
    #[error(
        "could not be authenticated: the other side holds a different key, or the bytes were changed on the way"
    )]
    Unauthentic,
    /// Too short or too long to be what it claims to be.
    #[error("malformed: impossible length")]
    Malformed,
}

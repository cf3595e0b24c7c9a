//! Security of both carriers, UDP and striped TCP: a Noise handshake (`handshake`), by one key
//! that both ends hold or by the identity of each (`key`, `credentials`); the AEAD that seals
//! everything after it (`aead`) under keys that change (`epoch`); and what an end can recognise as
//! its own without remembering it (`token`).

mod aead;
mod credentials;
mod epoch;
mod handshake;
mod key;
mod token;

pub use aead::{Keys, Opener, Sealer, Sealing, TAG_LEN};
pub use credentials::{Allowed, Credentials};
pub use epoch::{EpochOpener, EpochSealer, KEY_BYTES, KEY_PACKETS, KEY_TIME};
pub use handshake::{Initiator, Pattern, Responder};
pub use key::{Identity, ParseKeyError, PublicKey, SharedKey};
pub use token::{TOKEN_LEN, Token, Tokens, digest};
pub(crate) use token::{octets, same};

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
    /// Authentic, but of somebody who is not let in.
    #[error("{0} is not among the keys that are let in")]
    NotAllowed(PublicKey),
    /// Of an epoch for which there is no key any more, or not yet.
    #[error("sealed in an epoch that has no key")]
    Epoch,
}

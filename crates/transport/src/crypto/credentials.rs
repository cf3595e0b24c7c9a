//! What an end proves itself with, and whom it believes.

use core::fmt;
use std::sync::Arc;

use super::{Identity, PublicKey, SharedKey, Tokens};

/// Says whether the holder of a key is let in. Asked on each new connection.
pub type Allowed = Arc<dyn Fn(&PublicKey) -> bool + Send + Sync>;

/// What an end proves itself with, and whom it believes.
#[derive(Clone)]
pub enum Credentials {
    /// Whoever holds the same key.
    Shared(SharedKey),
    /// Each end by its own key.
    Static {
        /// This end's.
        identity: Identity,
        /// The key of the host that this end connects to.
        host: PublicKey,
        /// Whom this end lets in.
        allowed: Allowed,
    },
}

impl Credentials {
    /// Connects to the host with this key; lets nobody in.
    pub fn client(identity: Identity, host: PublicKey) -> Self {
        Self::Static { identity, host, allowed: Arc::new(|_| false) }
    }

    /// Lets in those that are `allowed`; connects only to hosts that hold the same identity.
    pub fn server(identity: Identity, allowed: Allowed) -> Self {
        Self::Static { host: identity.public(), identity, allowed }
    }

    /// The key by which others know this end, if it is known by one.
    pub fn public(&self) -> Option<PublicKey> {
        match self {
            Self::Shared(_) => None,
            Self::Static { identity, .. } => Some(identity.public()),
        }
    }

    /// Tokens for resets, the same after a restart. `place` tells apart ends that hold the same
    /// credentials, so that none betrays the tokens of another.
    pub(crate) fn reset_tokens(&self, place: &[u8]) -> Tokens {
        let secret = match self {
            Self::Shared(key) => key.as_bytes(),
            Self::Static { identity, .. } => identity.private(),
        };
        Tokens::derived(secret, &[b"longhaul reset", place])
    }
}

impl From<SharedKey> for Credentials {
    fn from(key: SharedKey) -> Self {
        Self::Shared(key)
    }
}

impl From<&SharedKey> for Credentials {
    fn from(key: &SharedKey) -> Self {
        Self::Shared(key.clone())
    }
}

impl From<&Self> for Credentials {
    fn from(credentials: &Self) -> Self {
        credentials.clone()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(key) => key.fmt(f),
            Self::Static { identity, host, .. } => write!(f, "{identity:?} to {host}"),
        }
    }
}

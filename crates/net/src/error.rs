//! What can go wrong, and what to do about it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Why a connection could not be made or went away.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The socket could not be made or bound.
    #[error("cannot use {address}: {source}; name an address of this host and a port that is free")]
    Bind {
        /// The local address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The other end could not be reached at all.
    #[error(
        "cannot reach {address}: {source}; check the address, and that `longhaul serve` runs there"
    )]
    Unreachable {
        /// The remote address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody answered.
    #[error("no answer from {address} within {} s; check the address, that `longhaul serve` runs there, and that no firewall drops its {carrier} port{}", .after.as_secs(), other_way(.carrier))]
    NoAnswer {
        /// The remote address.
        address: SocketAddr,
        /// How long was waited.
        after: Duration,
        /// `UDP` or `TCP`.
        carrier: &'static str,
    },
    /// The other end holds another key.
    #[error("{address} holds a different key")]
    WrongKey {
        /// The remote address.
        address: SocketAddr,
    },
    /// The other end proves itself by another kind of key: shared, or its own.
    #[error("{address} does not take this kind of key")]
    OtherKind {
        /// The remote address.
        address: SocketAddr,
    },
    /// The other end does not let the key of this side in.
    #[error("{address} does not let this side's key in")]
    NotAllowed {
        /// The remote address.
        address: SocketAddr,
    },
    /// The other end refused for another reason.
    #[error("{address} refused: {reason}")]
    Refused {
        /// The remote address.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
    /// An established connection ended before its time.
    #[error("the connection with {address} was lost: {reason}")]
    Lost {
        /// The remote address.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
    /// Too much waits to be sent for another stream.
    #[error(transparent)]
    Overloaded(transport::OpenError),
    /// An option that cannot be had on this host.
    #[error("{reason}")]
    Option {
        /// Which, why, and what to do.
        reason: String,
    },
    /// The endpoint or listener was closed on this side.
    #[error("closed on this side")]
    Closed,
}

impl NetError {
    /// Whether nothing came back at all: neither an answer nor a refusal.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::NoAnswer { .. } => true,
            Self::Unreachable { source, .. } => source.kind() != io::ErrorKind::ConnectionRefused,
            _ => false,
        }
    }

    /// Whether nobody was met, so that another address or way may be tried.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NoAnswer { .. })
    }
}

fn other_way(carrier: &str) -> &'static str {
    if carrier == "UDP" { ", or try --transport tcp" } else { "" }
}

impl From<NetError> for io::Error {
    fn from(error: NetError) -> Self {
        let kind = match error {
            NetError::NoAnswer { .. } => io::ErrorKind::TimedOut,
            NetError::WrongKey { .. }
            | NetError::OtherKind { .. }
            | NetError::NotAllowed { .. }
            | NetError::Refused { .. } => io::ErrorKind::ConnectionRefused,
            NetError::Lost { .. } => io::ErrorKind::ConnectionReset,
            _ => io::ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}

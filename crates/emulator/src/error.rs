//! Why a lab or a relay could not be made.

use std::io;

use crate::lane::LaneError;

/// Why a lab or a relay could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The path cannot be emulated.
    #[error(transparent)]
    Path(#[from] LaneError),
    /// This user may not make network namespaces or TUN devices here.
    #[error(
        "not allowed to {attempt}: {source}; run as root, or allow unprivileged user namespaces \
         and access to /dev/net/tun, or use the loopback form"
    )]
    NotPermitted {
        /// What was tried.
        attempt: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// More hosts, or another MTU, than a lab can have.
    #[error("{0}")]
    Options(String),
    /// The kernel does not know this congestion control or may not use it here.
    #[error(
        "could not set TCP congestion control '{name}': {source}; /proc/sys/net/ipv4/\
             tcp_available_congestion_control lists what there is"
    )]
    CongestionControl {
        /// What was asked for.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something failed that should work for this user.
    #[error("could not {attempt}: {source}")]
    Io {
        /// What was tried.
        attempt: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl LabError {
    /// Whether another user or machine set-up would help, so that a caller may fall back to the
    /// loopback form.
    pub fn is_not_permitted(&self) -> bool {
        matches!(self, Self::NotPermitted { .. })
    }
}

/// Says what was tried when an operation fails.
pub(crate) trait Attempt<T> {
    fn attempt(self, attempt: &'static str) -> Result<T, LabError>;
}

impl<T, E: Into<io::Error>> Attempt<T> for Result<T, E> {
    fn attempt(self, attempt: &'static str) -> Result<T, LabError> {
        self.map_err(|source| {
            let source = source.into();
            match source.kind() {
                // A kernel without TUN or user namespaces is as good as a prohibition.
                io::ErrorKind::PermissionDenied
                | io::ErrorKind::NotFound
                | io::ErrorKind::Unsupported => LabError::NotPermitted { attempt, source },
                _ => LabError::Io { attempt, source },
            }
        })
    }
}

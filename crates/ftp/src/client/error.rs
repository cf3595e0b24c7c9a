//! What can go wrong between a client and its server.

use std::io;

use crate::data::DataError;
use crate::reply::{Reply, ReplyError};

/// Why something did not work.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server cannot be reached, or the connection broke.
    #[error(
        "the connection to the FTP server failed ({0}): check host and network, then try again"
    )]
    Connection(io::Error),
    /// It does not answer.
    #[error("the FTP server does not answer: check host and network, then try again")]
    Silent,
    /// It answers what cannot be understood.
    #[error("the server's answer makes no sense: {0}")]
    Nonsense(#[from] ReplyError),
    /// It refuses.
    #[error("{command}: the server says {reply}")]
    Refused {
        /// What it was told, without what is secret.
        command: String,
        /// What it said.
        reply: Reply,
    },
    /// TLS was asked for and cannot be had.
    #[error("the server offers no TLS: ask its operator, or use ftp:// where clear text will do")]
    NoTls,
    /// TLS failed.
    #[error("TLS with the server failed: {0}")]
    Tls(io::Error),
    /// Nobody vouches for the server's certificate.
    #[error(
        "the server's certificate is not known (SHA-256 {fingerprint}): compare that with its \
         operator, then use --ftp-accept-new"
    )]
    Unknown {
        /// Of the certificate.
        fingerprint: String,
    },
    /// This side's kernel will not have what was asked for.
    #[error(transparent)]
    Option(#[from] net::NetError),
    /// No data connection came about.
    #[error(
        "no data connection with the server comes about ({0}): a firewall may be in the way; try the other of active and passive mode"
    )]
    NoData(io::Error),
    /// Data did not arrive.
    #[error(transparent)]
    Data(#[from] DataError),
    /// It was stopped from here.
    #[error("stopped; the same command resumes what was being received")]
    Stopped,
    /// A file here cannot be read or written.
    #[error("{0}")]
    Here(io::Error),
    /// A name that no command can carry.
    #[error("that name holds a line end, which FTP cannot carry: rename it")]
    Name,
}

impl ClientError {
    /// Whether the server merely said no, so that the session can go on.
    pub fn is_refusal(&self) -> bool {
        match self {
            // It takes its leave with that.
            Self::Refused { reply, .. } => reply.code != 421,
            Self::Here(_) | Self::Name => true,
            _ => false,
        }
    }

    /// Whether the server merely does not begin in the middle of a file.
    pub(super) fn is_refused_restart(&self) -> bool {
        let restarts = |command: &str| command.starts_with("REST ");
        matches!(self, Self::Refused { command, .. } if restarts(command)) && self.is_refusal()
    }

    /// Whether a connection was lost, or the server is not there for now: the same may succeed later.
    pub fn is_loss(&self) -> bool {
        match self {
            Self::Connection(_) | Self::Silent | Self::NoData(_) => true,
            Self::Data(error) => !matches!(error, DataError::File(_) | DataError::Malformed),
            // TLS that cannot be agreed on is another matter.
            Self::Tls(error) => matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::TimedOut
            ),
            Self::Refused { reply, .. } => matches!(reply.code, 421 | 425 | 426),
            _ => false,
        }
    }
}

//! Why a transfer failed as a whole. What happens to a single file is a [`crate::Note`].

use std::io;

use rustix::io::Errno;

use crate::notes::printable;
use crate::wire::WireError;

/// What to do about a connection that is gone, unless somebody goes on by itself.
const AGAIN: &str = "run the same command again";

/// A transfer that did not reach its end. What was installed by then is whole.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The stream failed.
    #[error("the connection failed ({0}): {AGAIN}")]
    Connection(#[from] io::Error),
    /// The stream ended before the receiver had confirmed.
    #[error("the connection ended before the transfer was confirmed: {AGAIN}")]
    Cut,
    /// The other side does not keep to the protocol.
    #[error("the far side cannot be understood: {0}")]
    Protocol(#[from] WireError),
    /// The other side gave up, and says why.
    #[error("the far side gave up: {}", printable(.0))]
    Far(String),
    /// This side could not go on; the text names the file and what to do.
    #[error("{0}")]
    Near(String),
}

impl TransferError {
    /// Why, without the advice to run the command again: for who goes on by itself.
    pub fn why(&self) -> String {
        let text = self.to_string();
        text.strip_suffix(AGAIN)
            .and_then(|text| text.strip_suffix(": "))
            .unwrap_or(&text)
            .to_owned()
    }
}

/// What went wrong with a file, and what to do about it.
pub(crate) fn explain(error: &io::Error) -> String {
    let advice = match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => "give the user that runs longhaul there access to it",
        Some(Errno::NOENT) => "check the name; it may have been moved or removed meanwhile",
        Some(Errno::NOSPC | Errno::DQUOT) => "free space there, then run the same command again",
        Some(Errno::ROFS) => "mount that file system writable, or choose another destination",
        Some(Errno::IO) => "check that disk's health",
        Some(Errno::MFILE | Errno::NFILE) => "raise the limit of open files (`ulimit -n`)",
        Some(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
            "a directory of that name is in the way: move it, or choose another destination"
        }
        Some(Errno::NOTDIR | Errno::LOOP) => {
            "a file or symbolic link stands where a directory should: move it, or choose another \
             destination"
        }
        Some(Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ) => {
            "that file system cannot hold such a name: rename it at the source"
        }
        _ => return error.to_string(),
    };
    format!("{error}: {advice}")
}

/// Whether an error at the destination would meet every further file too.
pub(crate) fn is_fatal(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::MFILE | Errno::NFILE)
    )
}

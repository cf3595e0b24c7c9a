//! The near side: puts files there, or gets them from there.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::destination::Destination;
use crate::error::TransferError;
use crate::exchange::{Hello, receive, send};
use crate::journal::TransferId;
use crate::place::Place;
use crate::progress::Progress;
use crate::relpath::{PATH_MAX, PathError, RawBytes};
use crate::source::Sources;
use crate::summary::Summary;
use crate::walk::Source;
use crate::wire::{Message, append_message, hello};

/// How to transfer.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The destination must be a directory, and is made if it is missing. Several sources of one
    /// [`put`] ask for it by themselves; with several [`get`] it is for the caller to say.
    pub into_directory: bool,
    /// Names the transfer, so that it can go on after any end of either side: the receiver keeps a
    /// journal beside what it writes, and the next transfer of that name sends what is missing.
    pub id: Option<TransferId>,
}

/// Sends files and trees to the far side's `remote`. Done means that they are verified, under their
/// final names and on the far side's disk; what was left out stands in the summary.
///
/// `remote` counts from the folder that the far side serves (see [`crate::Root`]).
pub async fn put<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    sources: &[PathBuf],
    remote: &Path,
    options: &Options,
    progress: &Progress,
) -> Result<Summary, TransferError> {
    let destination = typed(remote)?;
    let into_directory = options.into_directory || sources.len() > 1;
    let list: Vec<_> = sources.iter().map(|path| Source::new(path)).collect();
    // Who goes on leaves out what was sent: of two files for one place, the first would win then.
    let id = options.id.filter(|_| are_apart(&list));
    let preamble = request(&Message::Put { destination, into_directory, id });
    let sources = Sources::new(Place::Local, list, progress.clone());
    send(stream, preamble, Hello::Expected, sources).await
}

/// Fetches the far side's file or tree `remote` to the local `destination`. Done means that it is
/// verified, under its final name and on the disk; what was left out stands in the summary.
pub async fn get<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    remote: &Path,
    destination: &Path,
    options: &Options,
    progress: &Progress,
) -> Result<Summary, TransferError> {
    let preamble = request(&Message::Get { source: typed(remote)? });
    let destination = Destination::new(Place::Local, destination, options.into_directory)
        .with_journal(options.id)
        .expecting(Source::new(remote).name);
    receive(stream, preamble, Hello::Expected, destination, progress.clone()).await
}

/// Whether no two of them can send the same path.
fn are_apart(sources: &[Source]) -> bool {
    let names: HashSet<_> = sources.iter().map(|source| source.name.as_bytes()).collect();
    sources.len() < 2 || names.len() == sources.len() && !names.contains(&[][..])
}

/// A far path as the user typed it. Where it may lead, the far side decides.
fn typed(remote: &Path) -> Result<RawBytes, TransferError> {
    let bytes = remote.as_os_str().as_bytes();
    if bytes.len() > PATH_MAX {
        return Err(TransferError::Near(format!("{remote:?}: {}", PathError::TooLong)));
    }
    Ok(RawBytes(bytes.to_vec()))
}

pub(crate) fn request(message: &Message) -> Vec<u8> {
    let mut bytes = hello().to_vec();
    append_message(message, &mut bytes);
    bytes
}

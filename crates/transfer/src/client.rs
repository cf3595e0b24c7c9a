//! The near side: puts files there, or gets them from there.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::destination::Destination;
use crate::error::TransferError;
use crate::exchange::{Hello, receive, send, show};
use crate::filter::{Filter, check_length};
use crate::journal::TransferId;
use crate::listing::{self, Listed};
use crate::manifest::Manifest;
use crate::place::Place;
use crate::pour;
use crate::progress::Progress;
use crate::relpath::{PATH_MAX, PathError, RawBytes, RelPath};
use crate::server::{Root, is_there};
use crate::sources::Sources;
use crate::summary::Summary;
use crate::walk::Source;
use crate::wire::{Message, Terms, append_message, hello};

/// How to transfer.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The destination must be a directory, and is made if it is missing. Several sources of one
    /// [`put`] ask for it by themselves; with several [`get`] it is for the caller to say.
    pub into_directory: bool,
    /// Names the transfer, so that it can go on after any end of either side: the receiver keeps a
    /// journal beside what it writes, and the next transfer of that name sends what is missing.
    pub id: Option<TransferId>,
    /// What is asked of the side that sends.
    pub terms: Terms,
    /// Is told the hashes of all files of the transfer: of a [`put`] as they were read here, of a
    /// [`get`] as they stand here. Files that did not move are read for it.
    pub manifest: Option<Manifest>,
    /// The sources of a [`put`] are below this folder, which they do not leave: somebody else names them.
    pub below: Option<PathBuf>,
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
    let filter = Filter::new(&options.terms.patterns).map_err(TransferError::Near)?;
    let Terms { compare, removes, rehearses, ref patterns, .. } = options.terms;
    // They protect there what they leave out here.
    let patterns = if removes { told(patterns)? } else { Vec::new() };
    let source =
        |path: &PathBuf| Source::new(path).mirrored(compare.is_some()).filtered(filter.clone());
    let list: Vec<_> = sources.iter().map(source).collect();
    let root = options.below.as_deref().map_or(Root::User, Root::Folder);
    let place = root.place()?;
    if options.below.is_some() {
        sources.iter().try_for_each(|path| is_there(&place, path))?;
    }
    // Who goes on leaves out what was sent: of two files for one place, the first would win then.
    let id = options.id.filter(|_| are_apart(&list) && !rehearses);
    let preamble = request(&Message::Put { destination, into_directory, id, rehearses, patterns });
    let mut sources = Sources::new(place, list, options.terms.clone(), progress.clone());
    sources.manifest = options.manifest.clone();
    send(stream, preamble, Hello::Expected, sources).await
}

/// Sends what comes from `input`, a pipe or a terminal, to become the far side's file `remote`. Of the
/// options, it counts whether bytes are packed.
pub async fn put_stream<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    input: OwnedFd,
    remote: &Path,
    options: &Options,
    progress: &Progress,
) -> Result<Summary, TransferError> {
    let near = |reason: String| TransferError::Near(format!("{remote:?}: {reason}"));
    let name = remote.file_name().filter(|_| !remote.as_os_str().as_bytes().ends_with(b"/"));
    let name = name.ok_or_else(|| near("name the file that standard input becomes".into()))?;
    let name = RelPath::new(name.as_bytes().to_vec()).map_err(|error| near(error.to_string()))?;
    let destination = typed(remote.parent().unwrap_or(Path::new("")))?;
    let put = Message::Put {
        destination,
        into_directory: true,
        id: None,
        rehearses: false,
        patterns: Vec::new(),
    };
    let preamble = request(&put);
    let list = vec![Source::stream(input, name)];
    let terms = Terms { packs: options.terms.packs, ..Terms::default() };
    let sources = Sources::new(Place::Local, list, terms, progress.clone());
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
    let terms = Terms { lists: options.manifest.is_some(), ..options.terms.clone() };
    let Terms { owner, compare, removes, rehearses, .. } = terms;
    let filter = Filter::new(&told(&terms.patterns)?).map_err(TransferError::Near)?;
    let preamble = request(&Message::Get { source: typed(remote)?, terms });
    // What a mirrored directory holds has no name in common.
    let name = if compare.is_some() { RelPath::default() } else { Source::new(remote).name };
    let destination = Destination::new(Place::Local, destination, options.into_directory)
        .with_journal(options.id.filter(|_| !rehearses))
        .telling(compare.is_some(), removes)
        .rehearsed(rehearses)
        .protecting(filter)
        .owning(owner)
        .listing(options.manifest.clone())
        .expecting(name);
    receive(stream, preamble, Hello::Expected, destination, progress.clone()).await
}

/// Fetches the far side's single file `remote` to `output`, a pipe or a terminal. What has come goes on
/// before it is verified: only success tells that it was right. Of the options, the rate counts, and
/// whether bytes are packed.
pub async fn get_stream<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    remote: &Path,
    output: OwnedFd,
    options: &Options,
    progress: &Progress,
) -> Result<Summary, TransferError> {
    let Terms { rate, packs, .. } = options.terms;
    let terms = Terms { rate, packs, ..Terms::default() };
    let preamble = request(&Message::Get { source: typed(remote)?, terms });
    let progress = progress.clone();
    let pour = move |pipe, replies| pour::run(pipe, replies, output.into(), progress);
    show(stream, preamble, pour).await
}

/// Names what the far side's directory `remote` holds, with all that is below, or the file that it is, in the
/// order of their names. Nothing moves. Of the options, the patterns count.
pub async fn list<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    remote: &Path,
    options: &Options,
    progress: &Progress,
) -> Result<(Vec<Listed>, Summary), TransferError> {
    let patterns = told(&options.terms.patterns)?;
    let terms = Terms { rehearses: true, patterns, ..Terms::default() };
    let preamble = request(&Message::Get { source: typed(remote)?, terms });
    let progress = progress.clone();
    show(stream, preamble, move |pipe, replies| listing::run(pipe, &replies, &progress)).await
}

/// Patterns, if they fit into a request.
fn told(patterns: &[String]) -> Result<Vec<String>, TransferError> {
    check_length(patterns).map_err(TransferError::Near)?;
    Ok(patterns.to_vec())
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

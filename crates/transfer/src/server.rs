//! The far side: does what one request asks, as a rule below a folder that it never leaves.

use std::ffi::OsStr;
use std::future::ready;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{FileType, OFlags};
use tokio::io::{AsyncRead, AsyncWrite};
use units::Rate;

use crate::budget::Budget;
use crate::destination::Destination;
use crate::error::{TransferError, explain};
use crate::exchange::{self, Hello, read_message, receive, send};
use crate::filter::{Filter, check_length};
use crate::place::Place;
use crate::probe;
use crate::progress::Progress;
use crate::relpath::{RawBytes, RelPath};
use crate::sources::Sources;
use crate::summary::Summary;
use crate::temp::{OWN, bears_own};
use crate::walk::Source;
use crate::wire::{Message, WireError, hello};

/// What the far side allows.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// Refuses every [`crate::put`].
    pub read_only: bool,
    /// Refuses everything but a [`crate::put`] to this path, as it is typed.
    pub only: Option<PathBuf>,
    /// Sets the users and groups that a [`crate::put`] asks for, as far as the system lets it.
    pub owners: bool,
    /// Counts what the request moves.
    pub progress: Progress,
    /// Memory for names and paths that the client tells: to be the same one for all requests.
    pub budget: Budget,
    /// Is told how fast the client wants to be sent to. Whoever made the stream sees to it.
    pub asked: AskedRate,
}

/// The rate that a [`crate::get`] asks not to exceed. All clones are the same.
#[derive(Clone, Debug, Default)]
pub struct AskedRate(Arc<AtomicU64>);

impl AskedRate {
    /// The rate, once the request was read, if it asks for one.
    pub fn get(&self) -> Option<Rate> {
        Some(self.0.load(Relaxed)).filter(|&bits| bits > 0).map(Rate::from_bits_per_sec)
    }

    fn set(&self, bits: Option<u64>) {
        self.0.store(bits.unwrap_or(0), Relaxed);
    }
}

/// What the paths of requests are relative to.
#[derive(Clone, Copy, Debug)]
pub enum Root<'a> {
    /// This folder, which no request leaves.
    Folder(&'a Path),
    /// The current directory of a process that serves its own user: every path that the user may
    /// name here, `..` and absolute ones too, leads where it leads.
    User,
}

impl<'a> From<&'a Path> for Root<'a> {
    fn from(folder: &'a Path) -> Self {
        Self::Folder(folder)
    }
}

impl Root<'_> {
    pub(crate) fn place(self) -> Result<Place, TransferError> {
        let place = match self {
            Self::Folder(folder) => Place::rooted(folder),
            Self::User => Ok(Place::Local),
        };
        place
            .map_err(|error| TransferError::Near(format!("the served folder: {}", explain(&error))))
    }

    /// The path that a client typed, if it leads nowhere that it must not.
    fn path(self, typed: &RawBytes) -> Result<PathBuf, TransferError> {
        let path = PathBuf::from(OsStr::from_bytes(&typed.0));
        if let Self::Folder(_) = self {
            let near = |why: &str| TransferError::Near(format!("{path:?}: {why}"));
            let below = RelPath::from_typed(&typed.0).map_err(|error| near(&error.to_string()))?;
            if bears_own(&below, FileType::RegularFile) {
                return Err(near(OWN));
            }
        }
        Ok(path)
    }
}

/// Which way the files went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To this side.
    Put,
    /// From this side.
    Get,
    /// None went: the client measured the path, and `summary` counts the bytes of both directions.
    Probe,
}

/// A request that was fulfilled.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which way.
    pub direction: Direction,
    /// The path on this side, as the client typed it.
    pub path: PathBuf,
    /// What was done.
    pub summary: Summary,
    /// Nothing was, for it was only to be told what would be.
    pub rehearsed: bool,
}

/// Reads one request from the stream and fulfils it in `root`. An error was told to the client
/// too, as far as the stream still carried it.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    root: impl Into<Root<'_>>,
    options: &ServeOptions,
) -> Result<Outcome, TransferError> {
    serve_in_turn(stream, root, options, |_| ready(Ok(()))).await
}

/// The same, once it is its turn: what `turn` gives lives as long as the work, and an error of it says why the
/// request is not served. One that waits holds nothing but its message: no file is opened for it.
pub async fn serve_in_turn<S: AsyncRead + AsyncWrite + Unpin + Send, T, F>(
    mut stream: S,
    root: impl Into<Root<'_>>,
    options: &ServeOptions,
    turn: impl FnOnce(Direction) -> F,
) -> Result<Outcome, TransferError>
where
    F: Future<Output = Result<T, String>>,
{
    let root = root.into();
    let mut turn_taken = None;
    let request = async {
        let (message, direction) = hear(&mut stream, options).await?;
        turn_taken = Some(turn(direction).await.map_err(TransferError::Near)?);
        accept(message, root, options)
    };
    let request = request.await;
    let served = carry_out(stream, request, options).await;
    drop(turn_taken);
    served
}

async fn carry_out<S: AsyncRead + AsyncWrite + Unpin + Send>(
    stream: S,
    request: Result<Request, TransferError>,
    options: &ServeOptions,
) -> Result<Outcome, TransferError> {
    match request {
        Ok(Request::Put(path, destination)) => {
            let (progress, rehearsed) = (options.progress.clone(), destination.rehearses);
            let summary =
                receive(stream, hello().to_vec(), Hello::Read, destination, progress).await?;
            Ok(Outcome { direction: Direction::Put, path, summary, rehearsed })
        }
        Ok(Request::Get(path, sources)) => {
            let rehearsed = sources.terms.rehearses;
            let summary = send(stream, hello().to_vec(), Hello::Read, *sources).await?;
            Ok(Outcome { direction: Direction::Get, path, summary, rehearsed })
        }
        Ok(Request::Probe(bytes)) => {
            let mut summary = Summary::default();
            summary.counts.bytes = probe::answer(stream, bytes).await?;
            Ok(Outcome {
                direction: Direction::Probe,
                path: PathBuf::new(),
                summary,
                rehearsed: false,
            })
        }
        Err(error) => {
            match &error {
                // The hello alone lets a client of another version say so.
                TransferError::Near(_) | TransferError::Protocol(_) => {
                    refuse(stream, &error.to_string()).await;
                }
                _ => {}
            }
            Err(error)
        }
    }
}

/// Tells the client why its request is not served.
async fn refuse(stream: impl AsyncRead + AsyncWrite + Unpin, reason: &str) {
    exchange::refuse(stream, hello().to_vec(), reason).await;
}

enum Request {
    Put(PathBuf, Destination),
    Get(PathBuf, Box<Sources>),
    Probe(u64),
}

/// Reads a request, and refuses what need not wait for that.
async fn hear(
    stream: &mut (impl AsyncRead + Unpin),
    options: &ServeOptions,
) -> Result<(Message, Direction), TransferError> {
    Hello::Expected.read(stream).await?;
    let request = read_message(stream).await?;
    if let Some(only) = &options.only
        && !is_only(&request, only)
    {
        return Err(TransferError::Near(format!("nothing may be done here but to put {only:?}")));
    }
    let (direction, patterns) = match &request {
        Message::Put { .. } if options.read_only => {
            return Err(TransferError::Near(
                "this server only gives files and takes none: choose another destination".into(),
            ));
        }
        Message::Put { patterns, .. } => (Direction::Put, &patterns[..]),
        Message::Get { terms, .. } => (Direction::Get, &terms.patterns[..]),
        Message::Probe { .. } => (Direction::Probe, &[][..]),
        _ => return Err(WireError::Unexpected.into()),
    };
    check_length(patterns).map_err(TransferError::Near)?;
    Ok((request, direction))
}

fn accept(
    request: Message,
    root: Root<'_>,
    options: &ServeOptions,
) -> Result<Request, TransferError> {
    let place = root.place()?;
    match request {
        Message::Put { destination, into_directory, id, rehearses, patterns } => {
            let path = root.path(&destination)?;
            let id = id.filter(|_| !rehearses);
            let filter = Filter::new(&patterns).map_err(TransferError::Near)?;
            let destination = Destination::new(place, &path, into_directory)
                .with_journal(id)
                .telling(true, true)
                .rehearsed(rehearses)
                .protecting(filter)
                .within(options.budget.clone())
                .owning(options.owners);
            Ok(Request::Put(path, destination))
        }
        Message::Get { source, terms } => {
            options.asked.set(terms.rate);
            let path = root.path(&source)?;
            is_there(&place, &path)?;
            let filter = Filter::new(&terms.patterns).map_err(TransferError::Near)?;
            let mirrors = terms.compare.is_some();
            let progress = options.progress.clone();
            let list = vec![Source::new(&path).mirrored(mirrors).filtered(filter)];
            let sources = Sources::new(place, list, terms, progress).within(&options.budget);
            Ok(Request::Get(path, Box::new(sources)))
        }
        Message::Probe { bytes } => Ok(Request::Probe(bytes)),
        _ => Err(WireError::Unexpected.into()),
    }
}

/// Whether a request is a put to this path, or asks for no file at all.
fn is_only(request: &Message, path: &Path) -> bool {
    match request {
        Message::Put { destination, .. } => destination.0 == path.as_os_str().as_bytes(),
        Message::Probe { .. } => true,
        _ => false,
    }
}

/// Tells at once that there is no such source, rather than as a file that failed.
pub(crate) fn is_there(place: &Place, path: &Path) -> Result<(), TransferError> {
    let opened = place.open(path, OFlags::PATH);
    opened
        .map(|_| ())
        .map_err(|error| TransferError::Near(format!("{path:?}: {}", explain(&error))))
}

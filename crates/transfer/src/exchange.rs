//! The two roles on a stream, whoever asked: one side sends, the other receives.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::arriving::CHECKPOINT;
use crate::destination::Destination;
use crate::error::TransferError;
use crate::notes::Notes;
use crate::pipe::{Emptier, Occupancy, pipe};
use crate::progress::Progress;
use crate::sink;
use crate::source;
use crate::sources::Sources;
use crate::summary::{Counts, Summary};
use crate::wire::{
    CONTROL_HEAD, HELLO_LEN, HELLO_START, Message, WireError, append_message, check_hello,
    check_start, control_length, parse_message,
};

/// Replies that may wait for the stream.
const REPLIES: usize = 64;

/// After giving up, so many bytes are still read and dropped, for closing a socket with unread bytes
/// would take back the reason just sent. It is more than any path holds.
const DRAIN_MAX: u64 = 1 << 30;

/// Whether the other side's hello is still to be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hello {
    Expected,
    Read,
}

impl Hello {
    pub async fn read(self, stream: &mut (impl AsyncRead + Unpin)) -> Result<(), TransferError> {
        if self == Self::Expected {
            let mut hello = [0; HELLO_LEN];
            let (start, rest) = hello.split_first_chunk_mut::<HELLO_START>().expect("it is longer");
            read_exact(stream, start).await?;
            // An older release's hello ends here.
            check_start(start)?;
            read_exact(stream, rest).await?;
            check_hello(&hello)?;
        }
        Ok(())
    }
}

/// Reads one control frame, and not a byte more.
pub(crate) async fn read_message(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Message, TransferError> {
    let mut head = [0; CONTROL_HEAD];
    read_exact(stream, &mut head).await?;
    let mut body = vec![0; control_length(&head)?];
    read_exact(stream, &mut body).await?;
    Ok(parse_message(&head, &body)?)
}

async fn read_exact(
    stream: &mut (impl AsyncRead + Unpin),
    into: &mut [u8],
) -> Result<(), TransferError> {
    match stream.read_exact(into).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(TransferError::Cut),
        Err(error) => Err(error.into()),
    }
}

/// Sends the sources behind `preamble`, and waits until the other side has them on its disk.
pub(crate) async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    preamble: Vec<u8>,
    hello: Hello,
    sources: Sources,
) -> Result<Summary, TransferError> {
    let (mut reading, mut writing) = tokio::io::split(stream);
    let (filler, emptier) = pipe();
    let sources = Arc::new(sources);
    let worker = spawn_blocking({
        let sources = sources.clone();
        move || source::run(&sources, &preamble, filler)
    });
    let counter = spawn_blocking({
        let sources = sources.clone();
        move || sources.count()
    });

    let confirmed = {
        let confirming = async {
            hello.read(&mut reading).await?;
            confirmation(&mut reading, &sources).await
        };
        let pumping = async {
            emptier.empty_into(&mut writing).await?;
            // A client ends its direction when it has heard of the end, so that the server knows.
            if hello == Hello::Read { writing.shutdown().await } else { Ok(()) }
        };
        tokio::pin!(confirming, pumping);
        tokio::select! {
            biased;
            confirmed = &mut confirming => {
                if confirmed.is_ok() {
                    // Only the end of this direction is left to be written; the files are there.
                    let _ = pumping.await;
                }
                confirmed
            }
            // A receiver that gives up says why before it closes.
            pumped = &mut pumping => match (confirming.await, pumped) {
                (Err(TransferError::Cut | TransferError::Connection(_)), Err(error)) => {
                    Err(error.into())
                }
                (confirmed, _) => confirmed,
            },
        }
    };
    // Out of the block, the pipe is closed, so the threads end.
    let sent = finished(worker).await;
    finished(counter).await;
    let at = net::clock::now();
    if let Ok((counts, ..)) = &confirmed {
        sources.progress.end();
        // Until the end of this direction has arrived, a receiver with a journal keeps it.
        let journal = counts.files > 1 || counts.bytes >= CHECKPOINT;
        let patience = if journal { FAREWELL } else { Duration::ZERO };
        let _ = timeout(patience, writing.shutdown()).await;
    }
    let (counts, mut notes, receiving) = confirmed?;
    let sending = sent.occupancy.ok_or(WireError::Unexpected)?;
    notes.append(sent.notes);
    Ok(Summary { counts, kept: sent.kept, notes, sending, receiving, confirmed: Some(at) })
}

/// Reads the receiver's replies to the last.
async fn confirmation(
    stream: &mut (impl AsyncRead + Unpin),
    sources: &Sources,
) -> Result<(Counts, Notes, Occupancy), TransferError> {
    let progress = &sources.progress;
    let mut notes = Notes::default();
    loop {
        let message = read_message(stream).await?;
        progress.hear();
        match message {
            Message::Progress { files, bytes } => {
                progress.set_files(files);
                progress.set_bytes(bytes);
            }
            Message::Has { tags } => sources.had.add(tags),
            Message::HasPart { tag, state } => sources.had.add_part(tag, state),
            Message::HadAll => sources.had.add_all(),
            Message::Stands { standing } => sources.had.add_standing(standing),
            Message::Told => sources.had.add_told(),
            Message::Pieces { path, average, pieces, is_last } => {
                sources.versions.add(&path, average, &pieces, is_last);
            }
            Message::Note(note) => notes.push(note),
            Message::Done { counts, occupancy } => {
                progress.set_done(counts.files, counts.bytes);
                return Ok((counts, notes, occupancy));
            }
            Message::Fatal { reason } => return Err(TransferError::Far(reason)),
            _ => return Err(WireError::Unexpected.into()),
        }
    }
}

/// How long the other side may take to end the stream once all is done or given up.
const FAREWELL: Duration = Duration::from_secs(5);

/// Receives to the destination, sending replies behind `preamble`.
pub(crate) async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    preamble: Vec<u8>,
    hello: Hello,
    destination: Destination,
    progress: Progress,
) -> Result<Summary, TransferError> {
    let (mut reading, mut writing) = tokio::io::split(stream);
    let (filler, emptier) = pipe();
    let (replies, outgoing) = mpsc::channel(REPLIES);
    let worker = spawn_blocking({
        let progress = progress.clone();
        move || sink::run(emptier, replies, destination, progress)
    });

    let filling = async {
        hello.read(&mut reading).await?;
        Ok(filler.fill_from(&mut reading).await?)
    };
    let answering = async { Ok(write_replies(&mut writing, preamble, outgoing).await?) };
    let pumped: Result<_, TransferError> = async { tokio::try_join!(filling, answering) }.await;

    match (finished(worker).await, pumped) {
        // All is on the disk, so that a reply which did not get through fails the sender alone.
        (Ok((summary, journal)), _) => {
            progress.end();
            // The sender's end of the stream, so that closing ours does not cut off the last word.
            // A sender that has heard it closes at once, often before it acknowledges our end.
            let heard = drain(&mut reading).await;
            // A client that may not have heard of the end comes again, and finds all there; so does
            // one that has more to bring.
            let is_over = !summary.is_partial() && (heard || hello == Hello::Expected);
            if let Some(journal) = journal.filter(|_| is_over) {
                journal.remove();
            }
            Ok(summary)
        }
        (Err(TransferError::Cut), Err(error)) => Err(error),
        (Err(error @ (TransferError::Near(_) | TransferError::Protocol(_))), Ok(_)) => {
            drain(&mut reading).await;
            Err(error)
        }
        (Err(error), _) => Err(error),
    }
}

/// Receives without a disk: `onlooker` is shown what comes, and answers.
pub(crate) async fn show<S, T>(
    stream: S,
    preamble: Vec<u8>,
    onlooker: impl FnOnce(Emptier, mpsc::Sender<Message>) -> Result<T, TransferError> + Send + 'static,
) -> Result<T, TransferError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: Send + 'static,
{
    let (mut reading, mut writing) = tokio::io::split(stream);
    let (filler, emptier) = pipe();
    let (replies, outgoing) = mpsc::channel(REPLIES);
    let worker = spawn_blocking(move || onlooker(emptier, replies));
    let filling = async {
        Hello::Expected.read(&mut reading).await?;
        Ok(filler.fill_from(&mut reading).await?)
    };
    let answering = async { Ok(write_replies(&mut writing, preamble, outgoing).await?) };
    let pumped: Result<_, TransferError> = async { tokio::try_join!(filling, answering) }.await;
    let shown = finished(worker).await;
    // So that closing our end does not cut off the last word.
    drain(&mut reading).await;
    match (shown, pumped) {
        (Err(TransferError::Cut), Err(error)) => Err(error),
        (shown, _) => shown,
    }
}

async fn write_replies(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: Vec<u8>,
    mut replies: mpsc::Receiver<Message>,
) -> io::Result<()> {
    let mut waiting = Vec::new();
    loop {
        stream.write_all(&bytes).await?;
        stream.flush().await?;
        bytes.clear();
        if replies.recv_many(&mut waiting, REPLIES).await == 0 {
            return stream.shutdown().await;
        }
        for reply in waiting.drain(..) {
            append_message(&reply, &mut bytes);
        }
    }
}

/// Tells the other side why there will be no transfer.
pub(crate) async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    mut preamble: Vec<u8>,
    reason: &str,
) {
    let (mut reading, mut writing) = tokio::io::split(stream);
    append_message(&Message::fatal(reason), &mut preamble);
    let telling = async {
        // What cannot be told to a side that is gone needs no telling.
        let _ = writing.write_all(&preamble).await;
        let _ = writing.shutdown().await;
    };
    tokio::join!(telling, drain(&mut reading));
}

/// Reads and drops what is still on its way, until the other side has seen the last word and closes;
/// whether it did, in time.
async fn drain(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut rest = stream.take(DRAIN_MAX);
    let copied = timeout(FAREWELL, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    matches!(copied, Ok(Ok(dropped)) if dropped < DRAIN_MAX)
}

/// Waits for a blocking thread; its panic is this task's panic.
async fn finished<T>(thread: JoinHandle<T>) -> T {
    match thread.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => unreachable!("blocking threads are not aborted"),
        },
    }
}

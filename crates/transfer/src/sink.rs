//! The receiving side's disk: takes the stream apart, writes and hashes under temporary names.

use std::io;
use std::sync::PoisonError;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use rustix::fs::FileType;
use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::arriving::{Arriving, Header};
use crate::attributes::Attributes;
use crate::commit::{self, Batch, Finished, Report};
use crate::destination::{Destination, Target};
use crate::error::{TransferError, explain};
use crate::folding::Entered;
use crate::journal::{Journal, Part, Stood, TransferId};
use crate::notes::NoteKind;
use crate::pack::Unpacker;
use crate::pipe::{Emptier, Occupancy};
use crate::progress::Progress;
use crate::relpath::{RelPath, names};
use crate::removal::Removal;
use crate::summary::{Counts, Kept, Summary};
use crate::temp::{Names, OWN, bears_own};
use crate::tree::Tree;
use crate::wire::{COPY_MAX, Decoder, HOLE_MAX, Item, Message, WireError};

mod clearing;
mod filling;
mod making;
mod opening;
mod syncing;

use self::syncing::{Asked, tell_pieces};

/// Versions that the sender may ask for ahead of their turn.
const ASKED_MAX: usize = 16;

/// The sender hears about progress every so many bytes.
const PROGRESS_BYTES: u64 = 256 << 10;

/// Takes everything from the pipe and puts it at the destination; the last reply is `Done`, or
/// `Fatal` when this side is the one that gives up. The journal, if there is one, is of no use any
/// more once the sender has heard of the end.
pub(crate) fn run(
    mut pipe: Emptier,
    replies: mpsc::Sender<Message>,
    destination: Destination,
    progress: Progress,
) -> Result<(Summary, Option<Journal>), TransferError> {
    let rehearses = destination.rehearses;
    let report = Report::new(&destination, replies, progress);
    let (taken, committed) = thread::scope(|scope| {
        // No room in between: one batch is filled while one is committed.
        let (commits, batches) = sync_channel(0);
        let committer = scope.spawn(|| commit::run(batches, &report));
        let (ask, asked) = sync_channel(ASKED_MAX);
        scope.spawn(|| tell_pieces(asked, &report, &destination.budget));
        let taken = Names::new()
            .map_err(|error| TransferError::Near(error.to_string()))
            .and_then(|names| Sink::new(&destination, &report, commits, ask, names).run(&mut pipe));
        (taken, committer.join().expect("the committer does not panic"))
    });
    // The committer's reason comes first: without it, the sink only knows that it is gone.
    let ended = committed.map_err(TransferError::Near).and_then(|mut counts| {
        let (sending, kept, other) = taken?;
        if rehearses {
            counts = other;
        }
        counts.removed = other.removed;
        counts.files = counts.files.saturating_add(kept.files);
        counts.bytes = counts.bytes.saturating_add(kept.bytes);
        Ok((counts, kept, sending))
    });
    report.settle_unfit(matches!(ended, Err(TransferError::Near(_))));
    let journal = report.begun_journal();
    let last = match &ended {
        Ok((counts, ..)) => Message::Done { counts: *counts, occupancy: pipe.occupancy() },
        Err(TransferError::Near(reason)) => Message::fatal(reason),
        Err(TransferError::Protocol(error)) => Message::fatal(&error.to_string()),
        Err(_) => return Err(ended.expect_err("matched")),
    };
    if let Message::Fatal { .. } = last {
        // So that the sender knows whether anything stands there.
        let (files, bytes) = report.progress.moved();
        let _ = report.replies.blocking_send(Message::Progress { files, bytes });
    }
    // A sender that is gone is noticed where the stream is written.
    let _ = report.replies.blocking_send(last);
    let (counts, kept, sending) = ended?;
    let notes = report.notes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let receiving = pipe.occupancy();
    let summary = Summary { counts, kept, notes, sending, receiving, confirmed: None };
    Ok((summary, journal))
}

struct Sink<'a> {
    destination: &'a Destination,
    report: &'a Report,
    commits: SyncSender<Batch>,
    ask: SyncSender<Asked>,
    names: Names,
    unpacker: Option<Unpacker>,
    removal: Removal,
    /// What was removed, or would be there if this were more than a rehearsal.
    other: Counts,
    /// Opened for the first entry, so that nothing is made when the sender has nothing.
    target: Option<Target>,
    /// Nothing there can give way to what comes.
    is_fresh: bool,
    /// Room that all of it needs, once that is known and until it was looked for.
    least: Option<u64>,
    arriving: Option<Arriving>,
    /// What an earlier sitting has begun and this one has not met yet.
    parts: Vec<Part>,
    /// What it has brought whole.
    stood: Stood,
    /// What could not be set of it still, unless it comes again.
    bare: Vec<(RelPath, Errno)>,
    /// The transfer, if there was an earlier sitting.
    goes_on: Option<TransferId>,
    /// The destination is to be as the source's top is.
    mirrors: bool,
    /// An entry has come.
    has_begun: bool,
    /// The directories above the last entry.
    above: Vec<Header>,
    /// The directories of this transfer.
    entered: Entered,
    /// A directory that could not be made; what it holds is passed over without further notes.
    lost: Option<RelPath>,
    /// It was told that owners are not set.
    told_owner: bool,
    batch: Batch,
    written: u64,
    /// The same, with what came and was not wanted.
    taken: u64,
    /// Files that were told, and what was taken then.
    told: (u64, u64),
}

impl<'a> Sink<'a> {
    fn new(
        destination: &'a Destination,
        report: &'a Report,
        commits: SyncSender<Batch>,
        ask: SyncSender<Asked>,
        names: Names,
    ) -> Self {
        Self {
            destination,
            report,
            commits,
            ask,
            names,
            unpacker: None,
            removal: Removal::new(&destination.budget),
            other: Counts::default(),
            target: None,
            is_fresh: false,
            least: None,
            arriving: None,
            parts: Vec::new(),
            stood: Stood::default(),
            bare: Vec::new(),
            goes_on: None,
            mirrors: false,
            has_begun: false,
            above: Vec::new(),
            entered: Entered::default(),
            lost: None,
            told_owner: false,
            batch: Batch::default(),
            written: 0,
            taken: 0,
            told: (0, 0),
        }
    }

    /// What is whole by then is committed, however the stream ends.
    fn run(mut self, pipe: &mut Emptier) -> Result<(Occupancy, Kept, Counts), TransferError> {
        let taken = self.take(pipe);
        for (path, error) in std::mem::take(&mut self.bare) {
            self.report.attributes(&path, Err(error));
        }
        let left = if taken.is_ok() { self.leave(None) } else { Ok(()) };
        self.leave_begun();
        self.batch.is_last = taken.is_ok();
        let committed = self.commit();
        if taken.is_err() {
            self.removal.tell_aside(self.report);
        }
        let (occupancy, kept) = taken?;
        committed.and_then(|()| self.remove())?;
        self.complete_manifest()?;
        // After a copy that has left something out, the same command goes on.
        if !self.report.is_partial() {
            for part in std::mem::take(&mut self.parts) {
                part.remove(self.tree());
            }
        }
        left.map(|()| (occupancy, kept, self.other))
    }

    fn take(&mut self, pipe: &mut Emptier) -> Result<(Occupancy, Kept), TransferError> {
        let mut decoder = Decoder::default();
        if self.destination.id.is_none() {
            // Also to a place that is not opened, for nothing is to be changed there.
            self.tell_had_all();
        }
        while let Some(block) = pipe.next() {
            let mut input = &block[..];
            while let Some(item) = decoder.next(&mut input)? {
                self.report.progress.hear();
                match item {
                    Item::Data(data) => self.data(data)?,
                    Item::Packed(packed) => self.packed(&packed)?,
                    Item::Message(Message::Finish { occupancy, kept })
                        if self.arriving.is_none() =>
                    {
                        return Ok((occupancy, kept));
                    }
                    Item::Message(message) => self.message(message)?,
                }
                // Many holes and copies fit into a block.
                self.tell_progress();
            }
            pipe.recycle(block);
        }
        Err(TransferError::Cut)
    }

    fn message(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Totals { files, bytes, least } => {
                self.report.progress.set_totals(files, bytes);
                self.least = Some(least);
                self.find_room()?;
            }
            Message::Note(note) => self.report.keep(note),
            Message::Fatal { reason } => return Err(TransferError::Far(reason)),
            Message::End { hash } => return self.end(&hash),
            Message::From { offset } => return self.go_on(offset),
            Message::Hole { length } if length <= HOLE_MAX => return self.hole(length),
            Message::Copy { offset, length } if length <= COPY_MAX && self.destination.tells => {
                return self.copy(offset, length);
            }
            // Also while a file arrives: the sender looks ahead.
            Message::Ask { path } if self.destination.tells => return self.asked(path),
            Message::Abandon if self.arriving.is_some() => self.abandon(None),
            _ if self.arriving.is_some() => return Err(WireError::Unexpected.into()),
            Message::Directory { path, attributes } => {
                let header = Header::plain(FileType::Directory, path, attributes);
                self.entry(header, Self::directory)?;
            }
            Message::Symlink { path, target, attributes } => {
                let header = Header::plain(FileType::Symlink, path, attributes);
                self.entry(header, |sink, header| sink.symlink(header, &target.0))?;
            }
            Message::Link { path, to } => {
                if !self.destination.expects(&to) {
                    return Err(WireError::Unasked.into());
                }
                if self.destination.rehearses && self.is_linked(&path, &to)? {
                    return Ok(());
                }
                let header = Header::plain(FileType::RegularFile, path, Attributes::default());
                self.entry(header, |sink, header| sink.link(header, &to))?;
            }
            Message::Mend { path, attributes } if self.destination.tells => {
                let header = Header::plain(FileType::RegularFile, path, attributes);
                self.entry(header, Self::mend)?;
            }
            Message::Compare { path, by, owner } if self.destination.tells => {
                self.tell_standing(&path, by, owner)?;
            }
            Message::Names { path, names, is_last } if self.destination.removes => {
                return self.keep_names(&path, names, is_last);
            }
            Message::Stays { path } if self.destination.expects(&path) => {
                self.report.manifest.as_ref().ok_or(WireError::Unasked)?.owe(&path);
            }
            Message::Mend { .. }
            | Message::Compare { .. }
            | Message::Names { .. }
            | Message::Stays { .. } => return Err(WireError::Unasked.into()),
            Message::File { path, size, tag, attributes } => {
                let kind = FileType::RegularFile;
                let header = Header { kind, path, size, tag, attributes };
                let began = self.entry(header, Self::file)?;
                self.arriving = Some(began.unwrap_or(Arriving::Unwanted));
            }
            _ => return Err(WireError::Unexpected.into()),
        }
        Ok(())
    }

    /// Makes an entry at its place. An error is noted; only one that ends everything is returned.
    fn entry<T>(
        &mut self,
        mut header: Header,
        make: impl FnOnce(&mut Self, Header) -> io::Result<T>,
    ) -> Result<Option<T>, TransferError> {
        if !self.destination.expects(&header.path) {
            return Err(WireError::Unasked.into());
        }
        let is_owned = !self.destination.owns && header.attributes.owner.take().is_some();
        if is_owned && !std::mem::replace(&mut self.told_owner, true) {
            let reason = "copied without its owner, which the receiving side does not set here; \
                          others like it are not named";
            self.report.tell(NoteKind::Skipped, &header.path, reason);
        }
        if self.destination.rehearses {
            self.rehearse(&header)?;
            return Ok(None);
        }
        if self.target.is_none() {
            self.open(&header.path).map_err(TransferError::Near)?;
            self.find_room()?;
        }
        if self.lost.as_ref().is_some_and(|lost| lost.is_above(&header.path)) {
            return Ok(None);
        }
        let (sent, is_all) = (header.path.clone(), self.is_all(&header.path));
        let target = self.target.as_ref().expect("opened");
        let place = target.locate(&header.path);
        let made = match place.clone() {
            Ok(path) if bears_own(&path, header.kind) => {
                return self.refuse(&path, &sent, is_all).map(|()| None);
            }
            Ok(path) => {
                self.leave(Some(&path))?;
                self.bare.retain(|(bare, _)| *bare != path);
                header.path = path;
                make(self, header)
            }
            Err(error) => Err(io::Error::other(error)),
        };
        match made {
            Ok(made) => {
                if self.batch.is_full() {
                    self.commit()?;
                }
                Ok(Some(made))
            }
            // All of it would cross the network to be thrown away.
            Err(error) if is_all && Errno::from_io_error(&error).is_some() => {
                let path = sent.as_path();
                Err(TransferError::Near(format!("{path:?}: {}", explain(&error))))
            }
            Err(error) => {
                self.report.judge(&sent, &error).map_err(TransferError::Near)?;
                place.iter().for_each(|place| self.report.fail(place));
                self.lost = Some(sent);
                Ok(None)
            }
        }
    }

    /// Leaves out what has a name of ours: who could write a journal could have anything told and removed by it.
    /// Earlier releases send what lies about among the rest, and that is no failure.
    fn refuse(&self, path: &RelPath, sent: &RelPath, is_all: bool) -> Result<(), TransferError> {
        if is_all {
            return Err(TransferError::Near(format!("{:?}: {OWN}", path.as_path())));
        }
        self.report.tell(NoteKind::Skipped, sent, OWN);
        self.report.fail(path);
        Ok(())
    }

    /// Whether nothing comes but this entry, and what is below it, nor is anything else asked for beside it: the
    /// first of a single thing.
    fn is_all(&mut self, path: &RelPath) -> bool {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        is_first && !self.destination.takes_several && names(path.as_bytes()).count() == 1
    }

    /// The name by which a manifest, if there is one, is to list what is at a place.
    fn sent(&self, at: &RelPath) -> Option<RelPath> {
        self.report.manifest.as_ref().and(self.target.as_ref()).map(|target| target.sent(at))
    }

    fn tree(&mut self) -> &mut Tree {
        &mut self.target.as_mut().expect("opened for the first entry").tree
    }

    /// Finishes the directories that `next` is not in: nothing more comes into them.
    fn leave(&mut self, next: Option<&RelPath>) -> Result<(), TransferError> {
        let is_left = |last: &mut Header| !next.is_some_and(|next| last.path.is_above(next));
        while let Some(done) = self.above.pop_if(is_left) {
            let Header { path, attributes, .. } = done;
            match self.tree().directory(path.as_bytes()) {
                Ok(directory) => {
                    self.batch.finished.push(Finished { directory, path, attributes });
                }
                Err(error) => self.report.judge(&path, &error).map_err(TransferError::Near)?,
            }
            if self.batch.is_full() {
                self.commit()?;
            }
        }
        Ok(())
    }

    /// Hands the batch to the committer. When that has given up, its reason is found there.
    fn commit(&mut self) -> Result<(), TransferError> {
        self.commits.send(std::mem::take(&mut self.batch)).map_err(|_| TransferError::Cut)
    }

    /// Nothing else is left of an earlier sitting.
    fn tell_had_all(&self) {
        let _ = self.report.replies.blocking_send(Message::HadAll);
    }

    fn tell_progress(&mut self) {
        let (files, bytes) = self.report.progress.moved();
        // Also of what is not wanted, for who sends it waits for a sign of life.
        if files != self.told.0 || self.taken.abs_diff(self.told.1) >= PROGRESS_BYTES {
            self.told = (files, self.taken);
            // A sender that is gone is noticed where the stream is written.
            let _ = self.report.replies.blocking_send(Message::Progress { files, bytes });
        }
    }
}

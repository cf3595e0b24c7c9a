//! The sending side's disk: reads and hashes ahead of the network, and writes the frames.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, FileType, SeekFrom, fadvise, seek};
use rustix::io::{Errno, read};

use crate::error::explain;
use crate::had::Had;
use crate::hash::{Hasher, State};
use crate::meta::Meta;
use crate::notes::{Note, NoteKind, Notes};
use crate::pipe::{BLOCK, BLOCK_ROOM, Closed, Filler, Occupancy};
use crate::place::Place;
use crate::progress::Progress;
use crate::relpath::{RawBytes, RelPath};
use crate::summary::Kept;
use crate::walk::{Count, Found, Source, Visitor};
use crate::wire::{DATA_HEAD, DATA_MAX, Message, append_message, data_head};

const _: () = assert!(BLOCK_ROOM <= DATA_MAX, "a block may be one data frame");

/// What the user named, and how much it holds.
pub(crate) struct Sources {
    pub place: Place,
    pub list: Vec<Source>,
    pub progress: Progress,
    /// Files and bytes, once they have been counted.
    totals: OnceLock<(u64, u64)>,
    /// Nobody waits for the count any more.
    ended: AtomicBool,
    /// What need not be sent.
    pub had: Had,
}

impl Sources {
    pub fn new(place: Place, list: Vec<Source>, progress: Progress) -> Self {
        let (totals, ended, had) = (OnceLock::new(), AtomicBool::new(false), Had::default());
        Self { place, list, progress, totals, ended, had }
    }

    /// Counts on a thread of its own, so that the first byte does not wait for it.
    pub fn count(&self) {
        let wanted = || !self.ended.load(Relaxed);
        let mut count = Count { files: 0, bytes: 0, wanted };
        for source in &self.list {
            if source.walk(&self.place, &mut count).is_break() {
                return;
            }
        }
        self.progress.set_totals(count.files, count.bytes);
        let _ = self.totals.set((count.files, count.bytes));
    }

    pub fn end(&self) {
        self.ended.store(true, Relaxed);
    }
}

/// What the sending thread has to tell at its end.
pub(crate) struct Sent {
    pub notes: Notes,
    pub kept: Kept,
    /// `None` when the other end of the pipe went away before everything was sent.
    pub occupancy: Option<Occupancy>,
}

/// Sends all sources, behind the first bytes of this side.
pub(crate) fn run(sources: &Sources, preamble: &[u8], pipe: Filler) -> Sent {
    let mut sender = Sender::new(sources, preamble, pipe);
    let occupancy = match sender.send_all() {
        ControlFlow::Continue(occupancy) => Some(occupancy),
        ControlFlow::Break(()) => None,
    };
    sources.end();
    Sent { notes: sender.notes, kept: sender.kept, occupancy }
}

struct Sender<'a> {
    sources: &'a Sources,
    /// The one being walked.
    source: Option<&'a Source>,
    told_totals: bool,
    notes: Notes,
    kept: Kept,
    pipe: Filler,
    block: Vec<u8>,
}

impl<'a> Sender<'a> {
    fn new(sources: &'a Sources, preamble: &[u8], mut pipe: Filler) -> Self {
        let mut block = pipe.fresh();
        block.extend_from_slice(preamble);
        let (notes, kept) = (Notes::default(), Kept::default());
        Self { sources, source: None, told_totals: false, notes, kept, pipe, block }
    }

    fn send_all(&mut self) -> ControlFlow<(), Occupancy> {
        for source in &self.sources.list {
            self.source = Some(source);
            source.walk(&self.sources.place, self)?;
        }
        let occupancy = self.pipe.occupancy();
        self.message(&Message::Finish { occupancy, kept: self.kept })?;
        self.hand_over()?;
        ControlFlow::Continue(occupancy)
    }

    fn message(&mut self, message: &Message) -> ControlFlow<()> {
        append_message(message, &mut self.block);
        if self.block.len() >= BLOCK { self.hand_over() } else { ControlFlow::Continue(()) }
    }

    fn hand_over(&mut self) -> ControlFlow<()> {
        let next = self.pipe.fresh();
        match self.pipe.hand_over(std::mem::replace(&mut self.block, next)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(Closed) => ControlFlow::Break(()),
        }
    }

    /// Notes something left out, here and on the other side.
    fn note(&mut self, kind: NoteKind, path: &RelPath, reason: &str) -> ControlFlow<()> {
        let typed = self.source.map_or_else(Vec::new, |source| source.typed(path));
        let note = Note::new(kind, &typed, reason);
        self.notes.push(note.clone());
        self.message(&Message::Note(note))
    }

    fn send_file(&mut self, path: &RelPath, file: &OwnedFd) -> ControlFlow<()> {
        let before = match Meta::of(file) {
            Ok(meta) if meta.kind == FileType::RegularFile => meta,
            Ok(_) => return self.note(NoteKind::Skipped, path, "it is no regular file any more"),
            Err(error) => return self.note(NoteKind::Failed, path, &explain(&error.into())),
        };
        if before.size > BLOCK as u64 {
            // Only advice: the file arrives without it too.
            let _ = fadvise(file, 0, None, Advice::Sequential);
        }
        let (Meta { mode, size, modified, .. }, tag) = (before, before.tag(path));
        self.message(&Message::File { path: path.clone(), size, mode, modified, tag })?;
        let mut hasher = Hasher::default();
        while hasher.length() < size {
            if self.sources.had.holds(&tag) {
                // It was told on the way that all of it is there.
                self.keep(size);
                return self.message(&Message::Abandon);
            }
            let there = self.sources.had.part(&tag, hasher.length(), size);
            let read = match there {
                Some(state) => self.go_on(file, state, &mut hasher)?,
                None => self.read(file, size - hasher.length(), &mut hasher),
            };
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    self.note(NoteKind::Failed, path, &explain(&error.into()))?;
                    return self.message(&Message::Abandon);
                }
            }
            if self.block.len() >= BLOCK {
                self.hand_over()?;
            }
        }
        let is_as_before = Meta::of(file).is_ok_and(|after| after.is_as(&before));
        if hasher.length() < size || !is_as_before {
            let reason = "it changed while it was being read: copy it again when nothing writes it";
            self.note(NoteKind::Failed, path, reason)?;
            return self.message(&Message::Abandon);
        }
        self.message(&Message::End { hash: hasher.finalize() })
    }

    /// A file is there already.
    fn keep(&mut self, size: u64) {
        self.kept.files += 1;
        self.kept.bytes += size;
    }

    /// Goes on where the receiver has got to; gives how far that is.
    fn go_on(
        &mut self,
        file: &OwnedFd,
        state: State,
        hasher: &mut Hasher,
    ) -> ControlFlow<(), Result<u64, Errno>> {
        let offset = state.length();
        if let Err(error) = seek(file, SeekFrom::Start(offset)) {
            return ControlFlow::Continue(Err(error));
        }
        self.kept.begun += offset - hasher.length();
        *hasher = Hasher::from(state);
        self.message(&Message::From { offset })?;
        ControlFlow::Continue(Ok(offset))
    }

    /// Reads what fits into the block as one data frame, at most `left` bytes of it.
    fn read(&mut self, file: impl AsFd, left: u64, hasher: &mut Hasher) -> Result<u64, Errno> {
        let head = self.block.len();
        let start = head + DATA_HEAD;
        self.block.extend_from_slice(&[0; DATA_HEAD]);
        let read = loop {
            match read(&file, spare_capacity(&mut self.block)) {
                Err(Errno::INTR) => {}
                done => break done,
            }
        };
        // A file that has grown gives more than was announced.
        let kept = read.map(|read| left.min(read as u64) as usize);
        let length = kept.unwrap_or(0);
        if length == 0 {
            self.block.truncate(head);
        } else {
            self.block.truncate(start + length);
            self.block[head..start].copy_from_slice(&data_head(length));
            hasher.update(&self.block[start..]);
        }
        kept.map(|kept| kept as u64)
    }
}

impl Visitor for Sender<'_> {
    fn visit(&mut self, path: &RelPath, found: Found<'_>) -> ControlFlow<()> {
        if !self.told_totals
            && let Some(&(files, bytes)) = self.sources.totals.get()
        {
            self.told_totals = true;
            self.message(&Message::Totals { files, bytes })?;
        }
        match found {
            Found::Directory(Meta { mode, modified, .. }) => {
                self.message(&Message::Directory { path: path.clone(), mode, modified })
            }
            Found::Symlink(target, Meta { modified, .. }) => {
                let target = RawBytes(target);
                self.message(&Message::Symlink { path: path.clone(), target, modified })
            }
            Found::File(_, meta) if self.sources.had.holds(&meta.tag(path)) => {
                self.keep(meta.size);
                ControlFlow::Continue(())
            }
            Found::File(open, _) => {
                self.sources.progress.set_current(path.as_bytes());
                match open() {
                    Ok(file) => self.send_file(path, &file),
                    Err(error) => self.note(NoteKind::Failed, path, &explain(&error)),
                }
            }
            Found::Special => {
                let reason = "sockets, pipes and devices are not copied";
                self.note(NoteKind::Skipped, path, reason)
            }
            Found::Failed(reason) => self.note(NoteKind::Failed, path, &reason),
        }
    }
}

//! The sending side's disk: reads and hashes ahead of the network, and writes the frames.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Advice, FileType, fadvise};

use crate::attributes::{Attributes, extended};
use crate::error::explain;
use crate::hash::Hasher;
use crate::meta::{Meta, Modified, Tag};
use crate::notes::{Note, NoteKind, Notes};
use crate::pack::Packer;
use crate::pipe::{BLOCK, BLOCK_ROOM, Closed, Filler, Occupancy};
use crate::reading::is_ready;
use crate::relpath::{RawBytes, RelPath};
use crate::sources::Sources;
use crate::standing::{Standing, contents};
use crate::summary::Kept;
use crate::temp::OWN;
use crate::walk::{Found, Source, Visitor};
use crate::wire::{AHEAD, DATA_MAX, Message, NAMES_BYTES, Terms, append_message};

/// Bytes in front of a name in a message, at most.
const NAME_HEAD: usize = 2;

const CHANGED: &str = "it changed while it was being read: copy it again when nothing writes it";

/// Permissions of what was no file.
const STREAM_MODE: u32 = 0o644;

mod bytes;
mod difference;
mod linked;

use linked::Linked;

const _: () = assert!(BLOCK_ROOM <= DATA_MAX, "a block may be one data frame");

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
    /// Files that a comparison has left out and no journal tells of, and their bytes.
    left_out: (u64, u64),
    linked: Linked,
    /// Sources of which was asked what stands there.
    compared: usize,
    /// Names of the directory being walked that are still to be told, and their bytes.
    names: (Vec<RawBytes>, usize),
    packer: Option<Packer>,
    pipe: Filler,
    block: Vec<u8>,
    /// Bytes handed over.
    handed: u64,
    /// Bytes of holes in the block.
    holes: u64,
}

impl<'a> Sender<'a> {
    fn new(sources: &'a Sources, preamble: &[u8], mut pipe: Filler) -> Self {
        let mut block = pipe.fresh();
        block.extend_from_slice(preamble);
        Self {
            sources,
            source: None,
            told_totals: false,
            notes: Notes::default(),
            kept: Kept::default(),
            left_out: (0, 0),
            linked: Linked::new(&sources.budget),
            compared: 0,
            names: (Vec::new(), 0),
            // Without memory for it, bytes go plain.
            packer: sources.terms.packs.then(Packer::new).and_then(Result::ok),
            pipe,
            block,
            handed: 0,
            holes: 0,
        }
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
        self.handed += self.block.len() as u64;
        self.holes = 0;
        let pipe = &self.pipe;
        if self.handed > AHEAD && !self.sources.had.wait_all(|| !pipe.is_closed()) {
            return ControlFlow::Break(());
        }
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

    /// What it has besides its bytes; what cannot be taken along is noted.
    fn attributes(
        &mut self,
        path: &RelPath,
        file: &OwnedFd,
        meta: &Meta,
    ) -> ControlFlow<(), Attributes> {
        let plain = Attributes::plain(meta, self.sources.terms.owner);
        let extended = match extended(file) {
            Ok(extended) => extended,
            Err(reason) => {
                self.note(NoteKind::Skipped, path, &reason)?;
                Vec::new()
            }
        };
        ControlFlow::Continue(Attributes { extended, ..plain })
    }

    /// Sends one of the names of a file.
    fn send_name(
        &mut self,
        path: &RelPath,
        open: &dyn Fn() -> std::io::Result<OwnedFd>,
        meta: &Meta,
    ) -> ControlFlow<()> {
        if let Some(to) = self.linked.find(meta) {
            let (path, to) = (path.clone(), to.clone());
            if let Some(manifest) = &self.sources.manifest {
                manifest.add_name(&path, &to);
            }
            return self.message(&Message::Link { path, to });
        }
        let was_foreseen = self.sources.has_version(path, meta);
        let is_there = if self.sources.is_held(&meta.tag(path)) {
            self.keep(path, meta.size, open)?;
            true
        } else if self.stands(path, open, meta)? {
            true
        } else {
            self.sources.progress.set_current(path.as_bytes(), Some(meta.size));
            match open() {
                Ok(file) => self.send_file(path, &file)?,
                Err(error) => {
                    self.note(NoteKind::Failed, path, &explain(&error))?;
                    false
                }
            }
        };
        if was_foreseen {
            self.sources.versions.settle(path);
        }
        if is_there {
            self.linked.add(meta, path);
        }
        ControlFlow::Continue(())
    }

    /// Whether all of it went, or is there.
    fn send_file(&mut self, path: &RelPath, file: &OwnedFd) -> ControlFlow<(), bool> {
        let before = match Meta::of(file) {
            Ok(meta) if meta.kind == FileType::RegularFile => meta,
            other => {
                let (kind, reason) = match other {
                    Ok(_) => (NoteKind::Skipped, "it is no regular file any more".to_owned()),
                    Err(error) => (NoteKind::Failed, explain(&error.into())),
                };
                self.note(kind, path, &reason)?;
                return ControlFlow::Continue(false);
            }
        };
        if before.size > BLOCK as u64 {
            // Only advice: the file arrives without it too.
            let _ = fadvise(file, 0, None, Advice::Sequential);
        }
        let attributes = self.attributes(path, file, &before)?;
        let (size, tag) = (Some(before.size), before.tag(path));
        let version = self.version(path, &before)?;
        self.message(&Message::File { path: path.clone(), size, tag, attributes })?;
        if self.sources.terms.rehearses {
            self.message(&Message::Abandon)?;
            return ControlFlow::Continue(true);
        }
        let mut hasher = Hasher::default();
        let sent = match version {
            Some(version) => self.send_difference(file, &before, &tag, &version, &mut hasher)?,
            None => self.send_bytes(file, &before, &tag, &mut hasher)?,
        };
        let failed = match sent {
            Ok(false) => {
                // It was told on the way that all of it is there.
                self.message(&Message::Abandon)?;
                self.keep(path, before.size, &|| file.try_clone())?;
                return ControlFlow::Continue(true);
            }
            Ok(true)
                if hasher.length() == before.size
                    && Meta::of(file).is_ok_and(|after| after.is_as(&before)) =>
            {
                None
            }
            Ok(true) => Some(CHANGED.to_owned()),
            Err(error) => Some(explain(&error.into())),
        };
        match &failed {
            None => {
                let hash = hasher.finalize();
                if let Some(manifest) = &self.sources.manifest {
                    manifest.add(path, hash);
                }
                self.message(&Message::End { hash })?;
            }
            Some(reason) => {
                self.note(NoteKind::Failed, path, reason)?;
                self.message(&Message::Abandon)?;
            }
        }
        ControlFlow::Continue(failed.is_none())
    }

    /// Tells how much there is, once that is known.
    fn tell_totals(&mut self) -> ControlFlow<()> {
        let totals = self.sources.totals.get().filter(|_| !self.told_totals);
        let Some(&(files, bytes, least)) = totals else {
            return ControlFlow::Continue(());
        };
        self.told_totals = true;
        // What is not to be done needs no room. What stands there needs none either, and is for the receiver to see.
        let least = if self.sources.terms.rehearses { 0 } else { least };
        self.message(&Message::Totals { files, bytes, least })
    }

    /// Tells names that are to stay.
    fn tell_names(&mut self, path: &RelPath, is_last: bool) -> ControlFlow<()> {
        let (names, _) = std::mem::take(&mut self.names);
        self.message(&Message::Names { path: path.clone(), names, is_last })
    }

    /// Sends what comes until it ends.
    fn send_stream(&mut self, path: &RelPath, stream: &OwnedFd) -> ControlFlow<()> {
        let now = net::clock::wall();
        let modified = Modified { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() };
        let attributes = Attributes { mode: STREAM_MODE, modified, ..Attributes::default() };
        let (path, tag) = (path.clone(), Tag::default());
        self.message(&Message::File { path: path.clone(), size: None, tag, attributes })?;
        let mut hasher = Hasher::default();
        loop {
            let read = match is_ready(stream, self.block.is_empty()) {
                Ok(true) => self.read(stream, None, u64::MAX, &mut hasher),
                Ok(false) if self.pipe.is_closed() => return ControlFlow::Break(()),
                Ok(false) if self.block.is_empty() => continue,
                Ok(false) => {
                    self.hand_over()?;
                    continue;
                }
                Err(error) => Err(error),
            };
            match read {
                Ok(0) => return self.message(&Message::End { hash: hasher.finalize() }),
                Ok(_) if self.block.len() >= BLOCK => self.hand_over()?,
                Ok(_) => {}
                Err(error) => {
                    self.note(NoteKind::Failed, &path, &explain(&error.into()))?;
                    return self.message(&Message::Abandon);
                }
            }
        }
    }

    /// A file is there already. A manifest lists it all the same: this side's own is told its hash, the
    /// receiver's its name.
    fn keep(
        &mut self,
        path: &RelPath,
        size: u64,
        open: &dyn Fn() -> std::io::Result<OwnedFd>,
    ) -> ControlFlow<()> {
        self.kept.files += 1;
        self.kept.bytes += size;
        if self.sources.terms.lists {
            return self.message(&Message::Stays { path: path.clone() });
        }
        let manifest = self.sources.manifest.as_ref();
        let Some(manifest) = manifest.filter(|manifest| !manifest.knows(path)) else {
            return ControlFlow::Continue(());
        };
        match open().and_then(|file| Ok(contents(file, || !self.pipe.is_closed())?)) {
            Ok(hash) => manifest.add(path, hash),
            Err(_) if self.pipe.is_closed() => return ControlFlow::Break(()),
            Err(error) => {
                let reason = format!("it is not in the manifest: {}", explain(&error));
                self.note(NoteKind::Failed, path, &reason)?;
            }
        }
        ControlFlow::Continue(())
    }
}

impl Visitor for Sender<'_> {
    fn begin(&mut self, top: &RelPath) -> ControlFlow<()> {
        let Terms { compare: Some(by), owner, .. } = self.sources.terms else {
            return ControlFlow::Continue(());
        };
        self.message(&Message::Compare { path: top.clone(), by, owner })?;
        self.hand_over()?;
        self.compared += 1;
        let pipe = &self.pipe;
        if !self.sources.had.wait_told(self.compared, || !pipe.is_closed()) {
            return ControlFlow::Break(());
        }
        self.tell_lost(top)?;
        match self.sources.terms.removes {
            // No names yet, and yet they say ahead of all entries that there will be some.
            true => self.tell_names(top, false),
            false => ControlFlow::Continue(()),
        }
    }

    fn name(&mut self, directory: &RelPath, name: &OsStr) -> ControlFlow<()> {
        if !self.sources.terms.removes {
            return ControlFlow::Continue(());
        }
        self.names.1 += name.len() + NAME_HEAD;
        self.names.0.push(RawBytes(name.as_bytes().to_vec()));
        match self.names.1 >= NAMES_BYTES {
            true => self.tell_names(directory, false),
            false => ControlFlow::Continue(()),
        }
    }

    fn leave(&mut self, directory: &RelPath) -> ControlFlow<()> {
        match self.sources.terms.removes {
            true => self.tell_names(directory, true),
            false => ControlFlow::Continue(()),
        }
    }

    fn visit(&mut self, path: &RelPath, found: Found<'_>) -> ControlFlow<()> {
        self.tell_totals()?;
        self.ask()?;
        match found {
            Found::Directory(meta, directory) => {
                let attributes = self.attributes(path, directory, &meta)?;
                self.message(&Message::Directory { path: path.clone(), attributes })
            }
            Found::Symlink(target, meta) => {
                let compares = self.sources.terms.compare.is_some();
                if compares && self.sources.had.stands(&Standing::link(path, &target)).is_some() {
                    return ControlFlow::Continue(());
                }
                let attributes = Attributes::plain(&meta, self.sources.terms.owner);
                let target = RawBytes(target);
                self.message(&Message::Symlink { path: path.clone(), target, attributes })
            }
            Found::File(open, meta) => self.send_name(path, open, &meta),
            Found::Stream(stream) => self.send_stream(path, stream),
            Found::Special => {
                let reason = "sockets, pipes and devices are not copied";
                self.note(NoteKind::Skipped, path, reason)
            }
            Found::Own => self.note(NoteKind::Skipped, path, OWN),
            Found::Failed(reason) => self.note(NoteKind::Failed, path, &reason),
        }
    }
}

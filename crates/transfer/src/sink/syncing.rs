//! What the receiver does for a sender that compares: tells what stands there, mends it, removes it, or
//! only says what would be done.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use rustix::fs::{FileType, Mode, openat};
use rustix::io::Errno;

use super::Sink;
use crate::arriving::Header;
use crate::attributes::{Attributes, FILE_MODE};
use crate::budget::Budget;
use crate::commit::{Batch, DIRECTORY_MODE, Report};
use crate::delta;
use crate::error::{TransferError, explain};
use crate::meta::Meta;
use crate::notes::NoteKind;
use crate::relpath::{RawBytes, RelPath};
use crate::standing::{Compare, Teller, contents};
use crate::tree::{DIRECTORY, FILE, Tree, open_file};
use crate::walk::{Found, Source, Visitor};
use crate::wire::WireError;

/// A file whose pieces the sender wants to know; none when there is no such file.
pub(super) type Asked = (RelPath, Option<OwnedFd>);

/// Tells the pieces of versions, one after another, while others arrive.
pub(super) fn tell_pieces(asked: Receiver<Asked>, report: &Report, budget: &Budget) {
    for (path, file) in asked {
        delta::tell(&path, file.as_ref(), &report.replies, budget);
    }
}

impl Sink<'_> {
    /// Where a path of the sender's goes; `None` when nothing of it is there.
    fn find(&mut self, path: &RelPath) -> Result<Option<RelPath>, TransferError> {
        if !self.destination.expects(path) {
            return Err(WireError::Unasked.into());
        }
        if self.target.is_none() {
            if self.destination.rehearses && self.destination.is_missing() {
                return Ok(None);
            }
            self.open(path).map_err(TransferError::Near)?;
        }
        Ok(self.target.as_ref().and_then(|target| target.locate(path).ok()))
    }

    /// Opens the directory that a located path is in.
    fn parent(&mut self, path: &RelPath) -> io::Result<Arc<OwnedFd>> {
        let (parent, _) = path.split().ok_or(Errno::INVAL)?;
        self.tree().directory(parent)
    }

    /// Tells what stands at a path and below it.
    pub(super) fn tell_standing(
        &mut self,
        path: &RelPath,
        by: Compare,
        owner: bool,
    ) -> Result<(), TransferError> {
        self.mirrors |= path.as_bytes().is_empty();
        let found = self.find(path)?;
        let mut teller = Teller::new(&self.report.replies, by, owner);
        // What cannot be read is not there: it is sent, and why it cannot stand is told then.
        let _ = found.map(|at| self.walk(path, &at, &mut teller));
        teller.finish();
        Ok(())
    }

    /// Shows what is at a place by the names that the sender has for it.
    fn walk(&mut self, path: &RelPath, at: &RelPath, teller: &mut Teller<'_>) -> io::Result<()> {
        let ended = match at.split() {
            None => {
                let top = self.tree().top().try_clone()?;
                Source::below(path.clone()).walk_tree(path, Tree::new(top), teller)
            }
            Some((_, name)) => {
                let parent = self.parent(at)?;
                let meta = Meta::at(&parent, name)?;
                match meta.kind {
                    FileType::Directory => {
                        let top = openat(&parent, name, DIRECTORY, Mode::empty())?;
                        Source::below(path.clone()).walk_tree(path, Tree::new(top), teller)
                    }
                    FileType::RegularFile => {
                        let open = || Ok(openat(&parent, name, FILE, Mode::empty())?);
                        teller.visit(path, Found::File(&open, meta))
                    }
                    _ => ControlFlow::Continue(()),
                }
            }
        };
        // A sender that is gone is noticed where the stream is read.
        let (ControlFlow::Continue(()) | ControlFlow::Break(())) = ended;
        Ok(())
    }

    /// Opens the file that stands at a path of the sender's, if one does.
    fn open_file(&mut self, path: &RelPath) -> Result<io::Result<OwnedFd>, TransferError> {
        let Some(at) = self.find(path)? else { return Ok(Err(Errno::NOENT.into())) };
        let (parent, name) = (self.parent(&at), at.split().ok_or(Errno::NOENT));
        Ok(parent.and_then(|parent| {
            let file = openat(&parent, name?.1, FILE, Mode::empty())?;
            match Meta::of(&file)?.kind {
                FileType::RegularFile => Ok(file),
                _ => Err(io::Error::other("it is no regular file")),
            }
        }))
    }

    /// Reads the files that a manifest is to list and that did not come.
    pub(super) fn complete_manifest(&mut self) -> Result<(), TransferError> {
        let Some(manifest) = &self.report.manifest else { return Ok(()) };
        // When this one is taken, the batches before are committed.
        self.commits.send(Batch::default()).map_err(|_| TransferError::Cut)?;
        // Of a manifest of several requests, this one reads its own.
        let mut last = None;
        while let Some(path) = manifest.owed(last.as_ref()) {
            last = Some(path.clone());
            if !self.destination.expects(&path) {
                continue;
            }
            let file = self.open_file(&path)?;
            let wanted = || !self.report.replies.is_closed();
            match file.and_then(|file| Ok(contents(file, wanted)?)) {
                Ok(hash) => manifest.add(&path, hash),
                Err(_) if !wanted() => return Err(TransferError::Cut),
                Err(error) => {
                    let reason = format!("it is not in the manifest: {}", explain(&error));
                    self.report.note(&path, &reason);
                    manifest.forget(&path);
                }
            }
        }
        Ok(())
    }

    /// The sender wants to know the pieces of a file that stands there.
    pub(super) fn asked(&mut self, path: RelPath) -> Result<(), TransferError> {
        let file = self.open_file(&path)?.ok();
        // Its reader lives as long as the sink.
        self.ask.send((path, file)).map_err(|_| TransferError::Cut)
    }

    /// A file that is equal but for its attributes.
    pub(super) fn mend(&mut self, header: Header) -> io::Result<()> {
        let parent = self.parent(&header.path)?;
        let (_, name) = header.path.split().ok_or(Errno::INVAL)?;
        let file = open_file(&parent, name)?;
        if Meta::of(&file)?.kind != FileType::RegularFile {
            return Err(io::Error::other("it is no regular file any more: run the command again"));
        }
        self.report.attributes(&header.path, header.attributes.set_on(&file, FILE_MODE));
        Ok(())
    }

    /// Names that stay in a directory.
    pub(super) fn keep_names(
        &mut self,
        path: &RelPath,
        names: Vec<RawBytes>,
        is_last: bool,
    ) -> Result<(), TransferError> {
        if let Err(reason) = self.removal.add(names) {
            return Err(TransferError::Near(format!("{:?}: {reason}", path.as_path())));
        }
        if !is_last {
            return Ok(());
        }
        let Some(at) = self.find(path)? else { return Ok(()) };
        let target = self.target.as_mut().expect("found");
        match self.removal.close(target, path, self.destination.filter.as_ref()) {
            Ok(extra) if self.destination.rehearses => {
                for path in extra {
                    self.report.tell(NoteKind::Would, path, "would be removed");
                }
                self.other.removed += extra.len() as u64;
            }
            Ok(_) => {}
            // In a rehearsal it may only be missing.
            Err(error) if self.destination.rehearses => drop(error),
            Err(error) => self.report.judge(&at, &error).map_err(TransferError::Near)?,
        }
        Ok(())
    }

    /// Removes what the sender does not have, when all that it has is there.
    pub(super) fn remove(&mut self) -> Result<(), TransferError> {
        let removal = std::mem::take(&mut self.removal);
        if self.destination.rehearses || self.target.is_none() {
            removal.tell_others(self.report);
            return Ok(());
        }
        // When this one is taken, the batches before are committed.
        self.commits.send(Batch::default()).map_err(|_| TransferError::Cut)?;
        if self.report.is_partial() {
            removal.give_up(self.report);
        } else {
            let target = self.target.as_mut().expect("looked at above");
            let filter = self.destination.filter.as_ref();
            self.other.removed = removal.carry_out(target, filter, self.report);
            // Then it has stopped early.
            self.report.overtaken().map_err(TransferError::Near)?;
        }
        Ok(())
    }

    /// What stands there of a path of the sender's.
    fn look(&mut self, path: &RelPath) -> Result<Option<Meta>, TransferError> {
        let Some(at) = self.find(path)? else { return Ok(None) };
        let named = self.parent(&at).ok().zip(at.split());
        Ok(named.and_then(|(parent, (_, name))| Meta::at(&parent, name).ok()))
    }

    /// Whether two paths are names of one file there.
    pub(super) fn is_linked(
        &mut self,
        one: &RelPath,
        other: &RelPath,
    ) -> Result<bool, TransferError> {
        let there = self.look(one)?.zip(self.look(other)?);
        Ok(there.is_some_and(|(one, other)| one.identity() == other.identity()))
    }

    /// Says what would be done with an entry.
    pub(super) fn rehearse(&mut self, header: &Header) -> Result<(), TransferError> {
        if header.path.as_bytes().is_empty() {
            // The destination itself: what comes into it says enough.
            return Ok(());
        }
        let there = self.look(&header.path)?;
        let is_as = |header: &Header| {
            let Attributes { mode, owner, .. } = header.attributes;
            let has = |there: &Meta| {
                (there.mode ^ mode) & DIRECTORY_MODE == 0
                    && owner.is_none_or(|owner| owner == there.owner)
            };
            there.as_ref().is_some_and(has)
        };
        let what = match there.map(|meta| meta.kind) {
            Some(FileType::Directory) if header.kind == FileType::Directory && is_as(header) => {
                return Ok(());
            }
            Some(_) => "would be changed",
            None => "would be copied",
        };
        match header.kind {
            FileType::Directory => self.other.directories += 1,
            FileType::Symlink => self.other.symlinks += 1,
            _ => self.other.files += 1,
        }
        self.other.bytes = self.other.bytes.saturating_add(header.size.unwrap_or(0));
        self.report.tell(NoteKind::Would, &header.path, what);
        Ok(())
    }
}

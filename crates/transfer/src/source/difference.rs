//! What is sent of a file of which the receiver has something: nothing, its attributes, or the pieces
//! that its version there does not have.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, pread};

use super::Sender;
use crate::attributes::Attributes;
use crate::delta::{COPY_MAX, Cutter, Version};
use crate::hash::{Hasher, State};
use crate::meta::{Meta, Tag, of_copies};
use crate::notes::NoteKind;
use crate::pipe::BLOCK;
use crate::reading::{Layout, Next};
use crate::relpath::RelPath;
use crate::standing::{Compare, Likeness, contents};
use crate::wire::{Message, Terms, data_head};

/// Bytes of a piece that go in one frame.
const PART: usize = 128 << 10;

/// A shorter hole is read: the pieces around it reach into it.
const SKIPPED_FROM: u64 = 16 << 20;

impl Sender<'_> {
    /// Tells that more stands there than there was memory for. It counts as missing: a comparison fails.
    pub(super) fn tell_lost(&mut self, top: &RelPath) -> ControlFlow<()> {
        if !self.sources.had.take_lost() {
            return ControlFlow::Continue(());
        }
        let more = "more stands there than there is memory for to compare";
        match self.sources.terms.rehearses {
            true => {
                let reason = format!("{more}: what is told of it may be equal; compare in parts");
                self.note(NoteKind::Failed, top, &reason)
            }
            false => {
                let reason = format!("{more}: some of it is sent again though it is equal");
                self.note(NoteKind::Skipped, top, &reason)
            }
        }
    }

    /// Whether an equal file stands there; what else there is of it is mended.
    pub(super) fn stands(
        &mut self,
        path: &RelPath,
        open: &dyn Fn() -> std::io::Result<OwnedFd>,
        meta: &Meta,
    ) -> ControlFlow<(), bool> {
        let Terms { compare: Some(by), owner, .. } = self.sources.terms else {
            return ControlFlow::Continue(false);
        };
        let hash = match by {
            Compare::Time => None,
            Compare::Content => {
                match open().map(|file| contents(file, || !self.pipe.is_closed())) {
                    Ok(Ok(hash)) => Some(hash),
                    // Why it cannot be read is told when it is to be sent.
                    _ => return ControlFlow::Continue(false),
                }
            }
        };
        let Some(likeness) = self.sources.stands(path, meta, hash.as_ref()) else {
            return ControlFlow::Continue(false);
        };
        if likeness == Likeness::Close {
            let attributes = Attributes::plain(meta, owner);
            self.message(&Message::Mend { path: path.clone(), attributes })?;
            if self.sources.terms.rehearses {
                // It does not count as equal.
                return ControlFlow::Continue(true);
            }
        }
        if let (Some(manifest), Some(hash)) = (&self.sources.manifest, hash) {
            manifest.add(path, hash);
        }
        // What an earlier sitting has brought, the receiver counts, also where contents are compared.
        if !self.sources.had.holds(&meta.tag(path)) {
            self.left_out = (self.left_out.0 + 1, self.left_out.1 + meta.size);
            self.sources.progress.keep(self.left_out);
        }
        self.keep(path, meta.size, open)?;
        ControlFlow::Continue(true)
    }

    /// The version of a large file that stands there, when its pieces were told.
    pub(super) fn version(
        &mut self,
        path: &RelPath,
        meta: &Meta,
    ) -> ControlFlow<(), Option<Version>> {
        if !self.sources.has_version(path, meta) {
            return ControlFlow::Continue(None);
        }
        self.sources.versions.reach(path);
        self.ask()?;
        self.hand_over()?;
        let pipe = &self.pipe;
        ControlFlow::Continue(self.sources.versions.take(path, || !pipe.is_closed()))
    }

    /// Asks for the versions whose turn comes soon.
    pub(super) fn ask(&mut self) -> ControlFlow<()> {
        while let Some(path) = self.sources.versions.due() {
            self.message(&Message::Ask { path })?;
        }
        ControlFlow::Continue(())
    }

    /// Sends a file's pieces that the version there does not have, and where it has the others.
    pub(super) fn send_difference(
        &mut self,
        file: &OwnedFd,
        meta: &Meta,
        tag: &Tag,
        version: &Version,
        hasher: &mut Hasher,
    ) -> ControlFlow<(), Result<bool, Errno>> {
        if let Some(state) = self.sources.had.part(tag, 0, meta.size) {
            self.go_on(state, hasher)?;
        } else if let Some(state) = self.sources.had.part(&of_copies(tag), 0, meta.size) {
            // A hash for each piece told what to copy, and their file may have changed meanwhile.
            match begins_so(file, &state, || !self.pipe.is_closed()) {
                Ok(true) => self.go_on(state, hasher)?,
                Ok(false) => {}
                Err(error) => return ControlFlow::Continue(Err(error)),
            }
        }
        let cutter = Cutter::new(file, hasher.length(), version.average, &self.sources.budget);
        let mut cutter = match cutter {
            Ok(Some(cutter)) => cutter,
            // Without memory to cut it, all of it goes.
            Ok(None) => return self.send_bytes(file, meta, tag, hasher),
            Err(error) => return ControlFlow::Continue(Err(error)),
        };
        let mut layout = Layout::of(meta);
        // Pieces that follow each other there too.
        let (mut from, mut length) = (0, 0);
        while hasher.length() < meta.size {
            if let Next::Hole(hole) = layout.next(file, hasher.length())
                && hole >= SKIPPED_FROM
            {
                if length > 0 {
                    self.copy(from, std::mem::take(&mut length))?;
                }
                self.hole(hole, hasher)?;
                cutter.skip_to(hasher.length());
                continue;
            }
            let piece = match cutter.next() {
                Ok(Some(piece)) if hasher.length() + piece.len() as u64 <= meta.size => piece,
                Ok(_) => break,
                Err(error) => return ControlFlow::Continue(Err(error)),
            };
            hasher.update(piece);
            self.sources.progress.set_current_bytes(hasher.length());
            let found = version.find(piece);
            let goes_on = found == Some(from + length) && length + piece.len() as u64 <= COPY_MAX;
            if length > 0 && !goes_on {
                self.copy(from, std::mem::take(&mut length))?;
            }
            match found {
                Some(_) if length > 0 => length += piece.len() as u64,
                Some(offset) => (from, length) = (offset, piece.len() as u64),
                // A piece is no longer than a hole may be.
                None if piece.iter().all(|&byte| byte == 0) => {
                    self.message(&Message::Hole { length: piece.len() as u64 })?;
                }
                None => self.send_piece(piece)?,
            }
            if self.pipe.is_closed() {
                return ControlFlow::Break(());
            }
        }
        if length > 0 {
            self.copy(from, length)?;
        }
        ControlFlow::Continue(Ok(true))
    }

    fn copy(&mut self, offset: u64, length: u64) -> ControlFlow<()> {
        self.kept.begun += length;
        self.message(&Message::Copy { offset, length })
    }

    /// Sends bytes that were read already.
    fn send_piece(&mut self, piece: &[u8]) -> ControlFlow<()> {
        for part in piece.chunks(PART) {
            let head = self.block.len();
            self.block.extend_from_slice(&data_head(part.len()));
            self.block.extend_from_slice(part);
            self.pack(head);
            if self.block.len() >= BLOCK {
                self.hand_over()?;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether a file begins with what a state is of, as long as that is `wanted`.
fn begins_so(file: &OwnedFd, state: &State, wanted: impl Fn() -> bool) -> Result<bool, Errno> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; PART];
    while hasher.length() < state.length() && wanted() {
        let left = (state.length() - hasher.length()).min(PART as u64) as usize;
        match pread(file, &mut buffer[..left], hasher.length()) {
            Ok(0) => return Ok(false),
            Ok(read) => hasher.update(&buffer[..read]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hasher.state() == *state)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_was_made_of_another_version_is_gone_on_from_only_if_it_is_the_same() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let file = OwnedFd::from(file);
        let state_of = |bytes: &[u8]| {
            let mut hasher = Hasher::default();
            hasher.update(bytes);
            hasher.state()
        };
        let begins = |state: &State| begins_so(&file, state, || true).unwrap();
        let state = state_of(&bytes[..2_000_000]);
        assert!(state.length() > 1_500_000 && begins(&state));
        let mut other = bytes.clone();
        other[1_000_000] ^= 1;
        assert!(!begins(&state_of(&other[..2_000_000])));
        let longer = [&bytes[..], &[0; 1 << 20]].concat();
        assert!(!begins(&state_of(&longer)), "it is shorter");
        assert!(!begins_so(&file, &state, || false).unwrap(), "nobody waits for it");
    }
}

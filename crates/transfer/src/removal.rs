//! What stands at the destination and the sender does not have: found directory by directory, removed at
//! the very end, and only when nothing went wrong before.

use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, Mode, futimens, openat, unlinkat};
use rustix::io::Errno;

use crate::commit::Report;
use crate::meta::Meta;
use crate::notes::NoteKind;
use crate::relpath::{RawBytes, RelPath};
use crate::tree::{DIRECTORY, Tree};
use crate::walk::{Found, Source, Visitor};

/// Names of one directory that are kept in mind.
const NAMES_MAX: usize = 8 << 20;

/// Paths to be removed at a time; the same command removes the others.
const EXTRA_MAX: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Removal {
    /// The names that are to stay in the directory that is being told.
    staying: HashSet<Vec<u8>>,
    /// Found so far.
    extra: Vec<RelPath>,
}

impl Removal {
    /// Takes in more names; false when they are more than anybody has.
    pub fn add(&mut self, names: Vec<RawBytes>) -> bool {
        self.staying.extend(names.into_iter().map(|name| name.0));
        self.staying.len() <= NAMES_MAX
    }

    /// All names of this directory were told: whatever else is in it is to go. Gives what was found.
    pub fn close(&mut self, tree: &mut Tree, path: &RelPath) -> io::Result<&[RelPath]> {
        let staying = std::mem::take(&mut self.staying);
        let begin = self.extra.len();
        for entry in Dir::read_from(tree.directory(path.as_bytes())?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let goes = !matches!(name, b"." | b"..") && !staying.contains(name) && !is_own(name);
            if goes && self.extra.len() < EXTRA_MAX {
                self.extra.extend(path.join(name));
            }
        }
        Ok(&self.extra[begin..])
    }

    /// Removes all that was found; gives how many names went. Directories keep their times.
    pub fn carry_out(self, tree: &mut Tree, report: &Report) -> u64 {
        let mut removed = 0;
        for path in &self.extra {
            let Some((parent, _)) = path.split() else { continue };
            let opened = tree.directory(parent).and_then(|parent| Ok((Meta::of(&parent)?, parent)));
            let Ok((before, parent)) = opened else { continue };
            match remove(tree, &parent, path) {
                Ok(names) => removed += names,
                Err(error) => report.note(path, &format!("it cannot be removed: {error}")),
            }
            // A time that cannot be set is no reason to fail.
            let _ = futimens(&parent, &before.modified.timestamps());
        }
        removed
    }

    /// Tells that all of it stays.
    pub fn give_up(self, report: &Report) {
        if let Some(path) = self.extra.first() {
            let reason = format!(
                "it and all else that the source does not have ({}) stays, for something else failed",
                self.extra.len()
            );
            report.tell(NoteKind::Skipped, path, &reason);
        }
    }
}

/// Whether it is a temporary file or a journal, of whatever transfer.
fn is_own(name: &[u8]) -> bool {
    let ours = name.windows(10).any(|part| part == b".longhaul-");
    ours && (name.ends_with(b".part") || name.ends_with(b".journal"))
}

/// Removes what is at a path and below it.
fn remove(tree: &mut Tree, parent: &Arc<OwnedFd>, path: &RelPath) -> io::Result<u64> {
    let (_, name) = path.split().ok_or(Errno::INVAL)?;
    match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        done => return Ok(done.map(|()| 1)?),
    }
    let top = openat(parent, name, DIRECTORY, Mode::empty())?;
    let mut remover = Remover { tree, directories: Vec::new(), removed: 0, failure: None };
    // It goes to its end: this visitor stops nothing.
    let _ = Source::below(path.clone()).walk_tree(path, Tree::new(top), &mut remover);
    let Remover { directories, mut removed, failure, .. } = remover;
    if let Some(failure) = failure {
        return Err(failure);
    }
    for path in directories.iter().rev() {
        let (parent, name) = path.split().ok_or(Errno::INVAL)?;
        unlinkat(tree.directory(parent)?, name, AtFlags::REMOVEDIR)?;
        removed += 1;
    }
    Ok(removed)
}

/// Removes all but directories, which it remembers.
struct Remover<'a> {
    tree: &'a mut Tree,
    directories: Vec<RelPath>,
    removed: u64,
    failure: Option<io::Error>,
}

impl Visitor for Remover<'_> {
    fn visit(&mut self, path: &RelPath, found: Found<'_>) -> ControlFlow<()> {
        if let Found::Directory(..) = found {
            self.directories.push(path.clone());
            return ControlFlow::Continue(());
        }
        let removed = path.split().ok_or(Errno::INVAL.into()).and_then(|(parent, name)| {
            Ok(unlinkat(self.tree.directory(parent)?, name, AtFlags::empty())?)
        });
        match removed {
            Ok(()) => self.removed += 1,
            Err(error) => self.failure = Some(error),
        }
        ControlFlow::Continue(())
    }
}

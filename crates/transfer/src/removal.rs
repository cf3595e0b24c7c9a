//! What stands at the destination and the sender does not have: found directory by directory, removed at
//! the very end, and only when nothing went wrong before.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, fchmod, futimens, openat, unlinkat};
use rustix::io::Errno;

use crate::budget::{Budget, Share};
use crate::commit::Report;
use crate::destination::Target;
use crate::filter::Filter;
use crate::meta::{Meta, Shared};
use crate::notes::NoteKind;
use crate::relpath::{RawBytes, RelPath};
use crate::temp::is_own;
use crate::tree::{DIRECTORY, Tree, open_up};
use crate::walk::{Found, Source, Visitor};

/// Bytes of memory for the names of one directory.
const NAMES_MAX: usize = 128 << 20;

/// Bytes of memory for the paths to be removed at a time; the same command removes the others.
const EXTRA_MAX: usize = 128 << 20;

/// What each of them takes besides its own bytes.
const OVERHEAD: usize = 64;

#[derive(Default)]
pub(crate) struct Removal {
    /// The sender tells names.
    removes: bool,
    /// Of the memory for all requests.
    share: Share,
    /// The names that are to stay in the directory that is being told, and whether they were found.
    staying: HashMap<Vec<u8>, bool>,
    staying_bytes: usize,
    /// Found so far.
    extra: Vec<RelPath>,
    extra_bytes: usize,
    /// The first that found no room, and how many there are of it.
    others: Option<(RelPath, u64)>,
    /// Directories that made room for files: where they are now, and how the sender called them before.
    aside: Vec<(RelPath, RelPath)>,
}

impl Removal {
    /// For a request that shares this memory with others.
    pub fn new(budget: &Budget) -> Self {
        Self { share: Share::of(budget), ..Self::default() }
    }

    /// Whether the sender has said that what it does not have is to go.
    pub fn removes(&self) -> bool {
        self.removes
    }

    /// Takes in more names.
    ///
    /// # Errors
    /// Why they find no room, and what to do.
    pub fn add(&mut self, names: Vec<RawBytes>) -> Result<(), &'static str> {
        self.removes = true;
        for RawBytes(name) in names {
            if self.staying.contains_key(&name) {
                continue;
            }
            let bytes = name.len() + OVERHEAD;
            if self.staying_bytes + bytes > NAMES_MAX {
                return Err("it holds too many names to be compared: sync without --delete");
            }
            if !self.share.take(bytes) {
                return Err(
                    "no memory is left for its names, as other requests have it: run the same \
                            command again later",
                );
            }
            self.staying_bytes += bytes;
            self.staying.insert(name, false);
        }
        Ok(())
    }

    /// A directory is to make room, and to be removed with the rest; false when there is no memory for it.
    pub fn add_aside(&mut self, now: RelPath, sent: RelPath) -> bool {
        let bytes = now.as_bytes().len() + sent.as_bytes().len() + 2 * OVERHEAD;
        let has_room = self.extra_bytes + bytes <= EXTRA_MAX && self.share.take(bytes);
        if has_room {
            self.extra_bytes += bytes;
            self.aside.push((now, sent));
        }
        has_room
    }

    /// All names of this directory of the sender's were told: whatever else is in it is to go, unless
    /// the filter excludes it. Gives what was found.
    pub fn close(
        &mut self,
        target: &mut Target,
        path: &RelPath,
        filter: Option<&Filter>,
    ) -> io::Result<&[RelPath]> {
        let mut staying = std::mem::take(&mut self.staying);
        self.share.give_back(std::mem::take(&mut self.staying_bytes));
        let begin = self.extra.len();
        let at = target.locate(path).map_err(io::Error::other)?;
        let directory = target.tree.directory(at.as_bytes())?;
        let mut is_more = false;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            match staying.get_mut(name) {
                Some(is_found) => *is_found = true,
                None => is_more |= !is_dot(name),
            }
        }
        let folded = folded(&staying, &directory);
        let entries = is_more.then(|| Dir::read_from(&directory)).transpose()?;
        for entry in entries.into_iter().flatten() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if staying.contains_key(name) || is_dot(name) {
                continue;
            }
            let below = path.join(name).ok();
            let is_excluded = |meta: &Meta| {
                let is_directory = meta.kind == FileType::Directory;
                let named = filter.zip(below.as_ref());
                named.is_some_and(|(filter, below)| filter.excludes(below, is_directory))
            };
            let meta = match Meta::at(&directory, OsStr::from_bytes(name)) {
                Err(Errno::NOENT) => continue,
                // What cannot be looked at may be anything.
                meta => meta?,
            };
            let stays = folded.contains(&meta.identity()) || is_own(name, meta.kind);
            let goes = !stays && !is_excluded(&meta);
            if goes && let Ok(path) = at.join(name) {
                self.find(path);
            }
        }
        Ok(&self.extra[begin..])
    }

    fn find(&mut self, path: RelPath) {
        // One that made room is known.
        if self.aside.iter().any(|(now, _)| *now == path) {
            return;
        }
        let bytes = path.as_bytes().len() + OVERHEAD;
        if self.extra_bytes + bytes > EXTRA_MAX || !self.share.take(bytes) {
            self.others.get_or_insert((path, 0)).1 += 1;
        } else {
            self.extra_bytes += bytes;
            self.extra.push(path);
        }
    }

    /// Tells of those that found no room: what was asked for is not done.
    pub fn tell_others(&self, report: &Report) {
        if let Some((path, others)) = &self.others {
            let reason = format!(
                "it and all else that the source does not have and for which there was no memory ({others}) stays \
                 for now: run the same command again"
            );
            report.note(path, &reason);
        }
    }

    /// Removes all that was found, but for what the filter excludes below it; gives how many names
    /// went. Directories keep their times and permissions.
    pub fn carry_out(self, target: &mut Target, filter: Option<&Filter>, report: &Report) -> u64 {
        let mut removed = 0;
        self.tell_others(report);
        let extra = self.extra.into_iter().map(|path| (target.sent(&path), path));
        let all =
            Vec::from_iter(extra.chain(self.aside.into_iter().map(|(now, sent)| (sent, now))));
        for (sent, path) in all {
            if report.is_over() {
                report.tell(
                    NoteKind::Skipped,
                    &path,
                    "it and what follows stays, for the copy was stopped",
                );
                break;
            }
            let tree = &mut target.tree;
            let parent = path.split().ok_or(Errno::INVAL.into());
            let opened = parent.and_then(|(parent, _)| tree.directory(parent));
            let (before, parent) = match opened.and_then(|it| Ok((Meta::of(&it)?, it))) {
                Ok(opened) => opened,
                Err(error) => {
                    report.note(&path, &format!("it cannot be removed: {error}"));
                    continue;
                }
            };
            // As the source has it, its owner may change nothing in it. Why that stays so is told below.
            let was_shut = open_up(&parent).unwrap_or(false);
            match remove(tree, &parent, &path, (filter, sent), report) {
                Ok(names) => removed += names,
                Err(error) => report.note(&path, &format!("it cannot be removed: {error}")),
            }
            if was_shut {
                let _ = fchmod(&parent, Mode::from_raw_mode(before.mode));
            }
            // A time that cannot be set is no reason to fail.
            let _ = futimens(&parent, &before.modified.timestamps());
        }
        removed
    }

    /// Tells that all of it stays.
    pub fn give_up(self, report: &Report) {
        self.tell_others(report);
        self.tell_aside(report);
        if let Some(path) = self.extra.first() {
            let reason = format!(
                "it and all else that the source does not have ({}) stays, for something else failed",
                self.extra.len()
            );
            report.tell(NoteKind::Skipped, path, &reason);
        }
    }

    /// Notes where the directories are that stood in the way.
    pub fn tell_aside(&self, report: &Report) {
        for (now, sent) in &self.aside {
            let reason = format!(
                "the directory that stood there is now {:?}, and stays, for something else failed",
                now.as_path()
            );
            report.tell(NoteKind::Skipped, sent, &reason);
        }
    }
}

/// Whether a name is a directory's own, or that of the one above.
pub(crate) fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// What names that were not found lead to all the same: to what stays, where a file system does not
/// tell them from others.
fn folded(staying: &HashMap<Vec<u8>, bool>, directory: &OwnedFd) -> HashSet<Shared> {
    let missing = staying.iter().filter(|(_, is_found)| !**is_found);
    let metas = missing.flat_map(|(name, _)| Meta::at(directory, OsStr::from_bytes(name)));
    metas.map(|meta| meta.identity()).collect()
}

/// Removes what is at a path and below it; what the filter excludes, by the path that it gives this
/// one, and the directories above it stay.
fn remove(
    tree: &mut Tree,
    parent: &Arc<OwnedFd>,
    path: &RelPath,
    (filter, sent): (Option<&Filter>, RelPath),
    report: &Report,
) -> io::Result<u64> {
    let (_, name) = path.split().ok_or(Errno::INVAL)?;
    match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        done => return Ok(done.map(|()| 1)?),
    }
    let top = openat(parent, name, DIRECTORY, Mode::empty())?;
    let mut remover = Remover { tree, report, directories: Vec::new(), removed: 0, failure: None };
    let source = Source::below(path.clone()).filtered_within(filter.cloned(), sent);
    let _ = source.walk_tree(path, Tree::new(top), &mut remover);
    let Remover { directories, mut removed, failure, .. } = remover;
    if let Some(failure) = failure {
        return Err(failure);
    }
    for (path, shut) in directories.iter().rev() {
        let (parent, name) = path.split().ok_or(Errno::INVAL)?;
        match unlinkat(tree.directory(parent)?, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if filter.is_some() => {
                if let Some(mode) = *shut {
                    fchmod(tree.directory(path.as_bytes())?, mode)?;
                }
            }
            done => {
                done?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

/// Removes all but directories, which it remembers.
struct Remover<'a> {
    tree: &'a mut Tree,
    report: &'a Report,
    /// And with which permissions, where its owner might change nothing in it.
    directories: Vec<(RelPath, Option<Mode>)>,
    removed: u64,
    failure: Option<io::Error>,
}

impl Visitor for Remover<'_> {
    fn visit(&mut self, path: &RelPath, found: Found<'_>) -> ControlFlow<()> {
        if self.report.is_over() {
            self.failure = Some(io::Error::other("the copy was stopped"));
            return ControlFlow::Break(());
        }
        if let Found::Directory(meta, directory) = found {
            // Why it stays so is told when what is in it cannot be removed.
            let was_shut = open_up(directory).unwrap_or(false);
            let shut = was_shut.then(|| Mode::from_raw_mode(meta.mode));
            self.directories.push((path.clone(), shut));
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

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::destination::Destination;
    use crate::notes::Note;
    use crate::place::Place;
    use crate::progress::Progress;

    #[test]
    fn what_stays_for_want_of_memory_or_of_a_way_to_it_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let there = |name: &str| folder.path().join(name);
        std::fs::create_dir(there("shut")).unwrap();
        for name in ["a", "b", "shut/c"] {
            std::fs::write(there(name), name).unwrap();
        }
        let destination = Destination::new(Place::Local, folder.path(), true);
        let top = RelPath::default();
        // Without any memory, and with enough for all.
        for (bytes, words) in [(0, "no memory (4)"), (1000, "cannot be removed")] {
            let mut target = destination.target(&top).unwrap();
            let mut removal = Removal::new(&Budget::new(bytes));
            removal.find(RelPath::new(b"gone/c".to_vec()).unwrap());
            let stays = if bytes > 0 { vec![RawBytes(b"shut".to_vec())] } else { Vec::new() };
            removal.add(stays).unwrap();
            removal.close(&mut target, &top, None).unwrap();
            let (replies, _told) = mpsc::channel(16);
            let report = Report::new(&destination, replies, Progress::new());
            let removed = removal.carry_out(&mut target, None, &report);
            let notes = report.notes.into_inner().unwrap();
            let said = Vec::from_iter(notes.iter().map(Note::to_string));
            assert!(notes.failed() == 1 && said[0].contains(words), "{said:?}");
            assert_eq!(removed, if bytes > 0 { 2 } else { 0 });
        }
        assert!(there("shut/c").exists() && !there("a").exists());
    }

    #[test]
    fn names_that_are_told_again_take_no_memory() {
        let mut removal = Removal::new(&Budget::new(2 * (OVERHEAD + 1)));
        let names = |names: &[u8]| names.iter().map(|&name| RawBytes(vec![name])).collect();
        (0..3).for_each(|_| removal.add(names(b"ab")).unwrap());
        assert!(removal.add(names(b"c")).unwrap_err().contains("no memory"));
    }
}

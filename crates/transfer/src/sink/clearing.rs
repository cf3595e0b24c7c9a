//! Room for what has become another kind of thing, for a sender that removes what it does not have: a file
//! where a directory is to be goes at once, a directory where a file is to be goes aside, and with the rest.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, openat, renameat, unlinkat};

use super::Sink;
use crate::filter::Filter;
use crate::folding::is_listed;
use crate::meta::Meta;
use crate::relpath::RelPath;
use crate::temp::aside;
use crate::tree::{DIRECTORY, Tree};
use crate::walk::{Found, Source, Visitor};

impl Sink<'_> {
    /// Takes away what is no directory and stands where one is to be; whether it did.
    pub(super) fn clear_for_directory(
        &mut self,
        path: &RelPath,
        parent: &OwnedFd,
        name: &OsStr,
    ) -> io::Result<bool> {
        if !self.removal.removes() || Meta::at(parent, name)?.kind == FileType::Directory {
            return Ok(false);
        }
        let (filter, sent) = self.filter(path);
        let is_protected = filter.is_some_and(|filter| filter.excludes(&sent, false));
        // What another name leads to as well may have come just now.
        if is_protected || !is_listed(parent, name) {
            return Ok(false);
        }
        unlinkat(parent, name, AtFlags::empty())?;
        Ok(true)
    }

    /// Moves a directory aside that stands where something else is to be. Where it must stay, the
    /// renaming says so.
    pub(super) fn clear_for_file(
        &mut self,
        path: &RelPath,
        parent: &Arc<OwnedFd>,
        name: &OsStr,
    ) -> io::Result<()> {
        if !self.removal.removes() {
            return Ok(());
        }
        let Ok(there) = Meta::at(parent, name) else { return Ok(()) };
        let has_come = || self.entered.holds(&there.identity()) || !is_listed(parent, name);
        if there.kind != FileType::Directory || has_come() || self.is_protected(path, parent, name)
        {
            return Ok(());
        }
        let new = aside(name)?;
        let (above, _) = path.split().unwrap_or_default();
        let at = RelPath::new(above.to_vec()).and_then(|above| above.join(new.as_bytes()));
        let (_, sent) = self.filter(path);
        if !self.removal.add_aside(at.map_err(io::Error::other)?, sent) {
            return Ok(());
        }
        Ok(renameat(parent, name, parent, &new)?)
    }

    /// What is not to be removed, and how the sender calls a place.
    fn filter(&self, at: &RelPath) -> (Option<Filter>, RelPath) {
        let target = self.target.as_ref().expect("opened for the first entry");
        (self.destination.filter.clone(), target.sent(at))
    }

    /// Whether a directory holds what the filter excludes.
    fn is_protected(&self, at: &RelPath, parent: &OwnedFd, name: &OsStr) -> bool {
        let (Some(filter), sent) = self.filter(at) else { return false };
        let Ok(top) = openat(parent, name, DIRECTORY, Mode::empty()) else { return true };
        let is_excluded = filter.excludes(&sent, true);
        let mut census = Census { top: at, named: 0, shown: 0 };
        let source = Source::below(at.clone()).filtered_within(Some(filter), sent);
        // It goes to its end: this visitor stops nothing.
        let _ = source.walk_tree(at, Tree::new(top), &mut census);
        is_excluded || census.named != census.shown
    }
}

/// Counts names, and what of it the filter lets through.
struct Census<'a> {
    top: &'a RelPath,
    named: u64,
    shown: u64,
}

impl Visitor for Census<'_> {
    fn name(&mut self, _: &RelPath, _: &OsStr) -> ControlFlow<()> {
        self.named += 1;
        ControlFlow::Continue(())
    }

    fn visit(&mut self, path: &RelPath, _: Found<'_>) -> ControlFlow<()> {
        self.shown += u64::from(path != self.top);
        ControlFlow::Continue(())
    }
}

//! Reaching directories below a directory without following any link.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, fchmod, openat};

use crate::meta::Meta;
use crate::relpath::names;

/// How directories are opened: a link in place of one is refused.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory and everything below it. Handles, not names: what somebody else does to the names
/// above cannot lead a transfer elsewhere.
pub struct Tree {
    top: Arc<OwnedFd>,
    /// The last directory asked for. Files come directory by directory, so this one is enough.
    last: Option<(Vec<u8>, Arc<OwnedFd>)>,
}

impl Tree {
    /// Everything below this directory.
    pub fn new(top: OwnedFd) -> Self {
        Self { top: Arc::new(top), last: None }
    }

    /// The topmost directory.
    pub(crate) fn top(&self) -> &Arc<OwnedFd> {
        &self.top
    }

    /// The directory at a path that is clean, as [`crate::RelPath`] makes sure.
    pub fn directory(&mut self, path: &[u8]) -> io::Result<Arc<OwnedFd>> {
        if path.is_empty() {
            return Ok(self.top.clone());
        }
        if let Some((at, directory)) = &self.last
            && at == path
        {
            return Ok(directory.clone());
        }
        let directory = Arc::new(walk(&self.top, path, DIRECTORY)?);
        self.last = Some((path.to_vec(), directory.clone()));
        Ok(directory)
    }
}

/// Lets a directory's owner list it and change what is in it; whether that was not so.
pub(crate) fn open_up(directory: impl AsFd) -> io::Result<bool> {
    let mode = Mode::from_raw_mode(Meta::of(&directory)?.mode);
    if mode.contains(Mode::RWXU) {
        return Ok(false);
    }
    fchmod(&directory, mode | Mode::RWXU)?;
    Ok(true)
}

/// Opens a path name by name, each of them no link; the flags are those of the last.
pub(crate) fn walk(top: impl AsFd, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let mut steps = names(path).peekable();
    let mut at = top.as_fd().try_clone_to_owned()?;
    while let Some(name) = steps.next() {
        let flags = if steps.peek().is_some() { DIRECTORY } else { flags | OFlags::NOFOLLOW };
        at = openat(&at, name, flags, Mode::empty())?;
    }
    Ok(at)
}

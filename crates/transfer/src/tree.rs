//! Reaching directories, and files in them, below a directory without following any link.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, chmod, fchmod, open, openat};
use rustix::io::Errno;

use crate::meta::Meta;
use crate::relpath::names;

/// How directories are opened: a link in place of one is refused.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How files are opened that may be anything.
pub(crate) const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

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

/// Opens what may be a file, to set what it has besides its bytes: also one that even its owner may not read.
pub(crate) fn open_file(directory: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    match openat(directory, name, FILE, Mode::empty()) {
        Err(Errno::ACCESS) => open_unreadable(directory, name),
        opened => Ok(opened?),
    }
}

/// Its permissions are about to be other ones.
fn open_unreadable(directory: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = openat(directory, name, flags, Mode::empty())?;
    let meta = Meta::of(&there)?;
    if meta.kind != FileType::RegularFile {
        return Err(Errno::ACCESS.into());
    }
    // By the handle, for the name may lead elsewhere by now.
    let path = format!("/proc/self/fd/{}", there.as_raw_fd());
    chmod(&path, Mode::from_raw_mode(meta.mode) | Mode::RUSR)?;
    Ok(open(&path, FILE.difference(OFlags::NOFOLLOW), Mode::empty())?)
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

//! Where a path that somebody named begins: anywhere on this host, or below a served folder.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, fsync, mkdirat, open, openat2};
use rustix::io::Errno;

use crate::relpath::RelPath;
use crate::tree::walk;

/// `openat2` says "again" when somebody renames beneath it; after so many times it is an error.
const RACES_MAX: usize = 64;

/// What named paths are relative to.
#[derive(Debug)]
pub enum Place {
    /// The user's own host: every path, links followed, as any program does.
    Local,
    /// A served folder: links are followed as long as they stay inside.
    Rooted(OwnedFd, ResolveFlags),
}

impl Place {
    /// Below `root`, which must be a directory.
    pub fn rooted(root: &Path) -> io::Result<Self> {
        let directory =
            open(root, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // When the whole host is served, a link to an absolute path leads to what it says. Below
        // any other folder it leads out, and is refused rather than bent.
        let whole_host = std::fs::canonicalize(root)? == Path::new("/");
        let stay = if whole_host { ResolveFlags::IN_ROOT } else { ResolveFlags::BENEATH };
        Ok(Self::Rooted(directory, stay | ResolveFlags::NO_MAGICLINKS))
    }

    /// Opens what the user named.
    ///
    /// # Errors
    /// As `openat2`; a path that leads out of a served folder is an error of its own.
    pub fn open(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let Self::Rooted(root, stay) = self else {
            return Ok(open(path, flags, Mode::empty())?);
        };
        let path = RelPath::from_typed(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
        let beneath = if path.as_bytes().is_empty() { Path::new(".") } else { path.as_path() };
        for _ in 0..RACES_MAX {
            match openat2(root, beneath, flags, Mode::empty(), *stay) {
                Err(Errno::AGAIN) => {}
                Err(Errno::XDEV) => {
                    return Err(io::Error::other("it leads out of the served folder"));
                }
                // Kernels before 5.6, and sandboxes that do not know the call: no links at all.
                Err(Errno::NOSYS | Errno::PERM) => return walk(root, path.as_bytes(), flags),
                done => return Ok(done?),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Opens a directory that the user named.
    pub fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Opens the directory that holds what the user named, and tells the name in it.
    pub fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().ok_or(Errno::NOENT)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok((self.directory(parent.unwrap_or(Path::new(".")))?, name))
    }

    /// Makes one directory, in a parent that exists, and opens it. Its name outlasts the machine's end.
    pub fn make_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let (parent, name) = self.parent(path)?;
        mkdirat(parent.as_fd(), name, Mode::from_raw_mode(0o777))?;
        // Some file systems cannot sync a directory, and need not.
        let _ = fsync(&parent);
        self.directory(path)
    }
}

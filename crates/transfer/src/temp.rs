//! Names for what is not whole yet.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{AtFlags, renameat, unlinkat};
use rustix::io::Errno;

use crate::relpath::NAME_MAX;

/// Makes temporary names that nobody else makes: a random number a transfer, and a count.
pub(crate) struct Names {
    transfer: u64,
    made: u64,
}

impl Names {
    pub fn new() -> io::Result<Self> {
        Ok(Self { transfer: getrandom::u64().map_err(io::Error::other)?, made: 0 })
    }

    /// Makes something under `.NAME.longhaul-RANDOM.part`, or without NAME where that is too long.
    pub fn create<T>(
        &mut self,
        directory: &Arc<OwnedFd>,
        name: &OsStr,
        mut make: impl FnMut(&OwnedFd, &OsStr) -> rustix::io::Result<T>,
    ) -> io::Result<(T, Temp)> {
        let ending = format!(".longhaul-{:016x}{:x}.part", self.transfer, self.made);
        self.made += 1;
        let long = [b".", name.as_bytes(), ending.as_bytes()].concat();
        let short = OsStr::from_bytes(ending.as_bytes());
        let mut temporary = OsStr::from_bytes(&long);
        if temporary.len() > NAME_MAX {
            temporary = short;
        }
        let made = match make(directory, temporary) {
            Err(Errno::NAMETOOLONG) => {
                temporary = short;
                make(directory, temporary)?
            }
            done => done?,
        };
        let temp = Temp { directory: directory.clone(), name: temporary.to_owned(), kept: false };
        Ok((made, temp))
    }
}

/// A temporary name, removed when dropped unless it was renamed.
pub(crate) struct Temp {
    directory: Arc<OwnedFd>,
    name: OsString,
    kept: bool,
}

impl Temp {
    /// Gives it its final name in the same directory; a file there is replaced, a directory is not.
    pub fn rename(&mut self, name: &OsStr) -> rustix::io::Result<()> {
        renameat(&self.directory, &self.name, &self.directory, name)?;
        self.kept = true;
        Ok(())
    }

    pub fn name(&self) -> &OsStr {
        &self.name
    }

    pub fn directory(&self) -> &Arc<OwnedFd> {
        &self.directory
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.kept {
            // Nothing more can be done about a name that cannot be removed.
            let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

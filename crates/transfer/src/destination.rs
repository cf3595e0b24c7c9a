//! Where files are to be put: what the user typed, and what that means on this disk.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::budget::Budget;
use crate::error::explain;
use crate::filter::Filter;
use crate::journal::TransferId;
use crate::manifest::Manifest;
use crate::meta::Meta;
use crate::place::Place;
use crate::relpath::{PathError, RelPath, names};
use crate::tree::Tree;

/// A destination as it was typed.
#[derive(Debug)]
pub(crate) struct Destination {
    place: Place,
    path: PathBuf,
    must_be_directory: bool,
    /// More than one thing may come, be it by several requests.
    pub takes_several: bool,
    /// Which transfer a journal is kept of.
    pub id: Option<TransferId>,
    /// What stands there may be told, and removed.
    pub tells: bool,
    pub removes: bool,
    /// Owners are set when the sender names them.
    pub owns: bool,
    /// Nothing is to be changed.
    pub rehearses: bool,
    /// What it fits is not removed.
    pub filter: Option<Filter>,
    /// Is told the hashes of all files.
    pub manifest: Option<Manifest>,
    /// Memory for what the sender tells.
    pub budget: Budget,
    /// The first name of all that may come, when only one was asked for.
    pub expected: Option<RelPath>,
}

impl Destination {
    /// As the user typed it: a closing slash says that it is a directory, and so does who sends several things.
    pub fn new(place: Place, path: &Path, into_directory: bool) -> Self {
        let is_empty = path.as_os_str().is_empty();
        let path = if is_empty { Path::new(".") } else { path };
        let must_be_directory = into_directory || path.as_os_str().as_bytes().ends_with(b"/");
        Self {
            place,
            path: path.to_owned(),
            must_be_directory,
            takes_several: into_directory,
            id: None,
            tells: false,
            removes: false,
            owns: false,
            rehearses: false,
            filter: None,
            manifest: None,
            budget: Budget::default(),
            expected: None,
        }
    }

    /// What stands there may be told to the sender, and removed when it has none of it.
    pub fn telling(self, tells: bool, removes: bool) -> Self {
        Self { tells, removes, ..self }
    }

    /// Only to be looked at.
    pub fn rehearsed(self, rehearses: bool) -> Self {
        Self { rehearses, ..self }
    }

    /// Nothing that the filter excludes is to be removed.
    pub fn protecting(self, filter: Option<Filter>) -> Self {
        Self { filter, ..self }
    }

    /// Users and groups are set as the sender names them.
    pub fn owning(self, owns: bool) -> Self {
        Self { owns, ..self }
    }

    /// All files are listed.
    pub fn listing(self, manifest: Option<Manifest>) -> Self {
        Self { manifest, ..self }
    }

    /// With no more memory than this for what the sender tells.
    pub fn within(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// With a journal.
    pub fn with_journal(self, id: Option<TransferId>) -> Self {
        Self { id, ..self }
    }

    /// Only what has this first name may come; the empty one stands for any.
    pub fn expecting(self, name: RelPath) -> Self {
        Self { expected: Some(name).filter(|name| !name.as_bytes().is_empty()), ..self }
    }

    /// Whether somebody who was asked for one thing may send this.
    pub fn expects(&self, path: &RelPath) -> bool {
        self.expected.as_ref().is_none_or(|name| name == path || name.is_above(path))
    }

    /// As it was typed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether no more than one thing can come.
    pub fn takes_one(&self) -> bool {
        self.expected.is_some() || !self.takes_several
    }

    /// Whether there is nothing yet, nor a place for it.
    pub fn is_missing(&self) -> bool {
        let missing = |error| Errno::from_io_error(&error) == Some(Errno::NOENT);
        self.open().err().is_some_and(missing)
    }

    /// Opens it for a first entry of this path, or says what is wrong with it and what to do.
    pub fn target(&self, first: &RelPath) -> Result<Target, String> {
        let named = |reason: String| format!("{:?}: {reason}", self.path);
        let (directory, name) = self.open().map_err(|error| named(explain(&error)))?;
        let name = name.map(|name| RelPath::new(name.into_encoded_bytes())).transpose();
        let name = name.map_err(|error| named(error.to_string()))?;
        // Cannot fail: a name of a clean path.
        let top = RelPath::new(names(first.as_bytes()).next().unwrap_or_default().to_vec());
        Ok(Target { tree: Tree::new(directory), name, top: top.unwrap_or_default() })
    }

    /// The directory to write in, and the new name of what comes, if it takes one.
    fn open(&self) -> io::Result<(OwnedFd, Option<OsString>)> {
        // An earlier sitting has made it: the name is still the one that it was then.
        if let (Some(id), false) = (self.id, self.must_be_directory)
            && let Ok((parent, name)) = self.place.parent(&self.path)
            && Meta::at(&parent, &id.file_name()).is_ok_and(|journal| journal.is_ours_alone())
        {
            return Ok((parent, Some(name.to_owned())));
        }
        let error = match self.place.directory(&self.path) {
            Ok(directory) => return Ok((directory, None)),
            Err(error) => error,
        };
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) if self.must_be_directory && !self.rehearses => {
                Ok((self.place.make_directory(&self.path)?, None))
            }
            Some(Errno::NOENT | Errno::NOTDIR) if !self.must_be_directory => {
                let (parent, name) = self.place.parent(&self.path)?;
                self.refuse_device()?;
                Ok((parent, Some(name.to_owned())))
            }
            _ => Err(error),
        }
    }
}

impl Destination {
    /// What is no file would be replaced by one: nobody wants that of `/dev/null`, or of a pipe that somebody reads.
    fn refuse_device(&self) -> io::Result<()> {
        let there = self.place.open(&self.path, OFlags::PATH).and_then(|it| Ok(Meta::of(it)?));
        let is_fine =
            |meta: &Meta| matches!(meta.kind, FileType::RegularFile | FileType::Directory);
        if there.is_ok_and(|meta| !is_fine(&meta)) {
            let why = "what stands there is a device, a pipe or a socket, which a file would replace: name a file, \
                       or '-' to write to the standard output";
            return Err(io::Error::other(why));
        }
        Ok(())
    }
}

/// A destination that was opened.
pub(crate) struct Target {
    pub tree: Tree,
    /// What comes is given this name instead of its own, or is put below it when it has none.
    name: Option<RelPath>,
    /// The sender's own name for that; empty when it has none.
    top: RelPath,
}

impl Target {
    /// Where in the tree an entry goes.
    pub fn locate(&self, path: &RelPath) -> Result<RelPath, PathError> {
        match &self.name {
            None => Ok(path.clone()),
            Some(name) if self.top.as_bytes().is_empty() => name.join(path.as_bytes()),
            Some(name) => path.with_first(name.as_path().as_os_str()),
        }
    }

    /// What comes is given this name in the directory.
    pub fn given_name(&self) -> Option<&OsStr> {
        self.name.as_ref().map(|name| name.as_path().as_os_str())
    }

    /// How the sender calls what is at a place in the tree.
    pub fn sent(&self, at: &RelPath) -> RelPath {
        let Some(name) = &self.name else { return at.clone() };
        let below = at.as_bytes().strip_prefix(name.as_bytes()).unwrap_or_default();
        self.top.join(below.strip_prefix(b"/").unwrap_or(below)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_otherwise_here_is_known_by_the_name_it_was_sent_under() {
        let path = |path: &str| RelPath::new(path.into()).unwrap();
        let new = || Some(path("new"));
        for (name, first, place) in
            [(None, "a", "a/b"), (new(), "", "new/a/b"), (new(), "a", "new/b"), (None, "", "a/b")]
        {
            let top = std::env::temp_dir();
            let tree = Tree::new(std::fs::File::open(top).unwrap().into());
            let target = Target { tree, name, top: path(first) };
            assert_eq!(target.locate(&path("a/b")).unwrap(), path(place));
            assert_eq!(target.sent(&path(place)), path("a/b"));
        }
    }
}

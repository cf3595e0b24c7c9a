//! Walking a source: every directory before what it holds, and never returned to.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, openat, readlinkat};

use crate::error::explain;
use crate::filter::Filter;
use crate::meta::Meta;
use crate::place::Place;
use crate::relpath::RelPath;
use crate::temp;
use crate::tree::Tree;

/// How files are opened: a pipe that slipped in must not make the thread wait for its writer.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

const SPECIAL: &str = "it is a socket, a pipe or a device: copy what comes out of it by the source `-`, with \
                       standard input from there";

/// One thing that the user named to be sent.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    /// What it is called at the destination; empty when its contents go there without it.
    pub name: RelPath,
    /// It is no path, but this.
    stream: Option<OwnedFd>,
    /// A directory stands for what it holds.
    mirrors: bool,
    filter: Option<Filter>,
    /// What the filter calls its top.
    within: RelPath,
}

/// What stands at a path.
pub(crate) enum Found<'a> {
    Directory(Meta, &'a OwnedFd),
    File(&'a dyn Fn() -> io::Result<OwnedFd>, Meta),
    Symlink(Vec<u8>, Meta),
    /// Standard input, or whatever has no end that is known.
    Stream(&'a OwnedFd),
    Special,
    /// What belongs to a transfer that is not done.
    Own,
    Failed(String),
}

/// Is shown everything below a source; it may end the walk.
pub(crate) trait Visitor {
    /// A source is about to be walked, whose top has this path.
    fn begin(&mut self, _top: &RelPath) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn visit(&mut self, path: &RelPath, found: Found<'_>) -> ControlFlow<()>;

    /// A directory has this name, which is shown next, or left out by a pattern.
    fn name(&mut self, _directory: &RelPath, _name: &OsStr) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// It has no other names.
    fn leave(&mut self, _directory: &RelPath) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Source {
    pub fn new(path: &Path) -> Self {
        let bytes = path.as_os_str().as_bytes();
        let is_contents = bytes == b"." || bytes.ends_with(b"/.");
        let name = path.file_name().filter(|_| !is_contents).unwrap_or_default();
        let name = RelPath::new(name.as_bytes().to_vec()).unwrap_or_default();
        Self { path: path.to_owned(), ..Self::below(name) }
    }

    /// Whatever is at a path of the destination.
    pub fn below(name: RelPath) -> Self {
        let (filter, within) = (None, RelPath::default());
        Self { path: PathBuf::new(), name, stream: None, mirrors: false, filter, within }
    }

    /// To be the same there as here: a directory goes without its name.
    pub fn mirrored(self, mirrors: bool) -> Self {
        Self { mirrors, ..self }
    }

    /// Without what the filter excludes.
    pub fn filtered(self, filter: Option<Filter>) -> Self {
        Self { filter, ..self }
    }

    /// As `filtered`, when the filter counts from elsewhere, where the top has this path.
    pub fn filtered_within(self, filter: Option<Filter>, within: RelPath) -> Self {
        Self { filter, within, ..self }
    }

    /// What comes from a pipe or terminal, to have this name.
    pub fn stream(stream: OwnedFd, name: RelPath) -> Self {
        Self { stream: Some(stream), path: "-".into(), ..Self::below(name) }
    }

    /// A path below it, as the user would type it here.
    pub fn typed(&self, path: &RelPath) -> Vec<u8> {
        let path = path.as_bytes();
        let inside = if self.mirrors { path } else { &[] };
        let below = path.strip_prefix(self.name.as_bytes()).unwrap_or(inside);
        let below = below.strip_prefix(b"/").unwrap_or(below);
        if below.is_empty() {
            // Joined, it would end in a slash.
            return self.path.as_os_str().as_bytes().to_vec();
        }
        self.path.join(OsStr::from_bytes(below)).into_os_string().into_encoded_bytes()
    }

    /// Shows everything to `visitor`. A link is followed only when it is the source itself.
    pub fn walk(&self, place: &Place, visitor: &mut impl Visitor) -> ControlFlow<()> {
        if let Some(stream) = &self.stream {
            return visitor.visit(&self.name, Found::Stream(stream));
        }
        let meta = match place.open(&self.path, OFlags::PATH).and_then(|top| Ok(Meta::of(top)?)) {
            Ok(meta) => meta,
            Err(error) => return visitor.visit(&self.name, Found::Failed(explain(&error))),
        };
        if temp::bears_own(&self.name, meta.kind) {
            return visitor.visit(&self.name, Found::Failed(temp::OWN.to_owned()));
        }
        let is_mirror = self.mirrors && meta.kind == FileType::Directory;
        let name = if is_mirror { RelPath::default() } else { self.name.clone() };
        visitor.begin(&name)?;
        match meta.kind {
            FileType::Directory => match place.directory(&self.path) {
                Ok(top) => self.walk_tree(&name, Tree::new(top), visitor),
                Err(error) => visitor.visit(&self.name, Found::Failed(explain(&error))),
            },
            FileType::RegularFile => {
                let open = || match place.open(&self.path, FILE) {
                    // Whoever may write in a served folder could plant a link that leads there.
                    Ok(file) if temp::is_own_file(&file) => Err(io::Error::other(temp::OWN)),
                    opened => opened,
                };
                visitor.visit(&self.name, Found::File(&open, meta))
            }
            // Below a source it is passed over; this is what was asked for.
            _ => visitor.visit(&self.name, Found::Failed(SPECIAL.to_owned())),
        }
    }

    /// Shows everything in a directory, which is called `top`. Keeps no more than the paths of the
    /// directories still to be seen.
    pub fn walk_tree(
        &self,
        top: &RelPath,
        mut tree: Tree,
        visitor: &mut impl Visitor,
    ) -> ControlFlow<()> {
        let mut ahead = vec![RelPath::default()];
        while let Some(below) = ahead.pop() {
            // Joined before, when it was put on the list.
            let path = top.join(below.as_bytes()).unwrap_or_default();
            let opened = tree.directory(below.as_bytes());
            let opened = opened.and_then(|directory| {
                Ok((Meta::of(&directory)?, Dir::read_from(&directory)?, directory))
            });
            let (meta, entries, directory) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    visitor.visit(&path, Found::Failed(explain(&error)))?;
                    continue;
                }
            };
            visitor.visit(&path, Found::Directory(meta, &directory))?;
            for entry in entries {
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(error) => {
                        visitor.visit(&path, Found::Failed(explain(&error.into())))?;
                        break;
                    }
                };
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                visitor.name(&path, OsStr::from_bytes(name))?;
                let leaves_out = |is_directory| {
                    let path = || self.within.join(below.as_bytes())?.join(name);
                    let excludes = |filter: &Filter| {
                        path().is_ok_and(|path| filter.excludes(&path, is_directory))
                    };
                    self.filter.as_ref().is_some_and(excludes)
                };
                let name = OsStr::from_bytes(name);
                let is_directory = show(&path, &directory, name, &leaves_out, visitor)?;
                if is_directory {
                    // Cannot fail: the longer path with the source's name in front was joined.
                    ahead.extend(below.join(name.as_bytes()));
                }
            }
            visitor.leave(&path)?;
        }
        ControlFlow::Continue(())
    }
}

/// Shows one entry of a directory; whether it is a directory itself, to be shown in its turn.
fn show(
    parent: &RelPath,
    directory: &OwnedFd,
    name: &OsStr,
    leaves_out: &dyn Fn(bool) -> bool,
    visitor: &mut impl Visitor,
) -> ControlFlow<(), bool> {
    let path = match parent.join(name.as_bytes()) {
        Ok(path) => path,
        Err(error) => {
            visitor.visit(parent, Found::Failed(format!("{name:?} in it: {error}")))?;
            return ControlFlow::Continue(false);
        }
    };
    let open = || Ok(openat(directory, name, FILE | OFlags::NOFOLLOW, Mode::empty())?);
    let found = match Meta::at(directory, name) {
        Ok(meta) if leaves_out(meta.kind == FileType::Directory) => {
            return ControlFlow::Continue(false);
        }
        Ok(meta) if temp::is_own(name.as_bytes(), meta.kind) => Found::Own,
        Ok(meta) => match meta.kind {
            FileType::Directory => return ControlFlow::Continue(true),
            FileType::RegularFile => Found::File(&open, meta),
            FileType::Symlink => match readlinkat(directory, name, Vec::new()) {
                Ok(target) => Found::Symlink(target.into_bytes(), meta),
                Err(error) => Found::Failed(explain(&error.into())),
            },
            _ => Found::Special,
        },
        Err(error) => Found::Failed(explain(&error.into())),
    };
    visitor.visit(&path, found)?;
    ControlFlow::Continue(false)
}

//! Walking a source: every directory before what it holds, and never returned to.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, openat, readlinkat};

use crate::error::explain;
use crate::meta::Meta;
use crate::place::Place;
use crate::relpath::RelPath;
use crate::tree::Tree;

/// How files are opened: a pipe that slipped in must not make the thread wait for its writer.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// One thing that the user named to be sent.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    /// What it is called at the destination; empty when its contents go there without it.
    pub name: RelPath,
    /// It is no path, but this.
    stream: Option<OwnedFd>,
}

/// What stands at a path.
pub(crate) enum Found<'a> {
    Directory(Meta, &'a OwnedFd),
    File(&'a dyn Fn() -> io::Result<OwnedFd>, Meta),
    Symlink(Vec<u8>, Meta),
    /// Standard input, or whatever has no end that is known.
    Stream(&'a OwnedFd),
    Special,
    Failed(String),
}

/// Is shown everything below a source; it may end the walk.
pub(crate) trait Visitor {
    fn visit(&mut self, path: &RelPath, found: Found<'_>) -> ControlFlow<()>;
}

impl Source {
    pub fn new(path: &Path) -> Self {
        let bytes = path.as_os_str().as_bytes();
        let is_contents = bytes == b"." || bytes.ends_with(b"/.");
        let name = path.file_name().filter(|_| !is_contents).unwrap_or_default();
        let name = RelPath::new(name.as_bytes().to_vec()).unwrap_or_default();
        Self { path: path.to_owned(), name, stream: None }
    }

    /// What comes from a pipe or terminal, to have this name.
    pub fn stream(stream: OwnedFd, name: RelPath) -> Self {
        Self { path: "-".into(), name, stream: Some(stream) }
    }

    /// A path below it, as the user would type it here.
    pub fn typed(&self, path: &RelPath) -> Vec<u8> {
        let below = path.as_bytes().strip_prefix(self.name.as_bytes()).unwrap_or_default();
        let below = below.strip_prefix(b"/").unwrap_or(below);
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
        match meta.kind {
            FileType::Directory => match place.directory(&self.path) {
                Ok(top) => self.walk_tree(Tree::new(top), visitor),
                Err(error) => visitor.visit(&self.name, Found::Failed(explain(&error))),
            },
            FileType::RegularFile => {
                visitor.visit(&self.name, Found::File(&|| place.open(&self.path, FILE), meta))
            }
            _ => visitor.visit(&self.name, Found::Special),
        }
    }

    /// Keeps no more than the paths of the directories still to be seen.
    fn walk_tree(&self, mut tree: Tree, visitor: &mut impl Visitor) -> ControlFlow<()> {
        let mut ahead = vec![RelPath::default()];
        while let Some(below) = ahead.pop() {
            // Joined before, when it was put on the list.
            let path = self.name.join(below.as_bytes()).unwrap_or_default();
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
                let is_directory = show(&path, &directory, OsStr::from_bytes(name), visitor)?;
                if is_directory {
                    // Cannot fail: the longer path with the source's name in front was joined.
                    ahead.extend(below.join(name));
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Shows one entry of a directory; whether it is a directory itself, to be shown in its turn.
fn show(
    parent: &RelPath,
    directory: &OwnedFd,
    name: &OsStr,
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

/// Counts regular files and their bytes.
#[derive(Default)]
pub(crate) struct Count<F> {
    pub files: u64,
    pub bytes: u64,
    /// Whether the count is still wanted.
    pub wanted: F,
}

impl<F: Fn() -> bool> Visitor for Count<F> {
    fn visit(&mut self, _: &RelPath, found: Found<'_>) -> ControlFlow<()> {
        if let Found::File(_, meta) = found {
            self.files += 1;
            self.bytes += meta.size;
        }
        if (self.wanted)() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

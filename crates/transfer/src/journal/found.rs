//! What an earlier sitting has left, as its journal tells and the tree shows.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufWriter};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use super::{Record, write};
use crate::attributes::FILE_MODE;
use crate::hash::State;
use crate::meta::{Meta, Tag};
use crate::notes::NOTES_MAX;
use crate::relpath::{RawBytes, RelPath};
use crate::tree::{Tree, open_file};

/// Files of which it is told when their sources have changed; others are copied anew all the same. Up to 20 MB.
const STOOD_MAX: usize = 7 << 17;

/// Begun files that a journal may tell of; files come one after another.
const PARTS_MAX: usize = 16;

/// A file that was begun.
#[derive(Clone)]
pub(crate) struct Part {
    pub tag: Tag,
    pub path: RelPath,
    /// Its temporary name.
    pub name: OsString,
    pub inode: u64,
    pub state: State,
}

impl Part {
    /// Opens it, if it is what the journal tells of.
    fn open(&self, directory: &OwnedFd, access: OFlags) -> Option<File> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(directory, &self.name, flags, Mode::empty()).ok()?;
        let meta = Meta::of(&file).ok()?;
        let is_whole = meta.size >= self.state.length() && meta.inode == self.inode;
        (meta.is_ours_alone() && is_whole).then(|| file.into())
    }

    /// Opens it to go on with a file of this size: a longer one is another.
    pub fn go_on(&self, directory: &OwnedFd, size: u64) -> Option<File> {
        let fits = |file: &File| Meta::of(file).is_ok_and(|meta| meta.size <= size);
        self.open(directory, OFlags::WRONLY).filter(fits)
    }

    /// Opens it to read what the journal claims.
    pub fn read(&self, directory: &OwnedFd) -> Option<File> {
        self.open(directory, OFlags::RDONLY)
    }

    /// Removes it, where it is ours.
    pub fn remove(&self, tree: &mut Tree) {
        let parent = self.path.split().and_then(|(parent, _)| tree.directory(parent).ok());
        if let Some(directory) = parent {
            self.remove_from(&directory);
        }
    }

    /// Removes it from its directory; the journal's claim then is one of nothing.
    pub fn remove_from(&self, directory: &OwnedFd) {
        if self.is_temporary()
            && let Ok(meta) = Meta::at(directory, &self.name)
            && meta.is_ours_alone()
            && meta.inode == self.inode
        {
            // A part that cannot be removed harms nobody.
            let _ = unlinkat(directory, &self.name, AtFlags::empty());
        }
    }

    /// Whether its name is one of the directory's own, and one that [`Names`] makes.
    fn is_temporary(&self) -> bool {
        let bytes = self.name.as_bytes();
        let name = RelPath::new(bytes.to_vec());
        let is_own = |name: RelPath| name.split().is_some_and(|(parent, _)| parent.is_empty());
        let is_made =
            bytes.ends_with(b".part") && self.name.to_string_lossy().contains(".longhaul-");
        is_made && name.is_ok_and(is_own)
    }

    /// What a journal is told of it.
    pub(super) fn record(&self) -> Record {
        Record::Begun {
            tag: self.tag,
            path: self.path.clone(),
            name: RawBytes(self.name.as_bytes().to_vec()),
            inode: self.inode,
            state: self.state.clone(),
        }
    }
}

/// What an earlier sitting has left.
#[derive(Default)]
pub(crate) struct Found {
    /// There was one, and what it tells of is known.
    pub was_there: bool,
    /// It is not obeyed, for others may have written it.
    pub is_refused: bool,
    /// Owners are set, whatever was allowed then.
    pub owns: bool,
    /// Of the files that stand under their final names.
    pub installed: Vec<Tag>,
    /// Those of them that lack something still, and why, up to [`NOTES_MAX`].
    pub bare: Vec<(RelPath, Errno)>,
    /// By which they are known again.
    pub stood: Stood,
    /// Their bytes.
    pub bytes: u64,
    pub parts: Vec<Part>,
}

impl Found {
    /// Keeps what a record tells, if the tree shows it too.
    pub(super) fn keep(
        &mut self,
        record: Record,
        tree: &mut Tree,
        new: &mut BufWriter<File>,
    ) -> io::Result<()> {
        match record {
            Record::Installed { tag, ref path, size, modified, inode }
            | Record::Bare { tag, ref path, size, modified, inode, .. } => {
                // What another sitting has made anew stands under another name still.
                for part in self.parts.extract_if(.., |part| part.path == *path) {
                    part.remove(tree);
                }
                let here = path
                    .split()
                    .and_then(|(parent, name)| Meta::at(tree.directory(parent).ok()?, name).ok());
                let stands = here.is_some_and(|here| {
                    (here.kind, here.size) == (FileType::RegularFile, size)
                        && (here.modified, here.inode) == (modified, inode)
                });
                if stands {
                    self.installed.push(tag);
                    self.stood.add(path, &tag);
                    self.bytes += size;
                    write(&self.complete(record, tree), new)?;
                }
            }
            Record::Begun { tag, path, name, inode, state } => {
                // What stands there is of before.
                self.stood.0.remove(&hash(&path));
                let name = OsStr::from_bytes(&name.0).to_owned();
                let part = Part { tag, path, name, inode, state };
                if let Some(at) = self.parts.iter().position(|other| other.path == part.path) {
                    let earlier = self.parts.remove(at);
                    if earlier.name != part.name {
                        earlier.remove(tree);
                    }
                }
                if part.is_temporary() && self.parts.len() < PARTS_MAX {
                    self.parts.push(part);
                }
            }
        }
        Ok(())
    }

    /// Sets what could not be set of a file before; what is to be told of it then.
    fn complete(&mut self, record: Record, tree: &mut Tree) -> Record {
        let Record::Bare { tag, path, size, modified, inode, mut attributes } = record else {
            return record;
        };
        attributes.owner = attributes.owner.filter(|_| self.owns);
        let (set, modified) = match open(tree, &path, inode) {
            Ok(file) => {
                let set = attributes.set_on(&file, FILE_MODE);
                (set, Meta::of(&file).map_or(modified, |meta| meta.modified))
            }
            Err(error) => (Err(error), modified),
        };
        match set {
            Ok(_) => Record::Installed { tag, path, size, modified, inode },
            Err(error) => {
                if self.bare.len() < NOTES_MAX {
                    self.bare.push((path.clone(), error));
                }
                Record::Bare { tag, path, size, modified, inode, attributes }
            }
        }
    }

    /// Removes begun files with nothing in them, or not what the journal tells of.
    pub(super) fn drop_useless(&mut self, tree: &mut Tree) {
        self.parts.retain(|part| {
            let parent = part.path.split().and_then(|(parent, _)| tree.directory(parent).ok());
            let is_whole =
                parent.is_some_and(|parent| part.open(&parent, OFlags::WRONLY).is_some());
            let is_useful = is_whole && part.state.length() > 0;
            if !is_useful {
                part.remove(tree);
            }
            is_useful
        });
    }
}

/// Opens the file that stands at a path, if it is this one.
fn open(tree: &mut Tree, path: &RelPath, inode: u64) -> Result<OwnedFd, Errno> {
    let (parent, name) = path.split().ok_or(Errno::INVAL)?;
    let file = tree.directory(parent).and_then(|parent| open_file(&parent, name));
    let file = file.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if Meta::of(&file)?.inode == inode { Ok(file) } else { Err(Errno::STALE) }
}

/// Files that an earlier sitting has brought whole: hashes of their paths, and how their tags begin.
#[derive(Default)]
pub(crate) struct Stood(HashMap<u64, [u8; 8]>);

impl Stood {
    fn add(&mut self, path: &RelPath, tag: &Tag) {
        if self.0.len() < STOOD_MAX {
            self.0.insert(hash(path), begin(tag));
        }
    }

    /// Whether the file that came as this one was another.
    pub fn was_other(&self, path: &RelPath, tag: &Tag) -> bool {
        self.0.get(&hash(path)).is_some_and(|then| *then != begin(tag))
    }
}

fn hash(path: &RelPath) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

fn begin(tag: &Tag) -> [u8; 8] {
    *tag.first_chunk().expect("a tag is longer")
}

//! What the receiving side has of a transfer that is not over, kept in a file beside it.
//!
//! The journal is `.longhaul-ID.journal` in the directory into which the transfer writes: [`MAGIC`],
//! then [`Record`]s, framed and checked as messages are (see [`crate::wire`]). It only ever claims what
//! was synced before. Reading stops at the first record that is not whole: what stood behind it is
//! copied again.
//!
//! Whoever begins a transfer or goes on with it writes a journal of its own and renames it over the old
//! one, if there is one. So the one who wrote that, if it lives still, finds its file without a name,
//! and gives up.
//!
//! Where others may write too, a journal is obeyed only when it is our own and nobody else can write to
//! it; and of files, it can only speak of our own under temporary names.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fdatasync, fstat, fsync, futimens};
use rustix::fs::{openat, unlinkat};
use serde::{Deserialize, Serialize};

use crate::attributes::{Attributes, EXTENDED_MAX};
use crate::error::is_fatal;
use crate::hash::State;
use crate::meta::{Meta, Modified, Tag};
use crate::relpath::{PATH_MAX, RawBytes, RelPath};
use crate::temp::Names;
use crate::tree::Tree;
use crate::wire::{CONTROL_HEAD, CONTROL_MAX, append_frame, control_length, parse_frame};

mod found;

pub(crate) use self::found::{Found, Part, Stood};

/// A journal's first bytes.
pub const MAGIC: &[u8] = b"longhaul journal 1\n";

/// What a record has besides a path and extended attributes, at most.
const REST_MAX: usize = 256;
// Of an extended attribute, up to four bytes tell its lengths, and no more than two where it is short.
const _: () = assert!(PATH_MAX + EXTENDED_MAX + EXTENDED_MAX * 2 / 5 + REST_MAX <= CONTROL_MAX);

/// No journal that we wrote is longer: some ten million files.
const JOURNAL_MAX: u64 = 2 << 30;

/// Which transfer a journal is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferId([u8; 16]);

impl TransferId {
    /// The same for the same parts: who copies, what, and where to.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("longhaul transfer 1");
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Self(*hasher.finalize().as_bytes().first_chunk().expect("a hash is longer"))
    }

    /// The beginning of its number, which stands in temporary names too.
    pub(crate) fn mark(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The journal's name.
    pub(crate) fn file_name(self) -> OsString {
        format!(".longhaul-{:032x}.journal", u128::from_be_bytes(self.0)).into()
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Record {
    /// A file stands under its final name, and is on the disk.
    Installed { tag: Tag, path: RelPath, size: u64, modified: Modified, inode: u64 },
    /// So much of a file is on the disk, under a temporary name.
    Begun { tag: Tag, path: RelPath, name: RawBytes, inode: u64, state: State },
    /// A file stands there without these, which could not be set. Earlier releases read no further than to here.
    Bare {
        tag: Tag,
        path: RelPath,
        size: u64,
        modified: Modified,
        inode: u64,
        attributes: Attributes,
    },
}

/// A journal to write to.
pub(crate) struct Journal {
    directory: Arc<OwnedFd>,
    name: OsString,
    /// Missing when it could not be made.
    file: Option<Arc<File>>,
    /// It could not be written further: it may be missing something, and what it says is true.
    is_given_up: bool,
    /// There is something to go on from, or was.
    is_begun: bool,
    /// It tells of files that stand under their final names.
    has_installed: bool,
    /// The begun files that it tells of.
    begun: Vec<PathBuf>,
    /// The destination's name, which a next sitting without this would take for a directory to write into.
    leads_to: Option<OsString>,
    /// Its name outlasts the machine's end.
    is_named: bool,
    /// So does what is in it.
    is_synced: bool,
}

/// What is to be synced so that all of a journal outlasts the machine's end.
pub(crate) struct Unsynced {
    pub file: Arc<File>,
    /// The directory that names it, if that is still to be synced.
    pub named_in: Option<Arc<OwnedFd>>,
}

impl Journal {
    /// Takes over what there is of a transfer below `tree`. What the journal tells and the tree does
    /// not show is left out; begun files that are of no use are removed. Where there is nothing, the
    /// name is claimed all the same: an earlier sitting that has not noticed its end must not. `leads_to` is the
    /// destination's name, if it was given one. Where this side `owns`, files are given the owners that they lack still.
    ///
    /// # Errors
    /// What there is cannot be taken over now, and would meet every file too: it stays as it is.
    pub fn take_over(
        id: TransferId,
        leads_to: Option<OsString>,
        owns: bool,
        tree: &mut Tree,
        names: &mut Names,
    ) -> io::Result<(Self, Found)> {
        let directory = tree.top().clone();
        let mut journal = Self {
            directory,
            name: id.file_name(),
            file: None,
            is_given_up: false,
            is_begun: false,
            has_installed: false,
            begun: Vec::new(),
            leads_to,
            is_named: false,
            is_synced: true,
        };
        let mut found = Found { owns, ..Found::default() };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let old = openat(&journal.directory, &journal.name, flags, Mode::empty());
        let old = old.map_err(io::Error::from);
        if let Err(error) = &old
            && is_fatal(error)
        {
            return Err(old.expect_err("matched"));
        }
        let is_obeyed = |old: &OwnedFd| {
            Meta::of(old).is_ok_and(|meta| meta.is_ours_alone() && meta.mode & 0o022 == 0)
        };
        found.is_refused = old.as_ref().is_ok_and(|old| !is_obeyed(old));
        if let (Ok(old), false) = (old, found.is_refused) {
            let copied = journal.replace(names, true, |new| {
                // What cannot be read is not there.
                let _ = read(File::from(old), |record| found.keep(record, tree, new));
                found.drop_useless(tree);
                found.parts.iter().try_for_each(|part| write(&part.record(), new))
            });
            match copied {
                Ok(()) => (journal.is_begun, found.was_there) = (true, true),
                Err(error) if is_fatal(&error) => return Err(error),
                // The old one stays, with all that it tells of.
                Err(_) => found = Found::default(),
            }
            journal.has_installed = !found.installed.is_empty();
            journal.begun = found.parts.iter().map(|part| beside(&part.path, &part.name)).collect();
        } else {
            found.was_there = found.is_refused;
            // Without it the transfer does, as where it cannot be written later.
            let _ = journal.replace(names, false, |_| Ok(()));
        }
        Ok((journal, found))
    }

    /// Begins it anew, with what `fill` writes; `syncs` when that is to outlast the machine.
    fn replace(
        &mut self,
        names: &mut Names,
        syncs: bool,
        fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let (file, mut temp) = names.create_named(&self.directory, OsStr::new("longhaul"))?;
        let mut new = BufWriter::new(File::from(file));
        new.write_all(MAGIC)?;
        fill(&mut new)?;
        let file = new.into_inner()?;
        if syncs {
            fdatasync(&file)?;
        }
        temp.rename(&self.name)?;
        self.file = Some(file.into());
        if syncs {
            self.sync_name();
        }
        Ok(())
    }

    fn sync_name(&mut self) {
        if !std::mem::replace(&mut self.is_named, true) {
            // Some file systems cannot sync a directory, and need not.
            let _ = fsync(&self.directory);
        }
    }

    /// Whether anything was told in it.
    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Whether anything that it tells of is there still, or a directory that only it knows to be the destination.
    pub fn is_of_use(&self) -> bool {
        let leads_to = self.leads_to.as_ref().and_then(|name| Meta::at(&self.directory, name).ok());
        self.has_installed
            || self.begun.iter().any(|part| self.stands(part))
            || leads_to.is_some_and(|meta| meta.kind == FileType::Directory)
    }

    fn stands(&self, part: &Path) -> bool {
        Meta::at(&self.directory, part.as_os_str()).is_ok()
    }

    /// Adds records: those that were synced, and no others. Whether it could.
    pub fn append(&mut self, records: &[Record], syncs: bool) -> bool {
        let Some(file) = self.file.clone().filter(|_| !self.is_given_up) else { return false };
        let mut bytes = Vec::new();
        for record in records {
            append_frame(record, &mut bytes);
            if let Record::Begun { path, name, .. } = record {
                // Told of or not: if it has its name already, the next sitting removes it by ours.
                let part = beside(path, OsStr::from_bytes(&name.0));
                let mut begun = std::mem::take(&mut self.begun);
                begun.retain(|other| *other != part && self.stands(other));
                begun.push(part);
                self.begun = begun;
            }
        }
        let added = (&*file).write_all(&bytes).and_then(|()| {
            let is_installed =
                |record| matches!(record, &(Record::Installed { .. } | Record::Bare { .. }));
            self.has_installed |= records.iter().any(is_installed);
            (self.is_begun, self.is_synced) = (true, false);
            if syncs { self.sync() } else { Ok(()) }
        });
        self.is_given_up = added.is_err();
        !self.is_given_up
    }

    /// It could not be brought to the disk.
    pub fn give_up(&mut self) {
        self.is_given_up = true;
    }

    /// What is left to be synced; who asks sees to it.
    pub fn unsynced(&mut self) -> Option<Unsynced> {
        let file = self.file.clone().filter(|_| !self.is_synced && !self.is_given_up)?;
        self.is_synced = true;
        let is_named = std::mem::replace(&mut self.is_named, true);
        Some(Unsynced { file, named_in: (!is_named).then(|| self.directory.clone()) })
    }

    /// Makes what was added outlast the machine's end, and the journal's name with it.
    fn sync(&mut self) -> io::Result<()> {
        fdatasync(self.file.as_ref().ok_or(io::ErrorKind::NotFound)?)?;
        self.is_synced = true;
        self.sync_name();
        Ok(())
    }

    /// Whether nobody else has gone on with the transfer.
    pub fn is_ours(&self) -> bool {
        self.file.as_ref().is_none_or(|file| fstat(file).is_ok_and(|stat| stat.st_nlink > 0))
    }

    /// Of no use any more.
    pub fn remove(&self) {
        if self.is_ours() && self.file.is_some() {
            let before = Meta::of(&self.directory);
            // One that cannot be removed says only what is true.
            let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
            // The directory may have been given its time already.
            let _ =
                before.and_then(|before| futimens(&self.directory, &before.modified.timestamps()));
        }
    }
}

/// Where a part of the file of this path is.
fn beside(path: &RelPath, name: &OsStr) -> PathBuf {
    path.as_path().with_file_name(name)
}

fn write(record: &Record, new: &mut BufWriter<File>) -> io::Result<()> {
    let mut frame = Vec::new();
    append_frame(record, &mut frame);
    new.write_all(&frame)
}

/// The lengths of a journal's records, up to the first that is not whole.
pub fn records(journal: &[u8]) -> Vec<u64> {
    let mut lengths = Vec::new();
    // What stands behind is not there.
    let _ = read(journal, |record| {
        let mut frame = Vec::new();
        append_frame(&record, &mut frame);
        lengths.push(frame.len() as u64);
        Ok(())
    });
    lengths
}

/// A journal with a record of each kind.
pub fn example() -> Vec<u8> {
    let path = RelPath::new(b"folder/file".to_vec()).unwrap_or_default();
    let (tag, modified, state) = <(Tag, Modified, State)>::default();
    let mut journal = MAGIC.to_vec();
    let installed = Record::Installed { tag, path: path.clone(), size: 5, modified, inode: 7 };
    append_frame(&installed, &mut journal);
    let name = RawBytes(b".file.longhaul-00.part".to_vec());
    append_frame(&Record::Begun { tag, path: path.clone(), name, inode: 8, state }, &mut journal);
    let attributes = Attributes::default();
    let bare = Record::Bare { tag, path, size: 5, modified, inode: 7, attributes };
    append_frame(&bare, &mut journal);
    journal
}

/// Reads records up to the first that is not whole.
fn read(file: impl Read, mut each: impl FnMut(Record) -> io::Result<()>) -> io::Result<()> {
    let mut reader = BufReader::new(file.take(JOURNAL_MAX));
    let mut magic = [0; MAGIC.len()];
    reader.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(io::ErrorKind::InvalidData.into());
    }
    loop {
        let mut head = [0; CONTROL_HEAD];
        reader.read_exact(&mut head)?;
        let mut body = vec![0; control_length(&head).map_err(io::Error::other)?];
        reader.read_exact(&mut body)?;
        each(parse_frame(&head, &body).map_err(io::Error::other)?)?;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;

    #[test]
    fn one_that_could_not_be_told_is_of_no_use() {
        let folder = tempfile::tempdir().unwrap();
        let mut tree = Tree::new(File::open(folder.path()).unwrap().into());
        let (id, mut names) = (TransferId([7; 16]), Names::new().unwrap());
        let (mut journal, _) = Journal::take_over(id, None, false, &mut tree, &mut names).unwrap();
        let path = RelPath::new(b"file".to_vec()).unwrap();
        let (tag, modified) = <(Tag, Modified)>::default();
        let installed = [Record::Installed { tag, path, size: 5, modified, inode: 7 }];
        let writable = journal.file.replace(Arc::new(File::create("/dev/full").unwrap()));
        assert!(!journal.append(&installed, false) && !journal.is_begun() && !journal.is_of_use());
        (journal.file, journal.is_given_up) = (writable, false);
        assert!(journal.append(&installed, false) && journal.is_begun() && journal.is_of_use());
    }

    #[test]
    fn what_could_not_be_set_is_set_by_the_next_sitting_or_told_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut tree = Tree::new(File::open(folder.path()).unwrap().into());
        let (id, mut names) = (TransferId([7; 16]), Names::new().unwrap());
        let mut take_over = || Journal::take_over(id, None, false, &mut tree, &mut names).unwrap();
        let (mut journal, _) = take_over();
        // The second time cannot be.
        let records = [(b"one", 1), (b"two", 1_000_000_000)].map(|(name, nanos)| {
            let path = RelPath::new(name.to_vec()).unwrap();
            let file = File::create(folder.path().join(path.as_path())).unwrap();
            let Meta { size, modified, inode, .. } = Meta::of(&file).unwrap();
            let time = Modified { seconds: 7, nanos };
            // What was allowed then is not now.
            let (mode, owner) = (0o640, Some((7, 7)));
            let attributes = Attributes { mode, modified: time, owner, ..Attributes::default() };
            Record::Bare { tag: [nanos as u8; 16], path, size, modified, inode, attributes }
        });
        assert!(journal.append(&records, false) && journal.is_of_use());
        for _ in 0..2 {
            let (journal, found) = take_over();
            assert!(journal.is_of_use());
            let bare = Vec::from_iter(found.bare.iter().map(|(path, _)| path.as_bytes()));
            assert_eq!((found.installed.len(), &bare[..]), (2, &[&b"two"[..]][..]));
        }
        let one = Meta::of(File::open(folder.path().join("one")).unwrap()).unwrap();
        assert_eq!((one.mode, one.modified), (0o640, Modified { seconds: 7, nanos: 1 }));
        assert_eq!(one.owner.0, rustix::process::geteuid().as_raw());
    }

    #[test]
    fn what_its_owner_may_not_read_is_given_its_time_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("one")).unwrap();
        file.set_permissions(Permissions::from_mode(0o200)).unwrap();
        let top = File::open(folder.path()).unwrap();
        // Root as everybody else, in this thread.
        let taking = std::thread::spawn(move || {
            let mut sets = capabilities(None).unwrap();
            sets.effective &= !(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets).unwrap();
            let (mut tree, mut names) = (Tree::new(top.into()), Names::new().unwrap());
            let mut take_over = || {
                let id = TransferId([7; 16]);
                Journal::take_over(id, None, false, &mut tree, &mut names).unwrap()
            };
            let Meta { mode, size, modified, inode, .. } = Meta::of(&file).unwrap();
            let time = Modified { seconds: 7, nanos: 1 };
            let attributes = Attributes { mode, modified: time, ..Attributes::default() };
            let (path, tag) = (RelPath::new(b"one".to_vec()).unwrap(), Tag::default());
            let bare = Record::Bare { tag, path, size, modified, inode, attributes };
            assert!(take_over().0.append(&[bare], false));
            assert_eq!(take_over().1.bare.len(), 0);
            let meta = Meta::of(&file).unwrap();
            assert_eq!((meta.mode, meta.modified), (0o200, time));
        });
        taking.join().unwrap();
    }

    #[test]
    fn a_cut_or_damaged_record_takes_only_what_is_behind_it_along() {
        let whole = example();
        let lengths = records(&whole);
        assert_eq!(lengths.len(), 3);
        let ends = lengths.iter().scan(MAGIC.len(), |end, length| {
            *end += *length as usize;
            Some(*end)
        });
        let ends = Vec::from_iter(ends);
        let before = |at: usize| ends.iter().filter(|end| **end <= at).count();
        for at in 0..whole.len() {
            assert_eq!(records(&whole[..at]).len(), before(at), "{at}");
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            assert_eq!(records(&damaged).len(), before(at), "{at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_behind_are_no_records(tail in vec(any::<u8>(), 0..300)) {
            let journal = [example(), tail].concat();
            prop_assert_eq!(records(&journal).len(), 3);
        }
    }
}

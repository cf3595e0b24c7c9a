//! The file that is arriving: its bytes, their hash, and how much of it the journal may claim.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{FileType, Mode, OFlags, openat};

use crate::attributes::Attributes;
use crate::commit::Checkpoint;
use crate::hash::{BLOCK, Hasher, State};
use crate::journal::{Part, Record};
use crate::meta::{Meta, Tag, of_copies};
use crate::relpath::{RawBytes, RelPath};
use crate::temp::Temp;
use crate::wire::WireError;

/// The journal claims a file by pieces of this size; smaller files it claims only when they are
/// installed. While one piece is synced the next is written, so that a killed receiver has lost two
/// of them and what was on its way.
pub(crate) const CHECKPOINT: u64 = 8 << 20;

/// What the sender says of an entry.
pub(crate) struct Header {
    pub kind: FileType,
    pub path: RelPath,
    /// Nobody knows before its end without.
    pub size: Option<u64>,
    pub attributes: Attributes,
    pub tag: Tag,
}

impl Header {
    /// Of what has neither bytes nor a tag.
    pub fn plain(kind: FileType, path: RelPath, attributes: Attributes) -> Self {
        Self { kind, path, size: None, attributes, tag: Tag::default() }
    }
}

/// Holes and copies are taken by pieces of this size, for they may be for nothing by then.
const PIECE: u64 = 8 << 20;

/// How many bytes were new, and whether they are written.
pub(crate) type Taken = Result<(u64, io::Result<()>), WireError>;

pub(crate) enum Arriving {
    File(Box<Incoming>),
    /// A note said why it is not wanted.
    Unwanted,
}

pub(crate) struct Incoming {
    pub header: Header,
    /// The final name.
    pub name: OsString,
    pub file: Arc<File>,
    pub temp: Temp,
    /// How far the sender is.
    position: u64,
    /// Of all that stands in the file, which may be further.
    hasher: Hasher,
    /// It ends in a hole that the file does not reach over yet.
    is_short: bool,
    /// The version that stands under the final name, once it was needed.
    version: Option<File>,
    /// What an earlier sitting has made of that version, until it shows whether it is of use.
    made: Option<(File, Part)>,
    /// Some of it is copied.
    has_copies: bool,
    /// Some of it needs no place on the disk.
    pub has_holes: bool,
    inode: u64,
    /// Some of it was lost on its way to the disk, as the committer has found.
    pub spoilt: Arc<AtomicBool>,
    /// Bytes that the journal claims; `None` when it is not to claim more.
    claimed: Option<u64>,
    /// Some of it is of an earlier sitting.
    pub goes_on: bool,
}

impl Incoming {
    /// A new file, or one that goes on from a state, which the `journal` is to know of.
    pub fn new(
        header: Header,
        name: OsString,
        (mut file, temp): (File, Temp),
        state: State,
        journal: bool,
    ) -> io::Result<Box<Self>> {
        let claimed = state.length();
        if claimed > 0 {
            // What stands behind was not synced, and would show through holes, which are not written.
            file.set_len(claimed)?;
            file.seek(SeekFrom::Start(claimed))?;
        }
        let inode = Meta::of(&file)?.inode;
        Ok(Box::new(Self {
            header,
            name,
            file: Arc::new(file),
            temp,
            position: 0,
            hasher: Hasher::from(state),
            is_short: false,
            version: None,
            made: None,
            has_copies: false,
            has_holes: false,
            inode,
            spoilt: Arc::default(),
            claimed: journal.then_some(claimed),
            goes_on: claimed > 0,
        }))
    }

    /// May go on from what an earlier sitting has made with copies. An earlier sitting that has not noticed its
    /// end writes there still, and not what the sender has if the version has changed: this is another file.
    pub fn from_made(mut self: Box<Self>, made: Option<(File, Part)>) -> Box<Self> {
        self.made = made;
        self
    }

    /// The sender is so much further; gives how much of that was here already.
    fn advance(&mut self, length: u64) -> Result<u64, WireError> {
        let there = self.hasher.length().saturating_sub(self.position);
        let (end, size) = (self.position.checked_add(length), self.header.size.unwrap_or(u64::MAX));
        self.position = end.filter(|&end| end <= size).ok_or(WireError::Unexpected)?;
        Ok(there.min(length))
    }

    /// Takes the sender's next bytes.
    pub fn take(&mut self, data: &[u8]) -> Taken {
        let new = &data[self.advance(data.len() as u64)? as usize..];
        self.hasher.update(new);
        self.is_short &= new.is_empty();
        Ok((new.len() as u64, (&*self.file).write_all(new)))
    }

    /// Takes zeros that need no place on the disk, as long as that is `wanted`.
    pub fn take_hole(&mut self, length: u64, wanted: impl Fn() -> bool) -> Taken {
        self.has_holes = true;
        self.take_pieces(length, wanted, |incoming, _, new| {
            incoming.hasher.update_zeros(new);
            incoming.is_short |= new > 0;
            // Checked where the sizes are: it is less than the largest.
            (&*incoming.file).seek(SeekFrom::Current(new as i64)).map(drop)
        })
    }

    /// Takes bytes from the version that stands there, as long as that is `wanted`.
    pub fn take_copy(&mut self, offset: u64, length: u64, wanted: impl Fn() -> bool) -> Taken {
        offset.checked_add(length).ok_or(WireError::Unexpected)?;
        // From here on the journal claims it by another tag: what is copied is the sender's only if that says so.
        self.has_copies = true;
        self.take_pieces(length, wanted, |incoming, at, new| incoming.copy(offset + at, new))
    }

    /// Takes a piece at a time what may take long; each is told how far it is behind the first, and how long.
    fn take_pieces(
        &mut self,
        length: u64,
        wanted: impl Fn() -> bool,
        take: impl Fn(&mut Self, u64, u64) -> io::Result<()>,
    ) -> Taken {
        let (mut passed, mut taken) = (0, 0);
        while passed < length && wanted() {
            let piece = PIECE.min(length - passed);
            // What is here already is at its beginning.
            let new = piece - self.advance(piece)?;
            passed += piece;
            taken += new;
            if let Err(error) = take(self, passed - new, new) {
                return Ok((taken, Err(error)));
            }
        }
        Ok((taken, Ok(())))
    }

    fn copy(&mut self, mut offset: u64, mut length: u64) -> io::Result<()> {
        if self.version.is_none() {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let version = openat(self.temp.directory(), &self.name, flags, Mode::empty())?;
            self.version = Some(version.into());
        }
        let version = self.version.as_ref().expect("opened");
        let mut piece = vec![0; BLOCK.min(length) as usize];
        while length > 0 {
            let part = &mut piece[..BLOCK.min(length) as usize];
            version.read_exact_at(part, offset)?;
            self.hasher.update(part);
            self.is_short = write_sparse(&self.file, part)?;
            self.has_holes |= self.is_short;
            (offset, length) = (offset + part.len() as u64, length - part.len() as u64);
        }
        Ok(())
    }

    /// Copies what an earlier sitting has made. `goes_on` is asked now and then, told how far it is.
    fn copy_made(
        &mut self,
        (from, part): (File, Part),
        goes_on: impl Fn(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let (length, mut copied, mut is_short) = (part.state.length(), 0, false);
        let mut piece = vec![0; BLOCK as usize];
        // A state is one of whole blocks.
        while copied < length {
            if copied.is_multiple_of(CHECKPOINT) {
                goes_on(copied)?;
            }
            let copy = from.read_exact_at(&mut piece, copied);
            match copy.and_then(|()| write_sparse(&self.file, &piece)) {
                Ok(is_hole) => is_short = is_hole,
                Err(error) => {
                    // There may not be room for both, and then there never is: the next sitting begins anew.
                    part.remove_from(self.temp.directory());
                    return Err(error);
                }
            }
            copied += BLOCK;
        }
        (self.hasher, self.has_copies, self.goes_on) = (Hasher::from(part.state), true, true);
        self.is_short = is_short;
        Ok(())
    }

    /// Lets the file reach over the hole at its end.
    fn lengthen(&mut self) -> io::Result<()> {
        let reaches = Meta::of(&self.file)?.size >= self.hasher.length();
        if self.is_short && !reaches {
            self.file.set_len(self.hasher.length())?;
        }
        self.is_short = false;
        Ok(())
    }

    /// The sender leaves out what is there. When that is still to be copied, `goes_on` says whether to.
    pub fn go_on(
        &mut self,
        offset: u64,
        goes_on: impl Fn(u64) -> io::Result<()>,
    ) -> Result<io::Result<()>, WireError> {
        if let Some(made) = self.made.take()
            && made.1.state.length() == offset
            && self.hasher.length() == 0
            && let Err(error) = self.copy_made(made, goes_on)
        {
            return Ok(Err(error));
        }
        let fits = self.position < offset && offset == self.hasher.length();
        self.position = if fits { offset } else { return Err(WireError::Unexpected) };
        Ok(Ok(()))
    }

    /// Bytes that are here.
    pub fn length(&self) -> u64 {
        self.hasher.length()
    }

    /// Whether every byte is here.
    pub fn is_whole(&self) -> bool {
        let size = self.header.size.unwrap_or(self.position);
        (self.position, self.hasher.length()) == (size, size)
    }

    /// Whether what is here is what the sender has read, and nobody has cut it or added to it.
    pub fn is_as_read(&mut self, hash: &[u8; blake3::OUT_LEN]) -> io::Result<bool> {
        self.lengthen()?;
        let size = Meta::of(&self.file)?.size;
        Ok(self.hasher.finalize() == *hash && size == self.hasher.length())
    }

    /// What the journal may claim once it is synced, if that is `more` than before.
    pub fn checkpoint(&mut self, more: u64) -> Option<Checkpoint> {
        let length = self.hasher.length();
        let claims = |claimed| length >= claimed + more.max(BLOCK);
        if !self.claimed.is_some_and(claims) || Some(self.position) == self.header.size {
            return None;
        }
        self.lengthen().ok()?;
        let claimed = self.claimed.as_mut()?;
        let state = self.hasher.state();
        *claimed = state.length();
        self.temp.keep(true);
        let (tag, path) = (self.header.tag, self.header.path.clone());
        let tag = if self.has_copies { of_copies(&tag) } else { tag };
        let name = self.temp.name().to_owned();
        let written = RawBytes(name.as_bytes().to_vec());
        let record =
            Record::Begun { tag, path: path.clone(), name: written, inode: self.inode, state };
        let (file, directory) = (self.file.clone(), self.temp.directory().clone());
        let spoilt = self.spoilt.clone();
        Some(Checkpoint { file, directory, name, path, record, spoilt })
    }

    /// Whether the journal is told of it.
    pub fn is_claimed(&self) -> bool {
        self.temp.is_kept()
    }

    /// Not all of it could be written: what was hashed since is not there.
    pub fn claim_no_more(&mut self) {
        self.claimed = None;
    }

    /// Whether what is still to come would be for nothing.
    pub fn is_spoilt(&self) -> bool {
        self.spoilt.load(Relaxed)
    }

    /// It is of no use: its temporary name goes when this is dropped.
    pub fn discard(mut self: Box<Self>) -> Temp {
        self.temp.keep(false);
        self.temp
    }
}

/// Writes a piece of a file, or makes a hole of one that has or might have been one; whether it did.
fn write_sparse(mut file: &File, piece: &[u8]) -> io::Result<bool> {
    let is_hole = piece.iter().all(|&byte| byte == 0);
    if is_hole {
        file.seek(SeekFrom::Current(piece.len() as i64))?;
    } else {
        file.write_all(piece)?;
    }
    Ok(is_hole)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::temp::Names;

    const LENGTH: u64 = 3 * CHECKPOINT;

    #[test]
    fn what_was_made_is_copied_as_sparse_as_it_is_until_it_is_for_nothing_or_fails() {
        let folder = tempfile::tempdir().unwrap();
        let directory: Arc<_> = Arc::new(File::open(folder.path()).unwrap().into());
        let name = ".x.longhaul-1.part";
        let made = folder.path().join(name);
        let from = File::create_new(&made).unwrap();
        std::fs::set_permissions(&made, PermissionsExt::from_mode(0o600)).unwrap();
        from.set_len(LENGTH).unwrap();
        from.write_all_at(&[7; 9000], CHECKPOINT).unwrap();
        let mut hasher = Hasher::default();
        hasher.update(&std::fs::read(&made).unwrap());
        let inode = Meta::of(&from).unwrap().inode;
        let (path, tag, state) =
            (RelPath::new(b"x".to_vec()).unwrap(), Tag::default(), hasher.state());
        let part = Part { tag, path: path.clone(), name: name.into(), inode, state };
        let mut names = Names::new().unwrap();
        let mut incoming = |is_writable: bool| {
            let (file, temp) = names.create_named(&directory, "x".as_ref()).unwrap();
            let file =
                if is_writable { File::from(file) } else { File::open("/dev/null").unwrap() };
            let header = Header::plain(FileType::RegularFile, path.clone(), Attributes::default());
            let new =
                Incoming::new(header, "x".into(), (file, temp), State::default(), true).unwrap();
            new.from_made(Some((File::open(&made).unwrap(), part.clone())))
        };

        let mut stopped = incoming(true);
        let asked = RefCell::new(Vec::new());
        let goes_on = |copied| {
            asked.borrow_mut().push(copied);
            if copied == 0 { Ok(()) } else { Err(io::Error::other("enough")) }
        };
        assert!(stopped.go_on(LENGTH, goes_on).unwrap().is_err());
        assert_eq!((&asked.borrow()[..], stopped.length()), (&[0, CHECKPOINT][..], 0));
        assert!(made.exists() && stopped.checkpoint(0).is_none());

        let mut copied = incoming(true);
        copied.go_on(LENGTH, |_| Ok(())).unwrap().unwrap();
        copied.take(b"end").unwrap().1.unwrap();
        hasher.update(b"end");
        assert!(copied.is_as_read(&hasher.finalize()).unwrap() && made.exists());
        assert!(copied.file.metadata().unwrap().blocks() * 512 < CHECKPOINT);

        // Nor does what cannot be claimed further lose its name, of which a journal tells.
        assert!(!copied.is_claimed() && copied.checkpoint(0).is_some());
        copied.claim_no_more();
        assert!(copied.is_claimed());

        let mut failed = incoming(false);
        assert!(failed.go_on(LENGTH, |_| Ok(())).unwrap().is_err());
        assert!(!made.exists() && failed.checkpoint(0).is_none());
    }
}

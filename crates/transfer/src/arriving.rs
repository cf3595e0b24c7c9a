//! The file that is arriving: its bytes, their hash, and how much of it the journal may claim.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::commit::Checkpoint;
use crate::hash::{BLOCK, Hasher, State};
use crate::journal::Record;
use crate::meta::{Meta, Modified, Tag};
use crate::relpath::{RawBytes, RelPath};
use crate::temp::Temp;
use crate::wire::WireError;

/// The journal claims a file by pieces of this size; smaller files it claims only when they are
/// installed. While one piece is synced the next is written, so that a killed receiver has lost two
/// of them and what was on its way.
pub(crate) const CHECKPOINT: u64 = 16 << 20;

/// What the sender says of an entry.
pub(crate) struct Header {
    pub path: RelPath,
    pub size: u64,
    pub mode: u32,
    pub modified: Modified,
    pub tag: Tag,
}

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
    inode: u64,
    /// Bytes that the journal claims; `None` when it does not know of the file.
    claimed: Option<u64>,
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
            // What stands behind may be another sitting's, of the same bytes: it is written over.
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
            inode,
            claimed: journal.then_some(claimed),
        }))
    }

    /// Takes the sender's next bytes; gives how many of them were new, and whether they are written.
    pub fn take(&mut self, data: &[u8]) -> Result<(u64, io::Result<()>), WireError> {
        let there = self.hasher.length().saturating_sub(self.position);
        let end = self.position.checked_add(data.len() as u64);
        self.position = end.filter(|&end| end <= self.header.size).ok_or(WireError::Unexpected)?;
        let new = &data[data.len().min(usize::try_from(there).unwrap_or(usize::MAX))..];
        self.hasher.update(new);
        Ok((new.len() as u64, (&*self.file).write_all(new)))
    }

    /// The sender leaves out what is there.
    pub fn go_on(&mut self, offset: u64) -> Result<(), WireError> {
        let fits = self.position < offset && offset == self.hasher.length();
        self.position = if fits { offset } else { return Err(WireError::Unexpected) };
        Ok(())
    }

    /// Whether every byte is here.
    pub fn is_whole(&self) -> bool {
        (self.position, self.hasher.length()) == (self.header.size, self.header.size)
    }

    /// Whether what is here is what the sender has read, and nobody has cut it or added to it.
    pub fn is_as_read(&self, hash: &[u8; blake3::OUT_LEN]) -> bool {
        let size = Meta::of(&self.file).map(|meta| meta.size);
        self.hasher.finalize() == *hash && size == Ok(self.header.size)
    }

    /// What the journal may claim once it is synced, if that is `more` than before.
    pub fn checkpoint(&mut self, more: u64) -> Option<Checkpoint> {
        let claimed = self.claimed.as_mut()?;
        if self.hasher.length() < *claimed + more.max(BLOCK) || self.position == self.header.size {
            return None;
        }
        let state = self.hasher.state();
        *claimed = state.length();
        self.temp.keep(true);
        let (tag, path) = (self.header.tag, self.header.path.clone());
        let name = self.temp.name().to_owned();
        let written = RawBytes(name.as_bytes().to_vec());
        let record =
            Record::Begun { tag, path: path.clone(), name: written, inode: self.inode, state };
        let directory = self.temp.directory().clone();
        Some(Checkpoint { file: self.file.clone(), directory, name, path, record })
    }

    /// It is of no use: its temporary name goes when this is dropped.
    pub fn discard(mut self: Box<Self>) -> Temp {
        self.temp.keep(false);
        self.temp
    }
}

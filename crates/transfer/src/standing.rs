//! What stands at the destination already, so that equal files need not be sent: the receiver tells, the
//! sender looks it up.
//!
//! A file is named by a hash of its path and of what has to be equal, so that what stands there costs
//! twenty bytes a file on the way, and no names.

use std::ops::ControlFlow;
use std::os::fd::AsFd;

use rustix::io::{Errno, pread};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::attributes::FILE_MODE;
use crate::delta::DELTA_MIN;
use crate::hash::Hasher;
use crate::meta::Meta;
use crate::relpath::RelPath;
use crate::walk::{Found, Visitor};
use crate::wire::Message;

/// What says of the rest that the file has other names too: what is mended there is mended for all of them.
const SHARED: u32 = 1;

/// What is told in one message.
const MANY: usize = 512;

/// Bytes read at a time to be hashed.
const PIECE: usize = 256 << 10;

/// What makes two files equal, besides their paths and sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compare {
    /// Their times of modification.
    Time,
    /// Their bytes, by BLAKE3: both sides read all of them.
    Content,
}

/// Names a path and what has to be equal there.
pub type Key = [u8; 12];

/// One thing that stands at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// What has to be equal.
    pub key: Key,
    /// A hash of what can be mended without sending it again; its lowest bit says that the file has several names.
    pub rest: u32,
}

/// How a file that stands there is to one of the sender's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Likeness {
    Equal,
    /// But for what can be mended.
    Close,
}

fn key(hasher: &blake3::Hasher) -> Key {
    *hasher.finalize().as_bytes().first_chunk().expect("a hash is longer than a key")
}

impl Standing {
    /// A regular file; `contents` are its hash, where that is what counts.
    pub(crate) fn file(
        path: &RelPath,
        meta: &Meta,
        contents: Option<&[u8; blake3::OUT_LEN]>,
        owned: bool,
    ) -> Self {
        let (mut hasher, mut rest) = (blake3::Hasher::new(), blake3::Hasher::new());
        let time =
            [meta.modified.seconds.to_le_bytes(), u64::from(meta.modified.nanos).to_le_bytes()];
        hasher.update(b"file").update(&meta.size.to_le_bytes());
        match contents {
            Some(hash) => {
                hasher.update(hash);
                rest.update(&time.concat());
            }
            None => {
                hasher.update(&time.concat());
            }
        }
        hasher.update(path.as_bytes());
        rest.update(&(meta.mode & FILE_MODE).to_le_bytes());
        if owned {
            rest.update(&meta.owner.0.to_le_bytes()).update(&meta.owner.1.to_le_bytes());
        }
        let rest = u32::from_le_bytes(*rest.finalize().as_bytes().first_chunk().expect("longer"));
        let shared = if meta.shared().is_some() { SHARED } else { 0 };
        Self { key: key(&hasher), rest: rest & !SHARED | shared }
    }

    /// What stands there, as it tells of its rest. One of several names may not stand for the same file here, and
    /// is not to be mended: sent again, it becomes a file of its own.
    pub(crate) fn likeness(&self, there: u32) -> Option<Likeness> {
        match there {
            _ if (there ^ self.rest) & !SHARED == 0 => Some(Likeness::Equal),
            _ if there & SHARED == 0 => Some(Likeness::Close),
            _ => None,
        }
    }

    /// A symbolic link.
    pub(crate) fn link(path: &RelPath, target: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"link").update(&(target.len() as u64).to_le_bytes()).update(target);
        Self { key: key(hasher.update(path.as_bytes())), rest: 0 }
    }

    /// Some version of a file that is worth a delta.
    pub(crate) fn version(path: &RelPath) -> Self {
        Self { key: key(blake3::Hasher::new().update(b"some").update(path.as_bytes())), rest: 0 }
    }
}

/// The hash of an open file's bytes, as long as it is `wanted`.
pub(crate) fn contents(
    file: impl AsFd,
    wanted: impl Fn() -> bool,
) -> Result<[u8; blake3::OUT_LEN], Errno> {
    let mut hasher = Hasher::default();
    let mut piece = vec![0; PIECE];
    loop {
        if !wanted() {
            return Err(Errno::CANCELED);
        }
        match pread(&file, &mut piece, hasher.length()) {
            Ok(0) => return Ok(hasher.finalize()),
            Ok(read) => hasher.update(&piece[..read]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Tells what a walk over the destination finds.
pub(crate) struct Teller<'a> {
    pub replies: &'a mpsc::Sender<Message>,
    pub compare: Compare,
    /// Owners are to be equal too.
    pub owned: bool,
    told: Vec<Standing>,
}

impl<'a> Teller<'a> {
    pub fn new(replies: &'a mpsc::Sender<Message>, compare: Compare, owned: bool) -> Self {
        Self { replies, compare, owned, told: Vec::with_capacity(MANY) }
    }

    fn tell(&mut self, standing: Standing) {
        self.told.push(standing);
        if self.told.len() == MANY {
            self.send();
        }
    }

    fn send(&mut self) {
        let standing = std::mem::replace(&mut self.told, Vec::with_capacity(MANY));
        // A sender that is gone is noticed where the stream is written.
        let _ = self.replies.blocking_send(Message::Stands { standing });
    }

    /// That was all.
    pub fn finish(mut self) {
        self.send();
        let _ = self.replies.blocking_send(Message::Told);
    }
}

impl Visitor for Teller<'_> {
    fn visit(&mut self, path: &RelPath, found: Found<'_>) -> ControlFlow<()> {
        match found {
            Found::File(open, meta) => {
                let hash = match self.compare {
                    Compare::Time => None,
                    // What cannot be read is not there.
                    Compare::Content => {
                        match open().map(|file| contents(file, || !self.replies.is_closed())) {
                            Ok(Ok(hash)) => Some(hash),
                            _ => return ControlFlow::Continue(()),
                        }
                    }
                };
                self.tell(Standing::file(path, &meta, hash.as_ref(), self.owned));
                if meta.size >= DELTA_MIN {
                    self.tell(Standing::version(path));
                }
            }
            Found::Symlink(target, _) => self.tell(Standing::link(path, &target)),
            _ => {}
        }
        if self.replies.is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

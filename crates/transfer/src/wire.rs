//! The protocol inside the stream: pure functions between bytes and messages.
//!
//! Each side begins with a hello: [`MAGIC`], the [`Versions`] that it speaks, and what it understands beyond
//! them (`hello.rs` says how two releases meet). Frames follow, all numbers little endian:
//!
//! | bytes | control frame | data frame |
//! |---|---|---|
//! | 0..4 | length of the message, 1 to [`CONTROL_MAX`] | length, 1 to [`DATA_MAX`], with bit 31 set, and bit 30 when packed |
//! | 4..12 | the first bytes of the message's BLAKE3 hash | the bytes begin here |
//! | 12.. | a [`Message`] in postcard | |
//!
//! Packed bytes are one zstd frame of 1 to [`DATA_MAX`] bytes.
//!
//! The check of eight bytes keeps a damaged name or permission out of the tree, as a file's hash
//! keeps out damaged contents. Neither replaces the stream's own authentication. A message may be longer than
//! this release knows: what stands behind its fields is ignored.
//!
//! The client sends `Put` or `Get`. Then the side that has the files sends `Directory`, `Symlink`
//! and `File` in such an order that a directory comes before what it holds and is never returned to, and
//! `Link` after the `File` that it is one more name of; after each `File` its data and `Hole`s, and `End`
//! or `Abandon`; at last `Finish`. The other side sends
//! `Has` and `HasPart` for what it kept of an earlier sitting and then `HadAll`, what it is asked to tell,
//! `Progress` and `Note` meanwhile, and `Done` when everything is on its disk. `Fatal` ends the
//! transfer from either side. Until the sender has heard `HadAll`, it sends [`AHEAD`] bytes at most, for all
//! of them may be there already.
//!
//! In a sync (`Terms::compare`, or `rehearses` of a `Put`), the sender begins with `Compare` and waits for
//! `Told`; from then on it leaves out what stands there, or sends `Mend` for its attributes. It may
//! `Ask` for `Pieces` at any time, also within a file, and send `Copy` for some of a file's bytes. When it removes,
//! it tells the `Names` of each directory, before anything of the next one. When nothing is to be
//! changed, each `File` is followed by `Abandon`, and the receiver notes what it would have done.
//!
//! A client that only measures the path sends `Probe`, which the server answers by the same. What
//! follows it, either way, is in no frames and means nothing.

mod decoder;
mod hello;

use serde::{Deserialize, Serialize};

pub use crate::attributes::Attributes;
pub use crate::delta::{COPY_MAX, Piece};
pub use crate::hash::State;
pub use crate::journal::TransferId;
pub use crate::meta::{Modified, Tag};
use crate::notes::{Note, clip};
use crate::pipe::Occupancy;
use crate::relpath::{NAME_MAX, PATH_MAX};
pub use crate::relpath::{RawBytes, RelPath};
pub use crate::standing::{Compare, Standing};
use crate::summary::{Counts, Kept};
pub use decoder::{Decoder, Item};
pub use hello::{
    Agreed, HELLO_LEN, HELLO_START, MAGIC, SPOKEN, Versions, check_hello, check_start, hello,
    hello_of,
};

/// The longest encoded message: two paths and a reason, or a path and extended attributes.
pub const CONTROL_MAX: usize = 16 << 10;

/// The most bytes that one `Probe` moves in each direction.
pub const PROBE_MAX: u64 = 1 << 40;

/// What a sender may send before it has heard all that the receiver has kept of an earlier sitting: no path
/// of up to this bandwidth-delay product waits for that.
pub const AHEAD: u64 = 16 << 20;

/// The most bytes of a file in one frame.
pub const DATA_MAX: usize = 1 << 20;

/// The most bytes of one hole in one message: each side hashes them.
pub const HOLE_MAX: u64 = 256 << 20;

/// Tags in one [`Message::Has`].
pub(crate) const HAS_TAGS: usize = 512;

/// Bytes of names in one [`Message::Names`].
pub(crate) const NAMES_BYTES: usize = 8 << 10;

/// Bytes in front of a data frame's bytes.
pub const DATA_HEAD: usize = 4;

/// Bytes in front of a control frame's message.
pub const CONTROL_HEAD: usize = DATA_HEAD + CHECK_LEN;

const CHECK_LEN: usize = 8;
const DATA_BIT: u32 = 1 << 31;
const PACKED_BIT: u32 = 1 << 30;

/// What a client asks of the side that sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Files keep the numbers of their users and groups, where the receiver may set them.
    pub owner: bool,
    /// What stands there and is equal is left out.
    pub compare: Option<Compare>,
    /// What stands there and the sender does not have is removed.
    pub removes: bool,
    /// Nothing is changed.
    pub rehearses: bool,
    /// What the sender leaves out, as in a `.gitignore`.
    pub patterns: Vec<String>,
    /// Bytes are packed where that pays.
    pub packs: bool,
    /// The sender names also the files that the receiver has already.
    pub lists: bool,
    /// The sender keeps to so many bits a second, as far as it can.
    pub rate: Option<u64>,
}

/// What the two sides say to each other, besides the bytes of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Client: I send files, to be put there.
    Put {
        /// As the user typed it; a closing slash says that it is a directory.
        destination: RawBytes,
        /// Whether it must be a directory even without the slash.
        into_directory: bool,
        /// Which transfer a journal is kept of; none without.
        id: Option<TransferId>,
        /// Nothing is to be changed: the sender only tells what it would send.
        rehearses: bool,
        /// What stays though the sender does not have it, as in a `.gitignore`.
        patterns: Vec<String>,
    },
    /// Client: send me this.
    Get {
        /// As the user typed it.
        source: RawBytes,
        /// How.
        terms: Terms,
    },
    /// How much there is to send, as far as it could be counted.
    Totals {
        /// Regular files.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// Room that they take on a disk, at the least: no holes, and names of one file are one.
        least: u64,
    },
    /// A directory.
    Directory {
        /// Where, below the destination.
        path: RelPath,
        /// Set when everything in it is there.
        attributes: Attributes,
    },
    /// A symbolic link.
    Symlink {
        /// Where, below the destination.
        path: RelPath,
        /// What it says, as it stands.
        target: RawBytes,
        /// Of the link itself, which has a time and an owner alone.
        attributes: Attributes,
    },
    /// One more name of a file that came before.
    Link {
        /// Where, below the destination.
        path: RelPath,
        /// The name under which it came.
        to: RelPath,
    },
    /// A regular file. Its bytes follow.
    File {
        /// Where, below the destination.
        path: RelPath,
        /// How many bytes follow, if it is not abandoned; nobody knows yet without.
        size: Option<u64>,
        /// Of the file as it is now.
        tag: Tag,
        /// Set when it is whole.
        attributes: Attributes,
    },
    /// The next bytes of the current file are zeros, which need no place on a disk.
    Hole {
        /// How many, [`HOLE_MAX`] at most.
        length: u64,
    },
    /// The next bytes are those of the current file from here, for the receiver has what is before.
    From {
        /// As many bytes as its [`Message::HasPart`] said.
        offset: u64,
    },
    /// The next bytes of the current file are to be copied from the version that stands there.
    Copy {
        /// Where they are in it.
        offset: u64,
        /// How many, [`COPY_MAX`] at most.
        length: u64,
    },
    /// A file that stands there is equal but for these.
    Mend {
        /// Which.
        path: RelPath,
        /// To be set.
        attributes: Attributes,
    },
    /// A file is not sent, for an equal one stands there: told when the client `lists` them.
    Stays {
        /// Which.
        path: RelPath,
    },
    /// Tell what stands at this path and below it: many `Stands`, then `Told`.
    Compare {
        /// Below the destination.
        path: RelPath,
        /// What counts.
        by: Compare,
        /// Owners count too.
        owner: bool,
    },
    /// Everything of these names in a directory is to stay; what has none of them is to be removed when
    /// all has arrived. Each directory that was told ends in one that `is_last`.
    Names {
        /// The directory.
        path: RelPath,
        /// Some of its names.
        names: Vec<RawBytes>,
        /// There are no more.
        is_last: bool,
    },
    /// Tell the pieces of the version of this file that stands there: many `Pieces`.
    Ask {
        /// Which.
        path: RelPath,
    },
    /// The file is complete.
    End {
        /// BLAKE3 of its bytes.
        hash: [u8; blake3::OUT_LEN],
    },
    /// The file cannot be completed and must not be installed; a `Note` said why.
    Abandon,
    /// Something was left out.
    Note(Note),
    /// Everything was sent.
    Finish {
        /// How full the sender's pipe was.
        occupancy: Occupancy,
        /// What was not sent, because the receiver has it.
        kept: Kept,
    },
    /// Receiver: these files stand there since an earlier sitting. What the sender had not yet heard
    /// of, it sends again.
    Has {
        /// Of the files as they were then.
        tags: Vec<Tag>,
    },
    /// Receiver: so much of a file is there.
    HasPart {
        /// Of the file as it was then; with every bit turned where some of it was copied from a version that stood
        /// there: then the sender looks whether its own file begins so.
        tag: Tag,
        /// How much, and its hash so far.
        state: State,
    },
    /// Receiver: nothing else is left of an earlier sitting. Told in each: at once where no journal is kept,
    /// else when the first entry is there.
    HadAll,
    /// Receiver: these stand there.
    Stands {
        /// In no order.
        standing: Vec<Standing>,
    },
    /// Receiver: nothing else stands there.
    Told,
    /// Receiver: pieces of a file that stands there, behind those that came before.
    Pieces {
        /// Which file.
        path: RelPath,
        /// Their average length: by this the sender cuts its own version.
        average: u32,
        /// Each behind the one before.
        pieces: Vec<Piece>,
        /// There are no more.
        is_last: bool,
    },
    /// Receiver: so much has arrived, in all.
    Progress {
        /// Files installed.
        files: u64,
        /// Bytes written.
        bytes: u64,
    },
    /// Receiver: everything is verified, named and on the disk.
    Done {
        /// What was installed.
        counts: Counts,
        /// How full the receiver's pipe was.
        occupancy: Occupancy,
    },
    /// The transfer cannot go on.
    Fatal {
        /// Why, and what to do.
        reason: String,
    },
    /// Client: throw away what follows. Server: so it be, and these bytes follow.
    Probe {
        /// Zeros that the server is to send behind its answer; it sends [`PROBE_MAX`] at most.
        bytes: u64,
    },
}

impl Message {
    /// The end of the transfer, with a reason cut to what a message holds.
    pub fn fatal(reason: &str) -> Self {
        Self::Fatal { reason: clip(reason) }
    }
}

/// Bytes that are not the protocol. The stream cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The stream does not begin with [`MAGIC`].
    #[error("it is no Longhaul file transfer: is the address right?")]
    Magic,
    /// Another release.
    #[error(
        "it speaks {0} of the transfer protocol, this side {ours}: install the same release on both sides",
        ours = SPOKEN
    )]
    Version(Versions),
    /// A frame of no bytes, or of more than a frame may have.
    #[error("a frame of an impossible length: install the same release on both sides")]
    Length,
    /// The check does not fit the message.
    #[error("a message arrived damaged: run the same command again")]
    Damaged,
    /// The check fits, and yet it is no message: most likely a path that leads elsewhere.
    #[error("a message that is not allowed, such as a path with `..`")]
    Message,
    /// Something beside what was asked for.
    #[error("it sends what was not asked for, which no honest server does")]
    Unasked,
    /// A message that may not come now.
    #[error("a message out of turn: install the same release on both sides")]
    Unexpected,
}

/// Appends a message and its head. It must fit into [`CONTROL_MAX`], as every message does whose
/// paths are within [`PATH_MAX`] and whose reason went through [`Note::new`] or [`Message::fatal`].
pub fn append_message(message: &Message, out: &mut Vec<u8>) {
    append_frame(message, out);
}

/// Appends something of no more than [`CONTROL_MAX`] bytes behind its length and check.
pub(crate) fn append_frame(message: &impl Serialize, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; CONTROL_HEAD]);
    *out = postcard::to_extend(message, std::mem::take(out)).expect("messages can be encoded");
    let (head, body) = out[start..].split_at_mut(CONTROL_HEAD);
    assert!(body.len() <= CONTROL_MAX, "a message is longer than a frame");
    head[..DATA_HEAD].copy_from_slice(&(body.len() as u32).to_le_bytes());
    head[DATA_HEAD..].copy_from_slice(&check(body));
}

/// The head of a data frame of so many packed bytes, 1 to [`DATA_MAX`].
pub fn packed_head(length: usize) -> [u8; DATA_HEAD] {
    debug_assert!((1..=DATA_MAX).contains(&length));
    (length as u32 | DATA_BIT | PACKED_BIT).to_le_bytes()
}

/// The head of a data frame with so many bytes, 1 to [`DATA_MAX`].
pub fn data_head(length: usize) -> [u8; DATA_HEAD] {
    debug_assert!((1..=DATA_MAX).contains(&length));
    (length as u32 | DATA_BIT).to_le_bytes()
}

fn check(body: &[u8]) -> [u8; CHECK_LEN] {
    let hash = blake3::hash(body);
    *hash.as_bytes().first_chunk().expect("a hash is longer than its check")
}

/// Reads the head of a control frame: the length of its message.
pub fn control_length(head: &[u8; CONTROL_HEAD]) -> Result<usize, WireError> {
    match Head::parse(*head.first_chunk().expect("a head begins with its length"))? {
        Head::Control(length) => Ok(length),
        Head::Data(_) | Head::Packed(_) => Err(WireError::Unexpected),
    }
}

/// Reads the message behind a control frame's head.
pub fn parse_message(head: &[u8; CONTROL_HEAD], body: &[u8]) -> Result<Message, WireError> {
    // What a later release has added stands behind.
    let (message, _) = parse(head, body)?;
    if within_limits(&message) { Ok(message) } else { Err(WireError::Message) }
}

/// Reads what [`append_frame`] wrote.
pub(crate) fn parse_frame<'a, T: Deserialize<'a>>(
    head: &[u8; CONTROL_HEAD],
    body: &'a [u8],
) -> Result<T, WireError> {
    match parse(head, body)? {
        (message, []) => Ok(message),
        _ => Err(WireError::Message),
    }
}

/// What a frame says, and what is left of it.
fn parse<'a, T: Deserialize<'a>>(
    head: &[u8; CONTROL_HEAD],
    body: &'a [u8],
) -> Result<(T, &'a [u8]), WireError> {
    if head[DATA_HEAD..] != check(body) {
        return Err(WireError::Damaged);
    }
    postcard::take_from_bytes(body).map_err(|_| WireError::Message)
}

/// Paths are checked as they are parsed; these fields have only the frame's bound otherwise.
fn within_limits(message: &Message) -> bool {
    let sizes = match message {
        Message::Put { destination: raw, .. }
        | Message::Get { source: raw, .. }
        | Message::Symlink { target: raw, .. } => raw.0.len() <= PATH_MAX,
        Message::Names { names, .. } => names.iter().all(|name| name.0.len() <= NAME_MAX),
        _ => true,
    };
    sizes && attributes(message).is_none_or(Attributes::can_be)
}

fn attributes(message: &Message) -> Option<&Attributes> {
    match message {
        Message::Directory { attributes, .. }
        | Message::Symlink { attributes, .. }
        | Message::File { attributes, .. }
        | Message::Mend { attributes, .. } => Some(attributes),
        _ => None,
    }
}

enum Head {
    Control(usize),
    Data(usize),
    Packed(usize),
}

impl Head {
    fn parse(bytes: [u8; DATA_HEAD]) -> Result<Self, WireError> {
        let word = u32::from_le_bytes(bytes);
        let length = (word & !(DATA_BIT | PACKED_BIT)) as usize;
        let (limit, head) = match (word & DATA_BIT, word & PACKED_BIT) {
            (0, 0) => (CONTROL_MAX, Self::Control(length)),
            (0, _) => return Err(WireError::Length),
            (_, 0) => (DATA_MAX, Self::Data(length)),
            (..) => (DATA_MAX, Self::Packed(length)),
        };
        if (1..=limit).contains(&length) { Ok(head) } else { Err(WireError::Length) }
    }
}

#[cfg(test)]
mod tests;

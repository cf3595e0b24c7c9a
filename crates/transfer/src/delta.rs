//! The difference between two versions of a large file: both are cut where their contents say so, and
//! pieces that both have are known by their hashes. What was put in or taken out shifts no other piece.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastcdc::v2020::FastCDC;
use rustix::io::{Errno, pread};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::budget::{Budget, Share};
use crate::meta::Meta;
use crate::relpath::RelPath;
use crate::wire::Message;

/// Smaller files are sent whole: the list of their pieces would come too late.
pub(crate) const DELTA_MIN: u64 = 1 << 20;

/// The most bytes of one copied piece in one message.
pub const COPY_MAX: u64 = 64 << 20;

/// A file is cut into about so many pieces, if they are no smaller than [`AVERAGE_MIN`].
const PIECES: u64 = 128 << 10;
const AVERAGE_MIN: u32 = 8 << 10;
const AVERAGE_MAX: u32 = 4 << 20;

/// Pieces of one file that the sender keeps in mind: others it sends. Enough for 2 TiB.
const PIECES_MAX: usize = 512 << 10;

/// Memory that a piece takes in a table that has just grown.
const ENTRY: usize = 80;

/// Pieces in one message.
const MANY: usize = 512;

/// Versions that are asked for ahead of their turn.
const AHEAD: usize = 4;

/// How often those who wait see whether there is still something to wait for.
const GLANCE: Duration = Duration::from_millis(100);

type Hash = [u8; 16];

/// A piece of a file, behind the piece before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Bytes.
    pub length: u32,
    /// The first bytes of their BLAKE3 hash.
    pub hash: Hash,
}

impl Piece {
    fn of(bytes: &[u8]) -> Self {
        let hash = blake3::hash(bytes);
        let hash = *hash.as_bytes().first_chunk().expect("a hash is longer");
        Self { length: bytes.len() as u32, hash }
    }
}

/// Cuts a file into pieces of a quarter to four times their average length.
pub(crate) struct Cutter<'a> {
    file: &'a OwnedFd,
    /// Of what is read next.
    offset: u64,
    average: u32,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    is_over: bool,
    /// Of the memory for all requests.
    _share: Share,
}

impl<'a> Cutter<'a> {
    /// Begins at an offset; `None` without memory for it.
    pub fn new(
        file: &'a OwnedFd,
        offset: u64,
        average: u32,
        budget: &Budget,
    ) -> Result<Option<Self>, Errno> {
        // In this order, for there is no power of two behind the largest that is told.
        let average = average.clamp(AVERAGE_MIN, AVERAGE_MAX).next_power_of_two();
        // What the other side says of its file is not to take more than there is of this one.
        let left = Meta::of(file)?.size.saturating_sub(offset);
        let room = left.min(8 * u64::from(average)) as usize;
        let mut share = Share::of(budget);
        let (start, end, is_over) = (0, 0, false);
        Ok(share.take(room).then(|| {
            let buffer = vec![0; room];
            Self { file, offset, average, buffer, start, end, is_over, _share: share }
        }))
    }

    /// Goes on behind what another reads.
    pub fn skip_to(&mut self, offset: u64) {
        (self.offset, self.start, self.end, self.is_over) = (offset, 0, 0, false);
    }

    /// The next piece; `None` at the end.
    pub fn next(&mut self) -> Result<Option<&[u8]>, Errno> {
        let average = self.average as usize;
        if self.end - self.start < 4 * average && !self.is_over {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            self.fill()?;
        }
        let left = &self.buffer[self.start..self.end];
        if left.is_empty() {
            return Ok(None);
        }
        let (_, cut) = FastCDC::new(left, average / 4, average, 4 * average).cut(0, left.len());
        // Some length in any case, for it is to come to an end.
        let length = cut.clamp(1, left.len());
        self.start += length;
        Ok(Some(&self.buffer[self.start - length..self.start]))
    }

    fn fill(&mut self) -> Result<(), Errno> {
        while self.end < self.buffer.len() && !self.is_over {
            match pread(self.file, &mut self.buffer[self.end..], self.offset) {
                Ok(0) => self.is_over = true,
                Ok(read) => (self.end, self.offset) = (self.end + read, self.offset + read as u64),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The receiver's side: tells the pieces of the version that stands there. What cannot be read has none.
pub(crate) fn tell(
    path: &RelPath,
    file: Option<&OwnedFd>,
    replies: &mpsc::Sender<Message>,
    budget: &Budget,
) {
    let size = file.and_then(|file| Meta::of(file).ok()).map_or(0, |meta| meta.size);
    let average = u32::try_from((size / PIECES).next_power_of_two()).unwrap_or(AVERAGE_MAX);
    let average = average.clamp(AVERAGE_MIN, AVERAGE_MAX);
    let send = |pieces, is_last| {
        let path = path.clone();
        replies.blocking_send(Message::Pieces { path, average, pieces, is_last }).is_ok()
    };
    let mut pieces = Vec::with_capacity(MANY);
    if let Some(file) = file
        && let Ok(Some(mut cutter)) = Cutter::new(file, 0, average, budget)
    {
        while let Ok(Some(piece)) = cutter.next() {
            if replies.is_closed() {
                return;
            }
            pieces.push(Piece::of(piece));
            if pieces.len() == MANY && !send(std::mem::take(&mut pieces), false) {
                return;
            }
        }
    }
    send(pieces, true);
}

/// The version that the receiver has, as the sender knows it.
#[derive(Debug, Default)]
pub(crate) struct Version {
    pub average: u32,
    /// Where in it each piece is.
    at: HashMap<Hash, (u64, u32)>,
    length: u64,
    is_told: bool,
    /// Of the memory for all requests.
    share: Share,
}

impl Version {
    /// Where it has these bytes.
    pub fn find(&self, bytes: &[u8]) -> Option<u64> {
        let piece = Piece::of(bytes);
        let &(offset, length) = self.at.get(&piece.hash)?;
        (length == piece.length).then_some(offset)
    }

    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    fn add(&mut self, average: u32, pieces: &[Piece], is_last: bool) {
        self.average = average;
        self.is_told |= is_last;
        for piece in pieces {
            let is_new = !self.at.contains_key(&piece.hash);
            if is_new && self.at.len() < PIECES_MAX && self.share.take(ENTRY) {
                self.at.insert(piece.hash, (self.length, piece.length));
            }
            self.length = self.length.saturating_add(piece.length.into());
        }
    }
}

/// The versions that the sender has asked for, or is to ask for: one thread looks ahead, so that the
/// answer is there when the file's turn has come.
#[derive(Default)]
pub(crate) struct Versions {
    budget: Budget,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Files that whoever looks ahead has come to, and the sender.
    seen: u64,
    reached: u64,
    /// To be asked for.
    due: VecDeque<RelPath>,
    known: HashMap<RelPath, Version>,
}

impl Versions {
    /// For a request that shares this memory with others.
    pub fn new(budget: &Budget) -> Self {
        Self { budget: budget.clone(), ..Self::default() }
    }

    fn version(&self) -> Version {
        Version { share: Share::of(&self.budget), ..Version::default() }
    }

    /// Looking ahead: this file's turn will come. Waits while enough are asked for, as long as that is
    /// `wanted`.
    pub fn foresee(&self, path: &RelPath, wanted: impl Fn() -> bool) {
        let mut state = self.lock();
        state.seen += 1;
        while state.known.len() >= AHEAD && state.seen > state.reached && wanted() {
            state = self.wait(state);
        }
        // One that the sender has come to meanwhile, it has asked for itself.
        if state.seen > state.reached && wanted() && !state.known.contains_key(path) {
            state.known.insert(path.clone(), self.version());
            state.due.push_back(path.clone());
        }
    }

    /// What is to be asked for now.
    pub fn due(&self) -> Option<RelPath> {
        self.lock().due.pop_front()
    }

    /// A file's turn has come; it is to be asked for, if it was not.
    pub fn reach(&self, path: &RelPath) {
        let mut state = self.lock();
        if !state.known.contains_key(path) {
            state.known.insert(path.clone(), self.version());
            state.due.push_back(path.clone());
        }
        self.changed.notify_all();
    }

    /// A file's turn is over, whatever came of it.
    pub fn settle(&self, path: &RelPath) {
        let mut state = self.lock();
        state.reached += 1;
        state.known.remove(path);
        state.due.retain(|due| due != path);
        self.changed.notify_all();
    }

    /// The receiver's answer, or a part of it. What was not asked for is dropped.
    pub fn add(&self, path: &RelPath, average: u32, pieces: &[Piece], is_last: bool) {
        if let Some(version) = self.lock().known.get_mut(path) {
            version.add(average, pieces, is_last);
        }
        self.changed.notify_all();
    }

    /// Takes the answer, when it is there, as long as that is `wanted`.
    pub fn take(&self, path: &RelPath, wanted: impl Fn() -> bool) -> Option<Version> {
        let mut state = self.lock();
        while !state.known.get(path).is_none_or(|version| version.is_told) {
            if !wanted() {
                return None;
            }
            state = self.wait(state);
        }
        let version = state.known.remove(path);
        self.changed.notify_all();
        version.filter(|version| !version.is_empty())
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, GLANCE);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.into()
    }

    fn cutter(file: &OwnedFd, offset: u64, average: u32) -> Cutter<'_> {
        Cutter::new(file, offset, average, &Budget::default()).unwrap().unwrap()
    }

    fn pieces(bytes: &[u8], offset: usize) -> Vec<Piece> {
        let file = file(bytes);
        let mut cutter = cutter(&file, offset as u64, AVERAGE_MIN);
        let mut pieces = Vec::new();
        let mut passed = offset;
        while let Some(piece) = cutter.next().unwrap() {
            assert!(piece == &bytes[passed..passed + piece.len()]);
            passed += piece.len();
            pieces.push(Piece::of(piece));
        }
        assert_eq!(passed, bytes.len());
        pieces
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn versions_take_no_more_memory_than_is_left_for_all_requests() {
        let budget = Budget::new(100 * ENTRY);
        let versions = Versions::new(&budget);
        let hash = |n: u64| *blake3::hash(&n.to_le_bytes()).as_bytes().first_chunk().unwrap();
        let pieces = Vec::from_iter((0..70).map(|n| Piece { length: 1, hash: hash(n) }));
        let paths = [b"a", b"b"].map(|name| RelPath::new(name.to_vec()).unwrap());
        for path in &paths {
            versions.reach(path);
            // What was told before is told again, and takes nothing.
            (0..2).for_each(|_| versions.add(path, AVERAGE_MIN, &pieces, true));
        }
        let known = paths.each_ref().map(|path| versions.take(path, || true).unwrap().at.len());
        assert_eq!(known, [70, 30]);
        assert!(Share::of(&budget).take(100 * ENTRY), "it is given back");
    }

    #[test]
    fn pieces_make_up_the_file_and_what_is_put_in_shifts_none() {
        let old = noise(3 << 20);
        for length in [0, 1, 100, 8 << 10, old.len()] {
            pieces(&old[..length], 0);
        }
        let mut version = Version::default();
        version.add(AVERAGE_MIN, &pieces(&old, 0), true);
        let new = [&old[..1_000_000], b"put in", &old[1_000_000..]].concat();
        let file = file(&new);
        let mut cutter = cutter(&file, 0, AVERAGE_MIN);
        let (mut found, mut lost, mut passed) = (0, 0, 0);
        while let Some(piece) = cutter.next().unwrap() {
            match version.find(piece) {
                Some(offset) => {
                    assert!(&old[offset as usize..][..piece.len()] == piece);
                    found += piece.len();
                }
                None => lost += piece.len(),
            }
            passed += piece.len();
        }
        assert_eq!((passed, found + lost), (new.len(), new.len()));
        assert!(lost < 100_000, "{lost}");
        assert!(pieces(&old, 77).len() > 100);
    }

    #[test]
    fn a_cutter_takes_no_more_memory_than_there_is_of_its_file_nor_than_is_left() {
        let bytes = noise(100_000);
        let file = file(&bytes);
        let mut cutter = cutter(&file, 0, u32::MAX);
        assert_eq!(cutter.buffer.len(), bytes.len());
        let mut passed = Vec::new();
        while let Some(piece) = cutter.next().unwrap() {
            passed.extend_from_slice(piece);
        }
        assert!(passed == bytes);
        cutter.skip_to(99_000);
        assert!(cutter.next().unwrap().unwrap() == &bytes[99_000..]);
        let budget = Budget::new(70_000);
        assert!(Cutter::new(&file, 0, u32::MAX, &budget).unwrap().is_none());
        let some = Cutter::new(&file, 30_000, u32::MAX, &budget).unwrap();
        assert!(some.is_some() && !Share::of(&budget).take(1));
        drop(some);
        assert!(Share::of(&budget).take(70_000));
    }

    #[test]
    fn whoever_looks_ahead_and_the_sender_do_not_ask_twice() {
        let versions = Versions::default();
        let path = |name: &str| RelPath::new(name.into()).unwrap();
        versions.foresee(&path("a"), || true);
        versions.reach(&path("a"));
        // The sender was quicker here.
        versions.reach(&path("b"));
        versions.foresee(&path("b"), || true);
        let mut due = Vec::from_iter(std::iter::from_fn(|| versions.due()));
        due.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        assert_eq!(due, [path("a"), path("b")]);
        versions.add(&path("c"), 1, &[Piece::of(b"not asked for")], true);
        versions.add(&path("a"), AVERAGE_MIN, &[Piece::of(b"x"), Piece::of(b"yz")], true);
        let version = versions.take(&path("a"), || false).unwrap();
        assert_eq!((version.find(b"yz"), version.find(b"z")), (Some(1), None));
        assert!(versions.take(&path("b"), || false).is_none(), "it was not answered");
        assert!(versions.take(&path("c"), || false).is_none());
    }
}

//! What the sender has heard of the receiver's journal, while it is sending.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::budget::{Budget, Share};
use crate::hash::State;
use crate::meta::Tag;
use crate::standing::{Key, Standing};

/// How often who waits sees whether there is still something to wait for.
const GLANCE: Duration = Duration::from_millis(100);

/// Files whose sending again the sender may be spared; others it sends. Bounds its memory.
const TAGS_MAX: usize = 4 << 20;
/// Memory that a tag or what stands there takes in a table that has just grown.
const ENTRY: usize = 40;
/// The same for begun files.
const PARTS_MAX: usize = 16;

#[derive(Default)]
pub(crate) struct Had {
    /// So that a first sitting costs nothing.
    any: AtomicBool,
    /// So that asking for it at each block costs nothing.
    all: AtomicBool,
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    tags: HashSet<Tag>,
    parts: Vec<(Tag, State)>,
    /// What stands there, and what of it may be mended.
    standing: HashMap<Key, u32>,
    /// Some of it found no room, and nobody was told so.
    is_lost: bool,
    /// How often all that stands there was told.
    told: usize,
    /// No more tags and parts will come.
    is_all: bool,
    /// Of the memory for all requests.
    share: Share,
}

impl Heard {
    /// Whether there is room for one more, beside so many.
    fn has_room(&mut self, known: usize) -> bool {
        known < TAGS_MAX && self.share.take(ENTRY)
    }
}

impl Had {
    /// For a request that shares this memory with others.
    pub fn new(budget: &Budget) -> Self {
        let heard = Mutex::new(Heard { share: Share::of(budget), ..Heard::default() });
        Self { heard, ..Self::default() }
    }

    pub fn add(&self, tags: Vec<Tag>) {
        let mut heard = self.lock();
        for tag in tags {
            let known = heard.tags.len();
            if !heard.tags.contains(&tag) && heard.has_room(known) {
                heard.tags.insert(tag);
            }
        }
        self.any.store(true, Relaxed);
    }

    pub fn add_part(&self, tag: Tag, state: State) {
        let mut heard = self.lock();
        if heard.parts.len() < PARTS_MAX {
            heard.parts.push((tag, state));
        }
        self.any.store(true, Relaxed);
    }

    /// Nothing else is left of an earlier sitting.
    pub fn add_all(&self) {
        self.lock().is_all = true;
        self.all.store(true, Relaxed);
        self.changed.notify_all();
    }

    /// Waits until everything that is left of an earlier sitting was told; false when that is not `wanted`
    /// any more.
    pub fn wait_all(&self, wanted: impl Fn() -> bool) -> bool {
        self.all.load(Relaxed) || self.wait(|heard| heard.is_all, wanted)
    }

    /// More stands there.
    pub fn add_standing(&self, standing: Vec<Standing>) {
        let mut heard = self.lock();
        for Standing { key, rest } in standing {
            let known = heard.standing.len();
            if heard.standing.contains_key(&key) || heard.has_room(known) {
                heard.standing.insert(key, rest);
            } else {
                heard.is_lost = true;
            }
        }
    }

    /// Whether some of what stands there found no room, since this was asked last.
    pub fn take_lost(&self) -> bool {
        std::mem::take(&mut self.lock().is_lost)
    }

    /// All that stands at one place was told.
    pub fn add_told(&self) {
        self.lock().told += 1;
        self.changed.notify_all();
    }

    /// Waits until what stands there was told for so many places; false when that is not `wanted` any
    /// more.
    pub fn wait_told(&self, places: usize, wanted: impl Fn() -> bool) -> bool {
        self.wait(|heard| heard.told >= places, wanted)
    }

    fn wait(&self, is_heard: impl Fn(&Heard) -> bool, wanted: impl Fn() -> bool) -> bool {
        let mut heard = self.lock();
        while !is_heard(&heard) {
            if !wanted() {
                return false;
            }
            let waited = self.changed.wait_timeout(heard, GLANCE);
            heard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Whether such a one stands there: what of it may be mended.
    pub fn stands(&self, standing: &Standing) -> Option<u32> {
        self.lock().standing.get(&standing.key).copied()
    }

    pub fn holds(&self, tag: &Tag) -> bool {
        self.any.load(Relaxed) && self.lock().tags.contains(tag)
    }

    /// How much of this file is there, when that is more than `sent` and less than `size`.
    pub fn part(&self, tag: &Tag, sent: u64, size: u64) -> Option<State> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let heard = self.lock();
        let (_, state) = heard.parts.iter().find(|(of, _)| of == tag)?;
        (sent < state.length() && state.length() < size).then(|| state.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_tells_without_end_is_remembered_up_to_a_bound() {
        let had = Had::default();
        let many = || (0..TAGS_MAX as u64 + 1000).map(u64::to_le_bytes);
        had.add(many().map(|n| *[n, n].concat().first_chunk().unwrap()).collect());
        had.add(vec![[9; 16]]);
        assert_eq!(had.lock().tags.len(), TAGS_MAX);
        assert!(!had.holds(&[9; 16]));
        let mut had = Had::default();
        let key = |n: [u8; 8]| *[n, n].concat().first_chunk().unwrap();
        had.add_standing(many().map(|n| Standing { key: key(n), rest: 0 }).collect());
        assert_eq!(had.lock().standing.len(), TAGS_MAX);
        (0..2 * PARTS_MAX).for_each(|_| had.add_part([1; 16], State::default()));
        assert_eq!(had.lock().parts.len(), PARTS_MAX);
        // Memory that others have is not there, and what is told again takes none.
        had = Had::new(&Budget::new(100 * ENTRY));
        let some = |n: u64| (0..n).map(u64::to_le_bytes).map(key);
        for n in [70, 70, 200] {
            had.add_standing(some(n).map(|key| Standing { key, rest: 0 }).collect());
        }
        had.add(vec![[9; 16]]);
        assert_eq!([had.take_lost(), had.take_lost()], [true, false]);
        let heard = had.lock();
        assert_eq!((heard.standing.len(), heard.tags.len()), (100, 0));
    }
}

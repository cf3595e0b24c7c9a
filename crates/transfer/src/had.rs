//! What the sender has heard of the receiver's journal, while it is sending.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::hash::State;
use crate::meta::Tag;
use crate::standing::{Key, Standing};

/// How often who waits sees whether there is still something to wait for.
const GLANCE: Duration = Duration::from_millis(100);

/// Files whose sending again the sender may be spared; others it sends. Bounds its memory.
const TAGS_MAX: usize = 4 << 20;
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
    /// How often all that stands there was told.
    told: usize,
    /// No more tags and parts will come.
    is_all: bool,
}

impl Had {
    pub fn add(&self, tags: Vec<Tag>) {
        let mut heard = self.lock();
        let room = TAGS_MAX.saturating_sub(heard.tags.len());
        heard.tags.extend(tags.into_iter().take(room));
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
        let room = TAGS_MAX.saturating_sub(heard.standing.len());
        heard.standing.extend(standing.into_iter().take(room).map(|one| (one.key, one.rest)));
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
        *had.lock() = Heard::default();
        let key = |n: [u8; 8]| *[n, n].concat().first_chunk().unwrap();
        had.add_standing(many().map(|n| Standing { key: key(n), rest: 0 }).collect());
        assert_eq!(had.lock().standing.len(), TAGS_MAX);
        (0..2 * PARTS_MAX).for_each(|_| had.add_part([1; 16], State::default()));
        assert_eq!(had.lock().parts.len(), PARTS_MAX);
    }
}

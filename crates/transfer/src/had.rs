//! What the sender has heard of the receiver's journal, while it is sending.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::hash::State;
use crate::meta::Tag;

/// Files whose sending again the sender may be spared; others it sends. Bounds its memory.
const TAGS_MAX: usize = 4 << 20;
/// The same for begun files.
const PARTS_MAX: usize = 16;

#[derive(Default)]
pub(crate) struct Had {
    /// So that a first sitting costs nothing.
    any: AtomicBool,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    tags: HashSet<Tag>,
    parts: Vec<(Tag, State)>,
}

impl Had {
    pub fn add(&self, tags: Vec<Tag>) {
        let mut heard = self.lock();
        let room = TAGS_MAX - heard.tags.len();
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

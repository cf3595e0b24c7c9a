//! Memory that requests share, so that many of them together take no more than one may.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes for what all requests of a server keep in mind of names and paths.
const BUDGET: usize = 512 << 20;

/// Bytes that are left; clones share them.
#[derive(Clone, Debug)]
pub struct Budget(Arc<AtomicUsize>);

impl Default for Budget {
    fn default() -> Self {
        Self::new(BUDGET)
    }
}

impl Budget {
    /// Of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

/// What one request has taken of a budget; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Share {
    budget: Budget,
    taken: usize,
}

impl Share {
    pub fn of(budget: &Budget) -> Self {
        Self { budget: budget.clone(), taken: 0 }
    }

    /// Takes so many bytes more; false when they are not left.
    pub fn take(&mut self, bytes: usize) -> bool {
        let taken = self.budget.take(bytes);
        self.taken += if taken { bytes } else { 0 };
        taken
    }

    /// Gives back some of what was taken.
    pub fn give_back(&mut self, bytes: usize) {
        self.taken -= bytes;
        self.budget.0.fetch_add(bytes, Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_has_taken_another_cannot_until_it_is_given_back() {
        let budget = Budget::new(100);
        let [mut one, mut other] = [(); 2].map(|()| Share::of(&budget));
        assert!(one.take(60) && !other.take(41) && other.take(40));
        one.give_back(10);
        assert!(other.take(10) && !other.take(1));
        drop(one);
        assert!(other.take(50) && !other.take(1));
    }
}

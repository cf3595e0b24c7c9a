//! Memory that requests share, so that many of them together take no more than one may.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes for what all requests of a server keep in mind of names and paths.
const BUDGET: usize = 512 << 20;

/// Bytes that are left; clones share them.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Account>);

#[derive(Debug)]
struct Account {
    all: usize,
    left: AtomicUsize,
    /// What they are a part of.
    whole: Option<Budget>,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(BUDGET)
    }
}

impl Budget {
    /// Of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self::of(bytes, None)
    }

    /// At most half of it, for one of those who share it.
    #[must_use]
    pub fn half(&self) -> Self {
        Self::of(self.0.all / 2, Some(self.clone()))
    }

    /// Whether somebody else has this very one.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn of(all: usize, whole: Option<Self>) -> Self {
        Self(Arc::new(Account { all, left: AtomicUsize::new(all), whole }))
    }

    fn take(&self, bytes: usize) -> bool {
        let Account { left, whole, .. } = &*self.0;
        let is_taken = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok();
        if is_taken && whole.as_ref().is_some_and(|whole| !whole.take(bytes)) {
            left.fetch_add(bytes, Relaxed);
            return false;
        }
        is_taken
    }

    fn give_back(&self, bytes: usize) {
        self.0.left.fetch_add(bytes, Relaxed);
        self.0.whole.iter().for_each(|whole| whole.give_back(bytes));
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
        self.budget.give_back(bytes);
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

    #[test]
    fn who_has_half_leaves_the_other_half_to_others() {
        let whole = Budget::new(100);
        let [first, second] = [(); 2].map(|()| whole.half());
        let [mut one, mut same] = [(); 2].map(|()| Share::of(&first));
        assert!(one.take(30) && same.take(20) && !same.take(1));
        let mut other = Share::of(&second);
        let mut rest = Share::of(&whole);
        assert!(rest.take(10) && !other.take(41) && other.take(40) && !rest.take(1));
        drop((one, same));
        assert!(other.take(10) && !other.take(1) && rest.take(40));
        assert!(second.is_shared() && !Budget::new(1).half().is_shared());
    }
}

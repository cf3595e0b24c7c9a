//! Packets on their way, by the time they leave.

use core::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use units::Instant;

use crate::Exit;

/// Room made in advance, in packets; more is made when a path needs it.
const INITIAL_ROOM: usize = 1 << 12;

/// A packet with its place among those that leave at the same time.
struct Entry<T> {
    serial: u64,
    exit: Exit<T>,
}

impl<T> Entry<T> {
    fn order(&self) -> (Instant, u64) {
        (self.exit.due, self.serial)
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

/// Everything that has left the queue and not yet the link. Nearly all packets leave in the order
/// they came: those stand in a ring. The few that overtake stand in a heap beside it.
pub(crate) struct Line<T> {
    ordered: VecDeque<Entry<T>>,
    overtaking: BinaryHeap<Reverse<Entry<T>>>,
    serial: u64,
}

impl<T> Line<T> {
    pub(crate) fn new() -> Self {
        let ordered = VecDeque::with_capacity(INITIAL_ROOM);
        Self { ordered, overtaking: BinaryHeap::new(), serial: 0 }
    }

    pub(crate) fn push(&mut self, exit: Exit<T>) {
        let entry = Entry { serial: self.serial, exit };
        self.serial += 1;
        if self.ordered.back().is_none_or(|last| last.exit.due <= entry.exit.due) {
            self.ordered.push_back(entry);
        } else {
            self.overtaking.push(Reverse(entry));
        }
    }

    /// When the next packet leaves.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let first = self.ordered.front().map(|entry| entry.exit.due);
        if self.overtaking.is_empty() {
            return first;
        }
        let other = self.overtaking.peek().map(|Reverse(entry)| entry.exit.due);
        first.into_iter().chain(other).min()
    }

    /// The next packet that leaves at or before `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Exit<T>> {
        if self.overtaking.is_empty() {
            return self
                .ordered
                .pop_front_if(|first| first.exit.due <= now)
                .map(|entry| entry.exit);
        }
        self.next_due().filter(|&due| due <= now)?;
        let overtaken = match (self.ordered.front(), self.overtaking.peek()) {
            (Some(first), Some(Reverse(other))) => other < first,
            (first, _) => first.is_none(),
        };
        if overtaken {
            self.overtaking.pop().map(|Reverse(entry)| entry.exit)
        } else {
            self.ordered.pop_front().map(|entry| entry.exit)
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ordered.len() + self.overtaking.len()
    }

    /// Packets that there is room for without an allocation.
    pub(crate) fn capacity(&self) -> usize {
        self.ordered.capacity() + self.overtaking.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use units::Bytes;

    use crate::Fate;

    proptest! {
        /// As a stable sort would order them.
        #[test]
        fn leaves_by_time_then_by_arrival(dues in prop::collection::vec(0u64..50, 0..200)) {
            let mut line = Line::new();
            let mut expected: Vec<_> = dues.iter().copied().zip(0u64..).collect();
            expected.sort_by_key(|&(due, _)| due);
            for (item, &due) in dues.iter().enumerate() {
                line.push(Exit::new(Instant::from_nanos(due), Bytes(1), item as u64, Fate::Delivered));
            }
            prop_assert_eq!(line.len(), dues.len());
            let left = core::iter::from_fn(|| line.pop_due(Instant::FAR_FUTURE));
            let left: Vec<_> = left.map(|exit| (exit.due.as_nanos(), exit.item)).collect();
            prop_assert_eq!(left, expected);
        }
    }
}

//! Who is next: times by the keys of those that have something to do.

use units::Instant;

/// A time for each key, and the earliest of all, of equal ones that of the key which was added first.
///
/// Each node of a binary tree holds the earlier of its two children, a key's leaf its time. To
/// change a time is to look once at each level, and often less: what goes on upwards is a change alone.
#[derive(Clone, Default)]
pub(super) struct Agenda {
    /// The root is the second, and the children of `node` are `2 * node` and the one behind it.
    nodes: Vec<(Instant, u32)>,
    /// How many keys there are.
    count: usize,
}

impl Agenda {
    /// Adds a key, which has nothing to do so far; its slot.
    pub(super) fn add(&mut self, key: usize) -> usize {
        if self.count == self.leaves() {
            self.grow();
        }
        let leaf = self.leaves() + self.count;
        self.nodes[leaf].1 = key as u32;
        self.count += 1;
        self.count - 1
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    fn grow(&mut self) {
        let before = self.nodes.split_off(self.leaves());
        let leaves = (2 * before.len()).max(1);
        self.nodes = vec![(Instant::FAR_FUTURE, u32::MAX); leaves];
        self.nodes.extend(before);
        self.nodes.resize(2 * leaves, (Instant::FAR_FUTURE, u32::MAX));
        for node in (1..leaves).rev() {
            self.nodes[node] = self.earlier(node);
        }
    }

    /// When it is the turn of the key in `slot`; the far future when it has nothing to do.
    #[inline]
    pub(super) fn at(&self, slot: usize) -> Instant {
        self.nodes[self.leaves() + slot].0
    }

    /// It is the turn of the key in `slot` at this time, whatever was said before.
    pub(super) fn set(&mut self, slot: usize, at: Instant) {
        let mut node = self.leaves() + slot;
        self.nodes[node].0 = at;
        while node > 1 {
            node /= 2;
            let earlier = self.earlier(node);
            if self.nodes[node] == earlier {
                return;
            }
            self.nodes[node] = earlier;
        }
    }

    fn earlier(&self, node: usize) -> (Instant, u32) {
        let [left, right] = [self.nodes[2 * node], self.nodes[2 * node + 1]];
        if right.0 < left.0 { right } else { left }
    }

    /// When it is the next one's turn, and whose; the far future when nobody has anything to do.
    pub(super) fn first(&self) -> (Instant, usize) {
        let first = self.nodes.get(1).copied().unwrap_or((Instant::FAR_FUTURE, 0));
        (first.0, first.1 as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_earliest_is_next_and_of_equal_ones_the_least(
            steps in prop::collection::vec((any::<bool>(), 0usize..20, 0u64..9), 1..200),
        ) {
            let (mut agenda, mut all) = (Agenda::default(), Vec::new());
            for (more, number, at) in steps {
                if more || all.is_empty() {
                    prop_assert_eq!(agenda.add(3 * all.len()), all.len());
                    all.push(Instant::FAR_FUTURE);
                } else {
                    let number = number % all.len();
                    let at = if at == 0 { Instant::FAR_FUTURE } else { Instant::from_nanos(at) };
                    agenda.set(number, at);
                    all[number] = at;
                }
                for (number, at) in all.iter().enumerate() {
                    prop_assert_eq!(agenda.at(number), *at);
                }
                let first = all.iter().copied().zip(0..).min().map(|(at, slot)| (at, 3 * slot));
                let nobody = first.is_some_and(|first| first.0 == Instant::FAR_FUTURE);
                prop_assert!(Some(agenda.first()) == first || nobody && agenda.first().0 == Instant::FAR_FUTURE);
            }
        }
    }
}

//! Who is next: times by the numbers of those that have something to do.

use units::Instant;

/// A time for each number, and the earliest of all, of equal ones that of the least number.
///
/// Each node of a binary tree holds the earlier of its two children, a number's leaf its time. To
/// change a time is to look once at each level, and often less: what goes on upwards is a change alone.
#[derive(Default)]
pub(super) struct Agenda {
    /// The root is the second, and the children of `node` are `2 * node` and the one behind it.
    nodes: Vec<(Instant, u32)>,
    /// How many numbers there are.
    count: usize,
}

impl Agenda {
    /// The number of one more, which has nothing to do so far.
    pub(super) fn add(&mut self) -> usize {
        if self.count == self.leaves() {
            self.grow();
        }
        self.count += 1;
        self.count - 1
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    fn grow(&mut self) {
        let before: Vec<Instant> = (0..self.count).map(|number| self.at(number)).collect();
        let leaves = (2 * self.leaves()).max(1);
        self.nodes = vec![(Instant::FAR_FUTURE, u32::MAX); leaves];
        self.nodes.extend((0..leaves).map(|number| (Instant::FAR_FUTURE, number as u32)));
        for node in (1..leaves).rev() {
            self.nodes[node] = self.earlier(node);
        }
        for (number, at) in before.into_iter().enumerate() {
            self.set(number, at);
        }
    }

    /// When it is the turn of `number`; the far future when it has nothing to do.
    pub(super) fn at(&self, number: usize) -> Instant {
        self.nodes[self.leaves() + number].0
    }

    /// It is the turn of `number` at this time, whatever was said before.
    pub(super) fn set(&mut self, number: usize, at: Instant) {
        let mut node = self.leaves() + number;
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
                    prop_assert_eq!(agenda.add(), all.len());
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
                prop_assert_eq!(Some(agenda.first()), all.iter().copied().zip(0..).min());
            }
        }
    }
}

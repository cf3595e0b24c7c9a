//! Routers beside the two at the ends of the path, and the links that join them.

use std::collections::VecDeque;

use path::LinkConfig;

/// The router at which the near side's hosts are: one end of the path.
pub const NEAR: usize = 0;
/// The router at which the far side's hosts are.
pub const FAR: usize = 1;

/// A link between two routers, both ways, beside the path that joins `near` and `far`.
#[derive(Clone, Debug)]
pub struct Wire {
    /// The routers.
    pub ends: (usize, usize),
    /// What reports call them.
    pub names: [String; 2],
    /// What it is like, in each direction.
    pub link: LinkConfig,
}

/// Links by their numbers, each from one router to another.
#[derive(Debug, Default)]
pub(super) struct Topology(Vec<(usize, usize, usize)>);

impl Topology {
    /// One more link.
    pub(super) fn add(&mut self, from: usize, to: usize, link: usize) {
        self.0.push((from, to, link));
    }

    /// All links: from where, to where, their numbers.
    pub(super) fn links(&self) -> &[(usize, usize, usize)] {
        &self.0
    }

    /// The links of the shortest way, by their count; of equally short ones that whose links were
    /// added first. `None` when there is no way.
    pub(super) fn way(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        // By which link each router was reached.
        let mut reached = vec![(from, None)];
        let mut next = VecDeque::from([from]);
        while let Some(here) = next.pop_front() {
            for link in self.0.iter().filter(|link| link.0 == here) {
                if reached.iter().all(|(router, _)| *router != link.1) {
                    reached.push((link.1, Some(link)));
                    next.push_back(link.1);
                }
            }
        }
        let mut way = Vec::new();
        let mut at = to;
        while at != from {
            let (_, link) = reached.iter().find(|(router, _)| *router == at)?;
            let (before, _, number) = (*link)?;
            way.push(*number);
            at = *before;
        }
        way.reverse();
        Some(way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_way_is_found() {
        let mut topology = Topology::default();
        let links = [(NEAR, FAR), (FAR, NEAR), (FAR, 2), (2, FAR), (2, 3), (3, 2), (NEAR, 3)];
        for (number, (from, to)) in links.into_iter().enumerate() {
            topology.add(from, to, number);
        }
        assert_eq!(topology.way(NEAR, FAR), Some(vec![0]));
        assert_eq!(topology.way(NEAR, 2), Some(vec![0, 2]));
        assert_eq!(topology.way(NEAR, 3), Some(vec![6]));
        assert_eq!(topology.way(3, NEAR), Some(vec![5, 3, 1]));
        assert_eq!(topology.way(NEAR, NEAR), Some(vec![]));
        assert_eq!(topology.way(NEAR, 9), None);
    }
}

//! Which routers, with their hosts, are worked off by themselves.

use core::time::Duration;
use std::collections::BTreeMap;

/// A link that takes less leaves too little to do at a time.
const LEAST_LOOKAHEAD: Duration = Duration::from_micros(100);

/// Every router belongs to a site. What happens at one is known at another no sooner than after the lookahead: so long
/// takes every link between two sites.
#[derive(Debug)]
pub(super) struct Sites {
    /// By router; those that are not in it are of the first.
    of: BTreeMap<usize, usize>,
    count: usize,
    lookahead: Option<Duration>,
}

impl Sites {
    /// All routers at one site.
    pub(super) fn one() -> Self {
        Self { of: BTreeMap::new(), count: 1, lookahead: None }
    }

    /// As many as there can be, with these links from router to router and the lookahead of each. Routers between which a
    /// link has none, or too little, are at one site.
    pub(super) fn divided(links: &[(usize, usize, Option<Duration>)]) -> Self {
        let mut groups: BTreeMap<usize, usize> =
            links.iter().flat_map(|link| [(link.0, link.0), (link.1, link.1)]).collect();
        for (from, to, lookahead) in links {
            if lookahead.is_none_or(|lookahead| lookahead < LEAST_LOOKAHEAD) {
                let (stays, goes) = (groups[from], groups[to]);
                groups
                    .values_mut()
                    .filter(|group| **group == goes)
                    .for_each(|group| *group = stays);
            }
        }
        let mut numbers = BTreeMap::new();
        let of: BTreeMap<_, _> = groups
            .into_iter()
            .map(|(router, group)| {
                let next = numbers.len();
                (router, *numbers.entry(group).or_insert(next))
            })
            .collect();
        let between = links.iter().filter(|link| of[&link.0] != of[&link.1]);
        let lookahead = between.filter_map(|link| link.2).min();
        Self { of, count: numbers.len().max(1), lookahead }
    }

    /// The site of a router.
    pub(super) fn of(&self, router: usize) -> usize {
        self.of.get(&router).copied().unwrap_or(0)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// `None` if there is but one.
    pub(super) fn lookahead(&self) -> Option<Duration> {
        self.lookahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Option<Duration> = Some(Duration::from_millis(1));

    #[test]
    fn links_that_take_time_divide() {
        let longer = Some(Duration::from_millis(7));
        let sites = Sites::divided(&[(0, 1, longer), (1, 0, longer), (1, 900, MS), (900, 1, MS)]);
        assert_eq!([0, 1, 900].map(|router| sites.of(router)), [0, 1, 2]);
        assert_eq!((sites.count(), sites.lookahead()), (3, MS));
    }

    #[test]
    fn links_that_take_none_join() {
        for short in [None, Some(Duration::ZERO), Some(Duration::from_nanos(1))] {
            // Three in a row by short links, of which one is short one way alone.
            let links =
                [(0, 1, MS), (1, 0, MS), (1, 2, short), (2, 1, MS), (3, 2, short), (2, 3, short)];
            let sites = Sites::divided(&links);
            assert_eq!([0, 1, 2, 3].map(|router| sites.of(router)), [0, 1, 1, 1]);
            assert_eq!((sites.count(), sites.lookahead()), (2, MS));
        }
        let sites = Sites::divided(&[(0, 1, MS), (1, 0, None)]);
        assert_eq!((sites.count(), sites.lookahead()), (1, None));
        assert_eq!(Sites::one().of(7), 0);
    }
}

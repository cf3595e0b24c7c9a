//! What did not arrive as it was sent: no other names are given to such files.

use std::collections::HashSet;

use crate::budget::{Budget, Share};

/// Paths that are kept in mind.
const PATHS_MAX: usize = 64 << 10;

/// Memory that each of them takes besides its own bytes.
const OVERHEAD: usize = 80;

/// Paths of which something stands there perhaps, and not what was sent.
pub(crate) struct Failed {
    paths: HashSet<Vec<u8>>,
    /// There are more.
    is_full: bool,
    /// Of the memory for all requests.
    share: Share,
}

impl Failed {
    /// For a request that shares this memory with others.
    pub fn new(budget: &Budget) -> Self {
        Self { paths: HashSet::new(), is_full: false, share: Share::of(budget) }
    }

    pub fn add(&mut self, path: &[u8]) {
        if self.is_full || self.paths.contains(path) {
            return;
        }
        self.is_full = self.paths.len() >= PATHS_MAX || !self.share.take(path.len() + OVERHEAD);
        if !self.is_full {
            self.paths.insert(path.to_vec());
        }
    }

    /// Whether this one failed or one above it; also when too many did to know.
    pub fn holds(&self, path: &[u8]) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut ends = slashes.map(|(at, _)| at).chain([path.len()]);
        self.is_full || ends.any(|end| self.paths.contains(&path[..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_makes_all_doubtful() {
        let budget = Budget::new(3 * (OVERHEAD + 3));
        let mut failed = Failed::new(&budget);
        for path in [b"a/b", b"a/c", b"a/b", b"a/d"] {
            failed.add(path);
        }
        assert!(failed.holds(b"a/b/x") && !failed.holds(b"a") && !failed.holds(b"a/x"));
        let mut other = Failed::new(&budget);
        other.add(b"x");
        assert!(other.holds(b"y"), "nothing was left for it");
        drop(failed);
        let mut next = Failed::new(&budget);
        next.add(b"x");
        assert!(next.holds(b"x") && !next.holds(b"y"));
    }
}

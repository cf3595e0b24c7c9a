//! Files with several names that went, or are there, so that their other names go as such.

use std::collections::HashMap;

use crate::budget::{Budget, Share};
use crate::meta::{Meta, Shared};
use crate::relpath::RelPath;

/// Files that are remembered; of others each name is sent as a file of its own.
const FILES_MAX: usize = 1 << 20;

/// Memory that each of them takes besides its path, in a table that has just grown.
const OVERHEAD: usize = 128;

/// What the table holds of each: 200 MB of a million with paths of 40 bytes, while it grows.
type Entry = (Shared, (u64, RelPath));
const _: () = assert!((size_of::<Entry>() + 1) * 16 / 7 + 16 <= OVERHEAD);

/// Where they went, and what they were then.
pub(super) struct Linked {
    sent: HashMap<Shared, (u64, RelPath)>,
    /// Of the memory for all requests.
    share: Share,
}

impl Linked {
    /// For a request that shares this memory with others.
    pub fn new(budget: &Budget) -> Self {
        Self { sent: HashMap::new(), share: Share::of(budget) }
    }

    /// Under which other name this file went. One that has changed since is another, and so is one that came into
    /// being in its place.
    pub fn find(&self, meta: &Meta) -> Option<&RelPath> {
        let (then, to) = self.sent.get(&meta.shared()?)?;
        (*then == meta.fingerprint()).then_some(to)
    }

    /// It is there under this name, or on its way.
    pub fn add(&mut self, meta: &Meta, path: &RelPath) {
        let Some(shared) = meta.shared() else { return };
        let bytes = path.as_bytes().len() + OVERHEAD;
        if self.sent.len() < FILES_MAX && self.share.take(bytes) {
            self.sent.insert(shared, (meta.fingerprint(), path.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_remembered_as_there_is_memory_for() {
        let folder = tempfile::tempdir().unwrap();
        let metas = ["a", "b", "c"].map(|name| {
            let path = folder.path().join(name);
            std::fs::write(&path, name).unwrap();
            let alone = Meta::of(std::fs::File::open(&path).unwrap()).unwrap();
            std::fs::hard_link(&path, folder.path().join(format!("{name}2"))).unwrap();
            (alone, Meta::of(std::fs::File::open(&path).unwrap()).unwrap())
        });
        let path = |name: &[u8]| RelPath::new(name.to_vec()).unwrap();
        let mut linked = Linked::new(&Budget::new(2 * (OVERHEAD + 1)));
        for (alone, shared) in &metas {
            linked.add(alone, &path(b"x"));
            linked.add(shared, &path(b"y"));
        }
        let found = metas.each_ref().map(|(_, shared)| linked.find(shared));
        assert_eq!(found, [Some(&path(b"y")), Some(&path(b"y")), None]);
        let mut changed = metas[0].1;
        changed.size += 1;
        assert_eq!(linked.find(&changed), None);
    }
}

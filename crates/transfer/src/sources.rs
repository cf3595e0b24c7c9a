//! What is to be sent, and a look ahead of whoever sends it.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::budget::{Budget, Share};
use crate::delta::{DELTA_MIN, Versions};
use crate::had::Had;
use crate::manifest::Manifest;
use crate::meta::{Meta, Shared, Tag};
use crate::place::Place;
use crate::progress::Progress;
use crate::relpath::RelPath;
use crate::standing::{Compare, Likeness, Standing};
use crate::walk::{Found, Source, Visitor};
use crate::wire::Terms;

/// From this size on it is worth looking whether a file can be read.
const READABLE_FROM: u64 = 64 << 20;

/// What the user named, and how much it holds.
pub(crate) struct Sources {
    pub place: Place,
    pub list: Vec<Source>,
    pub terms: Terms,
    pub progress: Progress,
    /// Files, their bytes, and the room that they take at the least, once they have been counted.
    pub totals: OnceLock<(u64, u64, u64)>,
    /// Nobody waits for the count any more.
    ended: AtomicBool,
    /// What need not be sent.
    pub had: Had,
    /// Of large files that stand there otherwise.
    pub versions: Versions,
    /// Memory for these, and for names that files share.
    pub budget: Budget,
    /// Is told the hashes of all files.
    pub manifest: Option<Manifest>,
}

impl Sources {
    pub fn new(place: Place, list: Vec<Source>, terms: Terms, progress: Progress) -> Self {
        let (had, versions, budget) = <(Had, Versions, Budget)>::default();
        let (totals, ended) = (OnceLock::new(), AtomicBool::new(false));
        let manifest = None;
        Self { place, list, terms, progress, totals, ended, had, versions, budget, manifest }
    }

    /// Whether the receiver has the file by what an earlier sitting wrote down. Who compares contents believes no size and
    /// no time, nor what was written down of them.
    pub fn is_held(&self, tag: &Tag) -> bool {
        self.terms.compare != Some(Compare::Content) && self.had.holds(tag)
    }

    /// With no more memory than this for what the receiver tells, and for names.
    pub fn within(self, budget: &Budget) -> Self {
        let (had, versions) = (Had::new(budget), Versions::new(budget));
        Self { had, versions, budget: budget.clone(), ..self }
    }

    /// Counts on a thread of its own, so that the first byte does not wait for it, and looks ahead for
    /// large files that stand there otherwise.
    pub fn count(&self) {
        let (foreseen, share) = (HashSet::new(), Share::of(&self.budget));
        let mut ahead =
            Ahead { sources: self, files: 0, bytes: 0, least: 0, told: 0, foreseen, share };
        for source in &self.list {
            if source.walk(&self.place, &mut ahead).is_break() {
                return;
            }
        }
        self.progress.set_totals(ahead.files, ahead.bytes);
        let _ = self.totals.set((ahead.files, ahead.bytes, ahead.least));
    }

    fn is_wanted(&self) -> bool {
        !self.ended.load(Relaxed)
    }

    /// Whether there is a version of this file there that is worth a delta, and it is not equal.
    pub fn has_version(&self, path: &RelPath, meta: &Meta) -> bool {
        let Terms { compare: Some(by), rehearses: false, .. } = self.terms else {
            return false;
        };
        let is_equal = || by == Compare::Time && self.stands(path, meta, None).is_some();
        meta.size >= DELTA_MIN && self.had.stands(&Standing::version(path)).is_some() && !is_equal()
    }

    /// Whether such a file stands there; `contents` are its hash, where that is what counts.
    pub fn stands(
        &self,
        path: &RelPath,
        meta: &Meta,
        contents: Option<&[u8; blake3::OUT_LEN]>,
    ) -> Option<Likeness> {
        let mut likeness = None;
        for modified in meta.modified.as_kept() {
            let mut kept = *meta;
            kept.modified = modified;
            let ours = Standing::file(path, &kept, contents, self.terms.owner);
            let there = self.had.stands(&ours).and_then(|there| ours.likeness(there));
            if there == Some(Likeness::Equal) {
                return there;
            }
            likeness = likeness.or(there);
        }
        likeness
    }

    pub fn end(&self) {
        self.ended.store(true, Relaxed);
    }
}

/// Counts files and bytes, ahead of the sender.
struct Ahead<'a> {
    sources: &'a Sources,
    files: u64,
    bytes: u64,
    least: u64,
    told: usize,
    /// Files with several names for which it has looked ahead.
    foreseen: HashSet<Shared>,
    /// Of the memory for all requests.
    share: Share,
}

/// What a table that has just grown takes of each.
const FORESEEN: usize = 64;
const _: () = assert!((size_of::<Shared>() + 1) * 16 / 7 <= FORESEEN);

impl Ahead<'_> {
    /// Whether it has not looked ahead for this file by another name. Without memory for it, it has not.
    fn is_first(&mut self, shared: Shared) -> bool {
        if self.foreseen.contains(&shared) {
            return false;
        }
        if self.share.take(FORESEEN) {
            self.foreseen.insert(shared);
        }
        true
    }
}

impl Visitor for Ahead<'_> {
    fn begin(&mut self, _: &RelPath) -> ControlFlow<()> {
        self.told += 1;
        let wanted = || self.sources.is_wanted();
        match self.sources.terms.compare {
            Some(_) if !self.sources.had.wait_told(self.told, wanted) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn visit(&mut self, path: &RelPath, found: Found<'_>) -> ControlFlow<()> {
        if let Found::File(open, meta) = found {
            self.files += 1;
            self.bytes += meta.size;
            // What cannot be read takes no room; of small files nobody looks whether they can.
            if meta.size < READABLE_FROM || open().is_ok() {
                self.least += meta.least();
            }
            // By content, only the sender finds out which differ.
            if self.sources.terms.compare == Some(Compare::Time)
                && self.sources.has_version(path, &meta)
                // Of several names the first is sent, and the others as names of it.
                && meta.shared().is_none_or(|shared| self.is_first(shared))
            {
                self.sources.versions.foresee(path, || self.sources.is_wanted());
            }
        }
        let goes_on = self.sources.is_wanted();
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

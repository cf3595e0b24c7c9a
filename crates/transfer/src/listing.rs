//! What a far directory holds, named and not moved.

use std::collections::BTreeMap;

use tokio::sync::mpsc;

use crate::attributes::Attributes;
use crate::error::TransferError;
use crate::meta::Modified;
use crate::onlooker::{Onlooker, look_on};
use crate::pipe::Emptier;
use crate::progress::Progress;
use crate::relpath::RelPath;
use crate::summary::{Counts, Summary};
use crate::wire::{Message, WireError};

/// Bytes of memory for one listing: some million names.
const LISTING_MAX: usize = 256 << 20;

/// What each of them takes besides its names.
const OVERHEAD: usize = 120;

/// What stands at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// A directory.
    Directory,
    /// A regular file of so many bytes.
    File(u64),
    /// A symbolic link, and what it says.
    Symlink(Vec<u8>),
}

/// One of the things that a directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where, below the directory that was asked about; the name of a file that was.
    pub path: RelPath,
    /// What it is.
    pub kind: ListedKind,
    /// Permission bits.
    pub mode: u32,
    /// Its time of modification.
    pub modified: Modified,
}

/// Takes all names from the pipe.
pub(crate) fn run(
    pipe: Emptier,
    replies: &mpsc::Sender<Message>,
    progress: &Progress,
) -> Result<(Vec<Listed>, Summary), TransferError> {
    let mut lister = Lister::default();
    let summary = look_on(&mut lister, pipe, replies, progress)?;
    Ok((lister.listed.into_values().collect(), summary))
}

#[derive(Default)]
struct Lister {
    /// The directory that was asked about, as the sender calls it.
    top: Option<RelPath>,
    listed: BTreeMap<Vec<u8>, Listed>,
    bytes: usize,
    counts: Counts,
    is_within_a_file: bool,
}

impl Lister {
    fn below(&self, path: RelPath) -> RelPath {
        let top = self.top.as_ref().filter(|top| top.is_above(&path));
        let rest = top.and_then(|top| path.as_bytes().strip_prefix(top.as_bytes()));
        let rest = rest.map(|rest| rest.strip_prefix(b"/").unwrap_or(rest).to_vec());
        // A part of a clean path is clean.
        rest.and_then(|rest| RelPath::new(rest).ok()).unwrap_or(path)
    }

    fn add(&mut self, listed: Listed) -> Result<(), TransferError> {
        let (counts, path) = (&mut self.counts, listed.path.as_bytes());
        let target = match &listed.kind {
            ListedKind::Directory => {
                counts.directories += 1;
                0
            }
            ListedKind::File(bytes) => {
                counts.files += 1;
                counts.bytes = counts.bytes.saturating_add(*bytes);
                0
            }
            ListedKind::Symlink(target) => {
                counts.symlinks += 1;
                target.len()
            }
        };
        self.bytes += 2 * path.len() + target + OVERHEAD;
        if self.bytes > LISTING_MAX {
            let reason =
                "there are more names than are listed at a time: list a directory below it";
            return Err(TransferError::Near(reason.into()));
        }
        self.listed.insert(path.to_vec(), listed);
        Ok(())
    }

    fn entry(
        &mut self,
        path: RelPath,
        kind: ListedKind,
        attributes: &Attributes,
    ) -> Result<(), TransferError> {
        let path = self.below(path);
        let Attributes { mode, modified, .. } = *attributes;
        self.add(Listed { path, kind, mode, modified })
    }
}

impl Onlooker for Lister {
    fn message(&mut self, message: Message) -> Result<(), TransferError> {
        match message {
            Message::Abandon if self.is_within_a_file => self.is_within_a_file = false,
            _ if self.is_within_a_file => return Err(WireError::Unexpected.into()),
            Message::Directory { path, .. } if self.top.is_none() && self.listed.is_empty() => {
                self.top = Some(path);
            }
            Message::Directory { path, attributes } => {
                self.entry(path, ListedKind::Directory, &attributes)?;
            }
            Message::File { path, size, attributes, .. } => {
                self.is_within_a_file = true;
                self.entry(path, ListedKind::File(size.unwrap_or_default()), &attributes)?;
            }
            Message::Symlink { path, target, attributes } => {
                self.entry(path, ListedKind::Symlink(target.0), &attributes)?;
            }
            Message::Link { path, to } => {
                let (path, to) = (self.below(path), self.below(to));
                let there = self.listed.get(to.as_bytes()).ok_or(WireError::Unexpected)?;
                let one_more = Listed { path, ..there.clone() };
                self.add(one_more)?;
            }
            _ => return Err(WireError::Unexpected.into()),
        }
        Ok(())
    }

    fn data(&mut self, _: &[u8]) -> Result<(), TransferError> {
        Err(WireError::Unexpected.into())
    }

    fn is_within_a_file(&self) -> bool {
        self.is_within_a_file
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;
    use crate::wire::Terms;
    use crate::{Options, ServeOptions, list, serve};

    async fn listed(root: &Path, path: &str, patterns: &[&str]) -> Vec<(String, ListedKind)> {
        let patterns = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let terms = Terms { patterns, ..Terms::default() };
        let options = Options { terms, ..Options::default() };
        let (allowed, progress) = <(ServeOptions, Progress)>::default();
        let (near, far) = tokio::io::duplex(10_000);
        let listing = list(near, Path::new(path), &options, &progress);
        let (listed, served) = tokio::join!(listing, serve(far, root, &allowed));
        let (listed, summary) = listed.unwrap();
        assert!(served.is_ok() && !summary.is_partial());
        let name = |listed: Listed| (listed.path.as_path().display().to_string(), listed.kind);
        listed.into_iter().map(name).collect()
    }

    #[tokio::test]
    async fn a_tree_is_named_in_the_order_of_its_names() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("tree");
        fs::create_dir_all(tree.join("deep/er")).unwrap();
        fs::write(tree.join("deep/file"), "twelve bytes").unwrap();
        fs::write(tree.join("b"), "four").unwrap();
        fs::hard_link(tree.join("b"), tree.join("a")).unwrap();
        symlink("nowhere", tree.join("link")).unwrap();
        let (four, link) = (ListedKind::File(4), ListedKind::Symlink(b"nowhere".to_vec()));
        let expected = [
            ("a", four.clone()),
            ("b", four.clone()),
            ("deep", ListedKind::Directory),
            ("deep/er", ListedKind::Directory),
            ("deep/file", ListedKind::File(12)),
            ("link", link),
        ];
        let expected = expected.map(|(name, kind)| (name.to_owned(), kind));
        for path in ["tree", "tree/", "tree/."] {
            assert_eq!(listed(root.path(), path, &[]).await, expected, "{path}");
        }
        let level = [0, 1, 2, 5].map(|at| expected[at].clone());
        assert_eq!(listed(root.path(), "tree", &["/*/*"]).await, level);
        assert_eq!(listed(root.path(), "tree/b", &["/*/*"]).await, [("b".to_owned(), four)]);
        let top = [("tree".to_owned(), ListedKind::Directory)];
        assert_eq!(listed(root.path(), "", &["/*/*"]).await, top);
    }

    #[tokio::test]
    async fn what_is_not_there_cannot_be_listed() {
        let root = tempfile::tempdir().unwrap();
        let (allowed, progress) = <(ServeOptions, Progress)>::default();
        let (near, far) = tokio::io::duplex(10_000);
        let (path, options) = (Path::new("none"), Options::default());
        let (listed, _) =
            tokio::join!(list(near, path, &options, &progress), serve(far, root.path(), &allowed));
        assert!(matches!(listed, Err(TransferError::Far(_))), "{listed:?}");
    }

    #[test]
    fn what_no_sender_of_names_sends_is_refused() {
        let path = |name: &str| RelPath::new(name.into()).unwrap();
        let mut lister = Lister::default();
        let link = Message::Link { path: path("a"), to: path("b") };
        assert!(lister.message(link).is_err(), "of nothing that came");
        assert!(lister.data(b"x").is_err());
        assert!(lister.message(Message::Abandon).is_err());
        let file = || Message::File {
            path: path("f"),
            size: None,
            tag: Default::default(),
            attributes: Attributes::default(),
        };
        lister.message(file()).unwrap();
        assert!(lister.message(file()).is_err(), "the first has not ended");
        lister.bytes = LISTING_MAX;
        lister.message(Message::Abandon).unwrap();
        assert!(matches!(lister.message(file()), Err(TransferError::Near(_))));
    }
}

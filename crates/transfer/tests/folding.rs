//! Names that the target does not tell apart: what came first stays, and what did not come is told.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::{Folding, put_to, skip};
use tempfile::TempDir;
use tokio::io::duplex;
use transfer::Summary;

/// Sources of one name each, to be sent in this order.
struct Parts(TempDir, Vec<PathBuf>);

impl Parts {
    fn new() -> Self {
        Self(TempDir::new().unwrap(), Vec::new())
    }

    fn add(&mut self, name: &str, make: impl FnOnce(&Path)) {
        let above = self.0.path().join(self.1.len().to_string());
        fs::create_dir(&above).unwrap();
        let path = above.join(name);
        make(&path);
        self.1.push(path);
    }

    /// More than can be in hand at a time: all before it has its names when this has come.
    fn add_many(&mut self) {
        self.add("many", |path| {
            fs::create_dir(path).unwrap();
            (0..400).for_each(|n| fs::write(path.join(n.to_string()), "").unwrap());
        });
    }

    async fn put(&self, root: &Path) -> Summary {
        let (near, far) = duplex(10_000);
        put_to(near, far, &self.1, root, "").await.0.unwrap()
    }
}

fn told(summary: &Summary, name: &str) {
    assert_eq!(summary.notes.failed(), 1, "{summary:?}");
    let note = summary.notes.iter().next().unwrap().to_string();
    assert!(note.contains(name) && note.contains("case"), "{note}");
}

#[tokio::test]
async fn a_directory_does_not_go_into_another_one_of_the_same_transfer() {
    let name = "a_directory_does_not_go_into_another_one_of_the_same_transfer";
    for was_there in [false, true] {
        let Some(folding) = Folding::new() else {
            return skip(name, "no file system that ignores case can be mounted");
        };
        let root = folding.root();
        if was_there {
            fs::create_dir(root.join("foo")).unwrap();
            fs::write(root.join("foo/old"), "old").unwrap();
        }
        let mut parts = Parts::new();
        for name in ["Foo", "foo", "Ёлка", "ёлка"] {
            parts.add(name, |path| {
                fs::create_dir_all(path.join("deep")).unwrap();
                fs::write(path.join("a"), name).unwrap();
                fs::write(path.join("deep/b"), name).unwrap();
            });
        }
        let summary = parts.put(&root).await;
        assert_eq!((summary.counts.files, summary.notes.failed()), (4, 2), "{summary:?}");
        for name in ["Foo", "Ёлка"] {
            for below in ["a", "deep/b"] {
                assert_eq!(fs::read_to_string(root.join(name).join(below)).unwrap(), name);
            }
        }
        assert_eq!(root.join("foo/old").exists(), was_there, "what was there is added to");
    }
}

#[tokio::test]
async fn a_link_does_not_take_the_place_of_a_file() {
    let name = "a_link_does_not_take_the_place_of_a_file";
    let Some(folding) = Folding::new() else {
        return skip(name, "no file system that ignores case can be mounted");
    };
    let mut parts = Parts::new();
    parts.add("readme", |path| fs::write(path, "bytes").unwrap());
    parts.add_many();
    // A link that is named as a source is followed, and so it comes within a directory.
    let above = parts.0.path().join("links");
    fs::create_dir(&above).unwrap();
    symlink("nowhere", above.join("README")).unwrap();
    parts.1.push(above.join("."));
    let summary = parts.put(&folding.root()).await;
    told(&summary, "README");
    assert_eq!(fs::read_to_string(folding.root().join("readme")).unwrap(), "bytes");
}

#[tokio::test]
async fn letters_of_other_alphabets_are_no_exception() {
    let name = "letters_of_other_alphabets_are_no_exception";
    let Some(folding) = Folding::new() else {
        return skip(name, "no file system that ignores case can be mounted");
    };
    for is_late in [false, true] {
        let mut parts = Parts::new();
        parts.add("файл", |path| fs::write(path, "bytes").unwrap());
        if is_late {
            parts.add_many();
        }
        parts.add("Файл", |path| fs::write(path, "other").unwrap());
        let summary = parts.put(&folding.root()).await;
        told(&summary, "Файл");
        assert_eq!(fs::read_to_string(folding.root().join("файл")).unwrap(), "bytes");
    }
}

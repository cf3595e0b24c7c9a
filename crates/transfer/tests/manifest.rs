//! A manifest lists every file of a transfer by its hash, whether it moved or not.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use common::{Fault, faulty, look, tree};
use tempfile::TempDir;
use tokio::io::duplex;
use transfer::wire::{Compare, Terms};
use transfer::{
    Manifest, Options, Progress, ServeOptions, Summary, TransferError, TransferId, get, put, serve,
};

/// Hashes by name, as a manifest tells them.
fn read(manifest: &Manifest, folder: &Path) -> BTreeMap<String, String> {
    let path = folder.join("manifest");
    manifest.write(&path).unwrap();
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| {
        let (line, is_escaped) =
            line.strip_prefix('\\').map_or((line, false), |escaped| (escaped, true));
        let (hash, name) = line.split_once("  ").unwrap();
        let name = if is_escaped { name.replace("\\n", "\n") } else { name.to_owned() };
        (name, hash.to_owned())
    });
    lines.collect()
}

/// The same of what is below a folder, whose name for the top is `top`.
fn hashes(folder: &Path, top: &str) -> BTreeMap<String, String> {
    let files = look(folder).into_iter().filter(|(_, entry)| entry.mode & 0o170_000 == 0o100_000);
    let named = files.map(|(path, entry)| {
        let path = Path::new(top).join(path);
        let name = String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned();
        (name, blake3::hash(&entry.contents).to_hex().to_string())
    });
    named.collect()
}

/// Copies the tree of a folder, from here to there or from there to here.
async fn copy(
    source: &Path,
    (root, to): (&Path, &str),
    fault: Option<Fault>,
    options: &Options,
    is_put: bool,
) -> Result<Summary, TransferError> {
    let (allowed, progress) = <(ServeOptions, Progress)>::default();
    let (sending, receiving) = fault.map_or_else(|| duplex(10_000), faulty);
    if is_put {
        let sources = [source.join("tree")];
        let putting = put(sending, &sources, Path::new(to), options, &progress);
        tokio::join!(putting, serve(receiving, root, &allowed)).0
    } else {
        let to = root.join(to);
        let getting = get(receiving, Path::new("tree"), &to, options, &progress);
        tokio::join!(getting, serve(sending, source, &allowed)).0
    }
}

fn planted() -> TempDir {
    let source = tree(3, 20_000);
    fs::hard_link(source.path().join("tree/always"), source.path().join("tree/again")).unwrap();
    for number in 0..40_u8 {
        let name = source.path().join(format!("tree/{number}\nth"));
        fs::write(name, vec![number; 5000]).unwrap();
    }
    source
}

fn listing(manifest: &Manifest, terms: Terms) -> Options {
    let id = Some(TransferId::of([&b"manifest"[..]]));
    Options { manifest: Some(manifest.clone()), terms, id, ..Options::default() }
}

#[tokio::test]
async fn every_file_is_listed_by_the_senders_name_for_it() {
    let source = planted();
    for is_put in [true, false] {
        for to in ["", "other"] {
            let [root, notes] = [(); 2].map(|()| TempDir::new().unwrap());
            let manifest = Manifest::default();
            let options = listing(&manifest, Terms::default());
            copy(source.path(), (root.path(), to), None, &options, is_put).await.unwrap();
            let listed = read(&manifest, notes.path());
            assert_eq!(listed, hashes(&source.path().join("tree"), "tree"), "{is_put} {to}");
        }
    }
}

#[tokio::test]
async fn what_stands_there_is_listed_too() {
    let source = planted();
    for (is_put, by) in [(true, Compare::Time), (true, Compare::Content), (false, Compare::Time)] {
        let [root, notes] = [(); 2].map(|()| TempDir::new().unwrap());
        let terms = Terms { compare: Some(by), ..Terms::default() };
        for round in 0..2 {
            let manifest = Manifest::default();
            let options = listing(&manifest, terms.clone());
            let done = copy(source.path(), (root.path(), ""), None, &options, is_put).await;
            assert!((done.unwrap().kept.files > 40) == (round == 1));
            let listed = read(&manifest, notes.path());
            assert_eq!(listed, hashes(&source.path().join("tree"), ""), "{is_put} {by:?} {round}");
        }
    }
}

#[tokio::test]
async fn a_copy_that_goes_on_lists_what_came_before() {
    let source = planted();
    // More than the sender reads before it hears what is there.
    for number in 0..32_u8 {
        let name = source.path().join(format!("tree/large {number}"));
        fs::write(name, vec![number; 1 << 20]).unwrap();
    }
    for is_put in [true, false] {
        let [root, notes] = [(); 2].map(|()| TempDir::new().unwrap());
        let cut = Some(Fault::Cut(28 << 20));
        let options = listing(&Manifest::default(), Terms::default());
        copy(source.path(), (root.path(), ""), cut, &options, is_put).await.unwrap_err();
        // Another process, which knows nothing of what the first one read.
        let manifest = Manifest::default();
        let options = listing(&manifest, Terms::default());
        let done = copy(source.path(), (root.path(), ""), None, &options, is_put).await.unwrap();
        assert!(done.kept.files > 0 && !done.is_partial(), "{is_put} {done:?}");
        let listed = read(&manifest, notes.path());
        assert_eq!(listed, hashes(&source.path().join("tree"), "tree"), "{is_put}");
    }
}

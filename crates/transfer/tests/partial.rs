//! One file that cannot be copied is told by its name, and the rest of the tree arrives.

mod common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{Dice, HalfDisk, Mounted, look, put_to, skip};
use rustix::fs::{Advice, CWD, Mode, OFlags, fadvise, mkdirat, openat};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, duplex};
use transfer::{NoteKind, Options, Progress, ServeOptions, Summary, TransferId, get, put, serve};

/// The one that is told of, with all of these words.
fn tells(summary: &Summary, words: &[&str]) {
    let failed = summary.notes.iter().filter(|note| note.kind == NoteKind::Failed);
    let is_told = |said: &String| words.iter().all(|word| said.contains(word));
    let said: Vec<_> = failed.map(ToString::to_string).collect();
    assert!(said.iter().any(is_told), "{words:?}: {said:?}");
}

/// Puts everything in a folder.
async fn put_all(source: &Path, root: &Path, remote: &str, options: &Options) -> Summary {
    let (allowed, progress) = <(ServeOptions, Progress)>::default();
    let (near, far) = duplex(10_000);
    let sources = [source.to_owned()];
    let putting = put(near, &sources, Path::new(remote), options, &progress);
    let (near, far) = tokio::join!(putting, serve(far, root, &allowed));
    let (near, far) = (near.unwrap(), far.unwrap().summary);
    assert_eq!((near.is_partial(), far.is_partial()), (true, true));
    near
}

#[test]
fn what_may_not_be_read_is_told_and_the_rest_arrives() {
    let folder = TempDir::new().unwrap();
    let (tree, root) = (folder.path().join("tree"), folder.path().join("root"));
    fs::create_dir_all(tree.join("sealed/deep")).unwrap();
    fs::create_dir(&root).unwrap();
    for name in ["before", "closed", "sealed/file", "behind"] {
        fs::write(tree.join(name), "bytes").unwrap();
    }
    let set = |name: &str, mode| {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let closed = ["closed", "sealed"];
    closed.iter().for_each(|name| set(name, 0));
    let (from, to) = (tree.clone(), root.clone());
    // Root as everybody else, in this thread and those that it starts.
    let copy = std::thread::spawn(move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective &= !(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, sets).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(put_all(&from, &to, "", &Options::default()))
    });
    let summary = copy.join().unwrap();
    closed.iter().for_each(|name| set(name, 0o700));
    assert_eq!((summary.counts.files, summary.notes.failed()), (2, 2), "{summary:?}");
    for name in closed {
        tells(&summary, &[&format!("tree/{name}"), "Permission denied", "access"]);
    }
    assert!(root.join("tree/before").exists() && root.join("tree/behind").exists());
}

/// All of it would cross the network for nothing; and of several things what is refused does not count as moved.
#[test]
fn what_may_not_be_made_at_all_ends_the_copy_and_is_no_progress() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o555)).unwrap();
    let sources = ["one", "two"].map(|name| folder.path().join(name));
    for source in &sources {
        fs::write(source, Dice::new(1).bytes(2 << 20)).unwrap();
    }
    // Root as everybody else, in this thread and those that it starts.
    let copying = std::thread::spawn(move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective &= !(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, sets).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let copy = async |sources: &[std::path::PathBuf]| {
            let (options, allowed, progress) = <(Options, ServeOptions, Progress)>::default();
            let (near, far) = duplex(10_000);
            let putting = put(near, sources, Path::new(""), &options, &progress);
            let (put, _) = tokio::join!(putting, serve(far, root.as_path(), &allowed));
            (put, progress.sample().bytes)
        };
        runtime.block_on(async { (copy(&sources[..1]).await, copy(&sources).await) })
    });
    let (one, both) = copying.join().unwrap();
    let text = one.0.unwrap_err().to_string();
    assert!(text.contains("one") && text.contains("Permission denied"), "{text}");
    let summary = both.0.unwrap();
    tells(&summary, &["two", "Permission denied", "access"]);
    assert_eq!((summary.notes.failed(), one.1, both.1), (2, 0, 0));
}

/// Each of several that are fetched is a request of its own.
#[tokio::test]
async fn what_may_not_be_made_ends_a_request_of_its_own_and_not_one_of_several() {
    let [source, there] = [(); 2].map(|()| TempDir::new().unwrap());
    fs::create_dir(source.path().join("one")).unwrap();
    fs::write(there.path().join("one"), "a file in its place").unwrap();
    let mut got = Vec::new();
    for into_directory in [true, false] {
        let options = Options { into_directory, ..Options::default() };
        let (allowed, progress) = <(ServeOptions, Progress)>::default();
        let (near, far) = duplex(10_000);
        let getting = get(near, Path::new("one"), there.path(), &options, &progress);
        got.push(tokio::join!(getting, serve(far, source.path(), &allowed)).0);
    }
    let [several, single] = <[_; 2]>::try_from(got).unwrap();
    assert_eq!(several.unwrap().notes.failed(), 1);
    assert!(single.unwrap_err().to_string().contains("Not a directory"));
}

#[tokio::test]
async fn a_path_too_long_for_the_target_is_told_and_the_rest_arrives() {
    let [source, root] = [(); 2].map(|()| TempDir::new().unwrap());
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut at = openat(CWD, source.path(), flags, Mode::empty()).unwrap();
    let long = "d".repeat(250);
    for name in ["tree"].into_iter().chain([&long[..]; 15]) {
        mkdirat(&at, name, Mode::RWXU).unwrap();
        at = openat(&at, name, flags, Mode::empty()).unwrap();
    }
    let file = "f".repeat(200);
    for name in ["short", &file] {
        openat(&at, name, OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    }
    let tree = source.path().join("tree");
    let summary = put_all(&tree, root.path(), &"n".repeat(200), &Options::default()).await;
    assert_eq!((summary.counts.files, summary.counts.directories), (1, 16), "{summary:?}");
    tells(&summary, &[&file, "too long", "shorten"]);
    // With a name of the same length all of it fits.
    let (near, far) = duplex(10_000);
    let (near, _) = put_to(near, far, &[tree], root.path(), "same").await;
    assert_eq!((near.as_ref().unwrap().counts.files, near.unwrap().notes.failed()), (2, 0));
}

#[tokio::test]
async fn a_name_that_the_target_cannot_hold_is_told_and_the_rest_arrives() {
    let name = "a_name_that_the_target_cannot_hold_is_told_and_the_rest_arrives";
    let mut make = Command::new("mkfs.ntfs");
    let mut mount = Command::new("lowntfs-3g");
    mount.args(["-o", "windows_names"]);
    let Some(disk) = Mounted::new(20 << 20, make.args(["-F", "-q", "-Q"]), &mut mount) else {
        return skip(name, "no file system with other names can be mounted");
    };
    let source = TempDir::new().unwrap();
    for name in ["before", "12:30", "behind"] {
        fs::write(source.path().join(name), "bytes").unwrap();
    }
    let from = source.path().join(".");
    let summary = put_all(&from, &disk.disk(), "", &Options::default()).await;
    assert_eq!((summary.counts.files, summary.notes.failed()), (2, 1), "{summary:?}");
    tells(&summary, &["12:30", "cannot hold such a name", "rename it"]);
}

#[tokio::test]
async fn what_vanishes_after_it_was_listed_is_told_and_the_rest_arrives() {
    let source = TempDir::new().unwrap();
    let tree = source.path().join("tree");
    fs::create_dir(&tree).unwrap();
    // Three times what can wait between the disk and a stream that is not read.
    for number in 0..12 {
        fs::write(tree.join(format!("file-{number}")), vec![7; 1 << 20]).unwrap();
    }
    let root = TempDir::new().unwrap();
    let (near, mut far) = duplex(1000);
    let (options, progress, allowed) = <(Options, Progress, ServeOptions)>::default();
    let serving = async {
        // A first block has come, so the directory was read.
        let mut began = [0; 100];
        far.read_exact(&mut began).await.unwrap();
        fs::remove_dir_all(&tree).unwrap();
        let (rest, writing) = tokio::io::split(far);
        let far = tokio::io::join(std::io::Cursor::new(began).chain(rest), writing);
        serve(far, root.path(), &allowed).await
    };
    let sources = [tree.clone()];
    let putting = put(near, &sources, Path::new(""), &options, &progress);
    let (near, far) = tokio::join!(putting, serving);
    let summary = near.unwrap();
    assert!(far.unwrap().summary.is_partial());
    let (came, failed) = (summary.counts.files, summary.notes.failed());
    assert!(came >= 1 && failed >= 6 && came + failed == 12, "{summary:?}");
    tells(&summary, &["tree/file-", "moved or removed"]);
    assert_eq!(look(root.path()).len() as u64, 2 + came);
}

#[tokio::test]
async fn a_read_error_in_the_middle_of_a_file_is_told_and_the_rest_arrives() {
    let name = "a_read_error_in_the_middle_of_a_file_is_told_and_the_rest_arrives";
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-O", "^has_journal"]);
    let mounted = Mounted::new(40 << 20, &mut make, Command::new("mount").args(["-o", "loop"]));
    let Some(disk) = mounted else { return skip(name, "no file system can be mounted") };
    let tree = disk.disk().join("tree");
    fs::create_dir(&tree).unwrap();
    for (name, size) in [("before", 100), ("large", 20 << 20), ("behind", 100)] {
        fs::write(tree.join(name), Dice::new(size).bytes(size as usize)).unwrap();
        File::open(tree.join(name)).unwrap().sync_all().unwrap();
    }
    // Its end is not on the disk any more, nor in memory.
    let image = File::options().write(true).open(disk.image()).unwrap();
    image.set_len(12 << 20).unwrap();
    let large = File::open(tree.join("large")).unwrap();
    fadvise(&large, 0, None, Advice::DontNeed).unwrap();
    let root = TempDir::new().unwrap();
    let summary = put_all(&tree, root.path(), "", &Options::default()).await;
    assert_eq!((summary.counts.files, summary.notes.failed()), (2, 1), "{summary:?}");
    tells(&summary, &["tree/large", "Input/output error", "disk's health"]);
    let names: Vec<_> = fs::read_dir(root.path().join("tree")).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[tokio::test]
async fn a_write_error_at_the_target_is_told_and_the_rest_arrives() {
    let name = "a_write_error_at_the_target_is_told_and_the_rest_arrives";
    let source = TempDir::new().unwrap();
    let large = Dice::new(1).bytes(20 << 20);
    for (name, bytes) in [("before", &b"good"[..]), ("large", &large), ("behind", b"good")] {
        fs::write(source.path().join(name), bytes).unwrap();
    }
    // What a journal would claim is brought to the disk earlier.
    for id in [None, Some(TransferId::of([&b"half"[..]]))] {
        let Some(disk) = HalfDisk::new(32 << 20) else {
            return skip(name, "no disk that fails can be made");
        };
        let options = Options { id, ..Options::default() };
        let from = source.path().join(".");
        let summary = put_all(&from, disk.path(), "", &options).await;
        assert_eq!((summary.counts.files, summary.notes.failed()), (2, 1), "{summary:?}");
        tells(&summary, &["large", "Input/output error", "disk's health"]);
        for name in ["before", "behind"] {
            assert_eq!(fs::read(disk.path().join(name)).unwrap(), b"good");
        }
        assert!(!disk.path().join("large").exists());
        let names = fs::read_dir(disk.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let is_part = |name: &OsStr| name.to_string_lossy().ends_with(".part");
        assert_eq!(names.filter(|name| is_part(name)).count(), 0);
    }
}

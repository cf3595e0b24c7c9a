//! What is not plain in a tree: holes, several names of one file, extended attributes, owners, names
//! that differ in case alone, and what comes from a pipe or goes to one.

mod common;

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::time::Duration;

use common::{Dice, Folding, get_from, look, put_to, skip};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::process::geteuid;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::time::timeout;
use transfer::wire::{Compare, Terms};
use transfer::{
    NoteKind, Options, Progress, ServeOptions, Summary, get, get_stream, put, put_stream, serve,
};

/// There and back again.
async fn both_ways(tree: &Path, root: &Path, back: &Path, terms: Terms) {
    let (owners, progress) = (terms.owner, Progress::default());
    let allowed = ServeOptions { owners, ..ServeOptions::default() };
    let options = Options { terms, ..Options::default() };
    let (near, far) = duplex(10_000);
    let sources = [tree.to_owned()];
    let putting = put(near, &sources, Path::new("there"), &options, &progress);
    let (near, far) = tokio::join!(putting, serve(far, root, &allowed));
    assert!(!near.unwrap().is_partial() && !far.unwrap().summary.is_partial());
    let (near, far) = duplex(10_000);
    let getting = get(near, Path::new("there"), back, &options, &progress);
    let (near, far) = tokio::join!(getting, serve(far, root, &allowed));
    assert!(!near.unwrap().is_partial() && !far.unwrap().summary.is_partial());
}

fn folders() -> [TempDir; 3] {
    [(); 3].map(|()| TempDir::new().unwrap())
}

/// Else the one side would hash all of it before the other begins.
#[tokio::test]
async fn a_long_hole_goes_on_its_way_before_its_end() {
    let [source, root, _] = folders();
    let hole = source.path().join("hole");
    fs::File::create(&hole).unwrap().set_len((2 << 30) + 1).unwrap();
    let (near, far) = duplex(10_000);
    let summary = put_to(near, far, &[hole], root.path(), "").await.0.unwrap();
    assert!(summary.sending.blocks >= 2, "{summary:?}");
}

#[tokio::test]
async fn holes_stay_holes_wherever_they_are() {
    let [source, root, back] = folders();
    let tree = source.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for (name, size, at) in [
        ("all", 5 << 20, &[][..]),
        ("middle", 9 << 20, &[0, 8 << 20]),
        ("ends", 600 << 20, &[300 << 20]),
        ("odd", (3 << 20) + 7, &[(1 << 20) + 3]),
    ] {
        let mut file = fs::File::create(tree.join(name)).unwrap();
        file.set_len(size).unwrap();
        for &at in at {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(b"bytes").unwrap();
        }
    }
    if fs::metadata(tree.join("all")).unwrap().blocks() > 0 {
        return skip("holes_stay_holes_wherever_they_are", "this file system keeps no holes");
    }
    both_ways(&tree, root.path(), &back.path().join("tree"), Terms::default()).await;
    for name in ["all", "middle", "ends", "odd"] {
        let (sent, came) = (tree.join(name), back.path().join("tree").join(name));
        let (before, after) = (fs::metadata(&sent).unwrap(), fs::metadata(&came).unwrap());
        assert_eq!(before.len(), after.len(), "{name}");
        assert!(after.blocks() <= before.blocks() + 64, "{name}: {}", after.blocks());
        if before.len() < 100 << 20 {
            assert!(fs::read(sent).unwrap() == fs::read(came).unwrap(), "{name}");
        } else {
            let mut piece = [1; 20];
            let mut came = fs::File::open(came).unwrap();
            came.seek(SeekFrom::Start((300 << 20) - 5)).unwrap();
            came.read_exact(&mut piece).unwrap();
            assert_eq!(&piece, b"\0\0\0\0\0bytes\0\0\0\0\0\0\0\0\0\0");
        }
    }
}

#[tokio::test]
async fn what_a_sync_finds_changed_into_holes_becomes_holes() {
    let [source, root, _] = folders();
    let mut dice = Dice::new(1);
    let (first, last) = (dice.bytes(4 << 20), dice.bytes(4 << 20));
    let at = root.path().join("file");
    fs::write(&at, [&first[..], &last].concat()).unwrap();
    // Between them two holes of which one is read, and zeros.
    let new = source.path().join("file");
    let mut file = fs::File::create(&new).unwrap();
    for bytes in [&first[..], &vec![0; 1 << 20], &last] {
        file.write_all(bytes).unwrap();
        file.seek(SeekFrom::Current(if bytes.len() > 1 << 20 { 40 << 20 } else { 2 << 20 }))
            .unwrap();
    }
    file.write_all(b"end").unwrap();
    drop(file);
    if fs::metadata(&new).unwrap().blocks() * 512 > 20 << 20 {
        let name = "what_a_sync_finds_changed_into_holes_becomes_holes";
        return skip(name, "this file system keeps no holes");
    }
    let terms = Terms { compare: Some(Compare::Time), ..Terms::default() };
    let options = Options { terms, ..Options::default() };
    let (allowed, progress) = <(ServeOptions, Progress)>::default();
    let (near, far) = duplex(100_000);
    let sources = [new.clone()];
    let putting = put(near, &sources, Path::new("file"), &options, &progress);
    let (near, _) = tokio::join!(putting, serve(far, root.path(), &allowed));
    let summary = near.unwrap();
    assert!(!summary.is_partial() && summary.kept.begun > 7 << 20, "{summary:?}");
    assert!(fs::read(&new).unwrap() == fs::read(&at).unwrap());
    let blocks = fs::metadata(&at).unwrap().blocks() * 512;
    assert!(blocks < (8 << 20) + (200 << 10), "{blocks}");
}

#[tokio::test]
async fn names_of_one_file_stay_names_of_one_file() {
    let [source, root, back] = folders();
    let tree = source.path().join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    fs::write(tree.join("deep/first"), vec![3; 3000]).unwrap();
    fs::write(tree.join("other"), "other").unwrap();
    for name in ["second", "deep/er/third"] {
        fs::hard_link(tree.join("deep/first"), tree.join(name)).unwrap();
    }
    both_ways(&tree, root.path(), &back.path().join("tree"), Terms::default()).await;
    // Once more over what is there: links are made anew, or found.
    fs::remove_file(root.path().join("there/second")).unwrap();
    fs::write(root.path().join("there/second"), "in the way").unwrap();
    let (near, far) = duplex(10_000);
    put_to(near, far, &[tree.join(".")], root.path(), "there").await.0.unwrap();
    for top in [root.path().join("there"), back.path().join("tree")] {
        let below = |top: &Path| {
            let mut there = look(top);
            // What was there before keeps its own time.
            there.remove(Path::new(""));
            there
        };
        assert_eq!(below(&top), below(&tree));
        let of = |name: &str| fs::metadata(top.join(name)).unwrap();
        assert_eq!(of("deep/first").nlink(), 3, "{top:?}");
        assert_eq!(of("deep/first").ino(), of("second").ino());
        assert_eq!(of("deep/first").ino(), of("deep/er/third").ino());
        assert_eq!(of("other").nlink(), 1);
    }
    assert!(common::leftovers(root.path()).is_empty());
}

#[tokio::test]
async fn large_files_of_several_names_keep_nobody_from_looking_ahead() {
    let [source, root, _] = folders();
    let there = root.path().join("there");
    for top in [source.path(), &there] {
        fs::create_dir_all(top).unwrap();
        for number in 0..8 {
            let mut dice = Dice::new(number);
            let size = if top == there { 1 << 20 } else { (1 << 20) + 1 };
            fs::write(top.join(format!("{number}-0")), dice.bytes(size)).unwrap();
            for other in 1..4 {
                let name = top.join(format!("{number}-{other}"));
                fs::hard_link(top.join(format!("{number}-0")), name).unwrap();
            }
        }
    }
    fs::create_dir(source.path().join("behind")).unwrap();
    fs::write(source.path().join("behind/new"), Dice::new(9).bytes(6 << 20)).unwrap();
    let terms = Terms { compare: Some(Compare::Time), ..Terms::default() };
    let options = Options { terms, ..Options::default() };
    let (allowed, progress) = <(ServeOptions, Progress)>::default();
    let ((near, near_end), (far_end, far)) = (duplex(100_000), duplex(100_000));
    let relaying = async {
        let ((mut from, mut back), (mut behind, mut to)) = (split(near_end), split(far_end));
        let there = async {
            // Differences of all the others, and some of what is behind them.
            tokio::io::copy(&mut (&mut from).take(2 << 20), &mut to).await.unwrap();
            let counted = async {
                while progress.sample().files_total.is_none() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(Duration::from_secs(20), counted).await.expect("they are never counted");
            tokio::io::copy(&mut from, &mut to).await.unwrap();
            to.shutdown().await.unwrap();
        };
        let again = async {
            tokio::io::copy(&mut behind, &mut back).await.unwrap();
            back.shutdown().await.unwrap();
        };
        tokio::join!(there, again)
    };
    let sources = [source.path().to_owned()];
    let putting = put(near, &sources, Path::new("there"), &options, &progress);
    let both = async { tokio::join!(putting, serve(far, root.path(), &allowed)) };
    let ((near, _), _) = tokio::join!(both, relaying);
    let summary = near.unwrap();
    assert_eq!((summary.counts.files, summary.notes.failed()), (33, 0));
    assert!(summary.kept.begun > 7 << 20, "{summary:?}");
    assert_eq!(fs::metadata(there.join("7-3")).unwrap().nlink(), 4);
}

#[tokio::test]
async fn extended_attributes_and_owners_come_along() {
    let name = "extended_attributes_and_owners_come_along";
    let [source, root, back] = folders();
    let tree = source.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "bytes").unwrap();
    fs::write(tree.join("huge"), "bytes").unwrap();
    let set =
        |path: &Path, value: &[u8]| setxattr(path, "user.longhaul", value, XattrFlags::empty());
    if set(&tree, b"of a directory").and_then(|()| set(&tree.join("file"), b"\0\xff")).is_err() {
        return skip(name, "this file system keeps no extended attributes");
    }
    let root_user = geteuid().is_root();
    if root_user {
        chown(tree.join("file"), Some(12_345), Some(54_321)).unwrap();
    }
    both_ways(
        &tree,
        root.path(),
        &back.path().join("tree"),
        Terms { owner: true, ..Terms::default() },
    )
    .await;
    let came = back.path().join("tree");
    let get = |path: &Path| {
        let mut value = [0; 100];
        let length = getxattr(path, "user.longhaul", &mut value)?;
        Ok::<_, rustix::io::Errno>(value[..length].to_vec())
    };
    assert_eq!(get(&came).unwrap(), b"of a directory");
    assert_eq!(get(&came.join("file")).unwrap(), b"\0\xff");
    let owner = fs::metadata(came.join("file")).unwrap();
    if root_user {
        assert_eq!((owner.uid(), owner.gid()), (12_345, 54_321));
    }
    // Without being asked for, owners are not kept, nor where the server does not set them.
    for (owner, skipped) in [(false, 0), (true, 1)] {
        let (allowed, progress) = <(ServeOptions, Progress)>::default();
        let terms = Terms { owner, ..Terms::default() };
        let options = Options { terms, ..Options::default() };
        let (near, far) = duplex(1000);
        let sources = [tree.join("file")];
        let putting = put(near, &sources, Path::new("mine"), &options, &progress);
        let (near, _) = tokio::join!(putting, serve(far, root.path(), &allowed));
        assert_eq!(near.unwrap().notes.iter().count(), skipped);
        let mine = fs::metadata(root.path().join("mine")).unwrap();
        assert_eq!(mine.uid(), geteuid().as_raw());
    }
}

#[tokio::test]
async fn names_that_differ_in_case_alone_do_not_swallow_each_other() {
    let name = "names_that_differ_in_case_alone_do_not_swallow_each_other";
    let Some(folding) = Folding::exact() else {
        return skip(name, "no file system that ignores case can be mounted");
    };
    let root = folding.root();
    let source = TempDir::new().unwrap();
    let tree = source.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for name in ["readme", "README", "Other", "1"] {
        fs::write(tree.join(name), name).unwrap();
    }
    for round in 0..2 {
        let (near, far) = duplex(10_000);
        let summary = put_to(near, far, &[tree.join(".")], &root, "").await.0.unwrap();
        assert_eq!((summary.counts.files, summary.notes.failed()), (3, 1), "{round}: {summary:?}");
        let note = summary.notes.iter().next().unwrap().to_string();
        assert!(note.to_lowercase().contains("readme") && note.contains("case"), "{note}");
        let there = look(&root);
        assert_eq!(there.len(), 4, "{there:?}");
        for (path, entry) in there.into_iter().filter(|(path, _)| !path.as_os_str().is_empty()) {
            assert_eq!(entry.contents, path.into_os_string().into_encoded_bytes());
        }
    }
}

#[tokio::test]
async fn what_stands_under_a_name_in_other_letters_is_not_removed() {
    let name = "what_stands_under_a_name_in_other_letters_is_not_removed";
    let Some(folding) = Folding::new() else {
        return skip(name, "no file system that ignores case can be mounted");
    };
    let root = folding.root();
    let source = TempDir::new().unwrap();
    let tree = source.path().join("tree");
    fs::create_dir_all(tree.join("Docs")).unwrap();
    fs::write(tree.join("Docs/file"), "new").unwrap();
    fs::create_dir(root.join("docs")).unwrap();
    for name in ["docs/extra", "extra"] {
        fs::write(root.join(name), "old").unwrap();
    }
    let terms = Terms { compare: Some(Compare::Time), removes: true, ..Terms::default() };
    let (allowed, progress) = <(ServeOptions, Progress)>::default();
    let options = Options { terms, ..Options::default() };
    let (near, far) = duplex(10_000);
    let sources = [tree];
    let putting = put(near, &sources, Path::new(""), &options, &progress);
    let (near, _) = tokio::join!(putting, serve(far, root.as_path(), &allowed));
    let summary = near.unwrap();
    assert_eq!((summary.counts.removed, summary.notes.failed()), (2, 0), "{summary:?}");
    let names: Vec<_> = look(&root).into_keys().collect();
    assert_eq!(names, ["", "docs", "docs/file"].map(std::path::PathBuf::from));
}

/// Puts what comes from a pipe.
async fn from_pipe(bytes: Vec<u8>, root: &Path, remote: &str) -> Result<Summary, String> {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let writing = std::thread::spawn(move || {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let _ = writer.write_all(first);
        std::thread::sleep(std::time::Duration::from_millis(300));
        let _ = writer.write_all(second);
    });
    let (allowed, options, progress) = <(ServeOptions, Options, Progress)>::default();
    let (near, far) = duplex(10_000);
    let putting = put_stream(near, OwnedFd::from(reader), Path::new(remote), &options, &progress);
    let (near, _) = tokio::join!(putting, serve(far, root, &allowed));
    writing.join().unwrap();
    near.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_pipe_becomes_a_file_and_a_file_goes_into_a_pipe() {
    let [root, ..] = folders();
    for (name, size) in [("empty", 0), ("some", 12_345), ("deep/much", 3_000_000)] {
        let bytes = common::Dice::new(size).bytes(size as usize);
        let summary = from_pipe(bytes.clone(), root.path(), name).await.unwrap();
        assert_eq!((summary.counts.files, summary.counts.bytes), (1, size));
        assert!(fs::read(root.path().join(name)).unwrap() == bytes);

        let (mut reader, writer) = std::io::pipe().unwrap();
        let came = std::thread::spawn(move || {
            let mut came = Vec::new();
            reader.read_to_end(&mut came).unwrap();
            came
        });
        let (allowed, options, progress) = <(ServeOptions, Options, Progress)>::default();
        let (near, far) = duplex(10_000);
        let getting = get_stream(near, Path::new(name), OwnedFd::from(writer), &options, &progress);
        let (near, far) = tokio::join!(getting, serve(far, root.path(), &allowed));
        assert_eq!(near.unwrap().counts.bytes, size);
        assert_eq!(far.unwrap().summary.counts.bytes, size);
        assert!(came.join().unwrap() == bytes);
    }
    assert!(from_pipe(vec![1], root.path(), "deep/").await.unwrap_err().contains("name the file"));
    fs::create_dir(root.path().join("folder")).unwrap();
    let summary = from_pipe(vec![1], root.path(), "folder").await.unwrap();
    assert_eq!((summary.counts.files, summary.notes.failed()), (0, 1));
}

#[tokio::test]
async fn text_is_packed_on_its_way_from_a_pipe_and_into_one() {
    let [root, ..] = folders();
    let text: Vec<u8> =
        (0..1_000_000_u32).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
    let terms = Terms { packs: true, ..Terms::default() };
    let options = Options { terms, ..Options::default() };
    let (allowed, progress) = <(ServeOptions, Progress)>::default();
    let passing = |mut one: DuplexStream, mut other: DuplexStream| {
        tokio::spawn(
            async move { tokio::io::copy_bidirectional(&mut one, &mut other).await.unwrap() },
        )
    };

    let (reader, mut writer) = std::io::pipe().unwrap();
    let bytes = text.clone();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let writing = std::thread::spawn(move || {
        // So much waits on its way, and all but the first of it is packed meanwhile; less on a busy machine,
        // where what is written in small pieces goes on its way in such.
        let (first, rest) = bytes.split_at(3 << 20);
        writer.write_all(first)?;
        let _ = begin.send(());
        writer.write_all(rest)
    });
    let ((near, near_end), (far_end, far)) = (duplex(1000), duplex(1000));
    let counting = tokio::spawn(async move {
        let _ = timeout(Duration::from_secs(2), begun).await;
        passing(near_end, far_end).await.unwrap()
    });
    let putting = put_stream(near, reader.into(), Path::new("text"), &options, &progress);
    let (near, _) = tokio::join!(putting, serve(far, root.path(), &allowed));
    assert_eq!(near.unwrap().counts.bytes, text.len() as u64);
    writing.join().unwrap().unwrap();
    assert!(fs::read(root.path().join("text")).unwrap() == text);
    let (sent, _) = counting.await.unwrap();
    assert!(sent < text.len() as u64 / 10 * 9, "{sent} of {}", text.len());

    let (mut reader, writer) = std::io::pipe().unwrap();
    let reading = std::thread::spawn(move || {
        let mut came = Vec::new();
        reader.read_to_end(&mut came).map(|_| came)
    });
    let ((near, near_end), (far_end, far)) = (duplex(1000), duplex(1000));
    let counting = passing(near_end, far_end);
    let getting = get_stream(near, Path::new("text"), writer.into(), &options, &progress);
    let (near, _) = tokio::join!(getting, serve(far, root.path(), &allowed));
    assert_eq!(near.unwrap().counts.bytes, text.len() as u64);
    assert!(reading.join().unwrap().unwrap() == text);
    let (_, sent) = counting.await.unwrap();
    assert!(sent < text.len() as u64 / 10 * 9, "{sent} of {}", text.len());
}

#[test]
fn who_no_longer_wants_it_waits_for_no_reader_of_a_pipe() {
    let [root, ..] = folders();
    fs::write(root.path().join("file"), vec![7; 1 << 20]).unwrap();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    // As much as it holds.
    writer.write_all(&[0; 64 << 10]).unwrap();
    let (ended, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let (allowed, options, progress) = <(ServeOptions, Options, Progress)>::default();
            let (near, far) = duplex(10_000);
            let getting = get_stream(near, Path::new("file"), writer.into(), &options, &progress);
            let stalled = async {
                while progress.sample().bytes == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                both = async { tokio::join!(getting, serve(far, root.path(), &allowed)) } => {
                    panic!("nobody has read it: {both:?}")
                }
                () = stalled => {}
            }
        });
        // It waits for its threads.
        drop(runtime);
        ended.send(()).unwrap();
    });
    has_ended.recv_timeout(Duration::from_secs(20)).unwrap();
}

#[tokio::test]
async fn a_tree_does_not_go_into_a_pipe() {
    let [root, ..] = folders();
    fs::create_dir(root.path().join("folder")).unwrap();
    let (_reader, writer) = std::io::pipe().unwrap();
    let (allowed, options, progress) = <(ServeOptions, Options, Progress)>::default();
    let (near, far) = duplex(10_000);
    let getting = get_stream(near, Path::new("folder"), OwnedFd::from(writer), &options, &progress);
    let (near, far) = tokio::join!(getting, serve(far, root.path(), &allowed));
    assert!(near.unwrap_err().to_string().contains("single file"));
    far.unwrap_err();
}

#[tokio::test]
async fn a_read_error_names_the_file_and_the_rest_goes_on() {
    let name = "a_read_error_names_the_file_and_the_rest_goes_on";
    // It can be opened, says that it has bytes, and gives none: loopback has no speed.
    let bad = Path::new("/sys/class/net/lo/speed");
    let Some(error) = fs::read(bad).err().filter(|error| error.raw_os_error().is_some()) else {
        return skip(name, "no file here fails to be read");
    };
    let [tree, root, _] = folders();
    for name in ["before", "behind"] {
        fs::write(tree.path().join(name), "good").unwrap();
    }
    let sources = [tree.path().join("before"), bad.to_owned(), tree.path().join("behind")];
    let (near, far) = duplex(1000);
    let (near, far) = put_to(near, far, &sources, root.path(), "into/").await;
    let near = near.unwrap();
    assert_eq!(near, far.unwrap().summary);
    assert_eq!((near.counts.files, near.notes.failed()), (2, 1), "{error}");
    let note = near.notes.iter().next().unwrap();
    assert!(note.kind == NoteKind::Failed && note.to_string().contains("lo/speed"), "{note}");
    assert_eq!(look(&root.path().join("into")).len(), 3);
}

#[tokio::test]
async fn what_stands_elsewhere_is_got_whole() {
    // Names of one file of which only one is asked for.
    let [root, back, _] = folders();
    fs::write(root.path().join("a"), "bytes").unwrap();
    fs::hard_link(root.path().join("a"), root.path().join("b")).unwrap();
    let (near, far) = duplex(1000);
    get_from(near, far, root.path(), "b", back.path()).await.0.unwrap();
    assert_eq!(fs::read(back.path().join("b")).unwrap(), b"bytes");
}

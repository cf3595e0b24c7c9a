//! A target that becomes full, or would.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Dice, Mounted, leftovers, look, put_to, skip};
use tempfile::TempDir;
use tokio::io::duplex;
use transfer::wire::{Compare, Terms};
use transfer::{Options, Progress, ServeOptions, Summary, TransferError, TransferId, put, serve};

#[tokio::test]
async fn what_was_there_before_the_disk_was_full_is_counted_on_both_sides() {
    let name = "what_was_there_before_the_disk_was_full_is_counted_on_both_sides";
    let Some(disk) = Mounted::memory(4 << 20) else {
        return skip(name, "only root may mount a small file system");
    };
    // It may give way, for all that anybody knows, and so the copy is begun.
    fs::write(disk.disk().join("old"), "old").unwrap();
    let source = TempDir::new().unwrap();
    let sources = ["one", "two", "large", "never"].map(|name| source.path().join(name));
    for (path, size) in sources.iter().zip([1, 1 << 20, 40 << 20, 1]) {
        fs::write(path, Dice::new(size).bytes(size as usize)).unwrap();
    }
    let (near, far) = duplex(10_000);
    let (options, progress) = <(Options, Progress)>::default();
    let allowed = ServeOptions::default();
    let root = disk.disk();
    let putting = put(near, &sources, Path::new(""), &options, &progress);
    let (near, far) = tokio::join!(putting, serve(far, root.as_path(), &allowed));
    for error in [near.unwrap_err(), far.unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains("large") && text.contains("free space"), "{text}");
    }
    assert_eq!((progress.sample().files, allowed.progress.sample().files), (2, 2));
    let names: Vec<_> = look(&root).into_keys().collect();
    assert_eq!(names, ["", "old", "one", "two"].map(PathBuf::from));
}

#[tokio::test]
async fn a_sync_that_can_never_find_room_is_not_begun_and_its_rehearsal_is() {
    let name = "a_sync_that_can_never_find_room_is_not_begun_and_its_rehearsal_is";
    let Some(disk) = Mounted::memory(24 << 20) else {
        return skip(name, "only root may mount a small file system");
    };
    let source = TempDir::new().unwrap();
    fs::write(source.path().join("a"), "a").unwrap();
    fs::write(source.path().join("large"), Dice::new(1).bytes(60 << 20)).unwrap();
    let sync = async |rehearses: bool| {
        let (near, far) = duplex(10_000);
        let terms = Terms { compare: Some(Compare::Time), rehearses, ..Terms::default() };
        let (options, progress) = (Options { terms, ..Options::default() }, Progress::new());
        let (allowed, root) = (ServeOptions::default(), disk.disk());
        let sources = [source.path().to_owned()];
        let putting = put(near, &sources, Path::new(""), &options, &progress);
        tokio::join!(putting, serve(far, root.as_path(), &allowed)).0
    };
    let text = sync(false).await.unwrap_err().to_string();
    assert!(text.contains("No space left for all of it"), "{text}");
    assert_eq!(sync(true).await.unwrap().notes.would(), 2);
    // What stands there needs no room again.
    fs::write(source.path().join("large"), Dice::new(1).bytes(3 << 20)).unwrap();
    assert_eq!(sync(false).await.unwrap().counts.files, 2);
    assert_eq!(sync(false).await.unwrap().kept.files, 2);
}

#[tokio::test]
async fn what_can_never_find_room_beside_others_is_not_begun() {
    let name = "what_can_never_find_room_beside_others_is_not_begun";
    let Some(disk) = Mounted::memory(24 << 20) else {
        return skip(name, "only root may mount a small file system");
    };
    let data = disk.disk().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("old"), "old").unwrap();
    let source = TempDir::new().unwrap();
    let tree = source.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("large"), Dice::new(1).bytes(60 << 20)).unwrap();
    for remote in ["data", "data/"] {
        let (near, far) = duplex(10_000);
        let near = put_to(near, far, std::slice::from_ref(&tree), &disk.disk(), remote).await.0;
        let text = near.unwrap_err().to_string();
        assert!(text.contains("No space left for all of it"), "{remote}: {text}");
        // It may have come so far.
        let _ = fs::remove_dir_all(data.join("tree"));
    }
    // It may give way.
    fs::create_dir(data.join("tree")).unwrap();
    let (near, far) = duplex(10_000);
    let near = put_to(near, far, &[tree], &disk.disk(), "data/").await.0;
    let text = near.unwrap_err().to_string();
    assert!(!text.contains("for all of it"), "{text}");
}

#[tokio::test]
async fn holes_need_no_room() {
    let Some(disk) = Mounted::memory(1 << 20) else {
        return skip("holes_need_no_room", "only root may mount a small file system");
    };
    let source = TempDir::new().unwrap();
    let tree = source.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for name in ["one", "two", "three"] {
        fs::File::create(tree.join(name)).unwrap().set_len(40 << 20).unwrap();
    }
    fs::write(tree.join("bytes"), vec![7; 300 << 10]).unwrap();
    for name in ["a", "b", "c", "d"] {
        fs::hard_link(tree.join("bytes"), tree.join(name)).unwrap();
    }
    let (near, far) = duplex(10_000);
    let summary = put_to(near, far, &[tree], &disk.disk(), "").await.0.unwrap();
    assert_eq!((summary.counts.files, summary.notes.failed()), (8, 0), "{summary:?}");
}

/// One sitting of a transfer into a directory, in which something may give way to it for all that anybody knows.
async fn sitting(sources: &[PathBuf], root: &Path) -> Result<Summary, TransferError> {
    let id = Some(TransferId::of([&b"test"[..]]));
    let options = Options { id, into_directory: true, ..Options::default() };
    let (progress, allowed) = <(Progress, ServeOptions)>::default();
    let (near, far) = duplex(100_000);
    let putting = put(near, sources, Path::new(""), &options, &progress);
    tokio::join!(putting, serve(far, root, &allowed)).0
}

/// Names there, but for those of journals; and how many of these there are.
fn names(root: &Path) -> (Vec<String>, usize) {
    let all = look(root).into_keys().map(|path| path.display().to_string());
    let (journals, names): (Vec<_>, _) = all.partition(|name| name.ends_with(".journal"));
    (names, journals.len())
}

#[tokio::test]
async fn what_is_larger_than_the_disk_leaves_nothing_however_often_it_is_tried() {
    let name = "what_is_larger_than_the_disk_leaves_nothing_however_often_it_is_tried";
    let Some(disk) = Mounted::memory(24 << 20) else {
        return skip(name, "only root may mount a small file system");
    };
    let (source, root) = (TempDir::new().unwrap(), disk.disk());
    fs::write(root.join("old"), "old").unwrap();
    let [small, huge] = ["small", "huge"].map(|name| source.path().join(name));
    fs::write(&small, "small").unwrap();
    fs::write(&huge, Dice::new(1).bytes(40 << 20)).unwrap();
    let sets = [
        (vec![huge.clone()], ["", "old"].to_vec(), 0),
        (vec![small, huge], ["", "old", "small"].to_vec(), 1),
    ];
    for (sources, stays, journals) in sets {
        for _ in 0..2 {
            let text = sitting(&sources, &root).await.unwrap_err().to_string();
            assert!(text.contains("huge") && text.contains("free space"), "{text}");
            assert_eq!(names(&root), (stays.iter().map(ToString::to_string).collect(), journals));
        }
    }
}

#[tokio::test]
async fn what_is_larger_than_the_disk_leaves_nothing_where_that_shows_late() {
    let name = "what_is_larger_than_the_disk_leaves_nothing_where_that_shows_late";
    // It promises room that what it stands on has not.
    let thin = Mounted::memory(32 << 20);
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-O", "^has_journal", "-E", "lazy_itable_init=0"]);
    let mut mount = Command::new("mount");
    let disk = thin.as_ref().and_then(|thin| {
        Mounted::within(&thin.disk(), 80 << 20, &mut make, mount.args(["-o", "loop"]))
    });
    let Some(disk) = disk else {
        return skip(name, "only root may mount a file system");
    };
    let (source, root) = (TempDir::new().unwrap(), disk.disk());
    let huge = source.path().join("huge");
    fs::write(&huge, Dice::new(1).bytes(100 << 20)).unwrap();
    let text = sitting(&[huge], &root).await.unwrap_err().to_string();
    assert!(text.contains("huge") && text.contains("free space"), "{text}");
    assert_eq!((leftovers(&root), names(&root).1), (vec![], 0));
}

#[tokio::test]
async fn what_had_come_before_the_disk_was_full_does_not_go_again() {
    let name = "what_had_come_before_the_disk_was_full_does_not_go_again";
    let Some(disk) = Mounted::memory(48 << 20) else {
        return skip(name, "only root may mount a small file system");
    };
    let (source, root) = (TempDir::new().unwrap(), disk.disk());
    let large = source.path().join("large");
    // With a hole it is longer than the disk, and needs no more room.
    for hole in [0, 40 << 20] {
        fs::write(root.join("old"), vec![7; 20 << 20]).unwrap();
        let file = fs::File::create(&large).unwrap();
        file.write_all_at(&Dice::new(1).bytes(40 << 20), hole).unwrap();
        let text = sitting(std::slice::from_ref(&large), &root).await.unwrap_err().to_string();
        assert!(text.contains("large") && text.contains("free space"), "{text}");
        // Nor is it lost where nothing at all can be written, not even what is left of it.
        let mut filler = fs::File::create(root.join("filler")).unwrap();
        while filler.write_all(&[7; 4096]).is_ok() {}
        let text = sitting(std::slice::from_ref(&large), &root).await.unwrap_err().to_string();
        assert!(text.contains("earlier copy") && text.contains("free space"), "{text}");
        for name in ["old", "filler"] {
            fs::remove_file(root.join(name)).unwrap();
        }
        let summary = sitting(std::slice::from_ref(&large), &root).await.unwrap();
        assert!(summary.kept.begun >= 16 << 20, "{summary:?}");
        assert_eq!(names(&root), (["", "large"].map(str::to_owned).into(), 0));
        fs::remove_file(root.join("large")).unwrap();
    }
}

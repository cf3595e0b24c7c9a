//! Two trees made the same: what is equal is not sent, what has changed only where it has, and what the
//! source does not have goes, if asked for.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use common::{Dice, Mounted, look, shared, skip};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tempfile::TempDir;
use tokio::io::duplex;
use transfer::wire::{AHEAD, Compare, Terms};
use transfer::{
    Budget, NoteKind, Options, Progress, ServeOptions, Summary, TransferId, get, put, serve,
};

fn terms() -> Terms {
    Terms { compare: Some(Compare::Time), ..Terms::default() }
}

fn removing() -> Terms {
    Terms { removes: true, ..terms() }
}

/// Makes `there` the same as `here`, one way or the other; tells also how many bytes went to the
/// receiver, and how many came back.
async fn sync(here: &Path, there: &Path, terms: Terms, is_put: bool) -> (Summary, u64, u64) {
    sync_by(here, there, &Options { terms, ..Options::default() }, is_put).await
}

async fn sync_by(
    here: &Path,
    there: &Path,
    options: &Options,
    is_put: bool,
) -> (Summary, u64, u64) {
    let (allowed, progress) = <(ServeOptions, Progress)>::default();
    let (near, mut near_end) = duplex(100_000);
    let (mut far_end, far) = duplex(100_000);
    let counting = tokio::spawn(async move {
        tokio::io::copy_bidirectional(&mut near_end, &mut far_end).await.unwrap()
    });
    let (near, far) = if is_put {
        let sources = [here.to_owned()];
        let root = there.parent().unwrap();
        let remote = Path::new(there.file_name().unwrap());
        let putting = put(near, &sources, remote, options, &progress);
        tokio::join!(putting, serve(far, root, &allowed))
    } else {
        let root = here.parent().unwrap();
        let remote = Path::new(here.file_name().unwrap());
        let getting = get(near, remote, there, options, &progress);
        tokio::join!(getting, serve(far, root, &allowed))
    };
    let (near, far) = (shared(near.unwrap()), shared(far.unwrap().summary));
    assert_eq!(near, far);
    let (to_far, to_near) = counting.await.unwrap();
    if is_put { (near, to_far, to_near) } else { (near, to_near, to_far) }
}

/// As `sync`, with the rights of an ordinary user: root as everybody else, in this thread and those that it starts.
fn sync_as_anybody(here: &Path, there: &Path, terms: Terms) -> Summary {
    let (here, there) = (here.to_owned(), there.to_owned());
    let syncing = std::thread::spawn(move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective &= !(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, sets).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(sync(&here, &there, terms, true)).0
    });
    syncing.join().unwrap()
}

fn permit(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// What is below a path; its own time does not count.
fn below(top: &Path) -> std::collections::BTreeMap<PathBuf, common::Entry> {
    let mut there = look(top);
    there.remove(Path::new(""));
    there
}

/// Lets a file seem older by a second.
fn age(path: &Path) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    let file = fs::File::open(path).unwrap();
    file.set_modified(before - Duration::from_secs(1)).unwrap();
}

fn folders() -> (TempDir, PathBuf, PathBuf) {
    let folder = TempDir::new().unwrap();
    let (here, there) = (folder.path().join("here/tree"), folder.path().join("far/copy"));
    fs::create_dir_all(&here).unwrap();
    fs::create_dir_all(there.parent().unwrap()).unwrap();
    (folder, here, there)
}

#[tokio::test]
async fn an_unchanged_tree_sends_next_to_nothing() {
    for is_put in [true, false] {
        let (_folder, here, there) = folders();
        for directory in 0..20 {
            let directory = here.join(directory.to_string());
            fs::create_dir(&directory).unwrap();
            for file in 0..100 {
                fs::write(directory.join(format!("file-{file}")), file.to_string()).unwrap();
            }
            symlink("file-1", directory.join("link")).unwrap();
        }
        let (first, ..) = sync(&here, &there, removing(), is_put).await;
        assert_eq!((first.counts.files, first.kept.files), (2000, 0));
        assert_eq!(below(&here), below(&there));
        let before = fs::metadata(there.join("3/file-3")).unwrap().ino();
        let (second, sent, told) = sync(&here, &there, removing(), is_put).await;
        assert_eq!((second.counts.files, second.kept.files), (2000, 2000));
        assert_eq!((second.counts.symlinks, second.notes.iter().count()), (0, 0));
        // 5 MB for 100,000 files are 50 bytes each.
        assert!(sent + told < 2000 * 50, "{sent} and {told}");
        assert_eq!(fs::metadata(there.join("3/file-3")).unwrap().ino(), before);
        assert_eq!(below(&here), below(&there));
    }
}

#[tokio::test]
async fn whatever_has_changed_is_the_same_again() {
    for is_put in [true, false] {
        let (_folder, here, there) = folders();
        common::plant(&here, &mut Dice::new(7), 3, 5000);
        for name in ["grows", "older", "mode", "goes", "same"] {
            fs::write(here.join(name), name).unwrap();
        }
        fs::create_dir_all(here.join("leaves/deep")).unwrap();
        fs::write(here.join("leaves/deep/file"), "x").unwrap();
        symlink("one", here.join("link")).unwrap();
        sync(&here, &there, removing(), is_put).await;

        fs::write(here.join("grows"), "longer than it was").unwrap();
        age(&here.join("older"));
        fs::set_permissions(here.join("mode"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_file(here.join("goes")).unwrap();
        fs::remove_dir_all(here.join("leaves")).unwrap();
        fs::create_dir(here.join("new")).unwrap();
        fs::write(here.join("new/file"), "new").unwrap();
        fs::remove_file(here.join("link")).unwrap();
        symlink("two", here.join("link")).unwrap();
        let inode = |name: &str| fs::metadata(there.join(name)).unwrap().ino();
        let (same, mode) = (inode("same"), inode("mode"));

        let (kept, ..) = sync(&here, &there, terms(), is_put).await;
        assert_eq!(kept.counts.removed, 0);
        assert!(there.join("goes").exists() && there.join("leaves/deep/file").exists());
        let (summary, ..) = sync(&here, &there, removing(), is_put).await;
        assert_eq!(summary.counts.removed, 4, "a file, two directories and what was in them");
        assert_eq!(below(&here), below(&there));
        assert_eq!((inode("same"), inode("mode")), (same, mode), "neither was written anew");
    }
}

/// No copy makes a directory of such a name.
#[tokio::test]
async fn a_directory_with_the_name_of_a_part_goes_with_the_rest() {
    let (_folder, here, there) = folders();
    fs::write(here.join("a"), "a").unwrap();
    sync(&here, &there, removing(), true).await;
    let [folder, part] = [1, 2].map(|number| format!(".x.longhaul-{number:017x}.part"));
    for directory in [there.clone(), there.join("gone")] {
        fs::create_dir_all(directory.join(&folder)).unwrap();
        fs::write(directory.join(&folder).join("file"), "x").unwrap();
    }
    fs::write(there.join(&part), "of another copy").unwrap();
    let (summary, ..) = sync(&here, &there, removing(), true).await;
    assert_eq!((summary.notes.failed(), summary.counts.removed), (0, 5), "{summary:?}");
    assert!(below(&there).into_keys().eq([PathBuf::from(part), "a".into()]));
}

#[tokio::test]
async fn by_content_no_time_deceives() {
    let (_folder, here, there) = folders();
    for name in ["a", "b", "c"] {
        fs::write(here.join(name), [name, "rest"].concat()).unwrap();
    }
    sync(&here, &there, terms(), true).await;
    // Another content of the same size and time, and another time of the same content.
    let time = fs::metadata(there.join("a")).unwrap().modified().unwrap();
    fs::write(there.join("a"), "xrest").unwrap();
    fs::File::open(there.join("a")).unwrap().set_modified(time).unwrap();
    age(&here.join("b"));
    let (by_time, ..) = sync(&here, &there, Terms { rehearses: true, ..terms() }, true).await;
    assert_eq!((by_time.counts.files, by_time.kept.files), (3, 2));
    let by_content = Terms { compare: Some(Compare::Content), ..terms() };
    let (would, ..) =
        sync(&here, &there, Terms { rehearses: true, ..by_content.clone() }, true).await;
    // What would be given another time is not equal.
    assert_eq!(would.kept.files, 1, "{would:?}");
    let (summary, ..) = sync(&here, &there, by_content, true).await;
    assert_eq!(summary.kept.files, 2);
    assert_eq!(below(&here), below(&there));
}

#[tokio::test]
async fn what_stands_there_is_done_and_has_not_moved() {
    let (_folder, here, there) = folders();
    for (name, size) in [("a", 1000), ("b", 2000), ("c", 4000)] {
        fs::write(here.join(name), vec![7; size]).unwrap();
    }
    sync(&here, &there, terms(), true).await;
    age(&here.join("b"));
    let (options, progress) = (Options { terms: terms(), ..Options::default() }, Progress::new());
    // A second sitting of the same copy does not count it twice.
    for moved in [2000, 0] {
        let (near, far) = duplex(10_000);
        let (sources, remote) = ([here.clone()], Path::new("copy"));
        let allowed = ServeOptions::default();
        let putting = put(near, &sources, remote, &options, &progress);
        tokio::join!(putting, serve(far, there.parent().unwrap(), &allowed)).0.unwrap();
        let sample = progress.sample();
        assert_eq!((sample.bytes, sample.kept_bytes), (moved, 7000 - moved));
        assert_eq!((sample.done_files(), sample.done_bytes()), (3, 7000));
    }
    // Nor does one that is cut before it has compared anything go back.
    let near = duplex(1000).0;
    put(near, &[here], Path::new("copy"), &options, &progress).await.unwrap_err();
    assert_eq!((progress.sample().done_files(), progress.sample().done_bytes()), (3, 7000));
}

/// The other side counts it from its journal.
#[tokio::test]
async fn what_an_earlier_sitting_has_brought_is_not_counted_twice() {
    let (_folder, here, there) = folders();
    fs::write(here.join("stood"), "stood").unwrap();
    sync(&here, &there, terms(), true).await;
    for number in 0..300 {
        fs::write(here.join(number.to_string()), "moves").unwrap();
    }
    // Something fails, so that the journal stays.
    fs::write(here.join("z"), "z").unwrap();
    fs::create_dir_all(there.join("z/in the way")).unwrap();
    let terms = Terms { compare: Some(Compare::Content), ..terms() };
    let id = Some(TransferId::of([&b"test"[..]]));
    let (options, progress) = (Options { terms, id, ..Options::default() }, Progress::new());
    for _ in 0..2 {
        let (near, far) = duplex(10_000);
        let (sources, remote) = ([here.clone()], Path::new("copy"));
        let allowed = ServeOptions::default();
        let putting = put(near, &sources, remote, &options, &progress);
        let put = tokio::join!(putting, serve(far, there.parent().unwrap(), &allowed)).0.unwrap();
        assert_eq!(put.notes.failed(), 1, "{put:?}");
        let sample = progress.sample();
        assert_eq!((sample.files, sample.kept_files), (300, 1), "{sample:?}");
        assert_eq!((sample.bytes, sample.kept_bytes), (1500, 5), "{sample:?}");
    }
}

/// What found no memory counts as missing, and would be told of as a difference.
#[tokio::test]
async fn a_comparison_of_more_than_there_is_memory_for_fails_and_a_sync_tells() {
    let (_folder, here, there) = folders();
    for name in ["a", "b", "c"] {
        fs::write(here.join(name), name).unwrap();
    }
    sync(&here, &there, terms(), false).await;
    for (rehearses, budget, notes) in
        [(true, 50, (1, 0)), (false, 50, (0, 1)), (true, 500, (0, 0)), (false, 500, (0, 0))]
    {
        let terms = Terms { rehearses, ..terms() };
        let (options, progress) = (Options { terms, ..Options::default() }, Progress::new());
        let allowed = ServeOptions { budget: Budget::new(budget), ..ServeOptions::default() };
        let (near, far) = duplex(10_000);
        let getting = get(near, Path::new("tree"), &there, &options, &progress);
        let serving = serve(far, here.parent().unwrap(), &allowed);
        let summary = tokio::join!(getting, serving).0.unwrap();
        assert_eq!((summary.notes.failed(), summary.notes.skipped()), notes, "{summary:?}");
        assert_eq!(summary.kept.files, if budget < 100 { 1 } else { 3 });
    }
}

#[tokio::test]
async fn a_rehearsal_tells_all_and_changes_nothing() {
    for is_put in [true, false] {
        let (_folder, here, there) = folders();
        fs::create_dir(here.join("folder")).unwrap();
        for name in ["changed", "equal", "folder/new"] {
            fs::write(here.join(name), "1").unwrap();
        }
        let rehearsal = Terms { rehearses: true, ..removing() };
        let (first, sent, _) = sync(&here, &there, rehearsal.clone(), is_put).await;
        assert!(!there.exists() && sent < 2000);
        assert_eq!((first.counts.files, first.counts.directories), (3, 1), "{first:?}");
        fs::create_dir(&there).unwrap();
        fs::write(there.join("changed"), "old").unwrap();
        fs::write(there.join("extra"), "old").unwrap();
        fs::copy(here.join("equal"), there.join("equal")).unwrap();
        let time = fs::metadata(here.join("equal")).unwrap().modified().unwrap();
        fs::File::open(there.join("equal")).unwrap().set_modified(time).unwrap();
        let before = look(&there);
        let (summary, ..) = sync(&here, &there, rehearsal, is_put).await;
        assert_eq!(before, look(&there));
        let mut told: Vec<_> = summary.notes.iter().map(ToString::to_string).collect();
        assert!(summary.notes.iter().all(|note| note.kind == NoteKind::Would));
        told.sort();
        let expected = [
            "changed\": would be changed",
            "extra\": would be removed",
            "folder\": would be copied",
            "folder/new\": would be copied",
        ];
        assert!(told.iter().zip(expected).all(|(told, end)| told.ends_with(end)), "{told:?}");
        assert_eq!((told.len(), summary.counts.removed, summary.kept.files), (4, 1, 1));
    }
}

#[tokio::test]
async fn a_rehearsal_to_a_new_place_may_be_long() {
    for is_put in [true, false] {
        let (_folder, here, there) = folders();
        let deep = (0..12).fold(here.clone(), |path, _| path.join("d".repeat(250)));
        fs::create_dir_all(&deep).unwrap();
        let files = AHEAD / 3000 + 500;
        (0..files).for_each(|n| fs::write(deep.join(n.to_string()), "").unwrap());
        let rehearsal = Terms { rehearses: true, ..terms() };
        let (summary, sent, _) = sync(&here, &there, rehearsal, is_put).await;
        assert_eq!(summary.counts.files, files);
        assert!(!there.exists() && sent > AHEAD, "{sent}");
    }
}

#[tokio::test]
async fn of_a_large_file_only_what_has_changed_is_sent() {
    for is_put in [true, false] {
        let (_folder, here, there) = folders();
        let mut bytes = Dice::new(5).bytes(12 << 20);
        fs::write(here.join("large"), &bytes).unwrap();
        fs::write(here.join("other"), &bytes[..3 << 20]).unwrap();
        sync(&here, &there, terms(), is_put).await;
        // 1% of it in four places, some bytes put in, some taken out.
        let mut dice = Dice::new(6);
        for _ in 0..4 {
            let at = dice.below(11 << 20) as usize;
            bytes[at..at + 30_000].copy_from_slice(&dice.bytes(30_000));
        }
        bytes.splice(3_000_000..3_000_000, *b"put in");
        bytes.drain(9_000_000..9_000_100);
        fs::write(here.join("large"), &bytes).unwrap();
        fs::write(here.join("other"), &bytes[1 << 20..4 << 20]).unwrap();
        let (summary, sent, told) = sync(&here, &there, terms(), is_put).await;
        assert!(fs::read(there.join("large")).unwrap() == bytes);
        assert!(fs::read(there.join("other")).unwrap() == bytes[1 << 20..4 << 20]);
        let moved = sent + told;
        assert!(moved < (12 << 20) * 3 / 100 + (3 << 20) / 2, "{sent} and {told}");
        assert!(summary.kept.begun > 12 << 20, "{:?}", summary.kept);
        assert_eq!(below(&here), below(&there));
    }
}

#[tokio::test]
async fn patterns_leave_out_and_protect_what_they_leave_out() {
    for is_put in [true, false] {
        let (_folder, here, there) = folders();
        for name in ["a.c", "a.o", "keep.o"] {
            fs::write(here.join(name), name).unwrap();
        }
        fs::create_dir(here.join("build")).unwrap();
        fs::write(here.join("build/x"), "x").unwrap();
        fs::create_dir(&there).unwrap();
        fs::write(there.join("a.o"), "theirs").unwrap();
        fs::write(there.join("b.c"), "theirs").unwrap();
        let patterns = ["*.o", "/build/", "!keep.o"].map(str::to_owned).to_vec();
        let (summary, ..) = sync(&here, &there, Terms { patterns, ..removing() }, is_put).await;
        assert_eq!((summary.counts.files, summary.counts.removed), (2, 1));
        let names: Vec<_> = below(&there).into_keys().collect();
        assert_eq!(names, ["a.c", "a.o", "keep.o"].map(PathBuf::from));
        assert_eq!(fs::read(there.join("a.o")).unwrap(), b"theirs");
    }
}

#[tokio::test]
async fn what_a_pattern_fits_stays_though_the_source_has_none_of_it() {
    for is_put in [true, false] {
        let (_folder, here, there) = folders();
        fs::write(here.join("file"), "file").unwrap();
        for name in ["x.tmp", "gone/deep/x.tmp", "gone/deep/file", "gone/other/file", "cache/file"]
        {
            fs::create_dir_all(there.join(name).parent().unwrap()).unwrap();
            fs::write(there.join(name), "theirs").unwrap();
        }
        fs::create_dir_all(there.join("gone/cache")).unwrap();
        let patterns = ["*.tmp", "/cache/"].map(str::to_owned).to_vec();
        let terms = Terms { patterns, ..removing() };
        let (summary, ..) = sync(&here, &there, terms, is_put).await;
        assert_eq!((summary.notes.failed(), summary.counts.removed), (0, 4), "{summary:?}");
        let names: Vec<_> = below(&there).into_keys().collect();
        let stay = ["cache", "cache/file", "file", "gone", "gone/deep", "gone/deep/x.tmp", "x.tmp"];
        assert_eq!(names, stay.map(PathBuf::from));
    }
}

#[tokio::test]
async fn names_of_one_file_that_are_so_there_too_are_no_difference() {
    for is_put in [true, false] {
        let (_folder, here, there) = folders();
        fs::write(here.join("one"), "bytes").unwrap();
        fs::hard_link(here.join("one"), here.join("other")).unwrap();
        sync(&here, &there, removing(), is_put).await;
        for notes in [0, 1] {
            let rehearsal = Terms { rehearses: true, ..removing() };
            let (summary, ..) = sync(&here, &there, rehearsal, is_put).await;
            assert_eq!(summary.notes.iter().count(), notes, "{summary:?}");
            // Equal bytes, and a file of its own.
            let time = fs::metadata(there.join("one")).unwrap().modified().unwrap();
            fs::remove_file(there.join("other")).unwrap();
            fs::write(there.join("other"), "bytes").unwrap();
            fs::File::open(there.join("other")).unwrap().set_modified(time).unwrap();
        }
    }
}

#[tokio::test]
async fn names_of_one_file_there_become_files_of_their_own_as_they_are_here() {
    for is_put in [true, false] {
        let (_folder, here, there) = folders();
        let names = ["a", "b", "c", "d"];
        for name in names {
            fs::write(here.join(name), "bytes").unwrap();
            fs::File::open(here.join(name)).unwrap().set_modified(UNIX_EPOCH).unwrap();
        }
        permit(&here.join("a"), 0o600);
        permit(&here.join("b"), 0o644);
        fs::hard_link(here.join("a"), here.join("a2")).unwrap();
        sync(&here, &there, terms(), is_put).await;
        for name in ["a", "a2", "c", "d"] {
            fs::remove_file(there.join(name)).unwrap();
            fs::hard_link(there.join("b"), there.join(name)).unwrap();
        }
        let (summary, ..) = sync(&here, &there, terms(), is_put).await;
        assert_eq!(below(&here), below(&there));
        assert_eq!(summary.kept.files, 3, "b, c and d are as they were");
        let inode = |name: &str| fs::metadata(there.join(name)).unwrap().ino();
        assert_eq!((inode("a") == inode("b"), inode("a") == inode("a2")), (false, true));
        let (summary, ..) = sync(&here, &there, terms(), is_put).await;
        assert_eq!(summary.kept.files, 4, "and that is the end of it");
    }
}

#[tokio::test]
async fn the_top_is_made_the_same_each_time() {
    for is_put in [true, false] {
        let (_folder, here, there) = folders();
        fs::write(here.join("file"), "one").unwrap();
        sync(&here, &there, terms(), is_put).await;
        fs::write(here.join("file"), "and another").unwrap();
        permit(&here, 0o711);
        age(&here);
        // With a journal too, which is in that very directory.
        let id = Some(TransferId::of([&b"mirror"[..]]));
        let options = Options { id, terms: terms(), ..Options::default() };
        sync_by(&here, &there, &options, is_put).await;
        assert_eq!(look(&here), look(&there));
    }
    // A copy changes nothing of what was there.
    let (_folder, here, there) = folders();
    fs::create_dir(&there).unwrap();
    permit(&there, 0o711);
    sync(&here.join("."), &there, Terms::default(), true).await;
    assert_eq!(mode(&there), 0o711);
}

#[tokio::test]
async fn below_directories_that_nobody_may_write_in_all_is_made_the_same() {
    let (_folder, here, there) = folders();
    fs::create_dir_all(here.join("kept/deep")).unwrap();
    fs::create_dir_all(here.join("goes/deep")).unwrap();
    fs::create_dir_all(here.join("stays/deep")).unwrap();
    for name in ["kept/deep/extra", "goes/deep/file", "stays/deep/x.tmp", "stays/deep/file"] {
        fs::write(here.join(name), name).unwrap();
    }
    let shut = ["kept/deep", "kept", "goes/deep", "goes", "stays/deep", "stays", ""];
    let permit_all = |mode| {
        for top in [&here, &there] {
            let all = shut.map(|name| top.join(name));
            all.iter().filter(|path| path.exists()).for_each(|path| permit(path, mode));
        }
    };
    permit_all(0o555);
    sync_as_anybody(&here, &there, removing());
    assert_eq!(look(&here), look(&there));
    permit_all(0o755);
    fs::remove_file(here.join("kept/deep/extra")).unwrap();
    fs::remove_dir_all(here.join("goes")).unwrap();
    fs::remove_dir_all(here.join("stays")).unwrap();
    permit_all(0o555);
    let terms = Terms { patterns: vec!["*.tmp".into()], ..removing() };
    let summary = sync_as_anybody(&here, &there, terms);
    let modes = shut.map(|name| there.join(name)).map(|path| path.exists().then(|| mode(&path)));
    permit_all(0o755);
    assert_eq!((summary.notes.failed(), summary.counts.removed), (0, 5), "{summary:?}");
    let shut = Some(0o555);
    assert_eq!(modes, [shut, shut, None, None, shut, shut, shut]);
    assert!(there.join("stays/deep/x.tmp").exists());
}

#[tokio::test]
async fn what_its_owner_may_not_read_is_mended_all_the_same() {
    let (_folder, here, there) = folders();
    for name in ["sealed", "blind"] {
        fs::write(here.join(name), name).unwrap();
    }
    sync(&here, &there, terms(), true).await;
    permit(&there.join("sealed"), 0);
    permit(&there.join("blind"), 0o200);
    let summary = sync_as_anybody(&here, &there, terms());
    assert_eq!((summary.notes.failed(), summary.kept.files), (0, 2), "{summary:?}");
    assert_eq!(below(&here), below(&there));
}

#[tokio::test]
async fn where_times_are_coarse_equal_files_are_equal() {
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-I", "128"]);
    let Some(mounted) =
        Mounted::new(8 << 20, &mut make, Command::new("mount").args(["-o", "loop"]))
    else {
        return skip("coarse", "a file system in a file needs root, loop devices and mkfs.ext4");
    };
    let (_folder, here, _) = folders();
    let there = mounted.disk().join("copy");
    for name in ["a", "b"] {
        fs::write(here.join(name), name).unwrap();
    }
    for path in [here.join("a"), here.join("b"), here.clone()] {
        let file = fs::File::open(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_nanos(1_999_999_999)).unwrap();
    }
    sync(&here, &there, terms(), true).await;
    assert_eq!(fs::metadata(there.join("a")).unwrap().mtime_nsec(), 0, "it is a coarse one");
    let (summary, ..) = sync(&here, &there, terms(), true).await;
    assert_eq!(summary.kept.files, 2);
    let by_content = Terms { compare: Some(Compare::Content), rehearses: true, ..terms() };
    let (summary, ..) = sync(&here, &there, by_content, true).await;
    assert_eq!(summary.notes.iter().count(), 0, "{summary:?}");
    age(&here.join("a"));
    permit(&here.join("b"), 0o600);
    let (summary, ..) = sync(&here, &there, terms(), true).await;
    assert_eq!((summary.kept.files, mode(&there.join("b"))), (1, 0o600));
    assert_eq!(fs::metadata(there.join("a")).unwrap().mtime(), 0);
}

#[tokio::test]
async fn after_any_failure_nothing_is_removed() {
    let (_folder, here, there) = folders();
    for name in ["stuck", "turned"] {
        fs::write(here.join(name), "a file").unwrap();
        fs::create_dir_all(there.join(name).join("full")).unwrap();
    }
    fs::write(there.join("stuck/full/x.tmp"), "protected").unwrap();
    fs::write(there.join("turned/full/file"), "old").unwrap();
    fs::write(there.join("extra"), "stays").unwrap();
    let terms = Terms { patterns: vec!["*.tmp".into()], ..removing() };
    let (summary, ..) = sync(&here, &there, terms.clone(), true).await;
    assert_eq!((summary.notes.failed(), summary.counts.removed), (1, 0), "{summary:?}");
    assert!(there.join("extra").exists() && there.join("stuck/full/x.tmp").exists());
    assert!(summary.notes.iter().any(|note| note.to_string().contains("stays")));
    // What made room is still there, and told of.
    assert_eq!(fs::read(there.join("turned")).unwrap(), b"a file");
    let names = fs::read_dir(&there).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
    let aside = names.iter().find(|name| name.starts_with("turned.longhaul-")).unwrap();
    assert_eq!(fs::read(there.join(aside).join("full/file")).unwrap(), b"old");
    assert!(summary.notes.iter().any(|note| note.to_string().contains(aside)), "{summary:?}");
    fs::remove_dir_all(there.join("stuck")).unwrap();
    let (summary, ..) = sync(&here, &there, terms, true).await;
    assert_eq!((summary.notes.failed(), summary.counts.removed), (0, 4), "{summary:?}");
    assert_eq!(below(&here), below(&there));
}

#[tokio::test]
async fn what_has_become_something_else_takes_its_place() {
    for is_put in [true, false] {
        let (folder, here, there) = folders();
        let outside = folder.path().join("outside");
        for name in ["to-file", "to-link", "to-name"] {
            fs::create_dir_all(there.join(name).join("deep")).unwrap();
            fs::write(there.join(name).join("deep/file"), "old").unwrap();
        }
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "theirs").unwrap();
        fs::write(there.join("from-file"), "old").unwrap();
        symlink(&outside, there.join("from-link")).unwrap();
        fs::write(here.join("to-file"), "new").unwrap();
        fs::hard_link(here.join("to-file"), here.join("to-name")).unwrap();
        symlink("nowhere", here.join("to-link")).unwrap();
        for name in ["from-file", "from-link"] {
            fs::create_dir_all(here.join(name).join("deep")).unwrap();
            fs::write(here.join(name).join("deep/file"), "new").unwrap();
        }
        let rehearsal = Terms { rehearses: true, ..removing() };
        let before = look(&there);
        sync(&here, &there, rehearsal, is_put).await;
        assert_eq!(look(&there), before);
        // Without being asked to remove, nothing makes room.
        let (kept, ..) = sync(&here, &there, terms(), is_put).await;
        assert_eq!((kept.notes.failed(), kept.counts.removed), (5, 0), "{kept:?}");
        assert_eq!(fs::read(there.join("to-file/deep/file")).unwrap(), b"old");
        assert_eq!(fs::read(there.join("from-file")).unwrap(), b"old");

        let (summary, ..) = sync(&here, &there, removing(), is_put).await;
        assert_eq!((summary.notes.failed(), summary.counts.removed), (0, 9), "{summary:?}");
        assert_eq!(below(&here), below(&there));
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"theirs");
        let (again, ..) = sync(&here, &there, removing(), is_put).await;
        assert_eq!((again.notes.iter().count(), again.counts.removed), (0, 0));
    }
}

#[tokio::test]
async fn a_file_is_made_the_same_as_a_file() {
    let (_folder, here, there) = folders();
    fs::write(here.join("file"), "bytes").unwrap();
    for (is_put, there) in [(true, there.clone()), (false, there.with_file_name("another"))] {
        for kept in [0, 1] {
            let (summary, ..) = sync(&here.join("file"), &there, removing(), is_put).await;
            assert_eq!((summary.counts.files, summary.kept.files), (1, kept));
            assert_eq!(fs::read(&there).unwrap(), b"bytes");
        }
    }
}

#[tokio::test]
async fn text_is_packed_where_the_way_is_the_slow_part() {
    let (_folder, here, there) = folders();
    let line = b"the same words again and again, with a number: ";
    let text: Vec<u8> =
        (0..300_000).flat_map(|n: u32| [&line[..], n.to_string().as_bytes()].concat()).collect();
    fs::write(here.join("text"), &text).unwrap();
    let noise = Dice::new(1).bytes(3 << 20);
    fs::write(here.join("noise"), &noise).unwrap();
    let packing = Terms { packs: true, ..Terms::default() };
    let (_, sent, _) = sync(&here, &there, packing, true).await;
    assert!(fs::read(there.join("text")).unwrap() == text);
    assert!(fs::read(there.join("noise")).unwrap() == noise);
    // How much depends on how often the way was waited for.
    assert!(sent < (noise.len() + text.len() / 10 * 9) as u64, "{sent} of {}", text.len());
}

//! The power goes: what was not synced is gone. No file is wrong then, the journal claims nothing that the
//! disk has lost, and what was on it does not go again.
//!
//! The disk is an ext4 of its own, which is shut down without writing its log: whatever it had not been
//! told to sync by then, it forgets.

mod common;

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Dice, look, plant, skip};
use tempfile::TempDir;
use tokio::io::duplex;
use transfer::{Options, Progress, ServeOptions, Summary, TransferId, journal_records, put, serve};

/// EXT4_IOC_SHUTDOWN with NOLOGFLUSH, of linux/ext4.h.
const CUT: &str = "import fcntl, os, struct, sys; \
                   fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";

/// Files that are brought to the disk together.
const BATCH: u64 = 128;

struct Disk {
    image: TempDir,
    mounted: TempDir,
}

impl Disk {
    /// `None` where that is not allowed.
    fn new() -> Option<Self> {
        let disk = Self { image: TempDir::new().unwrap(), mounted: TempDir::new().unwrap() };
        let image = fs::File::create(disk.image()).unwrap();
        image.set_len(160 << 20).unwrap();
        let made = run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(disk.image()));
        (made && disk.mount()).then_some(disk)
    }

    fn image(&self) -> std::path::PathBuf {
        self.image.path().join("disk")
    }

    fn mount(&self) -> bool {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.mounted.path()))
    }

    fn unmount(&self) -> bool {
        run(Command::new("umount").arg(self.mounted.path()))
    }

    /// Forgets what was not synced; every write fails from now on.
    fn cut_power(&self) -> bool {
        run(Command::new("python3").args(["-c", CUT]).arg(self.mounted.path()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.unmount();
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Puts the tree there; the power goes after so many bytes, if it is not done by then: gives how many files
/// were told to stand there.
async fn sitting(tree: &Path, disk: &Disk, limit: u64) -> Result<Summary, u64> {
    let options = Options { id: Some(TransferId::of([&b"power"[..]])), ..Options::default() };
    let (progress, allowed) = <(Progress, ServeOptions)>::default();
    let (near, far) = duplex(100_000);
    let sources = [tree.to_owned()];
    let told = Cell::new(0);
    let transfer = async {
        let root = disk.mounted.path();
        tokio::join!(
            put(near, &sources, Path::new(""), &options, &progress),
            serve(far, root, &allowed)
        )
    };
    let cut = async {
        while progress.sample().bytes < limit {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        told.set(progress.sample().files);
        assert!(disk.cut_power());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        both = transfer => both.0.and_then(|near| both.1.map(|_| near)).map_err(|_| told.get()),
        () = cut => unreachable!("it waits for the end"),
    }
}

#[tokio::test]
async fn the_journal_claims_nothing_that_the_disk_has_lost() {
    let name = "the_journal_claims_nothing_that_the_disk_has_lost";
    let Some(disk) = Disk::new() else {
        return skip(name, "only root may mount a file system of its own");
    };
    let source = TempDir::new().unwrap();
    let tree = source.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let mut dice = Dice::new(11);
    plant(&tree, &mut dice, 2, 200_000);
    fs::write(tree.join("large"), dice.bytes(70 << 20)).unwrap();
    let sent = look(&tree);
    let wanted = std::env::var("LONGHAUL_POWER_CUTS").map_or(2, |cuts| cuts.parse().unwrap());
    let mut cuts = 0;
    let mut limit = 0;
    loop {
        // Each time a little further, wherever that is.
        limit += (8 << 20) + dice.below(16 << 20);
        let is_done = sitting(&tree, &disk, limit).await.is_ok();
        assert!(disk.unmount() && disk.mount());
        let there = disk.mounted.path().join("tree");
        if is_done && cuts >= wanted {
            break;
        } else if is_done {
            assert!(sent == look(&there));
            fs::remove_dir_all(there).unwrap();
            limit = 0;
            continue;
        }
        cuts += 1;
        for (path, entry) in there.is_dir().then(|| look(&there)).into_iter().flatten() {
            let temporary = path.to_string_lossy().ends_with(".part");
            let is_file = entry.mode & 0o170_000 == 0o100_000;
            assert!(temporary || !is_file || entry.contents == sent[&path].contents, "{path:?}");
        }
    }
    let arrived = look(&disk.mounted.path().join("tree"));
    assert!(sent == arrived, "{:?}", arrived.keys());
}

#[tokio::test]
async fn small_files_that_were_on_the_disk_do_not_go_again() {
    let name = "small_files_that_were_on_the_disk_do_not_go_again";
    let Some(disk) = Disk::new() else {
        return skip(name, "only root may mount a file system of its own");
    };
    let source = TempDir::new().unwrap();
    let tree = source.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let mut dice = Dice::new(12);
    (0..3000).for_each(|n| fs::write(tree.join(n.to_string()), dice.bytes(10_000)).unwrap());
    let told = sitting(&tree, &disk, 20 << 20).await.unwrap_err();
    assert!(told > 1000, "{told}");
    assert!(disk.unmount() && disk.mount());
    let mut names = fs::read_dir(disk.mounted.path()).unwrap().map(|entry| entry.unwrap().path());
    let journal = names.find(|path| path.extension().is_some_and(|is| is == "journal"));
    let claimed = journal_records(&fs::read(journal.expect("a journal")).unwrap()).len() as u64;
    // What it told of the last ones had not come to the disk.
    assert!(claimed + 2 * BATCH >= told, "{claimed} of {told}");
    let summary = sitting(&tree, &disk, u64::MAX).await.unwrap();
    assert!(look(&tree) == look(&disk.mounted.path().join("tree")));
    // Some went before the sender had heard of them.
    assert!((1..=claimed).contains(&summary.kept.files), "{summary:?}");
}

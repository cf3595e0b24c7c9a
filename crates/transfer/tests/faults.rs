//! A damaged, cut or cancelled transfer leaves nothing under a final name that is not whole, and no
//! temporary file.

mod common;

use std::fs;
use std::future::Future;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Both, Dice, Fault, faulty, get_from, leftovers, look, put_to, shared, skip, tree};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use transfer::wire::{self, HELLO_LEN, Versions};
use transfer::{Options, Progress, ServeOptions, TransferError, TransferId, put, serve};

/// A file that was at the destination before; the source has another of that name.
const OLD: &str = "tree/always";

/// How many bytes a transfer of this tree sends.
async fn length(source: &TempDir) -> u64 {
    let root = TempDir::new().unwrap();
    let (near, mut near_end) = duplex(1000);
    let (mut far_end, far) = duplex(1000);
    let counting = tokio::spawn(async move {
        tokio::io::copy_bidirectional(&mut near_end, &mut far_end).await.unwrap().0
    });
    put_to(near, far, &[source.path().join("tree")], root.path(), "").await.0.unwrap();
    counting.await.unwrap()
}

/// One transfer with a fault, one way or the other; then whatever is there must be whole.
async fn suffer(source: &TempDir, fault: Fault, is_put: bool) -> Both {
    let there = TempDir::new().unwrap();
    fs::create_dir(there.path().join("tree")).unwrap();
    fs::write(there.path().join(OLD), "old").unwrap();
    let (sending, receiving) = faulty(fault);
    let both = if is_put {
        let sources = [source.path().join("tree")];
        put_to(sending, receiving, &sources, there.path(), "").await
    } else {
        get_from(receiving, sending, source.path(), "tree", there.path()).await
    };
    assert_eq!(leftovers(there.path()), Vec::<PathBuf>::new(), "{fault:?}");
    let sent = look(source.path());
    for (path, arrived) in look(there.path()) {
        let is_old = path == Path::new(OLD) && arrived.contents == b"old";
        let is_whole = sent.get(&path).is_some_and(|entry| entry.contents == arrived.contents);
        assert!(is_whole || is_old, "{fault:?}: {path:?}");
    }
    both
}

#[tokio::test]
async fn a_damaged_byte_is_found_and_nothing_damaged_is_installed() {
    let source = tree(3, 3000);
    let length = length(&source).await;
    let mut dice = Dice::new(1);
    for round in 0..50 {
        // A hello has bits that mean nothing here.
        let hello = HELLO_LEN as u64;
        let fault = Fault::Flip(hello + dice.below(length - 100 - hello));
        let (near, far) = suffer(&source, fault, round % 2 == 0).await;
        for side in [near, far.map(|outcome| outcome.summary)] {
            assert!(side.is_err() || side.unwrap().is_partial(), "{fault:?} was not noticed");
        }
    }
}

#[tokio::test]
async fn a_cut_anywhere_is_an_error_and_leaves_nothing_half_done() {
    let source = tree(4, 3000);
    let length = length(&source).await;
    let mut dice = Dice::new(2);
    for round in 0..50 {
        let fault = Fault::Cut(dice.below(length - 100));
        let (near, far) = suffer(&source, fault, round % 2 == 0).await;
        assert!(near.is_err() && far.is_err(), "{fault:?}: {near:?}, {far:?}");
    }
}

#[tokio::test]
async fn a_cut_before_the_confirmation_is_no_success() {
    let source = tree(4, 3000);
    let root = TempDir::new().unwrap();
    for place in 0..HELLO_LEN as u64 + 20 {
        let (receiving, sending) = faulty(Fault::Cut(place));
        let sources = [source.path().join("tree")];
        let (near, _) = put_to(sending, receiving, &sources, root.path(), "").await;
        assert!(near.is_err(), "cut at {place}");
        assert_eq!(leftovers(root.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_dropped_transfer_removes_its_temporary_files() {
    let source = tree(6, 9 << 20);
    let root = TempDir::new().unwrap();
    for rounds in [1, 100, 300] {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let (near, mut near_end) = duplex(10_000);
            let (mut far_end, far) = duplex(10_000);
            let sources = [source.path().join("tree")];
            // The stream stalls after some bytes for ever.
            let some = async {
                let mut buffer = [0; 10_000];
                for _ in 0..rounds {
                    let read = near_end.read(&mut buffer).await.unwrap();
                    far_end.write_all(&buffer[..read]).await.unwrap();
                }
            };
            tokio::select! {
                () = some => {}
                both = put_to(near, far, &sources, root.path(), "") => panic!("{both:?}"),
            }
        });
        drop(runtime);
        assert_eq!(leftovers(root.path()), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn a_source_that_changes_meanwhile_fails_alone() {
    let id = Some(TransferId::of([&b"test"[..]]));
    // Shorter, longer, and cut behind the first piece that a journal tells of.
    for (changed, id) in [(9 << 20, None), (21 << 20, None), (17 << 20, id)] {
        let folder = TempDir::new().unwrap();
        let sources = ["first", "second"].map(|name| folder.path().join(name));
        // Larger than all that can wait between the disk and a stream that is not read.
        fs::write(&sources[0], vec![7; 20 << 20]).unwrap();
        fs::write(&sources[1], "whole").unwrap();
        let root = TempDir::new().unwrap();
        let (near, mut far) = duplex(1000);
        let (progress, allowed) = <(Progress, ServeOptions)>::default();
        let options = Options { id, ..Options::default() };
        let serving = async {
            // The first block is on its way, so the file is open and its size was told.
            let mut began = [0; 100];
            far.read_exact(&mut began).await.unwrap();
            fs::File::options().write(true).open(&sources[0]).unwrap().set_len(changed).unwrap();
            let (rest, writing) = tokio::io::split(far);
            let far = tokio::io::join(Cursor::new(began).chain(rest), writing);
            serve(far, root.path(), &allowed).await
        };
        let (near, far) =
            tokio::join!(put(near, &sources, Path::new("/"), &options, &progress), serving);
        let near = shared(near.unwrap());
        assert_eq!(near, far.unwrap().summary);
        assert_eq!((near.counts.files, near.notes.failed()), (1, 1));
        assert!(near.notes.iter().next().unwrap().to_string().contains("changed"));
        let mut there: Vec<_> = look(root.path()).into_keys().collect();
        // It stays, for the same command brings what is missing.
        there.retain(|path| !path.to_string_lossy().ends_with(".journal"));
        assert_eq!(there, ["", "second"].map(PathBuf::from));
        assert_eq!(progress.sample().files, 1);
    }
}

#[tokio::test]
async fn a_full_disk_ends_the_transfer_with_a_clear_message_on_both_sides() {
    let name = "a_full_disk_ends_the_transfer_with_a_clear_message_on_both_sides";
    let root = TempDir::new().unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(root.path());
    if !mount.output().is_ok_and(|done| done.status.success()) {
        return skip(name, "only root may mount a small file system");
    }
    // As what stands there may give way, it is tried.
    fs::create_dir(root.path().join("tree")).unwrap();
    let source = tree(8, 5 << 20);
    let mut large = Dice::new(0).bytes(40 << 20);
    large[0] = 0;
    fs::write(source.path().join("tree/large"), large).unwrap();
    let (near, far) = duplex(10_000);
    let both = put_to(near, far, &[source.path().join("tree")], root.path(), "").await;
    let left = leftovers(root.path());
    assert!(Command::new("umount").arg(root.path()).status().unwrap().success());
    assert_eq!(left, Vec::<PathBuf>::new());
    assert!(matches!(both.0, Err(TransferError::Far(_))), "{:?}", both.0);
    for error in [both.0.unwrap_err(), both.1.unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains("tree/") && text.contains("free space"), "{text}");
    }
}

/// What two sides come to between whom somebody stands who puts this hello in the place of each one's own.
async fn between_releases(hello: [u8; HELLO_LEN]) -> Both {
    async fn relay(
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        hello: &[u8],
    ) {
        // Who gives up takes no more.
        let _ = to.write_all(hello).await;
        let _ = from.read_exact(&mut [0; HELLO_LEN]).await;
        let _ = tokio::io::copy(&mut from, &mut to).await;
        let _ = to.shutdown().await;
    }
    let source = tree(2, 3000);
    let root = TempDir::new().unwrap();
    let ((near, near_end), (far_end, far)) = (duplex(1000), duplex(1000));
    let (from_near, to_near) = tokio::io::split(near_end);
    let (from_far, to_far) = tokio::io::split(far_end);
    let sources = [source.path().join("tree")];
    let (both, (), ()) = tokio::join!(
        put_to(near, far, &sources, root.path(), ""),
        relay(from_near, to_far, &hello),
        relay(from_far, to_near, &hello),
    );
    both
}

#[tokio::test]
async fn a_later_release_that_speaks_this_version_too_is_met() {
    let Versions { oldest, newest } = wire::SPOKEN;
    let later = Versions { oldest, newest: newest + 3 };
    let (near, far) = between_releases(wire::hello_of(later, u64::MAX)).await;
    assert_eq!(shared(near.unwrap()), far.unwrap().summary);
}

#[tokio::test]
async fn releases_that_have_no_version_in_common_say_so_on_both_sides() {
    let newest = wire::SPOKEN.newest;
    let later = Versions { oldest: newest + 1, newest: newest + 2 };
    let (near, far) = between_releases(wire::hello_of(later, 0)).await;
    for error in [near.unwrap_err(), far.unwrap_err()] {
        let said = error.to_string();
        let theirs = format!("speaks versions {} to {}", newest + 1, newest + 2);
        assert!(said.contains(&theirs) && said.contains("install the same release"), "{said}");
    }
}

#[tokio::test]
async fn a_hello_of_old_is_answered_before_it_is_missed() {
    let (mut near, far) = duplex(1000);
    // It ends there, and its side says no more before it is answered.
    near.write_all(b"longhaul\x04\0").await.unwrap();
    let asking = async {
        let mut answer = [0; HELLO_LEN];
        near.read_exact(&mut answer).await.unwrap();
        drop(near);
        answer
    };
    let root = TempDir::new().unwrap();
    let allowed = ServeOptions::default();
    let (error, answer) = tokio::join!(serve(far, root.path(), &allowed), asking);
    assert!(error.unwrap_err().to_string().contains("it speaks version 4"));
    assert_eq!(answer, wire::hello());
}

#[test]
fn the_futures_can_be_spawned() {
    fn is_send(_: impl Future + Send) {}
    let (near, far) = duplex(10);
    let (options, progress, allowed) = <(Options, Progress, ServeOptions)>::default();
    is_send(serve(far, Path::new("/"), &allowed));
    is_send(put(near, &[], Path::new(""), &options, &progress));
}

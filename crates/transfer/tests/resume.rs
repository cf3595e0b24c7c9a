//! A transfer goes on where it was cut, whatever happened to it, to its journal or to its source.

mod common;

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use common::{Dice, Mounted, leftovers, look, plant, shared, skip};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::time::timeout;
use transfer::wire::{
    AHEAD, CONTROL_HEAD, Compare, DATA_MAX, Decoder, HELLO_LEN, Item, Message, RawBytes, Terms,
    append_message, hello,
};
use transfer::{
    NoteKind, Options, Outcome, Progress, ServeOptions, Summary, TransferError, TransferId, get,
    put, serve,
};

const LARGE: usize = 40 << 20;
/// From so much of a file on, the journal tells of it.
const CHECKPOINT: u64 = 8 << 20;
/// What a cut may cost: the pipes between disk and stream, what was sent before the receiver had
/// told what it has, and less than a block of each file.
const FLIGHT: u64 = 12 << 20;
/// A receiver's hello, and what it says at once.
const FIRST_WORDS: u64 = (HELLO_LEN + CONTROL_HEAD + 1) as u64;

/// A tree with a large file among many small ones.
fn source(seed: u64) -> TempDir {
    let folder = TempDir::new().unwrap();
    let top = folder.path().join("tree");
    fs::create_dir(&top).unwrap();
    let mut dice = Dice::new(seed);
    plant(&top, &mut dice, 2, 3000);
    fs::create_dir(top.join("many")).unwrap();
    for number in 0..300 {
        fs::write(top.join(format!("many/{number}")), dice.bytes(1000)).unwrap();
    }
    fs::write(top.join("large"), dice.bytes(LARGE)).unwrap();
    folder
}

/// A pair of streams of which the first one's bytes are counted, and end after so many.
fn cut_after(limit: u64) -> (DuplexStream, DuplexStream, Arc<AtomicU64>) {
    let ((near, near_end), (far, far_end)) = (duplex(100_000), duplex(100_000));
    let counted = Arc::new(AtomicU64::new(0));
    let count = counted.clone();
    tokio::spawn(async move {
        let ((mut from, mut back), (mut behind, mut to)) = (split(near_end), split(far_end));
        let there = async {
            let mut buffer = vec![0; 50_000];
            loop {
                let read = from.read(&mut buffer).await.unwrap() as u64;
                let passed = count.fetch_add(read, Relaxed) + read;
                if read == 0 {
                    break to.shutdown().await.unwrap_or(());
                }
                if passed > limit || to.write_all(&buffer[..read as usize]).await.is_err() {
                    break;
                }
            }
        };
        let cut = tokio::select! {
            () = there => count.load(Relaxed) > limit,
            _ = tokio::io::copy(&mut behind, &mut back) => false,
        };
        if !cut {
            // The last words.
            let _ = tokio::io::copy(&mut behind, &mut back).await;
            let _ = back.shutdown().await;
        }
    });
    (near, far, counted)
}

type Both = (Result<Summary, TransferError>, Result<Outcome, TransferError>);

/// One sitting of a put of all these, cut after so many bytes.
async fn put_all(sources: &[PathBuf], root: &Path, remote: &str, limit: u64) -> (Both, u64) {
    let id = Some(TransferId::of([&b"test"[..]]));
    let (progress, allowed) = <(Progress, ServeOptions)>::default();
    let options = Options { id, ..Options::default() };
    let (sends, receives, counted) = cut_after(limit);
    let both = tokio::join!(
        put(sends, sources, Path::new(remote), &options, &progress),
        serve(receives, root, &allowed)
    );
    (both, counted.load(Relaxed))
}

/// One sitting of the same transfer: the sender's side of the stream is cut after so many bytes.
async fn sitting(from: &Path, root: &Path, remote: &str, is_put: bool, limit: u64) -> (Both, u64) {
    if is_put {
        return put_all(&[from.to_owned()], root, remote, limit).await;
    }
    let id = Some(TransferId::of([&b"test"[..]]));
    let (progress, allowed) = <(Progress, ServeOptions)>::default();
    let options = Options { id, ..Options::default() };
    let (sends, receives, counted) = cut_after(limit);
    let (name, to) = (Path::new(from.file_name().unwrap()), root.join(remote));
    let both = tokio::join!(
        get(receives, name, &to, &options, &progress),
        serve(sends, from.parent().unwrap(), &allowed)
    );
    (both, counted.load(Relaxed))
}

fn journals(top: &Path) -> Vec<PathBuf> {
    let is_journal = |path: &PathBuf| path.to_string_lossy().ends_with(".journal");
    look(top).into_keys().filter(is_journal).collect()
}

/// Whatever stands under its final name is whole.
fn nothing_wrong(source: &Path, arrived: &Path) {
    let sent = look(source);
    for (path, entry) in look(arrived) {
        let name = path.to_string_lossy();
        if !name.ends_with(".part") && !name.ends_with(".journal") && !entry.contents.is_empty() {
            assert!(entry.contents == sent[&path].contents, "{path:?}");
        }
    }
}

/// All is there, and nothing else.
fn is_whole(source: &Path, root: &Path, name: &str) {
    let (sent, arrived) = (look(source), look(&root.join(name)));
    assert!(sent == arrived, "{:?}", arrived.keys());
    assert_eq!(journals(root), Vec::<PathBuf>::new());
    assert_eq!(leftovers(root), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn cut_again_and_again_it_goes_on() {
    let source = source(1);
    let tree = source.path().join("tree");
    let mut dice = Dice::new(5);
    for is_put in [true, false] {
        let root = TempDir::new().unwrap();
        let (mut sent, mut cuts) = (0, 0);
        let last = loop {
            let limit = (3 << 20) + dice.below(15 << 20);
            // The name is taken from the second sitting on, and yet means what it meant.
            let (both, counted) = sitting(&tree, root.path(), "name", is_put, limit).await;
            sent += counted;
            nothing_wrong(&tree, &root.path().join("name"));
            match both {
                (Ok(near), Ok(far)) => {
                    assert_eq!(shared(near.clone()), shared(far.summary));
                    break near;
                }
                _ => cuts += 1,
            }
            assert!(cuts < 100, "it gets nowhere");
        };
        is_whole(&tree, root.path(), "name");
        assert!(cuts >= 3 && last.kept.files + last.kept.begun > 0, "{cuts}: {last:?}");
        let files =
            look(&tree).values().filter(|entry| entry.mode & 0o170_000 == 0o100_000).count();
        assert_eq!(last.counts.files, files as u64);
        assert!(sent < LARGE as u64 + (1 << 20) + cuts * FLIGHT, "{sent} bytes for {cuts} cuts");
    }
}

#[tokio::test]
async fn a_name_of_which_there_is_no_more_than_a_directory_means_what_it_meant() {
    let (source, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let tree = source.path().join("tree");
    for number in 0..600 {
        fs::create_dir_all(tree.join(format!("{number:0>100}"))).unwrap();
    }
    let (both, _) = sitting(&tree, root.path(), "name", true, 50_000).await;
    both.0.unwrap_err();
    assert!(root.path().join("name").exists());
    let (both, _) = sitting(&tree, root.path(), "name", true, u64::MAX).await;
    both.0.unwrap();
    is_whole(&tree, root.path(), "name");
}

#[tokio::test]
async fn a_lost_last_word_costs_no_second_copy() {
    let source = source(2);
    let tree = source.path().join("tree");
    let root = TempDir::new().unwrap();
    // The sender's end of the stream never comes.
    let id = Some(TransferId::of([&b"test"[..]]));
    let options = Options { id, ..Options::default() };
    let (progress, allowed) = <(Progress, ServeOptions)>::default();
    let (sends, near) = duplex(100_000);
    let (far, receives) = duplex(100_000);
    let sources = [tree.clone()];
    let relaying = async move {
        let ((mut from, mut back), (behind, mut to)) = (split(near), split(far));
        let swallow = async {
            // The sender hears that there was no earlier sitting, and then nothing.
            let mut first = behind.take(FIRST_WORDS);
            tokio::io::copy(&mut first, &mut back).await?;
            tokio::io::copy(&mut first.into_inner(), &mut tokio::io::sink()).await
        };
        let _ = tokio::join!(tokio::io::copy(&mut from, &mut to), swallow);
    };
    let putting = put(sends, &sources, Path::new(""), &options, &progress);
    tokio::select! {
        put = putting => panic!("it has heard of no end: {put:?}"),
        () = relaying => panic!("the stream is not ended"),
        served = serve(receives, root.path(), &allowed) => drop(served.unwrap()),
    }
    let (both, counted) = sitting(&tree, root.path(), "", true, u64::MAX).await;
    both.0.unwrap();
    is_whole(&tree, root.path(), "tree");
    assert!(counted < FLIGHT, "{counted}");
}

#[tokio::test]
async fn a_damaged_journal_costs_time_and_nothing_else() {
    let source = source(3);
    let tree = source.path().join("tree");
    let mut dice = Dice::new(7);
    for round in 0..12 {
        let root = TempDir::new().unwrap();
        let (both, _) = sitting(&tree, root.path(), "", true, 30 << 20).await;
        both.0.unwrap_err();
        let journal = root.path().join(&journals(root.path())[0]);
        let mut file = fs::File::options().read(true).write(true).open(&journal).unwrap();
        let length = file.metadata().unwrap().len();
        let place = dice.below(length);
        match round % 3 {
            0 => file.set_len(place).unwrap(),
            1 => {
                let mut byte = [0];
                file.seek(SeekFrom::Start(place)).unwrap();
                file.read_exact(&mut byte).unwrap();
                file.seek(SeekFrom::Start(place)).unwrap();
                file.write_all(&[byte[0] ^ 0x40]).unwrap();
            }
            _ => {
                file.seek(SeekFrom::End(0)).unwrap();
                file.write_all(&dice.bytes(100)).unwrap();
            }
        }
        let (both, _) = sitting(&tree, root.path(), "", true, u64::MAX).await;
        assert!(!both.0.unwrap().is_partial());
        // A begun file of which the damaged part told is not known any more.
        let mut arrived = look(&root.path().join("tree"));
        arrived.retain(|path, _| !path.to_string_lossy().ends_with(".part"));
        let sent = look(&tree);
        assert!(sent == arrived, "{round}: {:?}", arrived.keys());
        assert_eq!(journals(root.path()), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn a_begun_file_that_is_gone_or_shorter_is_begun_again() {
    let source = source(4);
    let tree = source.path().join("tree");
    for is_gone in [true, false] {
        let root = TempDir::new().unwrap();
        let (both, _) = sitting(&tree, root.path(), "", true, 30 << 20).await;
        both.0.unwrap_err();
        if let Some(part) = leftovers(root.path()).first().map(|part| root.path().join(part)) {
            match is_gone {
                true => fs::remove_file(part).unwrap(),
                false => fs::File::options().write(true).open(part).unwrap().set_len(9).unwrap(),
            }
        }
        let (both, _) = sitting(&tree, root.path(), "", true, u64::MAX).await;
        both.0.unwrap();
        is_whole(&tree, root.path(), "tree");
    }
}

#[tokio::test]
async fn a_source_that_has_changed_is_noticed_and_copied_anew() {
    let source = TempDir::new().unwrap();
    let large = source.path().join("large");
    fs::write(&large, Dice::new(1).bytes(LARGE)).unwrap();
    let root = TempDir::new().unwrap();
    let (both, _) = sitting(&large, root.path(), "", true, 30 << 20).await;
    both.0.unwrap_err();
    assert_eq!(leftovers(root.path()).len(), 1);
    // The same size and time of modification: only the time of change tells.
    let modified = fs::metadata(&large).unwrap().modified().unwrap();
    let mut file = fs::File::options().write(true).open(&large).unwrap();
    file.write_all(b"other").unwrap();
    file.set_modified(modified).unwrap();
    let (both, counted) = sitting(&large, root.path(), "", true, u64::MAX).await;
    let summary = both.0.unwrap();
    let note = summary.notes.iter().next().expect("a note of it");
    assert_eq!((note.kind, summary.is_partial()), (NoteKind::Changed, false));
    assert!(counted > LARGE as u64 && summary.kept.begun == 0);
    assert_eq!(fs::read(&large).unwrap(), fs::read(root.path().join("large")).unwrap());
    assert!(journals(root.path()).is_empty() && leftovers(root.path()).is_empty());
}

#[tokio::test]
async fn a_source_that_has_changed_after_it_had_come_whole_is_told_too() {
    let source = source(10);
    let tree = source.path().join("tree");
    let sources = [tree.clone(), source.path().join("later")];
    let root = TempDir::new().unwrap();
    let (both, _) = put_all(&sources, root.path(), "", u64::MAX).await;
    assert!(both.0.unwrap().is_partial());
    fs::write(tree.join("many/7"), "other").unwrap();
    fs::write(&sources[1], "it has come").unwrap();
    let (both, _) = put_all(&sources, root.path(), "", u64::MAX).await;
    let summary = both.0.unwrap();
    let notes = Vec::from_iter(summary.notes.iter());
    assert!(notes.len() == 1 && notes[0].kind == NoteKind::Changed, "{notes:?}");
    assert!(notes[0].path.0.ends_with(b"many/7"), "{notes:?}");
    is_whole(&tree, root.path(), "tree");
}

#[tokio::test]
async fn what_was_installed_and_changed_there_is_copied_again() {
    let source = source(6);
    let tree = source.path().join("tree");
    let root = TempDir::new().unwrap();
    let (both, _) = sitting(&tree, root.path(), "", true, 41 << 20).await;
    if both.0.is_ok() {
        return;
    }
    let mut spoiled = 0;
    for number in 0..300 {
        let path = root.path().join(format!("tree/many/{number}"));
        if number % 2 == 0 && path.exists() {
            fs::write(&path, "spoiled").unwrap();
            spoiled += 1;
        }
    }
    let (both, _) = sitting(&tree, root.path(), "", true, u64::MAX).await;
    both.0.unwrap();
    is_whole(&tree, root.path(), "tree");
    assert!(spoiled == 0 || look(&tree).len() > 300);
}

#[tokio::test]
async fn a_journal_that_others_can_write_to_is_not_obeyed() {
    let source = source(8);
    let tree = source.path().join("tree");
    let root = TempDir::new().unwrap();
    let (both, _) = sitting(&tree, root.path(), "", true, 30 << 20).await;
    both.0.unwrap_err();
    let journal = root.path().join(&journals(root.path())[0]);
    fs::set_permissions(journal, fs::Permissions::from_mode(0o666)).unwrap();
    let (both, _) = sitting(&tree, root.path(), "", true, u64::MAX).await;
    let summary = both.0.unwrap();
    assert_eq!((summary.kept.files, summary.kept.begun, summary.is_partial()), (0, 0, false));
    let notes = Vec::from_iter(&mut summary.notes.iter());
    assert!(notes.len() == 1 && notes[0].kind == NoteKind::Changed, "{notes:?}");
    assert!(notes[0].to_string().contains(".journal"), "{notes:?}");
    // Nor does what was begun stay for ever.
    is_whole(&tree, root.path(), "tree");
}

#[tokio::test]
async fn sources_for_one_place_keep_no_journal() {
    let folder = TempDir::new().unwrap();
    let sources = ["a", "b"].map(|name| {
        fs::create_dir(folder.path().join(name)).unwrap();
        let path = folder.path().join(name).join("x");
        fs::write(&path, Dice::new(name.len() as u64).bytes(LARGE)).unwrap();
        path
    });
    fs::write(&sources[1], "the last one").unwrap();
    let root = TempDir::new().unwrap();
    let (both, _) = put_all(&sources, root.path(), "", 30 << 20).await;
    both.0.unwrap_err();
    assert!(journals(root.path()).is_empty() && leftovers(root.path()).is_empty());
    let (both, _) = put_all(&sources, root.path(), "", u64::MAX).await;
    assert_eq!(both.0.unwrap().counts.files, 2);
    assert_eq!(fs::read(root.path().join("x")).unwrap(), b"the last one");
}

#[tokio::test]
async fn after_a_copy_that_left_something_out_the_same_command_goes_on() {
    let source = source(9);
    let tree = source.path().join("tree");
    let sources = [tree.clone(), source.path().join("later")];
    let root = TempDir::new().unwrap();
    let (both, _) = put_all(&sources, root.path(), "", u64::MAX).await;
    assert!(both.0.unwrap().is_partial());
    fs::write(&sources[1], "it has come").unwrap();
    let (both, counted) = put_all(&sources, root.path(), "", u64::MAX).await;
    assert!(!both.0.unwrap().is_partial() && counted < FLIGHT, "{counted}");
    is_whole(&tree, root.path(), "tree");
    assert_eq!(fs::read(root.path().join("later")).unwrap(), b"it has come");
}

#[tokio::test]
async fn who_was_overtaken_gives_up() {
    // With something in the journal, and before.
    for sent in [30 << 20, 2 << 20] {
        overtaken(sent).await;
    }
}

/// A sitting that falls silent after so many bytes, and goes on when another has done it all.
async fn overtaken(sent: u64) {
    let source = TempDir::new().unwrap();
    let large = source.path().join("large");
    fs::write(&large, Dice::new(1).bytes(LARGE)).unwrap();
    let root = TempDir::new().unwrap();
    let id = Some(TransferId::of([&b"test"[..]]));
    let options = Options { id, ..Options::default() };
    let (progress, allowed) = <(Progress, ServeOptions)>::default();
    let (near, near_end) = duplex(100_000);
    let (far_end, far) = duplex(100_000);
    let go = Arc::new(tokio::sync::Notify::new());
    let relaying = {
        let go = go.clone();
        async move {
            let ((mut from, mut back), (mut behind, mut to)) = (split(near_end), split(far_end));
            let there = async {
                tokio::io::copy(&mut (&mut from).take(sent), &mut to).await.unwrap();
                // Silence, until the other one is done.
                go.notified().await;
                let _ = tokio::io::copy(&mut from, &mut to).await;
            };
            let _ = tokio::join!(there, tokio::io::copy(&mut behind, &mut back));
            std::future::pending().await
        }
    };
    let sources = [large.clone()];
    let first = async {
        tokio::select! {
            both = async { tokio::join!(
                put(near, &sources, Path::new(""), &options, &progress),
                serve(far, root.path(), &allowed)
            ) } => both,
            () = relaying => unreachable!("it waits for the end"),
        }
    };
    let second = async {
        // With its name there is something to go on from.
        let is_begun = sent > CHECKPOINT;
        while journals(root.path()).is_empty() || is_begun && leftovers(root.path()).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let (both, _) = sitting(&large, root.path(), "", true, u64::MAX).await;
        go.notify_one();
        both.0.unwrap()
    };
    let (first, second) = tokio::join!(first, second);
    let told = first.0.unwrap_err().to_string();
    assert!(told.contains("started again"), "{told}");
    assert_eq!(second.kept.begun > 0, sent > CHECKPOINT, "{second:?}");
    assert!(journals(root.path()).is_empty() && leftovers(root.path()).is_empty());
    assert_eq!(fs::read(&large).unwrap(), fs::read(root.path().join("large")).unwrap());
}

#[tokio::test]
async fn a_sender_waits_for_what_the_receiver_has() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("x"), vec![7; LARGE]).unwrap();
    let (near, far) = duplex(1 << 20);
    let (mut answers, mut requests) = split(near);
    let asking = async {
        let mut bytes = hello().to_vec();
        let (source, terms) = (RawBytes(b"x".to_vec()), Terms::default());
        append_message(&Message::Get { source, terms }, &mut bytes);
        requests.write_all(&bytes).await.unwrap();
        answers.read_exact(&mut [0; HELLO_LEN]).await.unwrap();
        let (mut decoder, mut block) = (Decoder::default(), vec![0; 64 << 10]);
        let (mut came, mut of) = (0, None);
        loop {
            // Long enough for one that does not wait to send all of it.
            let reading = timeout(Duration::from_millis(500), answers.read(&mut block));
            let Ok(read) = reading.await else {
                let mut told = Vec::new();
                append_message(&Message::Has { tags: vec![of.take().unwrap()] }, &mut told);
                append_message(&Message::HadAll, &mut told);
                requests.write_all(&told).await.unwrap();
                continue;
            };
            let mut input = &block[..read.unwrap()];
            assert!(!input.is_empty(), "it ends after {came} bytes");
            while let Some(item) = decoder.next(&mut input).unwrap() {
                match item {
                    Item::Data(data) => came += data.len() as u64,
                    Item::Message(Message::File { tag, .. }) => of = Some(tag),
                    Item::Message(Message::Finish { kept, .. }) => return (came, kept),
                    _ => {}
                }
            }
        }
    };
    let allowed = ServeOptions::default();
    let (came, kept) = tokio::select! {
        came = asking => came,
        served = serve(far, folder.path(), &allowed) => panic!("{served:?}"),
    };
    assert_eq!((kept.files, kept.bytes), (1, LARGE as u64));
    assert!(AHEAD / 2 < came && came < AHEAD + 2 * DATA_MAX as u64, "{came}");
}

/// One sitting of a sync of a file to another version of it, cut after so many bytes.
async fn sync_to(file: &Path, root: &Path, limit: u64) -> (Both, u64) {
    let id = Some(TransferId::of([&b"test"[..]]));
    let (progress, allowed) = <(Progress, ServeOptions)>::default();
    let terms = Terms { compare: Some(Compare::Time), ..Terms::default() };
    let options = Options { id, terms, ..Options::default() };
    let (sends, receives, counted) = cut_after(limit);
    let sources = [file.to_owned()];
    let both = tokio::join!(
        put(sends, &sources, Path::new("large"), &options, &progress),
        serve(receives, root, &allowed)
    );
    (both, counted.load(Relaxed))
}

/// What an earlier sitting wrote down of a file tells its size and its time.
#[tokio::test]
async fn who_compares_contents_believes_no_journal() {
    let (source, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(source.path().join("a"), "contents").unwrap();
    // Directories come last.
    fs::create_dir(source.path().join("deep")).unwrap();
    fs::write(source.path().join("deep/z"), Dice::new(3).bytes(LARGE)).unwrap();
    let damaged = root.path().join("tree/a");
    for (compare, limit, found) in [
        (Compare::Time, 20 << 20, "contents"),
        (Compare::Time, 2 << 20, "damaged!"),
        (Compare::Content, u64::MAX, "contents"),
    ] {
        let id = Some(TransferId::of([&b"test"[..]]));
        let (progress, allowed) = <(Progress, ServeOptions)>::default();
        let terms = Terms { compare: Some(compare), ..Terms::default() };
        let options = Options { id, terms, ..Options::default() };
        let (sends, receives, _) = cut_after(limit);
        let sources = [source.path().to_owned()];
        let (put, _) = tokio::join!(
            put(sends, &sources, Path::new("tree"), &options, &progress),
            serve(receives, root.path(), &allowed)
        );
        assert_eq!(put.is_ok(), compare == Compare::Content);
        assert_eq!(fs::read_to_string(&damaged).unwrap(), found);
        let time = fs::metadata(&damaged).unwrap().modified().unwrap();
        fs::write(&damaged, "damaged!").unwrap();
        fs::File::options().write(true).open(&damaged).unwrap().set_modified(time).unwrap();
    }
}

/// Two versions of a large file of which each second half of a MiB is the same.
fn versions(source: &Path, root: &Path) -> Vec<u8> {
    let mut bytes = Dice::new(1).bytes(2 * LARGE);
    fs::write(root.join("large"), &bytes).unwrap();
    let mut dice = Dice::new(2);
    bytes.chunks_mut(1 << 20).for_each(|piece| {
        let half = piece.len() / 2;
        piece[..half].copy_from_slice(&dice.bytes(half));
    });
    fs::write(source.join("large"), &bytes).unwrap();
    bytes
}

#[tokio::test]
async fn a_difference_goes_on_from_what_was_made_of_it() {
    let (source, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let bytes = versions(source.path(), root.path());
    let file = source.path().join("large");
    // Twice, so that what was gone on from is gone on from.
    let mut sent = Vec::new();
    for limit in [18 << 20, 14 << 20] {
        let (both, counted) = sync_to(&file, root.path(), limit).await;
        both.0.unwrap_err();
        sent.push(counted);
        assert!(!leftovers(root.path()).is_empty());
        assert!(fs::read(root.path().join("large")).unwrap() != bytes);
    }
    let (both, counted) = sync_to(&file, root.path(), u64::MAX).await;
    let summary = both.0.unwrap();
    assert!(fs::read(root.path().join("large")).unwrap() == bytes);
    assert!(journals(root.path()).is_empty() && leftovers(root.path()).is_empty());
    assert!(!summary.is_partial() && summary.notes.iter().next().is_none());
    // What is sent of it is about half.
    sent.push(counted);
    let all: u64 = sent.iter().sum();
    assert!(all < LARGE as u64 + 2 * FLIGHT, "{sent:?}");
}

#[tokio::test]
async fn what_was_made_of_a_version_that_is_gone_is_made_anew() {
    let (source, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let bytes = versions(source.path(), root.path());
    let file = source.path().join("large");
    let (both, _) = sync_to(&file, root.path(), 30 << 20).await;
    both.0.unwrap_err();
    assert!(!leftovers(root.path()).is_empty());
    fs::remove_file(root.path().join("large")).unwrap();
    let (both, counted) = sync_to(&file, root.path(), u64::MAX).await;
    both.0.unwrap();
    assert!(counted > 2 * LARGE as u64, "{counted}");
    assert!(fs::read(root.path().join("large")).unwrap() == bytes);
    assert!(journals(root.path()).is_empty() && leftovers(root.path()).is_empty());
}

#[tokio::test]
async fn where_there_is_no_room_for_what_was_made_and_its_copy_it_is_made_anew() {
    let name = "where_there_is_no_room_for_what_was_made_and_its_copy_it_is_made_anew";
    // The version, all of the file and a quarter of it again.
    let Some(disk) = Mounted::memory((LARGE * 2 + LARGE * 2 + LARGE / 2) as u64) else {
        return skip(name, "only root may mount a small file system");
    };
    let (source, root) = (TempDir::new().unwrap(), disk.disk());
    let bytes = versions(source.path(), &root);
    let file = source.path().join("large");
    let (both, _) = sync_to(&file, &root, 37 << 20).await;
    both.0.unwrap_err();
    assert!(
        fs::metadata(root.join(&leftovers(&root)[0])).unwrap().len() > (LARGE + LARGE / 4) as u64
    );
    let (both, _) = sync_to(&file, &root, u64::MAX).await;
    let text = both.0.unwrap_err().to_string();
    assert!(text.contains("free space there"), "{text}");
    assert!(leftovers(&root).is_empty());
    let (both, _) = sync_to(&file, &root, u64::MAX).await;
    both.0.unwrap();
    assert!(fs::read(root.join("large")).unwrap() == bytes);
    assert!(journals(&root).is_empty() && leftovers(&root).is_empty());
}

#[tokio::test]
async fn what_was_about_to_be_named_when_all_was_killed_goes_later() {
    let source = source(7);
    let tree = source.path().join("tree");
    let root = TempDir::new().unwrap();
    for top in [root.path().to_owned(), root.path().join("tree")] {
        let cut = sitting(&tree, root.path(), "", true, 30 << 20).await;
        assert!(cut.0.0.is_err());
        let journal = journals(root.path()).pop().unwrap();
        let journal = journal.file_name().unwrap().to_str().unwrap();
        let (mark, _) = journal.split_at(".longhaul-".len() + 8);
        let (ours, others) = (format!(".x{mark}00000000a.part"), ".x.longhaul-0a.part");
        fs::write(top.join(&ours), "x").unwrap();
        fs::write(top.join(others), "x").unwrap();
        let whole = sitting(&tree, root.path(), "", true, u64::MAX).await;
        whole.0.0.unwrap();
        assert!(!top.join(ours).exists() && top.join(others).exists());
        fs::remove_file(top.join(others)).unwrap();
        nothing_wrong(&tree, &root.path().join("tree"));
        assert_eq!((journals(root.path()), leftovers(root.path())), (vec![], vec![]));
        fs::remove_dir_all(root.path().join("tree")).unwrap();
    }
}

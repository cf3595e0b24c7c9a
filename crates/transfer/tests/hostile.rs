//! Neither a hostile sender nor a hostile client gets out of the folder.

mod common;

use std::cell::Cell;
use std::fs;
use std::future::ready;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use common::{Mounted, get_from, look, put_to, skip};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use transfer::wire::{
    Attributes, CONTROL_HEAD, CONTROL_MAX, COPY_MAX, Compare, Decoder, HELLO_LEN, HOLE_MAX, Item,
    Message, Modified, Piece, RawBytes, Standing, Terms, append_message, data_head, hello,
};
use transfer::{
    Budget, Counts, Direction, Kept, Manifest, NOTES_MAX, Note, NoteKind, Occupancy, Options,
    Outcome, Progress, RelPath, ServeOptions, Summary, TransferError, TransferId, get, serve,
    serve_in_turn,
};

fn path(path: &str) -> RelPath {
    RelPath::new(path.into()).unwrap()
}

fn file(at: &str, contents: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_message(&header(at, contents.len() as u64, 0o7777), &mut bytes);
    bytes.extend_from_slice(&data_head(contents.len()));
    bytes.extend_from_slice(contents);
    append_message(&Message::End { hash: *blake3::hash(contents).as_bytes() }, &mut bytes);
    bytes
}

fn header(at: &str, size: u64, mode: u32) -> Message {
    let attributes = Attributes { mode, ..Attributes::default() };
    Message::File { path: path(at), size: Some(size), tag: [7; 16], attributes }
}

fn messages(messages: impl IntoIterator<Item = Message>) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages.into_iter().for_each(|message| append_message(&message, &mut bytes));
    bytes
}

fn link(at: &str, target: &Path) -> Message {
    let target = transfer::wire::RawBytes(target.to_str().unwrap().into());
    Message::Symlink { path: path(at), target, attributes: Attributes::default() }
}

fn directory(at: &str) -> Message {
    let attributes = Attributes { mode: 0o755, ..Attributes::default() };
    Message::Directory { path: path(at), attributes }
}

const FINISH: Message = Message::Finish {
    occupancy: Occupancy { blocks: 0, full: 0, empty: 0 },
    kept: Kept { files: 0, bytes: 0, begun: 0 },
};

/// A client that puts hand-made frames.
async fn put_frames(root: &Path, frames: &[Vec<u8>]) -> Result<Outcome, TransferError> {
    put_frames_to(root, frames, &ServeOptions::default()).await
}

async fn put_frames_to(
    root: &Path,
    frames: &[Vec<u8>],
    allowed: &ServeOptions,
) -> Result<Outcome, TransferError> {
    put_frames_as(root, "", frames, allowed).await
}

/// The same to a destination of this name.
async fn put_frames_as(
    root: &Path,
    name: &str,
    frames: &[Vec<u8>],
    allowed: &ServeOptions,
) -> Result<Outcome, TransferError> {
    put_frames_of(root, (name, None), frames, allowed).await
}

/// The same, of which a journal is kept.
async fn put_frames_of(
    root: &Path,
    (name, id): (&str, Option<TransferId>),
    frames: &[Vec<u8>],
    allowed: &ServeOptions,
) -> Result<Outcome, TransferError> {
    let (near, far) = duplex(1000);
    let (mut answers, mut requests) = tokio::io::split(near);
    let sending = async {
        let destination = transfer::wire::RawBytes(name.into());
        let mut bytes = hello().to_vec();
        let (into_directory, rehearses, patterns) = (false, false, Vec::new());
        let put = Message::Put { destination, into_directory, id, rehearses, patterns };
        append_message(&put, &mut bytes);
        bytes.extend(frames.concat());
        // The far side may have had enough of it.
        let _ = requests.write_all(&bytes).await;
        let _ = requests.shutdown().await;
    };
    let listening = async { tokio::io::copy(&mut answers, &mut tokio::io::sink()).await };
    tokio::join!(serve(far, root, allowed), sending, listening).0
}

#[tokio::test]
async fn a_planted_link_is_not_written_through() {
    let (root, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::create_dir(outside.path().join("deeper")).unwrap();
    symlink(outside.path(), root.path().join("there")).unwrap();
    let frames = [
        messages([link("planted", outside.path())]),
        file("planted/x", b"evil"),
        messages([directory("planted")]),
        file("planted/y", b"evil"),
        file("there/z", b"evil"),
        file("there/deeper/z", b"evil"),
        messages([directory("there")]),
        file("there/deeper/zz", b"evil"),
        messages([FINISH]),
    ];
    let summary = put_frames(root.path(), &frames).await.unwrap().summary;
    assert!(summary.is_partial());
    assert_eq!(look(outside.path()).len(), 2, "only what was there before");
    assert_eq!(fs::read_link(root.path().join("there")).unwrap(), outside.path());
}

/// Whoever comes to the same destination again would follow it.
#[tokio::test]
async fn a_link_does_not_become_the_destination_itself() {
    for top in ["", "their name"] {
        let (root, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let frames = [messages([link(top, outside.path()), FINISH])];
        let allowed = ServeOptions::default();
        let outcome = put_frames_as(root.path(), "new", &frames, &allowed).await;
        assert!(outcome.is_ok_and(|outcome| outcome.summary.is_partial()), "{top:?}");
        assert!(fs::symlink_metadata(root.path().join("new")).is_err(), "{top:?}");
    }
    // Below it a link is one of many things.
    let root = TempDir::new().unwrap();
    let frames = [messages([directory("top"), link("top/new", Path::new("elsewhere")), FINISH])];
    let outcome = put_frames_as(root.path(), "new", &frames, &ServeOptions::default()).await;
    assert!(!outcome.unwrap().summary.is_partial());
    assert_eq!(fs::read_link(root.path().join("new/new")).unwrap(), Path::new("elsewhere"));
}

/// As root, a copy to `/dev/null` would put a file there.
#[tokio::test]
async fn a_file_does_not_take_the_place_of_what_is_none() {
    let root = TempDir::new().unwrap();
    let pipe = root.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    symlink("pipe", root.path().join("link")).unwrap();
    let frames = [file("x", b"contents"), messages([FINISH])];
    for name in ["pipe", "link"] {
        let outcome = put_frames_as(root.path(), name, &frames, &ServeOptions::default()).await;
        let error = outcome.expect_err("it is refused").to_string();
        assert!(error.contains("a device, a pipe or a socket"), "{error}");
    }
    let kind = fs::symlink_metadata(&pipe).unwrap().file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind));
    assert!(fs::symlink_metadata(root.path().join("link")).unwrap().is_symlink());
}

#[tokio::test]
async fn a_link_under_the_final_name_is_replaced_not_followed() {
    let (root, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let victim = outside.path().join("victim");
    fs::write(&victim, "kept").unwrap();
    symlink(&victim, root.path().join("name")).unwrap();
    let frames = [file("name", b"new"), messages([FINISH])];
    let summary = put_frames(root.path(), &frames).await.unwrap().summary;
    assert_eq!(summary.counts.files, 1);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    let arrived = &look(root.path())[Path::new("name")];
    assert_eq!((&arrived.contents[..], arrived.mode), (&b"new"[..], 0o100_777), "no set-user-ID");
}

#[tokio::test]
async fn messages_out_of_turn_and_impossible_sizes_end_the_transfer() {
    let half = &file("x", b"contents")[..];
    let long = header("x", 3, 0);
    let end = Message::End { hash: [0; 32] };
    let empty = header("", 0, 0o644);
    let hole = |length| messages([Message::Hole { length }]);
    let data = [data_head(8).to_vec(), b"contents".to_vec()].concat();
    let whole = file("x", b"contents");
    let bad = [
        vec![data.clone()],
        vec![messages([end.clone()])],
        vec![messages([Message::Abandon])],
        vec![messages([long.clone()]), data.clone()],
        vec![messages([long.clone(), end])],
        vec![messages([long.clone(), FINISH])],
        vec![messages([long.clone(), long.clone()])],
        vec![messages([Message::Progress { files: 0, bytes: 0 }])],
        vec![whole.clone(), vec![0; 20]],
        vec![whole, vec![0xff; 20]],
        vec![half[..half.len() - 1].to_vec()],
        vec![messages([empty, FINISH])],
        vec![hole(1)],
        vec![messages([long.clone()]), hole(4)],
        vec![messages([header("x", u64::MAX, 0)]), hole(u64::MAX)],
    ];
    for frames in bad {
        let root = TempDir::new().unwrap();
        put_frames(root.path(), &frames).await.unwrap_err();
        assert!(common::leftovers(root.path()).is_empty());
    }
}

#[tokio::test]
async fn no_client_reads_or_writes_outside_the_served_folder() {
    let (root, outside, near) =
        (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(outside.path().join("secret"), "secret").unwrap();
    fs::write(near.path().join("x"), "x").unwrap();
    symlink(outside.path(), root.path().join("out")).unwrap();
    fs::create_dir(root.path().join("real")).unwrap();
    symlink("real", root.path().join("inside")).unwrap();
    let up = format!("../{}/secret", outside.path().file_name().unwrap().to_str().unwrap());
    let absolute = outside.path().join("secret");
    for remote in ["..", &up, "out/secret", "out", absolute.to_str().unwrap(), "real/../../x"] {
        let (a, b) = duplex(1000);
        let (got, _) = get_from(a, b, root.path(), remote, near.path()).await;
        assert!(got.is_err(), "{remote}: {got:?}");
        let (a, b) = duplex(1000);
        let remote = format!("{remote}/y");
        let sources = [near.path().join("x")];
        let (put, _) = put_to(a, b, &sources, root.path(), &remote).await;
        assert!(put.is_err(), "{remote}: {put:?}");
    }
    assert_eq!(look(outside.path()).len(), 2);
    assert_eq!(look(near.path()).len(), 2);

    let (a, b) = duplex(1000);
    put_to(a, b, &[near.path().join("x")], root.path(), "/inside").await.0.unwrap();
    assert!(root.path().join("real/x").is_file(), "a link that stays inside is followed");
}

/// A client that asks for `x`, and a server that answers with hand-made frames.
async fn get_frames(destination: &Path, frames: &[Vec<u8>]) -> Result<Summary, TransferError> {
    get_frames_by(destination, frames, &Options::default()).await
}

async fn get_frames_by(
    destination: &Path,
    frames: &[Vec<u8>],
    options: &Options,
) -> Result<Summary, TransferError> {
    let (near, far) = duplex(1000);
    let answering = async move {
        let (mut requests, mut answers) = tokio::io::split(far);
        // The client may have had enough of it.
        let _ = answers.write_all(&[hello().to_vec(), frames.concat()].concat()).await;
        let _ = requests.read_to_end(&mut Vec::new()).await;
    };
    let progress = Progress::default();
    let getting = get(near, Path::new("some/x"), destination, options, &progress);
    tokio::join!(getting, answering).0
}

#[tokio::test]
async fn a_hostile_server_cannot_write_beside_the_destination() {
    let folder = TempDir::new().unwrap();
    let destination = folder.path().join("destination");
    fs::create_dir(&destination).unwrap();
    let frames = [
        messages([directory("x"), link("x/up", folder.path())]),
        file("x/up/evil", b"evil"),
        messages([FINISH]),
    ];
    let summary = get_frames(&destination, &frames).await.unwrap();
    assert_eq!((summary.counts.files, summary.counts.symlinks), (0, 1));
    assert!(!folder.path().join("evil").exists());
}

/// As CVE-2019-6111 was in scp.
#[tokio::test]
async fn a_hostile_server_gives_no_other_name_than_was_asked_for() {
    for frames in [
        file("y", b"evil"),
        file(".bashrc", b"evil"),
        file("xx", b"evil"),
        messages([directory(".ssh")]),
        messages([link("y", Path::new("/"))]),
        messages([Message::Link { path: path("x"), to: path("y") }]),
        messages([directory("")]),
    ] {
        let destination = TempDir::new().unwrap();
        let got = get_frames(destination.path(), &[frames, messages([FINISH])]).await;
        let told = got.unwrap_err().to_string();
        assert!(told.contains("not asked for"), "{told}");
        assert_eq!(look(destination.path()).len(), 1);
    }
    // Nor an owner.
    let owned = Message::File {
        path: path("x"),
        size: Some(0),
        tag: [7; 16],
        attributes: Attributes { mode: 0o644, owner: Some((1, 1)), ..Attributes::default() },
    };
    let folder = TempDir::new().unwrap();
    let end = Message::End { hash: *blake3::hash(b"").as_bytes() };
    get_frames(folder.path(), &[messages([owned, end, FINISH])]).await.unwrap();
    let (came, ours) = ["x", ""].map(|name| fs::metadata(folder.path().join(name)).unwrap()).into();
    assert_eq!((came.uid(), came.gid()), (ours.uid(), ours.gid()));
    // Under the name that the user chose, it comes as what it is.
    let folder = TempDir::new().unwrap();
    let got = get_frames(&folder.path().join("mine"), &[file("x", b"1"), messages([FINISH])]).await;
    assert_eq!(got.unwrap().counts.files, 1);
    assert_eq!(fs::read(folder.path().join("mine")).unwrap(), b"1");
}

#[tokio::test]
async fn a_hostile_server_learns_and_removes_nothing_unasked() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("x")).unwrap();
    fs::write(folder.path().join("x/mine"), "mine").unwrap();
    let by = Compare::Time;
    for message in [
        Message::Compare { path: path("x"), by, owner: false },
        Message::Names { path: path("x"), names: Vec::new(), is_last: true },
        Message::Mend { path: path("x/mine"), attributes: Attributes::default() },
        Message::Ask { path: path("x/mine") },
        Message::Stays { path: path("x/mine") },
    ] {
        let frames = [messages([directory("x"), message, FINISH])];
        get_frames(folder.path(), &frames).await.unwrap_err();
        assert_eq!(fs::read(folder.path().join("x/mine")).unwrap(), b"mine");
    }
    let copy = [header("x/new", 4, 0o644), Message::Copy { offset: 0, length: 4 }, FINISH];
    get_frames(folder.path(), &[messages(copy)]).await.unwrap_err();
}

#[tokio::test]
async fn a_file_that_did_not_arrive_gives_nobody_another_name() {
    let root = TempDir::new().unwrap();
    fs::create_dir_all(root.path().join("folder")).unwrap();
    for name in ["damaged", "folder/old"] {
        fs::write(root.path().join(name), "old").unwrap();
    }
    let frames = messages([
        header("damaged", 0, 0o644),
        Message::End { hash: [0; 32] },
        Message::Link { path: path("one"), to: path("damaged") },
        header("gone/file", 0, 0o644),
        Message::Abandon,
        Message::Link { path: path("other"), to: path("folder/old") },
        FINISH,
    ]);
    let summary = put_frames(root.path(), &[frames]).await.unwrap().summary;
    assert_eq!((summary.notes.failed(), summary.counts.files), (3, 1), "{summary:?}");
    assert!(!root.path().join("one").exists() && root.path().join("other").exists());
}

/// Who could write a journal could have what it tells of named, told and removed.
#[tokio::test]
async fn no_client_reads_or_writes_what_is_kept_of_a_copy() {
    let root = TempDir::new().unwrap();
    let journals = [7, 8, 9].map(|id| format!(".longhaul-{id:032x}.journal"));
    let [journal, other, third] = journals.each_ref().map(String::as_str);
    let (part, deep) =
        (".x.longhaul-0123456789abcdef0.part", "deep/.x.longhaul-0123456789abcdef1.part");
    for name in [journal, part] {
        fs::write(root.path().join(name), "ours").unwrap();
    }
    let frames = [
        file("x", b"good"),
        file(journal, b"evil"),
        file(&part.to_uppercase(), b"evil"),
        messages([
            link(other, Path::new("evil")),
            link(part, Path::new("evil")),
            Message::Mend { path: path(journal), attributes: Attributes::default() },
            Message::Link { path: path("y"), to: path(journal) },
            Message::Link { path: path(third), to: path("x") },
            FINISH,
        ]),
    ];
    let before = look(root.path());
    let summary = put_frames(root.path(), &frames).await.unwrap().summary;
    let notes = (summary.notes.failed(), summary.notes.skipped());
    assert_eq!((notes, summary.counts.files), ((1, 6), 1), "{summary:?}");
    let mut after = look(root.path());
    after.remove(Path::new("x")).unwrap();
    assert!(after.keys().eq(before.keys()));
    let kept = [journal, part].map(|name| after[Path::new(name)] == before[Path::new(name)]);
    assert_eq!(kept, [true, true]);
    for name in [journal, deep] {
        let near = TempDir::new().unwrap();
        let (a, b) = duplex(1000);
        let got = get_from(a, b, root.path(), name, near.path()).await.0.unwrap_err().to_string();
        assert!(got.contains("a copy that is not done"), "{got}");
        let frames = [file("x", b"evil"), messages([FINISH])];
        let allowed = ServeOptions::default();
        put_frames_as(root.path(), name, &frames, &allowed).await.unwrap_err();
    }
    // Nor by a link, which anybody may plant who may write there.
    symlink(journal, root.path().join("link")).unwrap();
    let (near, (a, b)) = (TempDir::new().unwrap(), duplex(1000));
    let got = get_from(a, b, root.path(), "link", near.path()).await.0.unwrap();
    let said = Vec::from_iter(got.notes.iter().map(Note::to_string));
    assert!(said.len() == 1 && said[0].contains("a copy that is not done"), "{said:?}");
    assert_eq!(look(near.path()).len(), 1);
    // Where nothing else is to come that is the end, before all of it has come.
    let (near, (a, b)) = (TempDir::new().unwrap(), duplex(1000));
    let got = get_from(a, b, root.path(), "x", &near.path().join(journal)).await.0;
    let put = put_frames(root.path(), &[messages([header(journal, 1, 0o644)])]).await;
    for error in [got.unwrap_err(), put.unwrap_err()] {
        assert!(error.to_string().contains("a copy that is not done"), "{error}");
    }
}

/// An earlier release sends what another copy has left among the rest.
#[tokio::test]
async fn what_was_left_of_a_copy_does_not_keep_what_is_to_go() {
    let root = TempDir::new().unwrap();
    for name in ["extra", "x"] {
        fs::write(root.path().join(name), name).unwrap();
    }
    let part = ".x.longhaul-0123456789abcdef0.part";
    let names = [part, "x"].map(|name| RawBytes(name.into())).to_vec();
    let frames = [
        messages([directory("")]),
        file(part, b"part"),
        file("x", b"good"),
        messages([Message::Names { path: path(""), names, is_last: true }, FINISH]),
    ];
    let summary = put_frames(root.path(), &frames).await.unwrap().summary;
    let notes = (summary.notes.failed(), summary.notes.skipped());
    assert_eq!((notes, summary.counts.removed), ((0, 1), 1), "{summary:?}");
    assert_eq!(look(root.path()).len(), 2);
}

/// Holes and copies cost who sends them next to nothing.
#[tokio::test]
async fn for_who_has_gone_nothing_is_hashed_or_copied() {
    let root = TempDir::new().unwrap();
    fs::File::create(root.path().join("x")).unwrap().set_len(COPY_MAX).unwrap();
    for (message, length) in [
        (Message::Hole { length: HOLE_MAX }, HOLE_MAX),
        (Message::Copy { offset: 0, length: COPY_MAX }, COPY_MAX),
    ] {
        let whole = 16 << 30;
        let pieces = std::iter::repeat_n(message, (whole / length) as usize);
        let (into_directory, rehearses, patterns) = (true, false, Vec::new());
        let destination = RawBytes::default();
        let put = Message::Put { destination, into_directory, id: None, rehearses, patterns };
        let frames = messages([put, header("x", whole, 0o644)].into_iter().chain(pieces));
        let (mut near, far) = duplex(100_000);
        near.write_all(&[hello().to_vec(), frames].concat()).await.unwrap();
        drop(near);
        let allowed = ServeOptions::default();
        serve(far, root.path(), &allowed).await.unwrap_err();
        assert!(allowed.progress.sample().bytes < whole / 4);
        assert_eq!(look(root.path()).len(), 2);
    }
}

/// What the first sitting has brought whole, the next does not bring again.
#[tokio::test]
async fn a_time_that_cannot_be_set_is_told_of_by_every_sitting() {
    let root = TempDir::new().unwrap();
    let odd = Modified { seconds: 0, nanos: u32::MAX };
    let attributes = Attributes { mode: 0o644, modified: odd, ..Attributes::default() };
    let one = Message::File { path: path("one"), size: Some(0), tag: [7; 16], attributes };
    let first = messages([one, Message::End { hash: *blake3::hash(b"").as_bytes() }]);
    let allowed = ServeOptions::default();
    let of = ("", Some(TransferId::of([&b"test"[..]])));
    put_frames_of(root.path(), of, &[first], &allowed).await.unwrap_err();
    let attributes = Attributes { mode: 0o644, modified: odd, ..Attributes::default() };
    let mend = Message::Mend { path: path("one"), attributes };
    for again in [directory("rest"), mend, directory("rest")] {
        let rest = messages([again, FINISH]);
        let summary = put_frames_of(root.path(), of, &[rest], &allowed).await.unwrap().summary;
        let said = Vec::from_iter(summary.notes.iter().map(Note::to_string));
        assert!(said.len() == 1 && said[0].contains("could not be set"), "{said:?}");
        assert!(summary.is_partial() && root.path().join("one").exists());
    }
}

#[tokio::test]
async fn what_has_come_and_was_not_wanted_needs_no_room() {
    let Some(disk) = Mounted::memory(8 << 20) else {
        let name = "what_has_come_and_was_not_wanted_needs_no_room";
        return skip(name, "only root may mount a small file system");
    };
    let refused = |number| format!("tree/.x.longhaul-{number:017x}.part");
    let refused = (0..6).flat_map(|number| file(&refused(number), &[7; 1 << 20])).collect();
    let all = 10 << 20;
    let totals = messages([Message::Totals { files: 7, bytes: all, least: all }]);
    let small = file("tree/small", b"small");
    let frames = [messages([directory("tree")]), refused, totals, small, messages([FINISH])];
    let summary = put_frames(&disk.disk(), &frames).await.unwrap().summary;
    assert_eq!(summary.counts.files, 1, "{summary:?}");
}

/// What is written down of a file is more than what was said of it.
#[tokio::test]
async fn a_message_that_fills_its_frame_has_a_record_that_fits() {
    let root = TempDir::new().unwrap();
    let odd = Modified { seconds: 0, nanos: u32::MAX };
    let one = |length| {
        let extended = vec![(RawBytes(b"user.x".to_vec()), RawBytes(vec![7; length]))];
        let attributes = Attributes { mode: 0o644, modified: odd, extended, ..Default::default() };
        Message::File { path: path("one"), size: Some(0), tag: [7; 16], attributes }
    };
    let frame = CONTROL_HEAD + CONTROL_MAX;
    let full = one(CONTROL_MAX - 1000 + frame - messages([one(CONTROL_MAX - 1000)]).len());
    assert_eq!(messages([full.clone()]).len(), frame);
    let first = messages([full, Message::End { hash: *blake3::hash(b"").as_bytes() }]);
    let allowed = ServeOptions::default();
    let of = ("", Some(TransferId::of([&b"test"[..]])));
    put_frames_of(root.path(), of, &[first], &allowed).await.unwrap_err();
    let rest = messages([directory("rest"), FINISH]);
    let summary = put_frames_of(root.path(), of, &[rest], &allowed).await.unwrap().summary;
    // It was written down what could not be set.
    assert_eq!(summary.notes.failed(), 1, "{summary:?}");
}

#[tokio::test]
async fn a_planted_link_leads_nowhere_in_a_sync_either() {
    let (root, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(outside.path().join("secret"), "secret").unwrap();
    symlink(outside.path(), root.path().join("there")).unwrap();
    let frames = [
        messages([
            Message::Compare { path: path("there"), by: Compare::Content, owner: false },
            Message::Ask { path: path("there/secret") },
            Message::Names { path: path("there"), names: Vec::new(), is_last: true },
            Message::Mend { path: path("there/secret"), attributes: Attributes::default() },
        ]),
        messages([header("there/new", 6, 0o644), Message::Copy { offset: 0, length: 6 }]),
        messages([Message::Abandon, FINISH]),
    ];
    let outcome = put_frames(root.path(), &frames).await.unwrap();
    assert!(outcome.summary.is_partial());
    assert_eq!(look(outside.path()).len(), 2, "only what was there before");
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
    assert!(fs::symlink_metadata(root.path().join("there")).unwrap().is_symlink());
}

#[tokio::test]
async fn a_hostile_server_that_never_stops_fills_no_memory() {
    let folder = TempDir::new().unwrap();
    let reason = "n".repeat(1000);
    let note = Message::Note(Note::new(NoteKind::Failed, b"x", &reason));
    let mut frames = vec![messages(std::iter::repeat_n(note, 3 * NOTES_MAX))];
    // Sizes that nobody has, of which nothing comes.
    frames.push(messages([
        Message::Totals { files: u64::MAX, bytes: u64::MAX, least: 0 },
        header("x", u64::MAX, 0),
        Message::Abandon,
        FINISH,
    ]));
    let summary = get_frames(folder.path(), &frames).await.unwrap();
    assert_eq!(summary.notes.iter().count(), NOTES_MAX);
    assert_eq!(summary.notes.failed(), 3 * NOTES_MAX as u64);
    assert_eq!(look(folder.path()).len(), 1);
}

/// Names of a directory that are to stay.
fn names(number: usize, is_last: bool) -> Message {
    let name = |n: usize| RawBytes(format!("{n:0>250}").into_bytes());
    let names = (number * 8..number * 8 + 8).map(name).collect();
    Message::Names { path: path("x"), names, is_last }
}

#[tokio::test]
async fn names_without_end_fill_no_memory_and_others_are_still_served() {
    let root = TempDir::new().unwrap();
    let budget = Budget::new(1 << 20);
    let allowed = ServeOptions { budget, ..ServeOptions::default() };
    let flood = messages((0..2000).map(|number| names(number, false)));
    let begin = messages([directory("x")]);
    let error = put_frames_to(root.path(), &[begin.clone(), flood], &allowed).await.unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
    // What that one had is there for the next again, and for one directory after another.
    let some = (0..2000).map(|number| names(number, number % 100 == 99));
    let frames = [begin, messages(some.chain([FINISH]))];
    put_frames_to(root.path(), &frames, &allowed).await.unwrap();
}

#[tokio::test]
async fn what_a_receiver_says_to_stand_there_is_charged_to_the_memory_of_all_requests() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("f"), b"f").unwrap();
    let budget = Budget::new(1 << 20);
    let allowed = ServeOptions { budget, ..ServeOptions::default() };
    let (mut near, far) = duplex(10_000);
    let root = root.path();
    let telling = async {
        let terms = Terms { compare: Some(Compare::Time), ..Terms::default() };
        let get = Message::Get { source: RawBytes(b"f".to_vec()), terms };
        near.write_all(&[hello().to_vec(), messages([get])].concat()).await.unwrap();
        for round in 0..200_u32 {
            let key = |n: u32| *blake3::hash(&[round, n].map(u32::to_le_bytes).concat()).as_bytes();
            let stands = |n| Standing { key: *key(n).first_chunk().unwrap(), rest: n };
            let standing = (0..512).map(stands).collect();
            near.write_all(&messages([Message::Stands { standing }])).await.unwrap();
        }
        let frames = [messages([directory("x")]), messages([names(0, false)])];
        let error = put_frames_to(root, &frames, &allowed).await.unwrap_err();
        assert!(error.to_string().contains("memory"), "{error}");
        drop(near);
    };
    let (served, ()) = tokio::join!(serve(far, root, &allowed), telling);
    served.unwrap_err();
    // With that request, its memory came back.
    let frames = [messages([directory("x")]), messages([names(0, true), FINISH])];
    put_frames_to(root, &frames, &allowed).await.unwrap();
}

#[tokio::test]
async fn what_a_server_says_to_stay_without_end_is_told_not_to_be_there() {
    const FILES: u64 = 20_000;
    let folder = TempDir::new().unwrap();
    let stays = (0..FILES).map(|n| Message::Stays { path: path(&format!("x/{n}")) });
    let frames = [messages([directory("x")]), messages(stays.chain([FINISH]))];
    let manifest = Manifest::default();
    let options = Options { manifest: Some(manifest.clone()), ..Options::default() };
    let summary = get_frames_by(folder.path(), &frames, &options).await.unwrap();
    assert_eq!(summary.notes.failed(), FILES);
    assert_eq!(summary.notes.iter().count(), NOTES_MAX);
    manifest.write(&folder.path().join("list")).unwrap();
    assert_eq!(fs::read(folder.path().join("list")).unwrap(), b"");
}

#[tokio::test]
async fn what_a_receiver_says_without_end_does_not_stop_the_sender() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("x"), vec![7; 3 << 20]).unwrap();
    let (near, far) = duplex(100_000);
    let (mut answers, mut requests) = tokio::io::split(near);
    let flood = async {
        let mut bytes = hello().to_vec();
        let terms = Terms { compare: Some(Compare::Time), ..Terms::default() };
        append_message(&Message::Get { source: RawBytes(b"x".to_vec()), terms }, &mut bytes);
        for round in 0..500_u32 {
            let some =
                |n: u32| *blake3::hash(&[round, n].map(u32::to_le_bytes).concat()).as_bytes();
            let tags = (0..512).map(|n| *some(n).first_chunk().unwrap()).collect();
            let stands = |n| Standing { key: *some(n).first_chunk().unwrap(), rest: n };
            let piece = |n| Piece { length: n, hash: *some(n).first_chunk().unwrap() };
            let path = path(if round % 2 == 0 { "x" } else { "unasked" });
            let (average, is_last) = (u32::MAX, round % 7 == 0);
            let pieces = (0..100).map(piece).collect();
            for message in [
                Message::Has { tags },
                Message::Stands { standing: (0..512).map(stands).collect() },
                Message::Pieces { path, average, pieces, is_last },
            ] {
                append_message(&message, &mut bytes);
            }
        }
        append_message(&Message::Told, &mut bytes);
        requests.write_all(&bytes).await.unwrap();
        requests
    };
    // The file comes all the same, to its last byte.
    let listening = async {
        let (mut decoder, mut block, mut came) = (Decoder::default(), vec![0; 64 << 10], 0);
        answers.read_exact(&mut [0; HELLO_LEN]).await.unwrap();
        loop {
            let read = answers.read(&mut block).await.unwrap();
            let mut input = &block[..read];
            while let Some(item) = decoder.next(&mut input).unwrap() {
                match item {
                    Item::Data(data) => came += data.len(),
                    Item::Message(Message::Finish { .. }) => return came,
                    _ => {}
                }
            }
            assert!(read > 0, "it ends after {came} bytes");
        }
    };
    let asking = async {
        let (mut requests, came) = tokio::join!(flood, listening);
        let mut done = Vec::new();
        let (counts, occupancy) = <(Counts, Occupancy)>::default();
        append_message(&Message::Done { counts, occupancy }, &mut done);
        requests.write_all(&done).await.unwrap();
        requests.shutdown().await.unwrap();
        came
    };
    let allowed = ServeOptions::default();
    let (served, came) = tokio::join!(serve(far, root.path(), &allowed), asking);
    assert_eq!(came, 3 << 20);
    assert!(!served.unwrap().summary.is_partial());
}

#[tokio::test]
async fn what_can_never_find_room_is_not_begun() {
    let name = "what_can_never_find_room_is_not_begun";
    let Some(disk) = Mounted::memory(1 << 20) else {
        return skip(name, "only root may mount a small file system");
    };
    let root = disk.disk();
    let totals = |least| Message::Totals { files: 1, bytes: 9 << 20, least };
    let too_much = messages([totals(9 << 20), directory("x"), FINISH]);
    let error = put_frames(&root, std::slice::from_ref(&too_much)).await.unwrap_err().to_string();
    for words in ["No space left for all of it", "9.00 MiB are still to come", "free space there"] {
        assert!(error.contains(words), "{error}");
    }
    assert!(!root.join("x").exists());
    // Apparent sizes tell nothing, and what stands there may give way.
    let little = messages([totals(100 << 10), directory("x"), FINISH]);
    put_frames(&root, &[little]).await.unwrap();
    put_frames(&root, &[too_much]).await.unwrap();
}

#[tokio::test]
async fn a_read_only_server_takes_nothing() {
    let (root, near) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(near.path().join("x"), "x").unwrap();
    let (a, b) = duplex(1000);
    let allowed = ServeOptions { read_only: true, ..ServeOptions::default() };
    let (options, progress) = <(Options, Progress)>::default();
    let sources = [near.path().join("x")];
    let putting = transfer::put(a, &sources, Path::new(""), &options, &progress);
    let (put, served) = tokio::join!(putting, serve(b, root.path(), &allowed));
    assert!(matches!(put, Err(TransferError::Far(_))), "{put:?}");
    served.unwrap_err();
    assert_eq!(look(root.path()).len(), 1);
}

#[tokio::test]
async fn whoever_may_put_to_one_path_may_do_nothing_else() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("secret"), "secret").unwrap();
    let allowed = |path: &str| ServeOptions { only: Some(path.into()), ..ServeOptions::default() };
    let frames = [file("x", b"good"), messages([FINISH])];
    let error = put_frames_to(root.path(), &frames, &allowed("there")).await.unwrap_err();
    assert!(error.to_string().contains("nothing may be done here"), "{error}");
    put_frames_to(root.path(), &frames, &allowed("")).await.unwrap();
    assert!(root.path().join("x").is_file());
    let to = TempDir::new().unwrap();
    let (near, far) = duplex(1000);
    let (options, progress) = <(Options, Progress)>::default();
    let allowed = allowed("secret");
    let (got, _) = tokio::join!(
        get(near, Path::new("secret"), to.path(), &options, &progress),
        serve(far, root.path(), &allowed)
    );
    assert!(got.unwrap_err().to_string().contains("nothing may be done here"));
    assert_eq!(look(to.path()).len(), 1, "only the folder itself");
}

#[tokio::test]
async fn who_waits_for_a_turn_opens_nothing_and_too_many_patterns_do_not_wait() {
    let ask = async |request: Message| {
        let (mut near, far) = duplex(1000);
        let (allowed, asked) = (ServeOptions::default(), Cell::new(None));
        let turn = |direction| {
            asked.set(Some(direction));
            ready(Err::<(), _>("not yet".to_owned()))
        };
        // Who opens it fails.
        let serving = serve_in_turn(far, Path::new("/nowhere/at all"), &allowed, turn);
        let asking = async {
            near.write_all(&[hello().to_vec(), messages([request])].concat()).await.unwrap();
            near.shutdown().await.unwrap();
            near.read_to_end(&mut Vec::new()).await.unwrap();
        };
        let (served, ()) = tokio::join!(serving, asking);
        (served.unwrap_err().to_string(), asked.get())
    };
    let put = |patterns: &[&str]| Message::Put {
        destination: RawBytes::default(),
        into_directory: false,
        id: None,
        rehearses: false,
        patterns: patterns.iter().map(ToString::to_string).collect(),
    };
    let get = |patterns: &[&str]| {
        let patterns = patterns.iter().map(ToString::to_string).collect();
        Message::Get { source: RawBytes::default(), terms: Terms { patterns, ..Terms::default() } }
    };
    // A pattern that cannot be understood is not looked at either.
    for (request, direction) in [
        (put(&["[z-a]"]), Direction::Put),
        (get(&["[z-a]"]), Direction::Get),
        (Message::Probe { bytes: 1 }, Direction::Probe),
    ] {
        assert_eq!(ask(request).await, ("not yet".to_owned(), Some(direction)));
    }
    for request in [put(&["a"; 4000]), get(&["a"; 4000])] {
        let (text, asked) = ask(request).await;
        assert!(text.contains("too many patterns") && asked.is_none(), "{text} {asked:?}");
    }
}

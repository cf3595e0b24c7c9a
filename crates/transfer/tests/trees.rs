//! Trees arrive as they were, both ways, and land where scp and rsync users expect them.

mod common;

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use common::{get_from, look, put_to, tree};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::net::{TcpListener, TcpStream};
use transfer::{NoteKind, Options, Progress, ServeOptions, Summary, TransferId, put, serve};

async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

/// Puts one source, which must succeed without a note.
async fn put_one(source: &Path, root: &Path, remote: &str) -> Summary {
    let (near, far) = duplex(1000);
    let (near, far) = put_to(near, far, &[source.to_owned()], root, remote).await;
    let summary = near.unwrap();
    assert_eq!(summary, far.unwrap().summary);
    assert_eq!(summary.notes.iter().count(), 0, "{summary:?}");
    summary
}

/// The other side would take a journal for its own.
#[tokio::test]
async fn what_is_of_a_copy_that_is_not_done_stays_and_is_told() {
    let [source, root] = [(); 2].map(|()| TempDir::new().unwrap());
    let tree = source.path().join("tree");
    fs::create_dir_all(tree.join("deep")).unwrap();
    let own =
        [format!(".longhaul-{:032x}.journal", 7), format!("deep/.x.longhaul-{:017x}.part", 7)];
    // Those of users only look so.
    let folder = format!(".longhaul-{:032x}.journal", 8);
    fs::create_dir(tree.join(&folder)).unwrap();
    let theirs = ["deep/.x.longhaul-0a.part", "x.part", &format!("{folder}/x")];
    for name in own.iter().map(String::as_str).chain(theirs) {
        fs::write(tree.join(name), "bytes").unwrap();
    }
    let (near, far) = duplex(1000);
    let (near, _) = put_to(near, far, std::slice::from_ref(&tree), root.path(), "").await;
    let notes = near.unwrap().notes;
    assert_eq!((notes.failed(), notes.skipped()), (0, 2), "{notes:?}");
    let there: Vec<_> = look(&root.path().join("tree")).into_keys().collect();
    let all = ["", &folder, theirs[2], "deep", theirs[0], theirs[1]];
    assert_eq!(there, all.map(PathBuf::from));
    // Asked for by name it is a failure.
    let (near, far) = duplex(1000);
    let (near, _) = put_to(near, far, &[tree.join(&own[0])], root.path(), "").await;
    assert_eq!(near.unwrap().notes.failed(), 1);
    assert_eq!(look(root.path()).len(), 7);
}

#[tokio::test]
async fn random_trees_arrive_identical_both_ways() {
    for seed in 0..8 {
        let source = tree(seed, 20_000);
        let (there, back) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        // A stream that holds a byte at a time shows that no side waits for the other to read.
        let holds = [1, 7, 1000, 100_000][seed as usize % 4];

        let (near, far) = duplex(holds);
        let (near, far) = put_to(near, far, &[source.path().join("tree")], there.path(), "").await;
        let (near, far) = (near.unwrap(), far.unwrap().summary);
        assert_eq!(near, far);
        assert_eq!(look(&source.path().join("tree")), look(&there.path().join("tree")), "{seed}");

        let (near, far) = duplex(holds);
        let (near, far) = get_from(near, far, there.path(), "/tree/", back.path()).await;
        let (near, far) = (near.unwrap(), far.unwrap().summary);
        assert_eq!(near, far);
        assert!(!near.is_partial());
        let arrived = look(&back.path().join("tree"));
        assert_eq!(look(&source.path().join("tree")), arrived, "{seed}");
        let counts = near.counts;
        assert_eq!(counts.files + counts.directories + counts.symlinks, arrived.len() as u64);
    }
}

#[tokio::test]
async fn large_and_many_files_over_tcp() {
    let source = tree(99, 6 << 20);
    let many = source.path().join("tree/many");
    fs::create_dir(&many).unwrap();
    for number in 0..1000 {
        fs::write(many.join(format!("{number}{}", "x".repeat(240))), number.to_string()).unwrap();
    }
    let (there, back) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (near, far) = tcp().await;
    let (near, far) = put_to(near, far, &[source.path().join("tree")], there.path(), "new").await;
    assert_eq!(near.unwrap(), far.unwrap().summary);
    let (near, far) = tcp().await;
    let (near, far) = get_from(near, far, there.path(), "new", back.path()).await;
    assert_eq!(near.unwrap(), far.unwrap().summary);
    assert_eq!(look(&source.path().join("tree")), look(&back.path().join("new")));
}

#[tokio::test]
async fn a_destination_is_read_as_cp_reads_it() {
    let source = TempDir::new().unwrap();
    let file = source.path().join("file");
    let folder = source.path().join("folder");
    fs::write(&file, "bytes").unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("inner"), "bytes").unwrap();

    let root = TempDir::new().unwrap();
    let at = |path: &str| root.path().join(path);
    put_one(&file, root.path(), "name").await;
    assert!(at("name").is_file());
    put_one(&file, root.path(), "made/").await;
    assert!(at("made/file").is_file());
    put_one(&file, root.path(), "made").await;
    put_one(&folder, root.path(), "made").await;
    assert!(at("made/folder/inner").is_file());
    put_one(&folder, root.path(), "copy").await;
    assert!(at("copy/inner").is_file());
    put_one(&folder, root.path(), "/slash/").await;
    assert!(at("slash/folder/inner").is_file());
    put_one(&folder.join("."), root.path(), "contents").await;
    assert!(at("contents/inner").is_file());
    put_one(&folder.join("."), root.path(), "made").await;
    assert!(at("made/inner").is_file());

    let sources = [file.clone(), folder.clone()];
    let (near, far) = duplex(1000);
    put_to(near, far, &sources, root.path(), "several").await.0.unwrap();
    assert!(at("several/file").is_file() && at("several/folder/inner").is_file());
    let (near, far) = duplex(1000);
    let (near, far) = put_to(near, far, &sources, root.path(), "name").await;
    assert!(near.unwrap_err().to_string().contains("name"), "a file is no place for several");
    far.unwrap_err();
    let (near, far) = duplex(1000);
    put_to(near, far, &sources, root.path(), "missing/deeper/").await.0.unwrap_err();
}

#[tokio::test]
async fn a_link_is_followed_only_as_the_source_itself() {
    let source = tree(5, 1000);
    let link = source.path().join("link");
    symlink("tree", &link).unwrap();
    let root = TempDir::new().unwrap();
    put_one(&link, root.path(), "").await;
    assert_eq!(look(&source.path().join("tree")), look(&root.path().join("link")));
}

#[tokio::test]
async fn what_is_there_is_replaced_or_merged_but_a_directory_never_by_a_file() {
    let source = TempDir::new().unwrap();
    let top = source.path().join("top");
    fs::create_dir_all(top.join("merged")).unwrap();
    fs::write(top.join("merged/file"), "new").unwrap();
    fs::write(top.join("taken"), "new").unwrap();
    symlink("new", top.join("link")).unwrap();
    let root = TempDir::new().unwrap();
    fs::create_dir_all(root.path().join("top/merged")).unwrap();
    fs::create_dir_all(root.path().join("top/taken/deep")).unwrap();
    fs::write(root.path().join("top/merged/file"), "old").unwrap();
    fs::write(root.path().join("top/merged/kept"), "old").unwrap();
    symlink("old", root.path().join("top/link")).unwrap();

    let (near, far) = duplex(1000);
    let summary = put_to(near, far, &[top], root.path(), "").await.0.unwrap();
    assert_eq!(summary.notes.failed(), 1);
    let note = summary.notes.iter().next().unwrap().to_string();
    assert!(note.contains("top/taken") && note.contains("directory"), "{note}");
    let read = |path| fs::read_to_string(root.path().join(path)).unwrap();
    assert_eq!((read("top/merged/file"), read("top/merged/kept")), ("new".into(), "old".into()));
    assert_eq!(fs::read_link(root.path().join("top/link")).unwrap(), Path::new("new"));
    assert!(root.path().join("top/taken/deep").is_dir());
    assert_eq!(common::leftovers(root.path()), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn special_files_are_skipped_and_missing_ones_fail_alone() {
    let source = TempDir::new().unwrap();
    let top = source.path().join("top");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("file"), "bytes").unwrap();
    let named = source.path().join("named");
    for pipe in [&top.join("pipe"), &named] {
        mknodat(CWD, pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    }
    let root = TempDir::new().unwrap();
    let sources = [source.path().join("vanished"), named.clone(), top];
    let (near, far) = duplex(1000);
    let (near, far) = put_to(near, far, &sources, root.path(), "").await;
    let (near, far) = (near.unwrap(), far.unwrap().summary);
    assert_eq!(near, far);
    assert_eq!((near.counts.files, near.notes.skipped(), near.notes.failed()), (1, 1, 2));
    for note in near.notes.iter() {
        let (name, kind) = match note.kind {
            NoteKind::Skipped => ("top/pipe", "not copied"),
            NoteKind::Failed if note.path.0.ends_with(b"vanished") => {
                ("vanished\"", "moved or removed")
            }
            // What was asked for by its name is not just passed over.
            NoteKind::Failed => ("named\"", "the source `-`"),
            NoteKind::Changed | NoteKind::Would => panic!("nothing was begun before"),
        };
        let note = note.to_string();
        assert!(note.contains(name) && note.contains(kind), "{note}");
    }
}

/// A stream whose end never gets through.
struct Endless(DuplexStream);

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Endless {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[tokio::test]
async fn a_transfer_that_only_says_goodbye_is_known_to_be_over() {
    let (source, root) = (tree(4, 20_000), TempDir::new().unwrap());
    let (allowed, progress) = <(ServeOptions, Progress)>::default();
    let id = Some(TransferId::of([&b"goodbye"[..]]));
    let options = Options { id, ..Options::default() };
    let (near, far) = duplex(1000);
    let sources = [source.path().join("tree")];
    let putting = put(Endless(near), &sources, Path::new(""), &options, &progress);
    let serving = serve(far, root.path(), &allowed);
    let over = async {
        assert!(!progress.is_over());
        while !progress.is_over() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = over => {}
        both = async { tokio::join!(putting, serving) } => panic!("it waits to say so: {both:?}"),
    }
    assert!(progress.sample().heard > 0);
    assert_eq!(look(&root.path().join("tree")), look(&source.path().join("tree")));
}

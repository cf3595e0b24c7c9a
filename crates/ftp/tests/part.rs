//! What came of a download that was cut is gone on with by the same call, in whatever way it was cut.

use std::fs::{File, FileTimes};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use ftp::client::{Client, ClientError, Copied, Options};
use ftp::data::{DataError, Moved};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use transfer::{Progress, RelPath};

const SIZE: usize = 300_000;
/// What the first client gets of it.
const HALF: usize = 100_000;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at % 251) as u8).collect()
}

/// What a server does with REST.
#[derive(Clone, Copy, PartialEq)]
enum Restarts {
    Taken,
    Refused,
    /// It answers, and sends all of the file.
    PassedOver,
}

/// A server of one file, of which it gives the first client half, and which tells of every byte that
/// clients go on from.
async fn server(restarts: Restarts) -> (SocketAddr, mpsc::UnboundedReceiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for most in [HALF, SIZE, SIZE] {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, most, restarts, tell.clone()));
        }
    });
    (address, told)
}

async fn serve(
    stream: TcpStream,
    most: usize,
    restarts: Restarts,
    tell: mpsc::UnboundedSender<usize>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    writer.write_all(b"220 there\r\n").await.unwrap();
    let (mut here, mut from, mut held) = (String::new(), 0, None);
    while let Ok(Some(line)) = lines.next_line().await {
        let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let reply = match verb {
            "USER" => "331 and".to_owned(),
            "PASS" => "230 in".to_owned(),
            "CWD" => {
                here = argument.to_owned();
                "250 there".to_owned()
            }
            "PWD" => format!("257 \"/{here}\""),
            "EPSV" => format!("229 (|||{port}|)"),
            "SIZE" if argument == "growing" => format!("213 {HALF}"),
            "SIZE" => format!("213 {SIZE}"),
            "MDTM" => "213 20200102030405".to_owned(),
            "REST" if restarts == Restarts::Refused => "502 not here".to_owned(),
            "REST" => {
                from = argument.parse().unwrap();
                "350 from there".to_owned()
            }
            "RETR" => {
                writer.write_all(b"150 goes\r\n").await.unwrap();
                let (mut data, _) = listener.accept().await.unwrap();
                let most = if argument == "growing" { SIZE } else { most };
                let first = if restarts == Restarts::PassedOver { 0 } else { from };
                data.write_all(&content()[first..most.max(first)]).await.unwrap();
                tell.send(from).unwrap();
                if most < SIZE {
                    if argument == "lost" {
                        return;
                    }
                    held = Some(data);
                    continue;
                }
                "226 whole".to_owned()
            }
            _ => "200 yes".to_owned(),
        };
        writer.write_all(format!("{reply}\r\n").as_bytes()).await.unwrap();
    }
    drop(held);
}

async fn client(address: SocketAddr) -> Client {
    let mut client = Client::connect("localhost", address, Options::default()).await.unwrap();
    client.log_in("anonymous", "x").await.unwrap();
    client
}

async fn get(client: Client, folder: &Path, moved: Moved) {
    get_of(b"x", client, folder, moved).await;
}

/// Gets a file under the name `x`.
async fn get_of(path: &[u8], mut client: Client, folder: &Path, moved: Moved) {
    let directory = File::open(folder).unwrap().into();
    client.get(path, (directory, "x".as_ref()), false, &moved).await.unwrap();
}

/// Gets half of the file, and is gone without a word then, as when the process is killed.
async fn get_half(client: Client, folder: &TempDir) {
    let (path, moved) = (folder.path().to_owned(), Moved::default());
    let seen = moved.clone();
    let getting = tokio::spawn(async move { get(client, &path, moved).await });
    while seen.bytes() < HALF as u64 {
        tokio::task::yield_now().await;
    }
    getting.abort();
    assert!(getting.await.unwrap_err().is_cancelled());
    // What was being written by then is.
    let part = folder.path().join(".x.longhaul.part");
    for _ in 0..1000 {
        if part.metadata().is_ok_and(|part| part.len() > 0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing is kept");
}

#[tokio::test]
async fn a_killed_download_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (address, mut told) = server(Restarts::Taken).await;
    get_half(client(address).await, &folder).await;
    assert_eq!(told.recv().await, Some(0));
    get(client(address).await, folder.path(), Moved::default()).await;
    let from = told.recv().await.unwrap();
    assert!((1..=HALF).contains(&from), "{from}");
    assert!(std::fs::read(folder.path().join("x")).unwrap() == content());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn what_was_kept_is_in_nobodys_way_where_nothing_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (address, mut told) = server(Restarts::Refused).await;
    get_half(client(address).await, &folder).await;
    assert_eq!(told.recv().await, Some(0));
    let moved = Moved::default();
    get(client(address).await, folder.path(), moved.clone()).await;
    assert_eq!(told.recv().await, Some(0));
    assert_eq!(moved.bytes(), SIZE as u64);
    assert!(std::fs::read(folder.path().join("x")).unwrap() == content());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// What comes is not the rest, whatever the server has said.
#[tokio::test]
async fn a_restart_that_is_passed_over_spoils_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (address, mut told) = server(Restarts::PassedOver).await;
    get_half(client(address).await, &folder).await;
    assert_eq!(told.recv().await, Some(0));
    let directory = File::open(folder.path()).unwrap().into();
    let mut second = client(address).await;
    let got = second.get(b"x", (directory, "x".as_ref()), false, &Moved::default()).await;
    assert!(matches!(got, Err(ClientError::Data(DataError::Cut))), "{got:?}");
    assert_ne!(told.recv().await, Some(0));
    assert!(!folder.path().join("x").exists());
    get(client(address).await, folder.path(), Moved::default()).await;
    assert_eq!(told.recv().await, Some(0));
    assert!(std::fs::read(folder.path().join("x")).unwrap() == content());
}

/// Of the same size, and changed in the same second.
#[tokio::test]
async fn a_part_is_not_gone_on_with_for_another_file() {
    for (directory, path) in [("", &b"other/x"[..]), ("other", b"x")] {
        let folder = tempfile::tempdir().unwrap();
        let (address, mut told) = server(Restarts::Taken).await;
        get_half(client(address).await, &folder).await;
        assert_eq!(told.recv().await, Some(0));
        let mut client = client(address).await;
        client.done_with("CWD", directory.as_bytes()).await.unwrap();
        get_of(path, client, folder.path(), Moved::default()).await;
        assert_eq!(told.recv().await, Some(0), "{directory} {path:?}");
        assert!(std::fs::read(folder.path().join("x")).unwrap() == content());
    }
}

/// Has a part lose what not all file systems keep.
fn forget_mark(part: &Path) {
    let (file, whole) = (File::options().write(true).open(part).unwrap(), UNIX_EPOCH);
    file.set_times(FileTimes::new().set_accessed(whole).set_modified(whole)).unwrap();
    let _ = rustix::fs::fremovexattr(&file, "user.longhaul.part");
}

/// A copy knows its own part, whatever the file system keeps.
#[tokio::test]
async fn a_lost_download_is_gone_on_with() {
    for (path, from) in [("lost", HALF), ("other", 0)] {
        let folder = tempfile::tempdir().unwrap();
        let (address, mut told) = server(Restarts::Taken).await;
        let (progress, moved) = (Progress::new(), Moved::default());
        let (name, mut copied) = (RelPath::new(b"x".to_vec()).unwrap(), Copied::default());
        for path in ["lost", path] {
            let (mut client, directory) = (client(address).await, File::open(folder.path()));
            let (path, shown) = (path.as_bytes(), (&progress, &moved));
            let into = directory.unwrap().into();
            let got = client.get_tree(path, into, Some(&name), shown, &mut copied).await;
            if copied.counts.files == 0 {
                assert!(got.unwrap_err().is_loss());
                forget_mark(&folder.path().join(".x.longhaul.part"));
                copied.begin_again(&moved);
            }
        }
        assert_eq!([told.recv().await, told.recv().await], [Some(0), Some(from)], "{path}");
        assert!(std::fs::read(folder.path().join("x")).unwrap() == content());
    }
}

#[tokio::test]
async fn a_file_that_grows_meanwhile_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (address, mut told) = server(Restarts::Taken).await;
    get_of(b"growing", client(address).await, folder.path(), Moved::default()).await;
    assert_eq!(told.recv().await, Some(0));
    assert!(std::fs::read(folder.path().join("x")).unwrap() == content());
}

/// Its bytes are not the server's.
#[tokio::test]
async fn a_killed_download_of_lines_is_not_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (address, mut told) = server(Restarts::Taken).await;
    let mut first = client(address).await;
    first.set_ascii(true);
    let path = folder.path().to_owned();
    let moved = Moved::default();
    let directory = File::open(&path).unwrap().into();
    let stop = async {
        while moved.bytes() < HALF as u64 / 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = first.get(b"x", (directory, "x".as_ref()), false, &moved) => panic!("half of it"),
        () = stop => {}
    }
    assert_eq!(told.recv().await, Some(0));
    get(client(address).await, &path, Moved::default()).await;
    assert_eq!(told.recv().await, Some(0));
    assert!(std::fs::read(path.join("x")).unwrap() == content());
}

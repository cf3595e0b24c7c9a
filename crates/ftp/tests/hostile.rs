//! A server that lies: about names, about where its data is, and about what it sends.

use std::fs;
use std::net::SocketAddr;

use ftp::client::{Client, Copied, Options};
use ftp::data::Moved;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use transfer::{Progress, RelPath};

/// What the server says of its directory, whatever is asked for.
const LISTING: &str = "type=file;size=4; ../above\r\n\
    type=file;size=4; /tmp/longhaul-absolute\r\n\
    type=file;size=4; ..\r\n\
    type=dir; ../directory\r\n\
    type=file;size=4; way/down\r\n\
    type=file;size=4; link/inside\r\n\
    type=file;size=4; honest\r\n\
    nonsense\r\n";

/// Serves one client; its PASV names a host that is none.
async fn serve(listener: TcpListener) {
    let (stream, _) = listener.accept().await.unwrap();
    let data = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let [high, low] = data.local_addr().unwrap().port().to_be_bytes();
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    writer.write_all(b"220-Hello\r\n230 not yet\r\n220 there\r\n").await.unwrap();
    while let Ok(Some(line)) = lines.next_line().await {
        let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let reply = match verb {
            "FEAT" => "211-F\r\n MLST size;\r\n211 E".to_owned(),
            "EPSV" => "500 what".to_owned(),
            "PASV" => format!("227 At (203,0,113,9,{high},{low})"),
            "PASS" => "230 in".to_owned(),
            "USER" => "331 and".to_owned(),
            "MLST" if argument == "all" => "250-F\r\n type=dir; all\r\n250 E".to_owned(),
            "MLST" => "250-F\r\n type=file;size=4; x\r\n250 E".to_owned(),
            "MLSD" | "RETR" => {
                writer.write_all(b"150 goes\r\n").await.unwrap();
                let (mut stream, _) = data.accept().await.unwrap();
                let text = if verb == "MLSD" { LISTING } else { "data" };
                stream.write_all(text.as_bytes()).await.unwrap();
                drop(stream);
                "226 went".to_owned()
            }
            _ => "200 yes".to_owned(),
        };
        writer.write_all(format!("{reply}\r\n").as_bytes()).await.unwrap();
    }
}

async fn client(address: SocketAddr) -> Client {
    let mut client = Client::connect("localhost", address, Options::default()).await.unwrap();
    client.log_in("anonymous", "x").await.unwrap();
    client
}

#[tokio::test]
async fn nothing_lands_outside_the_folder_and_no_other_host_is_met() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener));
    let top = tempfile::tempdir().unwrap();
    let (folder, elsewhere) = (top.path().join("folder"), top.path().join("elsewhere"));
    fs::create_dir_all(folder.join("here")).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, folder.join("here/link")).unwrap();

    let mut client = client(address).await;
    let mut copied = Copied::default();
    let (progress, moved) = (Progress::new(), Moved::default());
    let name = RelPath::new(b"here".to_vec()).unwrap();
    let directory = fs::File::open(&folder).unwrap();
    client
        .get_tree(b"all", directory.into(), Some(&name), (&progress, &moved), &mut copied)
        .await
        .unwrap();
    // The data came at all: so PASV's address was not believed.
    assert_eq!(fs::read(folder.join("here/honest")).unwrap(), b"data");
    // All lines but the honest one and `..`, which is no entry.
    assert_eq!((copied.counts.files, copied.notes.failed()), (1, 6));
    assert_eq!(fs::read_dir(top.path()).unwrap().count(), 2);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!(fs::read_dir(folder.join("here")).unwrap().count(), 2, "the file and the link");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert!(!std::path::Path::new("/tmp/longhaul-absolute").exists());
    drop(client);
    server.await.unwrap();
}

#[tokio::test]
async fn what_is_no_ftp_server_is_told() {
    for greeting in ["SSH-2.0-x\r\n", "HTTP/1.1 400\r\n", "\r\n", "421 full\r\n", ""] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(greeting.as_bytes()).await.unwrap();
        });
        assert!(Client::connect("localhost", address, Options::default()).await.is_err());
        server.await.unwrap();
    }
}

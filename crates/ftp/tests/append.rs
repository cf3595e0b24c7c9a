//! A server may copy what is there before it takes what is appended.

use std::time::Duration;

use ftp::client::{Client, Options};
use ftp::data::Moved;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

/// What is there already,
const SIZE: u64 = 10 << 30;

/// and what it takes to copy that.
const COPYING: Duration = Duration::from_secs(600);

/// Serves one client, and gives what it appended.
async fn serve(listener: TcpListener) -> Vec<u8> {
    let (stream, _) = listener.accept().await.unwrap();
    let data = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = data.local_addr().unwrap().port();
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    writer.write_all(b"220 there\r\n").await.unwrap();
    let mut came = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let reply = match line.split(' ').next().unwrap_or_default() {
            "USER" => "331 and".to_owned(),
            "PASS" => "230 in".to_owned(),
            "SIZE" => format!("213 {SIZE}"),
            "EPSV" => format!("229 (|||{port}|)"),
            "REST" => panic!("APPE needs none"),
            "APPE" => {
                let (mut data, _) = data.accept().await.unwrap();
                tokio::time::pause();
                tokio::time::sleep(COPYING).await;
                tokio::time::resume();
                writer.write_all(b"150 goes\r\n").await.unwrap();
                data.read_to_end(&mut came).await.unwrap();
                "226 whole".to_owned()
            }
            _ => "200 yes".to_owned(),
        };
        writer.write_all(format!("{reply}\r\n").as_bytes()).await.unwrap();
    }
    came
}

#[tokio::test]
async fn a_large_file_is_appended_to() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(serve(listener));
    let mut client = Client::connect("localhost", address, Options::default()).await.unwrap();
    client.log_in("anonymous", "x").await.unwrap();
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("more");
    std::fs::write(&path, b"more").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    client.append(file, b"log", &Moved::default()).await.unwrap();
    drop(client);
    assert_eq!(served.await.unwrap(), b"more");
}

//! A cut upload never looks whole: in stream mode the end of a connection is the end of the file.

use std::fs::File;
use std::io;

use ftp::client::{Client, ClientError, Options, Security, Stop};
use ftp::data::{Channel, Moved};
use ftp::tls::Trust;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// A server that takes one upload and tells how its data connection began, and how it ended. Under TLS it
/// wants no `close_notify`.
struct Taking {
    client: Client,
    stop: Stop,
    began: oneshot::Receiver<()>,
    ended: oneshot::Receiver<io::Result<u64>>,
}

impl Taking {
    async fn new(acceptor: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ((tell_began, began), (tell_ended, ended)) = (oneshot::channel(), oneshot::channel());
        let security = if acceptor.is_some() { Security::Implicit } else { Security::Clear };
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            serve(stream, acceptor, tell_began, tell_ended).await;
        });
        let stop = Stop::default();
        let trust = Trust { anyone: true, ..Trust::default() };
        let options = Options { security, trust, stop: stop.clone(), ..Options::default() };
        let mut client = Client::connect("localhost", address, options).await.unwrap();
        client.log_in("anonymous", "x").await.unwrap();
        Self { client, stop, began, ended }
    }
}

/// In clear and under TLS.
fn ways() -> [Option<TlsAcceptor>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = (folder.path().join("cert"), folder.path().join("key"));
    ftp::tls::write_self_signed(&chain, &key, vec!["localhost".into()]).unwrap();
    [None, Some(ftp::tls::server(&chain, &key).unwrap().into())]
}

async fn secured(stream: TcpStream, acceptor: Option<&TlsAcceptor>) -> Channel {
    match acceptor {
        Some(acceptor) => Box::new(acceptor.accept(stream).await.unwrap()),
        None => Box::new(stream),
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    began: oneshot::Sender<()>,
    ended: oneshot::Sender<io::Result<u64>>,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (reader, mut writer) = tokio::io::split(secured(stream, acceptor.as_ref()).await);
    let mut lines = BufReader::new(reader).lines();
    writer.write_all(b"220 there\r\n").await.unwrap();
    while let Ok(Some(line)) = lines.next_line().await {
        let reply = match line.split(' ').next().unwrap_or_default() {
            "USER" => "331 and".to_owned(),
            "PASS" => "230 in".to_owned(),
            "EPSV" => format!("229 (|||{port}|)"),
            "STOR" => break,
            _ => "200 yes".to_owned(),
        };
        writer.write_all(format!("{reply}\r\n").as_bytes()).await.unwrap();
    }
    writer.write_all(b"150 goes\r\n").await.unwrap();
    let (data, _) = listener.accept().await.unwrap();
    let mut data = secured(data, acceptor.as_ref()).await;
    let first = data.read_u8().await.map(|_| 1);
    // Not every test waits for it.
    let _ = began.send(());
    let mut nowhere = tokio::io::sink();
    let rest = tokio::io::copy(&mut data, &mut nowhere).await;
    drop(data);
    // That a lost ABOR is not heard is the point.
    let _ = ended.send(first.and_then(|first: u64| Ok(first + rest?)));
    let _ = writer.write_all(b"226 whole\r\n").await;
    while let Ok(Some(_)) = lines.next_line().await {}
}

/// A file that is never sent to its end.
fn endless() -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 42).unwrap();
    file
}

fn is_reset(ended: io::Result<u64>) {
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

/// As when the process is killed: nothing is done but what the kernel does.
#[tokio::test]
async fn an_upload_that_is_dropped_is_reset() {
    for acceptor in ways() {
        let Taking { mut client, began, ended, .. } = Taking::new(acceptor).await;
        let putting =
            tokio::spawn(async move { client.put(endless(), b"x", 0, &Moved::default()).await });
        began.await.unwrap();
        putting.abort();
        is_reset(ended.await.unwrap());
    }
}

#[tokio::test]
async fn an_upload_that_is_stopped_is_reset() {
    for acceptor in ways() {
        let Taking { mut client, stop, began, ended } = Taking::new(acceptor).await;
        let moved = Moved::default();
        let putting = client.put(endless(), b"x", 0, &moved);
        let stopping = async {
            began.await.unwrap();
            stop.stop();
        };
        let (put, ()) = tokio::join!(putting, stopping);
        assert!(matches!(put, Err(ClientError::Stopped)), "{put:?}");
        is_reset(ended.await.unwrap());
    }
}

#[tokio::test]
async fn an_upload_that_is_whole_ends_in_good_order() {
    for acceptor in ways() {
        let Taking { mut client, ended, .. } = Taking::new(acceptor).await;
        let file = tempfile::tempfile().unwrap();
        file.set_len(3_000_000).unwrap();
        client.put(file, b"x", 0, &Moved::default()).await.unwrap();
        assert_eq!(ended.await.unwrap().unwrap(), 3_000_000);
    }
}

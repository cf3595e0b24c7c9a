//! A wish to stop ends whatever a client waits for, and stands until it is taken back.

use std::time::Duration;

use ftp::client::{Client, ClientError, Options, Stop};
use ftp::data::Moved;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A server that says nothing to one command, and names each that it hears.
struct Mute {
    heard: mpsc::UnboundedReceiver<String>,
    client: Client,
    stop: Stop,
}

impl Mute {
    async fn to(command: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            serve(stream, command, &tell).await;
        });
        let stop = Stop::default();
        let options = Options { stop: stop.clone(), ..Options::default() };
        let mut client = Client::connect("localhost", address, options).await.unwrap();
        client.log_in("anonymous", "x").await.unwrap();
        Self { heard, client, stop }
    }
}

async fn serve(stream: TcpStream, mute: &str, tell: &mpsc::UnboundedSender<String>) {
    let data = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = data.local_addr().unwrap().port();
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    writer.write_all(b"220 there\r\n").await.unwrap();
    while let Ok(Some(line)) = lines.next_line().await {
        let verb = line.split(' ').next().unwrap_or_default().to_owned();
        let reply = match verb.as_str() {
            "FEAT" => "211-F\r\n MLST size;\r\n211 E".to_owned(),
            "PASS" => "230 in".to_owned(),
            "USER" => "331 and".to_owned(),
            "EPSV" => format!("229 (|||{port}|)"),
            "STOR" => "150 goes".to_owned(),
            "MLST" => "250-F\r\n type=file;size=4; x\r\n250 E".to_owned(),
            _ => "200 yes".to_owned(),
        };
        if verb != mute {
            writer.write_all(format!("{reply}\r\n").as_bytes()).await.unwrap();
        }
        tell.send(verb).unwrap();
    }
}

/// Far more than it takes, and less than the patience with a reply.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.expect("it goes on")
}

#[tokio::test]
async fn a_wish_to_stop_ends_the_wait_for_a_reply_and_is_not_forgotten() {
    for command in ["MLST", "EPSV", "TYPE"] {
        let Mute { mut heard, mut client, stop } = Mute::to(command).await;
        let wisher = stop.clone();
        let wishing = async {
            while heard.recv().await.unwrap() != command {}
            wisher.stop();
            heard
        };
        let asking = async {
            match command {
                "MLST" => client.find(b"x").await.map(drop),
                _ => client.list(b"x").await.map(drop),
            }
        };
        let (asked, mut heard) = soon(async { tokio::join!(asking, wishing) }).await;
        assert!(matches!(asked, Err(ClientError::Stopped)), "{command}: {asked:?}");
        let again = soon(client.ask("NOOP")).await;
        assert!(matches!(again, Err(ClientError::Stopped)), "{command}: {again:?}");
        drop(client);
        // What is asked for after the wish is not even said.
        while let Some(verb) = soon(heard.recv()).await {
            assert_ne!(verb, "NOOP");
        }
    }
}

#[tokio::test]
async fn a_wish_that_was_there_before_keeps_from_connecting() {
    let stop = Stop::default();
    stop.stop();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options { stop: stop.clone(), ..Options::default() };
    let address = listener.local_addr().unwrap();
    let reached = soon(Client::connect("localhost", address, options)).await;
    assert!(matches!(reached, Err(ClientError::Stopped)));
    stop.reset();
    assert!(!stop.is_wanted());
}

/// The server never closes the transfer, which has gone whole: its last reply is waited for.
#[tokio::test]
async fn a_transfer_that_waits_for_its_last_reply_is_stopped() {
    let Mute { mut heard, mut client, stop } = Mute::to("nothing").await;
    let file = tempfile::tempfile().unwrap();
    let moved = Moved::default();
    let putting = client.put(file, b"x", 0, &moved);
    let wishing = async {
        while heard.recv().await.unwrap() != "STOR" {}
        stop.stop();
    };
    let (put, ()) = soon(async { tokio::join!(putting, wishing) }).await;
    assert!(matches!(put, Err(ClientError::Stopped)), "{put:?}");
}

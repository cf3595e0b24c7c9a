//! Who may connect and join, and who is told why not.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use transport::crypto::{Credentials, Identity};

use super::*;
use crate::error::NetError;

#[tokio::test]
async fn a_stream_that_is_gone_cannot_be_joined() {
    let (mut listener, address) = listener(Options::default());
    let serving = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
    let hello = hello::Hello { group: [1; 16], joins: true, policy: Policy::Fixed(1) };
    let socket = TcpStream::connect(address).await.unwrap();
    let credentials = key(1).into();
    let mut connection =
        within(hello::initiate(socket, address, &credentials, hello)).await.unwrap();
    let mut answer = Vec::new();
    within(connection.socket.read_to_end(&mut answer)).await.unwrap();
    let reset = stripe::Header::Reset.encode();
    assert_eq!(answer[..reset.len()], reset);
    assert!(!serving.is_finished());
    serving.abort();
}

/// Else a stream whose connections were lost could never come back to a full server.
#[tokio::test]
async fn who_takes_no_further_stream_lets_connections_join_those_there_are() {
    let (mut listener, address) = listener(Options::default());
    let (first, taken) = {
        let options = Options::default();
        let key = key(1);
        let connecting = connect(address, &key, Policy::Fixed(4), &options);
        let (first, taken) = within(async { tokio::join!(connecting, listener.accept()) }).await;
        (first.unwrap(), taken.unwrap().0)
    };
    let other = tokio::spawn(async move {
        connect(address, &key(1), Policy::Fixed(1), &Options::default()).await
    });
    let joined = async {
        while taken.stats().connected < 4 || !other.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(async {
        tokio::select! {
            () = joined => {}
            _ = listener.accept_if(false) => panic!("nobody takes it"),
        }
    })
    .await;
    within(listener.accept()).await.unwrap();
    other.await.unwrap().unwrap();
    drop(first);
}

#[tokio::test]
async fn another_key_is_told_apart() {
    let (mut listener, address) = listener(Options::default());
    let serving = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
    for streams in [1, 5] {
        let result =
            within(connect(address, &key(2), Policy::Fixed(streams), &Options::default())).await;
        let error = result.err().unwrap();
        assert!(matches!(error, NetError::WrongKey { .. }), "{error}");
    }
    assert!(!serving.is_finished());
    serving.abort();
}

#[tokio::test]
async fn identities_are_asked_for_proved_and_let_in() {
    let [host, guest] = [2, 3].map(|byte| Identity::from_bytes([byte; 32]));
    let name = guest.public();
    let credentials = Credentials::server(host.clone(), Arc::new(move |key| *key == name));
    let options = Options::default();
    let any = "127.0.0.1:0".parse().unwrap();
    let mut listener = Listener::bind(any, &credentials, options.clone()).unwrap();
    let address = listener.address();
    let serving = tokio::spawn(async move { listener.accept().await.unwrap().0.peer() });
    let key = within(ask(address)).await.unwrap();
    assert_eq!(key, host.public());
    let refused =
        within(connect(address, Credentials::client(host, key), Policy::Fixed(2), &options)).await;
    assert!(matches!(refused.err(), Some(NetError::NotAllowed { .. })));
    let refused =
        within(connect(address, &self::key(1), Policy::Fixed(2), &options)).await.err().unwrap();
    assert!(matches!(refused, NetError::OtherKind { .. }), "{refused}");
    let credentials = Credentials::client(guest, key);
    let stream = within(connect(address, credentials, Policy::Fixed(2), &options)).await.unwrap();
    assert_eq!((stream.peer(), within(serving).await.unwrap()), (Some(key), Some(name)));
}

/// Sends `bytes` and gives the socket, still open, and the first byte of the answer if any.
async fn peer_sending(address: SocketAddr, bytes: &[u8]) -> (TcpStream, Option<u8>) {
    let mut peer = TcpStream::connect(address).await.unwrap();
    peer.write_all(bytes).await.unwrap();
    let answer = within(peer.read_u8()).await.ok();
    (peer, answer)
}

#[tokio::test]
async fn garbage_silence_and_replay_are_dropped_and_others_served() {
    let (mut listener, address) = listener(Options::default());
    let serving = tokio::spawn(async move { listener.accept().await.unwrap().1 });
    let silent = TcpStream::connect(address).await.unwrap();
    let (_, answer) = peer_sending(address, b"GET / HTTP/1.1\r\n\r\n").await;
    assert_eq!(answer, None);
    // An eavesdropper repeats somebody's first message: it is answered, but cannot confirm.
    let recorded = hello::tests::recorded(&key(1).into());
    let (mut replay, answer) = peer_sending(address, &recorded).await;
    assert_eq!(answer, Some(0));
    replay.write_all(&[0; 16]).await.unwrap();
    replay.read_to_end(&mut Vec::new()).await.unwrap();
    assert!(!serving.is_finished());
    let _stream =
        within(connect(address, &key(1), Policy::Fixed(2), &Options::default())).await.unwrap();
    within(serving).await.unwrap();
    drop(silent);
}

#[tokio::test]
async fn nobody_listening_or_somebody_else_is_a_clear_error() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = other.local_addr().unwrap();
    let greeting = tokio::spawn(async move {
        let (mut peer, _) = other.accept().await.unwrap();
        peer.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await.unwrap();
        // The client hangs up on it, which may count as a reset.
        let _ = peer.read_to_end(&mut Vec::new()).await;
    });
    let error = within(connect(address, &key(1), Policy::Fixed(1), &Options::default())).await;
    let error = error.err().unwrap().to_string();
    assert!(error.contains("not a longhaul server"), "{error}");
    within(greeting).await.unwrap();
    let error = within(connect(address, &key(1), Policy::Fixed(2), &Options::default())).await;
    let error = error.err().unwrap();
    assert!(matches!(error, NetError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn impossible_options_are_refused() {
    let any: SocketAddr = "[::1]:0".parse().unwrap();
    let options = Options { congestion_control: Some("nonesuch".to_owned()), ..Options::default() };
    let error = Listener::bind(any, key(1), options).err().unwrap();
    assert!(error.to_string().contains("nonesuch"), "{error}");
    for streams in [0, MAX_STREAMS as u16 + 1] {
        let error = connect(any, &key(1), Policy::Fixed(streams), &Options::default()).await;
        assert!(matches!(error, Err(NetError::Option { .. })));
    }
}

#[tokio::test]
async fn connections_that_say_nothing_keep_nobody_out() {
    let (mut listener, address) = listener(Options::default());
    let meeting = async {
        let mut silent = Vec::new();
        for _ in 0..MAX_HALF_OPEN {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let client =
            connect(address, &key(1), Policy::Fixed(2), &Options::default()).await.unwrap();
        let mut byte = [0];
        for dropped in &mut silent[..2] {
            assert!(matches!(dropped.read(&mut byte).await, Ok(0) | Err(_)));
        }
        let ended = silent[MAX_HALF_OPEN - 1].try_read(&mut byte);
        assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "the youngest stays");
        client
    };
    let (_client, accepted) = within(async { tokio::join!(meeting, listener.accept()) }).await;
    accepted.unwrap();
}

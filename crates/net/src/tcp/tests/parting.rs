//! How both ends come to know that the other has everything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use stripe::Ack;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, copy_bidirectional, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use units::Bytes;

use super::*;
use crate::NetError;
use crate::tcp::state::Next;

/// Stands between a client and `to`. Of the first connection it loses what one of them says, `to` or
/// else the client, once `deaf` is set, and cuts it when told; the others it carries.
async fn deaf_relay(
    to: SocketAddr,
    to_server: bool,
    deaf: Arc<AtomicBool>,
    cut: Arc<Notify>,
) -> SocketAddr {
    async fn carry(
        mut from: ReadHalf<TcpStream>,
        mut to: WriteHalf<TcpStream>,
        loses: impl Fn() -> bool,
    ) {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut bytes).await {
            if !loses() {
                to.write_all(&bytes[..length]).await.unwrap();
            }
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let far = TcpStream::connect(to).await.unwrap();
        let ((near_out, near_in), (far_out, far_in)) = (split(near), split(far));
        let is_deaf = || deaf.load(Ordering::SeqCst);
        tokio::select! {
            () = carry(near_out, far_in, || to_server && is_deaf()) => {}
            () = carry(far_out, near_in, || !to_server && is_deaf()) => {}
            () = cut.notified() => {}
        }
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = TcpStream::connect(to).await.unwrap();
            tokio::spawn(async move {
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    address
}

/// Two ends with such a relay between them.
struct Relayed {
    client: StripedStream,
    server: StripedStream,
    /// Lets further connections in.
    accepting: JoinHandle<Result<(), NetError>>,
    deaf: Arc<AtomicBool>,
    cut: Arc<Notify>,
}

async fn relayed(to_server: bool) -> Relayed {
    let (mut listener, address) = listener(Options::default());
    let (deaf, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let relay = deaf_relay(address, to_server, deaf.clone(), cut.clone()).await;
    let (key, options) = (key(1), Options::default());
    let connecting = connect(relay, &key, Policy::Fixed(1), &options);
    let (client, accepted) = within(async { tokio::join!(connecting, listener.accept()) }).await;
    let (client, server) = (client.unwrap(), accepted.unwrap().0);
    let accepting = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
    Relayed { client, server, accepting, deaf, cut }
}

#[tokio::test]
async fn who_did_not_hear_the_last_word_is_told_again() {
    let Relayed { mut client, mut server, accepting, deaf, cut } = relayed(true).await;
    within(client.shutdown()).await.unwrap();
    assert_eq!(within(server.read(&mut [0])).await.unwrap(), 0);
    deaf.store(true, Ordering::SeqCst);
    server.write_all(b"the last").await.unwrap();
    let shutting = tokio::spawn(async move { server.shutdown().await });
    let mut received = Vec::new();
    within(client.read_to_end(&mut received)).await.unwrap();
    assert_eq!(received, b"the last");
    assert!(client.shared().is_over() && !shutting.is_finished());
    cut.notify_one();
    within(client.close()).await;
    within(shutting).await.unwrap().unwrap();
    accepting.abort();
}

#[tokio::test]
async fn who_lost_the_last_word_can_ask_again() {
    let Relayed { mut client, mut server, accepting, deaf, cut } = relayed(false).await;
    // The server has said all it has to say.
    within(server.shutdown()).await.unwrap();
    assert_eq!(within(client.read(&mut [0])).await.unwrap(), 0);
    deaf.store(true, Ordering::SeqCst);
    client.write_all(b"the last").await.unwrap();
    let shutting = tokio::spawn(async move { client.shutdown().await });
    let mut received = Vec::new();
    within(server.read_to_end(&mut received)).await.unwrap();
    assert_eq!(received, b"the last");
    assert!(server.shared().is_over());
    drop(server);
    assert!(!shutting.is_finished());
    cut.notify_one();
    within(shutting).await.unwrap().unwrap();
    accepting.abort();
}

#[tokio::test]
async fn the_last_word_over_each_connection_is_complete() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let socket = Arc::new(TcpStream::connect(address).await.unwrap());
    let shared = shared::Shared::new(address, Bytes::mib(4));
    let lanes = [(); 2].map(|()| shared.join(&socket).unwrap());
    let cx = Context::from_waker(Waker::noop());
    assert!(shared.poll_shutdown(&cx).is_pending());
    let said = |lane| {
        let next = || match shared.poll_next(&cx, lane) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        };
        std::iter::from_fn(next).collect::<Vec<_>>()
    };
    assert!(matches!(said(lanes[0])[..], [Next::Ack(_), Next::Data(_)]));
    assert!(matches!(said(lanes[1])[..], [Next::Ack(_)]));
    let ack = Ack { received: 1, through: 1, limit: stripe::INITIAL_RECORDS, ..Ack::default() };
    shared.confirm(lanes[0], &ack).unwrap();
    shared.accept(lanes[0], 0, bytes::Bytes::new()).unwrap();
    for lane in lanes {
        assert!(matches!(said(lane)[..], [Next::Ack(Ack { through: 1, .. }), Next::Leave]));
    }
}

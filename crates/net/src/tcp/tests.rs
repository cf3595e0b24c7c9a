//! Streams over real TCP on loopback. Every wait is bounded, so that a stream that hangs fails.

use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::SockRef;
use stripe::Ack;
use tokio::io::{
    AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, copy, copy_bidirectional, split,
};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Notify;
use transport::crypto::{Credentials, Identity, SharedKey};
use units::{Bytes, Instant};

use super::state::Next;
use super::*;
use crate::error::NetError;

const PATIENCE: Duration = Duration::from_secs(60);

fn key(byte: u8) -> SharedKey {
    SharedKey::from_bytes([byte; 32])
}

fn listener(options: Options) -> (Listener, SocketAddr) {
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(any, key(1), options).unwrap();
    let address = listener.address();
    (listener, address)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(PATIENCE, future).await;
    result.expect("must not hang")
}

async fn pair_with(streams: usize, options: Options) -> (StripedStream, StripedStream) {
    let (mut listener, address) = listener(options.clone());
    let key = key(1);
    let connecting = connect(address, &key, Policy::Fixed(streams as u16), &options);
    let (client, accepted) = within(async { tokio::join!(connecting, listener.accept()) }).await;
    (client.unwrap(), accepted.unwrap().0)
}

async fn pair(streams: usize) -> (StripedStream, StripedStream) {
    pair_with(streams, Options::default()).await
}

/// Bytes that differ everywhere, so that a misplaced record shows.
fn pattern(length: usize, salt: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    let mut state = salt | 1;
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&state.rotate_left(19).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

async fn both_ways(streams: usize) {
    let (client, server) = pair(streams).await;
    let (there, back) = (pattern(9_000_001, 3), pattern(5_000_003, 4));
    let run = |stream: StripedStream, data: Vec<u8>| {
        tokio::spawn(async move {
            let (mut reader, mut writer) = split(stream);
            let writing = async {
                writer.write_all(&data).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let mut received = Vec::new();
            let reading = async { reader.read_to_end(&mut received).await.unwrap() };
            tokio::join!(writing, reading);
            let stats = reader.unsplit(writer).stats();
            (received, stats)
        })
    };
    let runs = (run(client, there.clone()), run(server, back.clone()));
    let ((at_client, stats), (at_server, _)) = within(async {
        let (client, server) = tokio::join!(runs.0, runs.1);
        (client.unwrap(), server.unwrap())
    })
    .await;
    assert!(at_server == there && at_client == back);
    assert_eq!(stats.sent, Bytes(there.len() as u64));
    assert_eq!(stats.received, Bytes(back.len() as u64));
    assert!((1..=streams).contains(&stats.connections));
    assert!(stats.segments_sent > 0 && stats.rtt_min.unwrap() <= stats.rtt_smoothed.unwrap());
    assert!(stats.busy > Duration::ZERO);
}

#[tokio::test]
async fn one_connection_carries_both_ways() {
    both_ways(1).await;
}

#[tokio::test]
async fn four_connections_carry_both_ways() {
    both_ways(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_connections_carry_both_ways() {
    both_ways(16).await;
}

#[tokio::test]
async fn a_reply_comes_after_half_close_and_streams_may_be_dropped_then() {
    for round in 0..20 {
        let (mut client, mut server) = pair(4).await;
        let request = pattern(300_000, round);
        let expected = request.clone();
        let serving = tokio::spawn(async move {
            let mut received = Vec::new();
            server.read_to_end(&mut received).await.unwrap();
            assert!(received == expected);
            server.write_all(&received).await.unwrap();
            server.shutdown().await.unwrap();
        });
        client.write_all(&request).await.unwrap();
        client.shutdown().await.unwrap();
        assert!(client.write_all(b"more").await.is_err());
        let mut reply = Vec::new();
        within(client.read_to_end(&mut reply)).await.unwrap();
        assert!(reply == request);
        within(serving).await.unwrap();
    }
}

#[tokio::test]
async fn small_messages_go_without_a_flush() {
    let (mut client, mut server) = pair(2).await;
    for i in 0..100 {
        client.write_all(&[i]).await.unwrap();
        assert_eq!(within(server.read_u8()).await.unwrap(), i);
        server.write_all(&[i]).await.unwrap();
        assert_eq!(within(client.read_u8()).await.unwrap(), i);
    }
}

#[tokio::test]
async fn dropping_without_shutdown_is_an_error_at_the_other_side() {
    let (mut client, mut server) = pair(3).await;
    client.write_all(b"almost").await.unwrap();
    client.flush().await.unwrap();
    drop(client);
    let mut received = Vec::new();
    let error = within(server.read_to_end(&mut received)).await.unwrap_err();
    assert!(error.to_string().contains("gave it up"), "{error}");
    assert!(within(server.write_all(&[0; 64])).await.is_err());
}

/// What the relay does to what its connections carry from the client.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Ends the connection in good order.
    Cut,
    /// Resets the connection.
    Reset,
    /// Changes a bit.
    Damage,
    /// Goes no further, but keeps the connection.
    Stall,
}

/// Stands between a client and `to`. So many connections suffer a fault, each after it carried a random
/// number of bytes.
async fn relay(to: SocketAddr, fault: Fault, faults: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for connection in 1.. {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = TcpStream::connect(to).await.unwrap();
            tokio::spawn(async move {
                if connection <= faults {
                    let random = connection.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                    carry_until(&mut near, &mut far, random % 1_500_000).await;
                    match fault {
                        Fault::Cut => return,
                        Fault::Reset => {
                            SockRef::from(&near).set_linger(Some(Duration::ZERO)).unwrap();
                            SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
                            return;
                        }
                        Fault::Damage => {
                            let Ok(byte) = near.read_u8().await else { return };
                            let _ = far.write_u8(byte ^ 4).await;
                        }
                        Fault::Stall => tokio::time::sleep(PATIENCE).await,
                    }
                }
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    address
}

/// Carries both ways until `limit` bytes came from the client, or either end is done.
async fn carry_until(near: &mut TcpStream, far: &mut TcpStream, limit: u64) {
    let ((near_out, mut near_in), (mut far_out, mut far_in)) = (near.split(), far.split());
    let mut beginning = near_out.take(limit);
    tokio::select! {
        _ = copy(&mut beginning, &mut far_in) => {}
        _ = copy(&mut far_out, &mut near_in) => {}
    }
}

/// Everything arrives both ways although connections are lost.
async fn survives(fault: Fault, streams: u16, faults: u64) {
    let (mut listener, address) = listener(Options::default());
    let relay = relay(address, fault, faults).await;
    let serving = tokio::spawn(async move {
        let (mut server, _) = listener.accept().await.unwrap();
        // Further connections come through the listener.
        let accepting = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        server.write_all(&received).await.unwrap();
        server.shutdown().await.unwrap();
        server.close().await;
        accepting.abort();
    });
    let (key, options) = (key(1), Options::default());
    let client = within(connect(relay, &key, Policy::Fixed(streams), &options)).await.unwrap();
    let (mut reader, mut writer) = split(client);
    let data = pattern(20_000_000, 5);
    let expected = data.clone();
    let writing = tokio::spawn(async move {
        writer.write_all(&data).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    within(reader.read_to_end(&mut received)).await.unwrap();
    assert!(received == expected);
    within(async { tokio::join!(writing, serving) }).await.0.unwrap();
}

#[tokio::test]
async fn connections_that_are_cut_cost_nothing() {
    survives(Fault::Cut, 4, 9).await;
}

#[tokio::test]
async fn connections_that_are_reset_cost_nothing() {
    survives(Fault::Reset, 1, 5).await;
}

#[tokio::test]
async fn a_changed_bit_costs_its_connection() {
    survives(Fault::Damage, 3, 5).await;
}

#[tokio::test]
async fn connections_that_stall_hold_nobody_up() {
    survives(Fault::Stall, 4, 3).await;
}

#[tokio::test]
async fn connections_come_and_go_while_a_stream_runs() {
    let (mut listener, address) = listener(Options::default());
    let serving = tokio::spawn(async move {
        let (mut server, _) = listener.accept().await.unwrap();
        let accepting = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        accepting.abort();
        (server, received)
    });
    let key = key(1);
    let mut client =
        within(connect(address, &key, Policy::Fixed(6), &Options::default())).await.unwrap();
    let count = async |client: &StripedStream, count| {
        while client.shared().width() != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(count(&client, 6)).await;
    let data = pattern(30_000_000, 8);
    for (piece, place) in data.chunks(10_000_000).zip(0..) {
        client.write_all(piece).await.unwrap();
        if place == 0 {
            client.shared().drain(2);
            // The keeper opens others.
            within(count(&client, 4)).await;
            within(count(&client, 6)).await;
        }
    }
    within(client.shutdown()).await.unwrap();
    let (server, received) = within(serving).await.unwrap();
    assert!(received == data);
    drop(server);
}

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

#[tokio::test]
async fn who_did_not_hear_the_last_word_is_told_again() {
    let (mut listener, address) = listener(Options::default());
    let (deaf, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let relay = deaf_relay(address, true, deaf.clone(), cut.clone()).await;
    let key = key(1);
    let options = Options::default();
    let connecting = connect(relay, &key, Policy::Fixed(1), &options);
    let (client, accepted) = within(async { tokio::join!(connecting, listener.accept()) }).await;
    let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
    let accepting = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
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
    let (mut listener, address) = listener(Options::default());
    let (deaf, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let relay = deaf_relay(address, false, deaf.clone(), cut.clone()).await;
    let key = key(1);
    let options = Options::default();
    let connecting = connect(relay, &key, Policy::Fixed(1), &options);
    let (client, accepted) = within(async { tokio::join!(connecting, listener.accept()) }).await;
    let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
    let accepting = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
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

#[tokio::test]
async fn a_slow_reader_holds_the_writer_back() {
    const STREAMS: usize = 4;
    const TOTAL: usize = 60_000_000;
    let options = Options { buffer: Bytes::mib(2), ..Options::default() };
    let most = options.buffer.0;
    let (mut client, mut server) = pair_with(STREAMS, options.clone()).await;
    let writing = tokio::spawn(async move {
        let data = pattern(TOTAL, 9);
        client.write_all(&data).await.unwrap();
        client.shutdown().await.unwrap();
    });
    let held = || server.stats().received.0;
    within(async {
        while held() < options.buffer.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(held() <= most, "{} bytes held, {most} allowed", held());
    assert!(!writing.is_finished(), "the writer was not held back");
    let mut received = Vec::new();
    within(server.read_to_end(&mut received)).await.unwrap();
    assert!(received == pattern(TOTAL, 9));
    within(writing).await.unwrap();
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

#[tokio::test]
async fn a_choice_goes_by_its_policy_and_keeps_to_what_there_is() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        near.push(TcpStream::connect(address).await.unwrap());
        far.push(listener.accept().await.unwrap().0);
    }
    let choice = |policy| {
        let sockets = near.iter().map(|socket| socket.as_fd().try_clone_to_owned().unwrap());
        Choice::new(policy, sockets.collect())
    };
    let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
    assert_eq!([3, 9].map(|count| choice(Policy::Fixed(count)).decide(at(1))), [3, 4]);
    let second = Duration::from_secs(1);
    let mut bounded = choice(Policy::RttBounded { alpha: second, beta: second });
    assert_eq!(bounded.decide(at(1)), 1, "there is nothing to send that others could help with");
    for socket in &near {
        socket.writable().await.unwrap();
        while socket.try_write(&[0; 4096]).is_ok() {}
    }
    assert_eq!([2, 3, 4, 5].map(|seconds| bounded.decide(at(seconds))), [2, 3, 4, 4]);
}

/// Who fetches has no window of its own that matters: it hears of the sender's.
#[tokio::test]
async fn what_a_sender_learns_who_fetches_can_store() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let socket = Arc::new(TcpStream::connect(address).await.unwrap());
    let [sender, fetcher] = [(); 2].map(|()| shared::Shared::new(address, Bytes::mib(4)));
    let lanes = [&sender, &fetcher].map(|shared| shared.join(&socket).unwrap());
    let system = System { k: 970, window: Bytes(23_360), rtt: Duration::from_millis(200) };
    let cx = Context::from_waker(Waker::noop());
    let mut tell = |learnt| {
        sender.learn(learnt);
        while let Poll::Ready(next) = sender.poll_next(&cx, lanes[0]) {
            let Next::Ack(ack) = next else { panic!("there is nothing else to say") };
            fetcher.confirm(lanes[1], &Ack::decode(&ack.encode())).unwrap();
        }
        fetcher.stats(Duration::ZERO).system
    };
    assert_eq!(tell(None), None);
    assert_eq!(tell(Some(system)), Some(system));
    let other = System { k: 1000, ..system };
    assert_eq!([tell(Some(other)), tell(None)], [Some(other); 2], "it stays known");
    fetcher.learn(Some(system));
    assert_eq!(fetcher.stats(Duration::ZERO).system, Some(system), "it sends itself, too");
}

/// Whichever side sends, its controller goes by them.
#[tokio::test]
async fn what_echoes_tell_a_client_its_server_knows() {
    let options = Options { rtt: RttSource::Udp, ..Options::default() };
    let (mut listener, address) = listener(options.clone());
    let echoes = UdpSocket::bind(address).await.unwrap();
    tokio::spawn(async move {
        let mut datagram = [0; 64];
        loop {
            let (length, from) = echoes.recv_from(&mut datagram).await.unwrap();
            datagram[0] |= 0x80;
            echoes.send_to(&datagram[..length], from).await.unwrap();
        }
    });
    let key = key(1);
    let connecting = connect(address, &key, Policy::Fixed(1), &options);
    let (client, accepted) = within(async { tokio::join!(connecting, listener.accept()) }).await;
    let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
    let told = async {
        loop {
            server.write_all(b"what is got").await.unwrap();
            client.read_exact(&mut [0; 11]).await.unwrap();
            if let Some((smoothed, least)) = server.shared().their_echoes() {
                return least <= smoothed && !least.is_zero();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(within(told).await);
    assert_eq!(client.shared().their_echoes(), None, "servers ask for none");
}

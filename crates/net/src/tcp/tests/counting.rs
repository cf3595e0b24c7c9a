//! What says how many connections there should be.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::SockRef;
use stripe::Ack;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use units::{Bytes, Instant};

use super::*;
use crate::tcp::state::Next;

#[tokio::test]
async fn a_choice_goes_by_its_policy_and_keeps_to_what_there_is() {
    const BUFFER: usize = 128 << 10;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Of what is written, most can never leave: nobody reads, and the other side has no room for it.
    SockRef::from(&listener).set_recv_buffer_size(BUFFER / 8).unwrap();
    let address = listener.local_addr().unwrap();
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let socket = TcpStream::connect(address).await.unwrap();
        SockRef::from(&socket).set_send_buffer_size(BUFFER).unwrap();
        near.push(socket);
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
        within(socket.writable()).await.unwrap();
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
    let tell = |learnt| {
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
    // The port is free for TCP; for UDP it may be another's.
    let (mut listener, address, echoes) = loop {
        let (listener, address) = listener(options.clone());
        if let Ok(echoes) = UdpSocket::bind(address).await {
            break (listener, address, echoes);
        }
    };
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

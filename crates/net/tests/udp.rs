//! The transport over real UDP sockets on loopback.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use net::udp::{UdpConnection, UdpEndpoint};
use net::{Credentials, Identity, NetError, SharedKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use transport::Config;

fn key(byte: u8) -> SharedKey {
    SharedKey::from_bytes([byte; 32])
}

fn localhost() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

async fn pair() -> (UdpConnection, UdpConnection, [UdpEndpoint; 2]) {
    let server = UdpEndpoint::listen(localhost(), key(1), Config::default()).unwrap();
    let client = UdpEndpoint::client(server.address(), key(1), Config::default()).unwrap();
    let (ours, theirs) = tokio::join!(client.connect(server.address()), server.accept());
    (ours.unwrap(), theirs.unwrap(), [client, server])
}

/// `len` bytes that depend on their place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 2_654_435_761) >> 11) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_cross_both_ways_at_once_and_the_end_is_seen() {
    let (ours, theirs, _endpoints) = pair().await;
    let sent = pattern(30_000_000);
    let (mut read, mut write) = tokio::io::split(ours.open().await.unwrap());
    let echo = tokio::spawn(async move {
        let (mut read, mut write) = tokio::io::split(theirs.accept().await.unwrap());
        let copied = tokio::io::copy(&mut read, &mut write).await.unwrap();
        write.shutdown().await.unwrap();
        copied
    });
    let bytes = sent.clone();
    let writer = tokio::spawn(async move {
        write.write_all(&bytes).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    read.read_to_end(&mut got).await.unwrap();
    writer.await.unwrap();
    assert_eq!(echo.await.unwrap(), sent.len() as u64);
    assert!(got == sent, "the echo differs");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_streams_do_not_wait_for_each_other() {
    let (ours, theirs, _endpoints) = pair().await;
    let reader = tokio::spawn(async move {
        let _stalled = theirs.accept().await.unwrap();
        let mut tasks = Vec::new();
        for _ in 0..50 {
            let mut stream = theirs.accept().await.unwrap();
            tasks.push(tokio::spawn(async move {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.unwrap();
                all
            }));
        }
        let mut lens = Vec::new();
        for task in tasks {
            let all = task.await.unwrap();
            assert_eq!(all, pattern(all.len()));
            lens.push(all.len());
        }
        lens.sort_unstable();
        lens
    });
    // Nobody reads this one: its credit runs out, and only its own.
    let mut stalled = ours.open().await.unwrap();
    stalled.write_all(b"first").await.unwrap();
    let flood = tokio::spawn(async move { stalled.write_all(&pattern(80_000_000)).await });
    let mut streams = Vec::new();
    for _ in 0..50 {
        streams.push(ours.open().await.unwrap());
    }
    for (index, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&pattern(index * 10_000 + 1)).await.unwrap();
        stream.shutdown().await.unwrap();
    }
    let expected: Vec<usize> = (0..50).map(|index| index * 10_000 + 1).collect();
    assert_eq!(reader.await.unwrap(), expected);
    assert!(flood.await.unwrap().is_err(), "the stalled stream was given up by its reader");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_is_refused_and_said() {
    let server = UdpEndpoint::listen(localhost(), key(1), Config::default()).unwrap();
    let client = UdpEndpoint::client(server.address(), key(2), Config::default()).unwrap();
    let error = client.connect(server.address()).await.err().unwrap();
    assert!(matches!(error, NetError::WrongKey { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn identities_are_asked_for_proved_and_let_in() {
    let [host, guest] = [2, 3].map(|byte| Identity::from_bytes([byte; 32]));
    let name = guest.public();
    let credentials = Credentials::server(host.clone(), Arc::new(move |key| *key == name));
    let server = UdpEndpoint::listen(localhost(), &credentials, Config::default()).unwrap();
    let key = net::udp::ask(server.address()).await.unwrap();
    assert_eq!(key, host.public());
    let client = |identity: &Identity| {
        let credentials = Credentials::client(identity.clone(), key);
        UdpEndpoint::client(server.address(), credentials, Config::default()).unwrap()
    };
    let endpoint = client(&guest);
    let (ours, theirs) = tokio::join!(endpoint.connect(server.address()), server.accept());
    assert_eq!((ours.unwrap().peer(), theirs.unwrap().peer()), (Some(key), Some(name)));
    let error = client(&host).connect(server.address()).await.err().unwrap();
    assert!(matches!(error, NetError::NotAllowed { .. }), "{error}");
    assert_eq!(server.refusals().not_allowed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_is_told_in_time() {
    let config = Config { connect_timeout: Duration::from_millis(700), ..Config::default() };
    // Bound, so that nothing else answers there, and silent.
    let silent = std::net::UdpSocket::bind(localhost()).unwrap();
    let address = silent.local_addr().unwrap();
    let client = UdpEndpoint::client(address, key(1), config).unwrap();
    let error = client.connect(address).await.err().unwrap();
    assert!(matches!(error, NetError::NoAnswer { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_connection_ends_the_other_side_with_an_error() {
    let (ours, theirs, _endpoints) = pair().await;
    let mut stream = ours.open().await.unwrap();
    stream.write_all(b"half a messa").await.unwrap();
    let mut there = theirs.accept().await.unwrap();
    let mut buffer = [0; 12];
    there.read_exact(&mut buffer).await.unwrap();
    drop((stream, ours));
    let error = there.read(&mut buffer).await.err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    let error = theirs.open().await.err().unwrap();
    assert!(matches!(error, NetError::Lost { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv6_works_and_an_ipv6_listener_takes_ipv4() {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let server = UdpEndpoint::listen(any, key(1), Config::default()).unwrap();
    let port = server.address().port();
    for host in [SocketAddr::from((Ipv6Addr::LOCALHOST, port)), (Ipv4Addr::LOCALHOST, port).into()]
    {
        let client = UdpEndpoint::client(host, key(1), Config::default()).unwrap();
        let (ours, theirs) = tokio::join!(client.connect(host), server.accept());
        let mut stream = ours.unwrap().open().await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut there = theirs.as_ref().unwrap().accept().await.unwrap();
        let mut buffer = [0; 5];
        there.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"hello");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_port_is_told_at_once() {
    let port = std::net::UdpSocket::bind(localhost()).unwrap().local_addr().unwrap();
    let config = Config { connect_timeout: Duration::from_secs(3600), ..Config::default() };
    let client = UdpEndpoint::client(port, key(1), config).unwrap();
    let error = client.connect(port).await.err().unwrap();
    assert!(matches!(error, NetError::Unreachable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_streams_and_several_drivers() {
    let cores = std::num::NonZeroUsize::new(3).unwrap();
    let server =
        UdpEndpoint::listen_on_cores(localhost(), key(1), Config::default(), cores).unwrap();
    let address = server.address();
    let sends = async {
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let client = UdpEndpoint::client(address, key(1), Config::default()).unwrap();
            tasks.push(tokio::spawn(async move {
                let connection = client.connect(address).await.unwrap();
                let mut streams = Vec::new();
                for _ in 0..2_000 {
                    let mut stream = connection.open().await.unwrap();
                    stream.write_all(b"hello").await.unwrap();
                    streams.push(tokio::spawn(async move { stream.shutdown().await }));
                }
                for stream in streams {
                    stream.await.unwrap().unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    };
    let receives = async {
        let mut readers = Vec::new();
        for _ in 0..4 {
            let connection = server.accept().await.unwrap();
            readers.push(tokio::spawn(async move {
                for _ in 0..2_000 {
                    let mut text = String::new();
                    let mut stream = connection.accept().await.unwrap();
                    stream.read_to_string(&mut text).await.unwrap();
                    assert_eq!(text, "hello");
                }
                connection
            }));
        }
        let mut connections = Vec::new();
        for reader in readers {
            connections.push(reader.await.unwrap());
        }
        connections
    };
    // Whoever sends must hear that all has arrived before the other end goes.
    let ((), _connections) = tokio::join!(sends, receives);
    assert_eq!(server.socket_drops(), 0);
}

#[tokio::test]
async fn who_comes_second_to_an_address_does_not_disturb_who_has_it() {
    let cores = std::num::NonZeroUsize::new(4).unwrap();
    let listen = |address| UdpEndpoint::listen_on_cores(address, key(1), Config::default(), cores);
    let server = listen(localhost()).unwrap();
    let mut connections = Vec::new();
    for _ in 0..8 {
        let client = UdpEndpoint::client(server.address(), key(1), Config::default()).unwrap();
        let (ours, theirs) = tokio::join!(client.connect(server.address()), server.accept());
        connections.push((ours.unwrap(), theirs.unwrap(), client));
    }
    let Err(NetError::Bind { source, .. }) = listen(server.address()) else {
        panic!("it is taken")
    };
    assert_eq!(source.kind(), io::ErrorKind::AddrInUse);
    for (ours, theirs, _) in &connections {
        let mut stream = ours.open().await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut text = String::new();
        theirs.accept().await.unwrap().read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
    }
}

#[tokio::test]
async fn packets_without_seals_are_for_simulations_alone() {
    let config = Config { sealing: transport::crypto::Sealing::Simulated, ..Config::default() };
    let refused = UdpEndpoint::listen(localhost(), key(1), config).err();
    assert!(matches!(refused, Some(NetError::Bind { .. })), "{refused:?}");
    assert!(UdpEndpoint::client(localhost(), key(1), config).is_err());
}

/// Carries datagrams between whoever sends to it and `to`, and takes none from elsewhere.
async fn strict_relay(to: SocketAddr) -> SocketAddr {
    let near = UdpSocket::bind(localhost()).await.unwrap();
    let far = UdpSocket::bind(localhost()).await.unwrap();
    far.connect(to).await.unwrap();
    let address = near.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut there, mut back) = ([0; 65_536], [0; 65_536]);
        let mut client = None;
        loop {
            tokio::select! {
                Ok((len, from)) = near.recv_from(&mut there) => {
                    client = Some(from);
                    let _ = far.send(&there[..len]).await;
                }
                Ok(len) = far.recv(&mut back) => {
                    let _ = near.send_to(&back[..len], client.unwrap()).await;
                }
            }
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_several_addresses_answers_from_the_one_that_was_asked() {
    for any in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
        let identity = |byte| Identity::from_bytes([byte; 32]);
        let doors = Credentials::server(identity(1), Arc::new(|_| true));
        let server = UdpEndpoint::listen((any, 0).into(), doors, Config::default()).unwrap();
        let there = (Ipv4Addr::new(127, 0, 0, 2), server.address().port()).into();
        let relay = strict_relay(there).await;
        assert_eq!(net::udp::ask(relay).await.unwrap(), identity(1).public());
        let key = Credentials::client(identity(2), identity(1).public());
        let client = UdpEndpoint::client(relay, key, Config::default()).unwrap();
        let (ours, theirs) = tokio::join!(client.connect(relay), server.accept());
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
        let echo = async {
            let mut stream = theirs.accept().await.unwrap();
            let mut got = [0; 5];
            stream.read_exact(&mut got).await.unwrap();
            stream.write_all(&got).await.unwrap();
            stream.shutdown().await.unwrap();
        };
        let asking = async {
            let mut stream = ours.open().await.unwrap();
            stream.write_all(b"hello").await.unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, b"hello");
        };
        tokio::join!(echo, asking);
    }
}

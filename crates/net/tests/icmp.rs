//! What anybody can do to an endpoint with ICMP messages: nothing.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};

use net::SharedKey;
use net::udp::UdpEndpoint;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::Config;

/// Type and code of messages that speak of a datagram.
const KINDS: [(u8, u8); 7] = [(3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (11, 0), (12, 0)];

/// An ICMP message about a datagram that was sent from one port to another of this host. The MTU that
/// it names is none that would change how the host routes.
fn message(kind: (u8, u8), from: u16, to: u16) -> Vec<u8> {
    let home = Ipv4Addr::LOCALHOST.octets();
    let mut message = vec![kind.0, kind.1, 0, 0, 0, 0, 0xff, 0xff];
    message.extend([0x45, 0, 0, 36, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    message.extend(home.iter().chain(&home));
    message.extend(from.to_be_bytes().iter().chain(&to.to_be_bytes()));
    message.extend([0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let words = message.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_outlives_whatever_icmp_says() {
    let raw = match Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)) {
        Ok(raw) => raw,
        Err(error) => {
            let said = format!("an_endpoint_outlives_whatever_icmp_says: no raw socket: {error}\n");
            if let Some(log) = std::env::var_os("LONGHAUL_SKIP_LOG") {
                let log = OpenOptions::new()
                    .append(true)
                    .open(log)
                    .and_then(|mut log| log.write_all(said.as_bytes()));
                log.unwrap();
            }
            eprint!("SKIPPED: {said}");
            return;
        }
    };
    let home = (Ipv4Addr::LOCALHOST, 0);
    let key = || SharedKey::from_bytes([1; 32]);
    let server = UdpEndpoint::listen(home.into(), key(), Config::default()).unwrap();
    let client = UdpEndpoint::client(server.address(), key(), Config::default()).unwrap();
    let (ours, theirs) = tokio::join!(client.connect(server.address()), server.accept());
    let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
    let loopback = SocketAddr::from(home).into();
    let port = server.address().port();
    for kind in KINDS {
        for to in [client.address().port(), 9] {
            raw.send_to(&message(kind, port, to), &loopback).unwrap();
        }
        // The connection works as before, and so does the endpoint for a newcomer.
        let mut out = ours.open().await.unwrap();
        out.write_all(b"still there").await.unwrap();
        out.shutdown().await.unwrap();
        let mut text = String::new();
        theirs.accept().await.unwrap().read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "still there", "after {kind:?}");
        let newcomer = UdpEndpoint::client(server.address(), key(), Config::default()).unwrap();
        let (ours, theirs) = tokio::join!(newcomer.connect(server.address()), server.accept());
        assert!(ours.is_ok() && theirs.is_ok(), "after {kind:?}");
    }
}

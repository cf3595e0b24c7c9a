//! A transfer on loopback, alone and while strangers send 100,000 hellos over five seconds, and as
//! many forged resets and packets under no key: `cargo xtask bench flood`. Exit code 1 when it keeps
//! less than 90%.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use net::udp::{UdpEndpoint, UdpStream};
use net::{Credentials, Identity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::wire::{Header, Kind, Opening};
use transport::{Config, Endpoint};
use units::Rate;

const PHASE: Duration = Duration::from_secs(5);
const HELLOS: u32 = 100_000;
/// Hellos sent in one go.
const BURST: u32 = 200;

#[tokio::main]
async fn main() -> ExitCode {
    let [host, guest, stranger] = [1, 2, 3].map(|byte| Identity::from_bytes([byte; 32]));
    let (key, name) = (host.public(), guest.public());
    let doors = Credentials::server(host, Arc::new(move |key| *key == name));
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    let server = UdpEndpoint::listen(local, doors, Config::default()).expect("a socket");
    let rate_limit = Some(Rate::from_bits_per_sec(500_000_000));
    let config = Config { rate_limit, ..Config::default() };
    let client = UdpEndpoint::client(server.address(), Credentials::client(guest, key), config);
    let client = client.expect("a socket");
    let (ours, theirs) = tokio::join!(client.connect(server.address()), server.accept());
    let (ours, theirs) = (ours.expect("a connection"), theirs.expect("a connection"));
    let mut writer = ours.open().await.expect("a stream");
    tokio::spawn(async move {
        let block = vec![0; 1 << 18];
        while writer.write_all(&block).await.is_ok() {}
    });
    let mut reader = theirs.accept().await.expect("a stream");

    count(&mut reader, Duration::from_secs(1)).await;
    let alone = count(&mut reader, PHASE).await;
    let hellos = hellos(&Credentials::client(stranger, key), server.address());
    let target = server.address();
    std::thread::spawn(move || flood(&hellos, target));
    let flooded = count(&mut reader, PHASE).await;

    let kept = flooded as f64 / alone as f64;
    let rate = |bytes: u64| bytes as f64 * 8e-6 / PHASE.as_secs_f64();
    println!(
        "alone {:.0} Mbit/s, flooded {:.0} Mbit/s: {:.1}%",
        rate(alone),
        rate(flooded),
        kept * 100.0
    );
    println!("{:?}", server.refusals());
    if kept >= 0.9 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Bytes that arrive in this time.
async fn count(reader: &mut UdpStream, time: Duration) -> u64 {
    let end = net::clock::now() + time;
    let (mut block, mut total) = (vec![0; 1 << 18], 0);
    while net::clock::now() < end {
        total += reader.read(&mut block).await.expect("the stream goes on") as u64;
    }
    total
}

/// The costliest that a stranger can send: whole handshakes with the host's key.
fn hellos(stranger: &Credentials, to: std::net::SocketAddr) -> Vec<Vec<u8>> {
    let mut endpoint = Endpoint::new(stranger, Config::default(), false, [9; 32]);
    let make = |_| {
        let now = net::clock::now();
        let (_, mut connection) = endpoint.connect(now, to);
        let mut hello = Vec::new();
        connection.poll_transmit(now, &mut hello).expect("a hello is due");
        hello
    };
    (0..2000).map(make).collect()
}

/// Resets and packets for connections that are not there, or not theirs.
fn forged(index: u32) -> Vec<u8> {
    let (mut bytes, connection) = (Vec::new(), index.wrapping_mul(0x9e37_79b9));
    if index.is_multiple_of(2) {
        Opening::Gone { connection, token: &[index as u8; 16] }.encode(&mut bytes);
    } else {
        let (kind, number) = (Kind::Data, u64::from(index));
        let (fin, follows, epoch) = (false, false, 0);
        Header { kind, fin, follows, epoch, connection, number }.encode(&mut bytes);
        bytes.resize(1200, index as u8);
    }
    bytes
}

fn flood(hellos: &[Vec<u8>], target: std::net::SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let pause = PHASE / (HELLOS / BURST);
    let mut next = net::clock::now();
    for (index, hello) in hellos.iter().cycle().take(HELLOS as usize).enumerate() {
        if (index as u32).is_multiple_of(BURST) {
            next += pause;
            std::thread::sleep(next.since(net::clock::now()));
        }
        // What the socket has no room for is lost, as on any network.
        let _ = socket.send_to(hello, target);
        let _ = socket.send_to(&forged(index as u32), target);
    }
}

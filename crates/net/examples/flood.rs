//! A transfer on loopback, alone and while strangers send 100,000 hellos over five seconds, as many
//! forged resets and packets under no key, and as many copies of what a second connection sends:
//! `cargo xtask bench flood`. Exit code 1 when the transfer keeps less than 90%, when the second
//! connection does not go on, or when anything of the flood was not refused and counted.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use net::udp::{UdpConnection, UdpEndpoint, UdpStream};
use net::{Credentials, Identity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::wire::{Header, Kind, Opening};
use transport::{Config, Endpoint, Refusals};
use units::Rate;

const PHASE: Duration = Duration::from_secs(5);
const HELLOS: u32 = 100_000;
/// Hellos sent in one go.
const BURST: u32 = 200;
/// Packets of the second connection that are sent again and again.
const COPIES: usize = 1000;

#[tokio::main]
async fn main() -> ExitCode {
    let [host, guest, stranger] = [1, 2, 3].map(|byte| Identity::from_bytes([byte; 32]));
    let (key, name) = (host.public(), guest.public());
    let doors = Credentials::server(host, Arc::new(move |key| *key == name));
    let local = (Ipv4Addr::LOCALHOST, 0).into();
    let server = UdpEndpoint::listen(local, doors, Config::default()).expect("a socket");
    let target = server.address();
    let mbit = |rate: u64| Some(Rate::from_bits_per_sec(rate * 1_000_000));
    let fast = Config { rate_limit: mbit(500), ..Config::default() };
    let doors = Credentials::client(guest.clone(), key);
    let client = UdpEndpoint::client(target, doors.clone(), fast).expect("a socket");
    let (_ours, theirs) = meet(&client, &server, target).await;
    let mut reader = theirs.accept().await.expect("a stream");
    let overheard = Arc::new(Mutex::new(Vec::new()));
    let slow = Config { rate_limit: mbit(10), ..Config::default() };
    let other = UdpEndpoint::client(target, doors, slow).expect("a socket");
    let (_other, copied) = meet(&other, &server, relay(target, overheard.clone())).await;
    let mut beside = copied.accept().await.expect("a stream");

    // Who takes the server for another is told so, as long as there is time for everybody.
    let mistaken = Credentials::client(guest, Identity::from_bytes([4; 32]).public());
    let mistaken = UdpEndpoint::client(target, mistaken, Config::default()).expect("a socket");
    let is_told = mistaken.connect(target).await.is_err() && server.refusals().wrong_key > 0;

    count(&mut reader, Duration::from_secs(1)).await;
    let alone = count(&mut reader, PHASE).await;
    let hellos = hellos(&Credentials::client(stranger, key), target);
    let before = counted(&server, &copied);
    let flooding = std::thread::spawn(move || flood(&hellos, &overheard, target));
    let (flooded, went_on) = tokio::join!(count(&mut reader, PHASE), count(&mut beside, PHASE));
    let sent = flooding.join().expect("the flood ends");
    // What still waits is taken in meanwhile.
    count(&mut reader, Duration::from_secs(1)).await;
    let refused = counted(&server, &copied) - before;

    let kept = flooded as f64 / alone as f64;
    let rate = |bytes: u64| bytes as f64 * 8e-6 / PHASE.as_secs_f64();
    println!(
        "alone {:.0} Mbit/s, flooded {:.0} Mbit/s: {:.1}%; the connection that was copied {:.1} Mbit/s",
        rate(alone),
        rate(flooded),
        kept * 100.0,
        rate(went_on),
    );
    println!("{sent} sent, {refused} refused or without room; {:?}", server.refusals());
    let copies = copied.stats().refused.replayed;
    println!("{copies} copies refused; another key told: {is_told}");
    let all = refused >= sent && copies > 0 && is_told;
    if kept >= 0.9 && rate(went_on) > 1.0 && all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A connection by way of `to`, on which the client writes without end.
async fn meet(
    client: &UdpEndpoint,
    server: &UdpEndpoint,
    to: SocketAddr,
) -> (UdpConnection, UdpConnection) {
    let (ours, theirs) = tokio::join!(client.connect(to), server.accept());
    let (ours, theirs) = (ours.expect("a connection"), theirs.expect("a connection"));
    let mut writer = ours.open().await.expect("a stream");
    tokio::spawn(async move {
        let block = vec![0; 1 << 18];
        while writer.write_all(&block).await.is_ok() {}
    });
    (ours, theirs)
}

/// Carries one client's datagrams to the server and back, and keeps the first of what it sends.
fn relay(server: SocketAddr, overheard: Arc<Mutex<Vec<Vec<u8>>>>) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let address = socket.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut client, mut space) = (None, vec![0; 1 << 16]);
        while let Ok((length, from)) = socket.recv_from(&mut space) {
            let datagram = &space[..length];
            let to = if from == server { client } else { Some(server) };
            if from != server {
                client = Some(from);
                let mut overheard = overheard.lock().expect("nobody panicked");
                // Not those of the handshake.
                if overheard.len() < COPIES && !Opening::is_opening(datagram) {
                    overheard.push(datagram.to_vec());
                }
            }
            to.map(|to| socket.send_to(datagram, to));
        }
    });
    address
}

/// Datagrams that the server refused, or had no room for, and those that this connection refused.
fn counted(server: &UdpEndpoint, copied: &UdpConnection) -> u64 {
    let Refusals { malformed, unknown, wrong_key, not_allowed, busy, retries, ignored, .. } =
        server.refusals();
    let strangers = malformed + unknown + wrong_key + not_allowed + busy + retries + ignored;
    let forged = server.refusals().forged_resets;
    strangers + forged + server.socket_drops() + copied.stats().refused.total()
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
fn hellos(stranger: &Credentials, to: SocketAddr) -> Vec<Vec<u8>> {
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
        let (kind, number) = (Kind::Data, index);
        let (fin, follows, epoch) = (false, false, 0);
        Header { kind, fin, follows, epoch, connection, number }.encode(&mut bytes);
        bytes.resize(1200, index as u8);
    }
    bytes
}

/// Gives how many datagrams went out.
fn flood(hellos: &[Vec<u8>], overheard: &Mutex<Vec<Vec<u8>>>, target: SocketAddr) -> u64 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let copies = overheard.lock().expect("nobody panicked").clone();
    let pause = PHASE / (HELLOS / BURST);
    let mut next = net::clock::now();
    let mut sent = 0;
    for (index, (hello, copy)) in hellos.iter().cycle().zip(copies.iter().cycle()).enumerate() {
        if index == HELLOS as usize {
            break;
        }
        if (index as u32).is_multiple_of(BURST) {
            next += pause;
            std::thread::sleep(next.since(net::clock::now()));
        }
        for datagram in [hello, &forged(index as u32), copy] {
            // What the socket has no room for is lost, as on any network.
            sent += u64::from(socket.send_to(datagram, target).is_ok());
        }
    }
    sent
}

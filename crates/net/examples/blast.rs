//! How fast bytes cross loopback, encrypted: `cargo xtask bench loopback` builds and measures it.
//!
//! `blast receive ADDR DRIVERS` reads everything from everybody and writes a line `SECONDS BYTES`
//! every half second, counted from the first connection. `blast send ADDR SECONDS CONNECTIONS`
//! fills so many connections, each with one stream and a socket of its own.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use net::udp::{UdpConnection, UdpEndpoint};
use net::{SharedKey, clock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::{Config, Limit};

const TICK: Duration = Duration::from_millis(500);
/// Bytes read, and written, in one go.
const BLOCK: usize = 1 << 20;
const USAGE: &str = "blast receive ADDR DRIVERS | blast send ADDR SECONDS CONNECTIONS";

fn key() -> SharedKey {
    SharedKey::from_bytes([9; 32])
}

async fn receive(address: SocketAddr, drivers: NonZeroUsize) {
    let server = UdpEndpoint::listen_on_cores(address, key(), Config::default(), drivers);
    let server = server.expect("a port");
    let count = Arc::new(AtomicU64::new(0));
    let first = server.accept().await.expect("a connection");
    tokio::spawn(read_all(first, Arc::clone(&count)));
    tokio::spawn(tell(Arc::clone(&count)));
    while let Ok(connection) = server.accept().await {
        tokio::spawn(read_all(connection, Arc::clone(&count)));
    }
}

async fn read_all(connection: UdpConnection, count: Arc<AtomicU64>) {
    let mut buffer = vec![0; BLOCK];
    while let Ok(mut stream) = connection.accept().await {
        while let Ok(len) = stream.read(&mut buffer).await
            && len > 0
        {
            count.fetch_add(len as u64, Ordering::Relaxed);
        }
    }
}

async fn tell(count: Arc<AtomicU64>) {
    let (start, mut ticks) = (clock::now(), tokio::time::interval(TICK));
    loop {
        ticks.tick().await;
        let elapsed = clock::now().since(start).as_secs_f64();
        println!("{elapsed:.3} {}", count.load(Ordering::Relaxed));
    }
}

/// One connection of the sender.
async fn send(to: SocketAddr, time: Duration) {
    let endpoint = UdpEndpoint::client(to, key(), Config::default()).expect("a socket");
    let connection = endpoint.connect(to).await.expect("a connection");
    let mut stream = connection.open().await.expect("a stream");
    let (block, start) = (vec![7; BLOCK], clock::now());
    while clock::now().since(start) < time {
        stream.write_all(&block).await.expect("bytes are taken");
    }
    let stats = connection.stats();
    let limits = Limit::ALL.map(|limit| (limit, stats.limits.of(limit)));
    eprintln!(
        "rtt {:?}, packets of {}, lost {} of {}, limits {limits:?}",
        stats.rtt, stats.datagram, stats.lost.0, stats.sent.0
    );
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [role, address, number, rest @ ..] = &words[..] else { panic!("{USAGE}") };
    let address = address.parse().expect(USAGE);
    match (role.as_str(), rest) {
        ("receive", []) => receive(address, number.parse().expect(USAGE)).await,
        ("send", [connections]) => {
            let time = Duration::from_secs(number.parse().expect(USAGE));
            let connections = connections.parse().expect(USAGE);
            let tasks: Vec<_> =
                (0..connections).map(|_: u32| tokio::spawn(send(address, time))).collect();
            for task in tasks {
                task.await.expect("a sender");
            }
        }
        _ => panic!("{USAGE}"),
    }
}

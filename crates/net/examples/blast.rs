//! How fast bytes cross loopback, encrypted, and what they cost the sender:
//! `cargo run --release -p longhaul-net --example blast -- [SECONDS] [CONNECTIONS]`.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use net::udp::UdpEndpoint;
use net::{SharedKey, clock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::{Config, Limit};

/// The sending process finds the receiver's port here.
const PORT: &str = "BLAST_PORT";

/// The receiver: reads everything from everybody.
async fn serve(server: UdpEndpoint) {
    while let Ok(connection) = server.accept().await {
        tokio::spawn(async move {
            while let Ok(mut stream) = connection.accept().await {
                tokio::spawn(async move {
                    let mut buffer = vec![0; 1 << 20];
                    while stream.read(&mut buffer).await.is_ok_and(|len| len > 0) {}
                });
            }
        });
    }
}

/// One connection of the sender; gives the bytes that it wrote.
async fn send(to: SocketAddr, key: SharedKey, time: Duration) -> u64 {
    let endpoint = UdpEndpoint::client(to, key, Config::default()).expect("a socket");
    let connection = endpoint.connect(to).await.expect("a connection");
    let mut stream = connection.open().await.expect("a stream");
    let block = vec![7; 1 << 20];
    let (start, mut sent) = (clock::now(), 0);
    while clock::now().since(start) < time {
        stream.write_all(&block).await.expect("bytes are taken");
        sent += block.len() as u64;
    }
    let stats = connection.stats();
    let limits = Limit::ALL.map(|limit| (limit, stats.limits.of(limit)));
    eprintln!(
        "rtt {:?}, packets of {}, lost {} of {}, limits {limits:?}",
        stats.rtt, stats.datagram, stats.lost.0, stats.sent.0
    );
    sent
}

async fn send_all(to: SocketAddr, key: SharedKey, time: Duration, count: u64) {
    let (start, busy) = (clock::now(), cpu());
    let tasks: Vec<_> = (0..count).map(|_| tokio::spawn(send(to, key.clone(), time))).collect();
    let mut sent = 0;
    for task in tasks {
        sent += task.await.expect("a sender");
    }
    let (wall, busy) = (clock::now().since(start), cpu() - busy);
    let (gbit, wall) = (sent as f64 * 8e-9, wall.as_secs_f64());
    let per_core = gbit / busy.as_secs_f64();
    println!("{:.2} Gbit/s, {per_core:.2} Gbit/s for each sender core", gbit / wall);
}

/// Processor time of this process so far.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (time, count) = (Duration::from_secs(number(0, 5)), number(1, 1));
    let key = SharedKey::from_bytes([9; 32]);
    if let Some(port) = std::env::var(PORT).ok().and_then(|port| port.parse::<u16>().ok()) {
        return send_all((Ipv4Addr::LOCALHOST, port).into(), key, time, count).await;
    }
    // The receiver is this process, the sender its child: so each one's processor time is known.
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let cores = NonZeroUsize::new(count as usize).unwrap_or(NonZeroUsize::MIN);
    let server = UdpEndpoint::listen_on_cores(any, key, Config::default(), cores).expect("a port");
    let port = server.address().port();
    tokio::spawn(serve(server));
    let program = std::env::current_exe().expect("this program");
    let mut child = tokio::process::Command::new(program);
    let status = child.args(&arguments).env(PORT, port.to_string()).status().await;
    println!("receiver: {:.2} s of processor time", cpu().as_secs_f64());
    assert!(status.expect("a child").success());
}

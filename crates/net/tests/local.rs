//! What this host itself does to datagrams on their way out: a namespace of its own, whose interface and
//! routes a test may change.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use net::udp::UdpEndpoint;
use net::{NetError, SharedKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime;
use transport::Config;
use units::Rate;

fn key() -> SharedKey {
    SharedKey::from_bytes([1; 32])
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}: {status}");
}

/// Runs a test on a thread with a network of its own, which has a loopback interface and no routes;
/// where that cannot be made, says so.
fn alone(name: &str, test: impl AsyncFnOnce() + Send) {
    let run = || {
        // SAFETY: a plain system call, which changes the network of this thread alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        ip("link set lo up mtu 9000");
        runtime::Builder::new_current_thread().enable_all().build()?.block_on(test());
        Ok(())
    };
    let done = std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    if let Err(error) = done {
        let said = format!("{name}: no network of its own: {error}\n");
        if let Some(log) = std::env::var_os("LONGHAUL_SKIP_LOG") {
            let log = OpenOptions::new().append(true).open(log);
            log.and_then(|mut log| log.write_all(said.as_bytes())).unwrap();
        }
        eprint!("SKIPPED: {said}");
    }
}

#[test]
fn a_host_that_lets_nothing_out_says_so_and_why() {
    alone("a_host_that_lets_nothing_out_says_so_and_why", async || {
        ip("route add prohibit 192.0.2.2");
        ip("route add unreachable 192.0.2.3");
        for (last, words) in
            [(1, "Network is unreachable"), (2, "firewall or routes"), (3, "No route to host")]
        {
            let there = SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), 7272));
            let client = UdpEndpoint::client(there, key(), Config::default()).unwrap();
            let error = client.connect(there).await.err().unwrap();
            assert!(matches!(error, NetError::Unreachable { .. }), "{error}");
            assert!(error.is_absence() && error.is_silence());
            assert!(error.to_string().contains(words), "{error}");
        }
    });
}

#[test]
fn an_interface_that_takes_shorter_datagrams_from_now_on_loses_none() {
    alone("an_interface_that_takes_shorter_datagrams_from_now_on_loses_none", async || {
        let home = (Ipv4Addr::LOCALHOST, 0).into();
        let server = UdpEndpoint::listen(home, key(), Config::default()).unwrap();
        let config =
            Config { rate_limit: Some(Rate::from_bits_per_sec(200_000_000)), ..Config::default() };
        let client = UdpEndpoint::client(server.address(), key(), config).unwrap();
        let (ours, theirs) = tokio::join!(client.connect(server.address()), server.accept());
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
        let mut write = ours.open().await.unwrap();
        let part = vec![7; 10_000_000];
        write.write_all(&part).await.unwrap();
        let mut read = theirs.accept().await.unwrap();
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            read.read_to_end(&mut all).await.map(|_| all)
        });
        while ours.stats().datagram < 8952 {
            write.write_all(&part[..100_000]).await.unwrap();
        }
        let before = ours.stats().lost.0;
        ip("link set lo mtu 1500");
        write.write_all(&part).await.unwrap();
        write.shutdown().await.unwrap();
        let all = reader.await.unwrap().unwrap();
        assert!(all.len() >= 2 * part.len() && all.iter().all(|&byte| byte == 7));
        assert_eq!(ours.stats().datagram, 1472);
        // Of twenty it would have learnt by itself.
        let lost = ours.stats().lost.0 - before;
        assert!(lost < 20, "{lost} lost");
    });
}

#[test]
fn a_queue_that_is_shorter_than_a_batch_stops_nobody() {
    alone("a_queue_that_is_shorter_than_a_batch_stops_nobody", async || {
        let home = (Ipv4Addr::LOCALHOST, 0).into();
        let server = UdpEndpoint::listen(home, key(), Config::default()).unwrap();
        let client = UdpEndpoint::client(server.address(), key(), Config::default()).unwrap();
        let (ours, theirs) = tokio::join!(client.connect(server.address()), server.accept());
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
        let short = ["qdisc", "add", "dev", "lo", "root", "bfifo", "limit", "20000"];
        assert!(Command::new("tc").args(short).status().unwrap().success());
        let mut write = ours.open().await.unwrap();
        let sender = tokio::spawn(async move {
            write.write_all(&vec![7; 10_000_000]).await.unwrap();
            write.shutdown().await.unwrap();
        });
        let (mut all, mut read) = (Vec::new(), theirs.accept().await.unwrap());
        read.read_to_end(&mut all).await.unwrap();
        assert!(all.len() == 10_000_000 && all.iter().all(|&byte| byte == 7));
        sender.await.unwrap();
    });
}

//! Loads a path with UDP in super-packets, as senders with segmentation offload do:
//! `blast send ADDRESS MBIT_PER_S SECONDS` sends, `blast receive ADDRESS` reads until it is ended.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::time::{ClockId, clock_gettime};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Payload of a datagram that fills an Ethernet packet with a TCP payload's bytes.
const DATAGRAM: usize = 1448;

/// Datagrams in a super-packet: the most that 64 KiB hold.
const BATCH: usize = 44;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["send", address, rate, seconds] => {
            send(address.parse()?, rate.parse()?, Duration::from_secs_f64(seconds.parse()?))
        }
        ["receive", address] => receive(address.parse()?),
        _ => Err("usage: blast send ADDRESS MBIT_PER_S SECONDS | blast receive ADDRESS".into()),
    }
}

/// Sends super-packets evenly at a rate of payload.
fn send(destination: SocketAddr, mbit_per_s: f64, time: Duration) -> Result<()> {
    let socket = UdpSocket::bind("[::]:0").or_else(|_| UdpSocket::bind("0.0.0.0:0"))?;
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    let contents = vec![0x5a; DATAGRAM * BATCH];
    let destination = match (destination, socket.local_addr()?) {
        (SocketAddr::V4(v4), SocketAddr::V6(_)) => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        _ => destination,
    };
    let batch = Transmit {
        destination,
        ecn: None,
        contents: &contents,
        segment_size: Some(DATAGRAM),
        src_ip: None,
    };
    let gap = Duration::from_secs_f64(contents.len() as f64 * 8.0 / (mbit_per_s * 1e6));
    let (start, mut batches) = (now(), 0u32);
    while now() - start < time {
        thread::sleep((start + gap * batches).saturating_sub(now()));
        match state.try_send(UdpSockRef::from(&socket), &batch) {
            Ok(()) => batches += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    println!("{}", u64::from(batches) * contents.len() as u64);
    Ok(())
}

/// A load generator lives in real time.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Reads and forgets.
fn receive(address: SocketAddr) -> Result<()> {
    let socket = UdpSocket::bind(address)?;
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    socket.set_nonblocking(false)?;
    let mut space = vec![0; 1 << 16];
    loop {
        let mut meta = [RecvMeta::default()];
        state.recv((&socket).into(), &mut [IoSliceMut::new(&mut space)], &mut meta)?;
    }
}

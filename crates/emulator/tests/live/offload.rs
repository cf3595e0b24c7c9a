//! What a host hands over in super-packets fares as what it sends one by one.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use emulator::{Host, Lab, LabOptions};
use libtest_mimic::Failed;
use path::PathConfig;
use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};

use super::set;
use crate::{Outcome, path, udp};

/// How many datagrams are sent, of how many bytes, and how many to a super-packet.
const COUNT: usize = 440;
const SIZE: usize = 1000;
const TOGETHER: usize = 44;

/// Two labs of one seed lose the same ones of numbered datagrams, sent by segmentation offload or
/// one by one: at random, and by a small queue that fills while the link stands still.
pub fn same_fates() -> Outcome {
    for queue in ["1000packets", "150packets"] {
        let path = path(2).with_seed(7).with_loss(0.1).with_queue(queue.parse()?);
        let (plain, offloaded) = (arriving(&path, 1)?, arriving(&path, TOGETHER)?);
        let most = if queue == "150packets" { 151 } else { COUNT };
        assert!((most / 2..most).contains(&plain.len()), "{queue}: {}", plain.len());
        assert_eq!(plain, offloaded, "{queue}");
    }
    Ok(())
}

/// The numbers that arrive of datagrams sent so many at a time.
fn arriving(path: &PathConfig, together: usize) -> Result<Vec<u16>, Failed> {
    let lab = Lab::start(path, &LabOptions::default())?;
    let (near, far) = (udp(&lab, Host::Near, false)?, udp(&lab, Host::Far, false)?);
    // How fast the sender is does not matter to a queue that nothing leaves.
    set(&lab, &["forward.hold=1s"])?;
    send(&near, &far, together)?;
    let forward = || lab.stats().forward.counters;
    while forward().offered.packets < COUNT as u64 {
        thread::sleep(Duration::from_millis(1));
    }
    let mut numbers = Vec::new();
    let mut buffer = [0; SIZE];
    while far.recv(&mut buffer).is_ok() {
        numbers.push(u16::from_be_bytes([buffer[0], buffer[1]]));
        // The first waits for the link, the others for nothing.
        far.set_read_timeout(Some(Duration::from_millis(300)))?;
    }
    assert_eq!(numbers.len() as u64, forward().delivered.packets, "none was lost elsewhere");
    Ok(numbers)
}

fn send(near: &UdpSocket, far: &UdpSocket, together: usize) -> Outcome {
    let numbered = |number: usize| {
        let mut datagram = vec![0; SIZE];
        datagram[..2].copy_from_slice(&(number as u16).to_be_bytes());
        datagram
    };
    let datagrams: Vec<u8> = (0..COUNT).flat_map(numbered).collect();
    let (socket, destination) = (UdpSockRef::from(near), far.local_addr()?);
    let state = UdpSocketState::new(socket)?;
    assert!(together <= state.max_gso_segments(), "the kernel takes super-packets");
    for contents in datagrams.chunks(together * SIZE) {
        let segment_size = (together > 1).then_some(SIZE);
        let batch = Transmit { destination, ecn: None, contents, segment_size, src_ip: None };
        near.set_nonblocking(false)?;
        state.try_send(UdpSockRef::from(near), &batch)?;
    }
    Ok(())
}

//! Pushes packets through a link with everything switched on, in virtual time, and prints what
//! the process holds in memory. Fails when that grows after the first tenth of the packets.
//!
//! `cargo xtask bench endurance --packets 1000000000`

use std::time::Duration;

use path::{Jitter, Link, LinkConfig, LossConfig, Packet};
use units::{Bytes, Instant, Rate};

/// Lines of the report. What the first shows, the others must not exceed.
const LINES: u64 = 10;

/// KiB that the process may take beside, for pages of its program that it first touches later. A
/// byte for each of the packets of a usual run would be a thousand times as much.
const RESIDENT_SLACK: u64 = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let packets = std::env::args().nth(1).map_or(Ok(1_000_000_000), |text| text.parse::<u64>())?;
    let mut link: Link<u64> = config()?.link(Duration::from_millis(100), 1)?;
    let mut now = Instant::ZERO;
    let mut warm = None;
    println!("     packets    delivered  resident KiB  room in packets");
    for sent in 1..=packets {
        // 5% more than the link carries.
        now += Duration::from_nanos(11_430);
        let packet = Packet { flow: sent % 17, ecn_capable: sent % 2 == 0, size: Bytes(1500) };
        let _ = link.send_packet(now, packet, sent);
        while link.poll(now).is_some() {}
        if sent % (packets / LINES).max(1) == 0 {
            let delivered = link.counters().delivered.packets;
            let (resident, room) = (resident()?, link.capacity());
            println!("{sent:12} {delivered:12} {resident:13} {room:16}");
            let (warm_resident, warm_room) = *warm.get_or_insert((resident, room));
            if resident > warm_resident + RESIDENT_SLACK || room > warm_room {
                return Err("memory grew after the first tenth of the packets".into());
            }
        }
    }
    Ok(())
}

fn config() -> Result<LinkConfig, Box<dyn std::error::Error>> {
    let mut config =
        LinkConfig::new(Rate::from_bits_per_sec(1_000_000_000), Duration::from_millis(50));
    config.queue = "fq-codel".parse()?;
    config.loss = LossConfig::Bernoulli(0.001);
    config.impairments.bit_error = 1e-9;
    config.impairments.duplicate = 0.001;
    config.impairments.reorder = 0.001;
    config.impairments.reorder_by = Duration::from_millis(3);
    config.impairments.jitter = Jitter::Uniform(Duration::from_millis(1));
    config.impairments.keep_order = false;
    Ok(config)
}

/// KiB of the process in memory (Linux).
fn resident() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS line")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}

//! Pushes packets through a link with everything switched on, in virtual time, and prints what
//! the process holds in memory, which must not grow.
//!
//! `cargo run --release -p longhaul-path --example endurance -- 1000000000`

use std::time::Duration;

use path::{Jitter, Link, LinkConfig, LossConfig, Packet};
use units::{Bytes, Instant, Rate};

/// Between two lines of the report.
const REPORT: u64 = 100_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let packets = std::env::args().nth(1).map_or(Ok(10 * REPORT), |text| text.parse::<u64>())?;
    let mut link: Link<u64> = config()?.link(Duration::from_millis(100), 1)?;
    let mut now = Instant::ZERO;
    println!("     packets    delivered  resident KiB  room in packets");
    for sent in 1..=packets {
        // 5% more than the link carries.
        now += Duration::from_nanos(11_430);
        let packet = Packet { flow: sent % 17, ecn_capable: sent % 2 == 0, size: Bytes(1500) };
        let _ = link.send_packet(now, packet, sent);
        while link.poll(now).is_some() {}
        if sent % REPORT == 0 || sent == packets {
            let delivered = link.counters().delivered.packets;
            println!("{sent:12} {delivered:12} {:13} {:16}", resident()?, link.capacity());
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

//! Connections that are killed while they carry a file, and one that becomes a hundred times slower.

use anyhow::{Context, Result, ensure};

use super::super::lab::Bed;
use super::super::verdict;
use super::ride::Ride;

/// What is carried while connections die.
const SIZE: u64 = 1 << 30;
const FAST: &str = "--rate 1gbit --rtt 40ms --loss 0 --queue 50ms";
/// Every second the kernel is told to forget one of the connections.
const KILLER: &str = "while sleep 1; do \
    port=$(ss -Htn state established dport = :7272 | awk '{sub(\".*:\", \"\", $3); print $3}' | shuf -n 1); \
    [ -z \"$port\" ] || ss -KHtn sport = :$port | grep -q . && echo $port >>LOG; done";

/// What each connection carries is bound by its window, so that what one lacks the others cannot add.
const SLOW: &str = "--rate 100mbit --rtt 100ms --loss 0 --queue 50ms";
const SMALL_WINDOW: &str = "sysctl -qw net.ipv4.tcp_moderate_rcvbuf=0; \
    ip route change $LONGHAUL_FAR dev path proto static scope link congctl cubic window 24576";
const STREAMS: u64 = 8;
/// When the sender's kernel begins to let one of them send a hundredth of 24 KiB in 100 ms.
const AFTER: f64 = 3.0;
const THROTTLE: &str = "sleep 3; \
    port=$(ss -Htn state established sport = :7272 | awk '{sub(\".*:\", \"\", $4); print $4}' | tail -n 1); \
    tc qdisc replace dev path root handle 1: htb default 1; \
    tc class add dev path parent 1: classid 1:1 htb rate 10gbit; \
    tc class add dev path parent 1: classid 1:2 htb rate 10gbit; \
    tc qdisc add dev path parent 1:2 tbf rate 20kbit burst 3000 limit 200000; \
    tc filter add dev path parent 1: protocol ip u32 match ip dport $port 0xffff flowid 1:2";
/// The last records may have to be given to another connection.
const SPARE: f64 = 1.05;

/// False when a copy is not whole, or slower than it has to be.
pub fn run() -> Result<bool> {
    let bed = Bed::new()?;
    Ok(killed(&bed)? & throttled(&bed)?)
}

/// Seconds of a ride that comes to its end.
fn whole(ride: &Ride, bed: &Bed) -> Result<f64> {
    let told = ride.run(bed, 1)?;
    let done = told.done.context("it did not come to its end")?;
    ensure!(done["verified"] == true && done["failed"] == 0, "not whole: {done}");
    done["seconds"].as_f64().context("no time")
}

fn killed(bed: &Bed) -> Result<bool> {
    bed.fill("file", SIZE)?;
    println!("1 GiB over 1 Gbit/s and 40 ms while a connection is killed every second");
    println!("| connections | killed | s |");
    println!("|---|---|---|");
    let log = bed.folder().join("killed");
    let beside = KILLER.replace("LOG", &log.display().to_string());
    let mut reached = true;
    for streams in ["4", "16", "auto"] {
        let _ = std::fs::remove_file(&log);
        let copy = format!("--streams {streams}");
        let ride = Ride { path: FAST, copy, beside: &beside, ..Ride::default() };
        let seconds = whole(&ride, bed);
        let killed = std::fs::read_to_string(&log).unwrap_or_default().lines().count();
        reached &= seconds.is_ok() && killed > 0;
        match seconds {
            Ok(seconds) => {
                println!("| {streams} | {killed} | {seconds:.1} ({}) |", verdict(killed > 0));
            }
            Err(error) => println!("| {streams} | {killed} | {error:#} ({}) |", verdict(false)),
        }
    }
    println!();
    Ok(reached)
}

fn throttled(bed: &Bed) -> Result<bool> {
    bed.fill("file", 32 << 20)?;
    let run = |far_beside| {
        let copy = format!("--streams {STREAMS}");
        let serve = "--tcp-cc cubic";
        let ride =
            Ride { path: SLOW, prepare: SMALL_WINDOW, serve, copy, far_beside, ..Ride::default() };
        whole(&ride, bed)
    };
    let (alone, slowed) = (run(":")?, run(THROTTLE)?);
    let share = STREAMS as f64 / (STREAMS - 1) as f64;
    let most = AFTER + (alone - AFTER) * share * SPARE;
    println!("32 MiB over {STREAMS} connections of 24 KiB in 100 ms: {alone:.1} s;");
    println!(
        "with one of them at 1% after {AFTER:.0} s: {slowed:.1} s, at most {most:.1} ({})",
        verdict(slowed <= most),
    );
    Ok(slowed <= most)
}

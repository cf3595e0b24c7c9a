//! Connections that are killed while they carry a file, and one that becomes a hundred times slower.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::lab::Bed;
use super::ride::{Ride, judged};

/// What is carried while connections die.
const SIZE: u64 = 1 << 30;
const FAST: &str = "--rate 1gbit --rtt 40ms --loss 0 --queue 50ms";
/// Every second the kernel is told to forget one of the connections, or every three seconds all of them.
const KILL_ONE: &str = ": >LOG; while sleep 1; do \
    port=$(ss -Htn state established dport = :7272 | awk '{sub(\".*:\", \"\", $3); print $3}' | shuf -n 1); \
    [ -z \"$port\" ] || ss -KHtn sport = :$port | grep -q . && echo $port >>LOG; done";
const KILL_ALL: &str =
    ": >LOG; while sleep 3; do ss -KHtn state established dport = :7272 >>LOG; done";

/// What each connection carries is bound by its window, so that what one lacks the others cannot add.
const SLOW: &str = "--rate 100mbit --rtt 100ms --loss 0 --queue 50ms";
const SMALL_WINDOW: &str = "sysctl -qw net.ipv4.tcp_moderate_rcvbuf=0; \
    ip route change $LONGHAUL_FAR dev path proto static scope link congctl cubic window 24576";
const STREAMS: u64 = 8;
/// When the sender's kernel begins to let one of them send a hundredth of 24 KiB in 100 ms.
const AFTER: f64 = 3.0;
const THROTTLE: &str = "sleep 3; \
    port=$(ss -Htn state established sport = :7272 | awk '{sub(\".*:\", \"\", $4); print $4}' | tail -n 1); \
    tc qdisc replace dev path root handle 1: htb default 1 && \
    tc class add dev path parent 1: classid 1:1 htb rate 10gbit && \
    tc class add dev path parent 1: classid 1:2 htb rate 10gbit && \
    tc qdisc add dev path parent 1:2 tbf rate 20kbit burst 3000 limit 200000 && \
    tc filter add dev path parent 1: protocol ip u32 match ip dport $port 0xffff flowid 1:2; \
    while sleep 0.5; do tc -s -j qdisc show dev path >LOG.new && mv LOG.new LOG; done";
/// The last records may have to be given to another connection.
const SPARE: f64 = 1.05;

/// False when a copy is not whole, or slower than it has to be.
pub fn run() -> Result<bool> {
    let bed = Bed::new()?;
    Ok(killed(&bed)? & throttled(&bed)?)
}

/// Seconds of a ride that comes to its end, and whether the emulator kept up.
fn whole(ride: &Ride, bed: &Bed) -> Result<(f64, bool)> {
    let told = ride.run(bed, 1)?;
    let done = told.done.context("it did not come to its end")?;
    ensure!(done["verified"] == true && done["failed"] == 0, "not whole: {done}");
    Ok((done["seconds"].as_f64().context("no time")?, told.faithful))
}

fn killed(bed: &Bed) -> Result<bool> {
    bed.fill("file", SIZE)?;
    println!("1 GiB over 1 Gbit/s and 40 ms while connections are killed");
    println!("| connections | killed | how many | s |");
    println!("|---|---|---|---|");
    let log = bed.folder().join("killed");
    let mut reached = true;
    for (how, killer) in [("one a second", KILL_ONE), ("all every 3 s", KILL_ALL)] {
        let beside = killer.replace("LOG", &log.display().to_string());
        for streams in ["4", "16", "auto"] {
            let copy = format!("--streams {streams}");
            let ride = Ride { path: FAST, copy, beside: &beside, ..Ride::default() };
            let seconds = whole(&ride, bed);
            let killed = std::fs::read_to_string(&log).unwrap_or_default().lines().count();
            let (good, shown) = match seconds {
                Ok((seconds, faithful)) => {
                    let shown = format!("{seconds:.1} ({})", judged(killed > 0, faithful));
                    (killed > 0 && faithful, shown)
                }
                Err(error) => (false, format!("{error:#} ({})", judged(false, true))),
            };
            reached &= good;
            println!("| {streams} | {how} | {killed} | {shown} |");
        }
    }
    println!();
    Ok(reached)
}

fn throttled(bed: &Bed) -> Result<bool> {
    bed.fill("file", 32 << 20)?;
    let log = bed.folder().join("throttled");
    let run = |far_beside: &str| {
        let copy = format!("--streams {STREAMS}");
        let serve = "--tcp-cc cubic";
        let ride =
            Ride { path: SLOW, prepare: SMALL_WINDOW, serve, copy, far_beside, ..Ride::default() };
        whole(&ride, bed)
    };
    let (alone, first) = run(":")?;
    let (slowed, second) = run(&THROTTLE.replace("LOG", &log.display().to_string()))?;
    let share = STREAMS as f64 / (STREAMS - 1) as f64;
    let most = AFTER + (alone - AFTER) * share * SPARE;
    // A throttle that was not there, or held nothing up, proves nothing.
    let held = held_up(&std::fs::read_to_string(&log).unwrap_or_default());
    let good = held > 0 && slowed > alone && slowed <= most;
    println!("32 MiB over {STREAMS} connections of 24 KiB in 100 ms: {alone:.1} s;");
    println!(
        "with one of them at 1% after {AFTER:.0} s: {slowed:.1} s, more than that and at most {most:.1}; \
         held up {held} times ({})",
        judged(good, first && second),
    );
    Ok(good && first && second)
}

/// How often the throttle had to hold a packet up, by what `tc` told last.
fn held_up(told: &str) -> u64 {
    let queues: Vec<Value> = serde_json::from_str(told).unwrap_or_default();
    let throttle = queues.iter().find(|queue| queue["kind"] == "tbf");
    throttle.and_then(|queue| queue["overlimits"].as_u64()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::held_up;

    #[test]
    fn a_throttle_that_is_not_there_holds_nothing_up() {
        let told = r#"[{"kind":"htb","overlimits":7},{"kind":"tbf","packets":9,"overlimits":5}]"#;
        assert_eq!(
            [told, r#"[{"kind":"htb","overlimits":7}]"#, "[]", ""].map(held_up),
            [5, 0, 0, 0]
        );
    }
}

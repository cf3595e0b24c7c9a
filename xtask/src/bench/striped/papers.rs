//! Paper 3's satellite, with its windows and segments, by striped TCP and by FTP; and a path that needs no stripes.
//!
//! The satellite needs little of a machine, so several runs go side by side, each over a path of its own.
//! What the papers themselves measured, `longhaul reproduce` repeats.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

use super::super::lab::Bed;
use super::ride::{Ride, Told, judged};

/// Runs at a time.
const TOGETHER: usize = 6;

/// Paper 3's satellite (T1, 192,000 byte/s), with a second of queue.
const SATELLITE: &str = "--rate 1.536mbit --rtt 560ms --loss 0 --queue 1s";
const SATELLITE_BYTES: f64 = 192_000.0;
/// Payload of a packet there: segments of 512 bytes without options, and their headers.
const SATELLITE_PAYLOAD: f64 = 512.0 / 552.0;
/// What of that must be reached.
const SATELLITE_GOAL: f64 = 0.9;
/// With more connections allowed, no less than this of the best with fewer.
const NO_FALL: f64 = 0.95;
/// The time to come to that, once connected; by FTP that takes a dozen round trips, in which a client logs in.
const SATELLITE_START: f64 = 10.0;

const CLEAN: &str = "--rate 100mbit --rtt 20ms --loss 0 --queue 50ms";
/// The most connections it may take there.
const CLEAN_MOST: u64 = 4;

/// A receiver whose windows are 24 KiB, as its kernel would not have them, and whose segments carry 512 bytes.
const OLD_HOST: &str = "ip route change $LONGHAUL_FAR dev path proto static scope link congctl cubic \
     window 24576 advmss 512; sysctl -qw net.ipv4.tcp_timestamps=0 net.ipv4.tcp_moderate_rcvbuf=0";

/// Runs all, some at a time; what they told in the same order.
fn all(bed: &Bed, rides: &[Ride]) -> Result<Vec<Told>> {
    let (next, told) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::SeqCst);
            let Some(ride) = rides.get(at) else { return };
            let result = ride.run(bed, 1);
            told.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER.min(rides.len()) {
            scope.spawn(work);
        }
    });
    let mut told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
    told.sort_by_key(|(at, _)| *at);
    told.into_iter().map(|(_, told)| told).collect()
}

/// The satellite; false when a goal is missed.
pub fn run() -> Result<bool> {
    // With none given, FTP takes its usual four, and the stripe as many as it likes.
    const MOST: [Option<u64>; 5] = [Some(4), Some(8), Some(16), Some(32), None];
    const POLICIES: [&str; 2] = ["rtt-bounded", "auto"];
    let bed = Bed::new()?;
    bed.fill("file", 64 << 20)?;
    let ways: Vec<_> = [false, true].into_iter().flat_map(|ftp| [(ftp, 0), (ftp, 1)]).collect();
    let serves = POLICIES.map(|policy| {
        format!(
            "--tcp-cc cubic --ftp 0.0.0.0:2121 --ftp-anonymous --ftp-streams 32 --ftp-policy {policy}"
        )
    });
    let ride = |(by_ftp, policy): (bool, usize), most: Option<u64>| Ride {
        path: SATELLITE,
        prepare: OLD_HOST,
        serve: &serves[policy],
        copy: match (by_ftp, most) {
            (true, Some(most)) => format!("--ftp-streams {most}"),
            (true, None) => String::new(),
            (false, Some(most)) => format!("--streams {} --streams-max {most}", POLICIES[policy]),
            (false, None) => format!("--streams {}", POLICIES[policy]),
        },
        by_ftp,
        seconds: 60,
        ..Ride::default()
    };
    let rides: Vec<_> = ways.iter().flat_map(|&way| MOST.map(|most| ride(way, most))).collect();
    let told = all(&bed, &rides)?;
    let limit = SATELLITE_BYTES * SATELLITE_PAYLOAD;
    println!("T1 satellite, 560 ms, queue 1 s, windows of 24 KiB, segments of 512 bytes, CUBIC");
    println!("| by | policy | at most | connections | byte/s from 10 s on | of {limit:.0} |");
    println!("|---|---|---|---|---|---|");
    let mut reached = true;
    for (&(by_ftp, policy), told) in ways.iter().zip(told.chunks(MOST.len())) {
        let mut best = 0.0_f64;
        for (most, told) in MOST.iter().zip(told) {
            let start = told.begun + SATELLITE_START;
            let rate = told.rate_from(start);
            let holds = rate >= SATELLITE_GOAL * limit && rate >= NO_FALL * best;
            best = best.max(rate);
            reached &= holds && told.faithful;
            println!(
                "| {} | {} | {} | {} | {rate:.0} | {:.1}% ({}) |",
                if by_ftp { "FTP" } else { "striped TCP" },
                POLICIES[policy],
                most.map_or("not given".to_owned(), |most| most.to_string()),
                // By FTP that is the server's to know.
                if by_ftp { "-".to_owned() } else { told.streams_from(start).to_string() },
                rate / limit * 100.0,
                judged(holds, told.faithful),
            );
        }
    }
    println!();
    Ok(reached)
}

/// How many connections `auto` takes where one is enough; false when there are too many.
pub fn clean() -> Result<bool> {
    let bed = Bed::new()?;
    bed.fill("file", 400 << 20)?;
    println!("100 Mbit/s, 20 ms, no loss");
    println!("| congestion control | Mbit/s | connections |");
    println!("|---|---|---|");
    let mut reached = true;
    for cc in ["cubic", "bbr"] {
        let serve = format!("--tcp-cc {cc}");
        let copy = "--streams auto".to_owned();
        let ride = Ride { path: CLEAN, serve: &serve, copy, seconds: 30, ..Ride::default() };
        let told = ride.run(&bed, 1)?;
        let streams = told.streams_from(0.0);
        let few = streams <= CLEAN_MOST;
        reached &= few && told.faithful;
        let rate = told.rate_from(2.0) * 8e-6;
        println!("| {cc} | {rate:.1} | {streams} ({}) |", judged(few, told.faithful));
    }
    Ok(reached)
}

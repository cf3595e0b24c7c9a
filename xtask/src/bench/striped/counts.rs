//! Our count of connections beside fixed ones, and beside programs that split a file.
//!
//! All get the same file: ours from `longhaul serve`, the others from its FTP but for GridFTP, whose
//! own server alone has its MODE E; over the paths and with the records of `transport`.

use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::super::lab::{Bed, GRIDFTP_SERVER};
use super::super::transport::{Cell, Count, Peer, Records, build, validity};
use super::super::{spread, verdict};

/// What of the best fixed count's rate `auto` must reach.
const GOAL: f64 = 0.95;

const LFTP: &[(&str, &str)] = &[("lftp", "apt-get install lftp")];
const ARIA2: &[(&str, &str)] = &[("aria2c", "apt-get install aria2")];
const RCLONE: &[(&str, &str)] = &[("rclone", "apt-get install rclone")];
const GRIDFTP: &[(&str, &str)] = &[
    ("globus-url-copy", "apt-get install globus-gass-copy-progs"),
    ("globus-gridftp-server", "apt-get install globus-gridftp-server-progs"),
];

/// What to measure.
#[derive(clap::Args)]
pub struct Counts {
    /// Fixed counts of connections.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,256,512")]
    counts: Vec<u16>,
    /// Others, each as it is and with more connections, up to 64 or as many as it takes: lftp (pget),
    /// aria2, rclone, gridftp (with buffers of 32 MiB).
    #[arg(long, value_delimiter = ',', default_value = "lftp,aria2,rclone,gridftp")]
    peers: Vec<String>,
    /// The kernel's congestion control on both hosts.
    #[arg(long, value_delimiter = ',', default_value = "cubic,bbr")]
    cc: Vec<String>,
    /// Round-trip times in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "200")]
    rtt: Vec<u64>,
    /// Losses in percent.
    #[arg(long, value_delimiter = ',', default_value = "0.1")]
    loss: Vec<f64>,
    /// Seconds a run lasts.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Runs of each, each with a seed of its own; of `forward`, too.
    #[arg(long, default_value_t = 1)]
    pub seeds: u64,
    /// Where runs are recorded; what is there already is not run again.
    #[arg(long, default_value = "target/bench-striped.jsonl")]
    record: PathBuf,
}

/// Measures what is not recorded yet, then prints the table; false when `auto` misses its goal, or a run
/// shows nothing.
pub fn run(args: &Counts) -> Result<bool> {
    let contenders = contenders(args)?;
    ensure!(args.seconds >= 4, "a run of less than 4 seconds has no second half to speak of");
    let bed = Bed::new()?;
    let tools = build(&contenders.iter().collect::<Vec<_>>())?;
    bed.fill("file", args.seconds * 125_000_000)?;
    let mut records = Records::open(&args.record)?;
    let seconds = args.seconds;
    let cells: Vec<Cell> = args
        .rtt
        .iter()
        .flat_map(|&rtt_ms| {
            args.loss.iter().map(move |&loss_percent| Cell { rtt_ms, loss_percent, seconds })
        })
        .collect();
    for cell in &cells {
        for (peer, seed) in contenders.iter().flat_map(|p| (1..=args.seeds).map(move |s| (p, s))) {
            if !records.has(peer, cell, seed) {
                let row = cell.run(&bed, &tools, peer, seed)?;
                eprintln!("{row}");
                records.add(peer, row)?;
            }
        }
    }
    println!("1 Gbit/s, queue 50 ms, {seconds} s a run; Mbit/s of payload at the receiver");
    println!("Others have 64 connections at most, or as many as they take");
    println!("| RTT | loss | congestion control | who | second half | whole run | dropped |");
    println!("|---|---|---|---|---|---|---|");
    let mut reached = true;
    for cell in &cells {
        for cc in &args.cc {
            reached &= print(args.seeds, cell, cc, &contenders, &records);
        }
    }
    Ok(reached)
}

/// Rows of the table for one path and congestion control; false when `auto` misses its goal, or a run shows
/// nothing, be it another's: who was not measured is not beaten.
fn print(seeds: u64, cell: &Cell, cc: &str, contenders: &[Peer], records: &Records) -> bool {
    let second_half = |peer: &Peer| {
        let rows = records.of(peer, cell);
        spread(&rows.iter().map(|row| row.second_half_mbps).collect::<Vec<_>>()).0
    };
    let here = || contenders.iter().filter(|peer| peer.kernel_cc == cc);
    let best = |are: fn(&Peer) -> bool| {
        here().filter(|peer| are(peer)).map(second_half).fold(0.0, f64::max)
    };
    let fixed = GOAL * best(|peer| peer.name.starts_with(|first: char| first.is_ascii_digit()));
    let rival = best(|peer| {
        peer.name.starts_with(|first: char| first.is_ascii_alphabetic()) && !is_auto(peer)
    });
    let is_reached = |rate: f64| rate >= fixed && rate > rival;
    let mut reached = true;
    for peer in here() {
        let rows = records.of(peer, cell);
        let whole = spread(&rows.iter().map(|row| row.whole_mbps).collect::<Vec<_>>()).0;
        let drops = spread(&rows.iter().map(|row| row.queue_drops_percent).collect::<Vec<_>>()).0;
        let judged = match is_auto(peer) {
            true => {
                let verdict = verdict(is_reached(second_half(peer)));
                format!(" ({verdict}, {fixed:.0} and the best other, {rival:.0})")
            }
            false => String::new(),
        };
        let faults = validity(&rows, seeds);
        reached &= faults.is_empty() && (!is_auto(peer) || is_reached(second_half(peer)));
        println!(
            "| {} ms | {}% | {cc} | {} | {:.0}{judged} | {whole:.0} | {drops:.2}%{} |",
            cell.rtt_ms,
            cell.loss_percent,
            peer.name,
            second_half(peer),
            if faults.is_empty() {
                String::new()
            } else {
                format!(" MISSED: {}", faults.join(", "))
            },
        );
    }
    reached
}

fn is_auto(peer: &Peer) -> bool {
    peer.name.starts_with("auto")
}

fn contenders(args: &Counts) -> Result<Vec<Peer>> {
    let mut all = Vec::new();
    for cc in &args.cc {
        let ours = |streams: &str| {
            format!(
                "\"$LONGHAUL\" cp --quiet --no-remember --transport tcp --streams {streams} --key \
                 \"$KEY\" lh://$LONGHAUL_NEAR/file in/"
            )
        };
        all.push(contender(&format!("auto {cc}"), cc, &ours("auto"), &[]));
        for count in &args.counts {
            all.push(contender(&format!("{count} {cc}"), cc, &ours(&count.to_string()), &[]));
        }
        for peer in &args.peers {
            // What each takes when it is not told, and more.
            let (settings, fetch, wants): (&[&str], _, _) = match &**peer {
                // Room that is only reserved would count as arrived.
                "lftp" => (
                    &["5", "16", "64"],
                    "lftp -c 'set file:use-fallocate no; \
                     pget -n COUNT ftp://'$LONGHAUL_NEAR':2121/file -o in/file'",
                    LFTP,
                ),
                "aria2" => (
                    &["1", "16"],
                    "aria2c -q -x COUNT -s COUNT -k 1M --file-allocation=none -d in \
                     ftp://$LONGHAUL_NEAR:2121/file",
                    ARIA2,
                ),
                "rclone" => (
                    &["4", "16", "64"],
                    "rclone copy --local-no-preallocate --multi-thread-streams COUNT \
                     --multi-thread-cutoff 1M \
                     :ftp,host=$LONGHAUL_NEAR,port=2121,user=anonymous:file in/ --ftp-pass \
                     \"$(rclone obscure x)\"",
                    RCLONE,
                ),
                "gridftp" => (
                    &["1", "16", "64"],
                    "globus-url-copy -q -p COUNT -tcp-bs 33554432 \
                     \"ftp://$LONGHAUL_NEAR:2811$SOURCE/file\" \"file://$PWD/in/file\"",
                    GRIDFTP,
                ),
                other => anyhow::bail!("no peer is called {other:?}: lftp, aria2, rclone, gridftp"),
            };
            for count in settings {
                let fetch = fetch.replace("COUNT", count);
                all.push(contender(&format!("{peer} {count} {cc}"), cc, &fetch, wants));
            }
        }
    }
    Ok(all)
}

/// Names and scripts live as long as the program.
fn contender(
    name: &str,
    cc: &str,
    fetch: &str,
    wants: &'static [(&'static str, &'static str)],
) -> Peer {
    let beside = if wants == GRIDFTP { GRIDFTP_SERVER } else { "" };
    let near = format!(
        "{beside}exec timeout -s INT $((TIME + 4)) \"$LONGHAUL\" serve --quiet --no-remember --key \"$KEY\" \
         --root \"$SOURCE\" --tcp-cc {cc} --ftp 0.0.0.0:2121 --ftp-anonymous"
    );
    // Whoever it is: what has been written to files counts, also with holes.
    let far = format!(
        "sleep 1; mkdir in; start=$(date +%s%N); {{ {fetch}; }} >&2 & \
         now=0; while [ $now -le ${{TIME}}000000000 ]; do sleep 0.25; \
         now=$(($(date +%s%N) - start)); \
         echo \"$((now / 1000000000)).$(printf %09d $((now % 1000000000))) \
         $(du -s --block-size=1 in | cut -f1)\"; done >count; kill $!"
    );
    Peer {
        name: name.to_owned().leak(),
        kernel_cc: cc.to_owned().leak(),
        near: near.leak(),
        far: far.leak(),
        count: Count::Pairs,
        wants,
    }
}

//! The transport beside its peers: the same emulated paths, and what arrived counted as it came where it can be.
//!
//! `peer` knows how each is started and counted, `crossing` runs one of them over
//! one path, `record` keeps what was measured, so that a benchmark of hours can be resumed, and
//! `judge` says what ours misses.

mod crossing;
mod judge;
mod peer;
mod record;

pub use peer::build_quinn;

use std::path::PathBuf;

use anyhow::{Result, ensure};

pub use self::crossing::Cell;
pub use self::judge::validity;
pub use self::peer::{Count, Peer, build, require};
pub use self::record::Records;
use self::record::Row;
use super::lab::{Bed, payload_limit};
use super::spread;

/// The round-trip time at which much loss is tried.
const MUCH_LOSS_RTT: u64 = 200;

/// What to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Who runs: ours, cubic, bbr, cubic16, bbr16, quinn-cubic, quinn-bbr, brutal, udt, srt.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ours,bbr,bbr16,cubic,cubic16,quinn-bbr,quinn-cubic,brutal,udt,srt"
    )]
    peers: Vec<String>,
    /// Round-trip times in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "10,50,200,560")]
    rtt: Vec<u64>,
    /// Losses in percent.
    #[arg(long, value_delimiter = ',', default_value = "0,0.1,1")]
    loss: Vec<f64>,
    /// Further losses in percent, at 200 ms alone.
    #[arg(long, value_delimiter = ',', default_value = "5,10")]
    much_loss: Vec<f64>,
    /// Seconds a run lasts.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Runs of ours over each path, each with a seed of its own; five over all paths take 28
    /// minutes.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Runs of each peer over each path.
    #[arg(long, default_value_t = 2)]
    peer_seeds: u64,
    /// Where runs are recorded; what is there already is not run again.
    #[arg(long, default_value = "target/bench-transport.jsonl")]
    record: PathBuf,
}

/// Measures what is not recorded yet, then prints the table; false when ours misses a goal.
pub fn run(args: &Args) -> Result<bool> {
    let peers = args.peers.iter().map(|name| Peer::find(name)).collect::<Result<Vec<_>>>()?;
    ensure!(args.seconds >= 4, "a run of less than 4 seconds has no second half to speak of");
    let bed = Bed::new()?;
    let tools = build(&peers)?;
    // Longer than any run: nobody finishes.
    bed.fill("file", args.seconds * 125_000_000)?;
    let mut records = Records::open(&args.record)?;
    for cell in cells(args) {
        for peer in &peers {
            for seed in 1..=args.seeds_of(peer) {
                if records.has(peer, &cell, seed) {
                    continue;
                }
                let mut ran = cell.run(&bed, &tools, peer, seed);
                if let (Err(error), false) = (&ran, peer.is_ours()) {
                    eprintln!("once more, for {error:#}");
                    ran = cell.run(&bed, &tools, peer, seed);
                }
                match ran {
                    Ok(row) => {
                        eprintln!("{row}");
                        records.add(peer, row)?;
                    }
                    Err(error) if peer.is_ours() => return Err(error),
                    // The table tells that its runs are too few.
                    Err(error) => eprintln!("left out: {error:#}"),
                }
            }
        }
    }
    println!("1 Gbit/s, queue 50 ms, {} s a run; Mbit/s of payload at the receiver", args.seconds);
    println!(
        "| RTT | loss | peer | second half | whole run | of the limit | dropped | MB, at most | runs |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut reached = true;
    for cell in cells(args) {
        let others = peers.iter().filter(|peer| !peer.is_ours());
        let others: Vec<_> = others.map(|peer| (peer.name, records.of(peer, &cell))).collect();
        for peer in &peers {
            let (rows, runs) = (records.of(peer, &cell), args.seeds_of(peer));
            let misses = match peer.is_ours() {
                true => judge::misses(&cell, &rows, runs, &others),
                false => judge::validity(&rows, runs),
            };
            reached &= print(&cell, peer, &rows, &misses);
        }
    }
    Ok(reached)
}

impl Args {
    fn seeds_of(&self, peer: &Peer) -> u64 {
        if peer.is_ours() { self.seeds } else { self.peer_seeds }
    }
}

/// Every round-trip time with every loss.
fn cells(args: &Args) -> Vec<Cell> {
    let cell = |rtt_ms, loss_percent| Cell { rtt_ms, loss_percent, seconds: args.seconds };
    let mut cells = Vec::new();
    for &rtt in &args.rtt {
        cells.extend(args.loss.iter().map(|&loss| cell(rtt, loss)));
        let much = args.much_loss.iter().filter(|_| rtt == MUCH_LOSS_RTT);
        cells.extend(much.map(|&loss| cell(rtt, loss)));
    }
    cells
}

/// A row of the table; false when its runs miss a goal.
fn print(cell: &Cell, peer: &Peer, rows: &[&Row], misses: &[String]) -> bool {
    let figures = |of: fn(&Row) -> f64| spread(&rows.iter().map(|row| of(row)).collect::<Vec<_>>());
    let limit = payload_limit(cell.loss_percent) / 1e6;
    let (second, second_least, second_most) = figures(|row| row.second_half_mbps);
    let (whole, ..) = figures(|row| row.whole_mbps);
    let (dropped, ..) = figures(|row| row.queue_drops_percent);
    let memory = rows.iter().filter_map(|row| row.memory_mb).map(|(near, far)| near.max(far));
    let memory = memory.fold(0.0, f64::max);
    let missed =
        if misses.is_empty() { String::new() } else { format!(" MISSED: {}", misses.join(", ")) };
    println!(
        "| {} ms | {}% | {} | {second:.0} ({second_least:.0} .. {second_most:.0}) | {whole:.0} | \
         {:.1}% / {:.1}% | {dropped:.2}% | {memory:.0} | {}{missed} |",
        cell.rtt_ms,
        cell.loss_percent,
        peer.name,
        second / limit * 100.0,
        whole / limit * 100.0,
        rows.len(),
    );
    misses.is_empty()
}

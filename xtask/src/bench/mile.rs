//! One large file over 1 Gbit/s, 200 ms and a 50 ms queue.

use anyhow::Result;

use super::lab::{Bed, payload_limit};
use super::spread;

/// The share of the payload limit that the median run must reach, over the whole transfer.
const GOAL: f64 = 0.72;

/// How much to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Runs at each loss, each with a seed of its own.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Size of the file in MiB.
    #[arg(long, default_value_t = 1024)]
    size: u64,
    /// Losses in percent.
    #[arg(long, value_delimiter = ',', default_value = "0,0.1,1")]
    loss: Vec<f64>,
}

/// Prints a row for each loss; false when a median misses the goal.
pub fn run(args: &Args) -> Result<bool> {
    let bed = Bed::new()?;
    bed.fill("file", args.size << 20)?;
    let bits = (args.size << 20) as f64 * 8.0;
    println!("{} MiB by UDP over 1 Gbit/s, 200 ms, queue 50 ms; {} seeds", args.size, args.seeds);
    println!("| loss | Mbit/s, median | least .. most | share of the payload limit |");
    println!("|---|---|---|---|");
    let mut reached = true;
    for &loss in &args.loss {
        let (mut rates, mut unfaithful) = (Vec::new(), 0);
        for seed in 1..=args.seeds {
            let copied = bed.copy("file", loss, seed)?;
            rates.push(bits / copied.time.as_secs_f64());
            unfaithful += u64::from(!copied.faithful);
        }
        let (median, least, most) = spread(&rates);
        let share = median / payload_limit(loss);
        reached &= share >= GOAL;
        println!(
            "| {loss}% | {:.0} | {:.0} .. {:.0} | {:.1}%{} |",
            median / 1e6,
            least / 1e6,
            most / 1e6,
            share * 100.0,
            if unfaithful == 0 { String::new() } else { format!(", {unfaithful} NOT faithful") },
        );
    }
    if !reached {
        println!("The goal of {:.0}% was missed.", GOAL * 100.0);
    }
    Ok(reached)
}

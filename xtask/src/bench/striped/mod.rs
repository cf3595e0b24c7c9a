//! Striped TCP over emulated paths, by the product's own commands.
//!
//! `counts` compares `auto` with fixed counts and with other programs, `papers` tries it on
//! the satellite of paper 3, `deaths` kills and throttles connections, `forward` carries HTTP. `ride` runs one
//! copy and reads what it told.

mod counts;
mod deaths;
mod forward;
mod papers;
mod ride;

use anyhow::Result;
use clap::ValueEnum;

/// What to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Which parts.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "counts,clean,papers,deaths,forward"
    )]
    parts: Vec<Part>,
    #[command(flatten)]
    counts: counts::Counts,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    /// `auto` beside fixed counts, and beside lftp, aria2, rclone and GridFTP.
    Counts,
    /// At most four connections on a clean path of 100 Mbit/s and 20 ms.
    Clean,
    /// `auto` on the satellite of paper 3.
    Papers,
    /// Connections that are killed at random, or throttled.
    Deaths,
    /// nginx and curl through `longhaul forward`.
    Forward,
}

/// Prints a table for each part; false when a goal is missed.
pub fn run(args: &Args) -> Result<bool> {
    let mut reached = true;
    for part in &args.parts {
        reached &= match part {
            Part::Counts => counts::run(&args.counts)?,
            Part::Clean => papers::clean()?,
            Part::Papers => papers::run()?,
            Part::Deaths => deaths::run()?,
            Part::Forward => forward::run(args.counts.seeds)?,
        };
        println!();
    }
    Ok(reached)
}

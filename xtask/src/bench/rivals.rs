//! Congestion control in virtual time, where a grid of paths and rivals takes minutes.

use anyhow::Result;

use crate::command::{cargo, run as run_command};

/// How much to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Runs of each case, each with a seed of its own.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// The grid's rate in Mbit/s; the goals are for 1000.
    #[arg(long, default_value_t = 1000)]
    rate: u64,
    /// Tell what the senders think every so many milliseconds.
    #[arg(long, default_value_t = 0)]
    trace: u64,
    /// Only cases of these parts (start, grid, jumbo, ours, many, lossy, cubic, bbr, among, background, short, late, marks,
    /// unsteady), or with these words in their names.
    cases: Vec<String>,
}

/// Prints a table for each part; false when a worst run misses its goal.
pub fn run(args: &Args) -> Result<bool> {
    let command = |task: &str| {
        let mut command = cargo(&[task, "--quiet", "--release", "--package", "longhaul-sim"]);
        command.args(["--bin", "virtual"]);
        command
    };
    run_command(&mut command("build"))?;
    let mut run = command("run");
    run.arg("--").args([args.seeds, args.rate, args.from, args.trace].map(|n| n.to_string()));
    Ok(run.args(&args.cases).status()?.success())
}

//! The path model for as many packets as hours at a gigabit per second carry: memory must not grow.

use anyhow::Result;

use crate::command;

/// How much to push through.
#[derive(clap::Args)]
pub struct Args {
    /// Packets.
    #[arg(long, default_value_t = 1_000_000_000)]
    packets: u64,
}

/// Runs the example of the path model, in a process of its own because the memory of all of it is
/// what counts. It ends with an error when that grows.
pub fn run(args: &Args) -> Result<bool> {
    let mut example = command::cargo(&["run", "--release", "--package", "longhaul-path"]);
    example.args(["--example", "endurance", "--", &args.packets.to_string()]);
    command::run(&mut example).map(|()| true)
}

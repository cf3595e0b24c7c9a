//! Gateways on a long fat path: ours beside none, HAProxy and sing-box.

use anyhow::Result;

use crate::conformance::pair;

/// What is measured.
#[derive(clap::Args)]
pub struct Args {
    /// The gateways, by turns (longhaul, none, haproxy, sing-box), and --seconds, --rate, --rtt,
    /// --loss, --new, --only.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// Prints figures for each; false when ours missed a goal.
pub fn run(args: &Args) -> Result<bool> {
    Ok(pair()?.arg("bench").args(&args.options).status()?.success())
}

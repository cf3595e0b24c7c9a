//! Gateways on a long fat path: ours beside none, HAProxy and sing-box; and on the path of paper 2.

use anyhow::Result;

use crate::conformance::pair;

/// What is measured.
#[derive(clap::Args)]
pub struct Args {
    /// The gateways, by turns (longhaul, none, haproxy, sing-box), and --seconds, --rate, --rtt,
    /// --loss, --new, --only; for paper 2 --only.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// Prints figures for each; false when ours missed a goal.
pub fn run(args: &Args) -> Result<bool> {
    Ok(pair()?.arg("bench").args(&args.options).status()?.success())
}

/// Paper 2's experiments; false when one was not reproduced.
pub fn paper2(args: &Args) -> Result<bool> {
    Ok(pair()?.arg("paper").args(&args.options).status()?.success())
}

//! A transfer while strangers flood the server.

use anyhow::Result;

use crate::command;

/// Nothing to choose.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the example of `net`; it tells what the transfer kept, and fails below nine tenths.
pub fn run(_: &Args) -> Result<bool> {
    let build = ["build", "--release", "--package", "longhaul-net", "--example", "flood"];
    command::run(&mut command::cargo(&build))?;
    let mut example = command::cargo(&["run", "--quiet", "--release", "--package", "longhaul-net"]);
    Ok(example.args(["--example", "flood"]).status()?.success())
}

//! `cargo xtask conformance`: TCP's promises, with gateways of any make between client and server.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::bench::target_directory;
use crate::command::{cargo, run as run_command};

/// What is tried.
#[derive(clap::Args)]
pub struct Args {
    /// The gateways (longhaul, none, haproxy, sing-box), or --near COMMAND --far COMMAND to start
    /// others; --short, --only WORD, --idle SECONDS.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// Prints a table; false when a promise was broken.
pub fn run(args: &Args) -> Result<bool> {
    let mut pair = pair()?;
    Ok(pair.arg("conformance").args(&args.options).status()?.success())
}

/// The program that puts pairs of gateways between hosts, with the product at hand.
pub fn pair() -> Result<Command> {
    run_command(&mut cargo(&["build", "--release", "--package", "longhaul"]))?;
    let example = ["--package", "longhaul-gateway", "--example", "pair"];
    run_command(cargo(&["build", "--release"]).args(example))?;
    let folder: PathBuf = target_directory()?.join("release");
    let mut command = Command::new(folder.join("examples/pair"));
    command.arg("--program").arg(folder.join("longhaul"));
    Ok(command)
}

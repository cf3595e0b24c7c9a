//! `cargo xtask`: the project's own checks, tests and benchmarks, one task a file.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod command;
mod conformance;
mod fuzz;
mod swarm;
mod test;
mod tidy;
mod tools;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

/// The project's own checks and tests.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Every check a change must pass: fmt, clippy, tidy, test, doc, deny.
    Ci(ci::Args),
    /// All tests, after installing the programs they need.
    Test(test::Args),
    /// The rules of the house that no compiler checks.
    Tidy,
    /// Fuzzes parsers and sequences of operations.
    Fuzz(fuzz::Args),
    /// TCP's promises, with gateways of any make between client and server.
    Conformance(conformance::Args),
    /// Random runs of the transport in virtual time, with faults.
    Swarm(swarm::Args),
    /// Measurements over emulated paths, by the product's own commands.
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    match run(Task::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // Without the backtrace that `anyhow` adds by itself: no reader of a failed check wants it.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one task. False: it failed, and its own last line has said so.
fn run(task: Task) -> Result<bool> {
    // Every task speaks of paths from the root, whichever folder it was called from.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").context("start this as `cargo xtask`")?;
    std::env::set_current_dir(Path::new(&manifest).join(".."))?;
    match task {
        Task::Ci(args) => ci::run(&args).map(|()| true),
        Task::Test(args) => test::run(&args),
        Task::Tidy => tidy::run().map(|()| true),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Conformance(args) => conformance::run(&args),
        Task::Swarm(args) => swarm::run(&args),
        Task::Bench(bench) => bench::run(&bench),
    }
}

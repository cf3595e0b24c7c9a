//! A pair of gateways, of any make, between a client and a server: whether TCP's promises hold
//! (`conformance`), and what the gateways are worth on a long fat path (`bench`). `cargo xtask
//! conformance` and `cargo xtask bench gateway` run this, as root.

mod bench;
mod cases;
mod conformance;
mod contender;
mod failures;
mod figures;
mod load;
mod page;
mod rates;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Gateways of any make between a client and a server.
#[derive(Parser)]
#[command(name = "pair")]
struct Arguments {
    /// The program `longhaul`.
    #[arg(long, default_value = "longhaul")]
    program: PathBuf,
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Whether TCP's promises hold.
    Conformance(conformance::Options),
    /// Rates, fairness, isolation and cost.
    Bench(bench::Options),
    /// The server's end of thousands of connections.
    #[command(hide = true)]
    Echo,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let passed = match &arguments.task {
        Task::Conformance(options) => conformance::run(&arguments.program, options),
        Task::Bench(options) => bench::run(&arguments.program, options),
        Task::Echo => load::echo_all(),
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// No world can be had here.
fn no_world() -> std::io::Error {
    let reason = world::missing().unwrap_or("no right to make network namespaces".to_owned());
    std::io::Error::other(format!("{reason}: run this as root, with iproute2 and nftables"))
}

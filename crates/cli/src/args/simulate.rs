//! The flags of `longhaul simulate` and `longhaul reproduce`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use path::parse_time;

use super::emulate::interval;

/// Run a scenario in virtual time and say what its flows get
///
/// The path is the model that `longhaul emulate` runs, from the same file; the flows are its
/// [[flow]] tables: the product's own transport, or models of TCP. Without any, one flow of ours
/// sends from near to far. The same scenario and seed give the same output, byte by byte.
#[derive(Args)]
#[command(after_long_help = SIMULATE_HELP)]
pub struct Simulate {
    /// The name of a scenario that `longhaul emulate --list` shows, or a TOML file
    #[arg(value_name = "NAME|FILE")]
    pub scenario: PathBuf,
    /// Change a value of the scenario; the same key given again is run with each of its values
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Run with so many seeds, from the scenario's own on, and show 95% confidence intervals
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: u32,
    /// How long a run is [default: the scenario's duration, else 60s]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub duration: Option<Duration>,
    /// Leave out of the figures what happens before
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_time)]
    pub from: Duration,
    /// Write how each flow stood over time to a CSV file
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// How often --trace and --report look
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = interval)]
    pub trace_interval: Duration,
    /// Write an HTML page with the summary and diagrams over time to this file; it needs no other
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write each run and the summary as JSON, an object a line, to standard output
    #[arg(long)]
    pub json: bool,
    /// Run so many at a time [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

const SIMULATE_HELP: &str = "\
Keys of --set are those of the file: rtt=100ms; rate=10mbit for both directions, forward.loss=1% for
one; flow.window=64KiB for all flows, flow.2.cc=cubic for those of the second [[flow]] table.

Examples:
  longhaul simulate transoceanic-1g
  longhaul simulate my.toml --seeds 10 --from 20s
  longhaul simulate my.toml --set queue=50ms --set queue=red-i --set rtt=20ms --set rtt=200ms
  longhaul simulate my.toml --trace flows.csv --report my.html
  longhaul emulate --scenario my.toml --far 'iperf3 -s' -- \\
      sh -c 'sleep 1; iperf3 -c $LONGHAUL_FAR'                     # the same path, with real programs";

/// Run the papers' experiments and judge them
///
/// In the simulator, and across labs of `longhaul emulate` with the real programs: this one, iperf3,
/// curl, nginx and vsftpd. Each row has a criterion, runs with several seeds, and passes on the
/// median. Without ID all rows are run. Ends with exit code 1 when a row is not reproduced, breaks,
/// cannot be run here, or is UNFAITHFUL, for this machine could not keep up with the path, which is told with
/// the reason: --only simulated leaves out what needs labs.
#[derive(Args)]
#[command(after_help = REPRODUCE_HELP)]
pub struct Reproduce {
    /// Rows, or the beginnings of their names, as in "mftp" or "xftp-fig1"
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Show the rows, and end
    #[arg(long)]
    pub list: bool,
    /// Run one half alone
    #[arg(long, value_enum, value_name = "HALF")]
    pub only: Option<Half>,
    /// Run each row with so many seeds [default: as many as the row asks for, 5 at least]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: Option<u32>,
    /// Run each row with one seed, and a quarter of the time across the emulator: a look, and no
    /// verdict on the papers
    #[arg(long, conflicts_with = "seeds")]
    pub quick: bool,
    /// Write an HTML page to this folder, index.html, with all rows and their diagrams
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Write each row as JSON, an object a line, to standard output
    #[arg(long)]
    pub json: bool,
    /// Run so many at a time [default: all cores; of labs as many as their rates allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// Where rows are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Half {
    /// In the simulator
    Simulated,
    /// Across the emulator, with real programs
    Emulated,
}

const REPRODUCE_HELP: &str = "\
Rows across the emulator need root, or user namespaces and /dev/net/tun, and iproute2; those of paper 2
the programs besides (apt-get install iproute2 nftables iperf3 curl nginx vsftpd).

Examples:
  longhaul reproduce --quick --report papers        # a look at everything: papers/index.html
  longhaul reproduce xftp --only emulated --seeds 1
  longhaul reproduce gw-fig7-8";

//! The flags of `longhaul probe`.

use std::path::PathBuf;

use clap::Args;

use super::{KeyFile, Logs};
use crate::address::Server;

/// Measure the path to a server, and say what limits it
///
/// Asks a `longhaul serve` to echo, to take and to send bytes that nobody keeps, over UDP, and tells
/// round-trip times, losses and rates both ways, what a transfer would get, and what to do about it.
/// It fills the path while it measures.
#[derive(Args)]
pub struct Probe {
    /// `lh://HOST[:PORT]`, or HOST[:PORT]
    #[arg(value_name = "HOST")]
    pub server: Server,
    /// How long to fill the path, half of it each way
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Write the path that was found to this file, as a scenario for `longhaul simulate` and `emulate`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Take an unknown server at its word and write its key into `known_hosts`
    #[arg(long)]
    pub accept_new: bool,
    #[command(flatten)]
    pub logs: Logs,
    #[command(flatten)]
    pub key: KeyFile,
    /// Write one JSON object to standard output
    #[arg(long)]
    pub json: bool,
}

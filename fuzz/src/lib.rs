//! What the fuzzer runs: every parser that meets bytes from outside, and sequences of operations
//! on the structures behind them. Each target checks what it did against a simple model, so that
//! a wrong answer is found like a crash.
//!
//! `cargo xtask fuzz` builds and runs them. Their first inputs are made by the product's own
//! encoders; an input that once broke something stays in `fuzz/regressions/TARGET/`, and the
//! ordinary tests run it again.
#![forbid(unsafe_code)]

mod endpoint;
mod ftp;
mod gateway;
mod gather;
mod handshake;
mod hostile;
mod link;
mod memory;
mod pair;
mod program;
mod session;
mod spelling;
mod transfer;
mod wire;

// So the program's own files call it.
use program::wire as forward;

/// Something to be fuzzed.
pub struct Target {
    /// As on the command line.
    pub name: &'static str,
    /// Takes one input in; panics when something is wrong.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// The environment variable that tells the fuzzer's binary its target.
pub const CHOICE: &str = "LONGHAUL_FUZZ_TARGET";

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "scenario", run: spelling::scenario, seeds: spelling::scenario_seeds },
    Target { name: "rate-trace", run: spelling::rate_trace, seeds: spelling::rate_trace_seeds },
    Target { name: "loss-trace", run: spelling::loss_trace, seeds: spelling::loss_trace_seeds },
    Target { name: "spelling", run: spelling::configs, seeds: spelling::config_seeds },
    Target { name: "link", run: link::run, seeds: link::seeds },
    Target { name: "packet", run: wire::run, seeds: wire::seeds },
    Target { name: "record", run: gather::fields, seeds: gather::field_seeds },
    Target { name: "gather", run: gather::records, seeds: gather::record_seeds },
    Target { name: "streams", run: pair::streams, seeds: link::seeds },
    Target { name: "recovery", run: pair::recovery, seeds: link::seeds },
    Target { name: "hostile", run: hostile::run, seeds: link::seeds },
    Target { name: "endpoint", run: endpoint::run, seeds: link::seeds },
    Target { name: "transfer", run: transfer::stream, seeds: transfer::stream_seeds },
    Target { name: "journal", run: transfer::journal, seeds: transfer::journal_seeds },
    Target { name: "messages", run: transfer::messages, seeds: link::seeds },
    Target { name: "handshake", run: handshake::run, seeds: handshake::seeds },
    Target { name: "program", run: program::run, seeds: program::seeds },
    Target { name: "gateway", run: gateway::run, seeds: gateway::seeds },
    Target { name: "ftp", run: session::session, seeds: link::seeds },
    Target { name: "ftp-client", run: ftp::client, seeds: ftp::client_seeds },
    Target { name: "ftp-data", run: ftp::data, seeds: ftp::data_seeds },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

//! `cargo xtask bench`: the product measured over emulated paths, with its own commands.
//!
//! `lab` runs commands across `longhaul emulate`; the other files are the benchmarks.

mod agree;
mod emulator;
mod endurance;
mod fairness;
mod flood;
mod gateway;
mod kills;
mod lab;
mod local;
mod loopback;
mod memory;
mod mile;
mod predict;
mod record;
mod response;
mod rivals;
mod scale;
mod series;
mod simulator;
mod start;
mod striped;
mod transfer;
mod transport;
mod trees;

use anyhow::Result;
use clap::Subcommand;

pub use lab::target_directory;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// The simulator beside the emulator, of the same paths: throughput and losses of TCP and of ours.
    Agree(agree::Args),
    /// The emulator: lateness, cost and stray losses under load.
    Emulator(emulator::Args),
    /// The path model with everything on, for a billion packets: does memory stay as it was?
    Endurance(endurance::Args),
    /// Our flows beside each other, and beside one flow of the kernel's TCP.
    Fairness(fairness::Args),
    /// A transfer while strangers flood the server: does it keep nine tenths of its rate?
    Flood(flood::Args),
    /// Gateways on a long fat path: ours, none, HAProxy, sing-box.
    Gateway(gateway::Args),
    /// Without a path: beside cp and b3sum, and what a sync sends of little that is new.
    Local(local::Args),
    /// Loopback beside quinn: bits for each second of processor time, and growth with cores.
    Loopback(loopback::Args),
    /// Sides, ssh and power cut at random moments: is every copy right, and how much goes twice?
    Kills(kills::Args),
    /// A million files, and a thousand levels: how much memory does each side take?
    Memory(memory::Args),
    /// One large file over a long fat path, by UDP: the share of the link's limit it reaches.
    Mile(mile::Args),
    /// Copies across the emulator, and when the simulator says they will be done.
    Predict(predict::Args),
    /// Kernel TCP across the emulator, against what theory says of it.
    Response(response::Args),
    /// Past this machine: thousands of flows and up to 400 Gbit/s in virtual time, with the memory they take.
    Scale(scale::Args),
    /// The simulator: its speed, and its agreement with ns-2 and ns-3.
    Simulator(simulator::Args),
    /// A transfer's start over new and remembered paths, and over one that has become thinner.
    Start(start::Args),
    /// Striped TCP: `auto` beside fixed counts of connections, lftp, aria2, rclone and GridFTP.
    Striped(striped::Args),
    /// The mover beside scp, rsync, lftp, rclone and aria2: large files and small ones.
    Transfer(transfer::Args),
    /// The transport beside its peers, over paths of many delays and losses.
    Transport(transport::Args),
    /// Congestion control in virtual time: every path, and every rival, in minutes.
    Virtual(rivals::Args),
    /// A tree with files from nothing to the largest, many times: is it always identical?
    Trees(trees::Args),
}

/// Runs one benchmark. False: a goal was missed, and the table says which.
pub fn run(bench: &Bench) -> Result<bool> {
    match bench {
        Bench::Agree(args) => agree::run(args),
        Bench::Emulator(args) => emulator::run(args),
        Bench::Endurance(args) => endurance::run(args),
        Bench::Fairness(args) => fairness::run(args),
        Bench::Flood(args) => flood::run(args),
        Bench::Gateway(args) => gateway::run(args),
        Bench::Local(args) => local::run(args),
        Bench::Loopback(args) => loopback::run(args),
        Bench::Kills(args) => kills::run(args),
        Bench::Memory(args) => memory::run(args),
        Bench::Mile(args) => mile::run(args),
        Bench::Predict(args) => predict::run(args),
        Bench::Response(args) => response::run(args),
        Bench::Scale(args) => scale::run(args),
        Bench::Simulator(args) => simulator::run(args),
        Bench::Start(args) => start::run(args),
        Bench::Striped(args) => striped::run(args),
        Bench::Transfer(args) => transfer::run(args),
        Bench::Transport(args) => transport::run(args),
        Bench::Virtual(args) => rivals::run(args),
        Bench::Trees(args) => trees::run(args),
    }
}

/// A row's last word.
fn verdict(passed: bool) -> &'static str {
    if passed { "reached" } else { "MISSED" }
}

/// The median of some figures, and the least and the most.
fn spread(figures: &[f64]) -> (f64, f64, f64) {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    };
    let ends = (sorted.first().copied(), sorted.last().copied());
    (median, ends.0.unwrap_or(f64::NAN), ends.1.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_median_least_and_most() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), (2.5, 1.0, 4.0));
        assert!(spread(&[]).0.is_nan());
    }
}

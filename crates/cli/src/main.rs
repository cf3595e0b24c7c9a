//! The `longhaul` command.
//!
//! `args` is the table of all commands and flags; each command has a file of its own.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod output;

mod address;
mod args;
mod cp;
mod demo;
mod emulate;
mod forward;
mod ftp;
mod gateway;
mod handover;
mod hosts;
mod keys;
mod manual;
mod pacing;
mod paths;
mod probe;
mod progress;
mod qlog;
mod race;
mod report;
mod reproduce;
mod scenario;
mod serve;
mod signals;
mod simulate;
mod ssh;
mod summary;
mod verdict;

use std::process::ExitCode;

use clap::ArgMatches;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use args::Command;

/// Failed; nothing that is not whole stands under its final name.
const FAILED: u8 = 1;
/// Some files failed.
const PARTIAL: u8 = 3;

fn main() -> ExitCode {
    // Files, sockets and connections are many; where the limit stands, others say so.
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    let result = hosts::parse().and_then(|(cli, given)| carry_out(cli.command, &given));
    result.unwrap_or_else(|error| {
        tell!("longhaul: {}", sentence(&error));
        ExitCode::from(FAILED)
    })
}

fn carry_out(command: Command, given: &ArgMatches) -> anyhow::Result<ExitCode> {
    match command {
        Command::Cp(options) => cp::run(options, given),
        Command::Sync(options) => cp::sync(options, given),
        Command::Ls(options) => cp::ls(*options, given),
        Command::Serve(options) => serve::run(options),
        Command::Probe(options) => probe::run(&options),
        Command::Keygen(options) => keys::keygen(&options).map(|()| ExitCode::SUCCESS),
        Command::Fingerprint => keys::fingerprint().map(|()| ExitCode::SUCCESS),
        Command::Demo(options) => demo::run(options),
        Command::Emulate(options) => emulate::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Reproduce(options) => reproduce::run(&options),
        Command::Forward(options) => forward::run(*options),
        Command::Ftp(options) => ftp::run(options),
        Command::FtpUser(options) => ftp::user(&options),
        Command::Gateway(options) => gateway::run(options),
        Command::Completions(options) => manual::completions(&options),
        Command::Man(options) => manual::man(&options),
        Command::Far(sending) => ssh::far::run(sending),
    }
}

/// An error with its causes, but those that its own words hold already.
fn sentence(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

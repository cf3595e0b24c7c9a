//! `longhaul cp`: files and trees to another host or from it. `plan` reads what was asked for, `link`
//! finds a way to the far side, `carry` moves the data over it, `paced` no faster than it may, `show` says
//! how it went.

mod carry;
mod link;
mod paced;
mod plan;
mod show;

use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind;
use transport::FeedbackKind;

use crate::args::{Cli, Cp, Transport};
use crate::progress::Meter;
use crate::qlog::Qlog;
use carry::{End, carry};
use plan::{Far, Request, check, plan};

pub use link::is_absence;

/// What there is to do.
struct Job {
    far: Far,
    requests: Vec<Request>,
    options: Cp,
    meter: Meter,
    qlog: Qlog,
}

impl Job {
    /// Whether the way may be changed in the middle.
    fn may_go_on(&self) -> bool {
        !self.requests.iter().any(Request::is_once)
    }
}

/// `longhaul cp`.
pub fn run(options: Cp) -> anyhow::Result<ExitCode> {
    if crate::ftp::concerns(&options) {
        return crate::ftp::copy(&options);
    }
    let (far, requests) =
        plan(&options.sources, &options.destination).unwrap_or_else(|message| usage(&message));
    check_options(&options, &far, &requests);
    let (output, meter) = (options.output, Meter::new(requests.len()));
    let start = net::clock::now();
    let result = check(&requests).and_then(|()| {
        let qlog = Qlog::to(options.logs.qlog.as_deref())?;
        carry(&Job { far, requests, options, meter: meter.clone(), qlog })
    });
    let end = net::clock::now();
    match result {
        Ok(End::Done(moved)) => {
            let elapsed = moved.0.confirmed.unwrap_or(end).since(start);
            Ok(show::report(output, &moved.0, elapsed, &moved.1))
        }
        Ok(End::Stopped(signal)) => Ok(show::stopped(output, signal, &meter)),
        Err(error) => {
            show::fail(output, "error", &crate::sentence(&error), meter.sample().bytes);
            Err(error)
        }
    }
}

fn usage(message: &str) -> ! {
    let mut command = Cli::command();
    command.build();
    let cp = command.find_subcommand_mut("cp").expect("cp is a command");
    cp.error(ErrorKind::ValueValidation, message).exit()
}

fn check_options(options: &Cp, far: &Far, requests: &[Request]) {
    if matches!(options.transport, Transport::Tcp | Transport::Ssh)
        && let Some(option) = options.sending.udp_alone().next()
    {
        let instead = if option == "--cc" { "; TCP's is --tcp-cc" } else { "" };
        usage(&format!("{option} goes with --transport udp{instead}"));
    }
    for option in options.sending.given() {
        if !requests.iter().all(Request::sends) {
            let message = "is about what this side sends: give it to `longhaul serve` instead";
            usage(&format!("{option} {message}"));
        }
    }
    let not_udp = matches!(options.transport, Transport::Tcp | Transport::Ssh);
    if options.sending.feedback != FeedbackKind::default()
        && (not_udp || matches!(far, Far::Ssh(_)))
    {
        usage(
            "--feedback goes with --transport udp, and with lh://, whose server is told the same",
        );
    }
    if options.logs.qlog.is_some() && not_udp {
        usage("--qlog goes with --transport udp");
    }
    if options.output.json && requests.iter().any(|one| matches!(one, Request::ToOutput { .. })) {
        usage("--json writes to standard output, which the file is to go to");
    }
    if options.transport == Transport::Ssh && !matches!(far, Far::Ssh(_)) {
        usage("--transport ssh goes with [USER@]HOST:PATH");
    }
}

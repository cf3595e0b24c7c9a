//! `longhaul cp`, `sync` and `ls`: files and trees to another host or from it, or their names alone. `plan` reads what was asked for, `link`
//! finds a way to the far side and `change` another in the middle, `carry` moves the data over it, `paced` no
//! faster than it may and at the times of `schedule`, `show` says how it went. What goes from one far side to
//! another, `between` leaves to them where ssh leads to one, and `servers` where both are servers, of which one
//! does `push`; `follow` shows how they go on.

mod between;
mod carry;
mod change;
mod follow;
mod link;
mod ls;
mod paced;
mod plan;
mod push;
mod schedule;
mod servers;
mod show;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use anyhow::Context;
use clap::{Arg, ArgMatches, Id};
use serde_json::Value;
use tokio::sync::mpsc::Sender;
use transfer::wire::{Compare, Terms};
use transfer::{Manifest, TransferError};
use transport::FeedbackKind;
use units::Rate;

use crate::address::Location;
use crate::args::{Cp, Output, Sync, Transport, Way, usage};
use crate::hosts;
use crate::pacing::Pacers;
use crate::progress::{self, Meter};
use crate::qlog::Qlog;
use carry::{End, Moved, carry};
use plan::{Far, Request, check, plan};
use show::Verdict;

pub use change::PATIENCE;
pub use link::is_absence;
pub use ls::ls;
pub use paced::Paced;
pub use push::{Push, push};
pub use schedule::Schedule;
pub use servers::goes_between_servers;

/// What there is to do.
struct Job {
    far: Far,
    requests: Vec<Request>,
    options: Way,
    /// What is asked of the side that sends.
    terms: Terms,
    /// Is told the hashes of all files.
    manifest: Option<Manifest>,
    meter: Meter,
    /// Requests that are done, goodbye and all.
    finished: AtomicUsize,
    /// People know what carries the data.
    has_started: AtomicBool,
    qlog: Qlog,
    /// What all streams keep to, besides the user's own rate.
    pacers: Pacers,
    /// Is told what happens, in the place of standard output.
    listener: Option<Sender<Value>>,
}

impl Job {
    fn new(
        (far, requests): (Far, Vec<Request>),
        options: Way,
        terms: Terms,
        manifest: Option<Manifest>,
        meter: Meter,
        qlog: Qlog,
    ) -> Self {
        let (finished, has_started) = <(AtomicUsize, AtomicBool)>::default();
        let (pacers, listener) = (Pacers::default(), None);
        Self {
            far,
            requests,
            options,
            terms,
            manifest,
            meter,
            finished,
            has_started,
            qlog,
            pacers,
            listener,
        }
    }

    /// Whether the way may be changed in the middle.
    fn may_go_on(&self) -> bool {
        !self.requests.iter().any(Request::is_once)
    }

    /// Whether all of the request at hand is there: over another way it would only begin again.
    fn is_parting(&self) -> bool {
        self.meter.over() > self.finished.load(Relaxed)
    }

    /// Something for programs.
    fn emit(&self, event: &Value) {
        match &self.listener {
            None => progress::emit(event),
            // One who does not listen misses it.
            Some(listener) => drop(listener.try_send(event.clone())),
        }
    }
}

/// `longhaul cp`, with its options as they were given, here and in `hosts.toml`.
pub fn run(options: Cp, given: &ArgMatches) -> anyhow::Result<ExitCode> {
    if crate::ftp::concerns(&options) {
        return crate::ftp::copy(&options, given);
    }
    check_given(given, options.sources.iter().chain([&options.destination]));
    let elsewhere = between::elsewhere(&options.sources, &options.destination);
    if let Some((login, locations)) = elsewhere.unwrap_or_else(|message| usage("cp", &message)) {
        return between::run(&options.way, given, &login, locations, false);
    }
    let Cp { sources, destination, way, ftp: _ } = options;
    let terms = terms(&way);
    let both = servers::both(&sources, &destination);
    if let Some(both) = both.unwrap_or_else(|message| usage("cp", &message)) {
        return servers::run(&way, given, both, terms, Verdict::Done);
    }
    let planned = plan(&sources, &destination);
    let (far, requests) = planned.unwrap_or_else(|message| usage("cp", &message));
    carry_out("cp", far, requests, way, terms, Verdict::Done)
}

/// `longhaul sync`.
pub fn sync(options: Sync, given: &ArgMatches) -> anyhow::Result<ExitCode> {
    check_given(given, [&options.source, &options.destination].into_iter());
    let elsewhere = between::elsewhere(std::slice::from_ref(&options.source), &options.destination);
    if let Some((login, locations)) = elsewhere.unwrap_or_else(|message| usage("sync", &message)) {
        let speaks = options.dry_run || options.verify_only;
        return between::run(&options.way, given, &login, locations, speaks);
    }
    let Sync { source, destination, delete, dry_run, checksum, verify_only, way } = options;
    let by_content = checksum || verify_only;
    let terms = Terms {
        compare: Some(if by_content { Compare::Content } else { Compare::Time }),
        // What is there too much is a difference.
        removes: delete || verify_only,
        rehearses: dry_run || verify_only,
        ..terms(&way)
    };
    let verdict = match (verify_only, dry_run) {
        (true, _) => Verdict::Compared,
        (_, true) => Verdict::DryRun,
        _ => Verdict::Done,
    };
    let both = servers::both(std::slice::from_ref(&source), &destination);
    if let Some(both) = both.unwrap_or_else(|message| usage("sync", &message)) {
        return servers::run(&way, given, both, terms, verdict);
    }
    let planned = plan(std::slice::from_ref(&source), &destination);
    let (far, requests) = planned.unwrap_or_else(|message| usage("sync", &message));
    if !requests.iter().all(|request| !request.is_once()) {
        usage("sync", "standard input and output cannot be compared: use cp");
    }
    carry_out("sync", far, requests, way, terms, verdict)
}

fn terms(way: &Way) -> Terms {
    let (patterns, packs) = (way.filter.lines(), !way.no_compress);
    let rate = way.sending.rate_limit.map(Rate::as_bits_per_sec);
    Terms { owner: way.owner, patterns, packs, rate, ..Terms::default() }
}

fn carry_out(
    command: &str,
    far: Far,
    requests: Vec<Request>,
    mut options: Way,
    terms: Terms,
    verdict: Verdict,
) -> anyhow::Result<ExitCode> {
    if let Err(message) = check_options(&options, &far, &requests) {
        usage(command, &message);
    }
    if !requests.iter().all(Request::sends) {
        // What ssh starts there is the one that sends.
        options.ssh.far = options.sending.words();
    }
    let (output, meter) = (options.output, Meter::new(requests.len()));
    let goes_on = !requests.iter().any(Request::is_once);
    let listed = options.manifest.clone().map(|path| (Manifest::default(), path));
    let start = net::clock::now();
    let checked = check(&requests, options.manifest.as_deref());
    let result = checked.and_then(|()| {
        let qlog = Qlog::to(options.logs.qlog.as_deref())?;
        let manifest = listed.as_ref().map(|(manifest, _)| manifest.clone());
        let meter = meter.clone();
        carry(&Job::new((far, requests), options, terms, manifest, meter, qlog))
    });
    let end = net::clock::now();
    let result = match result {
        Ok(End::Done(moved)) => {
            let Moved { summary, figures, paused } = *moved;
            let elapsed = summary.confirmed.unwrap_or(end).since(start).saturating_sub(paused);
            let figures = figures.with_processors(elapsed);
            let report = || show::report(output, verdict, &summary, elapsed, &figures);
            let written = listed.map_or(Ok(()), |(manifest, path)| write(output, &manifest, &path));
            if written.is_err() && !output.json {
                // People want to know of both; programs are told one end.
                report();
            }
            written.map(|()| report())
        }
        Ok(End::Stopped(signal)) => Ok(show::stopped(output, signal, &meter, goes_on)),
        Err(error) if is_given_up(&error) && meter.sample().files > 0 => {
            Ok(show::given_up(output, &error, &meter.sample()))
        }
        Err(error) => Err(error),
    };
    result.inspect_err(|error| {
        show::fail(output, "error", &crate::sentence(error), meter.sample().done_bytes());
    })
}

/// Whether one of the sides could not go on, rather than the way between them.
fn is_given_up(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(TransferError::Near(_) | TransferError::Far(_)))
}

/// Writes the manifest of what was copied.
fn write(output: Output, manifest: &Manifest, path: &Path) -> anyhow::Result<()> {
    let written = manifest.write(path);
    written.with_context(|| format!("the manifest {} was not written", path.display()))?;
    show::bent_names(output, manifest);
    Ok(())
}

/// Refuses what says nothing to any of these places, and tells of names that look like places.
fn check_given<'a>(given: &ArgMatches, places: impl Iterator<Item = &'a Location> + Clone) {
    let Some((name, given)) = given.subcommand() else { return };
    let of_ftp = |option: &Arg| option.get_id().as_str().starts_with("ftp_");
    for (option, what) in hosts::strange(places.clone()) {
        if hosts::is_given(given, &Id::from(option)) {
            let option = match option {
                "rsh" => "-e".to_owned(),
                "path" => "--key".to_owned(),
                option => format!("--{}", option.replace('_', "-")),
            };
            usage(name, &format!("{option} goes with {what}"));
        }
    }
    if let Some(option) = hosts::options_of(name, given, |_, option| of_ftp(option)).first() {
        let option = option.split('=').next().unwrap_or_default();
        usage(name, &format!("{option} goes with ftp://HOST/PATH"));
    }
    for place in places.filter(|place| matches!(place, Location::Ssh(_))) {
        let text = place.to_string();
        if Path::new(&text).exists() {
            tell!(
                "longhaul: {text} is taken for a path on another host; the file here is ./{text}"
            );
        }
    }
}

/// What goes with what.
fn check_options(options: &Way, far: &Far, requests: &[Request]) -> Result<(), String> {
    let not_udp = matches!(options.transport, Transport::Tcp | Transport::Ssh);
    if let (true, Some(option)) = (not_udp, options.sending.udp_alone().next()) {
        let instead = if option == "--cc" { "; TCP's is --tcp-cc" } else { "" };
        return Err(format!("{option} goes with --transport udp{instead}"));
    }
    if let (false, Far::Server(_), Some(option)) =
        (requests.iter().all(Request::sends), far, options.sending.udp_alone().next())
    {
        let message = "is about what this side sends: give it to `longhaul serve` instead";
        return Err(format!("{option} {message}"));
    }
    let is_usual = options.sending.feedback == FeedbackKind::default();
    let is_output = requests.iter().any(|one| matches!(one, Request::ToOutput { .. }));
    let wrong = [
        (
            !is_usual && (not_udp || matches!(far, Far::Ssh(_))),
            "--feedback goes with --transport udp, and with lh://, whose server is told the same",
        ),
        (options.logs.qlog.is_some() && not_udp, "--qlog goes with --transport udp"),
        (
            options.schedule.is_some() && requests.iter().any(Request::is_once),
            "--schedule goes with files, and not with standard input or output, which cannot wait, nor with ls",
        ),
        (
            options.manifest.is_some() && requests.iter().any(Request::is_once),
            "--manifest goes with files, and not with standard input or output, nor with ls",
        ),
        (
            options.output.json && is_output,
            "--json writes to standard output, which the file is to go to",
        ),
        (
            options.transport == Transport::Ssh && !matches!(far, Far::Ssh(_)),
            "--transport ssh goes with [USER@]HOST:PATH",
        ),
    ];
    wrong.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, why)| Err((*why).to_owned()))
}

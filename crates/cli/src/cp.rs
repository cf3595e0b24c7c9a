//! `longhaul cp`: files and trees to a server or from it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::CommandFactory;
use clap::error::ErrorKind;
use net::udp::{UdpConnection, UdpEndpoint};
use net::{NetError, tcp};
use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use transfer::Summary;
use transport::FeedbackKind;
use units::Bytes;

use crate::address::{Location, Remote, Server};
use crate::args::{Cli, Cp, Output, Sending, Transport};
use crate::keys::{self, Introduction, Meeting};
use crate::paths::Paths;
use crate::progress::{self, Meter, emit};
use crate::qlog::Qlog;
use crate::signals::{self, Signals};
use crate::summary::{self, Figures};
use crate::{FAILED, PARTIAL};

/// How long the last packets of a connection may take to leave.
const FAREWELL: Duration = Duration::from_secs(2);

/// One request to the server.
enum Request {
    Put { sources: Vec<PathBuf>, destination: PathBuf },
    Get { source: PathBuf, destination: PathBuf },
}

impl Request {
    fn sends(&self) -> bool {
        matches!(self, Self::Put { .. })
    }
}

/// What there is to do.
struct Job {
    introduction: Introduction,
    /// One for all that is sent, or one for each thing to get.
    requests: Vec<Request>,
    options: Cp,
    meter: Meter,
}

/// How a transfer came to its end.
enum End {
    Done(Box<(Summary, Figures)>),
    Stopped(Signal),
}

/// `longhaul cp`.
pub fn run(options: Cp) -> anyhow::Result<ExitCode> {
    if crate::ftp::concerns(&options) {
        return crate::ftp::copy(&options);
    }
    let (server, requests) =
        plan(&options.sources, &options.destination).unwrap_or_else(|message| usage(&message));
    check_sending(&options, &requests);
    let (output, meter) = (options.output, Meter::new(requests.len()));
    let start = net::clock::now();
    let result = check(&requests).and_then(|()| {
        let own = keys::load(&options.key)?;
        let (transport, accept_new) = (options.transport, options.accept_new);
        let introduction = Introduction { own, server, transport, accept_new };
        carry(&Job { introduction, requests, options, meter: meter.clone() })
    });
    let elapsed = net::clock::now().since(start);
    match result {
        Ok(End::Done(moved)) => Ok(report(output, &moved.0, elapsed, &moved.1)),
        Ok(End::Stopped(signal)) => {
            let sample = meter.sample();
            let of = sample.files_total.map(|total| format!(" of {total}")).unwrap_or_default();
            let message = format!(
                "stopped after {}{of} files and {}; files that were not whole are removed",
                sample.files,
                Bytes(sample.bytes),
            );
            tell!("longhaul: {message}");
            fail(output, "stopped", &message, sample.bytes);
            Ok(ExitCode::from(signals::code(signal)))
        }
        Err(error) => {
            fail(output, "error", &crate::sentence(&error), meter.sample().bytes);
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

fn check_sending(options: &Cp, requests: &[Request]) {
    let Sending { cc, background, rate_limit, feedback } = options.sending;
    if options.transport == Transport::Tcp {
        if feedback != FeedbackKind::default() {
            usage("--feedback goes with --transport udp");
        }
        if options.logs.qlog.is_some() {
            usage("--qlog goes with --transport udp");
        }
    }
    let given = [
        ("--cc", cc.is_some()),
        ("--background", background),
        ("--rate-limit", rate_limit.is_some()),
    ];
    for (option, _) in given.into_iter().filter(|&(_, given)| given) {
        if options.transport == Transport::Tcp {
            let instead = if option == "--cc" { "; TCP's is --tcp-cc" } else { "" };
            usage(&format!("{option} goes with --transport udp{instead}"));
        }
        if !requests.iter().all(Request::sends) {
            let message = "is about what this side sends: give it to `longhaul serve` instead";
            usage(&format!("{option} {message}"));
        }
    }
}

fn fail(output: Output, event: &str, message: &str, bytes: u64) {
    if output.json {
        emit(&json!({ "event": event, "message": message, "bytes": bytes }));
    }
}

/// The closing words.
fn report(output: Output, summary: &Summary, elapsed: Duration, figures: &Figures) -> ExitCode {
    for note in summary.notes.iter() {
        let what = match note.kind {
            transfer::NoteKind::Failed => "failed",
            transfer::NoteKind::Skipped => "skipped",
        };
        tell!("longhaul: {what}: {note}");
    }
    if output.json {
        emit(&summary::object(summary, elapsed, figures));
    } else if !output.quiet {
        tell!("{}", summary::sentence(summary, elapsed, figures));
    }
    if output.verbose {
        tell!("{}", summary::details(summary, figures));
    }
    let counts = summary.counts;
    let nothing = counts.files + counts.directories + counts.symlinks == 0;
    ExitCode::from(match summary.is_partial() {
        false => 0,
        true if nothing => FAILED,
        true => PARTIAL,
    })
}

/// Finds out which way to go.
fn plan(sources: &[Location], destination: &Location) -> Result<(Server, Vec<Request>), String> {
    const EXAMPLE: &str = "one side is lh://HOST[:PORT]/PATH, the other one is here";
    let mut here = Vec::new();
    let mut there: Vec<&Remote> = Vec::new();
    for source in sources {
        match source {
            Location::Local(path) => here.push(path.clone()),
            Location::Remote(remote) => there.push(remote),
            Location::Ftp(_) => return Err(format!("FTP goes its own way: {EXAMPLE}")),
        }
    }
    match (destination, there.first()) {
        (Location::Remote(Remote { server, path }), None) => {
            let destination = path.into();
            Ok((server.clone(), vec![Request::Put { sources: here, destination }]))
        }
        (Location::Local(destination), Some(first)) if here.is_empty() => {
            if there.iter().any(|source| source.server != first.server) {
                return Err("the sources are on several servers: copy from one at a time".into());
            }
            let get = |remote: &&Remote| Request::Get {
                source: remote.path.clone().into(),
                destination: destination.clone(),
            };
            Ok((first.server.clone(), there.iter().map(get).collect()))
        }
        (Location::Ftp(_), _) => Err(format!("FTP goes its own way: {EXAMPLE}")),
        (Location::Remote(_), Some(_)) => Err(format!("no copies between servers: {EXAMPLE}")),
        (Location::Local(_), None) => Err(format!("nothing here is on a server: {EXAMPLE}")),
        (Location::Local(_), Some(_)) => Err(format!("sources on both sides: {EXAMPLE}")),
    }
}

/// Finds what is bound to fail before anybody is asked.
fn check(requests: &[Request]) -> anyhow::Result<()> {
    for request in requests {
        match request {
            Request::Put { sources, .. } => {
                for source in sources {
                    source
                        .symlink_metadata()
                        .with_context(|| format!("cannot read {}", source.display()))?;
                }
            }
            Request::Get { destination, .. } => {
                let parent = destination.parent().filter(|path| !path.as_os_str().is_empty());
                let parent = parent.unwrap_or(Path::new("."));
                ensure!(
                    destination.is_dir() || parent.is_dir(),
                    "cannot write to {}: {} is no directory; make it first",
                    destination.display(),
                    parent.display()
                );
            }
        }
    }
    Ok(())
}

fn carry(job: &Job) -> anyhow::Result<End> {
    // Dropped at the end, the runtime waits until temporary files are removed.
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let mut endpoint = None;
        let end = tokio::select! {
            end = connect_and_move(job, &mut endpoint) => end,
            signal = signals.next() => Ok(End::Stopped(signal)),
        };
        if let Some(endpoint) = endpoint {
            // So that the other side learns of the end now, and not by a time-out.
            let _ = tokio::time::timeout(FAREWELL, UdpEndpoint::idle(&endpoint)).await;
        }
        end
    })
}

async fn connect_and_move(job: &Job, endpoint: &mut Option<UdpEndpoint>) -> anyhow::Result<End> {
    let mut failure = None;
    // A name may have addresses at which nobody is.
    for address in job.introduction.server.resolve().await? {
        let introduced = job.introduction.meet(address).await;
        let moved = match (introduced, job.options.transport) {
            (Err(error), _) => Err(error),
            (Ok(meeting), Transport::Udp) => by_udp(job, address, &meeting, endpoint).await,
            (Ok(meeting), Transport::Tcp) => by_tcp(job, address, &meeting).await,
        };
        match moved {
            Err(error) if is_absence(&error) => failure = Some(error),
            moved => return moved.map(|moved| End::Done(Box::new(moved))),
        }
    }
    Err(failure.context("no address to connect to")?)
}

/// Whether nobody is there, so that another address may be tried.
pub fn is_absence(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref();
    matches!(error, Some(NetError::Unreachable { .. } | NetError::NoAnswer { .. }))
}

fn announce(job: &Job, address: SocketAddr) {
    if job.options.output.json {
        emit(&json!({
            "event": "start",
            "server": address.to_string(),
            "transport": match job.options.transport {
                Transport::Udp => "udp",
                Transport::Tcp => "tcp",
            },
        }));
    } else if job.options.output.verbose {
        tell!("connected to {address}");
    }
}

/// The server has proved to be who it should be.
fn met(job: &Job, meeting: &Meeting) -> anyhow::Result<()> {
    let output = job.options.output;
    match job.introduction.succeeded(meeting)? {
        Some(news) if !output.quiet && !output.json => tell!("longhaul: {news}"),
        _ => {}
    }
    Ok(())
}

async fn by_udp(
    job: &Job,
    address: SocketAddr,
    meeting: &Meeting,
    endpoint: &mut Option<UdpEndpoint>,
) -> anyhow::Result<(Summary, Figures)> {
    let sends = job.requests.iter().all(Request::sends);
    // Who sends learns, and remembers.
    let paths = Paths::unless(job.options.memory.no_remember || !sends);
    let remembered = paths.as_ref().and_then(|paths| paths.recall(address.ip()));
    let qlog = Qlog::to(job.options.logs.qlog.as_deref())?;
    let sending = job.options.sending.config();
    let config = transport::Config { remembered, trace: qlog.is_on(), ..sending };
    let rate_limit = config.rate_limit;
    let endpoint = endpoint.insert(UdpEndpoint::client(address, &meeting.credentials, config)?);
    let connection: UdpConnection = match endpoint.connect(address).await {
        Ok(connection) => connection,
        Err(error) => return Err(job.introduction.explain(address, error).await),
    };
    qlog.watch(&connection, endpoint.address());
    met(job, meeting)?;
    announce(job, address);
    if let (Some(path), true) = (remembered, job.options.output.verbose) {
        tell!("remembered path: {} at RTT {:.1?}", path.rate, path.rtt);
    }
    let figures = || Figures::of_udp(&connection.stats(), rate_limit).known(sends);
    let mut total = summary::Total::default();
    for index in 0..job.requests.len() {
        let summary = request(job, index, connection.open().await?, figures).await?;
        total.add(summary);
    }
    if let (Some(paths), Some(learnt)) = (paths, connection.remembered()) {
        paths.learn(address.ip(), learnt);
    }
    Ok((total.0, figures()))
}

async fn by_tcp(
    job: &Job,
    address: SocketAddr,
    meeting: &Meeting,
) -> anyhow::Result<(Summary, Figures)> {
    let options =
        tcp::Options { congestion_control: job.options.tcp_cc.clone(), ..tcp::Options::default() };
    let mut total = summary::Total::default();
    let mut figures = Figures::default();
    for (index, what) in job.requests.iter().enumerate() {
        let streams = usize::from(job.options.streams);
        let connected = tcp::connect(address, &meeting.credentials, streams, &options).await;
        let mut stream = match connected {
            Ok(stream) => stream,
            Err(error) => return Err(job.introduction.explain(address, error).await),
        };
        if index == 0 {
            met(job, meeting)?;
        }
        announce(job, address);
        total.add(request(job, index, &mut stream, Figures::default).await?);
        figures = Figures::of_tcp(&stream.stats()).known(what.sends());
    }
    Ok((total.0, figures))
}

/// Moves what one request asks for, and shows how far it is.
async fn request<S: AsyncRead + AsyncWrite + Unpin + Send>(
    job: &Job,
    index: usize,
    stream: S,
    figures: impl Fn() -> Figures,
) -> anyhow::Result<Summary> {
    let progress = job.meter.of(index);
    // Several things go into a directory.
    let options = transfer::Options { into_directory: job.requests.len() > 1 };
    let moving = async {
        match &job.requests[index] {
            Request::Put { sources, destination } => {
                transfer::put(stream, sources, destination, &options, progress).await
            }
            Request::Get { source, destination } => {
                transfer::get(stream, source, destination, &options, progress).await
            }
        }
    };
    tokio::select! {
        moved = moving => Ok(moved?),
        never = progress::show(job.options.output, &job.meter, figures) => never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(paths: &[&str]) -> Result<(Server, Vec<Request>), String> {
        let paths: Vec<Location> = paths.iter().map(|path| path.parse().unwrap()).collect();
        let (destination, sources) = paths.split_last().unwrap();
        plan(sources, destination)
    }

    #[test]
    fn both_directions_are_told_apart() {
        let (_, put) = planned(&["a", "b", "lh://h/c/"]).ok().unwrap();
        assert!(matches!(&put[..], [Request::Put { sources, destination }]
            if sources.len() == 2 && destination.as_os_str() == "c/"));
        let (_, get) = planned(&["lh://h/a", "lh://h/b", "c"]).ok().unwrap();
        assert!(get.len() == 2 && !get[0].sends());
    }

    #[test]
    fn what_goes_no_single_way_is_refused() {
        for paths in [
            &["a", "b"][..],
            &["lh://h/a", "lh://h/b"],
            &["a", "lh://h/a", "b"],
            &["lh://h/a", "lh://g/b", "c"],
        ] {
            assert!(planned(paths).is_err(), "{paths:?}");
        }
    }
}

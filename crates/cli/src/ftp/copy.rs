//! `longhaul cp` from and to FTP servers.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{ArgMatches, Id};
use ftp::client::{Client, Copied, Found, Guard, Stop};
use ftp::data::Moved;
use rustix::process::Signal;
use serde_json::json;
use transfer::{NoteKind, Progress, RelPath};
use units::{Bytes, Rate};

use super::connect::{FtpUrl, How, connect, remember};
use super::losses::{Losses, again, is_loss};
use super::password::ask;
use super::show::{guarded, stoppable, watch};
use crate::address::Location;
use crate::args::{Cp, Output, usage};
use crate::hosts::is_given;
use crate::progress::emit;
use crate::summary::counted;
use crate::{FAILED, PARTIAL, signals};

/// Options of `cp` that say nothing where an FTP server takes part.
const IDLE: &[&str] = &[
    "exclude",
    "include",
    "no_compress",
    "transport",
    "streams",
    "streams_max",
    "target_rate",
    "rtt_from",
    "rsh",
    "remote_path",
    "bootstrap",
    "cc",
    "background",
    "feedback",
    "rate_limit",
    "qlog",
    "owner",
    "schedule",
    "manifest",
    "accept_new",
    "path",
    "until_eof",
];

/// What is to be done.
enum Way {
    Get(Vec<FtpUrl>, PathBuf),
    Put(Vec<PathBuf>, FtpUrl),
}

impl Way {
    /// Where it goes, or comes from.
    fn server(&self) -> &FtpUrl {
        match self {
            Self::Get(urls, _) => &urls[0],
            Self::Put(_, url) => url,
        }
    }
}

const NO_PIPES: &str = "standard input and output do not go with ftp://: name a file, or use \
                        [USER@]HOST:PATH or lh:// (a file called - is ./-)";

/// Whether an FTP server takes part.
pub fn concerns(options: &Cp) -> bool {
    let is_ftp = |location: &Location| matches!(location, Location::Ftp(_));
    options.sources.iter().any(is_ftp) || is_ftp(&options.destination)
}

fn plan(sources: &[Location], destination: &Location) -> Result<Way, String> {
    let (mut here, mut there) = (Vec::new(), Vec::<FtpUrl>::new());
    for source in sources {
        match source {
            Location::Local(path) if path == Path::new("-") => return Err(NO_PIPES.to_owned()),
            Location::Local(path) => here.push(path.clone()),
            Location::Ftp(url) => there.push(url.clone()),
            Location::Remote(_) | Location::Ssh(_) => {
                return Err("no copies between servers: copy here first".to_owned());
            }
        }
    }
    match destination {
        Location::Ftp(url) if there.is_empty() => Ok(Way::Put(here, url.clone())),
        Location::Local(path) if path == Path::new("-") => Err(NO_PIPES.to_owned()),
        Location::Local(path) if here.is_empty() => {
            let one = there.iter().all(|url| url.same_server(&there[0]));
            let why = "the sources are on several servers: copy from one at a time";
            one.then(|| Way::Get(there, path.clone())).ok_or_else(|| why.to_owned())
        }
        _ => Err("one side is ftp://HOST/PATH, the other one is here".to_owned()),
    }
}

/// Refuses what was asked for and would not be done.
fn check(given: &ArgMatches) -> Result<(), String> {
    let given = given.subcommand_matches("cp");
    let idle = IDLE.iter().find(|id| given.is_some_and(|given| is_given(given, &Id::from(**id))));
    let Some(id) = idle else { return Ok(()) };
    let (name, instead) = match *id {
        "rsh" => ("-e".to_owned(), ""),
        "path" => ("--key".to_owned(), ""),
        "accept_new" => ("--accept-new".to_owned(), "; FTP's is --ftp-accept-new"),
        "streams" => ("--streams".to_owned(), "; FTP's is --ftp-streams"),
        "cc" => ("--cc".to_owned(), "; TCP's is --tcp-cc"),
        id => (format!("--{}", id.replace('_', "-")), ""),
    };
    Err(format!("{name} goes with [USER@]HOST:PATH and lh://{instead}"))
}

/// `longhaul cp`, where an FTP server takes part.
pub fn copy(options: &Cp, given: &ArgMatches) -> anyhow::Result<ExitCode> {
    let planned = check(given).and_then(|()| plan(&options.sources, &options.destination));
    let way = planned.unwrap_or_else(|why| usage("cp", &why));
    let output = options.way.output;
    let (progress, moved) = (Progress::new(), Moved::default());
    let start = net::clock::now();
    // Dropped at the end, the runtime waits until temporary files are removed.
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads");
    let result = runtime.and_then(|runtime| {
        let stop = Stop::default();
        runtime.block_on(async {
            let password = match way.server().user.as_deref() {
                Some(user) => match ask(user).await? {
                    Ok(password) => Some(password),
                    Err(signal) => return Ok((Copied::default(), Some(signal))),
                },
                None => None,
            };
            let moving = carry(options, &way, password.as_deref(), (&progress, &moved), &stop);
            let shown = watch(output, &progress, &moved, moving);
            match stoppable(&stop, shown).await {
                (_, Some(signal)) => Ok((Copied::default(), Some(signal))),
                (done, None) => done.map(|copied| (copied, None)),
            }
        })
    });
    let elapsed = net::clock::now().since(start);
    match result {
        Ok((copied, None)) => Ok(report(output, &copied, elapsed)),
        Ok((_, Some(signal))) => Ok(stopped(output, signal, &moved)),
        Err(error) => {
            if output.json {
                let message = crate::sentence(&error);
                emit(&json!({ "event": "error", "message": message, "bytes": moved.bytes() }));
            }
            Err(error)
        }
    }
}

fn stopped(output: Output, signal: Signal, moved: &Moved) -> ExitCode {
    let message = format!(
        "stopped after {}; the same command resumes a file that was being received",
        Bytes(moved.bytes())
    );
    tell!("longhaul: {message}");
    if output.json {
        emit(&json!({ "event": "stopped", "message": message, "bytes": moved.bytes() }));
    }
    ExitCode::from(signals::code(signal))
}

async fn carry(
    options: &Cp,
    way: &Way,
    password: Option<&str>,
    shown: (&Progress, &Moved),
    stop: &Stop,
) -> anyhow::Result<Copied> {
    let (url, mut copied) = (way.server(), Copied::default());
    let forgets = options.way.memory.no_remember;
    let tcp_cc = options.way.striping.tcp_cc.as_deref();
    let tells = !(options.way.output.quiet || options.way.output.json);
    let how = How { options: &options.ftp, tcp_cc, forgets, tells, was_secure: false, stop };
    let mut client = connect(url, password, how).await?;
    let guard = client.guard();
    if options.way.output.json {
        emit(&json!({
            "event": "start", "server": url.to_string(), "transport": "ftp", "streams": client.streams(),
            "secure": guard == Guard::All,
        }));
    }
    say_so(options.way.output, &format!("connected to {} {}", url.host, guarded(guard)));
    let (moved, mut losses) = (shown.1, Losses::default());
    loop {
        let done = move_all(&mut client, way, shown, &mut copied).await;
        remember(&client, moved, forgets);
        let lost = match done {
            Ok(()) => break,
            Err(error) if is_loss(&error) && losses.bears(moved.bytes()) => error,
            Err(error) => return Err(error),
        };
        say_so(options.way.output, &format!("{}; connecting again", crate::sentence(&lost)));
        copied.begin_again(moved);
        let how = How { was_secure: client.is_secure(), ..how };
        client = match again(url, password, how).await {
            Ok(client) => client,
            // Why it was lost says more than that nobody answers any more.
            Err(error) if is_loss(&error) => return Err(lost),
            Err(error) => return Err(error),
        };
        say_so(options.way.output, &format!("going on with {}", url.host));
    }
    client.quit().await;
    Ok(copied)
}

/// News for people.
fn say_so(output: Output, news: &str) {
    if !output.quiet && !output.json {
        tell!("longhaul: {news}");
    }
}

/// Moves all that is not whole yet.
async fn move_all(
    client: &mut Client,
    way: &Way,
    shown: (&Progress, &Moved),
    copied: &mut Copied,
) -> anyhow::Result<()> {
    match way {
        Way::Get(urls, destination) => {
            let into = urls.len() > 1;
            for url in urls {
                let (directory, name) = landing(destination, url, into)?;
                client.get_tree(&url.path, directory.into(), name.as_ref(), shown, copied).await?;
            }
        }
        Way::Put(sources, url) => {
            for source in sources {
                let path = target(client, source, url, sources.len() > 1).await?;
                client.put_tree(source, &path, shown, copied).await?;
            }
        }
    }
    Ok(())
}

/// Where something lands here: a directory, and its name in it, unless only what it holds lands.
fn landing(
    destination: &Path,
    url: &FtpUrl,
    into: bool,
) -> anyhow::Result<(File, Option<RelPath>)> {
    let closed = destination.as_os_str().as_bytes().ends_with(b"/");
    if (into || closed) && !destination.exists() {
        let made = std::fs::create_dir(destination);
        made.with_context(|| format!("cannot make {}", destination.display()))?;
    }
    if destination.is_dir() {
        let name = url.path.split(|&byte| byte == b'/').rfind(|name| !name.is_empty());
        let name = name
            .filter(|name| !matches!(*name, b"." | b".."))
            .map(|name| RelPath::new(name.to_vec()));
        let directory = File::open(destination)
            .with_context(|| format!("cannot write to {}", destination.display()))?;
        return Ok((directory, name.transpose()?));
    }
    ensure!(!into, "{} is no directory: several sources need one", destination.display());
    let (directory, name) = super::transfers::landing(destination)?;
    Ok((directory, Some(RelPath::new(name.as_os_str().as_bytes().to_vec())?)))
}

/// The path that something gets there.
async fn target(
    client: &mut Client,
    source: &Path,
    url: &FtpUrl,
    into: bool,
) -> anyhow::Result<Vec<u8>> {
    let closed = url.path.is_empty() || url.path.ends_with(b"/");
    let is_directory = match client.find(&url.path).await {
        Err(error) if error.is_loss() => return Err(error.into()),
        found => matches!(found, Ok(Found::Directory)),
    };
    if !(into || closed || is_directory) {
        return Ok(url.path.clone());
    }
    if !is_directory {
        client.done_with("MKD", url.path.strip_suffix(b"/").unwrap_or(&url.path)).await?;
    }
    let name = source.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_owned()));
    let name =
        source.file_name().map(ToOwned::to_owned).or(name).context("a source has no name")?;
    let mut path = url.path.clone();
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend(name.as_bytes());
    Ok(path)
}

/// The closing words.
fn report(output: Output, copied: &Copied, elapsed: Duration) -> ExitCode {
    for note in copied.notes.iter() {
        let what = if note.kind == NoteKind::Failed { "failed" } else { "skipped" };
        tell!("longhaul: {what}: {note}");
    }
    let counts = copied.counts;
    let rate = Rate::of(Bytes(counts.bytes), elapsed);
    let failed = copied.notes.failed();
    let at = rate.map(|rate| format!(", {rate}")).unwrap_or_default();
    let (bytes, seconds) = (Bytes(counts.bytes), elapsed.as_secs_f64());
    let summary = format!("{}, {bytes} in {seconds:.1} s{at}", counted(counts.files, "file"));
    if output.json {
        emit(&json!({
            "event": "done",
            "transport": "ftp",
            "summary": summary,
            "verified": false,
            "partial": failed > 0,
            "seconds": elapsed.as_secs_f64(),
            "files": counts.files,
            "directories": counts.directories,
            "bytes": counts.bytes,
            "rate_bps": rate.map(Rate::as_bits_per_sec),
            "failed": failed,
            "skipped": copied.notes.skipped(),
            "notes": copied.notes.iter().map(|note| json!(note.to_string())).collect::<Vec<_>>(),
        }));
    } else if !output.quiet {
        tell!("{summary}");
    }
    ExitCode::from(match (failed, counts.files + counts.directories) {
        (0, _) => 0,
        (_, 0) => FAILED,
        _ => PARTIAL,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    /// What means something here, beside all that begins with `ftp_`.
    const BUSY: &[&str] =
        &["sources", "destination", "tcp_cc", "no_remember", "json", "quiet", "verbose"];

    #[test]
    fn every_option_is_done_or_refused() {
        let mut cli = Cli::command();
        cli.build();
        let cp = cli.find_subcommand("cp").unwrap();
        let ids: Vec<_> = cp.get_arguments().map(|option| option.get_id().as_str()).collect();
        for id in &ids {
            let known = IDLE.contains(id) != BUSY.contains(id) || id.starts_with("ftp_");
            assert!(known || matches!(*id, "help" | "version"), "{id}");
        }
        assert!(IDLE.iter().all(|id| ids.contains(id)), "{ids:?}");
    }
}

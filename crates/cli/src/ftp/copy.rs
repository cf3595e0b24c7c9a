//! `longhaul cp` from and to FTP servers.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ftp::client::{Client, Copied, Found};
use ftp::data::Moved;
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::Notify;
use transfer::{NoteKind, Progress, RelPath};
use units::{Bytes, Rate};

use super::connect::{FtpUrl, connect};
use super::show::watch_for;
use crate::address::Location;
use crate::args::{Cp, Output};
use crate::progress::emit;
use crate::{FAILED, PARTIAL, signals};

/// What is to be done.
enum Way {
    Get(Vec<FtpUrl>, PathBuf),
    Put(Vec<PathBuf>, FtpUrl),
}

/// Whether an FTP server takes part.
pub fn concerns(options: &Cp) -> bool {
    let is_ftp = |location: &Location| matches!(location, Location::Ftp(_));
    options.sources.iter().any(is_ftp) || is_ftp(&options.destination)
}

fn plan(sources: &[Location], destination: &Location) -> anyhow::Result<Way> {
    let (mut here, mut there) = (Vec::new(), Vec::<FtpUrl>::new());
    for source in sources {
        match source {
            Location::Local(path) => here.push(path.clone()),
            Location::Ftp(url) => there.push(url.clone()),
            Location::Remote(_) | Location::Ssh(_) => {
                bail!("no copies between servers: copy here first")
            }
        }
    }
    match destination {
        Location::Ftp(url) if there.is_empty() => Ok(Way::Put(here, url.clone())),
        Location::Local(path) if here.is_empty() => {
            let one = there.iter().all(|url| url.same_server(&there[0]));
            ensure!(one, "the sources are on several servers: copy from one at a time");
            Ok(Way::Get(there, path.clone()))
        }
        _ => bail!("one side is ftp://HOST/PATH, the other one is here"),
    }
}

/// `longhaul cp`, where an FTP server takes part.
pub fn copy(options: &Cp) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        options.way.filter.exclude.is_empty(),
        "--exclude goes with [USER@]HOST:PATH and lh://"
    );
    anyhow::ensure!(
        options.way.manifest.is_none(),
        "--manifest goes with [USER@]HOST:PATH and lh://"
    );
    anyhow::ensure!(
        options.way.schedule.is_none(),
        "--schedule goes with [USER@]HOST:PATH and lh://"
    );
    let output = options.way.output;
    let (progress, moved) = (Progress::new(), Moved::default());
    let start = net::clock::now();
    let result = plan(&options.sources, &options.destination).and_then(|way| {
        // Dropped at the end, the runtime waits until temporary files are removed.
        let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
        let stop = Arc::new(Notify::new());
        runtime.block_on(async {
            let moving = carry(options, &way, (&progress, &moved), stop.clone());
            let (done, signal) = watch_for(output, &progress, &moved, stop.clone(), moving).await;
            match signal {
                Some(signal) => Ok((Copied::default(), Some(signal))),
                None => done.map(|copied| (copied, None)),
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
    shown: (&Progress, &Moved),
    stop: Arc<Notify>,
) -> anyhow::Result<Copied> {
    let (url, mut copied) = match way {
        Way::Get(urls, _) => (&urls[0], Copied::default()),
        Way::Put(_, url) => (url, Copied::default()),
    };
    let mut client = connect(url, None, &options.way.ftp, stop).await?;
    if options.way.output.json {
        let streams = client.streams();
        emit(
            &json!({ "event": "start", "server": url.to_string(), "transport": "ftp", "streams": streams }),
        );
    }
    match way {
        Way::Get(urls, destination) => {
            let into = urls.len() > 1;
            for url in urls {
                let (directory, name) = landing(destination, url, into)?;
                client
                    .get_tree(&url.path, directory.into(), name.as_ref(), shown, &mut copied)
                    .await?;
            }
        }
        Way::Put(sources, url) => {
            for source in sources {
                let path = target(&mut client, source, url, sources.len() > 1).await?;
                client.put_tree(source, &path, shown, &mut copied).await?;
            }
        }
    }
    client.quit().await;
    Ok(copied)
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
    let (directory, name) = super::commands::landing(destination)?;
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
    let is_directory = matches!(client.find(&url.path).await, Ok(Found::Directory));
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
    if output.json {
        emit(&json!({
            "event": "done",
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
        let s = if counts.files == 1 { "" } else { "s" };
        let rate = rate.map(|rate| format!(", {rate}")).unwrap_or_default();
        tell!(
            "{} file{s}, {} in {:.1} s{rate}",
            counts.files,
            Bytes(counts.bytes),
            elapsed.as_secs_f64()
        );
    }
    ExitCode::from(match (failed, counts.files + counts.directories) {
        (0, _) => 0,
        (_, 0) => FAILED,
        _ => PARTIAL,
    })
}

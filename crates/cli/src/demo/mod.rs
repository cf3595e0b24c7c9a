//! `longhaul demo`: a real tree crosses an emulated path in three ways, by real processes.

mod folder;
mod plain;
mod ride;
mod site;
mod table;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use emulator::Lab;
use tokio::task::spawn_blocking;
use units::Bytes;

use crate::args::{Demo, PathOptions};
use crate::keys;
use crate::signals::{self, Signals};

pub use folder::Folder;
use ride::{Bar, Ride};
use site::{Server, Site};
use table::Row;

/// `longhaul demo`.
pub fn run(options: Demo) -> anyhow::Result<ExitCode> {
    // Before any thread: only a process of one thread can enter a user namespace.
    let site = Site::open(&options)?;
    let folder = Folder::with_room(size(&options)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        tokio::select! {
            done = show(&options, &site, folder.path()) => done.map(|()| ExitCode::SUCCESS),
            signal = signals.next() => {
                tell!("longhaul: stopped; everything is removed again");
                Ok(ExitCode::from(signals::code(signal)))
            }
        }
    });
    drop(runtime);
    if options.keep {
        say!("\nKept: {}", folder.keep()?.display());
    }
    result
}

/// What the demo will write: what it makes, and what arrives. Striped TCP's copy is removed before
/// the next way begins.
fn size(options: &Demo) -> anyhow::Result<Bytes> {
    let Some(source) = &options.source else {
        return Ok(options.size + options.size);
    };
    ensure!(source.is_dir(), "cannot read {}: it is no directory", source.display());
    Ok(tree::measure(source)?.1)
}

/// The three ways, one after the other, and the comparison.
async fn show(options: &Demo, site: &Site, folder: &Path) -> anyhow::Result<()> {
    let key = folder.join("key");
    keys::write_shared(&key)?;
    let root = folder.join("far");
    std::fs::create_dir(&root)?;
    let source = source(options, folder).await?;
    let (files, bytes) = tree::measure(&source)?;
    introduce(&options.path, site, files, bytes, folder);

    let server = Server::start(site, &options.path, &root, &key).await?;
    let crossing = Crossing { site, server: &server, source: &source, total: bytes };
    let bound = Duration::from_secs(options.tcp_seconds);
    let mut rows = Vec::new();
    if let Site::Lab(lab) = site {
        rows.push(crossing.by_plain_tcp(lab, bound).await?);
        let streams = &options.streams;
        let striped = Ride {
            name: format!("striped TCP ({streams})"),
            arguments: ["--transport", "tcp", "--streams", streams].map(str::to_owned).to_vec(),
            bound: Some(bound),
        };
        rows.push(crossing.by_cp(&striped, "striped").await?);
        remove_if_there(&root.join("striped"))?;
    }
    let udp = Ride { name: "Longhaul UDP".to_owned(), arguments: Vec::new(), bound: None };
    rows.push(crossing.by_cp(&udp, "udp").await?);
    let report = server.stop(site).await?;

    say!("\n{}", table::show(&rows, &options.path));
    say!("The path carried {}.", table::path_line(&report));
    say!(
        "\nAll {files} files arrived intact: SHA-256 hashes taken on both sides agree, as do names, \
         links and\npermissions.\n\n{WHAT_NEXT}"
    );
    Ok(())
}

const WHAT_NEXT: &str = "\
What next: try a worse path (longhaul demo --loss 5% --rtt 600ms), your own data (--source DIR), or
other programs on it (longhaul emulate --help). For two real hosts: longhaul keygen --help.";

fn remove_if_there(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

async fn source(options: &Demo, folder: &Path) -> anyhow::Result<PathBuf> {
    if let Some(source) = &options.source {
        return Ok(source.clone());
    }
    let source = folder.join("near");
    std::fs::create_dir(&source)?;
    let (path, size) = (source.clone(), options.size);
    spawn_blocking(move || tree::generate(&path, size)).await?.context("cannot make a tree")?;
    Ok(source)
}

fn introduce(path: &PathOptions, site: &Site, files: u64, bytes: Bytes, folder: &Path) {
    say!(
        "{files} files, {bytes}, cross an emulated path: {}, RTT {}, {}% loss, queue {}.",
        path.rate,
        humantime::format_duration(path.rtt),
        // Without the last digits, which are those of binary fractions.
        (path.loss * 1e8).round() / 1e6,
        path.queue
    );
    match site {
        Site::Lab(_) => say!(
            "Two hosts in network namespaces, plain TCP with CUBIC, buffers of up to 256 MB; trees in \
             {}.\n",
            folder.display()
        ),
        Site::Loopback { reason } => say!(
            "UDP alone, through a relay on loopback: {reason}.\nThe TCP columns need namespaces: a \
             relay that ends TCP connections would show no loss to them.\n"
        ),
    }
}

/// What all ways have in common.
struct Crossing<'a> {
    site: &'a Site,
    server: &'a Server,
    source: &'a Path,
    total: Bytes,
}

impl Crossing<'_> {
    /// One plain connection, for at most `bound`.
    async fn by_plain_tcp(&self, lab: &Lab, bound: Duration) -> anyhow::Result<Row> {
        let name = "plain TCP (CUBIC)";
        let arrived = AtomicU64::new(0);
        let moved = || Bytes(arrived.load(Ordering::Relaxed));
        let bar = Bar::new(name, self.total);
        let start = net::clock::now();
        let sent = tokio::select! {
            sent = tokio::time::timeout(bound, plain::send(lab, self.source, &arrived)) => sent,
            never = bar.follow(moved) => never,
        };
        let time = net::clock::now().since(start);
        let finished = sent.is_ok();
        sent.unwrap_or(Ok(())).context("plain TCP failed")?;
        let row =
            Row { name: name.to_owned(), moved: moved(), time, finished, note: String::new() };
        bar.finish(&row);
        Ok(row)
    }

    /// One `longhaul cp`. What arrived whole must be what was sent.
    async fn by_cp(&self, ride: &Ride, name: &str) -> anyhow::Result<Row> {
        let row = ride.run(self.site, self.server, self.source, self.total, name).await?;
        if row.finished {
            let (sent, received) = (self.source.to_owned(), self.server.root.join(name));
            let compared = spawn_blocking(move || tree::compare(&sent, &received)).await?;
            compared
                .with_context(|| format!("{}: what arrived is not what was sent", ride.name))?;
        }
        Ok(row)
    }
}

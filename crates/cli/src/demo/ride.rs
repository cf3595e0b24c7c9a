//! One crossing by `longhaul cp`, in a process of its own, watched through its `--json`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use emulator::Host;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::process::Signal;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::ChildStdout;
use units::Bytes;

use super::site::{Server, Site};
use super::table::Row;
use crate::signals::Group;

/// How often a bar is drawn.
const TICK: Duration = Duration::from_millis(200);

/// A way to cross.
pub struct Ride {
    /// What the table calls it.
    pub name: String,
    /// Flags of `longhaul cp`.
    pub arguments: Vec<String>,
    /// The most it may take.
    pub bound: Option<Duration>,
}

/// What `longhaul cp --json` says, as far as it matters here.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Start {},
    Progress { bytes: u64 },
    Done { bytes: u64, limited_by: LimitedBy },
    Stopped { bytes: u64 },
    Error { message: String },
}

#[derive(Debug, Deserialize)]
struct LimitedBy {
    words: String,
}

impl Ride {
    /// Moves `source` to the directory `name` of the server, until done or its time is up.
    pub async fn run(
        &self,
        site: &Site,
        server: &Server,
        source: &Path,
        total: Bytes,
        name: &str,
    ) -> anyhow::Result<Row> {
        let mut command = site.longhaul(Host::Near)?;
        command
            .args(["cp", "--json", "--no-remember", "--key"])
            .arg(&server.key)
            .args(&self.arguments);
        command.arg(source).arg(format!("lh://{}/{name}", server.address));
        // Its words come as JSON too.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let bar = Bar::new(&self.name, total);
        let start = net::clock::now();
        let mut process = Group::spawn(command, false).context("cannot start longhaul cp")?;
        let stdout = process.child().stdout.take().context("longhaul cp has no output")?;
        let mut events = BufReader::new(stdout).lines();
        let last = {
            let watching = watch(&mut events, &bar);
            match self.bound {
                Some(bound) => tokio::time::timeout(bound, watching).await.ok().transpose()?,
                None => Some(watching.await?),
            }
        };
        let (time, last) = match last {
            Some(event) => (net::clock::now().since(start), event),
            None => {
                let time = net::clock::now().since(start);
                let (_, last) = tokio::join!(process.end(Signal::INT), watch(&mut events, &bar));
                (time, last?)
            }
        };
        let (moved, finished, note) = match last {
            Event::Done { bytes, limited_by } => (bytes, true, limited_by.words),
            Event::Stopped { bytes } => (bytes, false, String::new()),
            Event::Error { message } => bail!("{}: {message}", self.name),
            event => bail!("{}: ended after {event:?}", self.name),
        };
        let row = Row { name: self.name.clone(), moved: Bytes(moved), time, finished, note };
        bar.finish(&row);
        Ok(row)
    }
}

/// Follows the events to the last.
async fn watch(events: &mut Lines<BufReader<ChildStdout>>, bar: &Bar) -> anyhow::Result<Event> {
    let mut last = Event::Start {};
    while let Some(line) = events.next_line().await? {
        last = serde_json::from_str(&line).with_context(|| format!("not understood: {line}"))?;
        if let Event::Progress { bytes } = last {
            bar.set(Bytes(bytes));
        }
    }
    Ok(last)
}

/// A bar on a terminal; without one, a line when the way has been gone.
pub struct Bar(ProgressBar);

impl Bar {
    /// Begins at nothing.
    pub fn new(name: &str, total: Bytes) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total.0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(
            "  {prefix:19} [{bar:25}] {binary_bytes:>11} {elapsed:>4}  {binary_bytes_per_sec}",
        );
        bar.set_style(style.expect("a constant template is valid").progress_chars("=> "));
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(TICK);
        Self(bar)
    }

    /// So much has arrived.
    pub fn set(&self, arrived: Bytes) {
        self.0.set_position(arrived.0);
    }

    /// Follows `arrived` until dropped.
    pub async fn follow(&self, arrived: impl Fn() -> Bytes) -> ! {
        loop {
            self.set(arrived());
            tokio::time::sleep(TICK).await;
        }
    }

    /// Leaves a line that stays.
    pub fn finish(self, row: &Row) {
        self.0.finish_and_clear();
        tell!("  {row}");
    }
}

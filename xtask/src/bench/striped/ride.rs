//! One copy over striped TCP, and what its `--json` told.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::lab::{Bed, Crossing};
use super::super::verdict;

/// A file of the far host fetched by the near one.
#[derive(Clone, Default)]
pub struct Ride<'a> {
    /// Options of `longhaul emulate` that say what the path is like.
    pub path: &'a str,
    /// Shell commands on the near host before it connects.
    pub prepare: &'a str,
    /// Options of `longhaul serve`.
    pub serve: &'a str,
    /// Options of `longhaul cp`.
    pub copy: String,
    /// By FTP, at port 2121.
    pub by_ftp: bool,
    /// Runs beside the copy on the near host, and is killed at its end.
    pub beside: &'a str,
    /// Runs beside the server.
    pub far_beside: &'a str,
    /// Stopped after so many seconds; 0 to wait for its end.
    pub seconds: u64,
}

/// What was told in the middle.
pub struct Point {
    /// Since the start.
    pub seconds: f64,
    /// That had arrived.
    pub bytes: f64,
    /// Connections.
    pub streams: u64,
}

/// What was told of a ride.
pub struct Told {
    /// When it was connected and logged in, of the same clock as the points; a second early at most.
    pub begun: f64,
    /// A point a second.
    pub points: Vec<Point>,
    /// The last line, when everything had arrived and was verified.
    pub done: Option<Value>,
    /// Whether the emulator kept up.
    pub faithful: bool,
}

/// Whether a goal is reached by runs that can be believed.
pub fn judged(reached: bool, faithful: bool) -> String {
    let doubt = if faithful { "" } else { ", emulator NOT faithful" };
    format!("{}{doubt}", verdict(reached && faithful))
}

/// What a run gives, and whether the emulator kept up; if it did not, of another run.
pub fn believed<T>(run: impl Fn() -> Result<(T, bool)>) -> Result<(T, bool)> {
    let first = run()?;
    if first.1 {
        return Ok(first);
    }
    eprintln!("the emulator did NOT keep up: once more");
    run()
}

impl Ride<'_> {
    /// Fetches `file`, which the bed's source holds; once more if the emulator did not keep up.
    pub fn run(&self, bed: &Bed, seed: u64) -> Result<Told> {
        let (told, _) = believed(|| {
            let told = self.once(bed, seed)?;
            let faithful = told.faithful;
            Ok((told, faithful))
        })?;
        Ok(told)
    }

    fn once(&self, bed: &Bed, seed: u64) -> Result<Told> {
        let (binary, key) = (bed.binary().display(), bed.key());
        let to = tempfile::tempdir_in(bed.folder())?;
        let path: Vec<_> = self.path.split(' ').collect();
        let limit = match self.seconds {
            0 => String::new(),
            seconds => format!("timeout -s INT {seconds} "),
        };
        let from = match self.by_ftp {
            true => "--ftp-no-tls ftp://$LONGHAUL_FAR:2121".to_owned(),
            false => {
                format!("--no-remember --transport tcp --key {} lh://$LONGHAUL_FAR", key.display())
            }
        };
        let near = format!(
            "{{ {prepare}; sleep 0.5; }} >&2; {{ {beside}; }} >&2 & beside=$!; printf '['; {limit}{binary} cp --json \
             {copy} {from}/file {to}/ | \
             sed 's/$/,/'; printf 'null]'; kill $beside || :",
            prepare = or_nothing(self.prepare),
            beside = or_nothing(self.beside),
            copy = self.copy,
            to = to.path().display(),
        );
        let far = format!(
            "{{ {}; }} & exec {binary} serve --quiet --no-remember {} --key {} --root {}",
            or_nothing(self.far_beside),
            self.serve,
            key.display(),
            bed.source().display(),
        );
        let crossing =
            Crossing { path: &path, congestion_control: "cubic", seed: Some(seed), far, near };
        let (events, report) = crossing.run(bed.build())?;
        let events: Vec<Value> = serde_json::from_value(events)?;
        let last = events.iter().rev().find(|event| event.is_object());
        let last = last.with_context(|| format!("nothing was told by `{}`", crossing.near))?;
        ensure!(last["event"] != "error", "{}: {}", self.copy, last["message"]);
        let told = events.iter().filter(|event| event["event"] == "progress");
        let before = events.iter().take_while(|event| event["event"] != "start");
        let begun = before.filter_map(|event| event["seconds"].as_f64()).last().unwrap_or(0.0);
        let number = |event: &Value, name: &str| event[name].as_f64().context("no figure");
        let points = told.map(|event| {
            let (seconds, bytes) = (number(event, "seconds")?, number(event, "bytes")?);
            Ok(Point { seconds, bytes, streams: event["streams"].as_u64().unwrap_or(0) })
        });
        Ok(Told {
            begun,
            faithful: report["faithful"] == true,
            points: points.collect::<Result<_>>()?,
            done: (last["event"] == "done").then(|| last.clone()),
        })
    }
}

/// A shell command, which must not be empty.
fn or_nothing(command: &str) -> &str {
    if command.is_empty() { ":" } else { command }
}

impl Told {
    /// Bytes a second from a time to the end.
    pub fn rate_from(&self, seconds: f64) -> f64 {
        let mut late = self.points.iter().filter(|point| point.seconds >= seconds);
        let Some((first, last)) = late.next().zip(self.points.last()) else { return 0.0 };
        (last.bytes - first.bytes) / (last.seconds - first.seconds).max(f64::EPSILON)
    }

    /// The most connections from a time to the end.
    pub fn streams_from(&self, seconds: f64) -> u64 {
        let late = self.points.iter().filter(|point| point.seconds >= seconds);
        late.map(|point| point.streams).max().unwrap_or(0)
    }
}

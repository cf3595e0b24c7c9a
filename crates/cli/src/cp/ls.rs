//! `longhaul ls`: what a directory on another host holds.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::ArgMatches;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use transfer::wire::Terms;
use transfer::{Listed, ListedKind, printable};
use units::Bytes;

use super::plan::{Request, far};
use super::show::Verdict;
use super::{Job, carry_out, check_given, terms};
use crate::address::Location;
use crate::args::{Ls, usage};

/// What is below the directories of a directory, as in a `.gitignore`.
const BELOW: &str = "/*/*";

/// `longhaul ls`.
pub fn ls(options: Ls, given: &ArgMatches) -> anyhow::Result<ExitCode> {
    let Ls { place, recursive, way } = options;
    check_given(given, [&place].into_iter());
    let found = match &place {
        Location::Ftp(_) => Err("ls speaks no FTP: use `longhaul ftp HOST`".to_owned()),
        place => far(place),
    };
    let found = found.unwrap_or_else(|message| usage("ls", &message));
    let here =
        "that is here: ls lists what is on another host, [USER@]HOST:PATH or lh://HOST[:PORT]/PATH";
    let (far, source) = found.unwrap_or_else(|| usage("ls", here));
    let mut terms = Terms { rehearses: true, ..terms(&way) };
    terms.patterns.extend((!recursive).then(|| BELOW.to_owned()));
    carry_out("ls", far, vec![Request::List { source }], way, terms, Verdict::Listed)
}

/// Tells what was found.
pub fn tell(job: &Job, listed: &[Listed]) {
    for one in listed {
        if job.options.output.json {
            job.emit(&object(one));
        } else {
            say!("{}", line(one, &TimeZone::system()));
        }
    }
}

/// As people read it: the time to the minute, in this place's zone.
fn line(listed: &Listed, zone: &TimeZone) -> String {
    let Listed { path, kind, modified, .. } = listed;
    let time = Timestamp::new(modified.seconds, modified.nanos as i32);
    let time = time.map(|time| time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M").to_string());
    let time = time.unwrap_or_else(|_| "at no known time".to_owned());
    let name = shown(path.as_bytes());
    let (size, name) = match kind {
        ListedKind::Directory => ("-".to_owned(), format!("{name}/")),
        ListedKind::File(bytes) => (Bytes(*bytes).to_string(), name),
        ListedKind::Symlink(target) => ("-".to_owned(), format!("{name} -> {}", shown(target))),
    };
    format!("{time:16}  {size:>10}  {name}")
}

/// A name from the other side, which may hold anything.
fn shown(name: &[u8]) -> String {
    printable(&OsStr::from_bytes(name).to_string_lossy())
}

/// For programs.
fn object(listed: &Listed) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (kind, bytes, target) = match &listed.kind {
        ListedKind::Directory => ("directory", None, None),
        ListedKind::File(bytes) => ("file", Some(*bytes), None),
        ListedKind::Symlink(target) => ("symlink", None, Some(text(target))),
    };
    json!({
        "event": "entry",
        "path": text(listed.path.as_bytes()),
        "kind": kind,
        "bytes": bytes,
        "modified": listed.modified.seconds as f64 + f64::from(listed.modified.nanos) / 1e9,
        "mode": listed.mode,
        "target": target,
    })
}

#[cfg(test)]
mod tests {
    use transfer::RelPath;
    use transfer::wire::Modified;

    use super::*;

    #[test]
    fn a_line_tells_time_size_and_name() {
        let of = |name: &str, kind, seconds| {
            let path = RelPath::new(name.into()).unwrap();
            let modified = Modified { seconds, nanos: 0 };
            line(&Listed { path, kind, mode: 0o644, modified }, &TimeZone::UTC)
        };
        let file = of("a b", ListedKind::File(1_500_000), 1_000_000_000);
        assert_eq!(file, format!("2001-09-09 01:46  {:>10}  a b", Bytes(1_500_000).to_string()));
        assert!(of("d", ListedKind::Directory, 0).ends_with("  d/"));
        assert!(of("l", ListedKind::Symlink(b"to\n".into()), -1).ends_with("  l -> to\u{fffd}"));
        assert!(of("x", ListedKind::File(0), i64::MAX).starts_with("at no known time  "));
    }
}

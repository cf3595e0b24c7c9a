//! Copies between two far sides, which do not pass here: `longhaul cp` or `sync` is started on one of them, over
//! ssh, and copies to the other, or from it.

use std::cell::RefCell;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgMatches, Id};
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::ChildStdout;
use transfer::{Progress, printable};

use super::usage;
use crate::address::{Location, Login, OverSsh, Remote};
use crate::args::{Output, Way};
use crate::progress::{self, Meter};
use crate::signals::{self, Signals};
use crate::summary::Figures;
use crate::{PARTIAL, hosts, ssh};

/// Options that speak of this host: they go nowhere else.
const OF_THIS_HOST: [&str; 3] = ["rsh", "remote_path", "bootstrap"];
/// Options that name files of the host that copies.
const OF_FILES: [&str; 3] = ["path", "qlog", "manifest"];
/// Bytes of the longest line, which tells of all notes, at most.
const LINE_MAX: u64 = 32 << 20;
/// Bytes of a line that is no event, as it is shown.
const WORDS_MAX: usize = 1024;

/// The host that is to copy, and the locations as it is to be told of them, if neither is this host.
/// Refuses what no single host can do.
pub fn elsewhere(
    sources: &[Location],
    destination: &Location,
) -> Result<Option<(Login, Vec<String>)>, String> {
    let here = |login: &Login, location: &Location| match location {
        Location::Ssh(OverSsh { login: other, path }) if other == login => path.to_str().map(local),
        Location::Ssh(OverSsh { path, .. }) | Location::Remote(Remote { path, .. }) => {
            path.to_str().map(|_| location.to_string())
        }
        other => Some(other.to_string()),
    };
    let Some(to) = host(destination) else { return Ok(None) };
    let Some(from) = sources.iter().map(host).collect::<Option<Vec<_>>>() else { return Ok(None) };
    // Who has the files pushes them, if ssh leads there.
    let hosts = sources.iter().chain([destination]);
    let login = hosts.clone().find_map(|location| match location {
        Location::Ssh(OverSsh { login, .. }) => Some(login.clone()),
        _ => None,
    });
    let Some(login) = login else { return Ok(None) };
    if let Some(other) = from.iter().find(|host| **host != from[0]) {
        return Err(format!("sources on {} and on {other}: copy from one at a time", from[0]));
    }
    if from[0] == to {
        return Err(format!("both sides are on {to}: copy there with its own cp, over ssh"));
    }
    let words = hosts.map(|location| {
        let is_odd = || format!("between two far sides names are UTF-8, and {location} is not");
        here(&login, location).ok_or_else(is_odd)
    });
    let words = words.collect::<Result<_, _>>()?;
    Ok(Some((login, words)))
}

/// Which far host something is on.
fn host(location: &Location) -> Option<String> {
    match location {
        Location::Ssh(OverSsh { login, .. }) => Some(login.0.clone()),
        Location::Remote(Remote { server, .. }) => Some(server.to_string()),
        Location::Local(_) | Location::Ftp(_) => None,
    }
}

/// A path that is read as one there, whatever it looks like.
fn local(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("./{path}"),
    }
}

/// Has the copy made there, by the same command with the given options, and shows how it goes; one that is
/// only to say what it would do `speaks` for itself.
pub fn run(
    way: &Way,
    given: &ArgMatches,
    login: &Login,
    locations: Vec<String>,
    speaks: bool,
) -> anyhow::Result<ExitCode> {
    let (name, given) = given.subcommand().context("no command is given")?;
    if let Some(option) = OF_FILES.iter().find(|id| hosts::is_given(given, &Id::from(**id))) {
        let option = option.replace("path", "key");
        usage(name, &format!("--{option} names a file here, and the copy is made on {}", login.0));
    }
    if way.ssh.bootstrap {
        usage(name, "--bootstrap does not go between two far sides: copy something there first");
    }
    let mut words = vec![name.to_owned(), "--until-eof".to_owned()];
    words.extend(again(name, given));
    if !way.output.json && !speaks {
        words.push("--json".to_owned());
    }
    words.push("--".to_owned());
    words.extend(locations);
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let mut command = ssh::command(login, &way.ssh, &ssh::longhaul(&way.ssh, &words));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start ssh")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.context("ssh has no pipes")?;
        let mut heard = Heard::default();
        let signal = tokio::select! {
            () = follow(way.output, stdout, &mut heard) => None,
            signal = signals.next() => Some(signal),
        };
        // The copy there ends with its standard input.
        drop(stdin);
        let ended = tokio::time::timeout(ssh::GRACE, child.wait()).await;
        if let Some(signal) = signal {
            return Ok(stopped(signal));
        }
        let Ok(status) = ended else {
            let message = || format!("ssh to {} does not end", login.0);
            return heard.done.map(ExitCode::from).with_context(message);
        };
        let status = status.context("cannot wait for ssh")?;
        match heard {
            _ if !ssh::is_no_copy(status) => Ok(ExitCode::from(signals::exit_code(status))),
            Heard { done: Some(code), .. } => Ok(ExitCode::from(code)),
            Heard { begun: true, .. } => {
                bail!("the ssh session to {} was lost; the same command goes on", login.0)
            }
            Heard { begun: false, .. } => Err(ssh::why_not(status, login, &way.ssh)),
        }
    })
}

/// What the copy there has said.
#[derive(Default)]
struct Heard {
    /// Anything.
    begun: bool,
    /// That it is done, and with which exit code.
    done: Option<u8>,
}

impl Heard {
    fn hear(&mut self, event: &Value) {
        self.begun = true;
        if event["event"] == "done" {
            self.done = Some(if event["partial"] == true { PARTIAL } else { 0 });
        }
    }
}

fn stopped(signal: Signal) -> ExitCode {
    tell!("longhaul: stopped; the same command goes on from there");
    ExitCode::from(signals::code(signal))
}

/// The next line without its end, as text; a longer one comes in parts, and the end is none.
async fn line(reader: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    let read = reader.take(LINE_MAX).read_until(b'\n', &mut line).await.ok()?;
    (read > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Shows what the copy there says, to its end.
async fn follow(output: Output, stdout: ChildStdout, heard: &mut Heard) {
    let (progress, mut stdout) = (Progress::new(), BufReader::new(stdout));
    let figures = RefCell::new(Figures::default());
    let reading = async {
        while let Some(line) = line(&mut stdout).await {
            // A login may have words of its own.
            let Some(event) = serde_json::from_str(&line).ok().filter(Value::is_object) else {
                if !output.quiet {
                    tell!("{}", printable(&line[..line.floor_char_boundary(WORDS_MAX)]));
                }
                continue;
            };
            heard.hear(&event);
            match output.json {
                true => say!("{line}"),
                false => {
                    show(&event, &progress, output.quiet);
                    figures.replace_with(|before| told(&event).unwrap_or_else(|| before.clone()));
                }
            }
        }
    };
    // Only what is asked for as JSON is to be seen as such.
    let shown = Output { json: false, quiet: output.quiet || output.json, ..output };
    let meter = Meter::of_one(progress.clone());
    tokio::select! {
        () = reading => {}
        never = progress::show(shown, &meter, || figures.borrow().clone()) => never,
    }
}

fn show(event: &Value, progress: &Progress, quiet: bool) {
    let number = |name: &str| event[name].as_u64();
    if let (Some(bytes), Some(files)) = (number("bytes"), number("files")) {
        progress.set_bytes(bytes);
        progress.set_files(files);
    }
    if let (Some(files), Some(bytes)) = (number("files_total"), number("bytes_total")) {
        progress.set_totals(files, bytes);
    }
    if let Some(path) = event["current"].as_str() {
        progress.set_current(printable(path).as_bytes(), number("current_total"));
        progress.set_current_bytes(number("current_bytes").unwrap_or_default());
    }
    if quiet {
        return;
    }
    if let (Some(carrier), true) = (event["transport"].as_str(), event["event"] == "start") {
        tell!("longhaul: the copy goes over {}", printable(carrier));
    }
    if let Some(text) = event["summary"].as_str() {
        tell!("{}", printable(text));
    }
}

/// The figures of which the copy there tells, if this is about them.
fn told(event: &Value) -> Option<Figures> {
    if event["event"] != "progress" {
        return None;
    }
    let rtt = event["rtt_ms"].as_f64().map(|rtt| Duration::try_from_secs_f64(rtt / 1e3));
    Some(Figures {
        carrier: ["udp", "tcp", "ssh"].into_iter().find(|name| event["transport"] == **name),
        streams: event["streams"].as_u64().map(|streams| streams as usize),
        rtt: rtt.and_then(Result::ok),
        loss: event["loss"].as_f64(),
        said: event["limited_by"]["words"].as_str().map(printable),
        ..Figures::default()
    })
}

/// The options of this command once more, but for those of this host and the locations.
fn again(name: &str, given: &ArgMatches) -> Vec<String> {
    hosts::options_of(name, given, |_, option| !OF_THIS_HOST.contains(&option.get_id().as_str()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    fn asked(locations: &[&str]) -> Option<(String, Vec<String>)> {
        let locations: Vec<Location> = locations.iter().map(|text| text.parse().unwrap()).collect();
        let (destination, sources) = locations.split_last().unwrap();
        elsewhere(sources, destination).unwrap().map(|(login, words)| (login.0, words))
    }

    #[test]
    fn who_has_the_files_pushes_them_if_ssh_leads_there() {
        let expect = |host: &str, words: &[&str]| {
            Some((host.to_owned(), words.iter().map(|word| (*word).to_owned()).collect()))
        };
        assert_eq!(asked(&["a:x", "me@b:y/"]), expect("a", &["./x", "me@b:y/"]));
        assert_eq!(asked(&["a:x:1", "a:-n", "b:"]), expect("a", &["./x:1", "./-n", "b:."]));
        assert_eq!(asked(&["a:/x", "lh://b:80/y"]), expect("a", &["/x", "lh://b:80/y"]));
        assert_eq!(asked(&["lh://a/x", "b:y"]), expect("b", &["lh://a/x", "./y"]));
        for here in
            [&["a:x", "."][..], &["x", "b:y"], &["lh://a/x", "lh://b/y"], &["x", "a:x", "b:"]]
        {
            assert_eq!(asked(here), None, "{here:?}");
        }
    }

    #[test]
    fn what_no_single_host_can_do_is_refused() {
        let odd = OsString::from_vec(b"a:\xff".to_vec());
        let odd = Location::read(odd).unwrap();
        let said = elsewhere(&[odd], &"b:".parse().unwrap()).unwrap_err();
        assert!(said.contains("UTF-8"), "{said}");
        for (words, expected) in [
            (&["a:x", "a:y"][..], "both sides are on a"),
            (&["a:x", "b:y", "c:"], "sources on a and on b"),
            (&["a:x", "lh://b/y", "a:z"], "sources on a and on lh://b"),
        ] {
            let places: Vec<Location> = words.iter().map(|word| word.parse().unwrap()).collect();
            let (destination, sources) = places.split_last().unwrap();
            let said = elsewhere(sources, destination).unwrap_err();
            assert!(said.starts_with(expected), "{said}");
        }
    }

    #[tokio::test]
    async fn lines_are_bounded_and_need_not_be_text() {
        let mut said = &b"\xff\n{}\nend"[..];
        for expected in ["\u{fffd}", "{}", "end"] {
            assert_eq!(line(&mut said).await.as_deref(), Some(expected));
        }
        assert_eq!(line(&mut said).await, None);
        let endless = vec![b'x'; LINE_MAX as usize + 1];
        let mut endless = &endless[..];
        assert_eq!(line(&mut endless).await.map(|line| line.len() as u64), Some(LINE_MAX));
        assert_eq!(line(&mut endless).await.as_deref(), Some("x"));
    }

    #[test]
    fn the_bar_shows_what_the_other_host_tells() {
        let event = serde_json::json!({
            "event": "progress", "bytes": 10, "files": 1, "current": "a\u{1b}b", "current_bytes": 4,
            "transport": "tcp", "streams": 3, "rtt_ms": 12.5, "loss": 0.25,
            "limited_by": { "what": "loss", "words": "lo\u{1b}ss" },
        });
        let figures = told(&event).unwrap();
        assert_eq!((figures.carrier, figures.streams), (Some("tcp"), Some(3)));
        assert_eq!((figures.rtt, figures.loss), (Some(Duration::from_micros(12_500)), Some(0.25)));
        assert!(figures.said.is_some_and(|words| !words.contains('\u{1b}')));
        let progress = Progress::new();
        show(&event, &progress, true);
        assert_eq!((progress.sample().bytes, progress.sample().current_bytes), (10, 4));
        assert!(told(&serde_json::json!({ "event": "done" })).is_none());
    }

    #[test]
    fn options_go_along_but_for_those_of_this_host() {
        let words = ["longhaul", "cp", "-e", "ssh -A", "--exclude", "*.o", "--exclude", "a b"];
        let words = [&words[..], &["--no-compress", "--rate-limit=9mbit", "--json", "a:x", "b:y"]];
        let given = Cli::command().get_matches_from(words.concat());
        let mut again = again("cp", given.subcommand_matches("cp").unwrap());
        again.sort();
        let expected =
            ["--exclude=*.o", "--exclude=a b", "--json", "--no-compress", "--rate-limit=9mbit"];
        assert_eq!(again, expected);
    }
}

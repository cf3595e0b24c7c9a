//! Copies between two far sides, which do not pass here: `longhaul cp` is started on one of them, over ssh,
//! and copies to the other, or from it.

use std::process::{ExitCode, Stdio};

use anyhow::Context;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, CommandFactory};
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStdout;
use transfer::Progress;

use super::usage;
use crate::address::{Location, Login, OverSsh};
use crate::args::{Cli, Cp};
use crate::progress::{self, Meter};
use crate::signals::{self, Signals};
use crate::ssh;
use crate::summary::Figures;

/// Options that speak of this host: they go nowhere else.
const OF_THIS_HOST: [&str; 3] = ["rsh", "remote_path", "bootstrap"];
/// Options that name files of the host that copies.
const OF_FILES: [&str; 3] = ["path", "qlog", "manifest"];

/// The host that is to copy, and the locations as it is to be told of them, if neither is this host.
pub fn elsewhere(sources: &[Location], destination: &Location) -> Option<(Login, Vec<String>)> {
    let here = |login: &Login, location: &Location| match location {
        Location::Ssh(OverSsh { login: other, path }) if other == login => local(path),
        other => other.to_string(),
    };
    let is_far = |location: &Location| matches!(location, Location::Ssh(_) | Location::Remote(_));
    if !(sources.iter().all(is_far) && is_far(destination)) {
        return None;
    }
    // Who has the files pushes them, if ssh leads there.
    let hosts = sources.iter().chain([destination]);
    let login = hosts.clone().find_map(|location| match location {
        Location::Ssh(OverSsh { login, .. }) => Some(login.clone()),
        _ => None,
    })?;
    Some((login.clone(), hosts.map(|location| here(&login, location)).collect()))
}

/// A path that is read as one there, whatever it looks like.
fn local(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("./{path}"),
    }
}

/// Has the copy made there, and shows how it goes.
pub fn run(options: &Cp, login: &Login, locations: Vec<String>) -> anyhow::Result<ExitCode> {
    let way = &options.way;
    let given = Cli::command().get_matches();
    let given = given.subcommand_matches("cp").context("only cp goes between hosts")?;
    if let Some(option) = OF_FILES.iter().find(|id| is_given(given, id)) {
        let option = option.replace("path", "key");
        usage("cp", &format!("--{option} names a file here, and the copy is made on {}", login.0));
    }
    let mut words = vec!["cp".to_owned(), "--until-eof".to_owned()];
    words.extend(again(given));
    if !way.output.quiet && !way.output.json {
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
        let signal = tokio::select! {
            () = follow(options, stdout) => None,
            signal = signals.next() => Some(signal),
        };
        // The copy there ends with its standard input.
        drop(stdin);
        let ended = tokio::time::timeout(ssh::GRACE, child.wait()).await;
        match (signal, ended) {
            (Some(signal), _) => Ok(stopped(signal)),
            (None, Ok(status)) => {
                let status = status.context("cannot wait for ssh")?;
                if ssh::is_no_copy(status) {
                    return Err(ssh::why_not(status, login, &way.ssh));
                }
                Ok(ExitCode::from(signals::exit_code(status)))
            }
            (None, Err(_)) => anyhow::bail!("ssh to {} does not end", login.0),
        }
    })
}

fn stopped(signal: Signal) -> ExitCode {
    tell!("longhaul: stopped; the same command goes on from there");
    ExitCode::from(signals::code(signal))
}

/// Shows what the copy there says, to its end.
async fn follow(options: &Cp, stdout: ChildStdout) {
    let output = options.way.output;
    let (progress, mut lines) = (Progress::new(), BufReader::new(stdout).lines());
    let reading = async {
        while let Ok(Some(line)) = lines.next_line().await {
            match serde_json::from_str(&line) {
                Ok(event) if !output.json => show(&event, &progress, output.quiet),
                _ => say!("{line}"),
            }
        }
    };
    // Only what is asked for as JSON is to be seen as such.
    let shown = crate::args::Output { json: false, quiet: output.quiet || output.json, ..output };
    let meter = Meter::of_one(progress.clone());
    tokio::select! {
        () = reading => {}
        never = progress::show(shown, &meter, Figures::default) => never,
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
    if let (Some(text), false) = (event["summary"].as_str(), quiet) {
        tell!("{text}");
    }
}

fn is_given(given: &ArgMatches, id: &str) -> bool {
    let known = given.ids().any(|known| known.as_str() == id);
    known && given.value_source(id) == Some(ValueSource::CommandLine)
}

/// The options of this command once more, but for those of this host and the locations.
fn again(given: &ArgMatches) -> Vec<String> {
    let command = Cli::command();
    let cp = command.find_subcommand("cp").expect("it is a command");
    let options = cp.get_arguments().filter(|option| !option.is_positional());
    let mut words = Vec::new();
    for option in options.filter(|option| is_given(given, option.get_id().as_str())) {
        let (id, long) = (option.get_id().as_str(), option.get_long().unwrap_or_default());
        let values = given.get_raw(id).into_iter().flatten();
        match option.get_action() {
            _ if OF_THIS_HOST.contains(&id) => {}
            ArgAction::SetTrue => words.push(format!("--{long}")),
            _ => words.extend(values.map(|value| format!("--{long}={}", value.to_string_lossy()))),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(locations: &[&str]) -> Option<(String, Vec<String>)> {
        let locations: Vec<Location> = locations.iter().map(|text| text.parse().unwrap()).collect();
        let (destination, sources) = locations.split_last().unwrap();
        elsewhere(sources, destination).map(|(login, words)| (login.0, words))
    }

    #[test]
    fn who_has_the_files_pushes_them_if_ssh_leads_there() {
        let expect = |host: &str, words: &[&str]| {
            Some((host.to_owned(), words.iter().map(|word| (*word).to_owned()).collect()))
        };
        assert_eq!(told(&["a:x", "me@b:y/"]), expect("a", &["./x", "me@b:y/"]));
        assert_eq!(told(&["a:x:1", "a:-n", "b:"]), expect("a", &["./x:1", "./-n", "b:."]));
        assert_eq!(told(&["a:/x", "lh://b:80/y"]), expect("a", &["/x", "lh://b:80/y"]));
        assert_eq!(told(&["lh://a/x", "b:y"]), expect("b", &["lh://a/x", "./y"]));
        for here in
            [&["a:x", "."][..], &["x", "b:y"], &["lh://a/x", "lh://b/y"], &["x", "a:x", "b:"]]
        {
            assert_eq!(told(here), None, "{here:?}");
        }
    }

    #[test]
    fn options_go_along_but_for_those_of_this_host() {
        let words = ["longhaul", "cp", "-e", "ssh -A", "--exclude", "*.o", "--exclude", "a b"];
        let words = [&words[..], &["--no-compress", "--rate-limit=9mbit", "--json", "a:x", "b:y"]];
        let given = Cli::command().get_matches_from(words.concat());
        let mut again = again(given.subcommand_matches("cp").unwrap());
        again.sort();
        let expected =
            ["--exclude=*.o", "--exclude=a b", "--json", "--no-compress", "--rate-limit=9mbit"];
        assert_eq!(again, expected);
    }
}

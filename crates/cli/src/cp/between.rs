//! Copies between two far sides, which do not pass here: `longhaul cp` or `sync` is started on one of them, over
//! ssh, and copies to the other, or from it.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, bail};
use clap::{ArgMatches, Id};

use super::follow::{Heard, failed, follow, stopped};
use super::show::fail;
use crate::address::{Location, Login, OverSsh, Remote};
use crate::args::{Way, usage};
use crate::signals::{self, Signals};
use crate::{hosts, ssh};

/// Options that speak of this host: they go nowhere else.
const OF_THIS_HOST: [&str; 3] = ["rsh", "remote_path", "bootstrap"];
/// The exit code of wrong usage.
const USAGE: u8 = 2;
/// Options that name files of the host that copies.
const OF_FILES: [&str; 3] = ["path", "qlog", "manifest"];

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
    if way.ssh.bootstrap.is_some() {
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
    let mut heard = Heard::default();
    let copied = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let mut command = ssh::command(login, &way.ssh, &ssh::longhaul(&way.ssh, &words));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start ssh")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.context("ssh has no pipes")?;
        let signal = tokio::select! {
            () = follow(way.output, stdout, &mut heard) => None,
            signal = signals.next() => Some(signal),
        };
        // The copy there ends with its standard input.
        drop(stdin);
        let ended = tokio::time::timeout(ssh::GRACE, child.wait()).await;
        if let Some(signal) = signal {
            return Ok(stopped(way.output, signal, &heard));
        }
        let Ok(status) = ended else {
            let message = || format!("ssh to {} does not end", login.0);
            return heard.done.map(ExitCode::from).with_context(message);
        };
        let status = status.context("cannot wait for ssh")?;
        match &heard {
            heard if !ssh::is_no_copy(status) => {
                let code = signals::exit_code(status);
                if !(heard.ended || matches!(code, 0 | USAGE)) {
                    let message = format!("longhaul ended there with exit code {code}");
                    fail(way.output, "error", &message, heard.bytes);
                }
                Ok(ExitCode::from(code))
            }
            Heard { done: Some(code), .. } => Ok(ExitCode::from(*code)),
            Heard { begun: true, .. } => {
                bail!("the ssh session to {} was lost; the same command goes on", login.0)
            }
            Heard { begun: false, .. } => Err(ssh::why_not(status, login, &way.ssh)),
        }
    });
    copied.inspect_err(|error| failed(way.output, error, &heard))
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

//! The user's own words for hosts: the file `hosts.toml` in LONGHAUL_HOME.
//!
//! ```toml
//! [lab]                                  # as in lh://lab/data and lab:data
//! address = "lab.example.org:7300"       # where lh://lab/ leads to, for probe and forward too
//! options = ["--transport=tcp", "--rate-limit=100mbit"]   # of every cp, sync and ls with it
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, anyhow};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches, Id};
use serde::Deserialize;

use crate::address::{Location, OverSsh, Remote, Server};
use crate::args::{Cli, Command};
use crate::cp::goes_between_servers;
use crate::keys::home;

/// What the file says, by name.
#[derive(Default)]
struct Hosts(BTreeMap<String, Host>);

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    address: Option<String>,
    #[serde(default)]
    options: Vec<String>,
}

/// Options of this file that say nothing where a server sends, which has its own.
const OF_SENDERS: [&str; 2] = ["cc", "background"];
/// What concerns ssh alone, and what alone our servers' keys.
const OF_SSH: [&str; 3] = ["rsh", "remote_path", "bootstrap"];
const OF_SERVERS: [&str; 2] = ["path", "accept_new"];
/// What concerns none but copies.
const OF_COPIES: [&str; 2] = ["schedule", "manifest"];

/// What is wrong with a table's name that has such in it: dots nest tables.
const QUOTED: &str = "a name with dots or colons stands in quotes, as in [\"lab.example.org\"]";

/// Reads the command line, with what the file says of the hosts that it names. Options of the command
/// line come after those of the file, and win. Gives what was read in clap's own form too.
pub fn parse() -> anyhow::Result<(Cli, ArgMatches)> {
    let words = Vec::from_iter(std::env::args_os());
    let mut given = Cli::command().get_matches_from(&words);
    let mut cli = Cli::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    let named = Vec::from_iter(locations(&mut cli.command).iter().filter_map(|place| host(place)));
    if named.is_empty() && servers(&mut cli.command).is_empty() {
        return Ok((cli, given));
    }
    let hosts = Hosts::load()?;
    let known = named.iter().filter_map(|name| hosts.0.get(name));
    let options = Vec::from_iter(known.flat_map(|host| host.options.iter().cloned()));
    if !options.is_empty() {
        (cli, given) = again(words, &options)?;
    }
    for server in servers(&mut cli.command) {
        hosts.resolve(server)?;
    }
    Ok((cli, given))
}

/// Parses once more, with these options behind the command's name, but for those that are idle here or
/// do not go with what was typed.
fn again(mut words: Vec<OsString>, options: &[String]) -> anyhow::Result<(Cli, ArgMatches)> {
    let why = |error: clap::Error| {
        let reason = error.to_string();
        let reason = reason.trim_start_matches("error: ").lines().next().unwrap_or_default();
        anyhow!("with the options {} of hosts.toml: {reason}", options.join(" "))
    };
    let read = |words: &[OsString]| {
        let given = Cli::command().try_get_matches_from(words)?;
        Ok((Cli::from_arg_matches(&given)?, given))
    };
    let (mut cli, typed) = read(&words).map_err(why)?;
    let (name, typed) = typed.subcommand().context("no command is given")?;
    let behind = 2.min(words.len());
    let places = [".", "."].into_iter().take(locations(&mut cli.command).len()).map(OsString::from);
    let of_file = words[..behind].iter().cloned().chain(options.iter().map(OsString::from));
    let (_, of_file) = read(&Vec::from_iter(of_file.chain(places))).map_err(why)?;
    let (_, of_file) = of_file.subcommand().context("no command is given")?;
    let places = locations(&mut cli.command);
    let are_servers = places.iter().all(|place| matches!(place, Location::Remote(_)));
    let is_of_servers = places.len() > 1 && are_servers;
    let idle = idle(&places);
    let kept = options_of(name, of_file, |cp, option| {
        let excludes = |one, other| {
            let others: Vec<&Arg> = cp.get_arg_conflicts_with(one);
            others.iter().any(|conflict| conflict.get_id() == Arg::get_id(other))
        };
        let mut others = cp.get_arguments().filter(|other| is_given(typed, other.get_id()));
        let conflicts = others.any(|other| excludes(option, other) || excludes(other, option));
        let id = option.get_id().as_str();
        !conflicts && !idle.contains(&id) && (!is_of_servers || goes_between_servers(id))
    });
    words.splice(behind..behind, kept.into_iter().map(OsString::from));
    read(&words).map_err(why)
}

/// Options that say nothing to any of these places, and what they go with.
pub fn strange<'a>(
    places: impl Iterator<Item = &'a Location> + Clone,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let has_ssh = places.clone().any(|place| matches!(place, Location::Ssh(_)));
    let has_server = places.clone().any(|place| matches!(place, Location::Remote(_)));
    let of_ssh = OF_SSH.map(|id| (id, "[USER@]HOST:PATH")).into_iter();
    let of_servers =
        OF_SERVERS.map(|id| (id, "lh://; beside ssh, that knows who is who")).into_iter();
    of_ssh.filter(move |_| !has_ssh).chain(of_servers.filter(move |_| !has_server))
}

/// Options that do not concern a copy between these places, the last of which is the destination.
fn idle(places: &[&mut Location]) -> Vec<&'static str> {
    let [sources @ .., destination] = places else { return Vec::new() };
    let strange = strange(places.iter().map(|place| &**place)).map(|(id, _)| id);
    // A single place is asked for names alone.
    if sources.is_empty() {
        return strange.chain(OF_SENDERS).chain(OF_COPIES).collect();
    }
    let is_near = |place: &Location| matches!(place, Location::Local(_));
    let from_server = sources.iter().all(|source| matches!(source, Location::Remote(_)));
    let is_between = !is_near(destination) && !sources.iter().any(|place| is_near(place));
    let senders = OF_SENDERS.into_iter().filter(|_| from_server);
    strange.chain(senders).chain(is_between.then_some("bootstrap")).collect()
}

/// Whether an option stands in the words.
pub fn is_given(given: &ArgMatches, id: &Id) -> bool {
    given.ids().any(|known| known == id)
        && given.value_source(id.as_str()) == Some(ValueSource::CommandLine)
}

/// The words for those given options of a command that are to be kept.
pub fn options_of(
    name: &str,
    given: &ArgMatches,
    is_kept: impl Fn(&clap::Command, &Arg) -> bool,
) -> Vec<String> {
    let mut all = Cli::command();
    all.build();
    let command = all.find_subcommand(name).expect("it is a command");
    let options = command.get_arguments().filter(|option| !option.is_positional());
    let mut words = Vec::new();
    for option in options.filter(|option| is_given(given, option.get_id())) {
        let (id, long) = (option.get_id().as_str(), option.get_long().unwrap_or_default());
        let values = given.get_raw(id).into_iter().flatten();
        match option.get_action() {
            _ if !is_kept(command, option) => {}
            ArgAction::SetTrue => words.push(format!("--{long}")),
            _ => words.extend(values.map(|value| format!("--{long}={}", value.to_string_lossy()))),
        }
    }
    words
}

fn locations(command: &mut Command) -> Vec<&mut Location> {
    match command {
        Command::Cp(cp) => cp.sources.iter_mut().chain([&mut cp.destination]).collect(),
        Command::Sync(sync) => vec![&mut sync.source, &mut sync.destination],
        Command::Ls(ls) => vec![&mut ls.place],
        _ => Vec::new(),
    }
}

/// The servers of a command, by whose names they may be known here.
fn servers(command: &mut Command) -> Vec<&mut Server> {
    match command {
        Command::Probe(probe) => vec![&mut probe.server],
        Command::Forward(forward) => vec![&mut forward.remote.server],
        command => {
            let places = locations(command).into_iter();
            let server = |place| match place {
                &mut Location::Remote(Remote { ref mut server, .. }) => Some(server),
                _ => None,
            };
            places.filter_map(server).collect()
        }
    }
}

/// The host's name, as the user typed it.
fn host(place: &Location) -> Option<String> {
    match place {
        Location::Remote(Remote { server, .. }) => Some(server.host.clone()),
        Location::Ssh(OverSsh { login, .. }) => Some(login.host().to_owned()),
        Location::Local(_) | Location::Ftp(_) => None,
    }
}

impl Hosts {
    /// The user's file; none is an empty one.
    fn load() -> anyhow::Result<Self> {
        // Whoever has no such folder has no such file.
        let Ok(folder) = home::folder() else { return Ok(Self::default()) };
        let path = folder.join("hosts.toml");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            other => other.with_context(|| format!("cannot read {}", path.display()))?,
        };
        Self::read(&text).with_context(|| path.display().to_string())
    }

    fn read(text: &str) -> anyhow::Result<Self> {
        toml::from_str(text).map(Self).map_err(|error| {
            let begin = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text[..begin].rfind('\n').map_or(text, |end| &text[end + 1..]);
            let line = line.lines().next().unwrap_or_default();
            let is_bare = line.starts_with('[') && line.contains(['.', ':']) && !line.contains('"');
            let error = anyhow::Error::from(error);
            if is_bare { error.context(QUOTED) } else { error }
        })
    }

    /// Puts a server's address in the place of its name. A port on the command line wins.
    fn resolve(&self, server: &mut Server) -> anyhow::Result<()> {
        let Some(address) = self.0.get(&server.host).and_then(|host| host.address.as_ref()) else {
            return Ok(());
        };
        let found: Server =
            address.parse().map_err(|why| anyhow!("hosts.toml, {}: {why}", server.host))?;
        let port = if server.is_usual_port() { found.port } else { server.port };
        *server = Server { port, ..found };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const FILE: &str = "[lab]\naddress = \"lab.example.org:7300\"\n\
                        [slow]\noptions = [\"--rate-limit=9mbit\", \"--exclude=*.o\"]\n";

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_name_stands_for_an_address() {
        let hosts = Hosts::read(FILE).unwrap();
        for (typed, meant) in [
            ("cp lh://lab/x .", "lab.example.org:7300"),
            ("sync . lh://lab:80/x", "lab.example.org:80"),
            ("cp lh://other/x .", "other"),
            ("probe lab", "lab.example.org:7300"),
            ("forward 80 lh://lab/web:80", "lab.example.org:7300"),
        ] {
            let mut cli = Cli::try_parse_from(words(&format!("longhaul {typed}"))).unwrap();
            let [server] = &mut servers(&mut cli.command)[..] else { panic!("{typed}") };
            hosts.resolve(server).unwrap();
            assert_eq!(**server, meant.parse().unwrap(), "{typed}");
        }
        let mut over_ssh = Cli::try_parse_from(words("longhaul cp lab:x .")).unwrap();
        assert!(servers(&mut over_ssh.command).is_empty(), "ssh has a file of its own");
        let read = |name: &str, key: &str| {
            Hosts::read(&format!("[other]\n[{name}]\n{key} = \"lab.example.org\"\n"))
        };
        let slip = read("lab", "adress").err().expect("a slip of the pen is told").to_string();
        assert!(!slip.contains("quotes"), "{slip}");
        for name in ["lab.example.org", "2001:db8::1"] {
            let said = read(name, "address").err().unwrap().to_string();
            assert!(said.contains("quotes"), "{said}");
            assert!(read(&format!("\"{name}\""), "address").unwrap().0.contains_key(name));
        }
    }

    #[test]
    fn options_of_the_command_line_win() {
        let options = Hosts::read(FILE).unwrap().0.remove("slow").unwrap().options;
        let limit = |line: &str| match again(words(line), &options).unwrap().0.command {
            Command::Cp(cp) => (cp.way.sending.rate_limit, cp.way.filter.exclude),
            _ => panic!("it is another command"),
        };
        let (rate, excluded) = limit("longhaul cp --exclude=b a slow:");
        assert_eq!(rate, "9mbit".parse().ok());
        assert_eq!(excluded, ["*.o", "b"]);
        assert_eq!(limit("longhaul cp --rate-limit 3mbit a slow:").0, "3mbit".parse().ok());
        let wrong = again(words("longhaul cp a slow:"), &["--no-such".to_owned()]);
        assert!(wrong.err().unwrap().to_string().contains("--no-such"));
    }

    #[test]
    fn options_of_the_file_give_way_to_what_was_typed_and_to_what_is_done() {
        let kept = |line: &str, options: &[&str]| {
            let options = Vec::from_iter(options.iter().map(|option| (*option).to_owned()));
            let (_, given) = again(words(line), &options).unwrap();
            let (name, given) = given.subcommand().unwrap();
            options_of(name, given, |_, _| true)
        };
        let sender = ["--rate-limit", "9mbit", "--background", "-q", "--no-compress"];
        let received = ["--no-compress", "--rate-limit=9mbit", "--quiet"];
        assert_eq!(kept("longhaul cp lh://slow/a b", &sender), received);
        assert_eq!(kept("longhaul cp lh://slow/a b:", &sender), received);
        let fetched = ["--no-compress", "--background", "--rate-limit=9mbit", "--quiet"];
        assert_eq!(kept("longhaul sync slow:a b", &sender), fetched);
        let typed = kept("longhaul cp --cc cubic -v a slow:", &sender);
        assert_eq!(typed, ["--no-compress", "--cc=cubic", "--rate-limit=9mbit", "--verbose"]);
        assert_eq!(
            kept("longhaul cp --cc cubic slow:a b", &[]),
            ["--cc=cubic"],
            "a typed one stays"
        );
        assert!(kept("longhaul cp slow:a b:", &["--bootstrap"]).is_empty());
        let both = ["--rsh=ssh -A", "--accept-new"];
        assert_eq!(kept("longhaul cp a slow:", &both), both[..1]);
        assert_eq!(kept("longhaul cp a lh://slow/", &both), both[1..]);
        let once = ["--schedule=22:00-06:00", "--manifest=sums", "--background", "--quiet"];
        assert_eq!(kept("longhaul ls lh://slow/", &once), ["--quiet"]);
        let own = ["--streams=4", "--exclude=x"];
        assert_eq!(kept("longhaul sync lh://slow/a lh://b/a", &own), ["--exclude=x"]);
    }
}

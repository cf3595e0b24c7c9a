//! The user's own words for hosts: the file `hosts.toml` in LONGHAUL_HOME.
//!
//! ```toml
//! [lab]                                  # as in lh://lab/data and lab:data
//! address = "lab.example.org:7300"       # where lh://lab/ leads to
//! options = ["--transport=tcp", "--rate-limit=100mbit"]   # of every cp and sync with it
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, anyhow};
use clap::Parser;
use serde::Deserialize;

use crate::address::{Location, OverSsh, Remote, Server};
use crate::args::{Cli, Command};
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

/// Reads the command line, with what the file says of the hosts that it names. Options of the command
/// line come after those of the file, and win.
pub fn parse() -> anyhow::Result<Cli> {
    let mut cli = Cli::parse();
    let named = Vec::from_iter(locations(&mut cli).iter().filter_map(|place| host(place)));
    if named.is_empty() {
        return Ok(cli);
    }
    let hosts = Hosts::load()?;
    let known = named.iter().filter_map(|name| hosts.0.get(name));
    let options = Vec::from_iter(known.flat_map(|host| host.options.iter().cloned()));
    if !options.is_empty() {
        cli = again(std::env::args_os(), &options)?;
    }
    for place in locations(&mut cli) {
        hosts.resolve(place)?;
    }
    Ok(cli)
}

/// Parses once more, with these options behind the command's name.
fn again(words: impl Iterator<Item = OsString>, options: &[String]) -> anyhow::Result<Cli> {
    let mut words: Vec<OsString> = words.collect();
    let behind = 2.min(words.len());
    words.splice(behind..behind, options.iter().map(OsString::from));
    Cli::try_parse_from(words).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.trim_start_matches("error: ").lines().next().unwrap_or_default();
        anyhow!("with the options {} of hosts.toml: {reason}", options.join(" "))
    })
}

fn locations(cli: &mut Cli) -> Vec<&mut Location> {
    match &mut cli.command {
        Command::Cp(cp) => cp.sources.iter_mut().chain([&mut cp.destination]).collect(),
        Command::Sync(sync) => vec![&mut sync.source, &mut sync.destination],
        _ => Vec::new(),
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
        Ok(Self(toml::from_str(text)?))
    }

    /// Puts a server's address in the place of its name. A port on the command line wins.
    fn resolve(&self, place: &mut Location) -> anyhow::Result<()> {
        let Location::Remote(Remote { server, .. }) = place else { return Ok(()) };
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
    use super::*;

    const FILE: &str = "[lab]\naddress = \"lab.example.org:7300\"\n\
                        [slow]\noptions = [\"--rate-limit=9mbit\", \"--exclude=*.o\"]\n";

    fn words(line: &str) -> impl Iterator<Item = OsString> {
        line.split(' ').map(OsString::from)
    }

    #[test]
    fn a_name_stands_for_an_address() {
        let hosts = Hosts::read(FILE).unwrap();
        for (typed, meant) in [
            ("lh://lab/x", "lh://lab.example.org:7300/x"),
            ("lh://lab:80/x", "lh://lab.example.org:80/x"),
            ("lh://other/x", "lh://other/x"),
            ("lab:x", "lab:x"),
        ] {
            let mut place: Location = typed.parse().unwrap();
            hosts.resolve(&mut place).unwrap();
            assert_eq!(place.to_string(), meant);
        }
        assert!(Hosts::read("[lab]\nadress = \"x\"\n").is_err(), "a slip of the pen is told");
    }

    #[test]
    fn options_of_the_command_line_win() {
        let options = Hosts::read(FILE).unwrap().0.remove("slow").unwrap().options;
        let limit = |line: &str| match again(words(line), &options).unwrap().command {
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
}

//! What there is to copy, and which way.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use transfer::{Manifest, TransferId};

use crate::address::{Location, Login, OverSsh, Remote, Server};

/// One request to the far side.
pub enum Request {
    Put {
        sources: Vec<PathBuf>,
        destination: PathBuf,
    },
    Get {
        source: PathBuf,
        destination: PathBuf,
    },
    /// By a server, of what is below its root, as a client has it.
    Push {
        root: PathBuf,
        sources: Vec<PathBuf>,
        destination: PathBuf,
    },
    /// What comes from standard input.
    FromInput {
        destination: PathBuf,
    },
    /// One file, to standard output.
    ToOutput {
        source: PathBuf,
    },
    /// The names of what a directory holds.
    List {
        source: PathBuf,
    },
}

impl Request {
    pub fn sends(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::Push { .. } | Self::FromInput { .. })
    }

    /// The folder that its sources do not leave.
    pub fn below(&self) -> Option<PathBuf> {
        match self {
            Self::Push { root, .. } => Some(root.clone()),
            _ => None,
        }
    }

    /// Whether what went over a connection that is lost cannot go again, or need not.
    pub fn is_once(&self) -> bool {
        matches!(self, Self::FromInput { .. } | Self::ToOutput { .. } | Self::List { .. })
    }

    /// The same for the same command: by this the receiver knows what it has of it.
    pub fn id(&self, far: &Far, compares: bool) -> Option<TransferId> {
        let mut host = rustix::system::uname().nodename().to_bytes().to_vec();
        // Many hosts have the same name.
        host.extend(std::fs::read("/etc/machine-id").unwrap_or_default());
        let user = rustix::process::geteuid().as_raw().to_le_bytes().to_vec();
        // Where an absolute path cannot be had, nothing can be read or written either.
        let here = |path: &PathBuf| std::path::absolute(path).unwrap_or(path.clone()).into();
        let there = |path: &PathBuf| path.clone().into();
        let paths: Vec<OsString> = match self {
            Self::Put { sources, destination } => {
                sources.iter().map(here).chain([there(destination)]).collect()
            }
            Self::Push { root, sources, destination } => {
                [root].into_iter().chain(sources).chain([destination]).map(there).collect()
            }
            Self::Get { source, destination } => vec![there(source), here(destination)],
            Self::FromInput { .. } | Self::ToOutput { .. } | Self::List { .. } => return None,
        };
        let way = format!("{} {compares} {far:?}", self.sends()).into_bytes();
        let paths = paths.into_iter().map(OsString::into_encoded_bytes);
        let parts: Vec<_> = [host, user, way].into_iter().chain(paths).collect();
        Some(TransferId::of(parts.iter().map(Vec::as_slice)))
    }
}

/// Where the far side is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Far {
    Server(Server),
    Ssh(Login),
}

/// The far side that an argument names, and the path there.
pub fn far(location: &Location) -> Result<Option<(Far, PathBuf)>, String> {
    match location {
        Location::Local(_) => Ok(None),
        Location::Remote(Remote { server, path }) => {
            Ok(Some((Far::Server(server.clone()), path.into())))
        }
        Location::Ssh(OverSsh { login, path }) => Ok(Some((Far::Ssh(login.clone()), path.into()))),
        Location::Ftp(_) => Err("sync speaks no FTP: use cp".to_owned()),
    }
}

const EXAMPLE: &str =
    "one side is [USER@]HOST:PATH or lh://HOST[:PORT]/PATH, the other one is here";

/// Standard input or output.
const DASH: &str = "-";

/// Finds out which way to go: one request for all that is sent, or one for each thing to get.
pub fn plan(sources: &[Location], destination: &Location) -> Result<(Far, Vec<Request>), String> {
    let mut here = Vec::new();
    let mut there = Vec::new();
    for source in sources {
        match (source, far(source)?) {
            (Location::Local(path), _) => here.push(path.clone()),
            (_, found) => there.extend(found),
        }
    }
    let dash = Path::new(DASH);
    let is_dash = |location: &Location| matches!(location, Location::Local(path) if path == dash);
    if sources.len() > 1 && (sources.iter().any(is_dash) || is_dash(destination)) {
        return Err(
            "- is standard input or output: one file alone goes there or comes from it".into()
        );
    }
    match (destination, far(destination)?, there.first()) {
        (_, Some((far, destination)), None) if here == [dash] => {
            Ok((far, vec![Request::FromInput { destination }]))
        }
        (_, None, Some((far, source))) if is_dash(destination) => {
            Ok((far.clone(), vec![Request::ToOutput { source: source.clone() }]))
        }
        (_, Some((far, destination)), None) => {
            Ok((far, vec![Request::Put { sources: here, destination }]))
        }
        (Location::Local(destination), _, Some((first, _))) if here.is_empty() => {
            if there.iter().any(|(far, _)| far != first) {
                return Err("the sources are on several hosts: copy from one at a time".into());
            }
            let first = first.clone();
            let get = |(_, source)| Request::Get { source, destination: destination.clone() };
            Ok((first, there.into_iter().map(get).collect()))
        }
        (_, None, None) => Err(format!("nothing here is on another host: {EXAMPLE}")),
        (_, _, Some(_)) => Err(format!("sources on both sides: {EXAMPLE}")),
    }
}

/// Finds what is bound to fail before anybody is asked.
pub fn check(requests: &[Request], manifest: Option<&Path>) -> anyhow::Result<()> {
    if let Some(path) = manifest {
        Manifest::check(path)
            .with_context(|| format!("cannot write the manifest {}", path.display()))?;
    }
    for request in requests {
        match request {
            Request::Put { sources, .. } => {
                for source in sources {
                    source
                        .symlink_metadata()
                        .with_context(|| format!("cannot read {}", source.display()))?;
                }
            }
            Request::Get { destination, .. } => {
                let parent = destination.parent().filter(|path| !path.as_os_str().is_empty());
                let parent = parent.unwrap_or(Path::new("."));
                ensure!(
                    destination.is_dir() || parent.is_dir(),
                    "cannot write to {}: {} is no directory; make it first",
                    destination.display(),
                    parent.display()
                );
            }
            Request::Push { .. }
            | Request::FromInput { .. }
            | Request::ToOutput { .. }
            | Request::List { .. } => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(paths: &[&str]) -> Result<(Far, Vec<Request>), String> {
        let paths: Vec<Location> = paths.iter().map(|path| path.parse().unwrap()).collect();
        let (destination, sources) = paths.split_last().unwrap();
        plan(sources, destination)
    }

    #[test]
    fn both_directions_are_told_apart() {
        for host in ["lh://h/", "me@h:"] {
            let at = |path: &str| format!("{host}{path}");
            let (_, put) = planned(&["a", "b", &at("c/")]).ok().unwrap();
            assert!(matches!(&put[..], [Request::Put { sources, destination }]
                if sources.len() == 2 && destination.as_os_str() == "c/"));
            let (_, get) = planned(&[&at("a"), &at("b"), "c"]).ok().unwrap();
            assert!(get.len() == 2 && !get[0].sends());
        }
    }

    #[test]
    fn a_dash_is_standard_input_or_output() {
        let (_, from) = planned(&["-", "h:a"]).ok().unwrap();
        assert!(from[0].is_once() && from[0].sends());
        let (_, to) = planned(&["h:a", "-"]).ok().unwrap();
        assert!(to[0].is_once() && !to[0].sends());
        assert!(!planned(&["./-", "h:a"]).ok().unwrap().1[0].is_once());
    }

    #[test]
    fn what_goes_no_single_way_is_refused() {
        for paths in [
            &["a", "b"][..],
            &["lh://h/a", "lh://h/b"],
            &["a", "lh://h/a", "b"],
            &["lh://h/a", "lh://g/b", "c"],
            &["h:a", "g:b", "c"],
            &["h:a", "h:b"],
            &["ftp://h/a", "g:b", "c"],
            &["-", "a", "h:b"],
            &["h:a", "h:b", "-"],
            &["-", "-"],
        ] {
            assert!(planned(paths).is_err(), "{paths:?}");
        }
    }
}

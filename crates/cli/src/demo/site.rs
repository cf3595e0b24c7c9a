//! Where the demo happens, and the server at the far end of it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use emulator::{Host, Lab, LabOptions, LabReport, Relay};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::args::{Demo, PathOptions};
use crate::signals::Group;

/// Two hosts, or one with a relay.
pub enum Site {
    /// Network namespaces: everything can cross the path.
    Lab(Box<Lab>),
    /// The in-process path on loopback, for UDP alone.
    Loopback { reason: String },
}

impl Site {
    /// Builds a lab if that is allowed. To be called before any thread exists.
    pub fn open(options: &Demo) -> anyhow::Result<Self> {
        if options.loopback {
            return Ok(Self::Loopback { reason: "as asked for by --loopback".to_owned() });
        }
        let lab = emulator::init()
            .and_then(|_| Lab::start(&options.path.config(), &LabOptions::default()));
        match lab {
            Ok(lab) => Ok(Self::Lab(Box::new(lab))),
            Err(error) if error.is_not_permitted() => {
                Ok(Self::Loopback { reason: error.to_string() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// This very program, on one of the hosts.
    pub fn longhaul(&self, host: Host) -> io::Result<Command> {
        let program = std::env::current_exe()?;
        Ok(match self {
            Self::Lab(lab) => lab.command(host, program),
            Self::Loopback { .. } => Command::new(program),
        })
    }
}

/// `longhaul serve` at the far end.
pub struct Server {
    process: Group,
    /// In the loopback form the path lies in front of the server.
    relay: Option<Relay>,
    /// Where clients reach it, across the path.
    pub address: SocketAddr,
    /// What it serves.
    pub root: PathBuf,
    /// What it lets in.
    pub key: PathBuf,
}

impl Server {
    /// Starts it and waits until it listens.
    pub async fn start(
        site: &Site,
        path: &PathOptions,
        root: &Path,
        key: &Path,
    ) -> anyhow::Result<Self> {
        let mut command = site.longhaul(Host::Far)?;
        let listen = match site {
            Site::Lab(lab) => SocketAddr::new(lab.address(Host::Far), 0),
            Site::Loopback { .. } => SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        command
            .args(["serve", "--no-remember", "--listen", &listen.to_string(), "--root"])
            .arg(root);
        // Its input ends with this process, and so does the server, however this process ends.
        command.arg("--key").arg(key).arg("--until-eof");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Group::spawn(command, false).context("cannot start the server")?;
        let stdout = process.child().stdout.take().context("the server has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = lines.next_line().await?.unwrap_or_default();
        let listens = line.strip_prefix("listening on ").and_then(|rest| rest.split(' ').next());
        ensure!(listens.is_some(), "the server did not start");
        let address = listens.unwrap_or_default().parse()?;
        // What it tells of each request is of no interest here, but must not fill the pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let relay = match site {
            Site::Lab(_) => None,
            Site::Loopback { .. } => Some(Relay::start(&path.config(), address)?),
        };
        let address = relay.as_ref().map_or(address, Relay::address);
        let (root, key) = (root.to_owned(), key.to_owned());
        Ok(Self { process, relay, address, root, key })
    }

    /// Ends it, and says what the path did.
    pub async fn stop(self, site: &Site) -> anyhow::Result<LabReport> {
        self.process.end(Signal::TERM).await?;
        Ok(match (site, self.relay) {
            (Site::Lab(lab), _) => lab.stats(),
            (Site::Loopback { .. }, relay) => relay.map(Relay::stop).unwrap_or_default(),
        })
    }
}

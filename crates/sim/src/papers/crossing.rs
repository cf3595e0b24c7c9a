//! Runs of real programs across the emulator, as data: whoever has sockets and a clock carries them
//! out, and what they have shown is judged here like a simulation.

use core::time::Duration;

use path::PathConfig;
use units::Rate;

use super::preset;

/// A run across an emulated path.
#[derive(Clone, Debug)]
pub struct Crossing {
    /// The path.
    pub path: PathConfig,
    /// The largest packets of its hosts, in bytes.
    pub mtu: u32,
    /// What is not counted, at the beginning.
    pub before: Duration,
    /// What is counted then: steady state.
    pub counted: Duration,
    /// What crosses the path.
    pub load: Load,
}

/// What crosses a path.
#[derive(Clone, Debug)]
pub enum Load {
    /// A file.
    Fetch(Fetch),
    /// What a client and a server do whose networks the path joins.
    Pair(Pair),
}

/// `longhaul cp` on the near host fetches a file from `longhaul serve` on the far one.
#[derive(Clone, Debug, Default)]
pub struct Fetch {
    /// Options of `longhaul cp`, with spaces between them.
    pub cp: String,
    /// Options of `longhaul serve`.
    pub serve: String,
    /// The window of each TCP connection, and its segments, in bytes: the far host's kernel has as many
    /// whole segments under way.
    pub window: Option<(u32, u32)>,
    /// To what one of its connections is held from the third second on.
    pub slow: Option<Rate>,
    /// Files that are fetched beside the first.
    pub beside: usize,
    /// Whether a file of 16 MB is fetched whole, and then once more by what was remembered.
    pub twice: bool,
}

/// A client and a server, each in a network behind a router at its end of the path.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Whether the routers are a pair of gateways.
    pub gateways: bool,
    /// What both networks and hosts are like.
    pub lan: Lan,
    /// From the client to its router and back.
    pub domestic: Duration,
    /// What the two do.
    pub task: Task,
}

/// A network of hosts.
#[derive(Clone, Copy, Debug)]
pub struct Lan {
    /// What it is called.
    pub name: &'static str,
    /// The preset of the path between two of its kind.
    pub scenario: &'static str,
    /// The largest packets, in bytes.
    pub mtu: u32,
    /// The largest segments of its hosts, in bytes.
    pub segment: u32,
    /// Segments that a host has under way at most.
    pub window: u32,
    /// What it carries.
    pub rate: Rate,
}

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    /// Sends by so many connections of iperf3, the last of which may start later.
    Send(usize, Duration),
    /// Fetches so many bytes by curl from nginx.
    Web(u64),
    /// Fetches so many bytes by curl from vsftpd.
    Ftp(u64),
}

/// What a crossing has shown.
#[derive(Clone, Debug, Default)]
pub struct Crossed {
    /// Bit/s of payload while it was counted: of each connection of iperf3, or of each file.
    pub rates: Vec<f64>,
    /// TCP connections of each file: after the first second, and at most while it was counted.
    pub streams: Vec<[u64; 2]>,
    /// TCP connections that were written down for the next file; 0 if none were.
    pub stored: u64,
    /// Seconds that a whole file took.
    pub seconds: f64,
    /// The share of the packets from far to near that the path dropped.
    pub lost: f64,
    /// Why it shows the machine and not the path, if that is so.
    pub fault: Option<String>,
}

impl Crossed {
    /// Bit/s of all together.
    pub(super) fn rate(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// The same in Mbit/s.
    pub(super) fn mbps(&self) -> f64 {
        self.rate() / 1e6
    }

    /// The same in byte/s.
    pub(super) fn bytes(&self) -> f64 {
        self.rate() / 8.0
    }
}

impl Crossing {
    /// Programs that it needs beside our own.
    pub fn programs(&self) -> &'static [&'static str] {
        match &self.load {
            Load::Fetch(Fetch { slow: Some(_), .. }) => &["ip", "timeout", "tc", "ss", "awk"],
            Load::Fetch(_) => &["ip", "timeout"],
            Load::Pair(Pair { task, .. }) => match task {
                Task::Send(..) => &["ip", "tc", "nft", "timeout", "setpriv", "iperf3"],
                Task::Web(_) => &["ip", "tc", "nft", "timeout", "setpriv", "curl", "nginx"],
                Task::Ftp(_) => &["ip", "tc", "nft", "timeout", "setpriv", "curl", "vsftpd"],
            },
        }
    }

    /// Fixed counts of TCP connections, of hosts with this window and largest segment.
    pub(super) fn striped(
        path: PathConfig,
        count: usize,
        window: (u64, u64),
        (before, counted): (u64, u64),
    ) -> Self {
        let (bytes, segment) = (window.0 as u32, window.1 as u32);
        let (window, mtu) = (Some((bytes, segment)), 1500.max(segment + 40));
        let cp = format!("--transport tcp --streams {count}");
        let fetch = Fetch { cp, serve: RENO.to_owned(), window, ..Fetch::default() };
        let [before, counted] = [before, counted].map(Duration::from_secs);
        Self { path, mtu, before, counted, load: Load::Fetch(fetch) }
    }

    /// The same with its file fetched in another way.
    pub(super) fn changed(mut self, change: impl FnOnce(&mut Fetch)) -> Self {
        if let Load::Fetch(fetch) = &mut self.load {
            change(fetch);
        }
        self
    }

    /// A file by UDP, with options of both sides and of the one that sends.
    pub(super) fn by_udp(
        path: PathConfig,
        [both, sender]: [&str; 2],
        (before, counted): (u64, u64),
    ) -> Self {
        let (cp, serve) = (format!("--transport udp {both}"), format!("{both} {sender}"));
        let fetch = Fetch { cp, serve, ..Fetch::default() };
        let [before, counted] = [before, counted].map(Duration::from_secs);
        Self { path, mtu: 1500, before, counted, load: Load::Fetch(fetch) }
    }

    /// A client and a server of two such networks.
    pub(super) fn between(lan: Lan, gateways: bool, task: Task) -> Self {
        let pair = Pair { gateways, lan, domestic: Duration::ZERO, task };
        Self {
            path: preset(lan.scenario),
            mtu: lan.mtu,
            before: Duration::from_secs(4),
            counted: Duration::from_secs(20),
            load: Load::Pair(pair),
        }
    }
}

/// The papers' TCP; Linux would take another.
const RENO: &str = "--tcp-cc reno";

//! Runs of real programs across the emulator, as data: whoever has sockets and a clock carries them
//! out, and what they have shown is judged here like a simulation.

use core::time::Duration;

use path::{Counters, DropCause, PathConfig};
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
    /// With so many of its like at a time the emulator keeps up: the part of this machine that it
    /// takes.
    pub together: usize,
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
    /// Files that are fetched beside the first, each from a server of its own.
    pub beside: usize,
    /// What each server's own link to the path carries.
    pub access: Option<Rate>,
    /// A file of 16 MB is fetched whole, as fast as this by paper 1's equation, and then once more by what
    /// was remembered.
    pub twice: Option<Rate>,
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
    /// What was put on the path in the data's direction while it was counted, bit/s of packets.
    pub offered: f64,
    /// The share of these packets that the path dropped.
    pub lost: f64,
    /// The same without those that found its queue full.
    pub early: f64,
    /// Why it shows the machine and not the path, if that is so.
    pub fault: Option<String>,
}

impl Crossed {
    /// Notes what the path did in the data's direction from one look to a later one.
    pub fn count(&mut self, [from, to]: [(Duration, &Counters); 2]) {
        let packets = |of: fn(&Counters) -> u64| (of(to.1) - of(from.1)) as f64;
        let offered = packets(|it| it.offered.packets).max(1.0);
        let bits = 8.0 * packets(|it| it.offered.bytes.0);
        self.offered = bits / to.0.saturating_sub(from.0).as_secs_f64();
        let full = packets(|it| it.dropped(DropCause::Queue).packets);
        let lost =
            packets(|it| DropCause::ALL.iter().map(|&cause| it.dropped(cause).packets).sum());
        (self.lost, self.early) = (lost / offered, (lost - full) / offered);
    }

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

/// Labs of one kind at a time: of those with a whole 100 Mbit/s, of gateways and their hosts, of hosts
/// that windows hold to little, and of a T1 each.
const FAST: usize = 2;
const GATEWAYS: usize = 4;
const SLOW: usize = 8;
const T1: usize = 12;
/// What a T1 carries, and more.
const T1_RATE: Rate = Rate::from_bits_per_sec(2_000_000);

impl Crossing {
    /// Programs that it needs beside our own.
    pub fn programs(&self) -> &'static [&'static str] {
        match &self.load {
            Load::Fetch(Fetch { slow: Some(_), .. }) => &["ip", "timeout", "tc", "ss", "awk"],
            Load::Fetch(Fetch { access: Some(_), .. }) => &["ip", "timeout", "tc"],
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
        let together = if path.forward.rate < T1_RATE { T1 } else { SLOW };
        Self { path, mtu, before, counted, load: Load::Fetch(fetch), together }
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
        Self { path, mtu: 1500, before, counted, load: Load::Fetch(fetch), together: FAST }
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
            together: if gateways { GATEWAYS } else { SLOW },
        }
    }
}

/// The papers' TCP; Linux would take another.
const RENO: &str = "--tcp-cc reno";

#[cfg(test)]
mod tests {
    use path::QueueConfig;
    use units::{Bytes, Instant};

    use super::*;

    /// What a start has lost is no part of what is counted.
    #[test]
    fn drops_are_counted_from_one_look_to_the_other() {
        let queue = QueueConfig::DropTail(path::Limit::Packets(2));
        let path = PathConfig::new(Rate::from_bits_per_sec(8_000_000), Duration::ZERO);
        let (mut link, _) = path.with_queue(queue).links().expect("a valid path");
        let mut send = |from: u64, packets: u32, apart: Duration| {
            let start = Instant::ZERO + Duration::from_secs(from);
            for number in 0..packets {
                let now = start + apart * number;
                while link.poll(now).is_some() {}
                let _ = link.send(now, Bytes(1000), ());
            }
            *link.counters()
        };
        // A burst, of which all but one that is sent and two that wait are dropped; then a packet a
        // millisecond, which is the rate, and last again too many, of which three in four are dropped.
        let early = send(1, 100, Duration::ZERO);
        let steady = send(2, 1000, Duration::from_millis(1));
        let full = send(4, 4000, Duration::from_micros(250));
        let at = Duration::from_secs;
        let mut crossed = Crossed::default();
        crossed.count([(at(2), &early), (at(3), &steady)]);
        assert_eq!((crossed.lost, crossed.offered), (0.0, 8e6));
        crossed.count([(at(4), &steady), (at(5), &full)]);
        assert!((crossed.lost - 0.75).abs() < 0.01 && crossed.early == 0.0, "{crossed:?}");
    }
}

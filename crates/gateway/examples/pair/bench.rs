//! What gateways are worth on a long fat path: rates, fairness, isolation, and what they cost.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use emulator::{Host, Lab, LabOptions};
use gateway::Status;
use path::{DropCause, PathConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use units::Instant;

use crate::conformance::named;
use crate::contender::{Contender, Running};
use crate::failures;
use crate::figures::{Figures, Goal};
use crate::load::{Senders, Servers, WEIGHTS, open_many};
use crate::rates::{Look, Rates};
use crate::world::{CLIENT, NEAR, SERVER, World, missing};
use crate::{no_world, page};

/// Clock ticks a second in /proc (the kernel's USER_HZ).
const TICKS: f64 = 100.0;
/// Open files that are not ends of connections which stay open.
const SPARE_FILES: usize = 5000;
/// What is measured with each gateway.
const WORKLOADS: [&str; 7] = ["one", "eight", "weights", "stalled", "crowd", "new", "download"];
/// Readers that do not read, and the time that their buffers are given to fill.
const FILL: Duration = Duration::from_secs(6);
/// Their number.
const STALLED: usize = 100;
/// Connections whose shares are compared.
const CROWD: usize = 1000;
/// The most of which it is looked what was scheduled.
const FEW: usize = 8;
/// Time between two looks at what has just ended.
const BRIEFLY: Duration = Duration::from_millis(100);

/// What is measured, over which path.
#[derive(clap::Args)]
pub struct Options {
    /// The gateways, by turns: longhaul, none, haproxy, sing-box.
    #[arg(default_values = ["longhaul", "none", "haproxy", "sing-box"])]
    gateways: Vec<String>,
    /// Seconds of each rate; the second half counts.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    #[command(flatten)]
    path: Way,
    /// New connections a second, for five seconds that stay open.
    #[arg(long, default_value_t = 2000)]
    pub new: usize,
    /// Seconds for which as many come and go beside them.
    #[arg(long, default_value_t = 60)]
    churn: usize,
    /// Only these: one, eight, weights, stalled, crowd, new, download, failures, page.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// The path between the gateways.
#[derive(Clone, Copy, clap::Args)]
pub struct Way {
    /// Mbit/s of the path.
    #[arg(long, default_value_t = 1000)]
    pub rate: u64,
    /// Its round-trip time in milliseconds.
    #[arg(long, default_value_t = 200)]
    pub rtt: u64,
    /// Packets that it loses, in percent.
    #[arg(long, default_value_t = 1.0)]
    pub loss: f64,
    /// It loses them on the way to the client, not on that to the server.
    #[arg(skip)]
    pub loses_answers: bool,
}

impl Way {
    /// Hosts on CUBIC with large buffers at both ends of it, and gateways that do not run yet.
    ///
    /// # Errors
    /// No right to make them.
    pub fn start(self) -> io::Result<(Lab, World)> {
        let rate = units::Rate::from_bits_per_sec(self.rate * 1_000_000);
        let path = PathConfig::new(rate, Duration::from_millis(self.rtt));
        let path = match self.loses_answers {
            true => path.with_loss_back(self.loss / 100.0),
            false => path.with_loss(self.loss / 100.0),
        };
        let path = path.with_seed(1);
        let (lab, world) = between(&path)?;
        for host in [CLIENT, SERVER] {
            world.congestion_control(host, "cubic");
            world.set(host, "ipv4/tcp_rmem", "4096 131072 256000000");
            world.set(host, "ipv4/tcp_wmem", "4096 16384 256000000");
            world.set(host, "ipv4/ip_local_port_range", "10000 65000");
            // A client that makes thousands of connections has no other port for each.
            world.set(host, "ipv4/tcp_tw_reuse", "1");
        }
        Ok((lab, world))
    }
}

/// Hosts whose gateways are joined by a path.
fn between(path: &PathConfig) -> io::Result<(Lab, World)> {
    let lab = Lab::start(path, &LabOptions::default()).map_err(io::Error::other)?;
    let name = |host| {
        let prefix = lab.shell_prefix(host);
        prefix.strip_prefix("ip netns exec ").map(str::to_owned).ok_or_else(no_world)
    };
    let gateways = [name(Host::Near)?, name(Host::Far)?];
    let world = missing().is_none().then(|| World::around(gateways)).flatten();
    Ok((lab, world.ok_or_else(no_world)?))
}

/// The middle one of some figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Options {
    fn wants(&self, what: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|it| it == what)
    }

    /// Bits of payload a second that TCP could carry at most, of what is not lost.
    pub fn limit(&self) -> f64 {
        self.path.rate as f64 * 1e6 * 1448.0 / 1500.0 * (1.0 - self.path.loss / 100.0)
    }
}

/// Prints a table for each; false if ours missed a goal.
pub fn run(program: &Path, options: &Options) -> io::Result<bool> {
    raise_open_files()?;
    println!(
        "{} Mbit/s, {} ms, {}% loss, queue 50 ms, hosts on CUBIC; payload limit {:.0} Mbit/s",
        options.path.rate,
        options.path.rtt,
        options.path.loss,
        options.limit() / 1e6
    );
    let mut reached = true;
    let mut costs = Vec::new();
    let rates = WORKLOADS.iter().any(|what| options.wants(what));
    for name in options.gateways.iter().filter(|_| rates) {
        let contender = match named(program, name) {
            Ok(contender) => contender,
            Err(error) if name == "longhaul" => return Err(error),
            Err(error) => {
                println!("\nSKIPPED: {error}");
                continue;
            }
        };
        let figures = measure(&contender, options)?;
        println!("\n{}", contender.name);
        figures.print(options);
        if name == "longhaul" {
            reached &= figures.goals(options).iter().fold(true, |all, goal| goal.tell() & all);
        }
        costs.push((name.as_str(), figures.eight.map(|eight| eight.cpu().iter().sum::<f64>())));
    }
    let cost = |name| costs.iter().find(|(it, _)| *it == name).and_then(|(_, cost)| *cost);
    if let (Some(ours), Some(theirs)) = (cost("longhaul"), cost("sing-box")) {
        println!(
            "\nCPU of both gateways for a Gbit of eight connections: {ours:.2} s, sing-box {theirs:.2} s"
        );
        let what = "at most half of sing-box's CPU";
        reached &= Goal { what, holds: ours <= theirs / 2.0 }.tell();
    }
    if options.wants("failures") {
        reached &= failures::run(program, options.path)?;
    }
    if options.wants("page") {
        reached &= page::run(program, options.path)?;
    }
    Ok(reached)
}

/// Thousands of connections have their clients' ends here.
fn raise_open_files() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

/// For how many of at most five seconds connections may be opened and left open.
fn seconds_of(per_second: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize);
    (files.saturating_sub(SPARE_FILES) / per_second.max(1)).min(5)
}

/// The bed of one contender: a path, hosts, gateways.
struct Bed<'a> {
    lab: &'a Lab,
    world: World,
    running: Running,
    servers: Servers,
    options: &'a Options,
    way: Way,
}

fn measure(contender: &Contender, options: &Options) -> io::Result<Figures> {
    let mut figures = Figures::default();
    let up = WORKLOADS.iter().any(|what| *what != "download" && options.wants(what));
    if up {
        figures = on_bed(contender, options, options.path, |bed| bed.figures())??;
    }
    if options.wants("download") {
        let way = Way { loses_answers: true, ..options.path };
        figures.download = Some(on_bed(contender, options, way, |bed| bed.receive(1))?);
    }
    Ok(figures)
}

/// What is measured on a new bed.
fn on_bed<T>(
    contender: &Contender,
    options: &Options,
    way: Way,
    measure: impl FnOnce(&Bed<'_>) -> T,
) -> io::Result<T> {
    let (lab, world) = way.start()?;
    let running = contender.start(&world)?;
    let servers = Servers::start(&world);
    let measured = measure(&Bed { lab: &lab, world, running, servers, options, way });
    println!("{}", lab.verdict());
    Ok(measured)
}

impl Bed<'_> {
    fn figures(&self) -> io::Result<Figures> {
        let wants = |what| self.options.wants(what);
        let mut figures = Figures {
            one: wants("one").then(|| self.send(1)),
            eight: wants("eight").then(|| self.send(8)),
            weights: wants("weights")
                .then(|| self.rates(WEIGHTS.len(), || Senders::weighted(&self.world))),
            stalled: wants("stalled").then(|| self.beside_stalled()),
            crowd: wants("crowd").then(|| self.send(CROWD)),
            ..Figures::default()
        };
        if wants("new") {
            let look = || self.memory("VmRSS");
            let seconds = (seconds_of(self.options.new), self.options.churn);
            let tally = self.tally();
            let (many, memory) = open_many(&self.world, self.options.new, seconds, look)?;
            let made = many.iter().map(|many| many.made).sum();
            figures.many = Some((many, memory, tally.map(|tally| self.carried(tally, made))));
        }
        figures.memory = self.memory("VmHWM");
        Ok(figures)
    }

    fn send(&self, connections: usize) -> Rates {
        self.rates(connections, || Senders::start(&self.world, connections))
    }

    fn receive(&self, connections: usize) -> Rates {
        self.rates(connections, || self.servers.send(&self.world, connections))
    }

    fn beside_stalled(&self) -> Rates {
        let stuck = Senders::stalled(&self.world, STALLED);
        sleep(FILL);
        let rates = self.send(8);
        drop(stuck);
        self.wait_until_open(0);
        rates
    }

    /// Waits until the near gateway carries no more than so many, if it is ours.
    fn wait_until_open(&self, most: u64) {
        let has_ended = || self.status().is_none_or(|status| status.open <= most);
        let _ = (0..50).any(|_| {
            sleep(BRIEFLY);
            has_ended()
        });
    }

    /// Packets that went towards the receivers, and those of them that found the path's queue full.
    fn queued(&self) -> (u64, u64) {
        let stats = self.lab.stats();
        let lane = if self.way.loses_answers { stats.back } else { stats.forward };
        (lane.counters.offered.packets, lane.counters.dropped(DropCause::Queue).packets)
    }

    fn rates(&self, connections: usize, start: impl FnOnce() -> Senders) -> Rates {
        self.servers.reset();
        let others = self.status().map_or(0, |status| status.open);
        let (offered, dropped) = self.queued();
        let tally = self.tally();
        let senders = start();
        let begun = net::clock::now();
        let looks = (0..=self.options.seconds).map(|second| {
            sleep(Duration::from_secs(second).saturating_sub(net::clock::now().since(begun)));
            self.look(connections, begun)
        });
        let looks = looks.collect();
        let (offered_end, dropped_end) = self.queued();
        drop(senders);
        // What is under way arrives before the next are measured, and makes room for them.
        self.wait_until_open(others);
        sleep(Duration::from_millis(2 * self.way.rtt + 500));
        Rates {
            looks,
            dropped: (dropped_end - dropped) as f64 / (offered_end - offered).max(1) as f64,
            carried: tally.map(|tally| self.carried(tally, connections)),
        }
    }

    fn look(&self, connections: usize, begun: Instant) -> Look {
        let at = net::clock::now();
        let few = connections <= FEW && !self.way.loses_answers;
        Look {
            at,
            delivered: self.servers.counts(connections),
            scheduled: if few { self.scheduled(at.since(begun)) } else { Vec::new() },
            cpu: self.cpu(),
        }
    }

    /// What the near gateway says, if it is ours.
    fn status(&self) -> Option<Status> {
        self.world.on(NEAR, gateway::status).ok()
    }

    /// Bytes that the near gateway has scheduled of each connection that is counted and hardly older.
    fn scheduled(&self, age: Duration) -> Vec<u64> {
        let counted = |it: &gateway::Connection| {
            let port = it.server.rsplit(':').next().and_then(|port| port.parse().ok());
            it.seconds <= age.as_secs_f64() + 1.0
                && WEIGHTS.iter().any(|(known, _)| Some(*known) == port)
        };
        let connections = self.status().unwrap_or_default().connections;
        let by_client = connections.into_iter().filter(counted).map(|it| (it.client, it.scheduled));
        by_client.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// Connections that the near gateway has carried so far, and those that went past it.
    fn tally(&self) -> Option<(u64, u64)> {
        let Status { totals, open, .. } = self.status()?;
        Some((totals.carried + totals.reset + open, totals.bypassed()))
    }

    /// Whether since then so many were carried, and none went past.
    fn carried(&self, (carried, bypassed): (u64, u64), connections: usize) -> bool {
        let wanted = Some((carried + connections as u64, bypassed));
        // One that ends in this moment is in neither count.
        let all = (0..50).any(|_| {
            sleep(BRIEFLY);
            self.tally() == wanted
        });
        if !all {
            println!("not all were carried: {:?}", self.status().unwrap_or_default().totals);
        }
        all
    }

    /// Seconds of processor time of each gateway so far: fields 14 and 15 of /proc/PID/stat.
    fn cpu(&self) -> Vec<f64> {
        let of = |pid: &u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
            fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>()
                / TICKS
        };
        self.running.pids().iter().map(of).collect()
    }

    /// One of the figures of memory in /proc/PID/status of each gateway, in MiB.
    fn memory(&self, figure: &str) -> Vec<f64> {
        let of = |pid: &u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(figure)).unwrap_or_default();
            let kib = line.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok());
            kib.unwrap_or_default() / 1024.0
        };
        self.running.pids().iter().map(of).collect()
    }
}

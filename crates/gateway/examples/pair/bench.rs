//! What gateways are worth on a long fat path: rates, fairness, isolation, and what they cost.

use std::fs;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use emulator::{Host, Lab, LabOptions};
use path::{DropCause, PathConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::conformance::named;
use crate::contender::{Contender, Running};
use crate::failures;
use crate::load::{Many, Senders, Servers, WEIGHTS, open_many};
use crate::world::{CLIENT, SERVER, World, missing};
use crate::{no_world, page};

/// Clock ticks a second in /proc (the kernel's USER_HZ).
const TICKS: f64 = 100.0;
/// Open files that are not ends of connections.
const SPARE_FILES: usize = 500;
/// What is measured with each gateway.
const WORKLOADS: [&str; 6] = ["one", "eight", "weights", "stalled", "crowd", "new"];
/// Readers that do not read, and the time that their buffers are given to fill.
const FILL: Duration = Duration::from_secs(6);
/// Their number.
const STALLED: usize = 100;
/// Connections whose shares are compared.
const CROWD: usize = 1000;
/// The last of several starts so late.
const LATE: Duration = Duration::from_secs(2);

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
    new: usize,
    /// Seconds for which as many come and go beside them.
    #[arg(long, default_value_t = 60)]
    churn: usize,
    /// Only these: one, eight, weights, stalled, crowd, new, failures, page.
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
    fn limit(&self) -> f64 {
        self.path.rate as f64 * 1e6 * 1448.0 / 1500.0 * (1.0 - self.path.loss / 100.0)
    }
}

/// What ours must reach, at the path that is the default.
pub struct Goal {
    pub what: &'static str,
    pub holds: bool,
}

impl Goal {
    /// Says whether it was reached.
    pub fn tell(&self) -> bool {
        println!("  {}: {}", self.what, if self.holds { "reached" } else { "MISSED" });
        self.holds
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
        costs.push((name.as_str(), figures.eight.map(|eight| eight.cpu.iter().sum::<f64>())));
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

/// Thousands of connections have two ends here.
fn raise_open_files() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

/// For how many of at most five seconds connections may be opened and left open.
fn seconds_of(per_second: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize);
    (files.saturating_sub(SPARE_FILES) / 2 / per_second.max(1)).min(5)
}

/// Some connections that send at once.
struct Rates {
    /// Of all together, bits a second: over all the time, and over its second half.
    whole: f64,
    late: f64,
    /// Bytes of each in the second half.
    bytes: Vec<u64>,
    /// Seconds of processor time, the far gateway's and the near one's, for a Gbit in that half.
    cpu: Vec<f64>,
    /// The share of the packets towards the server that found the path's queue full, from the start.
    dropped: f64,
}

impl Rates {
    /// The largest deviation from the mean.
    fn deviation(&self) -> f64 {
        let mean = self.bytes.iter().sum::<u64>() as f64 / self.bytes.len() as f64;
        let far = |&bytes: &u64| (bytes as f64 / mean - 1.0).abs();
        self.bytes.iter().map(far).fold(0.0, f64::max)
    }

    /// The largest deviation from what is due by [`WEIGHTS`].
    fn unweighted(&self) -> f64 {
        let all: u32 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let unit = self.bytes.iter().sum::<u64>() as f64 / f64::from(all);
        let due =
            self.bytes.iter().zip(WEIGHTS).map(|(&bytes, (_, weight))| {
                (bytes as f64 / (unit * f64::from(weight)) - 1.0).abs()
            });
        due.fold(0.0, f64::max)
    }

    /// Jain's index of fairness.
    fn jain(&self) -> f64 {
        let sum: f64 = self.bytes.iter().map(|&bytes| bytes as f64).sum();
        let squares: f64 = self.bytes.iter().map(|&bytes| (bytes as f64).powi(2)).sum();
        sum * sum / (squares * self.bytes.len() as f64)
    }
}

#[derive(Default)]
struct Figures {
    one: Option<Rates>,
    eight: Option<Rates>,
    weights: Option<Rates>,
    stalled: Option<Rates>,
    crowd: Option<Rates>,
    /// With the gateways' memory while all were open, in MiB.
    many: Option<([Many; 2], Vec<f64>)>,
    /// The most memory that each gateway ever had, in MiB.
    memory: Vec<f64>,
}

/// The bed of one contender: a path, hosts, gateways.
struct Bed<'a> {
    lab: &'a Lab,
    world: World,
    running: Running,
    servers: Servers,
    options: &'a Options,
}

fn measure(contender: &Contender, options: &Options) -> io::Result<Figures> {
    let (lab, world) = options.path.start()?;
    let running = contender.start(&world)?;
    let servers = Servers::start(&world);
    let mut bed = Bed { lab: &lab, world, running, servers, options };
    let figures = bed.figures();
    println!("{}", lab.verdict());
    Ok(figures)
}

impl Bed<'_> {
    fn figures(&mut self) -> Figures {
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
            figures.many = Some(open_many(&self.world, self.options.new, seconds, look));
        }
        figures.memory = self.memory("VmHWM");
        figures
    }

    fn send(&self, connections: usize) -> Rates {
        self.rates(connections, || Senders::start(&self.world, connections, LATE))
    }

    fn beside_stalled(&self) -> Rates {
        let _stuck = Senders::stalled(&self.world, STALLED);
        sleep(FILL);
        self.send(8)
    }

    /// Packets that went towards the server, and those of them that found the path's queue full.
    fn queued(&self) -> (u64, u64) {
        let counters = self.lab.stats().forward.counters;
        (counters.offered.packets, counters.dropped(DropCause::Queue).packets)
    }

    fn rates(&self, connections: usize, start: impl FnOnce() -> Senders) -> Rates {
        let seconds = Duration::from_secs(self.options.seconds);
        self.servers.reset();
        let (offered, dropped) = self.queued();
        let senders = start();
        let start = net::clock::now();
        sleep(seconds / 2);
        let (first, cpu) = (self.servers.counts(connections), self.cpu());
        let middle = net::clock::now();
        sleep(seconds / 2);
        let (last, cpu_end) = (self.servers.counts(connections), self.cpu());
        let end = net::clock::now();
        let (offered_end, dropped_end) = self.queued();
        drop(senders);
        // What is under way arrives before the next are measured.
        sleep(Duration::from_millis(2 * self.options.path.rtt + 500));
        let bytes: Vec<_> = last.iter().zip(&first).map(|(last, first)| last - first).collect();
        let rate = |bytes: u64, time: Duration| bytes as f64 * 8.0 / time.as_secs_f64();
        let gbit = bytes.iter().sum::<u64>() as f64 * 8e-9;
        Rates {
            whole: rate(last.iter().sum(), end.since(start)),
            late: rate(bytes.iter().sum(), end.since(middle)),
            dropped: (dropped_end - dropped) as f64 / (offered_end - offered).max(1) as f64,
            cpu: cpu_end.iter().zip(&cpu).map(|(end, start)| (end - start) / gbit).collect(),
            bytes,
        }
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

fn list(figures: &[f64]) -> String {
    figures.iter().map(|figure| format!("{figure:.2}")).collect::<Vec<_>>().join(" + ")
}

impl Figures {
    fn print(&self, options: &Options) {
        let limit = options.limit();
        let rates = [
            ("one connection", &self.one),
            ("eight", &self.eight),
            ("three with weights 1, 2, 4", &self.weights),
            ("eight beside 100 stalled readers", &self.stalled),
            ("1,000", &self.crowd),
        ];
        for (name, rates) in rates {
            let Some(rates) = rates else { continue };
            println!(
                "  {name}: {:.0} Mbit/s ({:.1}% of the limit), from the start {:.0}; \
                 deviation {:.1}%, Jain {:.3}; {:.2}% dropped by the queue; \
                 s of CPU a Gbit, far + near: {}",
                rates.late / 1e6,
                rates.late / limit * 100.0,
                rates.whole / 1e6,
                rates.deviation() * 100.0,
                rates.jain(),
                rates.dropped * 100.0,
                list(&rates.cpu),
            );
        }
        if let Some((many, memory)) = &self.many {
            for (what, many) in ["that stay open", "that come and go"].into_iter().zip(many) {
                println!(
                    "  {} a second {what}: {} made, failed {:?}, the slowest {:.1} s",
                    options.new,
                    many.made,
                    many.failed,
                    many.slowest.as_secs_f64(),
                );
            }
            println!("  MiB while open: {}", list(memory));
        }
        println!("  most memory ever, MiB: {}", list(&self.memory));
    }

    fn goals(&self, options: &Options) -> Vec<Goal> {
        let limit = options.limit();
        let mut goals = Vec::new();
        let mut goal = |what, holds| goals.push(Goal { what, holds });
        if let Some(one) = &self.one {
            goal("one connection at least 88%", one.late >= 0.88 * limit);
        }
        if let Some(eight) = &self.eight {
            goal("eight at least 93%", eight.late >= 0.93 * limit);
            goal("eight within 3% of their mean, the late one too", eight.deviation() <= 0.03);
        }
        for rates in [&self.one, &self.eight].into_iter().flatten() {
            goal("less than 0.5% dropped by the queue", rates.dropped < 0.005);
        }
        if let Some(weights) = &self.weights {
            goal("weights within 5%", weights.unweighted() <= 0.05);
        }
        if let (Some(eight), Some(stalled)) = (&self.eight, &self.stalled) {
            goal("stalled readers cost others less than 2%", stalled.late >= 0.98 * eight.late);
        }
        if let Some(crowd) = &self.crowd {
            goal("1,000: Jain at least 0.95", crowd.jain() >= 0.95);
        }
        if let Some((many, memory)) = &self.many {
            goal("every new connection was made", many.iter().all(|many| many.failed.is_empty()));
            goal("10,000 were open", many[0].made >= 10_000);
            goal(
                "all of them open in less than 1 GiB",
                memory.iter().all(|memory| *memory < 1024.0),
            );
        }
        goals
    }
}

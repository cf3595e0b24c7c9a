//! Loopback, encrypted: ours beside quinn, by turns, in processes of the same layout, with what
//! both ends cost in processor time.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::lab::target_directory;
use super::transport::build_quinn;
use super::{spread, verdict};
use crate::command;

/// What a run's beginning, the start of the controllers, leaves out.
const WARM_UP: f64 = 1.0;
/// So many times quinn's bits for each second of the sender's processor, at least.
const GOAL: f64 = 1.2;
/// Two connections on two cores, as a multiple of one connection on one core, at least.
const GROWTH: f64 = 1.2;
/// Clock ticks a second in /proc (the kernel's USER_HZ).
const TICKS: f64 = 100.0;

/// How long and how often.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds of each run.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Runs of each; the median counts.
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// Who runs, and how.
struct Layout {
    name: &'static str,
    ours: bool,
    connections: u32,
    /// The cores of sender and receiver together, where they are bound to some.
    cores: Option<&'static str>,
}

const LAYOUTS: [Layout; 4] = [
    Layout { name: "quinn", ours: false, connections: 1, cores: None },
    Layout { name: "ours", ours: true, connections: 1, cores: None },
    Layout { name: "ours, one core", ours: true, connections: 1, cores: Some("0") },
    Layout {
        name: "ours, 2 connections, two cores",
        ours: true,
        connections: 2,
        cores: Some("0,1"),
    },
];

/// Gbit/s, and Gbit for each second of the sender's and of the receiver's processor.
#[derive(Clone, Copy)]
struct Figures([f64; 3]);

/// Runs all by turns and prints the medians. False: ours does not reach its goals.
pub fn run(args: &Args) -> Result<bool> {
    let programs = Programs::build()?;
    let mut all: [Vec<Figures>; 4] = Default::default();
    for _ in 0..args.runs {
        for (layout, runs) in LAYOUTS.iter().zip(&mut all) {
            runs.push(programs.measure(layout, args.seconds).context(layout.name)?);
        }
    }
    println!("{:<32}{:>9}{:>18}{:>20}", "", "Gbit/s", "per sender core", "per receiver core");
    let medians = all.map(|runs| {
        [0, 1, 2].map(|which| spread(&runs.iter().map(|run| run.0[which]).collect::<Vec<_>>()).0)
    });
    for (layout, [rate, sender, receiver]) in LAYOUTS.iter().zip(&medians) {
        println!("{:<32}{rate:>9.2}{sender:>18.2}{receiver:>20.2}", layout.name);
    }
    let [quinn, ours, one, two] = medians;
    let (gain, growth) = (ours[1] / quinn[1], two[0] / one[0]);
    println!("{gain:.2} times quinn per sender core (goal {GOAL}): {}", verdict(gain >= GOAL));
    println!("{growth:.2} times on two cores (goal {GROWTH}): {}", verdict(growth >= GROWTH));
    Ok(gain >= GOAL && growth >= GROWTH)
}

/// The programs that are compared.
struct Programs {
    ours: PathBuf,
    quinn: PathBuf,
}

impl Programs {
    fn build() -> Result<Self> {
        let build = ["build", "--release", "--package", "longhaul-net", "--example", "blast"];
        command::run(&mut command::cargo(&build))?;
        let ours = target_directory()?.join("release/examples/blast");
        Ok(Self { ours, quinn: build_quinn()? })
    }

    fn command(&self, layout: &Layout, words: &[&str]) -> Command {
        let program = if layout.ours { &self.ours } else { &self.quinn };
        let mut command = match layout.cores {
            Some(cores) => {
                let mut command = Command::new("taskset");
                command.args(["--cpu-list", cores]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(words).stderr(Stdio::null());
        command
    }

    fn measure(&self, layout: &Layout, seconds: u64) -> Result<Figures> {
        let (address, seconds) = (free_address()?.to_string(), seconds.to_string());
        let connections = layout.connections.to_string();
        let receive: &[&str] = &["receive", &address, &connections];
        let send = ["send", &address, &seconds, &connections];
        let (receive, send) = match layout.ours {
            true => (receive, send),
            false => (&receive[..2], ["send", &address, "cubic", &seconds]),
        };
        let receiver = self.command(layout, receive).stdout(Stdio::piped()).spawn();
        let mut receiver = Process(receiver.context("cannot start the receiver")?);
        std::thread::sleep(Duration::from_millis(200));
        let sender =
            Process(self.command(layout, &send).spawn().context("cannot start the sender")?);
        let lines = BufReader::new(receiver.0.stdout.take().context("no output")?).lines();
        let mut first = None;
        let mut last = None;
        for line in lines {
            let at = Sample::read(&line?, &sender, &receiver)?;
            if at.elapsed >= WARM_UP {
                first.get_or_insert(at);
            }
            // The last half second may be of a sender that has ended.
            if at.elapsed + 0.5 >= seconds.parse::<f64>()? {
                last = Some(at);
                break;
            }
        }
        let (first, last) = (first.context("nothing arrived")?, last.context("it ended early")?);
        let gbit = (last.bytes - first.bytes) * 8e-9;
        let per = |time: f64| gbit / time;
        let time = last.elapsed - first.elapsed;
        let cpu = [0, 1].map(|end| last.cpu[end] - first.cpu[end]);
        Ok(Figures([per(time), per(cpu[0]), per(cpu[1])]))
    }
}

/// A port that nobody has.
fn free_address() -> Result<SocketAddr> {
    Ok(UdpSocket::bind("127.0.0.1:0")?.local_addr()?)
}

/// A process that ends with the measurement.
struct Process(Child);

impl Process {
    /// Seconds of processor time so far: fields 14 and 15 of /proc/PID/stat.
    fn cpu(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks = fields.skip(11).take(2).map(str::parse::<f64>);
        Ok(ticks.sum::<Result<f64, _>>()? / TICKS)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What had arrived by a line of the receiver's, and what both ends had cost.
#[derive(Clone, Copy)]
struct Sample {
    elapsed: f64,
    bytes: f64,
    cpu: [f64; 2],
}

impl Sample {
    fn read(line: &str, sender: &Process, receiver: &Process) -> Result<Self> {
        let (elapsed, bytes) = line.split_once(' ').context("a line that tells nothing")?;
        let cpu = [sender.cpu()?, receiver.cpu()?];
        Ok(Self { elapsed: elapsed.parse()?, bytes: bytes.parse()?, cpu })
    }
}

//! The simulator: how fast it runs, and whether it agrees with ns-2 and ns-3.

mod rival;

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::lab::Build;
use super::memory::Killed;
use super::{spread, verdict};
use rival::Rival;

/// Simulated seconds over real ones that one flow of ours must reach at 1 Gbit/s and 200 ms.
const SPEED: f64 = 10.0;
/// Packets a second over those of the others.
const PACKETS: f64 = 10.0;
/// How much more memory ten times the seconds may take, and ten times the product.
const LONGER: f64 = 1.1;
const PRODUCT: f64 = 12.0;
/// Flows that share the same product, and how many MiB each of them may add.
const FLOWS: u32 = 100;
const EACH: f64 = 4.0;
/// How often it is looked at.
const GLANCE: Duration = Duration::from_millis(1);
/// How far throughput may be from theirs, and loss and mean queue.
const NEAR: (f64, f64) = (0.03, 0.10);
/// So many packets more or less are no other loss: a single flow loses seven in all.
const FEW: f64 = 1.0;
/// What is timed is run so often, in turn with what it is compared to, and the least counts: a machine that is shared has
/// slow seconds.
const TIMES: u32 = 5;
/// Of each dumbbell so many Mbit are simulated at most, as when it is timed: some seven million packets, with their answers.
const AMOUNT: u64 = 40_000;
/// Of each dumbbell this is left out, in simulated seconds: how many packets are lost as slow start ends hangs on
/// what each does then (ns-2's `Sack1` takes packets for under way that RFC 6675 knows to be lost), and
/// would hide what they lose for the rest of the run.
const START: u64 = 20;

/// How much to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Runs of each dumbbell, here and there: with each seed RED draws, and flows begin, anew
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Simulated seconds of each; fewer where that were very many packets.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(START + 1..))]
    seconds: u64,
    /// Dumbbells of these numbers of flows alone; all of them take the better part of an hour
    #[arg(long, value_delimiter = ',')]
    flows: Vec<u32>,
    /// Pass without ns-2 or ns-3, where they cannot be installed
    #[arg(long)]
    without_rivals: bool,
}

/// TCP flows with selective acknowledgements or without, over 100 ms and a queue of 250 packets. Time-outs are of a
/// second, as RFC 6298 has it (section 2.4): with less, ns-3's strike as each loss is repaired, for the fast
/// retransmission does not begin them anew there.
struct Dumbbell {
    flows: u32,
    recovery: &'static str,
    queue: &'static str,
    mbit: u32,
}

/// What RFC 5681 halves at a loss, and RFC 6675 too. ns-2 halves its window, which here is full.
const FLIGHT: &str = "unacknowledged";

const DUMBBELLS: [Dumbbell; 10] = [
    Dumbbell { flows: 1, recovery: "sack", queue: "droptail", mbit: 10 },
    Dumbbell { flows: 1, recovery: "newreno", queue: "droptail", mbit: 10 },
    Dumbbell { flows: 1, recovery: "reno", queue: "droptail", mbit: 10 },
    Dumbbell { flows: 4, recovery: "sack", queue: "droptail", mbit: 10 },
    Dumbbell { flows: 4, recovery: "sack", queue: "red", mbit: 10 },
    Dumbbell { flows: 4, recovery: "sack", queue: "red-wait", mbit: 10 },
    Dumbbell { flows: 4, recovery: "sack", queue: "red-i-wait", mbit: 10 },
    Dumbbell { flows: 4, recovery: "newreno", queue: "red-wait", mbit: 10 },
    Dumbbell { flows: 8, recovery: "sack", queue: "droptail", mbit: 100 },
    Dumbbell { flows: 100, recovery: "sack", queue: "droptail", mbit: 1000 },
];

/// What a run of either showed.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    mbps: f64,
    /// Packets that came to the queue, and those that it dropped.
    offered: f64,
    dropped: f64,
    queue: f64,
    /// Packets in both directions for each second that the run took.
    packets_a_second: f64,
}

/// Prints a table of speeds and one of agreement; false when a goal is missed.
pub fn run(args: &Args) -> Result<bool> {
    for flows in &args.flows {
        let known = DUMBBELLS.iter().any(|dumbbell| dumbbell.flows == *flows);
        ensure!(known, "no dumbbell has {flows} flows; there are those of 1, 4, 8 and 100");
    }
    let build = Build::new()?;
    let folder = tempfile::tempdir()?;
    let mut reached = speed(&build.binary, &folder)?;
    reached &= memory(&build.binary, &folder)?;
    let (rivals, missing) = Rival::all(folder.path())?;
    println!(
        "From {START} s on, -wait as ns-2 and ns-3 space RED's drops by default. In ns-3 each packet crosses a \
         link of 10 Gbit/s as well, which is not counted."
    );
    println!(
        "| flows | queue | who | Mbit/s | dropped % (packets) | packets waiting | million packets/s | ours |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let wanted =
        |dumbbell: &&Dumbbell| args.flows.is_empty() || args.flows.contains(&dumbbell.flows);
    for dumbbell in DUMBBELLS.iter().filter(wanted) {
        // Nothing is drawn for one flow and drop-tail.
        let seeds =
            if (dumbbell.flows, dumbbell.queue) == (1, "droptail") { 1 } else { args.seeds };
        let each = |run: &dyn Fn(u64) -> Result<Figures>| {
            (1..=seeds).map(run).collect::<Result<Vec<_>>>().map(|runs| medians(&runs))
        };
        let length = dumbbell.length(args.seconds);
        let run_ours =
            |flight| each(&|seed| dumbbell.simulate(&build.binary, &folder, flight, length, seed));
        let mut usual = run_ours(FLIGHT)?;
        let believed = |rival: &&Rival| dumbbell.recovery == "sack" || !rival.sack_alone;
        let rivals = || rivals.iter().filter(believed);
        let quick = rivals().find(|rival| rival.is_quick);
        let (ours_timed, theirs_timed) = dumbbell.race(&build.binary, &folder, quick)?;
        usual.packets_a_second = ours_timed;
        println!("{} |", dumbbell.row("ours", &usual));
        for rival in rivals() {
            let mut ours = usual;
            if rival.flight != FLIGHT {
                ours = Figures { packets_a_second: ours_timed, ..run_ours(rival.flight)? };
                let who = format!("ours, halving the {}", rival.flight);
                println!("{} |", dumbbell.row(&who, &ours));
            }
            let mut theirs = each(&|seed| dumbbell.rival(rival, length, seed))?;
            if rival.is_quick {
                theirs.packets_a_second = theirs_timed;
            }
            let agrees = agrees(&ours, &theirs);
            let times = ours.packets_a_second / theirs.packets_a_second;
            println!(
                "{} {}, {times:.1} times as fast{} |",
                dumbbell.row(rival.name, &theirs),
                if agrees { "agrees" } else { "does NOT agree" },
                if times >= PACKETS { "" } else { " (MISSED)" }
            );
            reached &= agrees && times >= PACKETS;
        }
    }
    missing.iter().for_each(|why| println!("SKIPPED: {why}"));
    Ok(reached && (missing.is_empty() || args.without_rivals))
}

/// One flow of ours, for so many seconds.
fn one(rate: &str, seconds: u64) -> String {
    format!(
        "about = \"One flow of ours\"\nrtt = \"200ms\"\nduration = \"{seconds}s\"\n\
         both = {{ rate = \"{rate}\", queue = \"50ms\" }}\n[[flow]]\nname = \"ours\"\n"
    )
}

/// Memory follows what is in flight, and not how long a run is.
fn memory(binary: &Path, folder: &TempDir) -> Result<bool> {
    let of = |scenario: &str| -> Result<f64> {
        let run = simulate(binary, folder, scenario, &[""; 0])?;
        Ok(run.peak as f64 / f64::from(1 << 20))
    };
    let peak = |rate, seconds| of(&one(rate, seconds));
    // What a run has without anything in flight, to speak of.
    let none = peak("1mbit", 60)?;
    let (once, long, tenfold) = (peak("1gbit", 60)?, peak("1gbit", 600)?, peak("10gbit", 10)?);
    let (length, product) = (long / once, (tenfold - none) / (once - none));
    let passed = length <= LONGER && product <= PRODUCT;
    println!(
        "Most memory of one flow, 200 ms: {none:.1} MiB at 1 Mbit/s; {once:.1} at 1 Gbit/s for 60 s, {long:.1} for 600 s, \
         {length:.2} times; {tenfold:.1} at 10 Gbit/s, of what is above the least {product:.1} times (goals {LONGER} \
         and {PRODUCT}: {})",
        verdict(passed)
    );
    let many = of(&format!("{}count = {FLOWS}\n", one("1gbit", 20)))?;
    let each = (many - once) / f64::from(FLOWS);
    let few = each <= EACH;
    println!(
        "{FLOWS} flows, 1 Gbit/s, 200 ms, 20 s: {many:.1} MiB, {each:.2} for each (goal {EACH}: {})",
        verdict(few)
    );
    Ok(passed && few)
}

/// One flow of ours for a minute.
fn speed(binary: &Path, folder: &TempDir) -> Result<bool> {
    let mut command = simulation(binary, folder, &one("1gbit", 60), &[""; 0])?;
    let mut fastest = timed(&mut command)?;
    for _ in 1..TIMES {
        fastest.1 = fastest.1.min(timed(&mut command)?.1);
    }
    let (said, seconds) = fastest;
    let run = shown(&said)?;
    let times = 60.0 / seconds;
    let packets = run["packets"].as_f64().context("packets")?;
    let mbps = run["flows"][0]["goodput_bps"].as_f64().context("goodput")? * 1e-6;
    let passed = times >= SPEED;
    println!(
        "One flow of ours, 1 Gbit/s, 200 ms, 60 s: {mbps:.0} Mbit/s, {times:.1} times faster than real \
         time, {:.2} million packets/s on one core (goal {SPEED} times: {})",
        packets / seconds * 1e-6,
        verdict(passed)
    );
    Ok(passed)
}

/// A run of a scenario.
pub(super) struct Simulated {
    /// What it showed.
    pub(super) run: Value,
    /// How long it took.
    pub(super) seconds: f64,
    /// The most memory that it had, in bytes.
    pub(super) peak: u64,
}

/// What runs a scenario on one core.
fn simulation(
    binary: &Path,
    folder: &TempDir,
    scenario: &str,
    more: &[impl AsRef<OsStr>],
) -> Result<Command> {
    let file = folder.path().join("scenario.toml");
    std::fs::write(&file, scenario)?;
    let mut command = Command::new(binary);
    command.arg("simulate").arg(&file).args(["--json", "--jobs", "1"]).args(more);
    Ok(command)
}

/// What a simulation wrote that it showed.
fn shown(said: &str) -> Result<Value> {
    let line: Value = serde_json::from_str(said.lines().next().context("a line")?)?;
    Ok(line["run"].clone())
}

/// Runs a scenario on one core, and looks at its memory meanwhile.
pub(super) fn simulate(
    binary: &Path,
    folder: &TempDir,
    scenario: &str,
    more: &[impl AsRef<OsStr>],
) -> Result<Simulated> {
    let mut command = simulation(binary, folder, scenario, more)?;
    let said = folder.path().join("shown");
    let mut process = Killed(command.stdout(File::create(&said)?).spawn()?);
    let (mut peak, start) = (0, now());
    let status = loop {
        peak = process.peak().unwrap_or(0).max(peak);
        if let Some(status) = process.0.try_wait()? {
            break status;
        }
        sleep(GLANCE);
    };
    let seconds = start.elapsed().as_secs_f64();
    ensure!(status.success(), "the simulation failed");
    Ok(Simulated { run: shown(&std::fs::read_to_string(&said)?)?, seconds, peak })
}

/// What a command wrote, and its seconds.
fn timed(command: &mut Command) -> Result<(String, f64)> {
    let start = now();
    let output = command.output()?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok((String::from_utf8(output.stdout)?, seconds))
}

/// All of a run for each part of it that counts: the clock runs from its beginning, packets from [`START`] on.
fn all(length: u64) -> f64 {
    length as f64 / (length - START) as f64
}

#[expect(clippy::disallowed_methods, reason = "the simulator is timed, not the protocol")]
fn now() -> Instant {
    Instant::now()
}

impl Figures {
    /// Share of the packets that the queue dropped.
    fn lost(&self) -> f64 {
        self.dropped / self.offered
    }
}

fn medians(runs: &[Figures]) -> Figures {
    let of = |figure: fn(&Figures) -> f64| spread(&runs.iter().map(figure).collect::<Vec<_>>()).0;
    Figures {
        mbps: of(|run| run.mbps),
        offered: of(|run| run.offered),
        dropped: of(|run| run.dropped),
        queue: of(|run| run.queue),
        packets_a_second: of(|run| run.packets_a_second),
    }
}

/// By what the two show of the path.
fn agrees(ours: &Figures, theirs: &Figures) -> bool {
    let near = |ours: f64, theirs: f64, share: f64| (ours / theirs - 1.0).abs() <= share;
    let few = (ours.dropped - theirs.dropped).abs() <= FEW;
    near(ours.mbps, theirs.mbps, NEAR.0)
        && (few || near(ours.lost(), theirs.lost(), NEAR.1))
        && near(ours.queue, theirs.queue, NEAR.1)
}

impl Dumbbell {
    /// Simulated seconds, of so many that were asked for.
    fn length(&self, asked: u64) -> u64 {
        asked.min(START + AMOUNT / u64::from(self.mbit))
    }

    /// How much later each flow begins than the one before, in milliseconds: many flows take another course each time,
    /// of which no two simulators take the same.
    fn every(seed: u64) -> u64 {
        90 + 5 * (seed - 1) % 80
    }

    fn scenario(&self, flight: &str, seed: u64) -> String {
        let (Self { flows, recovery, queue, mbit }, every) = (self, Self::every(seed));
        let red = |name| format!("{name}:min=50packets,max=150packets,limit=250packets");
        let queue = match (*queue, queue.strip_suffix("-wait")) {
            ("droptail", _) => "250packets".to_owned(),
            (_, Some(name)) => red(name) + ",wait=yes",
            (name, None) => red(name),
        };
        format!(
            "about = \"A dumbbell\"\nrtt = \"100ms\"\nback = {{ rate = \"{mbit}mbit\", queue = \"100000packets\" }}\n\
             forward = {{ rate = \"{mbit}mbit\", queue = \"{queue}\" }}\n[[flow]]\ncount = {flows}\n\
             transport = \"tcp\"\nrecovery = \"{recovery}\"\ncc = \"reno\"\nmss = 1460\n\
             every = \"{every}ms\"\nflight = \"{flight}\"\ntimestamps = false\ndelayed-ack = \"none\"\nbyte-counting = false\n\
             min-rto = \"1s\"\n"
        )
    }

    fn simulate(
        &self,
        binary: &Path,
        folder: &TempDir,
        flight: &str,
        length: u64,
        seed: u64,
    ) -> Result<Figures> {
        let set = format!("seed={seed}");
        let (duration, from) = (format!("{length}s"), format!("{START}s"));
        let more = ["--duration", &duration, "--from", &from, "--set", &set];
        let mut command = simulation(binary, folder, &self.scenario(flight, seed), &more)?;
        let (said, seconds) = timed(&mut command)?;
        let run = shown(&said)?;
        let flows = run["flows"].as_array().context("flows")?.iter();
        let bps: f64 = flows.filter_map(|flow| flow["goodput_bps"].as_f64()).sum();
        let queue = |key: &str| run["queue"][key].as_f64().with_context(|| key.to_owned());
        Ok(Figures {
            mbps: bps * 1e-6,
            offered: queue("offered")?,
            dropped: queue("dropped")?,
            queue: queue("mean_packets")?,
            packets_a_second: run["packets"].as_f64().context("packets")? / seconds * all(length),
        })
    }

    fn rival(&self, rival: &Rival, length: u64, seed: u64) -> Result<Figures> {
        let [flows, from, until, seed, every] =
            [u64::from(self.flows), START, length, seed, Self::every(seed)]
                .map(|number| number.to_string());
        let rate = format!("{}Mb", self.mbit);
        let rest = [&from, &until, &rate, &seed, &every].map(String::as_str);
        let mut command = rival.command([&flows, self.recovery, self.queue], rest);
        let (said, seconds) = timed(&mut command)?;
        let figures: Vec<f64> =
            said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let &[bps, offered, dropped, queue] = &figures[..] else {
            anyhow::bail!("{} said: {said}", rival.name);
        };
        // Each that is not dropped is acknowledged. Ours too counts none that came before.
        let packets = 2.0 * offered - dropped;
        Ok(Figures {
            mbps: bps * 1e-6,
            offered,
            dropped,
            queue,
            packets_a_second: packets / seconds * all(length),
        })
    }

    /// The most packets a second of ours and of a rival, run in turn.
    fn race(&self, binary: &Path, folder: &TempDir, rival: Option<&Rival>) -> Result<(f64, f64)> {
        // With hundreds of thousands of packets alone, ours would be timed as it starts.
        let longest = self.length(u64::MAX);
        let (mut ours, mut theirs) = (0.0_f64, 0.0_f64);
        for _ in 0..TIMES {
            let run = self.simulate(binary, folder, FLIGHT, longest, 1)?;
            ours = ours.max(run.packets_a_second);
            if let Some(rival) = rival {
                theirs = theirs.max(self.rival(rival, longest, 1)?.packets_a_second);
            }
        }
        Ok((ours, theirs))
    }

    fn row(&self, who: &str, figures: &Figures) -> String {
        format!(
            "| {} x {} at {} Mbit/s | {} | {who} | {:.3} | {:.3} ({}) | {:.1} | {:.2} |",
            self.flows,
            self.recovery,
            self.mbit,
            self.queue,
            figures.mbps,
            100.0 * figures.lost(),
            figures.dropped,
            figures.queue,
            1e-6 * figures.packets_a_second,
        )
    }
}

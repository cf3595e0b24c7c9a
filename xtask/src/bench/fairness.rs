//! Flows of ours beside each other, and beside one TCP flow of the kernel, through one bottleneck; the
//! background level, which leaves that flow what it wants; and the queue that one flow keeps alone.
//!
//! Each run is recorded as it ends, so that a benchmark that broke off can go on.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lab::{Bed, payload_of};
use super::record::{append_to, revision};
use super::series::{Series, rate};
use super::{spread, verdict};

/// The bottleneck.
const PATH: [&str; 6] = ["--rate", "100mbit", "--loss", "0%", "--json", "--seed"];
const LINK_MBPS: f64 = 100.0;
/// Seconds until half of our flows join.
const JOIN: f64 = 5.0;
/// In what time they must have converged: so many seconds or round trips, whichever is longer.
const CONVERGE: (f64, f64) = (5.0, 20.0);
/// How long their rates are looked at by themselves then, in seconds.
const FIRST: f64 = 4.0;
/// Jain's index that our flows must reach among themselves, over the whole run and right when they have converged.
const JAIN: f64 = 0.97;
/// What CUBIC must keep, beside the background level, of what its packets can carry.
const KEPT: f64 = 0.9;
/// The part of the queue that one flow of ours may keep full.
const QUEUE: f64 = 0.25;
/// Between two looks at the queue.
const LOOK: &str = "50ms";

/// Serves, and lets the kernel's flow send.
const NEAR: &str = "exec 1>&2; \"$LONGHAUL\" serve --quiet --no-remember --key \"$KEY\" \
    $LEVEL --root \"$SOURCE\" & sleep 1; date +%s%N >rival-start; if [ -n \"$RIVAL\" ]; then \
    iperf3 -c \"$LONGHAUL_FAR\" -C $RIVAL -t $TIME --json >rival; else sleep $TIME; fi; kill $!";
/// Fetches, half of the flows later and one after the other, and receives from the kernel's flow.
const FAR: &str = "iperf3 -s -1 >/dev/null & sleep 1; \
    fetch() { mkdir dst$1; (date +%s%N; \
    exec timeout $2 \"$LONGHAUL\" cp --transport udp --json --key \"$KEY\" \
    lh://$LONGHAUL_NEAR/file dst$1/) >flow$1 & }; \
    n=0; while [ $n -lt $EARLY ]; do fetch $n $TIME; n=$((n+1)); done; sleep $JOIN; \
    while [ $n -lt $OURS ]; do fetch $n $((TIME-JOIN)); n=$((n+1)); sleep $APART; done; wait";
/// Between two that come late, with each seed so many milliseconds more: from the second on each starts into what the
/// one before has left.
const APART_MS: u64 = 50;

/// How much to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Runs of each contest, each with a seed of its own; five take 55 minutes.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Seconds a run lasts.
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// Round-trip time of the path, in milliseconds; late joiners have 20 of them to converge, or 5 s.
    #[arg(long, default_value_t = usual_rtt(), value_parser = clap::value_parser!(u64).range(1..=1000))]
    rtt: u64,
    /// Against whom: ours, cubic, bbr; cubic beside the background level; nobody.
    #[arg(long, value_delimiter = ',', default_value = "ours,cubic,bbr,background,nobody")]
    rivals: Vec<String>,
    /// Runs at a time, each over an emulator of its own. Sixteen ends of eight flows are busy threads:
    /// with two runs on two processors they measure the scheduler too.
    #[arg(long, default_value_t = 1)]
    together: usize,
    /// Where runs are recorded; what is there of these sources already is not run again.
    #[arg(long, default_value = "target/bench-fairness.jsonl")]
    record: PathBuf,
}

/// Who shares the bottleneck.
#[derive(Clone, Copy)]
struct Contest<'a> {
    ours: usize,
    rival: Option<&'a str>,
    rtt_ms: u64,
    queue_ms: u64,
    measure: Measure,
    goal: (f64, f64),
}

/// What is judged.
#[derive(Clone, Copy, PartialEq)]
enum Measure {
    /// Jain's index among ours: over the run, or right after the last have converged, where that is less.
    Jain,
    /// Our share beside the rival.
    Share,
    /// What the rival keeps beside our background level, of all that it could have.
    Kept,
    /// The median queue, of what the queue holds.
    Queue,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    contest: String,
    /// Of the product's sources.
    #[serde(default)]
    revision: String,
    /// Of the path.
    #[serde(default = "usual_rtt")]
    rtt_ms: u64,
    seconds: u64,
    seed: u64,
    /// Mbit/s of each of our flows, then of the rival.
    rates: Vec<f64>,
    /// Mbit/s of each of our flows right after they must have converged.
    #[serde(default)]
    first: Vec<f64>,
    /// The median queue in milliseconds.
    #[serde(default)]
    queue_ms: f64,
    /// Whether the emulator kept up.
    #[serde(default)]
    faithful: bool,
}

/// Milliseconds; also of runs recorded before there was a choice.
const fn usual_rtt() -> u64 {
    50
}

/// Measures what is not recorded yet, then prints a row for each contest; false when a worst run
/// misses its goal.
pub fn run(args: &Args) -> Result<bool> {
    let contests = args.rivals.iter().map(|rival| contests(rival, args.rtt));
    let contests = contests.collect::<Result<Vec<_>>>()?.concat();
    if args.seconds as f64 <= converged(args.rtt) + FIRST {
        bail!(
            "{} s are too few: flows have converged after {} s, and then are looked at",
            args.seconds,
            converged(args.rtt)
        );
    }
    let bed = Bed::new()?;
    bed.fill("file", args.seconds * 12_500_000)?;
    let rows = measure(args, &bed, &contests)?;
    let (rtt, seconds, seeds) = (args.rtt, args.seconds, args.seeds);
    println!("100 Mbit/s, {rtt} ms, no random loss; {seconds} s, {seeds} seeds");
    println!(
        "| flows and queue | share, Jain's index, part kept or part of the queue: median (least .. most) | goal | used | |"
    );
    println!("|---|---|---|---|---|");
    let mut reached = true;
    for contest in &contests {
        let name = contest.name();
        let of: Vec<&Row> = rows.iter().filter(|row| row.contest == name).collect();
        let figures: Vec<f64> = of.iter().map(|row| contest.figure(row)).collect();
        let used: Vec<f64> =
            of.iter().map(|row| row.rates.iter().sum::<f64>() / LINK_MBPS).collect();
        let (median, least, most) = spread(&figures);
        let faithful = of.iter().all(|row| row.faithful);
        let good = faithful && least >= contest.goal.0 && most <= contest.goal.1;
        reached &= good;
        println!(
            "| {name} | {median:.3} ({least:.3} .. {most:.3}) | {} | {:.2} | {}{} |",
            contest.wanted(),
            spread(&used).0,
            if faithful { "" } else { "emulator NOT faithful, " },
            verdict(good),
        );
    }
    Ok(reached)
}

/// Runs what is not recorded of these sources; gives all their rows.
fn measure(args: &Args, bed: &Bed, contests: &[Contest<'_>]) -> Result<Vec<Row>> {
    let recorded = fs::read_to_string(&args.record).unwrap_or_default();
    let lines = recorded.lines().map(|line| Ok(serde_json::from_str(line)?));
    let mut rows: Vec<Row> =
        lines.collect::<Result<_>>().with_context(|| args.record.display().to_string())?;
    let revision = &revision()?;
    rows.retain(|row| {
        let asked = row.rtt_ms == args.rtt && row.seconds == args.seconds && row.seed <= args.seeds;
        asked && row.faithful && row.revision == *revision
    });
    let known = |contest: &Contest<'_>, seed| {
        rows.iter().any(|row| row.contest == contest.name() && row.seed == seed)
    };
    let all = (1..=args.seeds).flat_map(|seed| contests.iter().map(move |one| (*one, seed)));
    let mut jobs: Vec<_> = all.filter(|(contest, seed)| !known(contest, *seed)).collect();
    jobs.reverse();
    let file = append_to(&args.record)?;
    let (jobs, done) = (Mutex::new(jobs), Mutex::new((rows, file)));
    thread::scope(|scope| {
        let worker = |place: usize| {
            let (jobs, done) = (&jobs, &done);
            move || -> Result<()> {
                let failed = || anyhow!("another run failed");
                loop {
                    let job = jobs.lock().map_err(|_| failed())?.pop();
                    let Some((contest, seed)) = job else { return Ok(()) };
                    let folder = bed.folder().join(format!("run{place}"));
                    let row = contest.run(bed, &folder, args.seconds, seed)?;
                    let row = Row { revision: revision.clone(), ..row };
                    eprintln!("{}, seed {seed}: {:.1?} Mbit/s", row.contest, row.rates);
                    let mut done = done.lock().map_err(|_| failed())?;
                    writeln!(done.1, "{}", serde_json::to_string(&row)?)?;
                    done.0.push(row);
                }
            }
        };
        let workers: Vec<_> =
            (0..args.together.max(1)).map(|place| scope.spawn(worker(place))).collect();
        let ends = workers.into_iter().map(|worker| worker.join());
        ends.map(|end| end.map_err(|_| anyhow!("a run panicked"))?).collect::<Result<Vec<()>>>()
    })?;
    Ok(done.into_inner().map_err(|_| anyhow!("a run panicked"))?.0)
}

/// Seconds from the start until all must have converged.
fn converged(rtt_ms: u64) -> f64 {
    JOIN + CONVERGE.0.max(CONVERGE.1 * rtt_ms as f64 / 1e3)
}

fn contests(rival: &str, rtt_ms: u64) -> Result<Vec<Contest<'_>>> {
    let (measure, goal) = (Measure::Jain, (JAIN, 1.0));
    let one = Contest { ours: 1, rival: None, rtt_ms, queue_ms: 50, measure, goal };
    let (rival, measure, goal) = match rival {
        "ours" => return Ok([2, 4, 8].map(|ours| Contest { ours, ..one }).into()),
        "cubic" => (Some(rival), Measure::Share, (0.4, 0.65)),
        "bbr" => (Some(rival), Measure::Share, (0.35, 0.65)),
        "background" => (Some("cubic"), Measure::Kept, (KEPT, f64::INFINITY)),
        "nobody" => (None, Measure::Queue, (0.0, QUEUE)),
        other => bail!("no rival is called {other:?}: ours, cubic, bbr, background, nobody"),
    };
    let contest = |queue_ms| Contest { rival, queue_ms, measure, goal, ..one };
    Ok([25, 50, 100].map(contest).into())
}

fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    if sum == 0.0 {
        return 0.0;
    }
    sum * sum / (rates.len() as f64 * rates.iter().map(|rate| rate * rate).sum::<f64>())
}

impl Contest<'_> {
    fn name(&self) -> String {
        let rival = self.rival.map(|rival| format!(", one {rival}")).unwrap_or_default();
        let how = match self.measure {
            Measure::Jain | Measure::Share => "",
            Measure::Kept => " in the background",
            Measure::Queue => " alone",
        };
        format!("{} of ours{how}{rival}, {} ms", self.ours, self.queue_ms)
    }

    fn wanted(&self) -> String {
        match self.goal {
            (least, f64::INFINITY) => format!("{least} or more"),
            (least, most) => format!("{least} .. {most}"),
        }
    }

    fn figure(&self, row: &Row) -> f64 {
        let rates = &row.rates;
        match self.measure {
            Measure::Jain => jain(rates).min(jain(&row.first)),
            Measure::Share => rates[0] / (rates[0] + rates[1]),
            Measure::Kept => rates[1] * 1e6 / payload_of(LINK_MBPS * 1e6),
            Measure::Queue => row.queue_ms / self.queue_ms as f64,
        }
    }

    /// Runs it once, and measures after all have had time to converge.
    fn run(&self, bed: &Bed, folder: &Path, seconds: u64, seed: u64) -> Result<Row> {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir(folder)?;
        let mut emulate = Command::new(bed.binary());
        emulate.arg("emulate").args(PATH).arg(seed.to_string());
        emulate.args(["--rtt", &format!("{}ms", self.rtt_ms)]);
        emulate.args(["--queue", &format!("{}ms", self.queue_ms), "--stats", LOOK, "--far", FAR]);
        emulate.args(["--cc", self.rival.unwrap_or("cubic"), "--", "sh", "-c", NEAR]);
        emulate.current_dir(folder).env("KEY", bed.key());
        emulate.env("LONGHAUL", bed.binary()).env("SOURCE", bed.source());
        emulate.env("TIME", seconds.to_string()).env("JOIN", JOIN.to_string());
        let apart = core::time::Duration::from_millis((seed - 1) % 5 * APART_MS);
        emulate.env("APART", apart.as_secs_f64().to_string());
        emulate.env("OURS", self.ours.to_string()).env("EARLY", self.ours.div_ceil(2).to_string());
        emulate.env("RIVAL", self.rival.unwrap_or_default());
        emulate.env("LEVEL", if self.measure == Measure::Kept { "--background" } else { "" });
        let output = emulate.output().context("cannot start `longhaul emulate`")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let start: f64 = read(folder, "rival-start")?.trim().parse::<f64>()? / 1e9;
        let (from, to) = (start + converged(self.rtt_ms), start + seconds as f64 - 1.0);
        let (mut rates, mut first) = (Vec::new(), Vec::new());
        for number in 0..self.ours {
            let series = flow(&read(folder, &format!("flow{number}"))?);
            let series = series.with_context(|| format!("flow {number}:\n{said}"))?;
            rates.push(rate(&series, from, to));
            first.push(rate(&series, from, from + FIRST));
        }
        if self.rival.is_some() {
            let report: Value = serde_json::from_str(&read(folder, "rival")?)?;
            let series = rival(&report, start).context("iperf3's report")?;
            rates.push(rate(&series, from, to));
        }
        let told: Vec<Value> = serde_json::Deserializer::from_slice(&output.stdout)
            .into_iter()
            .map_while(Result::ok)
            .collect();
        let queue = queue(&told, (converged(self.rtt_ms), seconds as f64));
        Ok(Row {
            contest: self.name(),
            revision: String::new(),
            rtt_ms: self.rtt_ms,
            seconds,
            seed,
            rates,
            first,
            queue_ms: queue.with_context(|| format!("the emulator's figures:\n{said}"))?,
            faithful: told.iter().any(|event| event["faithful"] == true),
        })
    }
}

/// The median queue in milliseconds, of what the emulator told between two times of its own.
fn queue(told: &[Value], (from, to): (f64, f64)) -> Option<f64> {
    let inside =
        |event: &&Value| event["seconds"].as_f64().is_some_and(|at| (from..to).contains(&at));
    let inside = told.iter().filter(inside);
    let queue = |event: &Value| event["near_to_far"]["queue_us"].as_f64();
    let queues: Vec<f64> = inside.filter_map(queue).collect();
    (!queues.is_empty()).then(|| spread(&queues).0 / 1e3)
}

fn read(folder: &Path, name: &str) -> Result<String> {
    fs::read_to_string(folder.join(name)).with_context(|| format!("{name} was not written"))
}

/// What `cp --json` said after the line with its start in nanoseconds.
fn flow(text: &str) -> Option<Series> {
    let mut lines = text.lines();
    let start = lines.next()?.parse::<f64>().ok()? / 1e9;
    let events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let progress = events.filter(|event| event["event"] == "progress");
    let point = |event: Value| Some((start + event["seconds"].as_f64()?, event["bytes"].as_f64()?));
    core::iter::once(Some((start, 0.0))).chain(progress.map(point)).collect()
}

/// What iperf3's sender reports.
fn rival(report: &Value, start: f64) -> Option<Series> {
    let mut bytes = 0.0;
    let intervals = report["intervals"].as_array()?.iter();
    let point = |interval: &Value| {
        bytes += interval["sum"]["bytes"].as_f64()?;
        Some((start + interval["sum"]["end"].as_f64()?, bytes))
    };
    core::iter::once(Some((start, 0.0))).chain(intervals.map(point)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contest_has_its_figure() {
        let row = |rates: &[f64], queue_ms| Row {
            contest: String::new(),
            revision: String::new(),
            rtt_ms: 50,
            seconds: 40,
            seed: 1,
            rates: rates.to_vec(),
            first: rates.iter().map(|rate| 2.0 * rate).collect(),
            queue_ms,
            faithful: true,
        };
        let first = |rival| contests(rival, 50).unwrap()[0];
        assert_eq!(first("ours").figure(&row(&[3.0, 3.0], 0.0)), 1.0);
        assert_eq!(first("ours").figure(&row(&[3.0, 0.0], 0.0)), 0.5);
        let late = Row { first: vec![1.0, 0.0], ..row(&[3.0, 3.0], 0.0) };
        assert_eq!(first("ours").figure(&late), 0.5);
        assert_eq!(first("bbr").figure(&row(&[30.0, 70.0], 0.0)), 0.3);
        let kept = first("background").figure(&row(&[5.0, 96.5], 0.0));
        assert!((kept - 1.0).abs() < 0.001, "{kept}");
        assert_eq!(first("nobody").figure(&row(&[90.0], 5.0)), 0.2);
        assert!(contests("somebody", 50).is_err());
        assert_eq!((converged(50), converged(560)), (10.0, JOIN + 11.2));
        let names: Vec<_> =
            ["cubic", "background", "nobody"].map(|rival| first(rival).name()).into();
        assert_eq!(
            names,
            [
                "1 of ours, one cubic, 25 ms",
                "1 of ours in the background, one cubic, 25 ms",
                "1 of ours alone, 25 ms"
            ]
        );
    }

    #[test]
    fn the_queue_is_the_median_inside_the_window() {
        let stats = |at: u64, us: u64| {
            let lane = serde_json::json!({ "queue_us": us });
            serde_json::json!({ "event": "stats", "seconds": at, "near_to_far": lane })
        };
        let told = [(1, 9000), (5, 1000), (6, 3000), (7, 2000), (12, 9000)];
        let told = told.map(|(at, us)| stats(at, us));
        assert_eq!(queue(&told, (5.0, 10.0)), Some(2.0));
        assert_eq!(queue(&told, (20.0, 30.0)), None);
    }

    #[test]
    fn both_reports_are_read() {
        let ours = "2000000000\n{\"event\":\"progress\",\"seconds\":1.5,\"bytes\":7}\n";
        assert_eq!(flow(ours), Some(vec![(2.0, 0.0), (3.5, 7.0)]));
        let report = serde_json::json!({"intervals": [{"sum": {"end": 1.0, "bytes": 3}}]});
        assert_eq!(rival(&report, 2.0), Some(vec![(2.0, 0.0), (3.0, 3.0)]));
    }
}

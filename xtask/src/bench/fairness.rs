//! Flows of ours beside each other, and beside one TCP flow of the kernel, through one bottleneck.
//!
//! Each run is recorded as it ends, so that a benchmark that broke off can go on.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lab::Bed;
use super::{spread, verdict};

/// The bottleneck.
const PATH: [&str; 8] = ["--rate", "100mbit", "--rtt", "50ms", "--loss", "0%", "--json", "--seed"];
const LINK_MBPS: f64 = 100.0;
/// Seconds until half of our flows join, and until they must have converged.
const JOIN: f64 = 5.0;
const CONVERGED: f64 = JOIN + 5.0;
/// Jain's index that our flows must reach among themselves.
const JAIN: f64 = 0.97;

/// Serves, and lets the kernel's flow send.
const NEAR: &str = "exec 1>&2; \"$LONGHAUL\" serve --quiet --no-remember --key \"$KEY\" \
    --root \"$SOURCE\" & sleep 1; date +%s%N >rival-start; if [ -n \"$RIVAL\" ]; then \
    iperf3 -c \"$LONGHAUL_FAR\" -C $RIVAL -t $TIME --json >rival; else sleep $TIME; fi; kill $!";
/// Fetches, half of the flows later, and receives from the kernel's flow.
const FAR: &str = "iperf3 -s -1 >/dev/null & sleep 1; \
    fetch() { mkdir dst$1; (date +%s%N; \
    exec timeout $2 \"$LONGHAUL\" cp --json --key \"$KEY\" \
    lh://$LONGHAUL_NEAR/file dst$1/) >flow$1 & }; \
    n=0; while [ $n -lt $EARLY ]; do fetch $n $TIME; n=$((n+1)); done; sleep $JOIN; \
    while [ $n -lt $OURS ]; do fetch $n $((TIME-JOIN)); n=$((n+1)); done; wait";

/// How much to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Runs of each contest, each with a seed of its own.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Seconds a run lasts.
    #[arg(long, default_value_t = 40)]
    seconds: u64,
    /// Against whom: ours, cubic, bbr.
    #[arg(long, value_delimiter = ',', default_value = "ours,cubic,bbr")]
    rivals: Vec<String>,
    /// Runs at a time, each over an emulator of its own. Sixteen ends of eight flows are busy threads:
    /// with two runs on two processors they measure the scheduler too.
    #[arg(long, default_value_t = 1)]
    together: usize,
    /// Where runs are recorded; what is there already is not run again.
    #[arg(long, default_value = "target/bench-fairness.jsonl")]
    record: PathBuf,
}

/// Who shares the bottleneck.
#[derive(Clone, Copy)]
struct Contest<'a> {
    ours: usize,
    rival: Option<&'a str>,
    queue_ms: u64,
    /// Jain's index among ours, or our share beside the rival.
    goal: (f64, f64),
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    contest: String,
    seconds: u64,
    seed: u64,
    /// Mbit/s of each of our flows, then of the rival.
    rates: Vec<f64>,
}

/// Measures what is not recorded yet, then prints a row for each contest; false when a worst run
/// misses its goal.
pub fn run(args: &Args) -> Result<bool> {
    let bed = Bed::new()?;
    bed.fill("file", args.seconds * 12_500_000)?;
    let contests: Vec<_> = args.rivals.iter().flat_map(|rival| contests(rival)).collect();
    let rows = measure(args, &bed, &contests)?;
    println!("100 Mbit/s, 50 ms, no random loss; {} s, {} seeds", args.seconds, args.seeds);
    println!("| flows and queue | share or Jain's index: median (least .. most) | goal | used | |");
    println!("|---|---|---|---|---|");
    let mut reached = true;
    for contest in &contests {
        let name = contest.name();
        let of = rows.iter().filter(|row| row.contest == name && row.seconds == args.seconds);
        let of: Vec<&Row> = of.filter(|row| row.seed <= args.seeds).collect();
        let figures: Vec<f64> = of.iter().map(|row| contest.figure(&row.rates)).collect();
        let used: Vec<f64> =
            of.iter().map(|row| row.rates.iter().sum::<f64>() / LINK_MBPS).collect();
        let (median, least, most) = spread(&figures);
        let good = least >= contest.goal.0 && most <= contest.goal.1;
        reached &= good;
        println!(
            "| {name} | {median:.3} ({least:.3} .. {most:.3}) | {} .. {} | {:.2} | {} |",
            contest.goal.0,
            contest.goal.1,
            spread(&used).0,
            verdict(good),
        );
    }
    Ok(reached)
}

/// Runs what is not recorded; gives all rows.
fn measure(args: &Args, bed: &Bed, contests: &[Contest<'_>]) -> Result<Vec<Row>> {
    let recorded = fs::read_to_string(&args.record).unwrap_or_default();
    let lines = recorded.lines().map(|line| Ok(serde_json::from_str(line)?));
    let rows: Vec<Row> =
        lines.collect::<Result<_>>().with_context(|| args.record.display().to_string())?;
    let known = |contest: &Contest<'_>, seed| {
        let same = |row: &Row| row.contest == contest.name() && row.seconds == args.seconds;
        rows.iter().any(|row| same(row) && row.seed == seed)
    };
    let all = (1..=args.seeds).flat_map(|seed| contests.iter().map(move |one| (*one, seed)));
    let mut jobs: Vec<_> = all.filter(|(contest, seed)| !known(contest, *seed)).collect();
    jobs.reverse();
    let file = OpenOptions::new().create(true).append(true).open(&args.record);
    let file = file.with_context(|| args.record.display().to_string())?;
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
                    let rates = contest.run(bed, &folder, args.seconds, seed)?;
                    let row = Row { contest: contest.name(), seconds: args.seconds, seed, rates };
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

fn contests(rival: &str) -> Vec<Contest<'_>> {
    if rival == "ours" {
        let goal = (JAIN, 1.0);
        return [2, 4, 8].map(|ours| Contest { ours, rival: None, queue_ms: 50, goal }).into();
    }
    let goal = (if rival == "cubic" { 0.4 } else { 0.35 }, 0.65);
    [25, 50, 100].map(|queue_ms| Contest { ours: 1, rival: Some(rival), queue_ms, goal }).into()
}

fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    sum * sum / (rates.len() as f64 * rates.iter().map(|rate| rate * rate).sum::<f64>())
}

impl Contest<'_> {
    fn name(&self) -> String {
        let rival = self.rival.map(|rival| format!(", one {rival}")).unwrap_or_default();
        format!("{} of ours{rival}, {} ms", self.ours, self.queue_ms)
    }

    fn figure(&self, rates: &[f64]) -> f64 {
        if self.rival.is_some() { rates[0] / (rates[0] + rates[1]) } else { jain(rates) }
    }

    /// Mbit/s of each of our flows, then of the rival, after all have had time to converge.
    fn run(&self, bed: &Bed, folder: &Path, seconds: u64, seed: u64) -> Result<Vec<f64>> {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir(folder)?;
        let mut emulate = Command::new(bed.binary());
        emulate.arg("emulate").args(PATH).arg(seed.to_string());
        emulate.args(["--queue", &format!("{}ms", self.queue_ms), "--far", FAR]);
        emulate.args(["--cc", self.rival.unwrap_or("cubic"), "--", "sh", "-c", NEAR]);
        emulate.current_dir(folder).env("KEY", bed.key());
        emulate.env("LONGHAUL", bed.binary()).env("SOURCE", bed.source());
        emulate.env("TIME", seconds.to_string()).env("JOIN", JOIN.to_string());
        emulate.env("OURS", self.ours.to_string()).env("EARLY", self.ours.div_ceil(2).to_string());
        emulate.env("RIVAL", self.rival.unwrap_or_default());
        let output = emulate.output().context("cannot start `longhaul emulate`")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let start: f64 = read(folder, "rival-start")?.trim().parse::<f64>()? / 1e9;
        let window = (start + CONVERGED, start + seconds as f64 - 1.0);
        let mut rates = Vec::new();
        for number in 0..self.ours {
            let series = flow(&read(folder, &format!("flow{number}"))?);
            rates.push(rate(&series.with_context(|| format!("flow {number}:\n{said}"))?, window));
        }
        if self.rival.is_some() {
            let report: Value = serde_json::from_str(&read(folder, "rival")?)?;
            rates.push(rate(&rival(&report, start).context("iperf3's report")?, window));
        }
        Ok(rates)
    }
}

fn read(folder: &Path, name: &str) -> Result<String> {
    fs::read_to_string(folder.join(name)).with_context(|| format!("{name} was not written"))
}

/// When, and the bytes that had arrived by then.
type Series = Vec<(f64, f64)>;

/// What `cp --json` said after the line with its start in nanoseconds.
fn flow(text: &str) -> Option<Series> {
    let mut lines = text.lines();
    let start = lines.next()?.parse::<f64>().ok()? / 1e9;
    let events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let progress = events.filter(|event| event["event"] == "progress");
    let point = |event: Value| Some((start + event["seconds"].as_f64()?, event["bytes"].as_f64()?));
    progress.map(point).collect()
}

/// What iperf3's sender reports.
fn rival(report: &Value, start: f64) -> Option<Series> {
    let mut bytes = 0.0;
    let intervals = report["intervals"].as_array()?.iter();
    let point = |interval: &Value| {
        bytes += interval["sum"]["bytes"].as_f64()?;
        Some((start + interval["sum"]["end"].as_f64()?, bytes))
    };
    intervals.map(point).collect()
}

/// Mbit/s between the first and the last point of a window.
fn rate(series: &Series, (from, to): (f64, f64)) -> f64 {
    let mut inside = series.iter().filter(|point| (from..to).contains(&point.0));
    let (Some(first), Some(last)) = (inside.next(), inside.next_back()) else { return 0.0 };
    (last.1 - first.1) * 8e-6 / (last.0 - first.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_taken_inside_the_window() {
        let series = vec![(0.0, 0.0), (1.0, 1e6), (2.0, 3e6), (3.0, 9e6)];
        assert_eq!(rate(&series, (0.5, 2.5)), 16.0);
        assert_eq!(rate(&series, (2.5, 9.0)), 0.0);
        assert_eq!((jain(&[1.0, 1.0]), jain(&[1.0, 0.0])), (1.0, 0.5));
    }

    #[test]
    fn both_reports_are_read() {
        let ours = "2000000000\n{\"event\":\"progress\",\"seconds\":1.5,\"bytes\":7}\n";
        assert_eq!(flow(ours), Some(vec![(3.5, 7.0)]));
        let report = serde_json::json!({"intervals": [{"sum": {"end": 1.0, "bytes": 3}}]});
        assert_eq!(rival(&report, 2.0), Some(vec![(3.0, 3.0)]));
    }
}

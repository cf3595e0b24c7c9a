//! The emulator itself: how late packets leave, what that costs, and what is lost outside of the
//! model, under kernel TCP and under UDP in super-packets.

use anyhow::{Context, Result};

use super::lab::{Build, Crossing, payload_of};
use super::spread;
use crate::command;

const RTT: &str = "100ms";

/// The share of a UDP packet of that load that is payload; the rest is IPv4 and UDP.
const UDP_PAYLOAD: f64 = 1448.0 / 1476.0;

/// A load that nearly fills a UDP link: the share of the link's payload limit.
const UDP_LOAD: f64 = 0.97;

/// How much to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Runs of each load.
    #[arg(long, default_value_t = 3)]
    runs: u64,
    /// Seconds that are measured of each run.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

/// What crosses the path.
#[derive(Clone, Copy)]
enum Load {
    /// Kernel TCP, CUBIC, in so many streams.
    Tcp(u32),
    /// UDP in super-packets.
    Udp,
}

/// What a median run may show at most, and how full it must be at least.
struct Gates {
    load: Load,
    gbit: u64,
    p50_us: f64,
    p99_us: f64,
    core: f64,
    fill: f64,
}

const GATES: [Gates; 4] = [
    Gates { load: Load::Tcp(1), gbit: 1, p50_us: 30.0, p99_us: 150.0, core: 0.5, fill: 0.95 },
    Gates { load: Load::Tcp(4), gbit: 4, p50_us: 200.0, p99_us: 200.0, core: 1.0, fill: 0.95 },
    Gates { load: Load::Udp, gbit: 1, p50_us: 30.0, p99_us: 150.0, core: 0.5, fill: 0.95 },
    Gates { load: Load::Udp, gbit: 4, p50_us: 200.0, p99_us: 200.0, core: 1.0, fill: 0.95 },
];

/// What one run showed.
struct Figures {
    p50_us: f64,
    p99_us: f64,
    core: f64,
    fill: f64,
    outside: f64,
}

/// Prints a row for each load; false when one fails.
pub fn run(args: &Args) -> Result<bool> {
    let build = Build::new()?;
    let mut blast = command::cargo(&["build", "--release", "--package", "longhaul-emulator"]);
    command::run(blast.args(["--example", "blast"]))?;
    println!("RTT {RTT}, MTU 1500; medians of {} runs, limits in brackets", args.runs);
    println!("| load | filled | late p50, us | late p99, us | of a core | lost outside | |");
    println!("|---|---|---|---|---|---|---|");
    let mut passed = true;
    for gates in &GATES {
        let runs: Vec<_> = (1..=args.runs)
            .map(|seed| measure(&build, gates, args.seconds, seed))
            .collect::<Result<_>>()?;
        passed &= row(gates, &runs);
    }
    Ok(passed)
}

fn measure(build: &Build, gates: &Gates, seconds: u64, seed: u64) -> Result<Figures> {
    let limit = payload_of(gates.gbit as f64 * 1e9);
    let blast = build.binary.with_file_name("examples").join("blast");
    let (far, near) = match gates.load {
        // The first seconds, in which TCP finds the rate, count for lateness but not for the rate.
        Load::Tcp(streams) => (
            "iperf3 -s -1".to_owned(),
            format!("exec iperf3 -c $LONGHAUL_FAR -P {streams} -O 5 -t {seconds} -J"),
        ),
        Load::Udp => (
            format!("exec {} receive [::]:5201", blast.display()),
            // What is under way at the end shall arrive as well: it was sent in the time.
            format!(
                "{} send $LONGHAUL_FAR:5201 {} {seconds} && sleep 0.3",
                blast.display(),
                limit * UDP_LOAD / 1e6
            ),
        ),
    };
    let rate = format!("{}gbit", gates.gbit);
    let path = ["--rate", &rate, "--rtt", RTT, "--loss", "0", "--queue", "50ms"];
    let crossing =
        Crossing { path: &path, congestion_control: "cubic", seed: Some(seed), far, near };
    let (said, report) = crossing.run(build)?;
    let of_report = |pointer: &str| {
        report.pointer(pointer).and_then(serde_json::Value::as_f64).context("an odd report")
    };
    let rate = match gates.load {
        Load::Tcp(_) => said["end"]["sum_received"]["bits_per_second"].as_f64(),
        // By the path's own count: the sender only knows what it handed over.
        Load::Udp => {
            Some(of_report("/near_to_far/delivered_bytes")? * UDP_PAYLOAD * 8.0 / seconds as f64)
        }
    };
    let both = |name: &str| -> Result<[f64; 2]> {
        Ok([
            of_report(&format!("/near_to_far/{name}"))?,
            of_report(&format!("/far_to_near/{name}"))?,
        ])
    };
    let worse = |name| both(name).map(|[forward, back]| forward.max(back));
    Ok(Figures {
        p50_us: worse("late_p50_us")?,
        p99_us: worse("late_p99_us")?,
        core: of_report("/cpu_seconds")? / of_report("/seconds")?,
        fill: rate.context("the load reports no rate")? / limit,
        outside: both("outside_model")?.iter().sum(),
    })
}

fn row(gates: &Gates, runs: &[Figures]) -> bool {
    let median =
        |figure: fn(&Figures) -> f64| spread(&runs.iter().map(figure).collect::<Vec<_>>()).0;
    let (p50, p99) = (median(|run| run.p50_us), median(|run| run.p99_us));
    let (core, fill) = (median(|run| run.core), median(|run| run.fill));
    // Of every run: one packet lost outside of the model is one too many.
    let outside: f64 = runs.iter().map(|run| run.outside).sum();
    let passed = p50 <= gates.p50_us
        && p99 <= gates.p99_us
        && core <= gates.core
        && fill >= gates.fill
        && outside == 0.0;
    let name = match gates.load {
        Load::Tcp(streams) => format!("kernel TCP x {streams}"),
        Load::Udp => "UDP, GSO".to_owned(),
    };
    println!(
        "| {name}, {} Gbit/s | {:.1}% [{:.0}] | {p50:.0} [{}] | {p99:.0} [{}] | {:.0}% [{:.0}] \
         | {outside} [0] | {} |",
        gates.gbit,
        fill * 100.0,
        gates.fill * 100.0,
        gates.p50_us,
        gates.p99_us,
        core * 100.0,
        gates.core * 100.0,
        super::verdict(passed),
    );
    passed
}

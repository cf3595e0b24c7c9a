//! Past this machine: what the simulator shows of thousands of flows and of very fast links. No goals; the
//! rows stand in `docs/book/scale.md`.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::lab::Build;
use super::simulator::{Simulated, simulate};

/// Which rows.
#[derive(clap::Args)]
pub struct Args {
    /// Only those whose description has this in it.
    #[arg(long, default_value = "")]
    only: String,
}

/// Flows of ours from one host to another, which begin within half of what is not counted.
struct Row {
    flows: u32,
    rate: &'static str,
    rtt_ms: u32,
    loss: &'static str,
    /// Milliseconds of the run, and how many of them are not counted.
    duration: u32,
    from: u32,
}

const fn row(
    flows: u32,
    rate: &'static str,
    rtt_ms: u32,
    loss: &'static str,
    duration: u32,
    from: u32,
) -> Row {
    Row { flows, rate, rtt_ms, loss, duration, from }
}

/// What takes more than some 8 GB is left out: memory follows the credit that each flow has at first.
const ROWS: [Row; 10] = [
    row(10, "1gbit", 100, "0.1%", 10_000, 5000),
    row(100, "1gbit", 100, "0.1%", 10_000, 5000),
    row(1000, "1gbit", 10, "0.1%", 4000, 2000),
    row(1, "10gbit", 100, "0.1%", 5000, 2500),
    row(100, "10gbit", 100, "0.1%", 4000, 2000),
    row(1, "40gbit", 10, "1%", 1500, 750),
    row(1, "100gbit", 10, "1%", 1000, 500),
    row(1, "400gbit", 10, "0.1%", 500, 250),
    row(1, "10gbit", 600, "0.1%", 15_000, 7500),
    row(10, "10gbit", 600, "0.1%", 30_000, 15_000),
];

/// Prints a row for each.
pub fn run(args: &Args) -> Result<bool> {
    let wanted = |row: &&Row| row.name().contains(&args.only);
    ensure!(ROWS.iter().any(|row| wanted(&row)), "no row is described by '{}'", args.only);
    let build = Build::new()?;
    let folder = tempfile::tempdir()?;
    println!(
        "| flows | link | goodput, Gbit/s | Jain's fairness | used % | reports % | peak MiB | real s |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for row in ROWS.iter().filter(wanted) {
        let Simulated { run, seconds, peak } =
            simulate(&build.binary, &folder, &row.scenario(), &row.times())?;
        let count = |value: &Value| value.as_f64().context("an odd run");
        let flows = run["flows"].as_array().context("flows")?;
        let rates =
            flows.iter().map(|flow| count(&flow["goodput_bps"])).collect::<Result<Vec<_>>>()?;
        let sent = flows.iter().map(|flow| count(&flow["sent"])).sum::<Result<f64>>()?;
        ensure!(sent > 0.0, "nothing was sent");
        let sum = rates.iter().sum::<f64>();
        let squares = rates.iter().map(|rate| rate * rate).sum::<f64>();
        // What does not carry data, both ways: reports.
        let packets = count(&run["packets"])?;
        println!(
            "| {} | {:.2} | {:.3} | {:.1} | {:.2} | {} | {seconds:.0} |",
            row.name(),
            sum * 1e-9,
            sum * sum / (squares * rates.len() as f64),
            100.0 * count(&run["queue"]["utilisation"])?,
            100.0 * (packets - sent) / packets,
            peak >> 20,
        );
    }
    Ok(true)
}

impl Row {
    fn name(&self) -> String {
        let Self { flows, rate, rtt_ms, loss, .. } = self;
        format!("{flows} | {rate}, {rtt_ms} ms, {loss} lost")
    }

    fn scenario(&self) -> String {
        let Self { flows, rate, rtt_ms, loss, from, .. } = self;
        let every = from * 500 / flows;
        format!(
            "about = \"Past this machine\"\nrtt = \"{rtt_ms}ms\"\nboth = {{ rate = \"{rate}\", queue = \"50ms\" }}\n\
             forward = {{ loss = \"{loss}\" }}\n[[flow]]\ncount = {flows}\nevery = \"{every}us\"\n"
        )
    }

    fn times(&self) -> Vec<String> {
        let Self { duration, from, .. } = self;
        vec!["--duration".into(), format!("{duration}ms"), "--from".into(), format!("{from}ms")]
    }
}

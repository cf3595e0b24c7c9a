//! Does `longhaul simulate` foretell when a copy will be done? The path is recorded by
//! `longhaul probe --record` or known; the truth is a copy across the emulator.

use anyhow::{Context, Result};
use serde_json::Value;

use super::lab::{Bed, Crossing};
use super::{spread, verdict};
use crate::command;

/// How far off a prediction may be.
const NEAR: f64 = 0.1;

/// The scenario of the path itself, and what `probe --record` wrote.
const KNOWN: &str = "known.toml";
const RECORDED: &str = "recorded.toml";

/// A path, as the lines of a scenario, and MiB to copy over it.
struct Path {
    told: &'static str,
    lines: &'static str,
    size: u64,
}

const PATHS: [Path; 7] = [
    Path {
        told: "50 Mbit/s, 40 ms",
        lines: "rtt = '40ms'\nboth = { rate = '50mbit', queue = '50ms' }",
        size: 64,
    },
    Path {
        told: "100 Mbit/s, 200 ms, 0.1% lost",
        lines: "rtt = '200ms'\nboth = { rate = '100mbit', queue = '50ms' }\nforward = { loss = '0.1%' }",
        size: 128,
    },
    Path {
        told: "200 Mbit/s, 100 ms, 1% lost",
        lines: "rtt = '100ms'\nboth = { rate = '200mbit', queue = '50ms' }\nforward = { loss = '1%' }",
        size: 256,
    },
    Path {
        told: "10 Mbit/s, 560 ms, queue of 500 ms, 0.5% lost",
        lines: "rtt = '560ms'\nboth = { rate = '10mbit', queue = '500ms' }\nforward = { loss = '0.5%' }",
        size: 12,
    },
    Path {
        told: "100 Mbit/s, 50 ms, queue of 10 ms",
        lines: "rtt = '50ms'\nboth = { rate = '100mbit', queue = '10ms' }",
        size: 128,
    },
    Path {
        told: "50 Mbit/s, 100 ms, queue of 200 ms",
        lines: "rtt = '100ms'\nboth = { rate = '50mbit', queue = '200ms' }",
        size: 64,
    },
    Path {
        told: "100 Mbit/s there and 2 back, 80 ms, queue of 100 ms",
        lines: "rtt = '80ms'\nboth = { queue = '100ms' }\nforward = { rate = '100mbit' }\nback = { rate = '2mbit' }",
        size: 128,
    },
];

/// How much to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Runs over each path.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
}

/// Prints a row for each path; false when a median misses the goal.
pub fn run(args: &Args) -> Result<bool> {
    let bed = Bed::new()?;
    println!("| path | copy, s | foretold from a recording | from the path itself |");
    println!("|---|---|---|---|");
    let mut reached = true;
    for (number, path) in PATHS.iter().enumerate() {
        let file = format!("file{number}");
        bed.fill(&file, path.size << 20)?;
        let write = |seed: u64| {
            let scenario = format!("about = \"The path itself\"\nseed = {seed}\n{}\n", path.lines);
            std::fs::write(bed.folder().join(KNOWN), scenario)
        };
        write(1)?;
        let known = foretold(&bed, KNOWN, path.size)?;
        let (mut truths, mut recorded, mut late) = (Vec::new(), Vec::new(), 0);
        for seed in 1..=args.seeds {
            write(seed)?;
            let (seconds, faithful) = copied(&bed, &file)?;
            truths.push(seconds);
            late += u64::from(!faithful);
            recorded.push(foretold(&bed, RECORDED, path.size)?);
        }
        let (truth, ..) = spread(&truths);
        let share = |found: f64| {
            let off = found / truth - 1.0;
            (off.abs() <= NEAR, format!("{found:.2}, {:+.1}%", 100.0 * off))
        };
        let (recorded, known) = (share(spread(&recorded).0), share(known));
        reached &= recorded.0 && known.0 && late == 0;
        println!(
            "| {} MiB, {} | {truth:.2}{} | {} ({}) | {} ({}) |",
            path.size,
            path.told,
            if late == 0 { String::new() } else { format!(", {late} runs NOT faithful") },
            recorded.1,
            verdict(recorded.0),
            known.1,
            verdict(known.0),
        );
    }
    Ok(reached)
}

/// Seconds that a copy takes across the emulator, after a probe that records the path, and whether the
/// emulator kept up.
fn copied(bed: &Bed, file: &str) -> Result<(f64, bool)> {
    let (binary, key) = (bed.binary().display(), bed.key());
    let (key, root) = (key.display(), bed.destination());
    std::fs::create_dir_all(&root)?;
    let record = bed.folder().join(RECORDED);
    let known = bed.folder().join(KNOWN);
    let near = format!(
        "{binary} probe --key {key} --record {} lh://$LONGHAUL_FAR >&2 && begin=$(date +%s%N) && \
         {binary} cp --quiet --no-remember --transport udp --key {key} {} lh://$LONGHAUL_FAR/ >&2 && \
         end=$(date +%s%N) && echo $((end - begin))",
        record.display(),
        bed.source().join(file).display(),
    );
    let crossing = Crossing {
        path: &["--scenario", known.to_str().context("an odd folder")?],
        congestion_control: "cubic",
        seed: None,
        far: format!(
            "exec {binary} serve --quiet --no-remember --key {key} --root {}",
            root.display()
        ),
        near,
    };
    let (nanos, report) = crossing.run(bed.build())?;
    std::fs::remove_dir_all(&root)?;
    let seconds = nanos.as_f64().context("nanoseconds")? * 1e-9;
    Ok((seconds, report["faithful"] == true))
}

/// When the copy will be done, in seconds.
fn foretold(bed: &Bed, scenario: &str, size: u64) -> Result<f64> {
    let mut simulate = std::process::Command::new(bed.binary());
    simulate.arg("simulate").arg(bed.folder().join(scenario));
    simulate.args(["--set", &format!("flow.source=copy:{size}MiB"), "--duration", "10m", "--json"]);
    let said = command::output(&mut simulate)?;
    let line: Value = serde_json::from_str(said.lines().next().context("a line")?)?;
    line["run"]["flows"][0]["finished"].as_f64().context("it is not done after ten minutes")
}

//! Does `longhaul simulate` foretell when a copy will be done? The path is recorded by
//! `longhaul probe --record` or known; the truth is a copy across the emulator.

use anyhow::{Context, Result};
use serde_json::Value;

use super::lab::{Bed, Crossing};
use super::{spread, verdict};
use crate::command;

/// How far off a prediction may be.
const NEAR: f64 = 0.1;

/// Rate, round-trip time, queue, loss, and MiB to copy.
const PATHS: [(&str, &str, &str, &str, u64); 4] = [
    ("50mbit", "40ms", "50ms", "0", 64),
    ("100mbit", "200ms", "50ms", "0.1%", 128),
    ("200mbit", "100ms", "50ms", "1%", 256),
    ("10mbit", "560ms", "500ms", "0.5%", 12),
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
        bed.fill(&file, path.4 << 20)?;
        let known = known(&bed, path)?;
        let (mut truths, mut recorded, mut late) = (Vec::new(), Vec::new(), 0);
        for seed in 1..=args.seeds {
            let (seconds, faithful) = copied(&bed, path, &file, seed)?;
            truths.push(seconds);
            late += u64::from(!faithful);
            recorded.push(foretold(&bed, "recorded.toml", path.4)?);
        }
        let (truth, ..) = spread(&truths);
        let share = |found: f64| {
            let off = found / truth - 1.0;
            (off.abs() <= NEAR, format!("{found:.2}, {:+.1}%", 100.0 * off))
        };
        let (recorded, known) = (share(spread(&recorded).0), share(known));
        reached &= recorded.0 && known.0 && late == 0;
        let (rate, rtt, queue, loss, size) = path;
        println!(
            "| {size} MiB, {rate}, {rtt}, queue {queue}, loss {loss} | {truth:.2}{} | {} ({}) | {} ({}) |",
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
fn copied(
    bed: &Bed,
    path: &(&str, &str, &str, &str, u64),
    file: &str,
    seed: u64,
) -> Result<(f64, bool)> {
    let (rate, rtt, queue, loss, _) = *path;
    let (binary, key) = (bed.binary().display(), bed.key());
    let (key, root) = (key.display(), bed.destination());
    std::fs::create_dir_all(&root)?;
    let record = bed.folder().join("recorded.toml");
    let near = format!(
        "{binary} probe --key {key} --record {} lh://$LONGHAUL_FAR >&2 && begin=$(date +%s%N) && \
         {binary} cp --quiet --no-remember --transport udp --key {key} {} lh://$LONGHAUL_FAR/ >&2 && \
         end=$(date +%s%N) && echo $((end - begin))",
        record.display(),
        bed.source().join(file).display(),
    );
    let crossing = Crossing {
        path: &["--rate", rate, "--rtt", rtt, "--queue", queue, "--loss", loss],
        congestion_control: "cubic",
        seed,
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

/// The same from the path that the emulator was given.
fn known(bed: &Bed, path: &(&str, &str, &str, &str, u64)) -> Result<f64> {
    let (rate, rtt, queue, loss, size) = *path;
    let text = format!(
        "about = \"The path itself\"\nrtt = \"{rtt}\"\nboth = {{ rate = \"{rate}\", queue = \"{queue}\" }}\n\
         forward = {{ loss = \"{loss}\" }}\n"
    );
    std::fs::write(bed.folder().join("known.toml"), text)?;
    foretold(bed, "known.toml", size)
}

/// When all will have arrived, in seconds.
fn foretold(bed: &Bed, scenario: &str, size: u64) -> Result<f64> {
    let mut simulate = std::process::Command::new(bed.binary());
    simulate.arg("simulate").arg(bed.folder().join(scenario));
    simulate.args(["--set", &format!("flow.source={size}MiB"), "--duration", "10m", "--json"]);
    let said = command::output(&mut simulate)?;
    let line: Value = serde_json::from_str(said.lines().next().context("a line")?)?;
    line["run"]["flows"][0]["finished"].as_f64().context("it has not arrived after ten minutes")
}

//! Does the simulator show what the emulator shows? The same paths, and over them the models of TCP
//! against the kernel's, and our own transport against itself.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::lab::{Bed, Crossing};
use super::{spread, verdict};
use crate::command;

/// How far throughput may be from the emulator's, and the share of packets lost.
const NEAR: (f64, f64) = (0.05, 0.10);
/// Losses are compared where the emulator shows at least this share: fewer are chance.
const LOSS: f64 = 1e-4;

/// How much to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Runs of each scenario, here and there.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Seconds of each with iperf3; ours are copies of a file.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only those whose flows are called so, as in "4 cubic".
    #[arg(long, default_value = "")]
    only: String,
}

/// The file that is copied, in MiB.
const FILE: u64 = 256;

/// In how many seconds it must have arrived.
const PATIENCE: u64 = 600;

/// Flows of one kind over a path.
struct Case {
    /// `reno` and `cubic` are TCP's, of the kernel or of the model; `ours` is our own transport, `striped` a copy over
    /// connections of CUBIC.
    flow: &'static str,
    /// How many, all from the beginning; of `ours` one; of `striped` its connections.
    count: usize,
    rate: &'static str,
    rtt: &'static str,
    /// The queue towards the reader.
    queue: &'static str,
    loss: &'static str,
}

const RED: &str = "red:min=50packets,max=150packets,max_p=10%";
const RED_I: &str = "red-i:min=50packets,max=150packets,max_p=10%";

const CASES: [Case; 13] = [
    Case::new("reno", 1, "20mbit", "40ms", "100packets", "0"),
    Case::new("reno", 1, "100mbit", "50ms", "400packets", "0.1%"),
    Case::new("cubic", 1, "50mbit", "100ms", "400packets", "0"),
    Case::new("cubic", 1, "100mbit", "50ms", "400packets", "0.1%"),
    Case::new("reno", 4, "20mbit", "40ms", "100packets", "0"),
    Case::new("cubic", 4, "50mbit", "100ms", "400packets", "0"),
    Case::new("reno", 4, "20mbit", "100ms", RED, "0"),
    Case::new("cubic", 4, "20mbit", "100ms", RED_I, "0"),
    Case::new("ours", 1, "100mbit", "100ms", "50ms", "0.5%"),
    Case::new("ours", 1, "50mbit", "200ms", "50ms", "0"),
    Case::new("ours", 1, "50mbit", "100ms", RED, "0"),
    Case::new("striped", 4, "100mbit", "150ms", "50ms", "0.05%"),
    Case::new("striped", 16, "100mbit", "150ms", "50ms", "0.05%"),
];

/// What a run showed: Mbit/s that the reader got, the share of data packets lost, in the queue and
/// on the line, and whether the emulator kept up.
#[derive(Clone, Copy)]
struct Figures {
    mbps: f64,
    lost: f64,
    faithful: bool,
}

/// Prints a row for each scenario; false when a median misses the goal.
pub fn run(args: &Args) -> Result<bool> {
    let wanted = |case: &&Case| format!("{} {}", case.count, case.flow).contains(&args.only);
    ensure!(CASES.iter().any(|case| wanted(&case)), "no flows are called '{}'", args.only);
    let bed = Bed::new()?;
    bed.fill("file", FILE << 20)?;
    println!(
        "Medians of {} runs of {} s, and the spread of the emulator's",
        args.seeds, args.seconds
    );
    println!("| flow | path | who | Mbit/s | lost % | |");
    println!("|---|---|---|---|---|---|");
    let mut reached = true;
    for case in CASES.iter().filter(wanted) {
        let each = |run: &dyn Fn(u64) -> Result<Figures>| -> Result<Vec<Figures>> {
            (1..=args.seeds).map(run).collect()
        };
        let truth = each(&|seed| case.emulate(&bed, args.seconds, seed))?;
        let model = each(&|seed| case.simulate(&bed, args.seconds, seed))?;
        let of = |runs: &[Figures], figure: fn(&Figures) -> f64| {
            spread(&runs.iter().map(figure).collect::<Vec<_>>())
        };
        let [there, here] = [&truth, &model].map(|runs| of(runs, |run| run.mbps));
        let [lost, ours] = [&truth, &model].map(|runs| of(runs, |run| run.lost));
        let late = truth.iter().filter(|run| !run.faithful).count();
        let near = |ours: f64, theirs: f64, share: f64| (ours / theirs - 1.0).abs() <= share;
        // How far connections that start together overrun the queue hangs on receivers' windows that grow, which
        // the model has not.
        let losses = case.flow == "striped"
            || lost.0 < LOSS && ours.0 < LOSS
            || near(ours.0, lost.0, NEAR.1);
        let agrees = near(here.0, there.0, NEAR.0) && losses && late == 0;
        reached &= agrees;
        let Case { flow, count, rate, rtt, queue, loss } = case;
        let path = format!("{rate}, {rtt}, queue {queue}, loss {loss}");
        println!(
            "| {count} {flow} | {path} | emulator | {:.2} ({:.2} .. {:.2}) | {:.4} | {} |",
            there.0,
            there.1,
            there.2,
            100.0 * lost.0,
            if late == 0 { "faithful".to_owned() } else { format!("{late} runs NOT faithful") },
        );
        println!(
            "| {count} {flow} | {path} | simulator | {:.2} | {:.4} | {} |",
            here.0,
            100.0 * ours.0,
            verdict(agrees)
        );
    }
    Ok(reached)
}

/// Mbit/s of the file in so many seconds.
fn carried(seconds: f64) -> f64 {
    (FILE << 23) as f64 * 1e-6 / seconds
}

impl Case {
    const fn new(
        flow: &'static str,
        count: usize,
        rate: &'static str,
        rtt: &'static str,
        queue: &'static str,
        loss: &'static str,
    ) -> Self {
        Self { flow, count, rate, rtt, queue, loss }
    }

    /// Writes the scenario, which both run: the emulator passes its flows over.
    fn scenario(&self, bed: &Bed, seed: u64) -> Result<PathBuf> {
        let Self { flow, count, rate, rtt, queue, loss } = *self;
        let flow = match flow {
            "ours" => format!("source = \"{FILE}MiB\""),
            "striped" => {
                format!("transport = \"tcp\"\nstreams = {count}\nsource = \"{FILE}MiB\"")
            }
            cc => format!("transport = \"tcp\"\ncc = \"{cc}\"\ncount = {count}"),
        };
        let text = format!(
            "about = \"The same\"\nseed = {seed}\nrtt = \"{rtt}\"\nboth = {{ rate = \"{rate}\" }}\n\
             forward = {{ queue = \"{queue}\", loss = \"{loss}\" }}\n\
             [[flow]]\nname = \"flow\"\n{flow}\n"
        );
        let file = bed.folder().join("same.toml");
        std::fs::write(&file, text)?;
        Ok(file)
    }

    /// The real program across the emulator.
    fn emulate(&self, bed: &Bed, seconds: u64, seed: u64) -> Result<Figures> {
        let (binary, key) = (bed.binary().display(), bed.key());
        let (key, root) = (key.display(), bed.destination());
        std::fs::create_dir_all(&root)?;
        let carrier = match self.flow {
            "striped" => format!("tcp --tcp-cc cubic --streams {}", self.count),
            _ => "udp".to_owned(),
        };
        let (far, near) = match self.flow {
            "ours" | "striped" => (
                format!(
                    "exec {binary} serve --quiet --no-remember --key {key} --root {}",
                    root.display()
                ),
                format!(
                    "begin=$(date +%s%N) && {binary} cp --quiet --no-remember --transport {carrier} --key {key} {} \
                     lh://$LONGHAUL_FAR/ >&2 && end=$(date +%s%N) && echo $((end - begin))",
                    bed.source().join("file").display(),
                ),
            ),
            _ => (
                "iperf3 -s -1".to_owned(),
                format!("exec iperf3 -c $LONGHAUL_FAR -t {seconds} -P {} -J", self.count),
            ),
        };
        let scenario = self.scenario(bed, seed)?;
        let crossing = Crossing {
            path: &["--scenario", scenario.to_str().context("an odd folder")?],
            congestion_control: if self.flow == "reno" { "reno" } else { "cubic" },
            seed: None,
            far,
            near,
        };
        let (said, report) = crossing.run(bed.build())?;
        std::fs::remove_dir_all(&root)?;
        let lane = &report["near_to_far"];
        let count = |value: &Value| value.as_f64().context("an odd report");
        // `early`: of RED, before its queue is full.
        let dropped = ["queue", "early", "loss"].map(|cause| count(&lane["dropped"][cause]));
        let lost = dropped.into_iter().sum::<Result<f64>>()?;
        let mbps = match self.flow {
            "ours" | "striped" => carried(count(&said)? * 1e-9),
            _ => count(&said["end"]["sum_received"]["bits_per_second"])? * 1e-6,
        };
        Ok(Figures {
            mbps,
            lost: lost / count(&lane["packets"])?,
            faithful: report["faithful"] == true,
        })
    }

    /// The same in virtual time.
    fn simulate(&self, bed: &Bed, seconds: u64, seed: u64) -> Result<Figures> {
        let mut simulate = std::process::Command::new(bed.binary());
        simulate.arg("simulate").arg(self.scenario(bed, seed)?).arg("--json");
        let copies = ["ours", "striped"].contains(&self.flow);
        let seconds = if copies { PATIENCE } else { seconds };
        simulate.args(["--duration", &format!("{seconds}s")]);
        let said = command::output(&mut simulate)?;
        let line: Value = serde_json::from_str(said.lines().next().context("a line")?)?;
        let flows = line["run"]["flows"].as_array().context("no flows")?;
        let sum = |key: &str| -> Result<f64> {
            flows.iter().map(|flow| flow[key].as_f64().with_context(|| key.to_owned())).sum()
        };
        let mbps = if copies { carried(sum("finished")?) } else { sum("goodput_bps")? * 1e-6 };
        Ok(Figures {
            mbps,
            lost: (sum("queue_drops")? + sum("line_losses")?) / sum("sent")?,
            faithful: true,
        })
    }
}

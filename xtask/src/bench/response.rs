//! Kernel TCP across the emulator, against what theory says of it.

use std::thread;

use anyhow::{Context, Result};

use super::lab::{Build, Crossing, PACKET_PAYLOAD, payload_of};
use super::{spread, verdict};

/// Far above what the response functions give, far below what a machine carries many times.
const RATE_MBIT: f64 = 100.0;

/// How far a measured rate may be from the function's.
const FACTOR: f64 = 1.5;

/// The share of the payload limit that BBR must reach without loss.
const BBR_GOAL: f64 = 0.9;

/// How much to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Runs of each comparison, side by side, each with a seed of its own.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Seconds that are measured of each run.
    #[arg(long, default_value_t = 100)]
    seconds: u64,
}

/// One comparison.
struct Case {
    congestion_control: &'static str,
    rtt_ms: f64,
    loss: f64,
}

impl Case {
    /// The rate that theory predicts, bit/s.
    ///
    /// Reno: window 1.22/sqrt(p) (Mathis et al., 1997, for a receiver whose delayed
    /// acknowledgements do not slow growth, as bytes are counted: RFC 3465). CUBIC: the greater of
    /// its Reno-friendly window, RFC 9438, equation 3 with its alpha of section 4.3, and of
    /// 1.054 (RTT/p)^(3/4), equation 6. BBR: the link's payload limit.
    fn predicted(&self) -> f64 {
        let Self { rtt_ms, loss, .. } = *self;
        let rtt = rtt_ms / 1e3;
        let reno = (1.5 / loss).sqrt();
        let window = match self.congestion_control {
            "reno" => reno,
            "cubic" => reno.max(1.054 * (rtt / loss).powf(0.75)),
            _ => return payload_of(RATE_MBIT * 1e6),
        };
        window * PACKET_PAYLOAD * 8.0 / rtt
    }

    fn agrees(&self, share: f64) -> bool {
        if self.congestion_control == "bbr" {
            return share >= BBR_GOAL;
        }
        (1.0 / FACTOR..=FACTOR).contains(&share)
    }

    /// The rate, and whether the emulator kept up.
    fn measure(&self, build: &Build, seconds: u64, seed: u64) -> Result<(f64, bool)> {
        let (rate, rtt) = (format!("{RATE_MBIT}mbit"), format!("{}ms", self.rtt_ms));
        let loss = self.loss.to_string();
        let path = ["--rate", &rate, "--rtt", &rtt, "--loss", &loss, "--queue", "50ms"];
        let crossing = Crossing {
            path: &path,
            congestion_control: self.congestion_control,
            seed: Some(seed),
            far: "iperf3 -s -1".to_owned(),
            // Slow start is over long before, and the window where it stays on average.
            near: format!("exec iperf3 -c $LONGHAUL_FAR -O 30 -t {seconds} -J"),
        };
        let (said, report) = crossing.run(build)?;
        let rate = said["end"]["sum_received"]["bits_per_second"].as_f64();
        Ok((rate.context("iperf3 reports no rate")?, report["faithful"] == true))
    }
}

fn cases() -> Vec<Case> {
    let mut cases = vec![Case { congestion_control: "bbr", rtt_ms: 50.0, loss: 0.0 }];
    for congestion_control in ["reno", "cubic"] {
        for rtt_ms in [50.0, 200.0] {
            cases.extend([0.001, 0.01].map(|loss| Case { congestion_control, rtt_ms, loss }));
        }
    }
    cases
}

/// Prints a row for each comparison; false when one fails. The seeds of a case run side by side:
/// their rates are small.
pub fn run(args: &Args) -> Result<bool> {
    let build = Build::new()?;
    let Args { seeds, seconds } = *args;
    println!("Kernel TCP over {RATE_MBIT} Mbit/s; medians of {seeds} seeds, {seconds} s each");
    println!("| control | RTT | loss | Mbit/s | theory | measured / theory | |");
    println!("|---|---|---|---|---|---|---|");
    let mut passed = true;
    for case in cases() {
        let runs: Vec<(f64, bool)> = thread::scope(|scope| {
            let run = |seed| {
                scope.spawn({
                    let (case, build) = (&case, &build);
                    move || case.measure(build, seconds, seed)
                })
            };
            let runs: Vec<_> = (1..=seeds).map(run).collect();
            runs.into_iter()
                .map(|run| run.join().expect("a run does not panic"))
                .collect::<Result<_>>()
        })?;
        let rates: Vec<f64> = runs.iter().map(|run| run.0).collect();
        let unfaithful = runs.iter().filter(|run| !run.1).count();
        let (rate, predicted) = (spread(&rates).0, case.predicted());
        let share = rate / predicted;
        let agrees = case.agrees(share) && unfaithful == 0;
        passed &= agrees;
        println!(
            "| {} | {} ms | {}% | {:.2} | {:.2} | {share:.2} | {}{} |",
            case.congestion_control,
            case.rtt_ms,
            case.loss * 100.0,
            rate / 1e6,
            predicted / 1e6,
            verdict(agrees),
            if unfaithful == 0 { String::new() } else { format!(", {unfaithful} NOT faithful") },
        );
    }
    Ok(passed)
}

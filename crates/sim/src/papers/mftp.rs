//! Paper 1: MFTP, several TCP connections for one file, where nothing is lost but what is to be.
//! Errors are in `mftp_errors`, the assignment of blocks in `mftp_blocks`.

use path::LossConfig;

use super::{
    Judgement, Plot, Row, SEEDS, Seen, Spreads, both, ms, preset, seconds, studies, study, tcp,
    with_rtt,
};
use crate::study::{Outcome, Study};
use crate::tcp::{Config, Recovery, Source};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "mftp-eq1",
        experiment: "one connection with a window of 64 KB over a round-trip time of 200 ms",
        paper: "2.6 Mbit/s by equation 1",
        criterion: "within 5%",
        assumptions: &["MSS 9148 as in the other experiments: 7 whole segments are 64,036 bytes"],
        seeds: SEEDS,
        work: studies(
            || vec![steady(200, 1, 65_535)],
            |seen| {
                let mut judgement = Judgement::new();
                judgement.near("Mbit/s", seen.spread(0, mbps), 2.62, 0.05);
                judgement
            },
        ),
    },
    Row {
        id: "mftp-fig7",
        experiment: "throughput against windows of 4 to 51 KB at a round-trip time of 100 ms",
        paper: "rises in steps: whole segments only",
        criterion: "steps at multiples of the MSS: flat within 1% between, up by 15% and more there",
        assumptions: &[
            "the steps are judged from one segment on, 9 KB: of a smaller window the paper does not tell what its \
             hosts do, and here it goes out as one small segment",
        ],
        seeds: SEEDS,
        work: studies(|| STEPS.map(|kib| steady(100, 1, kib << 10)).collect(), judge_steps),
    },
    Row {
        id: "mftp-recovery",
        experiment: "time to the full window after a loss: a window of W, one of 4 W, and four of W",
        paper: "(log2(W/2MSS) + W/2MSS) RTT for each, about 1/n of the single window's",
        criterion: "within 20% of the formula; with four of W within 20% of a quarter of the time with one of 4 W",
        assumptions: &[
            "MSS 1460, W of 64 and 256 KB (the last figure: MSS 536), counted from the slow start, not the loss",
        ],
        seeds: SEEDS,
        work: studies(
            || {
                let alone = RECOVERY.map(|(window, mss)| one_loss(1, window, mss));
                alone.into_iter().chain([one_loss(SPLIT, RECOVERY[0].0, RECOVERY[0].1)]).collect()
            },
            judge_recovery,
        ),
    },
];

/// The MSS of their ATM network.
pub(super) const MSS: u64 = 9148;
/// Windows of figure 7 in KiB.
const STEPS: core::ops::RangeInclusive<u64> = 4..=51;
/// Windows after whose loss the recovery is timed, with the MSS.
const RECOVERY: [(u64, u64); 3] = [(64 << 10, 1460), (256 << 10, 1460), (64 << 10, 536)];
/// Connections that share the second of these windows.
const SPLIT: usize = 4;

pub(super) fn mbps(outcome: &Outcome) -> f64 {
    outcome.goodput("") / 1e6
}

pub(super) fn old(mss: u64, window: u64) -> Config {
    Config::classic(Recovery::GoBackN, mss, window)
}

/// Connections without errors.
fn steady(rtt: u64, count: usize, window: u64) -> Study {
    let path = with_rtt(preset("mftp-atm"), ms(rtt));
    let mut study = study(path, tcp("tcp", count, old(MSS, window), Source::Greedy), seconds(40));
    study.measure_from = seconds(10);
    study
}

fn judge_steps(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let found = seen.spreads(0..STEPS.count(), mbps);
    let segments = |kib: u64| (kib << 10) / MSS;
    let below = STEPS.take_while(|&kib| segments(kib) == 0).count();
    let small = Spreads(found.0[..below].to_vec());
    judgement.tell(format!("below one segment, 4 to 8 KB: {small:.3} Mbit/s"));
    for (pair, kib) in found.0.windows(2).zip(STEPS).skip(below) {
        let step = segments(kib + 1) > segments(kib);
        let rise = pair[1].median / pair[0].median - 1.0;
        let holds = if step { rise >= 0.15 } else { rise.abs() <= 0.01 };
        if step || !holds {
            let figure =
                format!("{kib} to {} KB: {:.3} to {:.3} Mbit/s", kib + 1, pair[0], pair[1]);
            judgement.ask(holds, figure);
        }
    }
    let points = STEPS.zip(found.0).map(|(kib, mbps)| (kib as f64, mbps));
    let plot = Plot::new("Paper 1, figure 7: one connection, 100 ms", "window, KB", "Mbit/s");
    judgement.plot(plot.curve("ours", points));
    judgement
}

/// Connections one of which loses one segment once their windows are full.
fn one_loss(count: usize, window: u64, mss: u64) -> Study {
    let mut path = both(with_rtt(preset("mftp-ethernet"), ms(200)), |link| {
        link.rate = units::Rate::from_bits_per_sec(100_000_000);
        link.impairments.bit_error = 0.0;
    });
    // The SYN and some windows pass, then a segment is lost, and no other within the run.
    let fates = "0".repeat(6000) + "1" + &"0".repeat(200_000);
    path.forward.loss = LossConfig::Trace(fates.parse().expect("a trace of fates"));
    let config = Config { scaling: true, ..old(mss, window) };
    let mut study = study(path, tcp("tcp", count, config, Source::Greedy), seconds(100));
    study.trace = Some(ms(20));
    study
}

/// Seconds from the slow start after the loss to the full window, of the flow that lost.
fn recovery_time(outcome: &Outcome, window: u64, mss: u64) -> f64 {
    let of_flow = |flow: usize| {
        let samples = || outcome.samples.iter().filter(move |sample| sample.flow == flow);
        let full = |bytes: u64| bytes >= window - mss;
        let filled = samples().find(|sample| full(sample.window_bytes))?.seconds;
        let begin = samples().find(|s| s.seconds > filled && s.window_bytes < 2 * mss)?.seconds;
        let again = samples().find(|s| s.seconds > begin && full(s.window_bytes))?;
        Some(again.seconds - begin)
    };
    (0..outcome.flows.len()).find_map(of_flow).unwrap_or(f64::NAN)
}

fn judge_recovery(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let mut times = Vec::new();
    for (at, (window, mss)) in RECOVERY.into_iter().enumerate() {
        let halves = window as f64 / 2.0 / mss as f64;
        let found = seen.spread(at, |outcome| recovery_time(outcome, window, mss));
        let formula = (halves.log2() + halves) * 0.2;
        let what = format!("W = {} KB, MSS {mss}, s", window >> 10);
        judgement.near(&what, found, formula, 0.2);
        times.push(found.median);
    }
    judgement.tell(format!("four times the window takes {:.2} times", times[1] / times[0]));
    let (window, mss) = RECOVERY[0];
    let found = seen.spread(RECOVERY.len(), |outcome| recovery_time(outcome, window, mss));
    judgement.near(
        "four connections with windows of 64 KB, s",
        found,
        times[1] / SPLIT as f64,
        0.2,
    );
    judgement
}

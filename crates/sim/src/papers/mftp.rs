//! Paper 1: MFTP, several TCP connections for one file.

use path::{LossConfig, PathConfig};
use units::Bytes;

use super::{Judgement, Row, Seen, both, ms, preset, seconds, study, tcp, with_rtt};
use crate::study::{Outcome, Study};
use crate::tcp::{Config, Recovery, Source};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "mftp-eq1",
        experiment: "one connection with a window of 64 KB over a round-trip time of 200 ms",
        paper: "2.6 Mbit/s by equation 1",
        criterion: "within 5%",
        assumptions: &["MSS 9148 as in the other experiments: 7 whole segments are 64,036 bytes"],
        studies: || vec![steady(200, 1, 65_535)],
        judge: |seen| {
            let mut judgement = Judgement::new();
            judgement.near("Mbit/s", seen.spread(0, mbps), 2.62, 0.05);
            judgement
        },
    },
    Row {
        id: "mftp-fig7",
        experiment: "throughput against windows of 9 to 51 KB at a round-trip time of 100 ms",
        paper: "rises in steps: whole segments only",
        criterion: "steps at multiples of the MSS: flat within 1% between, up by 15% and more there",
        assumptions: &[],
        studies: || STEPS.map(|kib| steady(100, 1, kib << 10)).collect(),
        judge: judge_steps,
    },
    Row {
        id: "mftp-fig8-10",
        experiment: "cell loss and bit errors against N = 1..16 and round-trip times of 0, 50, 200 and 500 ms",
        paper: "more connections help except at no delay; both kinds of error fall on one curve \
                when turned into packet errors",
        criterion: "monotone in N at RTT > 0; the two curves within 10% of each other",
        assumptions: &[
            "go-back-N by time-out, of at least 1 s; packet errors of 0.1, 0.5, 2 and 4%",
            "600 s of steady state for the curves, 200 s against N",
        ],
        studies: error_studies,
        judge: judge_errors,
    },
    Row {
        id: "mftp-table2",
        experiment: "N windows of 64 KB against one of the same sum, bit errors of 3e-7, 200 ms, Ethernet",
        paper: "762/848/883/1187/1465 against 762/770/764/751/747 kbit/s for 64/128/256/384/512 KB",
        criterion: "at 512 KB many are 1.5-2.5 times the single one and rise with N; the single one \
                    is flat within 5%",
        assumptions: &[
            "Tahoe, as in SunOS 4.1.3; time-outs of at least 1 s; 600 s of steady state",
        ],
        studies: table2,
        judge: judge_table2,
    },
    Row {
        id: "mftp-recovery",
        experiment: "time to the full window after a loss: n windows of W against one of n W",
        paper: "(log2(W/2MSS) + W/2MSS) RTT for each, about 1/n of the single window's",
        criterion: "within 20% of the formula",
        assumptions: &["MSS 1460, W of 64 and 256 KB, counted from the slow start, not the loss"],
        studies: || RECOVERY.map(one_loss).into(),
        judge: judge_recovery,
    },
];

/// The MSS of their ATM network.
const MSS: u64 = 9148;
/// Windows of figure 7 in KiB: what is below one segment goes out as one small one.
const STEPS: core::ops::RangeInclusive<u64> = 9..=51;
/// Windows after whose loss the recovery is timed.
const RECOVERY: [u64; 2] = [64 << 10, 256 << 10];
const COUNTS: [usize; 5] = [1, 2, 4, 8, 16];
const RTTS: [u64; 4] = [0, 50, 200, 500];
/// Packet errors of the curves.
const ERRORS: [f64; 4] = [0.001, 0.005, 0.02, 0.04];
/// Cells and bits of a packet, as the paper has them.
const CELLS: f64 = 192.0;
const BITS: f64 = 192.0 * 48.0 * 8.0;

fn mbps(outcome: &Outcome) -> f64 {
    outcome.goodput("") / 1e6
}

fn old(mss: u64, window: u64) -> Config {
    Config::classic(Recovery::GoBackN, mss, window)
}

/// Connections without errors.
fn steady(rtt: u64, count: usize, window: u64) -> Study {
    let path = with_rtt(preset("mftp-atm"), ms(rtt));
    let mut study = study(path, tcp("tcp", count, old(MSS, window), Source::Greedy), seconds(40));
    study.measure_from = seconds(10);
    study
}

fn judge_steps(seen: &Seen) -> Judgement {
    let mut judgement = Judgement::new();
    let found = seen.medians(0..STEPS.count(), mbps);
    for (pair, kib) in found.windows(2).zip(STEPS) {
        let segments = |kib: u64| (kib << 10) / MSS;
        let step = segments(kib + 1) > segments(kib);
        let rise = pair[1] / pair[0] - 1.0;
        let holds = if step { rise >= 0.15 } else { rise.abs() <= 0.01 };
        if step || !holds {
            let figure =
                format!("{kib} to {} KB: {:.3} to {:.3} Mbit/s", kib + 1, pair[0], pair[1]);
            judgement.ask(holds, figure);
        }
    }
    judgement
}

/// A path on which packets of 192 cells meet errors of this probability, by lost cells or by
/// damaged bits.
fn erring(rtt: u64, error: f64, cells: bool) -> PathConfig {
    let of = |units: f64| 1.0 - (1.0 - error).powf(1.0 / units);
    both(with_rtt(preset("mftp-atm"), ms(rtt)), |link| {
        if cells {
            link.impairments.cell_loss = of(CELLS);
        } else {
            link.impairments.bit_error = of(BITS);
        }
    })
}

/// First N by the round-trip time at 2% of cell loss's packets, then the two curves.
fn error_studies() -> Vec<Study> {
    let flows = |count| tcp("tcp", count, old(MSS, 24 << 10), Source::Greedy);
    let against_n = RTTS.iter().flat_map(|&rtt| {
        COUNTS.map(|count| study(erring(rtt, 0.02, true), flows(count), seconds(200)))
    });
    let curves = ERRORS.iter().flat_map(|&error| {
        [true, false].map(|cells| study(erring(200, error, cells), flows(16), seconds(600)))
    });
    against_n.chain(curves).collect()
}

fn judge_errors(seen: &Seen) -> Judgement {
    let mut judgement = Judgement::new();
    for (at, rtt) in RTTS.iter().enumerate() {
        let found = seen.medians(at * COUNTS.len()..(at + 1) * COUNTS.len(), mbps);
        let holds = *rtt == 0 || found.is_sorted();
        let shown: Vec<_> = found.iter().map(|mbps| format!("{mbps:.2}")).collect();
        judgement.ask(holds, format!("{rtt} ms, N = 1..16: {} Mbit/s", shown.join(", ")));
    }
    let first = RTTS.len() * COUNTS.len();
    for (at, error) in ERRORS.iter().enumerate() {
        let cells = seen.spread(first + 2 * at, mbps).median;
        let bits = seen.spread(first + 2 * at + 1, mbps);
        let what = format!("{} % of packets, bit errors beside cell loss, Mbit/s", 100.0 * error);
        judgement.near(&what, bits, cells, 0.1);
    }
    judgement
}

/// Windows of table 2 in units of 64 KB.
const SUMS: [usize; 5] = [1, 2, 4, 6, 8];

/// The single window, then as many of 64 KB.
fn table2() -> Vec<Study> {
    let path = preset("mftp-ethernet");
    let config = |windows: usize| Config {
        scaling: true,
        window: Bytes(windows as u64 * 65_536),
        ..Config::classic(Recovery::Tahoe, 1460, 65_536)
    };
    let run = |count, windows| {
        let flows = tcp("tcp", count, config(windows), Source::Greedy);
        study(path.clone(), flows, seconds(600))
    };
    SUMS.iter().map(|&sum| run(1, sum)).chain(SUMS.iter().map(|&sum| run(sum, 1))).collect()
}

fn judge_table2(seen: &Seen) -> Judgement {
    let mut judgement = Judgement::new();
    let single = seen.medians(0..5, |outcome| outcome.goodput("") / 1e3);
    let many = seen.medians(5..10, |outcome| outcome.goodput("") / 1e3);
    let shown =
        |rates: &[f64]| rates.iter().map(|kbps| format!("{kbps:.0}")).collect::<Vec<_>>().join("/");
    let mean = single.iter().sum::<f64>() / 5.0;
    let flat = single.iter().all(|rate| (rate / mean - 1.0).abs() <= 0.05);
    judgement.ask(flat, format!("one window: {} kbit/s", shown(&single)));
    judgement.ask(many.is_sorted(), format!("N windows: {} kbit/s", shown(&many)));
    let ratio = many[4] / single[4];
    judgement.ask((1.5..=2.5).contains(&ratio), format!("at 512 KB: {ratio:.2} times"));
    judgement.because(
        "Losses by bit errors strike connections independently, and all of them together are far \
         below the 10 Mbit/s of the Ethernet: nothing but another limit, of which the paper does \
         not tell, keeps eight of them from eight times the rate of one.",
    )
}

/// A connection that loses one segment once its window is full.
fn one_loss(window: u64) -> Study {
    let mut path = both(with_rtt(preset("mftp-ethernet"), ms(200)), |link| {
        link.rate = units::Rate::from_bits_per_sec(100_000_000);
        link.impairments.bit_error = 0.0;
    });
    // The SYN and some windows pass, then a segment is lost, and no other within the run.
    let fates = "0".repeat(6000) + "1" + &"0".repeat(200_000);
    path.forward.loss = LossConfig::Trace(fates.parse().expect("a trace of fates"));
    let config = Config { scaling: true, ..old(1460, window) };
    let mut study = study(path, tcp("tcp", 1, config, Source::Greedy), seconds(100));
    study.trace = Some(ms(20));
    study
}

/// Seconds from the slow start after the loss to the full window.
fn recovery_time(outcome: &Outcome, window: f64) -> f64 {
    let samples = || outcome.samples.iter();
    let full = |bytes: u64| bytes as f64 >= window - 1460.0;
    let filled = samples().find(|sample| full(sample.window_bytes)).map_or(0.0, |s| s.seconds);
    let small = samples().find(|s| s.seconds > filled && s.window_bytes < 2 * 1460);
    let Some(begin) = small.map(|sample| sample.seconds) else { return f64::NAN };
    let again = samples().find(|s| s.seconds > begin && full(s.window_bytes));
    again.map_or(f64::NAN, |sample| sample.seconds - begin)
}

fn judge_recovery(seen: &Seen) -> Judgement {
    let mut judgement = Judgement::new();
    let mut times = Vec::new();
    for (at, window) in RECOVERY.into_iter().enumerate() {
        let halves = window as f64 / 2.0 / 1460.0;
        let found = seen.spread(at, |outcome| recovery_time(outcome, window as f64));
        let formula = (halves.log2() + halves) * 0.2;
        judgement.near(&format!("W = {} KB, s", window >> 10), found, formula, 0.2);
        times.push(found.median);
    }
    judgement.figures.push(format!("four times the window takes {:.2} times", times[1] / times[0]));
    judgement
}

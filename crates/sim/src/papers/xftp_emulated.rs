//! Paper 3 across the emulator: `longhaul cp` by striped TCP over the satellite, with the kernel's TCP
//! held to the paper's windows and segments.

use super::xftp::{
    FALL, MSS, SPLITS, SUMS, WINDOWS, judge_adaptive, judge_errors, judge_sums, satellite, split,
};
use super::{Crossed, Crossing, Judgement, Row, SEEDS, both, crossings};

const KERNEL: &str = "Linux's Reno with SACK; the sender's kernel is held to the window, in segments of 512 bytes; \
                      a router's queue of 0.7 s";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "xftp-eq2",
        experiment: "one connection",
        paper: "about 44,000 byte/s",
        criterion: "within 5%",
        assumptions: &[KERNEL, "60 s of steady state"],
        seeds: SEEDS,
        work: crossings(
            || vec![run(1, 24 << 10, (10, 60))],
            |seen| {
                let mut judgement = Judgement::new();
                judgement.near("byte/s", seen.spread(0, Crossed::bytes), 44_000.0, 0.05);
                judgement
            },
        ),
    },
    Row {
        id: "xftp-fig2",
        experiment: "24 to 192 KB in flight, in windows of 12 to 48 KB",
        paper: "the throughput depends on N x W alone",
        criterion: "at most 5% between least and most at equal N x W",
        assumptions: &[KERNEL, "60 s of steady state"],
        seeds: SEEDS,
        work: crossings(
            || {
                let windows = |&sum: &u64| JUDGED.iter().filter_map(move |&w| split(sum, w));
                let splits = SUMS.iter().flat_map(windows);
                splits.map(|(count, window)| run(count, window, (15, 60))).collect()
            },
            |seen| judge_sums(seen, JUDGED, Crossed::bytes),
        ),
    },
    Row {
        id: "xftp-fig4",
        experiment: "connections added below alpha and halved above beta, with at most 4 to 16 of them",
        paper: "keeps rising with their number; utilisation better than 90%",
        criterion: "no fall of more than 2% beyond 8; >= 90% of 192,000 byte/s x payload per packet there",
        assumptions: &[
            KERNEL,
            FALL,
            "alpha and beta are 1.25 and 2 times the base round-trip time; from 15 s to 75 s",
        ],
        seeds: SEEDS,
        work: crossings(adaptive, |seen| judge_adaptive(seen, &MOST, Crossed::bytes)),
    },
    Row {
        id: "xftp-fig5",
        experiment: "192 KB in flight as 16 x 12, 8 x 24 and 4 x 48 KB at bit errors of 1e-7 to 1e-5",
        paper: "more, smaller connections win",
        criterion: "ordered 16 > 8 > 4 at every error rate of 1e-6 and above",
        assumptions: &[KERNEL, "90 s of steady state"],
        seeds: SEEDS,
        work: crossings(erring, |seen| judge_errors(seen, &ERRORS, Crossed::bytes)),
    },
];

/// The windows that are judged.
const JUDGED: &[u64] = WINDOWS.split_at(3).0;
/// The most connections there may be.
const MOST: [usize; 4] = [4, 8, 12, 16];
const ERRORS: [f64; 4] = [1e-7, 1e-6, 3e-6, 1e-5];

fn run(count: usize, window: u64, times: (u64, u64)) -> Crossing {
    Crossing::striped(satellite(), count, (window, MSS), times)
}

fn adaptive() -> Vec<Crossing> {
    let rule = |most: usize| format!("--transport tcp --streams rtt-bounded --streams-max {most}");
    let with = |most| run(1, 24 << 10, (15, 60)).changed(|fetch| fetch.cp = rule(most));
    MOST.map(with).into()
}

fn erring() -> Vec<Crossing> {
    let run = |error: f64, (count, window): (usize, u64)| {
        let path = both(satellite(), |link| link.impairments.bit_error = error);
        Crossing::striped(path, count, (window, MSS), (15, 90))
    };
    ERRORS.iter().flat_map(|&error| SPLITS.map(|split| run(error, split))).collect()
}

//! Paper 1's errors: lost cells and damaged bits.

use path::PathConfig;

use super::mftp::{MSS, mbps, old};
use super::{
    Judgement, Plot, Row, SEEDS, Seen, both, ms, preset, seconds, studies, study, tcp, with_rtt,
};
use crate::study::Study;
use crate::tcp::Source;

pub(super) const ROWS: &[Row] = &[Row {
    id: "mftp-fig8-10",
    experiment: "cell loss and bit errors against N = 1..16 and round-trip times of 0, 50, 200 and 500 ms",
    paper: "more connections help except at no delay; both kinds of error fall on one curve \
                when turned into packet errors",
    criterion: "monotone in N at RTT > 0; the two curves within 10% of each other",
    assumptions: &[
        "go-back-N by time-out, of at least 1 s; packet errors of 0.1, 0.5, 2 and 4%",
        "600 s of steady state for the curves, 200 s against N",
    ],
    seeds: SEEDS,
    work: studies(error_studies, |seen| judge_errors(seen, &RTTS, mbps)),
}];

/// How many connections there are.
pub(super) const COUNTS: [usize; 5] = [1, 2, 4, 8, 16];
const RTTS: [u64; 4] = [0, 50, 200, 500];
/// Packet errors of the curves.
pub(super) const ERRORS: [f64; 4] = [0.001, 0.005, 0.02, 0.04];
/// Cells and bits of a packet, as the paper has them.
const CELLS: f64 = 192.0;
const BITS: f64 = 192.0 * 48.0 * 8.0;

/// A path on which packets of 192 cells meet errors of this probability, by lost cells or by
/// damaged bits.
pub(super) fn erring(rtt: u64, error: f64, cells: bool) -> PathConfig {
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

/// Judges runs by their Mbit/s: for each round-trip time all counts, then the curves' points, each
/// with cell loss first.
pub(super) fn judge_errors<T>(
    seen: &Seen<T>,
    rtts: &[u64],
    mbps: impl Fn(&T) -> f64 + Copy,
) -> Judgement {
    let mut judgement = Judgement::new();
    for (at, rtt) in rtts.iter().enumerate() {
        let found = seen.medians(at * COUNTS.len()..(at + 1) * COUNTS.len(), mbps);
        let holds = *rtt == 0 || found.is_sorted();
        let shown: Vec<_> = found.iter().map(|mbps| format!("{mbps:.2}")).collect();
        judgement.ask(holds, format!("{rtt} ms, N = 1..16: {} Mbit/s", shown.join(", ")));
    }
    let first = rtts.len() * COUNTS.len();
    for (at, error) in ERRORS.iter().enumerate() {
        let cells = seen.spread(first + 2 * at, mbps).median;
        let bits = seen.spread(first + 2 * at + 1, mbps);
        let what = format!("{} % of packets, bit errors beside cell loss, Mbit/s", 100.0 * error);
        judgement.near(&what, bits, cells, 0.1);
    }
    judgement.plot(against_count(seen, rtts, mbps));
    judgement.plot(curves(seen, first, mbps));
    judgement
}

fn against_count<T>(seen: &Seen<T>, rtts: &[u64], mbps: impl Fn(&T) -> f64 + Copy) -> Plot {
    let title = "Paper 1, figures 8 and 9: 2 % of the packets lost";
    let plot = Plot::new(title, "connections", "Mbit/s");
    rtts.iter().enumerate().fold(plot, |plot, (at, rtt)| {
        let found = seen.medians(at * COUNTS.len()..(at + 1) * COUNTS.len(), mbps);
        plot.curve(format!("{rtt} ms"), COUNTS.iter().map(|&n| n as f64).zip(found))
    })
}

fn curves<T>(seen: &Seen<T>, first: usize, mbps: impl Fn(&T) -> f64 + Copy) -> Plot {
    let title = "Paper 1, figure 10: 16 connections, 200 ms";
    let plot = Plot::new(title, "packet errors", "Mbit/s").logarithmic();
    ["cell loss", "bit errors"].into_iter().enumerate().fold(plot, |plot, (kind, name)| {
        let found = |at: usize| seen.median(first + 2 * at + kind, mbps);
        plot.curve(name, ERRORS.iter().enumerate().map(|(at, &error)| (error, found(at))))
    })
}

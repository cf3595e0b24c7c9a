//! Paper 1's errors: lost cells and damaged bits.

use path::PathConfig;

use super::mftp::{MSS, mbps, old};
use super::{
    Judgement, Plot, Row, SEEDS, Seen, both, ms, preset, seconds, studies, study, tcp, with_rtt,
};
use crate::study::Study;
use crate::tcp::{Config, MinRto, Source};

pub(super) const ROWS: &[Row] = &[Row {
    id: "mftp-fig8-10",
    experiment: "cell loss and bit errors against N = 1..16 and round-trip times of 0, 50, 200 and 500 ms",
    paper: "more connections help except at no delay; both kinds of error fall on one curve \
                when turned into packet errors",
    criterion: "monotone in N at RTT > 0; the two curves within 10% of each other, by 188 cells and 72 kbit a packet",
    assumptions: &[
        RANGES,
        "go-back-N by time-out, of at least 1 s (the last figures: 0.2 s)",
        "600 s for the curves and 200 s against N, the start, of some seconds, with them",
    ],
    seeds: SEEDS,
    work: studies(error_studies, |seen| {
        let mut judgement = judge_errors(seen, &RTTS, mbps);
        let first = RTTS.len() * COUNTS.len() + CELL_LOSS.len() + BIT_ERRORS.len();
        let sooner = seen.spreads(first..first + COUNTS.len(), mbps);
        judgement
            .tell(format!("time-outs of at least 0.2 s, 200 ms, N = 1..16: {sooner:.2} Mbit/s"));
        let first = first + COUNTS.len();
        for (at, (rtt, (name, _))) in ends().enumerate() {
            let from = first + at * COUNTS.len();
            let found = seen.spreads(from..from + COUNTS.len(), mbps);
            let holds = found.medians().is_sorted();
            judgement.ask(holds, format!("{name}, {rtt} ms, N = 1..16: {found:.2} Mbit/s"));
        }
        judgement
    }),
}];

/// The ends of both ranges of errors, at each delay.
const ENDS: [(&str, Errors); 4] = [
    ("a cell loss ratio of 3.8e-6", Errors::Cells(CELL_LOSS[0])),
    ("a cell loss ratio of 2.4e-4", Errors::Cells(CELL_LOSS[CELL_LOSS.len() - 1])),
    ("bit errors of 3.0e-8", Errors::Bits(BIT_ERRORS[0])),
    ("bit errors of 4.8e-7", Errors::Bits(BIT_ERRORS[BIT_ERRORS.len() - 1])),
];

fn ends() -> impl Iterator<Item = (u64, (&'static str, Errors))> {
    RTTS.into_iter().skip(1).flat_map(|rtt| ENDS.map(|end| (rtt, end)))
}

/// What both halves assume.
pub(super) const RANGES: &str = "cell loss ratios from 3.8e-6 to 2.4e-4, each twice the last, and bit errors from 3.0e-8 to \
                          4.8e-7; against N a cell loss ratio of 1.2e-4 (simulated, the ends of both ranges too); a curve between two of its points is a straight line of \
                          logarithms; a segment with its header is in truth 192 cells and 73.7 kbit";

/// How many connections there are.
pub(super) const COUNTS: [usize; 5] = [1, 2, 4, 8, 16];
const RTTS: [u64; 4] = [0, 50, 200, 500];
/// The paper's ratios of lost cells and of damaged bits.
pub(super) const CELL_LOSS: [f64; 7] = [3.8e-6, 7.6e-6, 1.5e-5, 3.0e-5, 6.0e-5, 1.2e-4, 2.4e-4];
pub(super) const BIT_ERRORS: [f64; 5] = [3.0e-8, 6.0e-8, 1.2e-7, 2.4e-7, 4.8e-7];
/// The one of them by which N is compared.
const AGAINST_N: f64 = 1.2e-4;
/// Cells and bits of a packet, as the paper has them.
const CELLS: f64 = 188.0;
const BITS: f64 = 72e3;

/// What the paths do to packets.
#[derive(Clone, Copy)]
pub(super) enum Errors {
    Cells(f64),
    Bits(f64),
}

impl Errors {
    /// As packet errors, by the paper's arithmetic.
    fn of_packets(self) -> f64 {
        let of = |ratio: f64, units: f64| 1.0 - (1.0 - ratio).powf(units);
        match self {
            Self::Cells(ratio) => of(ratio, CELLS),
            Self::Bits(ratio) => of(ratio, BITS),
        }
    }
}

/// A path with such errors both ways.
pub(super) fn erring(rtt: u64, errors: Errors) -> PathConfig {
    both(with_rtt(preset("mftp-atm"), ms(rtt)), |link| match errors {
        Errors::Cells(ratio) => link.impairments.cell_loss = ratio,
        Errors::Bits(ratio) => link.impairments.bit_error = ratio,
    })
}

/// The errors against N, at each round-trip time.
pub(super) fn against_n(rtts: &[u64]) -> Vec<(u64, Errors, usize)> {
    let of = |&rtt: &u64| COUNTS.map(|count| (rtt, Errors::Cells(AGAINST_N), count));
    rtts.iter().flat_map(of).collect()
}

/// The two curves, cell loss first: 16 connections at 200 ms.
pub(super) fn two_curves() -> Vec<(u64, Errors, usize)> {
    let cells = CELL_LOSS.into_iter().map(Errors::Cells);
    let all = cells.chain(BIT_ERRORS.into_iter().map(Errors::Bits));
    all.map(|errors| (200, errors, 16)).collect()
}

fn error_studies() -> Vec<Study> {
    let config = old(MSS, 24 << 10);
    let run = |(rtt, errors, count), config, time| {
        study(erring(rtt, errors), tcp("tcp", count, config, Source::Greedy), seconds(time))
    };
    let sooner = Config { min_rto: MinRto::Whole(ms(200)), ..config };
    let all = against_n(&RTTS).into_iter().map(|it| run(it, config, 200));
    let all = all.chain(two_curves().into_iter().map(|it| run(it, config, 600)));
    let all = all.chain(against_n(&[200]).into_iter().map(|it| run(it, sooner, 200)));
    let ends = ends().flat_map(|(rtt, (_, errors))| COUNTS.map(|count| (rtt, errors, count)));
    all.chain(ends.map(|it| run(it, config, 200))).collect()
}

/// What lies at `x` on a curve that falls, between its points a line of logarithms.
fn between(curve: &[(f64, f64)], x: f64) -> f64 {
    let place = curve.partition_point(|point| point.0 < x).clamp(1, curve.len() - 1);
    let [left, right] = [curve[place - 1], curve[place]];
    let share = (x / left.0).ln() / (right.0 / left.0).ln();
    (left.1.ln() + share * (right.1 / left.1).ln()).exp()
}

/// Judges runs by their Mbit/s: for each round-trip time all counts, then the curves' points, those of
/// cell loss first.
pub(super) fn judge_errors<T>(
    seen: &Seen<T>,
    rtts: &[u64],
    mbps: impl Fn(&T) -> f64 + Copy,
) -> Judgement {
    let mut judgement = Judgement::new();
    let title = "Paper 1, figures 8 and 9: a cell loss ratio of 1.2e-4";
    let mut plot = Plot::new(title, "connections", "Mbit/s");
    for (at, rtt) in rtts.iter().enumerate() {
        let found = seen.spreads(at * COUNTS.len()..(at + 1) * COUNTS.len(), mbps);
        let holds = *rtt == 0 || found.medians().is_sorted();
        judgement.ask(holds, format!("{rtt} ms, N = 1..16: {found:.2} Mbit/s"));
        plot = plot.curve(format!("{rtt} ms"), COUNTS.iter().map(|&n| n as f64).zip(found.0));
    }
    judgement.plot(plot);
    let first = rtts.len() * COUNTS.len();
    let points = |first: usize, errors: Vec<Errors>| -> Vec<_> {
        let found = seen.spreads(first..first + errors.len(), mbps);
        errors.into_iter().map(Errors::of_packets).zip(found.0).collect()
    };
    let cells = points(first, CELL_LOSS.map(Errors::Cells).into());
    let bits = points(first + CELL_LOSS.len(), BIT_ERRORS.map(Errors::Bits).into());
    for (error, found) in &cells {
        judgement.tell(format!("cell loss, {:.2} % of packets: {found:.3} Mbit/s", 100.0 * error));
    }
    let curve: Vec<_> = cells.iter().map(|&(error, found)| (error, found.median)).collect();
    for &(error, found) in &bits {
        let what =
            format!("bit errors, {:.2} % of packets, beside that curve, Mbit/s", 100.0 * error);
        judgement.near(&what, found, between(&curve, error), 0.1);
    }
    let title = "Paper 1, figure 10: 16 connections, 200 ms";
    let plot = Plot::new(title, "packet errors", "Mbit/s").logarithmic();
    judgement.plot(plot.curve("cell loss", cells).curve("bit errors", bits));
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_turned_into_those_of_packets() {
        assert!((Errors::Cells(2.4e-4).of_packets() / 0.0441 - 1.0).abs() < 0.01);
        assert!((Errors::Bits(4.8e-7).of_packets() / 0.0340 - 1.0).abs() < 0.01);
        let curve = [(0.01, 8.0), (0.04, 4.0), (0.16, 2.0)];
        for (x, y) in [(0.01, 8.0), (0.02, 32f64.sqrt()), (0.16, 2.0)] {
            assert!((between(&curve, x) - y).abs() < 1e-9, "{x}");
        }
    }
}

//! Paper 1 across the emulator: `longhaul cp` by striped TCP, with the kernel's TCP held to the
//! paper's windows.

use units::Rate;

use super::mftp::MSS;
use super::mftp_errors::{COUNTS, Errors, RANGES, against_n, erring, judge_errors, two_curves};
use super::{
    Crossed, Crossing, Judgement, Plot, Row, SEEDS, Seen, crossings, ms, preset, with_rtt,
};

const KERNEL: &str = "Linux's Reno with SACK, not the paper's go-back-N; the sender's kernel is held to the window, in \
     whole segments";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "mftp-eq1",
        experiment: "one connection with a window of 64 KB over a round-trip time of 200 ms",
        paper: "2.6 Mbit/s by equation 1",
        criterion: "within 5%",
        assumptions: &[
            KERNEL,
            "segments of 1460 bytes: seven of 9148 are an odd number, whose last Linux acknowledges late; \
             20 s of steady state",
        ],
        seeds: SEEDS,
        work: crossings(
            || vec![striped(200, 1, (65_535, 1460), (5, 20))],
            |seen| {
                let mut judgement = Judgement::new();
                judgement.near("Mbit/s", seen.spread(0, Crossed::mbps), 2.62, 0.05);
                judgement
            },
        ),
    },
    Row {
        id: "mftp-fig6",
        experiment: "N = 1..16 connections at round-trip times of 200 and 500 ms",
        paper: "linear in N; equation 2 is what the windows allow, 15.7 Mbit/s with 16 at 200 ms, of which the \
                paper's hosts reached 8.5",
        criterion: "these hosts have no such limit: equation 2 within 10%",
        assumptions: &[
            KERNEL,
            "segments of 1460 bytes, of which 24 KB hold sixteen; 20 s of steady state",
        ],
        seeds: SEEDS,
        work: crossings(
            || {
                let of = |rtt| COUNTS.map(|count| striped(rtt, count, WINDOW, (8, 20)));
                RTTS.into_iter().flat_map(of).collect()
            },
            judge_fig6,
        ),
    },
    Row {
        id: "mftp-fig8-10",
        experiment: "cell loss and bit errors against N = 1..16 and round-trip times of 50, 200 and 500 ms",
        paper: "more connections help except at no delay; both kinds of error fall on one curve \
                when turned into packet errors",
        criterion: "monotone in N at RTT > 0; the two curves within 10% of each other, by 188 cells and 72 kbit a \
                    packet",
        assumptions: &[KERNEL, RANGES, "60 s of steady state"],
        seeds: SEEDS,
        work: crossings(error_crossings, |seen| judge_errors(seen, &ERROR_RTTS, Crossed::mbps)),
    },
    Row {
        id: "mftp-assign",
        experiment: "dynamic assignment of blocks to 8 connections, of which one has a tenth of the others' speed",
        paper: "static is held to the slowest; dynamic is not, and buffers less",
        criterion: "dynamic >= 90% of the sum of their rates",
        assumptions: &[
            KERNEL,
            "100 ms, windows of 24 KB, segments of 1460 bytes; from the third second on the sender's kernel holds \
             one connection to a tenth; 30 s of steady state",
            "the static half and the buffers stand in the simulation alone: the product sends what is late once \
             more over another connection, however it was assigned, and does not tell what it holds",
        ],
        seeds: SEEDS,
        work: crossings(
            || {
                let slow = Some(Rate::from_bits_per_sec(SLOW));
                let run = || striped(100, 8, WINDOW, (15, 30));
                vec![run(), run().changed(|fetch| fetch.slow = slow)]
            },
            judge_assigned,
        ),
    },
    Row {
        id: "mftp-auto",
        experiment: "the number of connections for 5 and 12 Mbit/s from what is measured, and from what was stored",
        paper: "chosen by equation 2' from the round-trip time and stored parameters",
        criterion: "within 10% of the target without the user naming N; the second run has as many connections \
                    after a second as the first has stored",
        assumptions: &[KERNEL, "200 ms, windows of 24 KB, segments of 1460 bytes, files of 16 MB"],
        seeds: SEEDS,
        work: crossings(automatic, judge_automatic),
    },
];

/// The window of most experiments, in segments that it holds many of.
const WINDOW: (u64, u64) = (24 << 10, 1460);
const RTTS: [u64; 2] = [200, 500];
const ERROR_RTTS: [u64; 3] = [50, 200, 500];
/// A tenth of what one connection carries at 100 ms, bit/s.
const SLOW: u64 = WINDOW.0 * 8;
/// Mbit/s of payload that are asked for.
const TARGETS: [u64; 2] = [5, 12];
/// How far from it they may be.
const WITHIN: f64 = 0.1;

fn striped(rtt: u64, count: usize, window: (u64, u64), times: (u64, u64)) -> Crossing {
    Crossing::striped(with_rtt(preset("mftp-atm"), ms(rtt)), count, window, times)
}

fn judge_fig6(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement::new();
    let mut plot = Plot::new("Paper 1, figure 6, without a host limit", "connections", "Mbit/s");
    for (at, rtt) in RTTS.into_iter().enumerate() {
        let equation = |n: f64| n * WINDOW.0 as f64 * 8.0 / (rtt as f64 * 1e3);
        let counts = || COUNTS.iter().map(|&n| n as f64);
        let first = at * COUNTS.len();
        for (index, n) in counts().enumerate() {
            let found = seen.spread(first + index, Crossed::mbps);
            judgement.near(&format!("{rtt} ms, N = {n}, Mbit/s"), found, equation(n), 0.1);
        }
        let found = seen.spreads(first..first + COUNTS.len(), Crossed::mbps);
        plot = plot
            .curve(format!("{rtt} ms"), counts().zip(found.0))
            .curve(format!("equation 2, {rtt} ms"), counts().map(|n| (n, equation(n))));
    }
    judgement.plot(plot);
    judgement
}

/// First N by the round-trip time, then the two curves.
fn error_crossings() -> Vec<Crossing> {
    let run = |(rtt, errors, count): (u64, Errors, usize)| {
        Crossing::striped(erring(rtt, errors), count, (24 << 10, MSS), (10, 60))
    };
    against_n(&ERROR_RTTS).into_iter().chain(two_curves()).map(run).collect()
}

fn judge_assigned(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement { only: Some("the dynamic half"), ..Judgement::new() };
    let [alike, found] = [0, 1].map(|at| seen.spread(at, Crossed::mbps));
    let sum = alike.median * 7.1 / 8.0;
    let share = 100.0 * found.median / sum;
    let line = format!(
        "eight alike: {alike:.2} Mbit/s; dynamic with a slow one: {found:.2}, {share:.1} % of {sum:.2}"
    );
    // With more, none was slow.
    judgement.ask((90.0..=105.0).contains(&share), line);
    judgement
}

fn automatic() -> Vec<Crossing> {
    let run = |target: u64| {
        striped(RTTS[0], 1, WINDOW, (4, 60)).changed(|fetch| {
            fetch.cp = format!(
                "--transport tcp --streams equation --rtt-from icmp --target-rate {target}mbit"
            );
            fetch.twice = Some(Rate::from_bits_per_sec(target * 1_000_000));
        })
    };
    TARGETS.map(run).into()
}

fn judge_automatic(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement::new();
    for (at, target) in TARGETS.into_iter().enumerate() {
        let streams = |time: usize, when: usize| {
            seen.spread(at, |crossed| crossed.streams[time][when] as f64)
        };
        for (time, when) in ["at first", "then"].into_iter().enumerate() {
            let rate = seen.spread(at, |crossed| crossed.rates[time] / 1e6);
            let asked = judgement.near(&format!("{when}, Mbit/s"), rate, target as f64, WITHIN);
            asked.because(|| why_off(rate.median, target as f64, streams(time, 1).median));
        }
        let stored = seen.spread(at, |crossed| crossed.stored as f64);
        let [early, most, again] = [streams(0, 0), streams(0, 1), streams(1, 0)];
        let line = format!(
            "connections after a second: {early:.0} at first, at most {most:.0}; {stored:.0} were stored, and then \
             there were {again:.0}"
        );
        let asked = judgement.ask(stored.median > 0.0 && again.median == stored.median, line);
        asked.because(|| match stored.median {
            0.0 => format!("for {target} Mbit/s the first run has stored no number"),
            stored => format!(
                "for {target} Mbit/s the second run had {:.0} connections after a second, not the {stored:.0} that \
                 were stored",
                again.median
            ),
        });
    }
    judgement
}

/// Why so many connections at most missed a target; rates in Mbit/s.
fn why_off(rate: f64, target: f64, connections: f64) -> String {
    let (window, segment) = WINDOW;
    let one = (window / segment * segment) as f64 * 8.0 / (RTTS[0] as f64 * 1e3);
    let (needed, share) = ((target / one).ceil(), 100.0 * rate / (connections * one));
    let of = format!("{rate:.1} Mbit/s of {target} by {connections} connections");
    if rate < target && connections < needed {
        format!("{of}, which are fewer than the {needed} of equation 2")
    } else {
        format!("{of}, which reached {share:.0}% of what their windows allow")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_was_measured() {
        let crossed = |rate: f64, most: u64, stored: u64, again: u64| Crossed {
            rates: vec![rate * 1e6; 2],
            streams: vec![[1, most], [again, most]],
            stored,
            ..Crossed::default()
        };
        let judged = |rates: [f64; 2], streams: u64| {
            let first = crossed(rates[0], streams, streams, streams);
            judge_automatic(&Seen::new(vec![first, crossed(rates[1], 13, 13, 13)], 2))
        };
        assert!(judged([5.2, 12.1], 6).passed);
        for (rates, streams, words) in [
            ([6.3, 12.0], 7, "6.3 Mbit/s of 5 by 7 connections, which reached 96% of what"),
            ([3.5, 12.0], 4, "by 4 connections, which are fewer than the 6"),
            ([3.5, 12.0], 6, "which reached 62% of what their windows allow"),
            ([5.2, 9.0], 6, "9.0 Mbit/s of 12 by 13 connections, which reached 74%"),
        ] {
            let judgement = judged(rates, streams);
            assert!(!judgement.passed && judgement.reasons[0].contains(words), "{judgement:?}");
        }
        // What was stored counts, not the most there were: two were only tried.
        let whole = crossed(12.0, 13, 13, 13);
        let tried = crossed(5.0, 8, 6, 6);
        assert!(judge_automatic(&Seen::new(vec![tried, whole.clone()], 2)).passed);
        for (stored, again, words) in
            [(6, 1, "1 connections after a second, not the 6"), (0, 1, "no number")]
        {
            let forgotten = crossed(5.0, 6, stored, again);
            let judgement = judge_automatic(&Seen::new(vec![forgotten, whole.clone()], 2));
            assert!(judgement.reasons[0].contains(words), "{judgement:?}");
        }
    }
}

//! Paper 1 across the emulator: `longhaul cp` by striped TCP, with the kernel's TCP held to the
//! paper's windows.

use units::Rate;

use super::mftp::MSS;
use super::mftp_errors::{COUNTS, ERRORS, erring, judge_errors};
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
            TOGETHER,
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
            TOGETHER,
        ),
    },
    Row {
        id: "mftp-fig8-10",
        experiment: "cell loss and bit errors against N = 1..16 and round-trip times of 50, 200 and 500 ms",
        paper: "more connections help except at no delay; both kinds of error fall on one curve \
                when turned into packet errors",
        criterion: "monotone in N at RTT > 0; the two curves within 10% of each other",
        assumptions: &[KERNEL, "packet errors of 0.1, 0.5, 2 and 4%; 60 s of steady state"],
        seeds: SEEDS,
        work: crossings(
            error_crossings,
            |seen| judge_errors(seen, &ERROR_RTTS, Crossed::mbps),
            TOGETHER,
        ),
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
            TOGETHER,
        ),
    },
    Row {
        id: "mftp-auto",
        experiment: "the number of connections for 5 and 12 Mbit/s from what is measured, and from what was stored",
        paper: "chosen by equation 2' from the round-trip time and stored parameters",
        criterion: "within 10% of the target without the user naming N; the second run has its connections \
                    within a second, of the number that the first has stored",
        assumptions: &[KERNEL, "200 ms, windows of 24 KB, segments of 1460 bytes, files of 16 MB"],
        seeds: SEEDS,
        work: crossings(automatic, judge_automatic, TOGETHER),
    },
];

/// Labs at a time: they carry little.
const TOGETHER: usize = 8;
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
        let found = seen.medians(first..first + COUNTS.len(), Crossed::mbps);
        plot = plot
            .curve(format!("{rtt} ms"), counts().zip(found))
            .curve(format!("equation 2, {rtt} ms"), counts().map(|n| (n, equation(n))));
    }
    judgement.plot(plot);
    judgement
}

/// First N by the round-trip time, then the two curves.
fn error_crossings() -> Vec<Crossing> {
    let run = |rtt: u64, error: f64, cells: bool, count: usize| {
        let path = erring(rtt, error, cells);
        Crossing::striped(path, count, (24 << 10, MSS), (10, 60))
    };
    let against_n = ERROR_RTTS.iter().flat_map(|&rtt| COUNTS.map(|n| run(rtt, 0.02, true, n)));
    let curves =
        ERRORS.iter().flat_map(|&error| [true, false].map(|cells| run(200, error, cells, 16)));
    against_n.chain(curves).collect()
}

fn judge_assigned(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement::new();
    let [alike, found] = [0, 1].map(|at| seen.median(at, Crossed::mbps));
    let sum = alike * 7.1 / 8.0;
    let share = 100.0 * found / sum;
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
            fetch.cp = format!("--transport tcp --streams equation --target-rate {target}mbit");
            fetch.twice = true;
        })
    };
    TARGETS.map(run).into()
}

fn judge_automatic(seen: &Seen<Crossed>) -> Judgement {
    let (mut judgement, mut reasons) = (Judgement::new(), Vec::new());
    for (at, target) in TARGETS.into_iter().enumerate() {
        let streams = |time: usize, when: usize| {
            seen.median(at, |crossed| crossed.streams[time][when] as f64)
        };
        for (time, when) in ["at first", "then"].into_iter().enumerate() {
            let rate = seen.spread(at, |crossed| crossed.rates[time] / 1e6);
            judgement.near(&format!("{when}, Mbit/s"), rate, target as f64, WITHIN);
            reasons.extend(why_off(rate.median, target as f64, streams(time, 1)));
        }
        let [early, most, stored] = [streams(0, 0), streams(0, 1), streams(1, 0)];
        if stored < most {
            reasons.push(format!("the second run had {stored} connections at first, not {most}"));
        }
        judgement.ask(
            most > 0.0 && stored >= most,
            format!(
                "connections after a second: {early} at first, which came to {most}; then {stored}"
            ),
        );
    }
    judgement.because(&reasons.join("; "))
}

/// Why so many connections at most missed a target, if they did; rates in Mbit/s.
fn why_off(rate: f64, target: f64, connections: f64) -> Option<String> {
    let (window, segment) = WINDOW;
    let one = (window / segment * segment) as f64 * 8.0 / (RTTS[0] as f64 * 1e3);
    let (needed, share) = ((target / one).ceil(), 100.0 * rate / (connections * one));
    let of = format!("{rate:.1} Mbit/s of {target} by {connections} connections");
    match rate / target - 1.0 {
        off if off > WITHIN && connections > needed => {
            Some(format!("{of}, which are more than the {needed} of equation 2"))
        }
        off if off < -WITHIN && connections < needed => {
            Some(format!("{of}, which are fewer than the {needed} of equation 2"))
        }
        off if off.abs() > WITHIN => {
            Some(format!("{of}, which reached {share:.0}% of what their windows allow"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_was_measured() {
        let judged = |rates: [f64; 2], streams: u64| {
            let crossed = |rate: f64, most: u64, stored: u64| Crossed {
                rates: vec![rate * 1e6; 2],
                streams: vec![[1, most], [stored, most]],
                ..Crossed::default()
            };
            let crossed = vec![crossed(rates[0], streams, streams), crossed(rates[1], 13, 13)];
            judge_automatic(&Seen::new(crossed, 2))
        };
        assert_eq!(judged([5.2, 12.1], 6).reason, None);
        for (rates, streams, words) in [
            ([6.3, 12.0], 7, "6.3 Mbit/s of 5 by 7 connections, which are more than the 6"),
            ([3.5, 12.0], 4, "by 4 connections, which are fewer than the 6"),
            ([3.5, 12.0], 6, "which reached 62% of what their windows allow"),
            ([5.2, 9.0], 6, "9.0 Mbit/s of 12 by 13 connections, which reached 74%"),
        ] {
            let judgement = judged(rates, streams);
            let reason = judgement.reason.unwrap();
            assert!(!judgement.passed && reason.contains(words), "{reason}");
        }
        let forgotten =
            Crossed { rates: vec![5e6, 5e6], streams: vec![[1, 6], [1, 6]], ..Crossed::default() };
        let whole = Crossed {
            rates: vec![12e6, 12e6],
            streams: vec![[1, 13], [13, 13]],
            ..Crossed::default()
        };
        let judgement = judge_automatic(&Seen::new(vec![forgotten, whole], 2));
        let reason = judgement.reason.unwrap();
        assert_eq!(reason, "the second run had 1 connections at first, not 6");
    }
}

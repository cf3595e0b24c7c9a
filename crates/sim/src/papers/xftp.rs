//! Paper 3: XFTP over a satellite.

use core::time::Duration;

use path::{Jitter, PathConfig};
use stripe::count::Policy;

use super::{
    Judgement, Plot, Row, SEEDS, Seen, Spread, Spreads, alike, both, ms, preset, seconds, studies,
    study, tcp, time_for, with_rtt,
};
use crate::study::{Outcome, Protocol, Striping, Study};
use crate::tcp::{Config, Recovery, Source};

/// What holds for every row.
const HOSTS: &str = "Reno, every segment acknowledged; hosts answer within a millisecond more or less; a file is there when the \
                     connections together have brought so many bytes, without headers of records or a last one's wait";

/// How it is shown what hangs on that.
const WAVERING: &str = "the last figures: hosts within 0.2 and 5 ms";

/// How a fall is told from chance, where there is no figure for it.
pub(super) const FALL: &str =
    "a fall is one of more than 2% from the best median with fewer connections";
/// The least share that is one.
const LEAST_FALL: f64 = 0.02;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "xftp-eq2",
        experiment: "a file of 5 MB over one connection",
        paper: "about 44,000 byte/s",
        criterion: "within 5%",
        assumptions: &[HOSTS],
        seeds: SEEDS,
        work: studies(
            || vec![file(satellite(), 1, 24 << 10)],
            |seen| {
                let mut judgement = Judgement::new();
                judgement.near("byte/s", seen.spread(0, rate), 44_000.0, 0.05);
                judgement
            },
        ),
    },
    Row {
        id: "xftp-fig1",
        experiment: "a file of 5 MB over 1 to 16 connections",
        paper: "best with 6 to 8, less with more",
        criterion: "6 to 8 within 5% of the best; more than 10% lower with 16",
        assumptions: &[
            HOSTS,
            "a router's queue of 0.7 s, drop-tail (the last figures: other queues, and hosts that vary more and \
             less)",
        ],
        seeds: SEEDS,
        work: studies(counts, judge_counts),
    },
    Row {
        id: "xftp-fig2",
        experiment: "a file of 5 MB with 24 to 192 KB in flight, in windows of 12 to 48 KB",
        paper: "the throughput depends on N x W alone",
        criterion: "at most 5% between least and most at equal N x W",
        assumptions: &[HOSTS, "windows of 12, 24 and 48 KB, which the paper has in figure 5"],
        seeds: SEEDS,
        work: studies(
            || {
                SUMS.iter()
                    .flat_map(|&sum| WINDOWS.iter().filter_map(move |&window| split(sum, window)))
                    .map(|(count, window)| file(satellite(), count, window))
                    .collect()
            },
            |seen| judge_sums(seen, &WINDOWS, rate),
        ),
    },
    Row {
        id: "xftp-fig3",
        experiment: "round-trip time over time with 12 connections",
        paper: "swings up to 1.5 s",
        criterion: "base 560 ms (2%), peaks of 1.1 s and more, three swings or more, the first fall the deepest",
        assumptions: &[
            HOSTS,
            "12 connections; the round-trip times are what UDP echoes would find, ten a second, each second the mean: \
             the path's, and all that waits before it; the least is what the senders measured; \
             a queue of 0.7 s, drop-tail (the last figures: 0.55 and 0.8 s, and the second that the paper's footnote 7 \
             tells of)",
        ],
        seeds: SEEDS,
        work: studies(
            || {
                let run = |path| Study { duration: seconds(120), ..file(path, 12, 24 << 10) };
                let queues = OTHER_QUEUES.map(|(_, queue)| run(queued(queue)));
                [run(satellite())].into_iter().chain(queues).collect()
            },
            judge_swings,
        ),
    },
    Row {
        id: "xftp-fig4",
        experiment: "connections added below alpha and halved above beta, with at most 1 to 16 of them",
        paper: "keeps rising with their number; utilisation better than 90%",
        criterion: "no fall of more than 2% beyond 8; >= 90% of 192,000 byte/s x payload per packet there",
        assumptions: &[
            HOSTS,
            FALL,
            "the product's rule, of which alpha and beta are 1.25 and 2 times the base round-trip time; \
             three round trips between one connection more and the next; \
             beginning with one connection, from 15 s to 75 s (the last figures: other bounds)",
        ],
        seeds: SEEDS,
        work: studies(adaptive, |seen| {
            let mut judgement = judge_adaptive(seen, &MOST, steady);
            for (at, (alpha, beta)) in BOUNDS.into_iter().enumerate() {
                let found = seen.spread(MOST.len() + at, steady);
                judgement
                    .tell(format!("between {alpha} and {beta} ms, at most 16: {found:.0} byte/s"));
            }
            judgement
        }),
    },
    Row {
        id: "xftp-fig5",
        experiment: "192 KB in flight as 16 x 12, 8 x 24 and 4 x 48 KB at bit errors of 1e-7 to 1e-5",
        paper: "more, smaller connections win",
        criterion: "ordered 16 > 8 > 4 at every error rate of 1e-6 and above",
        assumptions: &[HOSTS, WAVERING, "400 s from the start on"],
        seeds: SEEDS,
        work: studies(erring, |seen| {
            let rate = |outcome: &Outcome| outcome.goodput("") / 8.0;
            let mut judgement = judge_errors(seen, &ERRORS, rate);
            for (at, (name, _)) in other_hosts().iter().enumerate() {
                let first = (ERRORS.len() + at) * SPLITS.len();
                let rates = seen.spreads(first..first + SPLITS.len(), rate);
                judgement.tell(format!("{name}, {SOME_ERRORS:e}: {rates:.0} byte/s with 16, 8, 4"));
            }
            judgement
        }),
    },
    Row {
        id: "xftp-slowstart",
        experiment: "time to the full rate, 500 ms, segments of 512 bytes",
        paper: "about 3.5 s",
        criterion: "within 15%",
        assumptions: &[HOSTS, WAVERING, "a window of 24 KB, counted from the SYN"],
        seeds: SEEDS,
        work: studies(slow_starts, judge_slow_start),
    },
];

pub(super) const MSS: u64 = 512;
const FILE: f64 = 5e6;
/// What is in flight, all windows together.
pub(super) const SUMS: [u64; 4] = [24 << 10, 48 << 10, 96 << 10, 192 << 10];
/// The last is not judged, but shown.
pub(super) const WINDOWS: [u64; 4] = [12 << 10, 24 << 10, 48 << 10, 6 << 10];
/// 192 KB as so many windows.
pub(super) const SPLITS: [(usize, u64); 3] = [(16, 12 << 10), (8, 24 << 10), (4, 48 << 10)];
const ERRORS: [f64; 4] = [1e-7, 1e-6, 3e-6, 1e-5];
/// Those with which other hosts are shown.
const SOME_ERRORS: f64 = 3e-6;

/// The paper's path. Real hosts take their time, a little more or less for each packet: without
/// that, who loses at a full queue would be a matter of phases (Floyd and Jacobson, 1992).
pub(super) fn satellite() -> PathConfig {
    both(preset("xftp-t1"), |link| link.impairments.jitter = Jitter::Uniform(ms(1)))
}

/// What the router's queue might have been instead. With the last, which the paper's footnote 7 tells of, its ten
/// connections would lose nothing.
const OTHER_QUEUES: [(&str, &str); 3] =
    [("a queue of 0.55 s", "550ms"), ("a queue of 0.8 s", "800ms"), ("a queue of 1 s", "1s")];

/// The same with another queue of the router.
fn queued(queue: &str) -> PathConfig {
    let queue = queue.parse().expect("a queue");
    both(satellite(), |link| link.queue = queue)
}

/// The same with hosts that take up to so much more or less.
fn wavering(by: Duration) -> PathConfig {
    both(satellite(), |link| link.impairments.jitter = Jitter::Uniform(by))
}

/// Connections that carry a file together: they run until the slowest has long carried it.
fn file(path: PathConfig, count: usize, window: u64) -> Study {
    let config = Config::classic(Recovery::Reno, MSS, window);
    let mut study = study(path, tcp("tcp", count, config, Source::Greedy), seconds(1));
    // At half of what equation 2 gives them, or of the link.
    let most = (count as u64 * window) as f64 / 0.56;
    study.duration = seconds((FILE / most.min(140_000.0) * 2.0) as u64 + 10);
    study.trace = Some(ms(100));
    study
}

/// How many such windows have this much in flight, with the window.
pub(super) fn split(sum: u64, window: u64) -> Option<(usize, u64)> {
    let count = (sum / window) as usize;
    (1..=16).contains(&count).then_some((count, window))
}

/// Byte/s of the file.
fn rate(outcome: &Outcome) -> f64 {
    FILE / time_for(outcome, FILE)
}

/// Those shown with what else might have been assumed.
const FEW: [usize; 4] = [6, 8, 12, 16];

/// All counts, then some with other queues and other hosts.
fn counts() -> Vec<Study> {
    let all = (1..=16).map(|count| file(satellite(), count, 24 << 10));
    let others = others();
    let some = others.iter().flat_map(|(_, path)| FEW.map(|n| file(path.clone(), n, 24 << 10)));
    all.chain(some).collect()
}

type Other = (&'static str, PathConfig);

fn others() -> [Other; 5] {
    let [calmer, livelier] = other_hosts();
    let [shorter, longer, told] = OTHER_QUEUES.map(|(name, queue)| (name, queued(queue)));
    [shorter, longer, told, calmer, livelier]
}

fn other_hosts() -> [Other; 2] {
    [
        ("hosts within 0.2 ms", wavering(Duration::from_micros(200))),
        ("hosts within 5 ms", wavering(ms(5))),
    ]
}

fn judge_counts(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let rates = seen.spreads(0..16, rate);
    let best = rates.medians().into_iter().fold(0.0, f64::max);
    for (at, rate) in rates.0.iter().enumerate() {
        let share = rate.median / best;
        let holds = match at + 1 {
            6..=8 => share >= 0.95,
            16 => share < 0.9,
            _ => true,
        };
        judgement.ask(
            holds,
            format!(
                "{:2} connections: {rate:.0} byte/s, {:.1} % of the best",
                at + 1,
                100.0 * share
            ),
        );
    }
    for (at, (name, _)) in others().iter().enumerate() {
        let first = 16 + at * FEW.len();
        let found = seen.spreads(first..first + FEW.len(), rate);
        judgement.tell(format!("{name}, N = 6, 8, 12, 16: {found:.0} byte/s"));
    }
    let plot = Plot::new("Paper 3, figure 1: a file of 5 MB", "connections", "byte/s");
    judgement.plot(plot.curve("ours", (1..=16).map(f64::from).zip(rates.0)));
    judgement
}

/// Judges runs by their byte/s: for each sum those windows that can make it up.
pub(super) fn judge_sums<T>(
    seen: &Seen<T>,
    windows: &[u64],
    rate: impl Fn(&T) -> f64 + Copy,
) -> Judgement {
    let mut judgement = Judgement::new();
    let mut plot = Plot::new("Paper 3, figure 2", "N x W, KB", "byte/s");
    let mut points = vec![Vec::new(); windows.len()];
    let mut at = 0;
    for sum in SUMS {
        let mut judged = Vec::new();
        for (index, &window) in windows.iter().enumerate() {
            if split(sum, window).is_none() {
                continue;
            }
            let rate = seen.spread(at, rate);
            at += 1;
            points[index].push(((sum >> 10) as f64, rate));
            if index < 3 {
                judged.push(rate);
            } else {
                judgement.tell(format!(
                    "{} KB in windows of {} KB, which open sooner in slow start: {rate:.0} byte/s",
                    sum >> 10,
                    window >> 10
                ));
            }
        }
        let judged = Spreads(judged);
        let least = judged.medians().into_iter().fold(f64::MAX, f64::min);
        let most = judged.medians().into_iter().fold(0.0, f64::max);
        let apart = 100.0 * (most / least - 1.0);
        let figure = format!("{} KB in flight: {judged:.0} byte/s, {apart:.1} % apart", sum >> 10);
        // What never arrived has no rate, and is neither the least nor the most.
        let all_arrived = judged.medians().iter().all(|rate| rate.is_finite());
        judgement.ask(all_arrived && most / least <= 1.05, figure);
    }
    for (window, points) in windows.iter().zip(points) {
        plot = plot.curve(format!("windows of {} KB", window >> 10), points);
    }
    judgement.plot(plot);
    judgement
}

/// What a datagram would find that is echoed, sample by sample: the way, and all that waits before it.
fn echoes(outcome: &Outcome) -> Vec<f64> {
    let of_one_time = outcome.samples.chunk_by(|one, other| one.seconds == other.seconds);
    let base = satellite().rtt().as_secs_f64();
    let of_packets = |packets: u64| base + (packets * (MSS + 40)) as f64 / 192_000.0;
    of_one_time.map(|samples| of_packets(samples[0].queue_packets)).collect()
}

/// The same without the bursts of each round trip: means of a second.
fn smooth(echoes: &[f64]) -> Vec<f64> {
    echoes.chunks(10).map(|second| second.iter().sum::<f64>() / second.len() as f64).collect()
}

/// Peaks of the echoes and the falls behind them, of a fifth of a second and more.
fn swings(echoes: &[f64]) -> Vec<(f64, f64)> {
    let (mut peak, mut valley) = (0.0f64, f64::MAX);
    let mut found = Vec::new();
    for &echo in echoes {
        if echo < valley {
            valley = echo;
        }
        if peak - valley >= 0.2 && echo - valley >= 0.2 {
            found.push((peak, peak - valley));
            (peak, valley) = (echo, echo);
        }
        if echo > peak {
            (peak, valley) = (echo, echo);
        }
    }
    found
}

/// The first fall over the deepest of the others.
fn first_fall(outcome: &Outcome) -> f64 {
    let swings = swings(&smooth(&echoes(outcome)));
    let others = swings.iter().skip(1).map(|swing| swing.1).fold(0.0, f64::max);
    swings.first().map_or(0.0, |first| first.1 / others)
}

fn judge_swings(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let least = seen.spread(0, |seen| {
        seen.samples.iter().filter_map(|sample| sample.rtt).fold(f64::INFINITY, f64::min)
    });
    judgement.near("least, s", least, 0.56, 0.02);
    let peak =
        |run| seen.spread(run, |seen| echoes(seen).into_iter().fold(f64::NEG_INFINITY, f64::max));
    let count = |run| seen.spread(run, |seen| swings(&smooth(&echoes(seen))).len() as f64);
    let first = |run| seen.spread(run, first_fall);
    judgement.ask(peak(0).median >= 1.1, format!("highest: {:.2} s", peak(0)));
    judgement.ask(count(0).median >= 3.0, format!("swings: {:.0}", count(0)));
    let fall = first(0);
    judgement.ask(fall.median >= 1.0, format!("first fall over the deepest other: {fall:.2}"));
    for (at, (name, _)) in OTHER_QUEUES.into_iter().enumerate() {
        let run = 1 + at;
        judgement.tell(format!(
            "{name}: highest {:.2} s, swings {:.0}, first fall {:.2}",
            peak(run),
            count(run),
            first(run)
        ));
    }
    let over_time = echoes(seen.first(0)).into_iter().enumerate();
    let plot = Plot::new("Paper 3, figure 3: 12 connections", "time, s", "round-trip time, s");
    judgement.plot(plot.curve("ours", over_time.map(|(at, echo)| (at as f64 / 10.0, echo))));
    judgement
}

/// The most connections there may be.
const MOST: [usize; 7] = [1, 2, 4, 6, 8, 12, 16];
/// When the rate is measured, in seconds.
const STEADY: (u64, u64) = (15, 75);

/// Alpha and beta in milliseconds, by which the result is shown to hang on them.
const BOUNDS: [(u64, u64); 3] = [(620, 900), (700, 1400), (900, 1120)];

/// With at most so many connections, then with 16 and other bounds.
fn adaptive() -> Vec<Study> {
    let policy = Policy::RttBounded { alpha: Duration::ZERO, beta: Duration::ZERO };
    let connection = Config::classic(Recovery::Reno, MSS, 24 << 10);
    let with = |most, policy| {
        let striped = Protocol::Striped(Striping { connection, policy, most });
        let mut study =
            study(satellite(), alike("file", 1, striped, Source::Greedy), seconds(STEADY.1));
        study.measure_from = seconds(STEADY.0);
        study
    };
    let others = BOUNDS
        .map(|(alpha, beta)| with(16, Policy::RttBounded { alpha: ms(alpha), beta: ms(beta) }));
    MOST.into_iter().map(|most| with(most, policy)).chain(others).collect()
}

/// Byte/s of steady state.
fn steady(seen: &Outcome) -> f64 {
    seen.flows[0].goodput_bps / 8.0
}

/// Judges runs with at most so many connections by their byte/s.
pub(super) fn judge_adaptive<T>(
    seen: &Seen<T>,
    most: &[usize],
    rate: impl Fn(&T) -> f64,
) -> Judgement {
    let mut judgement = Judgement::new();
    let rates = seen.spreads(0..most.len(), rate);
    let limit = 192_000.0 * MSS as f64 / (MSS + 40) as f64;
    let mut best: Option<Spread> = None;
    for (most, &rate) in most.iter().zip(&rates.0) {
        let falls = best.filter(|best| *most > 8 && rate.median < (1.0 - LEAST_FALL) * best.median);
        let filled = *most < 8 || rate.median >= 0.9 * limit;
        let share = 100.0 * rate.median / limit;
        let line = format!("at most {most:2}: {rate:.0} byte/s, {share:.1} % of {limit:.0}");
        judgement.ask(filled && falls.is_none(), line).because(|| match falls {
            Some(best) => format!(
                "with at most {most} connections {:.1} % less than the {:.0} byte/s of the best with fewer",
                100.0 * (1.0 - rate.median / best.median),
                best.median
            ),
            None => format!("with at most {most} connections {:.1} % are left unused", 100.0 - share),
        });
        best = Some(best.filter(|best| best.median >= rate.median).unwrap_or(rate));
    }
    let plot = Plot::new("Paper 3, figure 4: the adaptive count", "most connections", "byte/s");
    judgement.plot(plot.curve("ours", most.iter().map(|&most| most as f64).zip(rates.0)));
    judgement
}

/// All splits with each error rate, then with some errors and other hosts.
fn erring() -> Vec<Study> {
    let run = |path: PathConfig, error: f64, (count, window): (usize, u64)| {
        let path = both(path, |link| link.impairments.bit_error = error);
        let mut study = file(path, count, window);
        study.duration = seconds(400);
        study.trace = None;
        study
    };
    let all = ERRORS.map(|error| (satellite(), error));
    let others = other_hosts().map(|(_, path)| (path, SOME_ERRORS));
    let ways = all.into_iter().chain(others);
    ways.flat_map(|(path, error)| SPLITS.map(|split| run(path.clone(), error, split))).collect()
}

/// Judges runs by their byte/s: for each error rate the three splits.
pub(super) fn judge_errors<T>(
    seen: &Seen<T>,
    errors: &[f64],
    rate: impl Fn(&T) -> f64 + Copy,
) -> Judgement {
    let mut judgement = Judgement::new();
    for (at, error) in errors.iter().enumerate() {
        let rates = seen.spreads(3 * at..3 * at + 3, rate);
        let holds = *error < 1e-6 || rates.medians().is_sorted_by(|more, fewer| more > fewer);
        judgement.ask(holds, format!("{error:e}: {rates:.0} byte/s with 16, 8, 4"));
    }
    let plot = Plot::new("Paper 3, figure 5: 192 KB in flight", "bit errors", "byte/s");
    let plot =
        SPLITS.iter().enumerate().fold(plot.logarithmic(), |plot, (split, (count, window))| {
            let found = |at: usize| seen.spread(3 * at + split, rate);
            let points = errors.iter().enumerate().map(|(at, &error)| (error, found(at)));
            plot.curve(format!("{count} x {} KB", window >> 10), points)
        });
    judgement.plot(plot);
    judgement
}

/// One connection over 500 ms, then from other hosts.
fn slow_starts() -> Vec<Study> {
    let run = |path| Study {
        duration: seconds(20),
        trace: Some(ms(10)),
        ..file(with_rtt(path, ms(500)), 1, 24 << 10)
    };
    let others = other_hosts().map(|(_, path)| path);
    [satellite()].into_iter().chain(others).map(run).collect()
}

fn judge_slow_start(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let full = |run| {
        seen.spread(run, |outcome| {
            let full = |window: u64| window >= (24 << 10) / MSS * MSS;
            let first = outcome.samples.iter().find(|sample| full(sample.window_bytes));
            first.map_or(f64::NAN, |sample| sample.seconds)
        })
    };
    judgement.near("s", full(0), 3.5, 0.15);
    for (at, (name, _)) in other_hosts().iter().enumerate() {
        judgement.tell(format!("{name}: {:.2} s", full(1 + at)));
    }
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fall_is_told_by_medians() {
        let judged = |seeds: &[[f64; 3]]| {
            let shown = seeds.concat();
            judge_adaptive(&Seen::new(shown, 3), &[4, 8, 16], |rate| *rate)
        };
        assert!(judged(&[[9e4, 17.5e4, 17.6e4], [9e4, 17.4e4, 17.3e4]]).passed);
        // Less in the median, by a percent.
        assert!(judged(&[[9e4, 17.5e4, 17.4e4], [9e4, 17.3e4, 17.1e4]]).passed);
        // One seed as good as another with fewer makes up for nothing.
        let fell = judged(&[[9e4, 17.5e4, 16.8e4], [9e4, 17.6e4, 16.9e4], [9e4, 17.6e4, 17.6e4]]);
        assert!(!fell.passed && fell.reasons[0].contains("% less than"), "{fell:?}");
        let low = judged(&[[9e4, 15e4, 17.5e4]]);
        assert!(!low.passed && low.reasons[0].contains("left unused"), "{low:?}");
    }

    #[test]
    fn sums_and_errors_are_judged_by_their_medians() {
        // As many as there are splits of each sum into windows of 12, 24 and 48 KB.
        let splits = SUMS.iter().flat_map(|&sum| WINDOWS[..3].iter().map(move |&w| split(sum, w)));
        let runs = splits.flatten().count();
        let judged = |last: f64| {
            let mut rates = vec![100.0; runs];
            rates[runs - 1] = last;
            judge_sums(&Seen::new(rates, runs), &WINDOWS[..3], |rate| *rate).passed
        };
        assert!(judged(104.9) && !judged(105.1) && !judged(95.0));
        let judged = |eight: f64| {
            let rates = vec![1.0, 2.0, 3.0, 16.0, eight, 4.0];
            judge_errors(&Seen::new(rates, 6), &[1e-7, 1e-6], |rate| *rate).passed
        };
        assert!(judged(8.0) && !judged(16.0) && !judged(3.0));
    }
}

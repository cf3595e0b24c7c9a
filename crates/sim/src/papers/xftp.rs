//! Paper 3: XFTP over a satellite.

use core::time::Duration;

use path::{Jitter, PathConfig};
use stripe::count::Policy;

use super::{
    Judgement, Plot, Row, Runs, SEEDS, Seen, Work, both, ms, preset, seconds, studies, study, tcp,
    time_for, with_rtt,
};
use crate::study::{Outcome, Stand, Striped, Study};
use crate::tcp::{Config, Recovery, Source};

/// What holds for every row.
const HOSTS: &str =
    "Reno, every segment acknowledged; hosts answer within a millisecond more or less";

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
        assumptions: &[HOSTS, "a router's queue of 0.7 s, drop-tail"],
        seeds: SEEDS,
        work: studies(
            || (1..=16).map(|count| file(satellite(), count, 24 << 10)).collect(),
            judge_counts,
        ),
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
        criterion: "base 560 ms, peaks of 1.1 s and more, three swings or more, the first fall the deepest",
        assumptions: &[HOSTS, "12 connections; a queue of 0.7 s, drop-tail"],
        seeds: SEEDS,
        work: studies(
            || {
                let mut study = file(satellite(), 12, 24 << 10);
                study.duration = seconds(120);
                vec![study]
            },
            judge_swings,
        ),
    },
    Row {
        id: "xftp-fig4",
        experiment: "connections added below alpha and halved above beta, with at most 1 to 16 of them",
        paper: "keeps rising with their number; utilisation better than 90%",
        criterion: "no fall beyond 8 (5%); >= 90% of 192,000 byte/s x payload per packet there",
        assumptions: &[
            HOSTS,
            "the product's rule, of which alpha and beta are 1.25 and 2 times the base round-trip time; \
             beginning with one connection, from 15 s to 75 s",
        ],
        seeds: SEEDS,
        work: Work::Stripes(Runs {
            make: adaptive,
            judge: |seen| judge_adaptive(seen, &MOST, |stands| steady(stands)),
        }),
    },
    Row {
        id: "xftp-fig5",
        experiment: "192 KB in flight as 16 x 12, 8 x 24 and 4 x 48 KB at bit errors of 1e-7 to 1e-5",
        paper: "more, smaller connections win",
        criterion: "ordered 16 > 8 > 4 at every error rate of 1e-6 and above",
        assumptions: &[HOSTS, "400 s of steady state"],
        seeds: SEEDS,
        work: studies(erring, |seen| {
            judge_errors(seen, &ERRORS, |outcome: &Outcome| outcome.goodput("") / 8.0)
        }),
    },
    Row {
        id: "xftp-slowstart",
        experiment: "time to the full rate, 500 ms, segments of 512 bytes",
        paper: "about 3.5 s",
        criterion: "within 15%",
        assumptions: &[HOSTS, "a window of 24 KB, counted from the SYN"],
        seeds: SEEDS,
        work: studies(
            || {
                let mut study = file(with_rtt(satellite(), ms(500)), 1, 24 << 10);
                study.duration = seconds(20);
                study.trace = Some(ms(10));
                vec![study]
            },
            judge_slow_start,
        ),
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

/// The paper's path. Real hosts take their time, a little more or less for each packet: without
/// that, who loses at a full queue would be a matter of phases (Floyd and Jacobson, 1992).
pub(super) fn satellite() -> PathConfig {
    both(preset("xftp-t1"), |link| link.impairments.jitter = Jitter::Uniform(ms(1)))
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

fn judge_counts(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let rates = seen.medians(0..16, rate);
    let best = rates.iter().copied().fold(0.0, f64::max);
    for (at, rate) in rates.iter().enumerate() {
        let share = rate / best;
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
    let plot = Plot::new("Paper 3, figure 1: a file of 5 MB", "connections", "byte/s");
    judgement
        .plot(plot.curve("ours", rates.iter().zip(1..).map(|(&rate, n)| (f64::from(n), rate))));
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
            let rate = seen.median(at, rate);
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
        let least = judged.iter().copied().fold(f64::MAX, f64::min);
        let most = judged.iter().copied().fold(0.0, f64::max);
        let figure = format!("{} KB in flight: {least:.0} to {most:.0} byte/s", sum >> 10);
        judgement.ask(most / least <= 1.05, figure);
    }
    for (window, points) in windows.iter().zip(points) {
        plot = plot.curve(format!("windows of {} KB", window >> 10), points);
    }
    judgement.plot(plot);
    judgement
}

/// What an echo would have taken, sample by sample: the path, and the queue at that time.
fn echoes(outcome: &Outcome) -> Vec<f64> {
    let mut last = -1.0;
    let first_of_each = outcome.samples.iter().filter(|sample| {
        let new = sample.seconds > last;
        last = sample.seconds;
        new
    });
    let packet = (MSS + 40) as f64 * 8.0 / 1.536e6;
    first_of_each.map(|sample| 0.56 + sample.queue_packets as f64 * packet).collect()
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

fn judge_swings(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let base = seen.spread(0, |outcome| echoes(outcome).into_iter().fold(f64::MAX, f64::min));
    judgement.near("least, s", base, 0.56, 0.01);
    let peak = seen.spread(0, |outcome| echoes(outcome).into_iter().fold(0.0, f64::max));
    judgement.ask(peak.median >= 1.1, format!("highest: {:.2} s", peak.median));
    let count = seen.spread(0, |outcome| swings(&smooth(&echoes(outcome))).len() as f64);
    judgement.ask(count.median >= 3.0, format!("swings: {}", count.median));
    let first = seen.spread(0, |outcome| {
        let swings = swings(&smooth(&echoes(outcome)));
        let others = swings.iter().skip(1).map(|swing| swing.1).fold(0.0, f64::max);
        swings.first().map_or(0.0, |first| first.1 / others)
    });
    judgement.ask(
        first.median >= 1.0,
        format!("first fall over the deepest other: {:.2}", first.median),
    );
    let over_time = echoes(seen.first(0)).into_iter().enumerate();
    let plot = Plot::new("Paper 3, figure 3: 12 connections", "time, s", "round-trip time, s");
    judgement.plot(plot.curve("ours", over_time.map(|(at, echo)| (at as f64 / 10.0, echo))));
    judgement
}

/// The most connections there may be.
const MOST: [usize; 7] = [1, 2, 4, 6, 8, 12, 16];
/// When the rate is measured, in seconds.
const STEADY: (u64, u64) = (15, 75);

fn adaptive() -> Vec<Striped> {
    let policy = Policy::RttBounded { alpha: Duration::ZERO, beta: Duration::ZERO };
    let connection = Config::classic(Recovery::Reno, MSS, 24 << 10);
    let duration = seconds(STEADY.1);
    MOST.map(|most| Striped { connection, most, duration, ..Striped::new(satellite(), policy) })
        .into()
}

/// Byte/s of steady state.
fn steady(stands: &[Stand]) -> f64 {
    let at = |time| {
        let stand = stands.iter().rfind(|stand| stand.at <= seconds(time));
        stand.map_or(0, |stand| stand.delivered.0)
    };
    (at(STEADY.1) - at(STEADY.0)) as f64 / (STEADY.1 - STEADY.0) as f64
}

/// Judges runs with at most so many connections by their byte/s.
pub(super) fn judge_adaptive<T>(
    seen: &Seen<T>,
    most: &[usize],
    rate: impl Fn(&T) -> f64,
) -> Judgement {
    let mut judgement = Judgement::new();
    let rates = seen.medians(0..most.len(), rate);
    let limit = 192_000.0 * MSS as f64 / (MSS + 40) as f64;
    let mut best = 0.0_f64;
    for (most, &rate) in most.iter().zip(&rates) {
        let holds = *most < 8 || rate >= 0.9 * limit && rate >= 0.95 * best;
        best = best.max(rate);
        let share = 100.0 * rate / limit;
        judgement
            .ask(holds, format!("at most {most:2}: {rate:.0} byte/s, {share:.1} % of {limit:.0}"));
    }
    let plot = Plot::new("Paper 3, figure 4: the adaptive count", "most connections", "byte/s");
    judgement.plot(plot.curve("ours", most.iter().map(|&most| most as f64).zip(rates)));
    judgement
}

fn erring() -> Vec<Study> {
    let run = |error: f64, (count, window): (usize, u64)| {
        let path = both(satellite(), |link| link.impairments.bit_error = error);
        let mut study = file(path, count, window);
        study.duration = seconds(400);
        study.trace = None;
        study
    };
    ERRORS.iter().flat_map(|&error| SPLITS.map(|split| run(error, split))).collect()
}

/// Judges runs by their byte/s: for each error rate the three splits.
pub(super) fn judge_errors<T>(
    seen: &Seen<T>,
    errors: &[f64],
    rate: impl Fn(&T) -> f64 + Copy,
) -> Judgement {
    let mut judgement = Judgement::new();
    for (at, error) in errors.iter().enumerate() {
        let rates = seen.medians(3 * at..3 * at + 3, rate);
        let holds = *error < 1e-6 || rates.is_sorted_by(|more, fewer| more > fewer);
        let shown: Vec<_> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
        judgement.ask(holds, format!("{error:e}: {} byte/s with 16, 8, 4", shown.join(", ")));
    }
    let plot = Plot::new("Paper 3, figure 5: 192 KB in flight", "bit errors", "byte/s");
    let plot =
        SPLITS.iter().enumerate().fold(plot.logarithmic(), |plot, (split, (count, window))| {
            let found = |at: usize| seen.median(3 * at + split, rate);
            let points = errors.iter().enumerate().map(|(at, &error)| (error, found(at)));
            plot.curve(format!("{count} x {} KB", window >> 10), points)
        });
    judgement.plot(plot);
    judgement
}

fn judge_slow_start(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let full = seen.spread(0, |outcome| {
        let full = |window: u64| window >= (24 << 10) / MSS * MSS;
        let first = outcome.samples.iter().find(|sample| full(sample.window_bytes));
        first.map_or(f64::NAN, |sample| sample.seconds)
    });
    judgement.near("s", full, 3.5, 0.15);
    judgement
}

//! Paths as radio makes them: packets are held back and come in bunches, or the rate changes all the time. Ours alone, two
//! of ours, ours beside TCP's CUBIC and BBR, and what these make of the same path alone.

use path::{PathConfig, RateTrace};
use transport::cc::Algorithm;

use super::{Case, OURS, at_least, path, seconds, shown};
use crate::run::{Flow, Kind, Setup};

const TIME: f64 = 35.0;
/// The start is judged apart.
const START: f64 = 5.0;
/// A rate trace is made of steps of so many milliseconds.
const STEP: usize = 10;

/// Who shares the path, and what they must use of it.
const WHO: [(&str, &[Kind], f64); 6] = [
    ("", &[OURS], 0.6),
    (", two", &[OURS; 2], 0.6),
    (", beside CUBIC", &[OURS, Kind::Ours(Algorithm::Cubic)], 0.6),
    (", beside BBR", &[OURS, Kind::Bbr], 0.6),
    (", CUBIC", &[Kind::Ours(Algorithm::Cubic)], 0.0),
    (", BBR", &[Kind::Bbr], 0.0),
];

pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for who in WHO {
        for (rate, rtt) in [(20, 50), (100, 20), (100, 100), (50, 200)] {
            for jitter in ["uniform:5ms", "uniform:20ms", "exponential:3ms", "exponential:10ms"] {
                let name = format!("{rate} Mbit/s, {rtt} ms, jitter {jitter}");
                cases.push(case(name, who, move |seed| {
                    let mut path = path(rate, rtt, 100, seed);
                    let impairments = &mut path.forward.impairments;
                    impairments.jitter = jitter.parse().expect("a jitter");
                    impairments.keep_order = true;
                    path
                }));
            }
        }
        for (name, steps) in rates() {
            for rtt in [50, 200] {
                let trace = trace(&steps);
                cases.push(case(format!("{name}, {rtt} ms"), who, move |seed| {
                    let mut path = path(1, rtt, 200, seed);
                    path.forward.rate = trace.mean_rate();
                    path.forward.trace = Some(trace.clone());
                    path
                }));
            }
        }
    }
    cases
}

fn case(
    name: String,
    (many, flows, least): (&str, &'static [Kind], f64),
    path: impl Fn(u64) -> PathConfig + Send + Sync + 'static,
) -> Case {
    Case {
        part: "unsteady",
        name: name + many,
        figures: vec![
            at_least("used", least),
            shown("first 5 s"),
            shown("our part"),
            shown("queue ms"),
            shown("drops %"),
        ],
        setup: Box::new(move |seed| Setup {
            path: path(seed),
            flows: flows.iter().map(|kind| Flow::new(*kind, seed * 17)).collect(),
            absence: None,
            time: seconds(TIME),
        }),
        judge: Box::new(|seen| {
            let rates = seen.rates(START, TIME);
            vec![
                seen.used(START, TIME),
                seen.used(0.0, START),
                rates[0] / rates.iter().sum::<f64>(),
                seen.queue(0.5, START, TIME) * 1e3,
                seen.drop_share(START, TIME) * 100.0,
            ]
        }),
    }
}

/// Rates in Mbit/s, for [`STEP`] each.
fn rates() -> Vec<(&'static str, Vec<f64>)> {
    let turns = |long: (usize, f64), short: (usize, f64)| {
        [vec![long.1; long.0 / STEP], vec![short.1; short.0 / STEP]].concat()
    };
    let walk = |step: i32| {
        let step = f64::from(step);
        40.0 + 15.0 * (step * 0.37).sin() + 15.0 * (step * 0.083).sin()
    };
    vec![
        ("60 and 20 Mbit/s, 50 ms each", turns((50, 60.0), (50, 20.0))),
        ("60 and 20 Mbit/s, 300 ms each", turns((300, 60.0), (300, 20.0))),
        ("60 and 20 Mbit/s, 1 s each", turns((1000, 60.0), (1000, 20.0))),
        ("57 Mbit/s, 30 of 100 ms 1", turns((70, 57.0), (30, 1.0))),
        ("53 Mbit/s, 50 of 200 ms 1", turns((150, 53.0), (50, 1.0))),
        ("10 to 70 Mbit/s by two sines", (0..400).map(walk).collect()),
    ]
}

/// The format is whole packets of 1500 bytes in whole milliseconds.
fn trace(rates: &[f64]) -> RateTrace {
    let (mut lines, mut owed) = (String::new(), 0.0);
    for (step, rate) in rates.iter().enumerate() {
        for millis in 1..=STEP {
            owed += rate * 1e3 / 8.0;
            while owed >= 1500.0 {
                owed -= 1500.0;
                lines += &format!("{}\n", step * STEP + millis);
            }
        }
    }
    lines.parse().expect("times that rise")
}

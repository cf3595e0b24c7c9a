//! Flows that share a link, of our kind and of others.

use core::time::Duration;

use sim::Absence;
use transport::cc::Algorithm;

use super::{BUSY, Case, Figure, OURS, at_least, at_most, path, seconds, shown};
use crate::run::{Flow, Kind, Seen, Setup, jain};

pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for (rate, rtt) in [(50, 50), (100, 50), (200, 200)] {
        cases.extend([2, 4, 8].map(|count| ours(rate, rtt, (count, 0), None)));
    }
    cases.extend([2, 4, 8].map(|count| ours(100, 50, (count, 0), Some(BUSY))));
    for apart in [50, 100, 150, 200, 250] {
        cases.extend([None, Some(BUSY)].map(|absence| ours(100, 50, (8, apart), absence)));
    }
    for (rtt, count, apart) in [
        (50, 16, 250),
        (50, 12, 500),
        (50, 8, 1000),
        (50, 12, 1000),
        (50, 12, 2000),
        (50, 12, 400),
        (50, 12, 800),
        (50, 20, 600),
        (100, 12, 800),
        (200, 8, 4000),
    ] {
        cases.push(arriving(rtt, count, apart));
    }
    cases.extend([(50, 40), (50, 50), (100, 50), (200, 30)].map(many));
    for loss in [0.1, 0.15, 0.3] {
        cases.extend([1, 2, 8].map(|count| lossy(count, loss)));
    }
    cases.extend([25, 50, 100].map(|queue| after_cubic(queue, Duration::ZERO)));
    cases.push(after_cubic(50, Duration::from_millis(700)));
    for queue in [25, 50] {
        cases.extend([2, 3].map(|count| cubic_after_bbr(count, queue)));
    }
    let rivals = [("cubic", Kind::Ours(Algorithm::Cubic)), ("bbr", Kind::Bbr)];
    for queue in [25, 50, 100] {
        for (part, kind) in rivals {
            cases.extend([(4, 0), (8, 12)].map(|(ours, at)| among(part, kind, ours, at, queue)));
            cases.extend([None, Some(BUSY)].map(|absence| rival(part, kind, queue, absence)));
        }
    }
    cases.extend([25, 50, 100].map(background));
    for algorithm in [Algorithm::Longhaul, Algorithm::Cubic, Algorithm::NewReno] {
        cases.extend([1, 4].map(|count| marks(algorithm, count)));
    }
    cases
}

/// Flows of ours, half of them late; of each half, one comes so many milliseconds after the other.
fn ours(rate: u64, rtt: u64, (count, apart): (u64, u64), absence: Option<Absence>) -> Case {
    let late = 5.0;
    let busy = if absence.is_some() { ", busy" } else { "" };
    let by = if apart > 0 { format!(", {apart} ms apart") } else { String::new() };
    // 20 round trips or 5 s.
    let converged = late + (rtt as f64 * 0.02).max(5.0);
    let end = converged + 20.0;
    Case {
        part: "ours",
        name: format!("{count} on {rate} Mbit/s, {rtt} ms{by}{busy}"),
        figures: vec![
            at_least("Jain", 0.97),
            at_least("first 4 s", 0.97),
            at_least("worst 5 s", 0.9),
            at_least("used", 0.93),
            shown("queue ms"),
            at_most("drops %", 0.1),
        ],
        setup: Box::new(move |seed| {
            let start = |flow: u64| {
                let (first, place) = if flow < count / 2 {
                    (0, flow)
                } else {
                    ((late * 1000.0) as u64, flow - count / 2)
                };
                first + place * apart + (flow * 7 + seed * 13) * (flow + 2) % 97
            };
            Setup {
                path: path(rate, rtt, 50, seed),
                // As with a copy, which asks for its file first.
                flows: (0..count)
                    .map(|flow| Flow { asks: true, ..Flow::new(OURS, start(flow)) })
                    .collect(),
                absence,
                time: seconds(end),
            }
        }),
        judge: Box::new(move |seen| {
            vec![
                jain(&seen.rates(converged, end)),
                // As `bench fairness` looks at whether they have converged.
                jain(&seen.rates(converged, converged + 4.0)),
                worst_jain(seen, converged),
                seen.used(converged, end),
                seen.queue(0.5, converged, end) * 1e3,
                seen.drop_share(converged, end) * 100.0,
            ]
        }),
    }
}

/// The worst of four times 5 s.
fn worst_jain(seen: &Seen, from: f64) -> f64 {
    let windows = (0..4).map(|at| from + f64::from(at) * 5.0);
    windows.map(|from| jain(&seen.rates(from, from + 5.0))).fold(1.0, f64::min)
}

/// Flows of ours on 100 Mbit/s, of which one comes every so many milliseconds: the share of each falls with every newcomer, and
/// each newcomer makes a queue, as BBR would.
fn arriving(rtt: u64, count: u64, apart: u64) -> Case {
    let arrived = (count * apart) as f64 / 1000.0;
    let converged = arrived + (rtt as f64 * 0.02).max(5.0);
    let end = converged + 20.0;
    Case {
        part: "ours",
        name: format!("{count}, one each {} s, {rtt} ms", apart as f64 / 1000.0),
        figures: vec![
            at_least("Jain", 0.95),
            at_least("worst 5 s", 0.9),
            at_least("used", 0.93),
            shown("queue ms"),
            at_most("drops %", 0.1),
            shown("first drops %"),
        ],
        setup: Box::new(move |seed| Setup {
            path: path(100, rtt, 50, seed),
            flows: (0..count)
                .map(|flow| Flow { asks: true, ..Flow::new(OURS, flow * apart + seed * 13) })
                .collect(),
            absence: None,
            time: seconds(end),
        }),
        judge: Box::new(move |seen| {
            vec![
                jain(&seen.rates(converged, end)),
                worst_jain(seen, converged),
                seen.used(converged, end),
                seen.queue(0.5, converged, end) * 1e3,
                seen.drop_share(converged, end) * 100.0,
                seen.drop_share(0.0, arrived) * 100.0,
            ]
        }),
    }
}

/// So many flows of ours on 100 Mbit/s, one after the other within 6 s: each is owed less than any that a few flows are.
/// They have a minute to find that out, and half of one to become equal.
fn many((rtt, count): (u64, u64)) -> Case {
    const FROM: f64 = 90.0;
    const END: f64 = 110.0;
    Case {
        part: "many",
        name: format!("{count} on 100 Mbit/s, {rtt} ms"),
        figures: vec![
            at_least("used", 0.9),
            at_most("drops %", 2.0),
            at_least("Jain", 0.6),
            shown("at first used"),
            shown("drops %"),
            at_most("from 30 s", 20.0),
            shown("queue ms"),
        ],
        setup: Box::new(move |seed| Setup {
            path: path(100, rtt, 50, seed),
            flows: (0..count)
                .map(|flow| Flow {
                    asks: true,
                    ..Flow::new(OURS, (flow * 6000 + seed * 13) / count)
                })
                .collect(),
            absence: None,
            time: seconds(END),
        }),
        judge: Box::new(|seen| {
            vec![
                seen.used(FROM, END),
                seen.drop_share(FROM, END) * 100.0,
                jain(&seen.rates(FROM, END)),
                seen.used(0.0, 30.0),
                seen.drop_share(0.0, 30.0) * 100.0,
                seen.drop_share(30.0, 60.0) * 100.0,
                seen.queue(0.5, FROM, END) * 1e3,
            ]
        }),
    }
}

/// So many flows of ours on a path that loses much by itself, which is not to be taken for their overflow.
fn lossy(count: u64, loss: f64) -> Case {
    const FROM: f64 = 10.0;
    const END: f64 = 60.0;
    // What truces cost that are to tell it.
    let (used, fair) = if loss < 0.2 { (0.95, 0.9) } else { (0.9, 0.5) };
    Case {
        part: "lossy",
        name: format!("{count} on 100 Mbit/s, {}% lost", loss * 100.0),
        figures: vec![at_least("used", used), at_least("Jain", fair), shown("drops %")],
        setup: Box::new(move |seed| Setup {
            path: path(100, 50, 50, seed).with_loss(loss),
            flows: (0..count)
                .map(|flow| Flow { asks: true, ..Flow::new(OURS, flow * 200 + seed * 13) })
                .collect(),
            absence: None,
            time: seconds(END),
        }),
        judge: Box::new(move |seen| {
            let rates = seen.rates(FROM, END);
            vec![
                rates.iter().sum::<f64>() / (98.7e6 * (1.0 - loss)),
                jain(&rates),
                seen.drop_share(FROM, END) * 100.0,
            ]
        }),
    }
}

/// Flows of ours that contended with one of CUBIC's until it ended, after some 15 s.
fn after_cubic(queue: u64, apart: Duration) -> Case {
    let clocks = if apart.is_zero() { "" } else { ", clocks apart" };
    Case {
        part: "ours",
        name: format!("4 after cubic, queue {queue} ms{clocks}"),
        figures: vec![
            at_least("Jain", 0.9),
            shown("later"),
            at_least("used", 0.93),
            shown("queue ms"),
            at_most("drops %", 0.1),
        ],
        setup: Box::new(move |seed| {
            let ours = (0..4).map(|flow: u64| Flow {
                asks: true,
                ahead: apart * flow as u32,
                ..Flow::new(OURS, flow * 100 * seed)
            });
            let cubic = Flow { bytes: 40_000_000, ..Flow::new(Kind::Ours(Algorithm::Cubic), 50) };
            Setup {
                path: path(100, 50, queue, seed),
                flows: ours.chain([cubic]).collect(),
                absence: Some(BUSY),
                time: seconds(60.0),
            }
        }),
        judge: Box::new(|seen| {
            let index = |from, to| jain(&seen.rates(from, to)[..4]);
            vec![
                index(30.0, 60.0),
                index(50.0, 60.0),
                seen.used(30.0, 60.0),
                seen.queue(0.5, 30.0, 60.0) * 1e3,
                seen.drop_share(30.0, 60.0) * 100.0,
            ]
        }),
    }
}

/// One of CUBIC's that comes to flows of ours which learned from one of BBR's, until that ended, to insist.
fn cubic_after_bbr(ours: u64, queue: u64) -> Case {
    /// Some 40 s of it.
    const BBR: u64 = 150_000_000;
    Case {
        part: "among",
        name: format!("cubic among {ours} after bbr, queue {queue} ms"),
        figures: vec![
            at_least("of its due", 0.5),
            shown("Jain of ours"),
            at_least("used", 0.93),
            shown("drops %"),
            shown("queue ms"),
        ],
        setup: Box::new(move |seed| {
            let flows = (0..ours)
                .map(|flow| Flow { asks: true, ..Flow::new(OURS, flow * 100 * seed) })
                .chain([
                    Flow { bytes: BBR, ..Flow::new(Kind::Bbr, 50) },
                    Flow::new(Kind::Ours(Algorithm::Cubic), 40_000),
                ]);
            Setup {
                path: path(100, 50, queue, seed),
                flows: flows.collect(),
                absence: Some(BUSY),
                time: seconds(120.0),
            }
        }),
        judge: Box::new(move |seen| {
            let rates = seen.rates(70.0, 120.0);
            let (ours, others) = rates.split_at(ours as usize);
            let sum: f64 = rates.iter().sum();
            vec![
                others[1] / sum * (ours.len() as f64 + 1.0),
                jain(ours),
                seen.used(70.0, 120.0),
                seen.drop_share(70.0, 120.0) * 100.0,
                seen.queue(0.5, 70.0, 120.0) * 1e3,
            ]
        }),
    }
}

/// One of another kind that comes to so many of ours, after so many seconds: with none they begin together.
fn among(name: &str, kind: Kind, ours: u64, at: u64, queue: u64) -> Case {
    const END: f64 = 60.0;
    let from = at as f64 + 10.0;
    // BBR's law, which ours follow beside it, is unfair among its own kind on short queues.
    let (least, shortly, drops) =
        if kind == Kind::Bbr { (0.3, 0.01, 20.0) } else { (0.5, 0.25, 2.0) };
    Case {
        part: "among",
        name: format!("{name} among {ours}, queue {queue} ms"),
        figures: vec![
            at_least("of its due", least),
            at_least("10 s", shortly),
            shown("Jain of ours"),
            at_least("used", 0.93),
            at_most("drops %", drops),
            shown("queue ms"),
        ],
        setup: Box::new(move |seed| {
            let flow = |flow: u64| Flow { asks: true, ..Flow::new(OURS, flow * 100 * (seed % 12)) };
            Setup {
                path: path(100, 50, queue, seed),
                flows: (0..ours)
                    .map(flow)
                    .chain([Flow::new(kind, at * 1000 + 50 + 617 * (seed % 12))])
                    .collect(),
                absence: Some(BUSY),
                time: seconds(END),
            }
        }),
        judge: Box::new(move |seen| {
            let part = |from: f64, to: f64| {
                let rates = seen.rates(from, to);
                let due = rates.iter().sum::<f64>() / rates.len() as f64;
                rates[ours as usize] / due
            };
            let tens = (0..).map(|ten| from + f64::from(ten) * 10.0);
            let tens = tens.take_while(|ten| *ten < END).map(|ten| part(ten, ten + 10.0));
            vec![
                part(from, END),
                tens.fold(f64::INFINITY, f64::min),
                jain(&seen.rates(from, END)[..ours as usize]),
                seen.used(from, END),
                seen.drop_share(from, END) * 100.0,
                seen.queue(0.5, from, END) * 1e3,
            ]
        }),
    }
}

/// One of ours beside one of another kind.
fn rival(part: &'static str, kind: Kind, queue: u64, absence: Option<Absence>) -> Case {
    let least = if part == "cubic" { 0.4 } else { 0.35 };
    let busy = if absence.is_some() { ", busy" } else { "" };
    const END: f64 = 60.0;
    Case {
        part,
        name: format!("beside {part}, queue {queue} ms{busy}"),
        figures: vec![
            Figure { name: "our share", least, most: 0.65 },
            shown("10 s, least"),
            shown("most"),
            at_least("used", 0.93),
            shown("queue ms"),
        ],
        setup: Box::new(move |seed| Setup {
            path: path(100, 50, queue, seed),
            // By turns who comes first, and how much later the other.
            flows: vec![
                Flow::new(OURS, if seed % 2 == 0 { 1000 + seed * 37 } else { 0 }),
                Flow::new(kind, if seed % 2 == 0 { 0 } else { 61 * seed }),
            ],
            absence,
            time: seconds(END),
        }),
        judge: Box::new(move |seen| {
            let share = |from: f64, to: f64| {
                let rates = seen.rates(from, to);
                rates[0] / (rates[0] + rates[1])
            };
            let windows = (1..6).map(|at| share(f64::from(at) * 10.0, f64::from(at + 1) * 10.0));
            let shares: Vec<f64> = windows.collect();
            vec![
                share(10.0, END),
                shares.iter().copied().fold(1.0, f64::min),
                shares.iter().copied().fold(0.0, f64::max),
                seen.used(10.0, END),
                seen.queue(0.5, 10.0, END) * 1e3,
            ]
        }),
    }
}

/// CUBIC beside the background level, against CUBIC alone, which uses all of these links.
fn background(queue: u64) -> Case {
    Case {
        part: "background",
        name: format!("cubic beside background, queue {queue} ms"),
        figures: vec![at_least("cubic's part", 0.9), shown("together")],
        setup: Box::new(move |seed| Setup {
            path: path(100, 50, queue, seed),
            flows: vec![
                Flow::new(Kind::Ours(Algorithm::Background), 0),
                Flow::new(Kind::Ours(Algorithm::Cubic), 500 * seed),
            ],
            absence: None,
            time: seconds(40.0),
        }),
        judge: Box::new(|seen| vec![seen.rate(1, 10.0, 40.0) / 1e8, seen.used(10.0, 40.0)]),
    }
}

/// RED that marks: once flows have started nothing is lost, and the link is used.
fn marks(algorithm: Algorithm, count: u64) -> Case {
    const QUEUE: &str = "red:ecn=yes";
    Case {
        part: "marks",
        name: format!("{count} {algorithm} over {QUEUE}"),
        figures: vec![
            at_least("used", 0.9),
            at_most("dropped", 0.0),
            shown("marked"),
            shown("queue ms"),
        ],
        setup: Box::new(move |seed| Setup {
            path: path(100, 50, 50, seed).with_queue(QUEUE.parse().expect("a queue")),
            flows: (0..count).map(|flow| Flow::new(Kind::Ours(algorithm), flow * 700)).collect(),
            absence: None,
            time: seconds(40.0),
        }),
        judge: Box::new(|seen| {
            vec![
                seen.used(10.0, 40.0),
                seen.dropped(10.0, 40.0) as f64,
                seen.marked as f64,
                seen.queue(0.5, 10.0, 40.0) * 1e3,
            ]
        }),
    }
}

//! What is run, what is told of it, and what it must reach.

use core::time::Duration;

use path::{PathConfig, QueueConfig};
use sim::Absence;
use transport::cc::{Algorithm, Remembered};
use units::{Bytes, Rate};

use crate::run::{Flow, Kind, Seen, Setup, jain};

/// A figure with the goal that it must not miss.
#[derive(Clone, Copy)]
pub struct Figure {
    pub name: &'static str,
    pub least: f64,
    pub most: f64,
}

const fn at_least(name: &'static str, least: f64) -> Figure {
    Figure { name, least, most: f64::INFINITY }
}

const fn at_most(name: &'static str, most: f64) -> Figure {
    Figure { name, least: f64::NEG_INFINITY, most }
}

const fn shown(name: &'static str) -> Figure {
    Figure { name, least: f64::NEG_INFINITY, most: f64::INFINITY }
}

/// What to run with a seed.
type Make = Box<dyn Fn(u64) -> Setup + Send + Sync>;
/// The figures of a run.
type Judge = Box<dyn Fn(&Seen) -> Vec<f64> + Send + Sync>;

/// Runs of one kind.
pub struct Case {
    pub part: &'static str,
    pub name: String,
    pub figures: Vec<Figure>,
    pub setup: Make,
    pub judge: Judge,
}

/// The parts, in the order of the table.
pub const PARTS: &[&str] =
    &["start", "grid", "jumbo", "ours", "many", "cubic", "bbr", "background", "short", "marks"];

fn mbit(rate: u64) -> Rate {
    Rate::from_bits_per_sec(rate * 1_000_000)
}

fn path(rate: u64, rtt: u64, queue_ms: u64, seed: u64) -> PathConfig {
    let queue: QueueConfig = format!("droptail:limit={queue_ms}ms").parse().expect("a queue");
    let rtt = Duration::from_millis(rtt);
    PathConfig::new(mbit(rate), rtt).with_queue(queue).with_seed(seed)
}

fn seconds(time: f64) -> Duration {
    Duration::from_secs_f64(time)
}

const OURS: Kind = Kind::Ours(Algorithm::Longhaul);

/// Hosts with more threads than processors.
const BUSY: Absence = Absence {
    every: Duration::from_millis(30),
    length: Duration::from_millis(4),
    most: Duration::from_millis(40),
};

/// All cases; `rate` in Mbit/s is that of the grid.
pub fn all(rate: u64) -> Vec<Case> {
    let mut cases = start();
    cases.extend(grid(rate));
    cases.extend([(10, 50), (30, 175), (1000, 200)].map(jumbo));
    for (rate, rtt) in [(50, 50), (100, 50), (200, 200)] {
        cases.extend([2, 4, 8].map(|count| ours(rate, rtt, count, None)));
    }
    cases.extend([2, 4, 8].map(|count| ours(100, 50, count, Some(BUSY))));
    cases.extend([(100, 50, 40), (100, 200, 30), (1000, 50, 100), (1000, 200, 300)].map(many));
    cases.extend([25, 50, 100].map(after_cubic));
    for queue in [25, 50, 100] {
        for absence in [None, Some(BUSY)] {
            cases.push(rival("cubic", Kind::Ours(Algorithm::Cubic), queue, absence));
            cases.push(rival("bbr", Kind::Bbr, queue, absence));
        }
    }
    cases.extend([25, 50, 100].map(background));
    cases.extend([0.0, 0.04].map(short_queue));
    for algorithm in [Algorithm::Longhaul, Algorithm::Cubic, Algorithm::NewReno] {
        cases.extend([1, 4].map(|count| marks(algorithm, count)));
    }
    cases
}

/// One flow over every path, the start included.
fn grid(rate: u64) -> Vec<Case> {
    const TIME: f64 = 20.0;
    let mut cells: Vec<(u64, f64)> = Vec::new();
    for rtt in [10, 50, 200, 560] {
        cells.extend([0.0, 0.001, 0.01].map(|loss| (rtt, loss)));
    }
    cells.extend([(200, 0.05), (200, 0.1)]);
    let case = |(rtt, loss): (u64, f64)| {
        let second = if loss > 0.04 { 0.9 } else { 0.95 };
        let whole = if loss > 0.04 || rtt > 200 { 0.0 } else { 0.86 };
        Case {
            part: "grid",
            name: format!("{rate} Mbit/s, {rtt} ms, {}%", loss * 100.0),
            figures: vec![
                at_least("second half", second),
                at_least("whole", whole),
                at_most("drops %", 1.0),
                at_most("queue ms", 12.5),
                shown("99% of it"),
            ],
            setup: Box::new(move |seed| Setup {
                path: path(rate, rtt, 50, seed).with_loss(loss),
                flows: vec![Flow::new(OURS, 0)],
                absence: None,
                time: seconds(TIME),
            }),
            judge: Box::new(move |seen| {
                vec![
                    seen.of_limit(loss, TIME / 2.0, TIME),
                    seen.of_limit(loss, 0.0, TIME),
                    seen.drop_share(0.0, TIME) * 100.0,
                    seen.queue(0.5, TIME / 2.0, TIME) * 1e3,
                    seen.queue(0.99, TIME / 2.0, TIME) * 1e3,
                ]
            }),
        }
    };
    cells.into_iter().map(case).collect()
}

/// One flow in large packets, of which a train is a long queue.
fn jumbo((rate, rtt): (u64, u64)) -> Case {
    const TIME: f64 = 20.0;
    Case {
        part: "jumbo",
        name: format!("{rate} Mbit/s, {rtt} ms, packets of 9000 bytes"),
        figures: vec![
            at_least("second half", 0.97),
            at_least("whole", 0.86),
            at_most("drops %", 1.0),
            at_most("queue ms", 20.0),
        ],
        setup: Box::new(move |seed| {
            let mut path = path(rate, rtt, 200, seed);
            path.forward.mtu = Some(Bytes(9000));
            path.back.mtu = path.forward.mtu;
            // Asked first: the start already goes in large packets.
            let flows = vec![Flow { asks: true, ..Flow::new(OURS, 0) }];
            Setup { path, flows, absence: None, time: seconds(TIME) }
        }),
        judge: Box::new(|seen| {
            vec![
                seen.used(TIME / 2.0, TIME),
                seen.used(0.0, TIME),
                seen.drop_share(0.0, TIME) * 100.0,
                seen.queue(0.5, TIME / 2.0, TIME) * 1e3,
            ]
        }),
    }
}

/// Flows of ours, half of them late.
fn ours(rate: u64, rtt: u64, count: u64, absence: Option<Absence>) -> Case {
    let late = 5.0;
    let busy = if absence.is_some() { ", busy" } else { "" };
    // 20 round trips or 5 s.
    let converged = late + (rtt as f64 * 0.02).max(5.0);
    let end = converged + 20.0;
    Case {
        part: "ours",
        name: format!("{count} on {rate} Mbit/s, {rtt} ms{busy}"),
        figures: vec![
            at_least("Jain", 0.97),
            at_least("worst 5 s", 0.9),
            at_least("used", 0.93),
            shown("queue ms"),
            at_most("drops %", 0.1),
        ],
        setup: Box::new(move |seed| {
            let start = |flow: u64| {
                let first = if flow < count / 2 { 0 } else { (late * 1000.0) as u64 };
                first + (flow * 7 + seed * 13) * (flow + 2) % 97
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
            let windows = (0..4).map(|at| converged + f64::from(at) * 5.0);
            let worst = windows.map(|from| jain(&seen.rates(from, from + 5.0)));
            vec![
                jain(&seen.rates(converged, end)),
                worst.fold(1.0, f64::min),
                seen.used(converged, end),
                seen.queue(0.5, converged, end) * 1e3,
                seen.drop_share(converged, end) * 100.0,
            ]
        }),
    }
}

/// So many flows of ours, one after the other within 6 s, that none is owed much.
fn many((rate, rtt, count): (u64, u64, u64)) -> Case {
    const END: f64 = 50.0;
    Case {
        part: "many",
        name: format!("{count} on {rate} Mbit/s, {rtt} ms"),
        figures: vec![
            at_least("used", 0.9),
            at_most("drops %", 5.0),
            at_least("Jain", 0.8),
            shown("used at first"),
            shown("drops %"),
            shown("queue ms"),
        ],
        setup: Box::new(move |seed| Setup {
            path: path(rate, rtt, 50, seed),
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
                seen.used(20.0, END),
                seen.drop_share(20.0, END) * 100.0,
                jain(&seen.rates(20.0, END)),
                seen.used(0.0, 20.0),
                seen.drop_share(0.0, 20.0) * 100.0,
                seen.queue(0.5, 20.0, END) * 1e3,
            ]
        }),
    }
}

/// Flows of ours that contended with one of CUBIC's until it ended, after some 15 s.
fn after_cubic(queue: u64) -> Case {
    Case {
        part: "ours",
        name: format!("4 after cubic, queue {queue} ms"),
        figures: vec![
            at_least("Jain", 0.9),
            shown("later"),
            at_least("used", 0.93),
            shown("queue ms"),
            at_most("drops %", 0.1),
        ],
        setup: Box::new(move |seed| {
            let ours = (0..4).map(|flow| Flow { asks: true, ..Flow::new(OURS, flow * 100 * seed) });
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

/// A queue that holds less than two packets, where trains are lost.
fn short_queue(loss: f64) -> Case {
    Case {
        part: "short",
        name: format!("2 Mbit/s, 460 ms, 10 ms of queue, {}%", loss * 100.0),
        figures: vec![at_least("30 to 60 s", 0.9), shown("before"), shown("drops %")],
        setup: Box::new(move |seed| Setup {
            path: path(2, 460, 10, seed).with_loss(loss),
            flows: vec![Flow::new(OURS, 0)],
            absence: None,
            time: seconds(60.0),
        }),
        judge: Box::new(|seen| {
            let drops = seen.drop_share(0.0, 60.0) * 100.0;
            vec![seen.used(30.0, 60.0), seen.used(0.0, 30.0), drops]
        }),
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

/// The start, from nothing and from memory.
fn start() -> Vec<Case> {
    let long = Remembered { rate: mbit(960), rtt: Duration::from_millis(200) };
    let geo = Remembered { rate: mbit(240), rtt: Duration::from_millis(600) };
    let mut cases = Vec::new();
    for (name, kind, most, loss) in [
        ("cold", OURS, 2.0, 0.0),
        ("cold, 1% loss", OURS, 2.0, 0.01),
        ("remembered", Kind::Remembering(long), 0.8, 0.0),
        ("remembered, 1% loss", Kind::Remembering(long), 0.8, 0.01),
    ] {
        cases.push(Case {
            part: "start",
            name: format!("1 Gbit/s, 200 ms, {name}"),
            figures: vec![
                at_most("80% after s", most),
                at_most("64 MiB after s", if most < 1.0 { 1.7 } else { 2.0 }),
                at_most("drops %", 1.0),
            ],
            setup: Box::new(move |seed| Setup {
                path: path(1000, 200, 50, seed).with_loss(loss),
                flows: vec![Flow::new(kind, 0)],
                absence: None,
                time: seconds(3.0),
            }),
            judge: Box::new(|seen| {
                let whole = seen.brought(64 << 20);
                vec![seen.reached(0, 0.8), whole, seen.drop_share(0.0, 3.0) * 100.0]
            }),
        });
    }
    for (name, kind, most) in [("cold", OURS, 6.7), ("remembered", Kind::Remembering(geo), 4.8)] {
        cases.push(Case {
            part: "start",
            name: format!("100 MB by GEO, {name}"),
            figures: vec![at_most("whole after s", most), at_most("drops %", 1.0)],
            setup: Box::new(move |seed| Setup {
                path: path(250, 600, 600, seed),
                flows: vec![Flow { bytes: 100_000_000, ..Flow::new(kind, 0) }],
                absence: None,
                time: seconds(8.0),
            }),
            judge: Box::new(|seen| {
                vec![seen.brought(100_000_000), seen.drop_share(0.0, 8.0) * 100.0]
            }),
        });
    }
    cases.push(Case {
        part: "start",
        name: "remembered ten times too much".to_owned(),
        figures: vec![at_least("2 to 5 s", 0.9), at_most("drops %", 100.0)],
        setup: Box::new(move |seed| Setup {
            path: path(100, 200, 50, seed),
            flows: vec![Flow::new(Kind::Remembering(long), 0)],
            absence: None,
            time: seconds(5.0),
        }),
        judge: Box::new(|seen| vec![seen.used(2.0, 5.0), seen.drop_share(0.0, 5.0) * 100.0]),
    });
    cases
}

//! One flow alone: over every path, from its start on.

use core::time::Duration;

use transport::cc::Remembered;
use units::Bytes;

use super::{BUSY, Case, OURS, at_least, at_most, mbit, path, seconds, shown};
use crate::run::{Flow, Kind, Setup};

pub(super) fn all(rate: u64) -> Vec<Case> {
    let mut cases = start();
    cases.extend(grid(rate));
    cases.extend([(10, 50), (30, 175), (1000, 200)].map(jumbo));
    cases.extend([0.0, 0.04].map(short_queue));
    cases.extend([(200, 50, 0.0), (200, 50, 0.1), (50, 10, 0.0), (50, 5, 0.0)].map(late));
    cases
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
                at_least("read then", second),
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
                    seen.read_of_limit(loss, TIME / 2.0, TIME),
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

/// One flow whose hosts are late, as a virtual machine's are that shares its processors.
fn late((rtt, queue, loss): (u64, u64, f64)) -> Case {
    const TIME: f64 = 20.0;
    Case {
        part: "late",
        name: format!("1 Gbit/s, {rtt} ms, {queue} ms of queue, {}%", loss * 100.0),
        figures: vec![at_least("second half", 0.9), at_most("drops %", 1.0), shown("queue ms")],
        setup: Box::new(move |seed| Setup {
            path: path(1000, rtt, queue, seed).with_loss(loss),
            flows: vec![Flow::new(OURS, 0)],
            absence: Some(BUSY),
            time: seconds(TIME),
        }),
        judge: Box::new(move |seen| {
            vec![
                seen.of_limit(loss, TIME / 2.0, TIME),
                seen.drop_share(TIME / 2.0, TIME) * 100.0,
                seen.queue(0.5, TIME / 2.0, TIME) * 1e3,
            ]
        }),
    }
}

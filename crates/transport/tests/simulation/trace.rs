//! Records of what a connection does.

use path::PathConfig;
use sim::{Faults, World, pattern};
use transport::trace::{Frame, Record, Step};
use transport::{Config, Stats};

use crate::{mbit, ms};

/// Moves 3 MB over a lossy path; the sender's figures, its records and how many were left out.
fn run(trace: bool, take_every: u64) -> (Stats, Vec<Record>, u64) {
    let path = PathConfig::new(mbit(50), ms(60)).with_loss(0.02).with_seed(5);
    let mut world = World::new(&path, Faults::default(), Config { trace, ..Config::default() });
    assert!(world.run_until(ms(5000), |world| world.hosts[1].established));
    let id = world.hosts[0].send(pattern(5, 3_000_000));
    let whole = |world: &World| world.hosts[1].incoming.get(&id).is_some_and(|(_, ended)| *ended);
    let (mut records, mut dropped) = (Vec::new(), 0);
    while !world.run_until(ms(take_every), whole) {
        dropped += world.hosts[0].connection().take_records(&mut records);
    }
    dropped += world.hosts[0].connection().take_records(&mut records);
    (world.stats(0), records, dropped)
}

#[test]
fn records_tell_the_same_as_the_figures_and_change_nothing() {
    let (stats, records, dropped) = run(true, 100);
    let (untraced, none, _) = run(false, 100);
    assert_eq!((format!("{stats:?}"), dropped), (format!("{untraced:?}"), 0));
    assert!(none.is_empty());
    assert!(records.is_sorted_by_key(|record| record.at));
    let count = |wanted: fn(&Step) -> bool| {
        records.iter().filter(|record| wanted(&record.what)).count() as u64
    };
    let hello = 1;
    assert_eq!(count(|step| matches!(step, Step::Sent(_))) + hello, stats.sent.0);
    assert_eq!(count(|step| matches!(step, Step::Received(_))), stats.received.0);
    assert!(count(|step| matches!(step, Step::Lost { late: false, .. })) >= stats.lost.0);
    assert!(count(|step| matches!(step, Step::Congestion(_))) >= 2);
    let sent = records.iter().filter_map(|record| match &record.what {
        Step::Sent(packet) => Some(packet.frames.iter()),
        _ => None,
    });
    let end = sent.flatten().filter_map(|frame| match frame {
        Frame::Stream { offset, len, .. } => Some(offset + *len as u64),
        _ => None,
    });
    assert_eq!(end.max(), Some(3_000_000));
}

#[test]
fn records_that_nobody_takes_are_bounded() {
    let path = PathConfig::new(mbit(500), ms(10)).with_seed(5);
    let mut world =
        World::new(&path, Faults::default(), Config { trace: true, ..Config::default() });
    assert!(world.run_until(ms(5000), |world| world.hosts[1].established));
    world.hosts[0].send(pattern(5, 100_000_000));
    world.run_until(ms(2000), |_| false);
    let mut records = Vec::new();
    let dropped = world.hosts[0].connection().take_records(&mut records);
    assert!(records.len() == 1 << 16 && dropped > 0, "{} and {dropped}", records.len());
    assert_eq!(world.hosts[0].connection().take_records(&mut records), 0);
}

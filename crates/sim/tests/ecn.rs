//! Queues that mark packets instead of dropping them (RFC 3168), and what the transport makes of that.

use core::time::Duration;

use path::PathConfig;
use sim::{Endless, World};
use transport::Config;
use transport::cc::Algorithm;
use units::Rate;

/// Of flows over RED that marks, or drops: bits a second that all delivered after the first ten
/// seconds, and packets that the queue dropped since then, and marked. At the start of a flow RED's
/// average comes late, and then exceeds what is marked.
fn over_red(marks: bool, algorithm: Algorithm, flows: u64, seed: u64) -> (f64, u64, u64) {
    let red = if marks { "red:ecn=yes" } else { "red:ecn=no" };
    let path = PathConfig::new(Rate::from_bits_per_sec(50_000_000), Duration::from_millis(50))
        .with_queue(red.parse().expect("a queue"))
        .with_seed(seed);
    let config = Config { congestion: algorithm, ..Config::default() };
    let flows: Vec<_> = (0..flows).map(|at| (config, Duration::from_millis(at * 700))).collect();
    let mut world = Endless::world(&path, &flows);
    let read = |world: &World<Endless>| world.hosts.iter().map(|end| end.read).sum::<u64>();
    world.run_until(Duration::from_secs(10), |_| false);
    let (before, dropped, marked) = (read(&world), world.queue_drops(), world.struck().marked);
    world.run_until(Duration::from_secs(20), |_| false);
    let rate = (read(&world) - before) as f64 * 8.0 / 20.0;
    (rate, world.queue_drops() - dropped, world.struck().marked - marked)
}

#[test]
fn a_queue_that_marks_loses_nothing_and_costs_no_rate() {
    for algorithm in [Algorithm::Longhaul, Algorithm::Cubic, Algorithm::NewReno] {
        for flows in [1, 2, 4] {
            // Where RED strikes a lone window matters more than whether it marks or drops: CUBIC's rate is that of
            // several courses. NewReno halves its window so seldom that chance decides all the same.
            let seeds = if algorithm == Algorithm::Cubic { 1..=6 } else { 5..=5 };
            let (mut rate, mut without, mut dropped, mut marked) = (0.0, 0.0, 0, 0);
            for seed in seeds {
                let with_marks = over_red(true, algorithm, flows, seed);
                rate += with_marks.0;
                (dropped, marked) = (dropped + with_marks.1, marked + with_marks.2);
                without += over_red(false, algorithm, flows, seed).0;
            }
            let seen = format!("{flows} {algorithm}: {rate} {without} {dropped} {marked}");
            assert_eq!(dropped, 0, "{seen}");
            let least = if algorithm == Algorithm::NewReno { 0.9 } else { 0.99 };
            assert!(rate >= least * without, "{seen}");
            // Ours keeps its queue below where marks begin.
            assert!(marked > 0 || algorithm == Algorithm::Longhaul, "{seen}");
        }
    }
}

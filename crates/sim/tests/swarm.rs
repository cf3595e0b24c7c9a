//! A few seeds of the swarm in every test run; `cargo xtask swarm` runs thousands.

use sim::swarm::{Part, Plan, needless, run, show};

#[test]
fn the_first_seeds_hold_and_each_moves_a_mebibyte_through_a_fault() {
    for seed in 0..40 {
        show(&Plan::draw(seed)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// A queue of two packets; a path that becomes narrower both ways, and one over which three packets go
/// in a second; a new address behind a way of seconds. A sender of which nothing arrives, and who hears
/// nothing; a new address found while the queue is long; a clock that jumps over the opening; trains
/// into a queue of four packets; time-outs behind steady round trips, on a long path and a narrow one;
/// readers that stall and leave 624 bytes of memory; a window of NewReno's that a narrower path loses whole.
#[test]
fn seeds_that_failed_once_hold() {
    let at_first = [675, 21256, 24475, 39879];
    let later = [474611, 438285, 806758, 801671, 806422, 921741, 806976, 102052];
    for seed in at_first.into_iter().chain(later) {
        run(&Plan::draw(seed)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [3, 14, 15] {
        assert_eq!(run(&Plan::draw(seed)), run(&Plan::draw(seed)));
    }
}

/// A run without faults shows nothing, nor does one that moves little.
#[test]
fn a_run_that_shows_nothing_fails() {
    let mut plan = Plan::draw(1).without(&Part::ALL);
    plan.path.forward.queue = "1h".parse().expect("a queue");
    assert!(show(&plan).unwrap_err().starts_with("nothing was shown"));
    let mut plan = Plan::draw(1);
    plan.streams.truncate(1);
    plan.streams[0].bytes = 1000;
    plan.kill = None;
    assert!(show(&plan).unwrap_err().starts_with("nothing was shown"));
}

/// A path that loses nearly everything from the start on cannot hold.
#[test]
fn a_failure_is_found_and_shortened() {
    let mut plan = Plan::draw(1).without(&Part::ALL);
    plan.path = plan.path.with_loss(0.9999);
    let error = run(&plan).unwrap_err();
    assert!(error.starts_with("not done after"), "{error}");
    // Without its loss the plan holds, so loss is what the failure needs.
    let left_out = needless(&plan);
    assert!(!left_out.contains(&"loss".parse().unwrap()) && left_out.len() == Part::ALL.len() - 1);
}

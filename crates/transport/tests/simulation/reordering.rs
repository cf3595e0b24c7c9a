//! Paths that do not keep the order: the reorder margin follows what is seen.

use path::PathConfig;
use sim::{Faults, World, pattern};
use transport::Config;

use crate::{mbit, ms};

/// Moves so many bytes over a path that has half of its packets overtaken by up to `jitter`; and the seconds.
fn moved(path: &PathConfig, jitter: u64, size: usize) -> (World, f64) {
    let faults = Faults { reorder: 0.5, jitter: ms(jitter), ..Faults::default() };
    let mut world = World::new(path, faults, Config::default());
    let id = world.hosts[0].send(pattern(1, size));
    let whole = |world: &World| world.hosts[1].incoming.get(&id).is_some_and(|(_, ended)| *ended);
    assert!(world.run_until(ms(60_000), whole));
    let seconds = world.elapsed().as_secs_f64();
    (world, seconds)
}

#[test]
fn two_links_of_unlike_length_make_one_and_hardly_anything_is_sent_in_vain() {
    let path = PathConfig::new(mbit(100), ms(200)).with_seed(1);
    for jitter in [1, 10, 24, 30, 45] {
        let (mut world, _) = moved(&path, jitter, 20_000_000);
        let struck = world.struck();
        let vain = world.stats(0).lost.0 - struck.lost;
        assert!(struck.held > 6000 && vain < 50, "{jitter} ms: {vain} in vain, {struck:?}");
    }
}

/// Maps are ten reports long, so that parts of them are told in their order. What is drawn decides how soon the start
/// ends, and how early the margin is learnt.
#[test]
fn what_is_lost_among_very_many_that_are_overtaken_is_found() {
    let mut runs = [1, 2, 3, 4, 5].map(|seed| {
        let path = PathConfig::new(mbit(1000), ms(200)).with_loss(0.01).with_seed(seed);
        let (mut world, seconds) = moved(&path, 45, 60_000_000);
        let (struck, lost) = (world.struck(), world.stats(0).lost.0);
        // The latest losses may not have been told.
        let vain = lost.saturating_sub(struck.lost);
        assert!(seconds < 6.0 && vain < 1000, "{seed}: {seconds} s, {vain} in vain, {struck:?}");
        (vain, seconds)
    });
    runs.sort_by_key(|&(vain, _)| vain);
    let fastest = runs.iter().map(|&(_, seconds)| seconds).fold(f64::INFINITY, f64::min);
    assert!(fastest < 2.6 && runs[2].0 < 500, "{runs:?}");
}

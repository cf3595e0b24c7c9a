//! Paths that do not keep the order: the reorder margin follows what is seen.

use path::PathConfig;
use sim::{Faults, World, pattern};
use transport::Config;

use crate::{mbit, ms};

/// Moves so many bytes over a path that overtakes half of its packets by up to `jitter`.
fn moved(jitter: u64, size: usize) -> World {
    let path = PathConfig::new(mbit(100), ms(200)).with_seed(1);
    let faults = Faults { reorder: 0.5, jitter: ms(jitter), ..Faults::default() };
    let mut world = World::new(&path, faults, Config::default());
    let id = world.hosts[0].send(pattern(1, size));
    let whole = |world: &World| world.hosts[1].incoming.get(&id).is_some_and(|(_, ended)| *ended);
    assert!(world.run_until(ms(60_000), whole));
    world
}

#[test]
fn two_links_of_unlike_length_make_one_and_hardly_anything_is_sent_in_vain() {
    for jitter in [1, 10, 24, 30, 45] {
        let mut world = moved(jitter, 20_000_000);
        let struck = world.struck();
        let vain = world.stats(0).lost.0 - struck.lost;
        assert!(struck.held > 6000 && vain < 50, "{jitter} ms: {vain} in vain, {struck:?}");
    }
}

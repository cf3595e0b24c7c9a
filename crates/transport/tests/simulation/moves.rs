//! Hosts that move to another network, which is another path.

use path::{Change, PathConfig};
use sim::{Faults, World, pattern};
use transport::Config;
use transport::cc::Algorithm;
use units::Rate;

use crate::dumbbell::{flow, rates, share};
use crate::{mbit, ms};

/// The near host moves from 1 Gbit/s to 20 Mbit/s between two transfers from the host `from`: what is `seen`
/// at the end of the first, and the most of it in the second.
fn move_between(
    congestion: Algorithm,
    from: usize,
    seen: impl Fn(&mut World) -> Rate,
) -> (Rate, Rate) {
    let path = PathConfig::new(mbit(1000), ms(40)).with_seed(1);
    let faults = Faults { moves: Some(ms(6000)), ..Faults::default() };
    let mut world = World::new(&path, faults, Config { congestion, ..Config::default() });
    assert!(world.run_until(ms(1000), |world| world.hosts[1].established));
    let whole =
        |world: &World, id| world.hosts[1 - from].incoming.get(&id).is_some_and(|got| got.1);
    let first = world.hosts[from].send(pattern(1, 50_000_000));
    assert!(world.run_until(ms(5000) - world.elapsed(), |world| whole(world, first)));
    let before = seen(&mut world);

    world.run_until(ms(6000) - world.elapsed(), |_| false);
    world.change_path(&Change { rate: Some(mbit(20)), ..Change::default() });
    let second = world.hosts[from].send(pattern(2, 10_000_000));
    let mut most = mbit(0);
    while !world.run_until(ms(5), |world| whole(world, second)) {
        assert!(world.elapsed() < ms(40_000), "{congestion}: not whole");
        if world.stats(1).migrations == 1 {
            most = most.max(seen(&mut world));
        }
    }
    (before, most)
}

#[test]
fn the_capacity_of_the_old_path_is_not_taken_for_that_of_the_new() {
    let is_forgotten =
        |(before, most): (Rate, Rate)| before > mbit(700) && most > mbit(15) && most < mbit(100);
    let rates = move_between(Algorithm::Longhaul, 1, |world| world.stats(1).pacing_rate);
    assert!(is_forgotten(rates), "{rates:?}");
    for congestion in [Algorithm::Longhaul, Algorithm::Udt] {
        for from in [0, 1] {
            let told = |world: &mut World| world.stats(from).capacity.0.unwrap_or_default();
            let rates = move_between(congestion, from, told);
            assert!(is_forgotten(rates), "{congestion} from {from}: {rates:?}");
        }
    }
}

#[test]
fn nor_what_the_old_path_carries_until_the_other_end_knows() {
    let path = PathConfig::new(mbit(1000), ms(40)).with_seed(1);
    let faults = Faults { moves: Some(ms(1000)), ..Faults::default() };
    let mut world = World::new(&path, faults, Config::default());
    assert!(world.run_until(ms(1000), |world| world.hosts[1].established));
    let before = world.hosts[1].connection().address();
    world.hosts[1].send(pattern(1, 200_000_000));
    world.run_until(ms(1001) - world.elapsed(), |_| false);
    world.reach_also_at(before, 0);
    assert!(world.stats(1).pacing_rate > mbit(700));
    while world.stats(1).migrations == 0 {
        world.run_until(ms(1), |_| false);
    }
    world.change_path(&Change { rate: Some(mbit(20)), ..Change::default() });
    let mut most = mbit(0);
    for _ in 0..1000 {
        world.run_until(ms(5), |_| false);
        most = most.max(world.stats(1).capacity.0.unwrap_or_default());
    }
    assert!(most > mbit(15) && most < mbit(100), "{most}");
}

/// What looks like a queue from then on would be given way to for ever.
#[test]
fn a_path_that_becomes_longer_is_filled_again() {
    for (congestion, rtt, longer) in [
        (Algorithm::Longhaul, 20, 10),
        (Algorithm::Longhaul, 50, 10),
        (Algorithm::Longhaul, 50, 40),
        (Algorithm::Longhaul, 200, 15),
        (Algorithm::Background, 50, 3),
        (Algorithm::Background, 50, 40),
    ] {
        let path = PathConfig::new(mbit(100), ms(rtt)).with_seed(1);
        let mut world = share(&path, &[flow(congestion, 0)]);
        world.run_until(ms(5000), |_| false);
        let delay = Some(ms(rtt + longer) / 2);
        world.change_path(&Change { delay, ..Change::default() });
        world.run_until(ms(20_000), |_| false);
        let rates = rates(&mut world, ms(10_000));
        assert!(rates[0] > 85e6, "{congestion}, {rtt} ms and {longer} more: {rates:?}");
    }
}

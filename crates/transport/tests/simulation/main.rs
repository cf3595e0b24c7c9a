//! The transport in virtual time: two ends, a modelled path, and faults. Every run is fixed by
//! the seed that a failure prints.

mod classic;
mod doubling;
mod dumbbell;
mod fairness;
mod feedback;
mod limits;
mod moves;
mod reordering;
mod trace;
mod udt;

use std::time::Duration;

use path::PathConfig;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use sim::{Faults, World, pattern};
use transport::{CloseReason, Config};
use units::{Bytes, Rate};

fn mbit(rate: u64) -> Rate {
    Rate::from_bits_per_sec(rate * 1_000_000)
}

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// Connects, sends streams of these sizes from the first host to the second, and waits for all.
fn transfer(path: &PathConfig, faults: Faults, sizes: &[usize], limit: Duration) -> World {
    // Long enough for any of the blackouts.
    let config = Config { connect_timeout: Duration::from_secs(60), ..Config::default() };
    let mut world = World::new(path, faults, config);
    let seed = path.seed;
    assert!(
        world.run_until(ms(60_000), |world| world.hosts.iter().all(|host| host.established)),
        "seed {seed}: no connection"
    );
    let ids: Vec<u64> = sizes
        .iter()
        .enumerate()
        .map(|(index, &size)| world.hosts[0].send(pattern(seed + index as u64, size)))
        .collect();
    let whole = |world: &World| {
        ids.iter().all(|id| world.hosts[1].incoming.get(id).is_some_and(|(_, ended)| *ended))
    };
    let is_whole = world.run_until(limit, whole);
    let closed: Vec<_> = world.hosts.iter().map(|host| host.closed.clone()).collect();
    let stats = world.stats(0);
    assert!(is_whole, "seed {seed}: not whole after {limit:?}: {closed:?} {path:?} {stats:#?}");

    for (index, (id, &size)) in ids.iter().zip(sizes).enumerate() {
        let (got, _) = &world.hosts[1].incoming[id];
        assert!(*got == pattern(seed + index as u64, size), "seed {seed}: stream {id} differs");
    }
    world
}

#[test]
fn random_paths_and_faults_deliver_every_byte_once_in_order() {
    for seed in 0..150 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut below = |n: u64| random.next_u64() % n;
        let rate = mbit([1, 10, 100, 1000][below(4) as usize]);
        let path = PathConfig::new(rate, ms(below(600) + 1))
            .with_loss(below(31) as f64 / 100.0)
            .with_loss_back(below(31) as f64 / 100.0)
            .with_seed(seed);
        let faults = Faults {
            duplicate: below(10) as f64 / 100.0,
            corrupt: below(10) as f64 / 100.0,
            reorder: below(20) as f64 / 100.0,
            jitter: ms(below(50)),
            blackout: (below(3) == 0).then(|| (ms(below(3000)), ms(below(8000)))),
            narrow: (below(4) == 0).then(|| (ms(below(3000)), 1300)),
            ..Faults::default()
        };
        let sizes: Vec<usize> = (0..below(6) + 1).map(|_| below(200_000) as usize).collect();
        transfer(&path, faults, &sizes, Duration::from_secs(120));
    }
}

#[test]
fn an_echo_with_loss_both_ways_comes_back_whole() {
    for seed in 0..10 {
        let path =
            PathConfig::new(mbit(50), ms(80)).with_loss(0.05).with_loss_back(0.05).with_seed(seed);
        let mut world = World::new(&path, Faults::default(), Config::default());
        world.hosts[1].echo = true;
        let sent = pattern(seed, 2_000_000);
        let id = world.hosts[0].send(sent.clone());
        let whole =
            |world: &World| world.hosts[0].incoming.get(&id).is_some_and(|(_, ended)| *ended);
        assert!(world.run_until(ms(60_000), whole), "seed {seed}: no echo");
        assert!(world.hosts[0].incoming[&id].0 == sent, "seed {seed}: the echo differs");
    }
}

#[test]
fn random_loss_does_not_keep_a_long_path_from_being_filled() {
    for loss in [0.0, 0.01, 0.05] {
        let path = PathConfig::new(mbit(100), ms(200)).with_loss(loss).with_seed(3);
        let size = 100_000_000;
        let mut world = transfer(&path, Faults::default(), &[size], ms(60_000));
        let rate = Rate::of(Bytes(size as u64), world.elapsed()).unwrap().as_bits_per_sec() as f64;
        let limit = 100e6 * 1448.0 / 1500.0 * (1.0 - loss);
        let stats = world.stats(0);
        let drops = world.queue_drops() as f64 / stats.sent.0 as f64;
        assert!(rate > 0.72 * limit, "loss {loss}: {:.3} of the limit", rate / limit);
        assert!(drops < 0.03, "loss {loss}: {drops:.4} of all packets dropped in the queue");
    }
}

#[test]
fn reports_stay_below_one_percent_of_what_they_report() {
    let path = PathConfig::new(mbit(2), ms(560)).with_seed(5);
    let mut world = transfer(&path, Faults::default(), &[10_000_000], ms(120_000));
    let received = world.stats(1).received.1.0 as f64;
    let said = world.stats(1).state_bytes.0 as f64;
    assert!(said < 0.011 * received, "{:.4}", said / received);
}

#[test]
fn silence_ends_both_sides_with_a_reason() {
    let path = PathConfig::new(mbit(10), ms(50)).with_seed(1);
    let faults = Faults { blackout: Some((ms(1000), ms(600_000))), ..Faults::default() };
    let mut world = World::new(&path, faults, Config::default());
    world.hosts[0].send(pattern(1, 50_000_000));
    let both = |world: &World| world.hosts.iter().all(|host| host.closed.is_some());
    assert!(world.run_until(ms(60_000), both));
    for host in &world.hosts {
        assert!(matches!(host.closed, Some(CloseReason::Silent(_))), "{:?}", host.closed);
    }
}

#[test]
fn a_close_reaches_the_other_side_with_its_reason() {
    for seed in 0..60 {
        let path =
            PathConfig::new(mbit(10), ms(50)).with_loss(0.1).with_loss_back(0.1).with_seed(seed);
        let mut world = World::new(&path, Faults::default(), Config::default());
        assert!(world.run_until(ms(20_000), |world| world.hosts[1].established));
        let now = world.now;
        world.hosts[1].connection().close(now, 42, "enough");
        assert!(world.run_until(ms(60_000), |world| world.hosts[0].closed.is_some()));
        match &world.hosts[0].closed {
            Some(CloseReason::Remote(close)) => {
                assert_eq!((close.code, &*close.reason), (42, "enough"));
            }
            // Four times in a row lost: 60 seeds with 10% loss have none of it.
            other => panic!("seed {seed}: {other:?}"),
        }
        let gone = |world: &World| world.hosts.iter().all(|host| host.closed.is_some());
        assert!(world.run_until(ms(1000), gone));
    }
}

#[test]
fn a_clock_that_jumped_does_not_make_a_closed_connection_linger() {
    let path = PathConfig::new(mbit(10), ms(200)).with_seed(1);
    // Just before the far side's first sample of the round-trip time.
    let faults = Faults { jump: Some((ms(450), 1, ms(15_000))), ..Faults::default() };
    let mut world = World::new(&path, faults, Config::default());
    world.run_until(ms(700), |_| false);
    assert!(world.stats(1).rtt > ms(10_000), "{:?}", world.stats(1).rtt);
    let now = world.now;
    world.hosts[0].connection().close(now, 0, "done");
    world.run_until(ms(30_500), |_| false);
    assert!(world.hosts.iter_mut().all(|host| host.connection().is_closed()));
}

#[test]
fn a_message_now_and_then_arrives_soon_in_spite_of_loss() {
    for seed in 0..12 {
        let path = PathConfig::new(mbit(100), ms(10)).with_loss(0.05).with_seed(seed);
        let mut world = World::new(&path, Faults::default(), Config::default());
        assert!(world.run_until(ms(20_000), |world| world.hosts[1].established));
        let id = world.hosts[0].connection().open().expect("credit for a stream");
        for count in 1..=300 {
            world.hosts[0].write(id, &[7; 100]);
            world.run_until(ms(20), |_| false);
            // At most the messages of the last 400 ms are still on the way.
            let arrived = world.hosts[1].incoming.get(&id).map_or(0, |(bytes, _)| bytes.len());
            assert!(arrived + 2000 >= count * 100, "seed {seed}: {arrived} of {count} messages");
        }
    }
}

#[test]
fn a_quiet_time_does_not_starve_the_busy_one_after_it() {
    let path = PathConfig::new(mbit(200), ms(10)).with_seed(2);
    let mut world = World::new(&path, Faults::default(), Config::default());
    assert!(world.run_until(ms(20_000), |world| world.hosts[1].established));
    let keys = world.hosts[0].connection().open().expect("credit for a stream");
    for _ in 0..2000 {
        world.hosts[0].write(keys, b"k");
        world.run_until(ms(50), |_| false);
    }
    let start = world.now;
    let bulk = world.hosts[0].send(pattern(2, 50_000_000));
    let whole = |world: &World| world.hosts[1].incoming.get(&bulk).is_some_and(|(_, ended)| *ended);
    assert!(world.run_until(ms(10_000), whole));
    assert!(world.now.since(start) < ms(3500), "{:?}", world.now.since(start));
}

#[test]
fn a_path_that_becomes_narrower_is_survived() {
    let path = PathConfig::new(mbit(100), ms(40)).with_seed(4);
    let faults = Faults { narrow: Some((ms(1000), 1300)), ..Faults::default() };
    let mut world = transfer(&path, faults, &[40_000_000], ms(30_000));
    assert_eq!(world.stats(0).datagram, 1200);
}

#[test]
fn an_address_that_changes_before_the_reply_or_later_is_followed() {
    for at in [200, 1400] {
        let path = PathConfig::new(mbit(10), ms(316)).with_seed(6);
        let faults = Faults { rebind: Some(ms(at)), ..Faults::default() };
        transfer(&path, faults, &[2_000_000], ms(20_000));
    }
}

#[test]
fn a_return_path_of_64_kbit_carries_reports_and_data() {
    let mut path = PathConfig::new(mbit(10), ms(450)).with_seed(7);
    path.back.rate = Rate::from_bits_per_sec(64_000);
    path.back.queue = "20packets".parse().unwrap();
    let mut world = World::new(&path, Faults::default(), Config::default());
    assert!(world.run_until(ms(20_000), |world| world.hosts[1].established));
    let there = world.hosts[0].send(pattern(1, 1_000_000));
    let back = world.hosts[1].send(pattern(2, 40_000));
    let whole = |world: &World, host: usize, id| {
        world.hosts[host].incoming.get(&id).is_some_and(|(_, ended)| *ended)
    };
    assert!(world.run_until(ms(60_000), |world| whole(world, 1, there) && whole(world, 0, back)));
}

#[test]
fn who_no_longer_waits_to_open_a_stream_asks_for_none() {
    let config = Config { max_streams: 64, ..Config::default() };
    let mut world = World::new(&PathConfig::new(mbit(10), ms(40)), Faults::default(), config);
    assert!(world.run_until(ms(5000), |world| world.hosts[1].established));
    // The search for the largest datagram asks, too.
    world.run_until(ms(5000), |_| false);
    while world.hosts[0].connection().open().is_ok() {}
    let probes = |world: &mut World| {
        let before = world.stats(0).probes;
        world.run_until(ms(6000), |_| false);
        world.stats(0).probes - before
    };
    assert!(probes(&mut world) > 2);
    world.hosts[0].connection().give_up_opening();
    assert!(probes(&mut world) <= 1);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let path = PathConfig::new(mbit(20), ms(100)).with_loss(0.03).with_seed(11);
    let run = || {
        let mut world = transfer(&path, Faults::default(), &[3_000_000], ms(60_000));
        (world.elapsed(), format!("{:?}", world.stats(0)))
    };
    assert_eq!(run(), run());
}

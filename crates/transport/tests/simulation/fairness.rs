//! Flows that share a bottleneck, each of them endless.

use std::time::Duration;

use path::{PathConfig, QueueConfig};
use sim::{Endless, Faults, World};
use transport::Config;
use transport::cc::{Algorithm, Remembered};
use units::{Bytes, Rate};

use crate::dumbbell::{end, flow, rates, share};
use crate::{mbit, ms};

fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    sum * sum / (rates.len() as f64 * rates.iter().map(|rate| rate * rate).sum::<f64>())
}

/// 50 Mbit/s and 50 ms, with a queue of so many milliseconds.
fn shared_path(queue: u64) -> PathConfig {
    let queue: QueueConfig = format!("droptail:limit={queue}ms").parse().expect("a queue");
    PathConfig::new(mbit(50), ms(50)).with_queue(queue).with_seed(1)
}

#[test]
fn our_flows_become_equal_and_keep_the_queue_short() {
    // Starts like these of eight made one flow drain alone and take the others for strangers, or take what it had for the
    // whole link, or the queue for the path and its overflow for the path's own loss.
    let starts = [1, 2, 6, 11, 13, 21, 37].map(|seed| (8, seed));
    for (count, seed) in [(2, 1), (4, 1)].into_iter().chain(starts) {
        let flows: Vec<_> = (0..count)
            .map(|number| {
                let first = if number < count / 2 { 0 } else { 3000 };
                flow(Algorithm::Longhaul, first + (number * 7 + seed * 13) * (number + 2) % 97)
            })
            .collect();
        let mut world = share(&shared_path(50), &flows);
        world.run_until(ms(8000), |_| false);
        let drops = world.queue_drops();
        let rates = rates(&mut world, ms(10_000));
        assert!(jain(&rates) > 0.97, "{count} flows, {seed}: {rates:?}");
        assert!(rates.iter().sum::<f64>() > 0.92 * 50e6, "{count} flows, {seed}: {rates:?}");
        assert_eq!(world.queue_drops(), drops, "{count} flows");
    }
}

#[test]
fn a_cubic_flow_keeps_its_share_and_leaves_us_ours() {
    for queue in [25, 50, 100] {
        let flows = [flow(Algorithm::Longhaul, 0), flow(Algorithm::Cubic, 70)];
        let mut world = share(&shared_path(queue), &flows);
        world.run_until(ms(5000), |_| false);
        let rates = rates(&mut world, ms(60_000));
        let ours = rates[0] / (rates[0] + rates[1]);
        assert!((0.33..0.67).contains(&ours), "queue {queue} ms: {ours:.3}");
    }
}

#[test]
fn who_contended_is_calm_again_when_the_stranger_has_left() {
    for queue in [50, 100] {
        let flow = |number: usize, congestion, bytes| {
            let config = Config { congestion, ..Config::default() };
            Endless::pair(number, ms(number as u64 * 300), config, bytes)
        };
        let ours = (0..4).flat_map(|number| flow(number, Algorithm::Longhaul, u64::MAX));
        let ends = ours.chain(flow(4, Algorithm::Cubic, 10_000_000));
        let mut world = World::of(&shared_path(queue), Faults::default(), ends.collect());
        // It may take the truce of half a minute to let him go on.
        let has_left = world.run_until(ms(60_000), |world| world.hosts[9].read == 10_000_000);
        assert!(has_left, "queue {queue} ms: the stranger is still there");
        // Two truces.
        world.run_until(ms(41_000), |_| false);
        let drops = world.queue_drops();
        let rates = rates(&mut world, ms(10_000));
        assert_eq!(world.queue_drops(), drops, "queue {queue} ms");
        assert!(jain(&rates[..4]) > 0.9, "queue {queue} ms: {rates:?}");
    }
}

#[test]
fn the_background_level_yields_to_everything() {
    for other in [Algorithm::Cubic, Algorithm::Longhaul] {
        let flows = [flow(Algorithm::Background, 0), flow(other, 2000)];
        let mut world = share(&shared_path(50), &flows);
        let alone = rates(&mut world, ms(2000))[0];
        assert!(alone > 0.5 * 50e6, "{alone}");
        world.run_until(ms(8000), |_| false);
        let rates = rates(&mut world, ms(20_000));
        assert!(rates[1] > 0.88 * 0.95 * 50e6, "{other:?}: {rates:?}");
    }
}

/// Bytes read after each 100 ms of the first two seconds, on a path of which was remembered that
/// it takes 200 Mbit/s.
fn resumed(rate: Rate, remembered: Option<Remembered>) -> (Vec<u64>, World<Endless>) {
    let path = PathConfig::new(rate, ms(200)).with_seed(3);
    let config = Config { remembered, ..Config::default() };
    let mut world = share(&path, &[(config, Duration::ZERO)]);
    let read = (0..20).map(|_| {
        world.run_until(ms(100), |_| false);
        world.hosts[1].read
    });
    (read.collect(), world)
}

#[test]
fn a_remembered_path_is_filled_at_once() {
    let (_, mut first) = resumed(mbit(200), None);
    let remembered = end(&mut first, 0, 0).remembered().expect("it knows the path");
    assert!(remembered.rate > mbit(180) && remembered.rate < mbit(210), "{remembered:?}");
    let (read, _) = resumed(mbit(200), Some(remembered));
    let between = Rate::of(Bytes(read[8] - read[6]), ms(200)).expect("time passed");
    assert!(between > mbit(160), "{between} from 0.7 s to 0.9 s");
}

#[test]
fn what_a_limit_made_of_a_path_is_not_remembered() {
    let config = Config { rate_limit: Some(mbit(20)), ..Config::default() };
    let mut world = share(&PathConfig::new(mbit(200), ms(50)), &[(config, Duration::ZERO)]);
    world.run_until(ms(5000), |_| false);
    assert_eq!(end(&mut world, 0, 0).remembered(), None);
}

#[test]
fn a_remembered_path_that_has_shrunk_does_no_lasting_harm() {
    let remembered = Remembered { rate: mbit(200), rtt: ms(200) };
    let (_, mut world) = resumed(mbit(20), Some(remembered));
    let rate = rates(&mut world, ms(5000))[0];
    assert!(rate > 0.9 * 0.95 * 20e6, "{rate}");
}

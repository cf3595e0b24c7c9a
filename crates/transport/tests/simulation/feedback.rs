//! What reports cost, and that a narrow way back does not hold the data up.

use std::time::Duration;

use path::PathConfig;
use sim::{Faults, World};
use transport::Config;
use transport::cc::Algorithm;
use units::{Bytes, Rate};

use crate::dumbbell::{end, flow, line_rates, share};
use crate::{mbit, ms};

/// The rate in Mbit/s and the reports' share of the bytes received, both without the first 10 s.
fn run(path: &PathConfig, congestion: Algorithm) -> (f64, f64) {
    let mut world = share(path, &[flow(congestion, 0)]);
    world.run_until(ms(10_000), |_| false);
    let before = end(&mut world, 0, 1).stats();
    let rate = line_rates(&mut world, ms(30_000))[0];
    let after = end(&mut world, 0, 1).stats();
    let said = after.state_bytes.0 - before.state_bytes.0;
    (rate, said as f64 / (after.received.1.0 - before.received.1.0) as f64)
}

#[test]
fn a_hundredth_of_the_rate_on_the_way_back_does_not_slow_the_data() {
    for rtt in [10, 100] {
        let mut path = PathConfig::new(mbit(100), ms(rtt));
        path.back.rate = mbit(1);
        let (rate, share) = run(&path, Algorithm::Longhaul);
        assert!(rate > 98.0 && share < 0.01, "round trip {rtt} ms: {rate} Mbit/s, {share}");
    }
}

#[test]
fn reports_on_a_t1_stay_below_one_percent() {
    let path = PathConfig::new(Rate::from_bits_per_sec(1_536_000), ms(560));
    for congestion in [Algorithm::Longhaul, Algorithm::Cubic] {
        let (rate, share) = run(&path, congestion);
        assert!(share < 0.01, "{congestion:?}: {share} of the bytes received at {rate} Mbit/s");
    }
}

/// Questions of 64 bytes, each with an answer as long, 64 at a time: how many in a second, and the
/// far end's reports in bytes.
fn questions(rtt: u64) -> (usize, u64) {
    let config = Config { max_streams: 64, ..Config::default() };
    let mut world = World::new(&PathConfig::new(mbit(100), ms(rtt)), Faults::default(), config);
    world.hosts[1].echo = true;
    world.run_until(ms(1000), |world| world.hosts.iter().all(|host| host.established));
    let (mut answered, end) = (0, world.elapsed() + ms(1000));
    while world.elapsed() < end {
        for host in &mut world.hosts {
            let over = host.incoming.extract_if(.., |_, (_, ended)| *ended);
            let over: Vec<u64> = over.map(|(id, _)| id).collect();
            over.iter().for_each(|&id| host.connection().release(id));
            answered += over.len();
        }
        while let Ok(id) = world.hosts[0].connection().open() {
            world.hosts[0].write(id, &[7; 64]);
            world.hosts[0].connection().finish(id);
            world.hosts[0].incoming.insert(id, Default::default());
        }
        world.run_until(Duration::from_micros(200), |_| false);
    }
    (answered / 2, world.stats(1).state_bytes.0)
}

#[test]
fn who_waits_for_credit_is_not_kept_waiting_by_the_thrift_of_reports() {
    for rtt in [2, 10, 50] {
        let (answered, said) = questions(rtt);
        // Asked and answered in one round trip, settled and granted in another.
        let rounds = answered as f64 / 64.0 * rtt as f64 / 1000.0;
        assert!(rounds > 0.35, "round trip {rtt} ms: {rounds} of all in each");
        assert!(said < 200_000, "round trip {rtt} ms: {said} bytes of reports a second");
    }
}

#[test]
fn small_memory_moves_once_in_two_round_trips_at_least() {
    for rtt in [2, 10, 50] {
        let memory = Bytes::kib(16);
        let config = Config { receive_memory: memory, ..Config::default() };
        let path = PathConfig::new(mbit(1000), ms(rtt));
        let rate = line_rates(&mut share(&path, &[(config, ms(0))]), ms(5000))[0];
        let rounds = rate * 1e6 / 8.0 * rtt as f64 / 1000.0 / memory.0 as f64;
        assert!(rounds > 0.5, "round trip {rtt} ms: {rounds} of it in each");
    }
}

//! What reports cost, that a narrow way back does not hold the data up, and positive
//! acknowledgements beside them.

use std::time::Duration;

use path::PathConfig;
use sim::{Absence, Busy, Faults, Host, Node, World, pattern};
use transport::cc::Algorithm;
use transport::wire::Refusal;
use transport::{CloseReason, Config, FeedbackKind};
use units::{Bytes, Rate};

use crate::dumbbell::{end, flow, line_rates, share};
use crate::{mbit, ms};

const EVERY: [Algorithm; 7] = [
    Algorithm::Longhaul,
    Algorithm::Background,
    Algorithm::Cubic,
    Algorithm::NewReno,
    Algorithm::Udt,
    Algorithm::UdtG,
    Algorithm::Fixed(Rate::from_bits_per_sec(1_450_000)),
];

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

/// How long what arrives waits for a busy host is no part of the path, at either end.
#[test]
fn a_busy_host_does_not_make_the_path_longer() {
    let absence = Some(Absence { every: ms(5), length: ms(20), most: ms(20) });
    for busy in [0, 1] {
        let config = Config { rate_limit: Some(mbit(1)), ..Config::default() };
        let host = |side: u8| Host::new(([10, side, 0, 1], 7272).into(), config, [side + 1; 32]);
        let (mut near, far) = (host(0), host(1));
        near.connect(World::<Host>::START, far.address());
        let hosts = [near, far].into_iter().zip(0..);
        let hosts = hosts.map(|(host, side)| Busy::new(host, absence.filter(|_| side == busy), 1));
        let path = PathConfig::new(mbit(100), ms(50));
        let mut world = World::of(&path, Faults::default(), hosts.collect());
        let met = |world: &World<Busy<Host>>| world.hosts[0].node.established;
        assert!(world.run_until(ms(2000), met));
        world.hosts[0].node.send(pattern(1, 1_000_000));
        world.run_until(ms(5000), |_| false);
        let rtt = world.hosts[0].node.connection().stats().rtt;
        assert!((ms(50)..ms(52)).contains(&rtt), "host {busy} is busy: {rtt:?}");
    }
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
fn reports_on_a_t1_stay_small() {
    for rtt in [10, 50, 200, 560] {
        let path = PathConfig::new(Rate::from_bits_per_sec(1_536_000), ms(rtt));
        for congestion in EVERY {
            let (rate, share) = run(&path, congestion);
            let ours = matches!(congestion, Algorithm::Longhaul | Algorithm::Background);
            // A window that is full, as those of the others are, is no use until a report comes: they ask
            // twice in a round trip, and a short one has few bytes for each report.
            let most = if ours || rtt == 560 { 0.01 } else { 0.04 };
            assert!(
                share < most,
                "{rtt} ms, {congestion:?}: {share} of the bytes at {rate} Mbit/s"
            );
        }
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

/// Moves `size` bytes; the world afterwards.
fn moved(path: &PathConfig, faults: Faults, config: Config, size: usize) -> World {
    let mut world = World::new(path, faults, config);
    assert!(world.run_until(ms(20_000), |world| world.hosts[1].established));
    let bytes = pattern(path.seed, size);
    let id = world.hosts[0].send(bytes.clone());
    let whole = |world: &World| world.hosts[1].incoming.get(&id).is_some_and(|(_, ended)| *ended);
    assert!(world.run_until(ms(120_000), whole), "seed {}: {:#?}", path.seed, world.stats(0));
    assert!(world.hosts[1].incoming[&id].0 == bytes, "seed {}", path.seed);
    world
}

fn positive_ack() -> Config {
    Config { feedback: FeedbackKind::PositiveAck, ..Config::default() }
}

#[test]
fn positive_acknowledgements_deliver_every_byte_once_in_order_too() {
    for seed in 0..24 {
        let share = seed as f64 / 100.0;
        let path = PathConfig::new(mbit(10 + seed * 7), ms(5 + seed * 20))
            .with_loss(share)
            .with_loss_back(share)
            .with_seed(seed);
        let faults = Faults {
            duplicate: share,
            corrupt: 0.02,
            reorder: 0.1,
            jitter: ms(seed * 2),
            blackout: (seed % 4 == 0).then(|| (ms(1500), ms(5000))),
            ..Faults::default()
        };
        moved(&path, faults, positive_ack(), 1_500_000);
    }
}

#[test]
fn positive_acknowledgements_cost_many_times_the_packets_and_resend_for_each_one_lost() {
    let path = PathConfig::new(mbit(50), ms(60)).with_loss_back(0.05).with_seed(9);
    let cost = |config| {
        let mut world = moved(&path, Faults::default(), config, 20_000_000);
        let (near, far) = (world.stats(0), world.stats(1));
        (far.sent.0 as f64 / far.received.0 as f64, near.lost.0 as f64 / near.sent.0 as f64)
    };
    let (periodic, acks) = (cost(Config::default()), cost(positive_ack()));
    assert!(periodic.0 < 0.15 && acks.0 > 0.95, "a packet: {periodic:?} {acks:?}");
    // A lost report costs nothing, a lost acknowledgement a packet.
    assert!(periodic.1 < 0.002 && (0.04..0.09).contains(&acks.1), "{periodic:?} {acks:?}");
}

#[test]
fn the_time_out_is_the_users_and_one_that_is_too_short_sends_in_vain() {
    let path = PathConfig::new(mbit(20), ms(40)).with_seed(3);
    let lost = |feedback| {
        let retransmit_after = Some(ms(20));
        let config = Config { feedback, retransmit_after, ..Config::default() };
        moved(&path, Faults::default(), config, 5_000_000).stats(0).lost.0
    };
    let (periodic, acks) = (lost(FeedbackKind::Periodic), lost(FeedbackKind::PositiveAck));
    assert!(acks > 1000 && periodic < 100, "{periodic} {acks}");
}

#[test]
fn reports_come_as_often_as_they_are_told_to() {
    for every in [20, 80] {
        let config = Config { report_interval: Some(ms(every)), ..Config::default() };
        let mut world = share(&PathConfig::new(mbit(2), ms(40)), &[(config, ms(0))]);
        world.run_until(ms(5000), |_| false);
        let before = end(&mut world, 0, 1).stats().sent.0;
        world.run_until(ms(10_000), |_| false);
        let reports = end(&mut world, 0, 1).stats().sent.0 - before;
        let due = 10_000 / every;
        assert!((due - due / 5..=due + 1).contains(&reports), "{reports} every {every} ms");
    }
}

#[test]
fn both_ends_must_have_the_same_feedback() {
    let path = PathConfig::new(mbit(10), ms(40));
    let host =
        |side: u8, config| Host::new(([10, side, 0, 1], 7272).into(), config, [side + 1; 32]);
    for (ours, theirs) in [(positive_ack(), Config::default()), (Config::default(), positive_ack())]
    {
        let (mut near, far) = (host(0, ours), host(1, theirs));
        let to = sim::Node::address(&far);
        near.connect(units::Instant::from_nanos(1_000_000_000), to);
        let mut world = World::of(&path, Faults::default(), vec![near, far]);
        assert!(world.run_until(ms(5000), |world| world.hosts[0].closed.is_some()));
        assert_eq!(world.hosts[0].closed, Some(CloseReason::Refused(Refusal::Feedback)));
    }
}

//! Many streams on one connection, in virtual time: what they owe each other.

mod peer;

use std::num::NonZeroU8;
use std::time::Duration;

use path::PathConfig;
use sim::{Faults, World};
use transport::cc::Algorithm;
use transport::{Class, CloseReason, Config, OpenError, Priority, Unreachable};
use units::{Bytes, Rate};

use peer::Peer;

const ENDLESS: u64 = 1 << 40;

fn mbit(rate: u64) -> Rate {
    Rate::from_bits_per_sec(rate * 1_000_000)
}

fn secs(time: u64) -> Duration {
    Duration::from_secs(time)
}

/// At a fixed rate, so that only what streams do to each other makes a difference.
fn paced(rate: u64) -> Config {
    Config { congestion: Algorithm::Fixed(mbit(rate)), ..Config::default() }
}

fn world(path: &PathConfig, config: Config) -> World<Peer> {
    let mut hosts = vec![Peer::new(0, config), Peer::new(1, config)];
    let there = sim::Node::address(&hosts[1]);
    let start = units::Instant::from_nanos(1_000_000_000);
    hosts[0].socket.connect(start, there);
    let mut world = World::of(path, Faults::default(), hosts);
    let both = |world: &World<Peer>| world.hosts.iter().all(|host| host.established);
    assert!(world.run_until(secs(60), both));
    world
}

fn priority(class: Class, group: u64, weight: u8) -> Priority {
    Priority { class, group, weight: NonZeroU8::new(weight).unwrap() }
}

/// What the far host reads of these streams in so much time.
fn reads(world: &mut World<Peer>, ids: &[u64], time: Duration) -> Vec<u64> {
    let read = |world: &World<Peer>| -> Vec<u64> {
        ids.iter().map(|id| world.hosts[1].read.get(id).copied().unwrap_or(0)).collect()
    };
    let before = read(world);
    world.run_until(time, |_| false);
    assert!(world.hosts.iter().all(|host| host.closed.is_none()));
    read(world).iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn a_hundred_stalled_readers_take_nothing_from_the_others() {
    let path = PathConfig::new(mbit(50), Duration::from_millis(300)).with_seed(1);
    let run = |stalled: u64| {
        let mut world = world(&path, paced(45));
        world.hosts[1].stalled = (0..stalled).map(|index| index * 2).collect();
        for _ in 0..stalled {
            world.hosts[0].send(ENDLESS, Priority::default());
        }
        let live: Vec<u64> =
            (0..4).map(|_| world.hosts[0].send(ENDLESS, Priority::default())).collect();
        world.run_until(secs(15), |_| false);
        let rate: u64 = reads(&mut world, &live, secs(20)).iter().sum();
        let held = (0..stalled).map(|index| world.hosts[0].written[&(index * 2)]).sum::<u64>();
        (rate as f64, held)
    };
    let (alone, _) = run(0);
    let (beside, held) = run(100);
    assert!(beside > 0.98 * alone, "{:.3}", beside / alone);
    // 32 MB at each end.
    assert!(held < 64_000_000, "{held}");
}

#[test]
fn readers_that_stall_once_their_windows_have_grown_do_no_harm_either() {
    let path = PathConfig::new(mbit(100), Duration::from_millis(100)).with_seed(2);
    let mut world = world(&path, paced(90));
    let ids: Vec<u64> =
        (0..20).map(|_| world.hosts[0].send(ENDLESS, Priority::default())).collect();
    let all: u64 = reads(&mut world, &ids, secs(10)).iter().sum();
    world.hosts[1].stalled = ids[..16].iter().copied().collect();
    world.run_until(secs(5), |_| false);
    let rest: u64 = reads(&mut world, &ids[16..], secs(10)).iter().sum();
    assert!(rest as f64 > 0.98 * all as f64, "{:.3}", rest as f64 / all as f64);
}

#[test]
fn readers_that_stall_one_after_another_do_not_freeze_who_comes_next() {
    let path = PathConfig::new(mbit(100), Duration::from_millis(100)).with_seed(2);
    let mut world = world(&path, Config { receive_memory: Bytes::mib(16), ..paced(90) });
    for _ in 0..24 {
        let id = world.hosts[0].send(ENDLESS, Priority::default());
        world.run_until(secs(4), |_| false);
        let read = reads(&mut world, &[id], secs(1))[0];
        assert!(read > 500_000, "{read} bytes in a second");
        world.hosts[1].stalled.insert(id);
    }
}

#[test]
fn who_opens_no_stream_where_it_is_crowded_is_not_frozen_by_those_that_nobody_reads() {
    let path = PathConfig::new(mbit(100), Duration::from_millis(100)).with_seed(2);
    let mut world = world(&path, Config { receive_memory: Bytes::mib(16), ..paced(90) });
    let old = world.hosts[0].send(ENDLESS, Priority::default());
    let crowded = |world: &mut World<Peer>, host: usize| {
        world.hosts[host].socket.connection().unwrap().is_crowded()
    };
    let mut stalled = 0;
    while !crowded(&mut world, 1) {
        let id = world.hosts[0].send(ENDLESS, Priority::default());
        world.hosts[1].stalled.insert(id);
        world.run_until(Duration::from_millis(300), |_| false);
        stalled += 1;
        assert!(stalled < 300, "it is never crowded");
    }
    assert!(!crowded(&mut world, 0), "the sender has credit left");
    let new = world.hosts[0].send(ENDLESS, Priority::default());
    let read = reads(&mut world, &[old, new], secs(5));
    // The new one has its first credit in each round trip, for there is no room to grow.
    assert!(stalled > 100 && read.iter().all(|&read| read > 2_000_000), "{stalled} {read:?}");
}

#[test]
fn weights_are_kept_and_late_joiners_get_their_share() {
    let path = PathConfig::new(mbit(100), Duration::from_millis(100)).with_seed(3);
    let mut world = world(&path, paced(90));
    let mut ids: Vec<u64> = [1, 2, 4]
        .map(|weight| world.hosts[0].send(ENDLESS, priority(Class::Bulk, 0, weight)))
        .to_vec();
    world.run_until(secs(5), |_| false);
    for late in [false, true] {
        if late {
            ids.push(world.hosts[0].send(ENDLESS, priority(Class::Bulk, 0, 2)));
            world.run_until(secs(3), |_| false);
        }
        let shares = reads(&mut world, &ids, secs(10));
        for (share, weight) in shares.iter().zip([1.0, 2.0, 4.0, 2.0]) {
            let ratio = *share as f64 / shares[0] as f64 / weight;
            assert!((ratio - 1.0).abs() < 0.05, "{shares:?}");
        }
    }
}

#[test]
fn groups_share_equally_and_classes_go_in_order() {
    let path = PathConfig::new(mbit(100), Duration::from_millis(40)).with_seed(4);
    let mut world = world(&path, paced(90));
    let mut send = |class, group| world.hosts[0].send(ENDLESS, priority(class, group, 1));
    let lone = send(Class::Bulk, 1);
    let many: Vec<u64> = (0..9).map(|_| send(Class::Bulk, 2)).collect();
    let background = send(Class::Background, 1);
    world.run_until(secs(5), |_| false);
    let alone = reads(&mut world, &[lone, background], secs(5));
    let rest: u64 = reads(&mut world, &many, secs(5)).iter().sum();
    assert!((alone[0] as f64 / rest as f64 - 1.0).abs() < 0.05, "{alone:?} {rest}");
    assert_eq!(alone[1], 0);
    let small = world.hosts[0].send(20_000, priority(Class::Interactive, 3, 1));
    let soon = |world: &World<Peer>| world.hosts[1].ended.contains_key(&small);
    assert!(world.run_until(Duration::from_millis(60), soon), "interactive bytes wait");
}

#[test]
fn interactive_streams_go_first_only_with_little() {
    let path = PathConfig::new(mbit(100), Duration::from_millis(40)).with_seed(4);
    let mut world = world(&path, paced(90));
    let mut send = |class, group| world.hosts[0].send(ENDLESS, priority(class, group, 1));
    let both = [send(Class::Bulk, 1), send(Class::Interactive, 2)];
    world.run_until(secs(5), |_| false);
    let read = reads(&mut world, &both, secs(10));
    assert!((read[0] as f64 / read[1] as f64 - 1.0).abs() < 0.05, "{read:?}");
}

#[test]
fn ten_thousand_streams_at_a_time_share_packets() {
    let path = PathConfig::new(mbit(100), Duration::from_millis(100)).with_seed(5);
    let mut world = world(&path, paced(90));
    world.hosts[1].stalled = (0..10_000).map(|index| index * 2).collect();
    world.hosts[0].wanted = (10_000, 200);
    let sent = |world: &mut World<Peer>| world.hosts[0].socket.connection().unwrap().stats().sent.0;
    let before = sent(&mut world);
    assert!(world.run_until(secs(5), |world| world.hosts[1].read.len() == 10_000));
    world.run_until(secs(1), |_| false);
    let packets = sent(&mut world) - before;
    assert!(packets < 2_500, "{packets} packets for 10,000 messages");
    assert_eq!(world.hosts[1].most_open, 10_000);
    assert!(world.hosts.iter().all(|host| host.closed.is_none()));
}

#[test]
fn whoever_opens_too_many_waits_and_goes_on_in_spite_of_loss() {
    for seed in 0..3 {
        let path = PathConfig::new(mbit(100), Duration::from_millis(50))
            .with_loss(0.05)
            .with_loss_back(0.05)
            .with_seed(seed);
        let config = Config { max_streams: 300, ..paced(90) };
        let mut world = world(&path, config);
        world.hosts[0].wanted = (5_000, 1_000);
        let all = |world: &World<Peer>| world.hosts[1].ended.len() == 5_000;
        assert!(world.run_until(secs(60), all), "seed {seed}: {}", world.hosts[1].ended.len());
        assert!(world.hosts[0].waits > 0 && world.hosts[1].most_open <= 300);
        assert!(world.hosts[1].read.values().all(|&read| read == 1_000));
    }
}

#[test]
fn credit_that_is_lost_on_the_way_comes_again() {
    for seed in 0..3 {
        let path = PathConfig::new(mbit(100), Duration::from_millis(50))
            .with_loss(0.1)
            .with_loss_back(0.3)
            .with_seed(seed);
        let mut world = world(&path, paced(90));
        // More than their first credit and what the connection lends: each needs some of its own.
        world.hosts[0].wanted = (300, 300_000);
        let all = |world: &World<Peer>| world.hosts[1].ended.len() == 300;
        assert!(world.run_until(secs(40), all), "seed {seed}: {}", world.hosts[1].ended.len());
        assert!(world.hosts[1].read.values().all(|&read| read == 300_000));
    }
}

/// After a long wait the writer asks only every two seconds.
#[test]
fn credit_that_is_lost_when_nothing_else_moves_comes_again_at_once() {
    let ms = Duration::from_millis;
    for late in 0..10 {
        let path = PathConfig::new(mbit(50), ms(50)).with_seed(1);
        let at = secs(12) + ms(200 * late);
        let dark = Faults { blackout: Some((at, ms(40))), ..Faults::default() };
        let mut hosts = vec![Peer::new(0, paced(45)), Peer::new(1, paced(45))];
        let there = sim::Node::address(&hosts[1]);
        let start = units::Instant::from_nanos(1_000_000_000);
        hosts[0].socket.connect(start, there);
        hosts[1].stalled.insert(0);
        let mut world = World::of(&path, dark, hosts);
        assert!(world.run_until(secs(5), |world| world.hosts[0].established));
        let id = world.hosts[0].send(ENDLESS, Priority::default());
        world.run_until((start + at).since(world.now) + ms(1), |_| false);
        let now = world.now;
        world.hosts[1].resume(now, id);
        let had = world.hosts[1].read[&id];
        assert!(had > 0);
        let goes_on = |world: &World<Peer>| world.hosts[1].read[&id] > had;
        assert!(world.run_until(ms(600), goes_on), "{late}");
    }
}

#[test]
fn who_has_nothing_more_to_send_says_so_on_the_shortest_path() {
    let path = PathConfig::new(mbit(500), Duration::from_micros(400)).with_seed(1);
    let mut world = world(&path, paced(450));
    for len in [3_000_000, 1_000_000, 20_000] {
        let id = world.hosts[0].send(len, Priority::default());
        assert!(world.run_until(secs(10), |world| world.hosts[1].ended.contains_key(&id)));
        world.run_until(secs(1), |_| false);
        let (_, there) = world.hosts[1].socket.connection().unwrap().queued();
        assert_eq!(there, Bytes(0), "of {len}");
    }
}

#[test]
fn resets_and_stops_in_the_middle_end_their_own_streams_only() {
    let path = PathConfig::new(mbit(50), Duration::from_millis(80)).with_loss(0.02).with_seed(6);
    let mut world = world(&path, paced(45));
    let ids: Vec<u64> =
        (0..60).map(|_| world.hosts[0].send(1_000_000, Priority::default())).collect();
    world.run_until(secs(2), |_| false);
    for (index, &id) in ids.iter().enumerate() {
        match index % 3 {
            0 => world.hosts[0].socket.connection().unwrap().reset(id, 7),
            1 => world.hosts[1].socket.connection().unwrap().stop(id, 9),
            _ => {}
        }
    }
    let rest: Vec<u64> = ids.iter().copied().skip(2).step_by(3).collect();
    let whole =
        |world: &World<Peer>| rest.iter().all(|id| world.hosts[1].ended.get(id) == Some(&None));
    assert!(world.run_until(secs(20), whole));
    for (index, id) in ids.iter().enumerate() {
        match index % 3 {
            0 => assert_eq!(world.hosts[1].ended[id], Some(7)),
            1 => assert!(world.hosts[1].read[id] < 1_000_000),
            _ => assert_eq!(world.hosts[1].read[id], 1_000_000),
        }
    }
}

#[test]
fn what_is_queued_decides_on_admission() {
    let path = PathConfig::new(mbit(10), Duration::from_millis(50)).with_seed(7);
    let config = Config { admission: Some(Bytes(1_000_000)), ..paced(9) };
    let mut world = world(&path, config);
    let bulk = world.hosts[0].send(4_000_000, Priority::default());
    let connection = world.hosts[0].socket.connection().unwrap();
    assert!(matches!(connection.open(), Err(OpenError::Overloaded { limit: 1_000_000, .. })));
    world.run_until(secs(1), |_| false);
    let (_, there) = world.hosts[1].socket.connection().unwrap().queued();
    assert!(there.0 > 1_000_000, "the other end does not know: {there:?}");
    assert!(world.run_until(secs(10), |world| world.hosts[1].ended.contains_key(&bulk)));
    assert!(world.hosts[0].socket.connection().unwrap().open().is_ok());
}

#[test]
fn forged_reports_of_unreachability_do_not_end_a_living_connection() {
    let path = PathConfig::new(mbit(50), Duration::from_millis(80)).with_seed(8);
    let mut world = world(&path, paced(45));
    for _ in 0..200 {
        let now = world.now;
        world.hosts[0].socket.connection().unwrap().on_unreachable(now, Unreachable::Port);
        world.run_until(Duration::from_millis(50), |_| false);
        assert_eq!(world.hosts[0].closed, None);
    }
}

#[test]
fn who_is_silent_and_reported_gone_is_given_up_soon_unless_the_way_may_come_back() {
    use Unreachable::{Address, Port};
    for (what, ends) in [(Port, Some(CloseReason::Vanished)), (Address, None)] {
        let path = PathConfig::new(mbit(50), Duration::from_millis(80)).with_seed(9);
        let dark = Faults { blackout: Some((secs(5), secs(10))), ..Faults::default() };
        let mut hosts = vec![Peer::new(0, paced(45)), Peer::new(1, paced(45))];
        let there = sim::Node::address(&hosts[1]);
        hosts[0].socket.connect(units::Instant::from_nanos(1_000_000_000), there);
        let mut world = World::of(&path, dark, hosts);
        world.run_until(secs(6), |_| false);
        for _ in 0..30 {
            let now = world.now;
            world.hosts[0].socket.connection().unwrap().on_unreachable(now, what);
            world.run_until(Duration::from_millis(100), |_| false);
        }
        assert_eq!(world.hosts[0].closed, ends, "{what:?}");
        if ends.is_none() {
            world.run_until(secs(10), |_| false);
            let id = world.hosts[0].send(100_000, Priority::default());
            assert!(world.run_until(secs(10), |world| world.hosts[1].ended.contains_key(&id)));
        }
    }
}

#[test]
fn who_closes_after_reading_all_lets_the_writer_know() {
    for seed in 0..20 {
        let path = PathConfig::new(mbit(100), Duration::from_millis(50))
            .with_loss_back(0.3)
            .with_seed(seed);
        let mut world = world(&path, paced(90));
        let id = world.hosts[0].send(100_000, Priority::default());
        assert!(world.run_until(secs(10), |world| world.hosts[1].ended.contains_key(&id)));
        let now = world.now;
        world.hosts[1].socket.connection().unwrap().close(now, 0, "done");
        assert!(world.run_until(secs(10), |world| world.hosts[0].closed.is_some()));
        assert!(matches!(world.hosts[0].closed, Some(CloseReason::Remote(_))), "seed {seed}");
        let undelivered = world.hosts[0].socket.connection().unwrap().undelivered(id);
        assert_eq!(undelivered, 0, "seed {seed}: all was read");
    }
}

#[test]
fn the_last_word_is_whole_however_much_is_missing_of_another_stream() {
    for seed in 0..3 {
        let path =
            PathConfig::new(mbit(500), Duration::from_millis(200)).with_loss(0.05).with_seed(seed);
        let mut world = world(&path, paced(450));
        world.hosts[0].send(ENDLESS, Priority::default());
        world.run_until(secs(1), |_| false);
        let id = world.hosts[0].send(100_000, Priority::default());
        assert!(world.run_until(secs(10), |world| world.hosts[1].ended.contains_key(&id)));
        let now = world.now;
        world.hosts[1].socket.connection().unwrap().close(now, 0, "done");
        assert!(world.run_until(secs(10), |world| world.hosts[0].closed.is_some()));
        let undelivered = world.hosts[0].socket.connection().unwrap().undelivered(id);
        assert_eq!(undelivered, 0, "seed {seed}: all was read");
    }
}

#[test]
fn who_goes_on_after_the_end_is_told_a_few_times() {
    let path = PathConfig::new(mbit(100), Duration::from_millis(200)).with_seed(10);
    let mut world = world(&path, paced(90));
    world.hosts[0].send(ENDLESS, Priority::default());
    world.run_until(secs(2), |_| false);
    let (now, sent) =
        (world.now, |world: &World<Peer>| world.hosts[1].socket.latest().unwrap().stats().sent.0);
    let before = sent(&world);
    world.hosts[1].socket.connection().unwrap().close(now, 0, "done");
    // A round trip of what was under way arrives.
    world.run_until(secs(5), |_| false);
    assert!(matches!(world.hosts[0].closed, Some(CloseReason::Remote(_))));
    let closes = sent(&world) - before;
    assert!((1..=10).contains(&closes), "{closes}");
}

#[test]
fn a_close_waits_for_its_answer_on_the_shortest_path() {
    let path = PathConfig::new(mbit(100), Duration::from_micros(100)).with_seed(11);
    let mut world = world(&path, paced(90));
    world.run_until(secs(1), |_| false);
    let now = world.now;
    // The other end is busy with something else.
    world.hosts.truncate(1);
    let host = &mut world.hosts[0];
    host.socket.connection().unwrap().close(now, 0, "done");
    let (mut at, mut closes) = (now, 0);
    while !host.socket.latest().is_none_or(transport::Connection::is_closed) {
        host.socket.flush_to(at, |_, _| closes += 1);
        at = host.socket.next().unwrap_or(at);
    }
    assert_eq!(closes, 4);
    assert_eq!(at.since(now), Duration::from_millis(100));
}

//! Flows that share a bottleneck, each of them endless.

use core::net::SocketAddr;
use std::time::Duration;

use path::{PathConfig, QueueConfig};
use sim::{Datagram, Faults, Node, Socket, World};
use transport::cc::{Algorithm, Remembered};
use transport::{Config, Event, ReadOutcome, WriteOutcome};
use units::{Bytes, Instant, Rate};

use crate::{mbit, ms};

/// The near end writes as much as it can, from its start on; the far end reads.
struct Endless {
    socket: Socket,
    connects: Option<(Instant, SocketAddr)>,
    stream: Option<u64>,
    writes: bool,
    read: u64,
}

impl Endless {
    fn pair(number: usize, start: Duration, config: Config) -> [Self; 2] {
        let end = |side: u8| {
            let address = ([10, side, number as u8, 1], 7272).into();
            let socket = Socket::new(address, config, [side * 100 + number as u8; 32]);
            Self { socket, connects: None, stream: None, writes: side == 0, read: 0 }
        };
        let (mut near, far) = (end(0), end(1));
        let at = Instant::from_nanos(1_000_000_000) + start;
        near.connects = Some((at, far.socket.address()));
        [near, far]
    }

    fn application(&mut self, now: Instant) {
        let Some(connection) = self.socket.connection() else { return };
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Established if self.writes => self.stream = connection.open().ok(),
                Event::Opened(stream) => self.stream = Some(stream),
                Event::Closed(reason) => panic!("{reason}"),
                _ => {}
            }
        }
        let Some(stream) = self.stream else { return };
        let mut buffer = [0; 32 << 10];
        if self.writes {
            while let WriteOutcome::Written(1..) = connection.write(stream, &buffer) {}
        } else {
            while let ReadOutcome::Read(len) = connection.read(now, stream, &mut buffer) {
                self.read += len as u64;
            }
        }
    }
}

impl Node for Endless {
    fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    fn receive(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &mut [u8],
        out: &mut Vec<Datagram>,
    ) {
        self.socket.receive(now, from, datagram, out);
    }

    fn run(&mut self, now: Instant, out: &mut Vec<Datagram>) {
        if let Some((_, to)) = self.connects.take_if(|(at, _)| *at <= now) {
            self.socket.connect(now, to);
        }
        self.application(now);
        self.socket.flush(now, out);
        self.application(now);
    }

    fn next(&self) -> Option<Instant> {
        self.connects.map(|(at, _)| at).into_iter().chain(self.socket.next()).min()
    }
}

/// A flow that begins after so many milliseconds.
fn flow(congestion: Algorithm, start: u64) -> (Config, Duration) {
    (Config { congestion, ..Config::default() }, ms(start))
}

fn share(path: &PathConfig, flows: &[(Config, Duration)]) -> World<Endless> {
    let ends = flows.iter().enumerate();
    let hosts = ends.flat_map(|(number, &(config, start))| Endless::pair(number, start, config));
    World::of(path, Faults::default(), hosts.collect())
}

/// Runs for so long; what each flow delivered meanwhile, in bits a second.
fn rates(world: &mut World<Endless>, time: Duration) -> Vec<f64> {
    let read = |world: &World<Endless>| {
        world.hosts.iter().skip(1).step_by(2).map(|host| host.read).collect()
    };
    let before: Vec<u64> = read(world);
    world.run_until(time, |_| false);
    let after: Vec<u64> = read(world);
    let rate = |(after, before)| (after - before) as f64 * 8.0 / time.as_secs_f64();
    after.into_iter().zip(before).map(rate).collect()
}

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
    // With eight one may still take the others for strangers (ADR 0008).
    for count in [2, 4] {
        let flows: Vec<_> = (0..count)
            .map(|number| {
                flow(Algorithm::Longhaul, if number < count / 2 { 7 } else { 3000 + 11 * number })
            })
            .collect();
        let mut world = share(&shared_path(50), &flows);
        world.run_until(ms(8000), |_| false);
        let drops = world.queue_drops();
        let rates = rates(&mut world, ms(10_000));
        assert!(jain(&rates) > 0.97, "{count} flows: {rates:?}");
        assert!(rates.iter().sum::<f64>() > 0.92 * 50e6, "{count} flows: {rates:?}");
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
    let connection = first.hosts[0].socket.connection().expect("it is there");
    let remembered = connection.remembered().expect("it knows the path");
    assert!(remembered.rate > mbit(180) && remembered.rate < mbit(210), "{remembered:?}");
    let (read, _) = resumed(mbit(200), Some(remembered));
    let between = Rate::of(Bytes(read[8] - read[6]), ms(200)).expect("time passed");
    assert!(between > mbit(160), "{between} from 0.7 s to 0.9 s");
}

#[test]
fn a_remembered_path_that_has_shrunk_does_no_lasting_harm() {
    let remembered = Remembered { rate: mbit(200), rtt: ms(200) };
    let (_, mut world) = resumed(mbit(20), Some(remembered));
    let rate = rates(&mut world, ms(5000))[0];
    assert!(rate > 0.9 * 0.95 * 20e6, "{rate}");
}

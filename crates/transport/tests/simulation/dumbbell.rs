//! Several connections through one bottleneck, in virtual time, each of them endless.

use core::net::SocketAddr;
use std::time::Duration;

use path::PathConfig;
use sim::{Datagram, Faults, Node, Socket, World};
use transport::cc::Algorithm;
use transport::{Config, Connection, Event, ReadOutcome, WriteOutcome};
use units::Instant;

use crate::ms;

/// Payload of a full data packet, and its size on the line.
const FULL_PACKET: (f64, f64) = (1424.0, 1500.0);

/// The near end writes as much as it can, from its start on; the far end reads.
pub struct Endless {
    pub socket: Socket,
    connects: Option<(Instant, SocketAddr)>,
    stream: Option<u64>,
    writes: bool,
    pub read: u64,
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
pub fn flow(congestion: Algorithm, start: u64) -> (Config, Duration) {
    (Config { congestion, ..Config::default() }, ms(start))
}

pub fn share(path: &PathConfig, flows: &[(Config, Duration)]) -> World<Endless> {
    let ends = flows.iter().enumerate();
    let hosts = ends.flat_map(|(number, &(config, start))| Endless::pair(number, start, config));
    World::of(path, Faults::default(), hosts.collect())
}

/// Runs for so long; what each flow delivered meanwhile, in bits a second.
pub fn rates(world: &mut World<Endless>, time: Duration) -> Vec<f64> {
    let read = |world: &World<Endless>| {
        world.hosts.iter().skip(1).step_by(2).map(|host| host.read).collect()
    };
    let before: Vec<u64> = read(world);
    world.run_until(time, |_| false);
    let after: Vec<u64> = read(world);
    let rate = |(after, before)| (after - before) as f64 * 8.0 / time.as_secs_f64();
    after.into_iter().zip(before).map(rate).collect()
}

/// What each flow delivered in so long, in Mbit/s as on the line.
pub fn line_rates(world: &mut World<Endless>, time: Duration) -> Vec<f64> {
    let (payload, packet) = FULL_PACKET;
    rates(world, time).into_iter().map(|rate| rate * packet / payload / 1e6).collect()
}

/// The flow's near (0) or far (1) end.
pub fn end(world: &mut World<Endless>, flow: usize, side: usize) -> &Connection {
    world.hosts[2 * flow + side].socket.connection().expect("it has begun")
}

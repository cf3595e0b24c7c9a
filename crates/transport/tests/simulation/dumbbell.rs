//! Several connections through one bottleneck, in virtual time, each of them endless.

use std::time::Duration;

use path::PathConfig;
use sim::{Endless, World};
use transport::cc::Algorithm;
use transport::{Config, Connection};

use crate::ms;

/// Payload of a full data packet, at least, and its size on the line.
const FULL_PACKET: (f64, f64) = (1440.0, 1500.0);

/// A flow that begins after so many milliseconds.
pub fn flow(congestion: Algorithm, start: u64) -> (Config, Duration) {
    (Config { congestion, ..Config::default() }, ms(start))
}

pub fn share(path: &PathConfig, flows: &[(Config, Duration)]) -> World<Endless> {
    Endless::world(path, flows)
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
    world.hosts[2 * flow + side].connection().expect("it has begun")
}

//! What is run, what is told of it, and what it must reach.

mod alone;
mod shared;
mod unsteady;

use core::time::Duration;

use path::{PathConfig, QueueConfig};
use sim::Absence;
use transport::cc::Algorithm;
use units::Rate;

use crate::run::{Kind, Seen, Setup};

/// A figure with the goal that it must not miss.
#[derive(Clone, Copy)]
pub struct Figure {
    pub name: &'static str,
    pub least: f64,
    pub most: f64,
}

const fn at_least(name: &'static str, least: f64) -> Figure {
    Figure { name, least, most: f64::INFINITY }
}

const fn at_most(name: &'static str, most: f64) -> Figure {
    Figure { name, least: f64::NEG_INFINITY, most }
}

const fn shown(name: &'static str) -> Figure {
    Figure { name, least: f64::NEG_INFINITY, most: f64::INFINITY }
}

/// What to run with a seed.
type Make = Box<dyn Fn(u64) -> Setup + Send + Sync>;
/// The figures of a run.
type Judge = Box<dyn Fn(&Seen) -> Vec<f64> + Send + Sync>;

/// Runs of one kind.
pub struct Case {
    pub part: &'static str,
    pub name: String,
    pub figures: Vec<Figure>,
    pub setup: Make,
    pub judge: Judge,
}

/// The parts, in the order of the table.
pub const PARTS: &[&str] = &[
    "start",
    "grid",
    "jumbo",
    "ours",
    "many",
    "lossy",
    "cubic",
    "bbr",
    "among",
    "background",
    "short",
    "late",
    "marks",
    "unsteady",
];

/// Hosts with more threads than processors.
const BUSY: Absence = Absence {
    every: Duration::from_millis(30),
    length: Duration::from_millis(4),
    most: Duration::from_millis(40),
};

fn mbit(rate: u64) -> Rate {
    Rate::from_bits_per_sec(rate * 1_000_000)
}

fn path(rate: u64, rtt: u64, queue_ms: u64, seed: u64) -> PathConfig {
    let queue: QueueConfig = format!("droptail:limit={queue_ms}ms").parse().expect("a queue");
    let rtt = Duration::from_millis(rtt);
    PathConfig::new(mbit(rate), rtt).with_queue(queue).with_seed(seed)
}

fn seconds(time: f64) -> Duration {
    Duration::from_secs_f64(time)
}

const OURS: Kind = Kind::Ours(Algorithm::Longhaul);

/// All cases; `rate` in Mbit/s is that of the grid.
pub fn all(rate: u64) -> Vec<Case> {
    let mut cases = alone::all(rate);
    cases.extend(shared::all());
    cases.extend(unsteady::all());
    cases
}

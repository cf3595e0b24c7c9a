//! The transport in virtual time: hosts that run its very code, joined by the path model.
//!
//! A [`World`] keeps the clock, the two directions of one path, and what happens beside loss and
//! delay ([`Faults`]). Its hosts are [`Node`]s in pairs: with several they share the path as a
//! dumbbell's bottleneck. [`Host`] is the node that most tests want, a [`Socket`] with a simple
//! application; [`Endless`] always has more to send, and [`Bbr`] is a rival for it; [`Busy`] makes
//! any of them late. Others build their own on a [`Socket`], or on a protocol of their own.
//!
//! A [`Study`] is what `longhaul simulate` runs: flows of the transport, and of TCP as [`tcp`] models it, over
//! one path or more. On it stand the experiments of [`papers`], which also have an [`Exchange`], paper 5's model
//! of a transport; [`swarm`] runs worlds by the thousand, with every fault, and says what must hold in them.
//!
//! Whatever is random comes from the path's seed, and what happens at one time happens in a
//! fixed order: arrivals forward, arrivals back, datagrams that were held back, then the hosts by
//! number. So the same seed gives the same run.
//!
//! ```
//! use core::time::Duration;
//! use path::PathConfig;
//! use sim::{Faults, World, pattern};
//! use units::Rate;
//!
//! let path = PathConfig::new(Rate::from_bits_per_sec(10_000_000), Duration::from_millis(100));
//! let mut world = World::new(&path, Faults::default(), transport::Config::default());
//! let stream = world.hosts[0].send(pattern(1, 100_000));
//! let whole = |world: &World| world.hosts[1].incoming.get(&stream).is_some_and(|(_, end)| *end);
//! assert!(world.run_until(Duration::from_secs(5), whole));
//! assert_eq!(world.hosts[1].incoming[&stream].0, pattern(1, 100_000));
//! ```
#![forbid(unsafe_code)]

mod bbr;
mod busy;
mod endless;
mod exchange;
mod host;
mod node;
pub mod papers;
mod random;
mod socket;
mod study;
pub mod swarm;
pub mod tcp;
mod world;

pub use bbr::Bbr;
pub use busy::{Absence, Busy};
pub use endless::Endless;
pub use exchange::{Exchange, Exchanged, Method};
pub use host::Host;
pub use node::{Arrived, Datagram, Node};
pub use socket::Socket;
pub use study::{
    Blocks, Carried, Documents, FlowConfig, FlowReport, Outcome, Protocol, QueueReport, Relay,
    Sample, Striping, Study, Wire, run_all,
};
pub use world::{Faults, Struck, World, pattern};

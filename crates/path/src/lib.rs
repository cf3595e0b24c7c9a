//! A network path as a machine without sockets, threads or clock.
//!
//! A [`PathConfig`] describes both directions; each becomes a [`Link`]:
//!
//! ```text
//! send -> MTU -> queue -> serialisation at a rate -> loss and damage on the line
//!      -> propagation delay, jitter, reordering -> poll
//! ```
//!
//! A [`Schedule`] changes a link at fixed times and [`Link::set`] at any; a [`Scenario`] is all
//! of this in a file, with the hosts at both ends.
//!
//! Losses happen on the line, behind the transmitter, as bit errors do: a lost packet has used
//! its share of the rate, so `p` of loss lowers what a link can carry by the factor `1 - p`.
//!
//! Time is an argument and randomness a seed. The simulator drives a link with a virtual clock
//! and the emulator with the real one; how often or how late either asks changes nothing of what
//! the link does. Packets are opaque: a caller sends a size and a value of its own, and a
//! super-packet (TSO, GSO) is sent segment by segment, so that each has its own place in the
//! queue, fate and due time, and plain and offloaded traffic meet the same drops.
//! What a packet suffers beside being lost (a mark, damage, a duplicate) stands on its [`Exit`],
//! for the caller to carry out.
//!
//! ```
//! use core::time::Duration;
//! use path::{Fate, Link, PathConfig};
//! use units::{Bytes, Instant, Rate};
//!
//! let config = PathConfig::new(Rate::from_bits_per_sec(1_000_000), Duration::from_millis(200));
//! let (mut forward, _back) = config.links::<&str>()?;
//! forward.send(Instant::ZERO, Bytes(125), "hello").expect("the queue is empty");
//!
//! // 1 ms to put 125 bytes on the line, 100 ms to propagate.
//! let due = forward.next_exit().expect("a packet is under way");
//! assert_eq!(due, Instant::ZERO + Duration::from_millis(101));
//! let exit = forward.poll(due).expect("it is due");
//! assert_eq!((exit.item, exit.fate), ("hello", Fate::Delivered));
//! # Ok::<(), path::PathError>(())
//! ```
#![forbid(unsafe_code)]

mod change;
mod config;
mod counters;
mod jitter;
mod line;
mod link;
mod loss;
mod queue;
mod random;
mod scenario;
mod spelling;
mod trace;
mod transmitter;
mod unchanging;
mod wire;

pub use change::{Change, MAX_CHANGES, Schedule};
pub use config::{Impairments, LinkConfig, MAX_DELAY, MIN_MTU, PathConfig, PathError};
pub use counters::{Counters, DropCause, Tally};
pub use jitter::Jitter;
pub use link::{Damage, Exit, Fate, Link, MAX_HELD, Packet, Refused};
pub use loss::{GilbertElliott, LossConfig, LossTrace, MAX_LOSS_TRACE};
pub use queue::{CodelConfig, FqCodelConfig, Limit, ParseLimitError, QueueConfig, RedConfig};
pub use scenario::text as spelled;
pub use scenario::{
    ACCESS_RATE, Adjustment, HostGroup, MAX_HOSTS, MAX_SCENARIO, PRESETS, Preset, Scenario,
    ScenarioError,
};
pub use spelling::{ParseConfigError, share as parse_share, time as parse_time};
pub use trace::{MAX_TRACE, RateTrace};
pub use unchanging::{Arrival, Fortune, Unchanging};

//! The path model under the real clock.
//!
//! A [`Lab`] is two hosts in network namespaces, each with a TUN device, joined by a path, or
//! several on each side that share it: any program runs on it unchanged, and nothing of it
//! touches the machine's own network. While it runs its path can be changed, looked at, traced
//! and captured. A
//! [`Relay`] is the form without privileges, for UDP alone.
//!
//! ```text
//! near host, TUN  ->  frame -> segments -> Link -> segments due -> pieces  ->  TUN, far host
//!                     `--------- one thread, frames kept in a ring -----'
//! ```
//!
//! Hosts hand over super-packets of up to 64 KiB. They are kept whole and treated segment by
//! segment: every segment has its own place in the queue, fate and due time, and those that are
//! due together leave as one piece. A [`LabReport`] says what the path did, how late packets
//! were taken in and left, and how many were lost outside of the model: the measure of how far a
//! run can be believed, which a [`Verdict`] sums up.

mod access;
mod alarm;
mod awake;
mod backlog;
mod capture;
mod clock;
mod engine;
mod error;
mod host;
mod icmp;
mod ip;
mod lab;
mod lane;
mod memory;
mod names;
mod namespace;
mod netlink;
mod priority;
mod privilege;
mod relay;
mod report;
mod ring;
mod room;
mod sources;
mod spool;
mod superpacket;
mod trace;
mod tun;
mod udp;
mod verdict;
mod wires;

pub use error::LabError;
pub use host::{Host, Machine};
pub use lab::{Lab, LabOptions, MAX_LAB_HOSTS, MAX_MTU, MIN_MTU};
pub use lane::LaneError;
pub use namespace::{Namespace, end_with_this_thread};
pub use privilege::{Privilege, init};
pub use relay::Relay;
pub use report::{LabReport, LabSample, LaneReport, LaneSample, Lateness, OutsideModel};
pub use spool::Recording;
pub use verdict::{Fault, Limits, LossPlace, Verdict};

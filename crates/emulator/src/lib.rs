//! The path model under the real clock.
//!
//! A [`Lab`] is two hosts in network namespaces, each with a TUN device, joined by a path: any
//! program runs on it unchanged, and nothing of it touches the machine's own network. A
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
//! left, and how many were lost outside of the model: the measure of how far a run can be
//! believed.

mod awake;
mod clock;
mod engine;
mod error;
mod host;
mod icmp;
mod ip;
mod lab;
mod lane;
mod names;
mod namespace;
mod netlink;
mod priority;
mod privilege;
mod relay;
mod report;
mod ring;
mod superpacket;
mod tun;
mod udp;

pub use error::LabError;
pub use host::Host;
pub use lab::{Lab, LabOptions};
pub use lane::LaneError;
pub use namespace::Namespace;
pub use privilege::{Privilege, init};
pub use relay::Relay;
pub use report::{LabReport, LaneReport, Lateness, OutsideModel};

//! Two hosts joined by a path.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{self, Command};
use std::{fs, io};

use path::PathConfig;
use units::{Bytes, Instant};

use crate::clock::Clock;
use crate::engine::{Carrier, Engine, sources, watch};
use crate::error::{Attempt, LabError};
use crate::host::{Host, Machine};
use crate::lane::{Lane, lanes};
use crate::names::{self, Names};
use crate::namespace::Namespace;
use crate::report::{LabReport, LaneReport};
use crate::superpacket::Layout;
use crate::tun::Tun;

/// Super-packets read from one host before the other host and what is due have their turn; each
/// takes some 20 us.
const BATCH: usize = 2;

/// What the hosts of a lab are like.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// TCP congestion control of both hosts.
    pub congestion_control: String,
    /// The most one TCP connection may buffer, each way.
    pub tcp_buffer: Bytes,
    /// Whether to name the hosts under `/run/netns` where that is possible.
    pub named: bool,
}

impl Default for LabOptions {
    /// CUBIC with 256 MB: what most hosts run, without the limit that most forget to raise.
    fn default() -> Self {
        Self { congestion_control: "cubic".to_owned(), tcp_buffer: Bytes(256_000_000), named: true }
    }
}

/// Two hosts, near and far, in network namespaces joined by a path. Everything vanishes with the
/// value, and with the process when that is killed; names of a killed process vanish when the
/// next lab starts.
pub struct Lab {
    // In this order: first nothing arrives any more, then the names go, then the hosts.
    engine: Engine<Wires>,
    names: Option<Names>,
    machines: [Machine; 2],
}

impl Lab {
    /// Starts a lab.
    ///
    /// # Errors
    /// [`LabError::NotPermitted`] when this user may not; see [`init`](crate::init).
    pub fn start(path: &PathConfig, options: &LabOptions) -> Result<Self, LabError> {
        names::remove_stale();
        let lanes = lanes(path)?;
        let (near, near_tun) = Machine::create(Host::Near, options)?;
        let (far, far_tun) = Machine::create(Host::Far, options)?;
        let machines = [near, far];
        // Without names a lab works as well, so a machine that refuses them may.
        let names = options
            .named
            .then(|| Names::create(machines.each_ref().map(|m| m.namespace.as_fd())).ok())
            .flatten();
        let wires = Wires { lanes, tuns: [near_tun, far_tun] };
        let engine = wires.start().attempt("start the emulator thread")?;
        Ok(Self { engine, names, machines })
    }

    /// A command that will run on a host, with the caller's files, environment and terminal.
    pub fn command(&self, host: Host, program: impl AsRef<OsStr>) -> Command {
        self.namespace(host).command(program)
    }

    /// Runs `f` on a host, on a thread of its own: sockets it opens are the host's, and remain so
    /// wherever they are used afterwards.
    ///
    /// # Errors
    /// The kernel's, on entering the namespace.
    pub fn enter<R: Send>(&self, host: Host, f: impl FnOnce() -> R + Send) -> io::Result<R> {
        self.namespace(host).run(f)
    }

    /// The namespace of a host.
    pub fn namespace(&self, host: Host) -> &Namespace {
        &self.machines[host as usize].namespace
    }

    /// The IPv4 address of a host.
    pub fn address(&self, host: Host) -> IpAddr {
        host.address()
    }

    /// The IPv6 address of a host.
    pub fn address6(&self, host: Host) -> IpAddr {
        host.address6()
    }

    /// The start of a shell command that runs something on a host from outside of this process.
    pub fn shell_prefix(&self, host: Host) -> String {
        if let Some(names) = &self.names {
            return format!("ip netns exec {}", names.of(host));
        }
        let pid = process::id();
        let fd = self.namespace(host).as_fd().as_raw_fd();
        let net = format!("--net=/proc/{pid}/fd/{fd}");
        if in_own_user_namespace() {
            format!("nsenter --user=/proc/{pid}/ns/user --preserve-credentials {net}")
        } else {
            format!("nsenter {net}")
        }
    }

    /// What happened so far.
    pub fn stats(&self) -> LabReport {
        let mut report = self.engine.report();
        let [near, far] = &self.machines;
        report.forward.outside.device_overflow = near.overflow().unwrap_or_default();
        report.back.outside.device_overflow = far.overflow().unwrap_or_default();
        report
    }

    /// Ends the lab and says what happened.
    pub fn stop(self) -> LabReport {
        self.stats()
    }
}

/// Whether the process sits in a user namespace other than the machine's.
fn in_own_user_namespace() -> bool {
    fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().nth(2) != Some("4294967295"))
}

/// The two devices and the lanes between them.
struct Wires {
    /// Near to far, far to near.
    lanes: [Lane<Layout>; 2],
    /// Near, far.
    tuns: [Tun; 2],
}

impl Wires {
    fn start(self) -> io::Result<Engine<Self>> {
        let sources = sources()?;
        for tun in &self.tuns {
            watch(&sources, tun)?;
        }
        Engine::start(self, sources)
    }
}

impl Carrier for Wires {
    fn emit_due(&mut self, clock: &Clock) {
        for (from, lane) in self.lanes.iter_mut().enumerate() {
            lane.emit_due(clock, &mut &self.tuns[1 - from]);
        }
    }

    fn take_in(&mut self, clock: &Clock) -> bool {
        let mut more = false;
        for (lane, tun) in self.lanes.iter_mut().zip(&self.tuns) {
            more |= lane.take_batch(
                clock,
                BATCH,
                |space| tun.read(space),
                |frame, layout, segment, mtu| tun.tell_mtu(frame, layout, segment, mtu),
            );
        }
        more
    }

    fn next_due(&self) -> Option<Instant> {
        self.lanes.iter().filter_map(Lane::next_due).min()
    }

    fn report(&self) -> [LaneReport; 2] {
        self.lanes.each_ref().map(Lane::report)
    }
}

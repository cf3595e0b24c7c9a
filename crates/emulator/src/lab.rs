//! Hosts joined by a path.

use core::time::Duration;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU64, Ordering};

use path::{Adjustment, Change, HostGroup, LinkConfig, PathConfig, PathError, Scenario};
use units::{Bytes, Instant};

use crate::capture;
use crate::engine::Engine;
use crate::error::{Attempt, LabError};
use crate::host::{Host, Machine, Place};
use crate::lane::{Lane, LaneError, Segments, lanes};
use crate::names::{self, Names};
use crate::namespace::Namespace;
use crate::report::{LabReport, LabSample, LaneReport};
use crate::room::Demand;
use crate::spool::Recording;
use crate::trace::{self, Sampling};
use crate::verdict::{Limits, Verdict, least_delay};
use crate::wires::Wires;

/// The most hosts on each side of a lab: every look for packets goes to each of their devices.
pub const MAX_LAB_HOSTS: usize = 64;

/// The least MTU of hosts that speak IPv6 (RFC 8200, section 5).
pub const MIN_MTU: u32 = 1280;

/// The most that TUN allows.
pub const MAX_MTU: u32 = 65_521;

/// What the hosts of a lab are like.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// TCP congestion control of all hosts.
    pub congestion_control: String,
    /// The most one TCP connection may buffer, each way.
    pub tcp_buffer: Bytes,
    /// Whether to name the hosts under `/run/netns` where that is possible.
    pub named: bool,
    /// The MTU of the hosts' devices: 1500, or up to [`MAX_MTU`] for jumbo frames.
    pub mtu: u32,
    /// The near hosts, with the links that lead from each to the path.
    pub near: Vec<HostGroup>,
    /// The far hosts.
    pub far: Vec<HostGroup>,
}

impl Default for LabOptions {
    /// A host on each side, and CUBIC with 256 MB: what most hosts run, without the limit that
    /// most forget to raise.
    fn default() -> Self {
        Self {
            congestion_control: "cubic".to_owned(),
            tcp_buffer: Bytes(256_000_000),
            named: true,
            mtu: 1500,
            near: vec![HostGroup::default()],
            far: vec![HostGroup::default()],
        }
    }
}

impl LabOptions {
    /// As many hosts of no special kind on each side.
    #[must_use]
    pub fn with_hosts(mut self, count: u32) -> Self {
        self.near = vec![HostGroup { count, ..HostGroup::default() }];
        self.far = self.near.clone();
        self
    }

    fn groups(&self, side: Host) -> &[HostGroup] {
        match side {
            Host::Near => &self.near,
            Host::Far => &self.far,
        }
    }

    /// How many hosts a side has.
    pub(crate) fn count(&self, side: Host) -> u16 {
        u16::try_from(Scenario::hosts(self.groups(side)).take(1 + MAX_LAB_HOSTS).count())
            .expect("no more than the most")
    }

    fn check(&self) -> Result<(), LabError> {
        for side in Host::BOTH {
            let count = usize::from(self.count(side));
            if count == 0 || count > MAX_LAB_HOSTS {
                let message = format!("a lab has 1 to {MAX_LAB_HOSTS} {side} hosts");
                return Err(LabError::Options(message));
            }
            if self.groups(side).iter().any(|group| group.per_packet.is_some()) {
                let message =
                    "real hosts take the time they take: per-packet is for longhaul simulate alone";
                return Err(LabError::Options(message.to_owned()));
            }
        }
        if !(MIN_MTU..=MAX_MTU).contains(&self.mtu) {
            let message =
                format!("the hosts' MTU is from {MIN_MTU} to {MAX_MTU}, not {}", self.mtu);
            return Err(LabError::Options(message));
        }
        Ok(())
    }
}

/// Hosts in network namespaces, near and far, joined by a path. Everything vanishes with the
/// value, and with the process when that is killed; names of a killed process vanish when the
/// next lab starts.
pub struct Lab {
    // In this order: first nothing arrives any more, then the names go, then the hosts.
    engine: Engine<Wires>,
    names: Option<Names>,
    machines: [Vec<Machine>; 2],
    /// Nanoseconds of the least round-trip time there was or is on schedule.
    least_rtt: AtomicU64,
}

impl Lab {
    /// Starts a lab.
    ///
    /// # Errors
    /// [`LabError::NotPermitted`] when this user may not; see [`init`](crate::init).
    pub fn start(path: &PathConfig, options: &LabOptions) -> Result<Self, LabError> {
        names::remove_stale();
        options.check()?;
        let lanes = lanes(path, &options.near, &options.far, Bytes(options.mtu.into()))?;
        let (mut machines, mut tuns) = ([vec![], vec![]], [vec![], vec![]]);
        for side in Host::BOTH {
            for number in 0..options.count(side) {
                let (machine, tun) = Machine::create(Place { side, number }, options)?;
                machines[side as usize].push(machine);
                tuns[side as usize].push(tun);
            }
        }
        // Without names a lab works as well, so a machine that refuses them may.
        let hosts = || machines.iter().flatten().map(|m| (m.name(), m.namespace().as_fd()));
        let names = options.named.then(|| Names::create(hosts()).ok()).flatten();
        let wires = Wires { lanes, tuns, sampling: None };
        let engine = wires.start().attempt("start the emulator thread")?;
        let least_rtt = AtomicU64::new(least_rtt([&path.forward, &path.back]));
        Ok(Self { engine, names, machines, least_rtt })
    }

    /// The hosts of a side, in the order of the options.
    pub fn machines(&self, side: Host) -> &[Machine] {
        &self.machines[side as usize]
    }

    fn first(&self, side: Host) -> &Machine {
        &self.machines[side as usize][0]
    }

    /// A command that will run on a side's first host; see [`Machine::command`].
    pub fn command(&self, host: Host, program: impl AsRef<OsStr>) -> Command {
        self.first(host).command(program)
    }

    /// Runs `f` on a side's first host; see [`Machine::enter`].
    ///
    /// # Errors
    /// The kernel's, on entering the namespace.
    pub fn enter<R: Send>(&self, host: Host, f: impl FnOnce() -> R + Send) -> io::Result<R> {
        self.first(host).enter(f)
    }

    /// The namespace of a side's first host.
    pub fn namespace(&self, host: Host) -> &Namespace {
        self.first(host).namespace()
    }

    /// The IPv4 address of a side's first host.
    pub fn address(&self, host: Host) -> IpAddr {
        host.address()
    }

    /// The IPv6 address of a side's first host.
    pub fn address6(&self, host: Host) -> IpAddr {
        host.address6()
    }

    /// The start of a shell command that runs something on a side's first host from outside of
    /// this process.
    pub fn shell_prefix(&self, host: Host) -> String {
        self.shell_prefix_of(self.first(host))
    }

    /// The same for any host of the lab.
    pub fn shell_prefix_of(&self, machine: &Machine) -> String {
        if let Some(names) = &self.names {
            return format!("ip netns exec {}", names.of(&machine.name()));
        }
        let pid = process::id();
        let fd = machine.namespace().as_fd().as_raw_fd();
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
        self.ask_devices([&mut report.forward, &mut report.back]);
        report
    }

    /// Adds to the reports, forward and back, what the devices of the senders lost.
    fn ask_devices(&self, reports: [&mut LaneReport; 2]) {
        for (report, machines) in reports.into_iter().zip(&self.machines) {
            for machine in machines {
                match machine.overflow() {
                    Ok(lost) => report.outside.device_overflow += lost,
                    Err(_) => report.outside.uncounted = true,
                }
            }
        }
    }

    /// How the path stands now, and how it was since the last sample: for one reader alone.
    pub fn sample(&self) -> LabSample {
        let (elapsed, [mut forward, mut back]) = self.engine.with(|wires, now| {
            (now.since(Instant::ZERO), wires.lanes.each_mut().map(|lane| lane.sample(now)))
        });
        self.ask_devices([&mut forward.report, &mut back.report]);
        LabSample { elapsed, forward, back }
    }

    /// The path as it is now, forward and back, after all changes.
    pub fn links(&self) -> [LinkConfig; 2] {
        self.engine.with(|wires, now| wires.lanes.each_mut().map(|lane| lane.config(now).clone()))
    }

    /// Changes the path from now on; see [`Link::set`](path::Link::set).
    ///
    /// # Errors
    /// The change leads to an impossible path, or one that there is no memory for; nothing was changed.
    pub fn set(&self, change: &Adjustment) -> Result<(), LabError> {
        let changes = [&change.forward, &change.back];
        let [forward, back] =
            self.engine.with(|wires, now| demands(&mut wires.lanes, now, changes))?;
        // Made here: it takes long, and packets are to leave in time meanwhile.
        let memory = [forward.memory()?, back.memory()?];
        self.engine.with(|wires, now| {
            // Once more, and both before either is changed: the schedule may have changed them meanwhile.
            demands(&mut wires.lanes, now, changes)?;
            for ((lane, change), memory) in wires.lanes.iter_mut().zip(changes).zip(memory) {
                lane.set(now, change, memory)?;
            }
            let rtt = least_rtt(wires.lanes.each_mut().map(|lane| lane.config(now)));
            self.least_rtt.fetch_min(rtt, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Writes what the hosts of a side send, and what is delivered to them, into a pcap-ng file
    /// from now on: packet by packet, of each the first `snap` bytes. A later capture of the same
    /// side takes its place.
    ///
    /// # Errors
    /// The file could not be written to.
    pub fn capture(
        &self,
        side: Host,
        file: impl Write + Send + 'static,
        snap: usize,
    ) -> io::Result<Recording> {
        let names: Vec<_> = self.machines(side).iter().map(Machine::name).collect();
        let (recording, taps) = capture::start(file, &names, snap, self.engine.clock())?;
        self.engine.with(|wires, _| {
            for (tun, tap) in wires.tuns[side as usize].iter_mut().zip(taps) {
                tun.tap = Some(tap);
            }
        });
        Ok(recording)
    }

    /// Writes, from now on, the length of both queues every `interval` and every drop with its
    /// cause into a CSV file. A later trace takes its place.
    ///
    /// # Errors
    /// The file could not be written to.
    pub fn trace(
        &self,
        file: impl Write + Send + 'static,
        interval: Duration,
    ) -> io::Result<Recording> {
        let (recording, tracers) = trace::start(file)?;
        self.engine.with(|wires, _| {
            wires.sampling = Some(Sampling::new(interval));
            for (lane, tracer) in wires.lanes.iter_mut().zip(tracers) {
                lane.trace(tracer);
            }
        });
        Ok(recording)
    }

    /// How exact the run must have been: [`Limits::of`] the path with the least round-trip time
    /// that it had so far or has on its schedule.
    pub fn limits(&self) -> Limits {
        Limits::of_rtt(Duration::from_nanos(self.least_rtt.load(Ordering::Relaxed)))
    }

    /// Whether what happened so far can be believed, by the limits that suit the path.
    pub fn verdict(&self) -> Verdict {
        self.stats().verdict(&self.limits())
    }

    /// Ends the lab and says what happened.
    pub fn stop(self) -> LabReport {
        self.stats()
    }
}

/// What changes of the links, forward and back, ask for.
fn demands<M: Segments>(
    [forward, back]: &mut [Lane<M>; 2],
    now: Instant,
    changes: [&Change; 2],
) -> Result<[Demand; 2], LaneError> {
    let moved = forward.moved_by(now, changes[0]) || back.moved_by(now, changes[1]);
    if moved && changes.iter().any(|change| change.needs_rtt()) {
        return Err(PathError::OldRtt.into());
    }
    Ok([forward.demand(now, changes[0])?, back.demand(now, changes[1])?])
}

/// Nanoseconds of the least round-trip time that these links, forward and back, have or will have
/// by their schedules.
fn least_rtt(links: [&LinkConfig; 2]) -> u64 {
    let rtt: Duration = links.map(least_delay).iter().sum();
    u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether the process sits in a user namespace other than the machine's.
fn in_own_user_namespace() -> bool {
    fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().nth(2) != Some("4294967295"))
}

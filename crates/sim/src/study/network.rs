//! Hosts, the links between them, and what happens next.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use path::{DropCause, Fate, HostGroup, Link, Packet, Scenario};
use units::{Bytes, Instant};

use super::Study;
use super::flow::{Body, End, Flow, FlowConfig, Protocol, Standing};
use super::tcp::TcpFlow;
use super::udp::UdpFlow;
use crate::tcp::Source;

/// When every run begins: late enough that times before it exist.
const START: Instant = Instant::from_nanos(1_000_000_000);
/// The bottleneck's two links.
const FORWARD: usize = 0;
const BACK: usize = 1;

/// A packet under way.
struct Parcel {
    flow: u32,
    /// Where it goes.
    to: End,
    body: Body,
}

/// Where a link leads.
#[derive(Clone, Copy)]
enum Leads {
    /// From a host to the bottleneck's link of this number.
    ToPath(usize),
    /// Across the path.
    Across,
    /// To a host.
    ToHost,
}

/// The links of a host, to the path and from it, if it has any.
type Access = Option<(usize, usize)>;

/// A flow, and what became of its packets.
pub(super) struct Line {
    ends: Box<dyn Flow>,
    forward: bool,
    near: usize,
    far: usize,
    stop: Instant,
    /// Data packets dropped before a link, and on one.
    pub(super) dropped: (u64, u64),
}

impl Line {
    pub(super) fn standing(&self) -> Standing {
        self.ends.standing()
    }
}

/// Everything that happens in a run. Whoever has something to do, links by their numbers and behind
/// them the ends of flows, stands in one queue by time, then by number.
pub(super) struct Network {
    now: Instant,
    agenda: BinaryHeap<Reverse<(Instant, u32)>>,
    /// For when each of them stands there; other entries are void.
    planned: Vec<Instant>,
    links: Vec<Link<Parcel>>,
    leads: Vec<Leads>,
    near: Vec<Access>,
    far: Vec<Access>,
    pub(super) flows: Vec<Line>,
    mtu: Bytes,
    seed: u64,
    /// Packets that any link took.
    pub(super) packets: u64,
    out: Vec<Body>,
}

impl Network {
    pub(super) fn new(study: &Study) -> Self {
        let (forward, back) = study.path.links().expect("a valid path");
        let mut network = Self {
            now: START,
            agenda: BinaryHeap::new(),
            planned: Vec::new(),
            links: vec![forward, back],
            leads: vec![Leads::Across; 2],
            near: Vec::new(),
            far: Vec::new(),
            flows: Vec::new(),
            mtu: study.mtu(),
            seed: study.path.seed,
            packets: 0,
            out: Vec::new(),
        };
        network.near = network.access(study, &study.near, FORWARD);
        network.far = network.access(study, &study.far, BACK);
        network.planned = vec![Instant::FAR_FUTURE; network.links.len()];
        for config in &study.flows {
            network.add(config);
        }
        network
    }

    /// Adds a flow; gives its number.
    pub(super) fn add(&mut self, config: &FlowConfig) -> usize {
        let index = self.flows.len();
        // Neighbouring seeds must not meet each other's flows.
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64;
        self.flows.push(line(config, self.mtu, seed));
        self.planned.extend([Instant::FAR_FUTURE; 2]);
        self.plan_end(index, End::Sender);
        index
    }

    /// Cuts a flow off at a time.
    pub(super) fn stop(&mut self, flow: usize, at: Duration) {
        self.flows[flow].stop = START + at;
    }

    /// Makes the links of a side's hosts, which lead to the bottleneck's link `to`.
    fn access(&mut self, study: &Study, groups: &[HostGroup], to: usize) -> Vec<Access> {
        let rtt = study.path.rtt();
        let mut host = |group: &HostGroup| {
            let link = group.link()?;
            let number = self.links.len();
            for (at, leads) in [(0, Leads::ToPath(to)), (1, Leads::ToHost)] {
                let seed = study.path.seed ^ ((number + at) as u64) << 32;
                self.links.push(link.link(rtt, seed).expect("a valid link"));
                self.leads.push(leads);
            }
            Some((number, number + 1))
        };
        Scenario::hosts(groups).map(&mut host).collect()
    }

    /// The bottleneck's link from near to far.
    pub(super) fn bottleneck(&self, forward: bool) -> &Link<impl Sized> {
        &self.links[if forward { FORWARD } else { BACK }]
    }

    /// When a time of the network is, counted from its start.
    pub(super) fn since_start(at: Instant) -> Duration {
        at.since(START)
    }

    /// Runs until this long after the start.
    pub(super) fn run_until(&mut self, elapsed: Duration) {
        let end = START + elapsed;
        while let Some(&Reverse((at, number))) = self.agenda.peek().filter(|next| next.0.0 <= end) {
            self.agenda.pop();
            let number = number as usize;
            if self.planned[number] != at {
                continue;
            }
            self.planned[number] = Instant::FAR_FUTURE;
            self.now = at;
            match number.checked_sub(self.links.len()) {
                None => self.empty(number),
                Some(end) => {
                    self.run(end / 2, if end % 2 == 0 { End::Sender } else { End::Receiver })
                }
            }
        }
        self.now = end;
        self.links[..2].iter_mut().for_each(|link| link.advance(end));
    }

    /// `number` has something to do at this time; whether it still has, it sees then.
    fn plan(&mut self, number: usize, at: Option<Instant>) {
        let Some(at) = at.map(|at| at.max(self.now)) else { return };
        if at < self.planned[number] {
            self.planned[number] = at;
            self.agenda.push(Reverse((at, number as u32)));
        }
    }

    fn plan_end(&mut self, flow: usize, end: End) {
        let next = self.flows[flow].ends.next(end);
        self.plan(self.links.len() + 2 * flow + end as usize, next);
    }

    /// Takes from a link what has reached its end.
    fn empty(&mut self, link: usize) {
        while let Some(exit) = self.links[link].poll(self.now) {
            let parcel = exit.item;
            if exit.fate != Fate::Delivered {
                let early = matches!(exit.fate, Fate::Dropped(DropCause::Queue | DropCause::Early));
                self.count_drop(&parcel, early);
                continue;
            }
            match self.leads[link] {
                Leads::ToPath(path) => self.send(path, parcel),
                Leads::ToHost => self.arrive(parcel),
                Leads::Across => {
                    let line = &self.flows[parcel.flow as usize];
                    let host =
                        if link == FORWARD { self.far[line.far] } else { self.near[line.near] };
                    match host {
                        Some((_, from_path)) => self.send(from_path, parcel),
                        None => self.arrive(parcel),
                    }
                }
            }
        }
        self.plan(link, self.links[link].next_exit());
    }

    fn send(&mut self, link: usize, parcel: Parcel) {
        let packet = Packet { flow: u64::from(parcel.flow), ..Packet::new(parcel.body.size()) };
        self.packets += 1;
        match self.links[link].send_packet(self.now, packet, parcel) {
            Ok(()) => self.plan(link, self.links[link].next_exit()),
            Err(refused) => self.count_drop(&refused.item, true),
        }
    }

    fn count_drop(&mut self, parcel: &Parcel, early: bool) {
        let dropped = &mut self.flows[parcel.flow as usize].dropped;
        if parcel.to == End::Receiver {
            *(if early { &mut dropped.0 } else { &mut dropped.1 }) += 1;
        }
    }

    fn arrive(&mut self, parcel: Parcel) {
        let Parcel { flow, to, body } = parcel;
        let mut out = core::mem::take(&mut self.out);
        let line = &mut self.flows[flow as usize];
        if self.now < line.stop {
            line.ends.arrive(self.now, to, body, &mut out);
        }
        self.out = out;
        self.run(flow as usize, to);
    }

    /// Lets an end do what is due, and sends what comes of it and of what arrived.
    fn run(&mut self, flow: usize, end: End) {
        let line = &mut self.flows[flow];
        if self.now >= line.stop {
            return;
        }
        let mut out = core::mem::take(&mut self.out);
        line.ends.run(self.now, end, &mut out);
        let (near, far) = (line.near, line.far);
        // The near end sends forward.
        let forward = line.forward == (end == End::Sender);
        let access = if forward { self.near[near] } else { self.far[far] };
        let link = access.map_or(if forward { FORWARD } else { BACK }, |(to_path, _)| to_path);
        let to = if end == End::Sender { End::Receiver } else { End::Sender };
        for body in out.drain(..) {
            self.send(link, Parcel { flow: flow as u32, to, body });
        }
        self.out = out;
        self.plan_end(flow, end);
    }
}

fn line(config: &FlowConfig, mtu: Bytes, seed: u64) -> Line {
    let start = START + config.start;
    let ends: Box<dyn Flow> = match &config.protocol {
        Protocol::Tcp(tcp) => Box::new(TcpFlow::new(tcp, config.source, start, seed)),
        Protocol::Longhaul(transport) => {
            let amount = match config.source {
                Source::Fixed(size) => size.0,
                Source::Greedy | Source::Http(_) => u64::MAX,
            };
            Box::new(UdpFlow::new(transport, amount, mtu, start, seed))
        }
    };
    let stop = config.stop.map_or(Instant::FAR_FUTURE, |stop| START + stop);
    let FlowConfig { from_far, near, far, .. } = *config;
    Line { ends, forward: !from_far, near, far, stop, dropped: (0, 0) }
}

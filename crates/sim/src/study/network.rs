//! Hosts, the links between them, and what happens next.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use path::{DropCause, Fate, HostGroup, Link, LinkConfig, Packet, Scenario};
use slab::Slab;
use units::{Bytes, Instant};

use super::Study;
use super::flow::{Body, End, Flow, FlowConfig, Protocol, Standing};
use super::tcp::TcpFlow;
use super::topology::{FAR, NEAR, Topology, Wire};
use super::udp::UdpFlow;
use crate::tcp::Source;

/// When every run begins: late enough that times before it exist. Links count from the run's beginning, as
/// their changes and traces do.
pub(super) const START: Instant = Instant::from_nanos(1_000_000_000);
/// The bottleneck's two links.
const FORWARD: usize = 0;
const BACK: usize = 1;

/// The time of a link, which begins with the run.
fn link_time(now: Instant) -> Instant {
    Instant::ZERO + now.since(START)
}

/// A packet under way. Links move it from queue to queue, so what it carries stays where it is.
struct Parcel {
    flow: u32,
    /// Its place among all bodies.
    body: u32,
    /// Links of its route that are behind it.
    passed: u16,
    /// Where it goes.
    to: End,
    /// A link damaged it and let it pass: a checksum or a seal finds that at the end.
    damaged: bool,
}

/// The links of a host, to the path and from it: its own if it has one, and what stands for its
/// processing.
type Access = [Vec<usize>; 2];

/// A flow, and what became of its packets.
pub(super) struct Line {
    ends: Box<dyn Flow>,
    /// The links to the sender, and those to the receiver.
    routes: [Vec<usize>; 2],
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
    /// What reports call the links.
    names: Vec<String>,
    topology: Topology,
    near: Vec<Access>,
    far: Vec<Access>,
    pub(super) flows: Vec<Line>,
    /// What the packets under way carry.
    bodies: Slab<Body>,
    mtu: Bytes,
    seed: u64,
    /// Packets offered to any link.
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
            names: vec!["near to far".to_owned(), "far to near".to_owned()],
            topology: Topology::default(),
            near: Vec::new(),
            far: Vec::new(),
            flows: Vec::new(),
            bodies: Slab::new(),
            mtu: study.mtu(),
            seed: study.path.seed,
            packets: 0,
            out: Vec::new(),
        };
        network.topology.add(NEAR, FAR, FORWARD);
        network.topology.add(FAR, NEAR, BACK);
        network.near = network.access(study, "near", &study.near);
        network.far = network.access(study, "far", &study.far);
        for Wire { ends: (one, other), names: [from, to], link } in &study.wires {
            let number = network.link(study, link, format!("{from} to {to}"));
            network.topology.add(*one, *other, number);
            let number = network.link(study, link, format!("{to} to {from}"));
            network.topology.add(*other, *one, number);
        }
        network.planned = vec![Instant::FAR_FUTURE; network.links.len()];
        for config in &study.flows {
            network.add(config);
        }
        network
    }

    /// Adds a flow; gives its number.
    pub(super) fn add(&mut self, config: &FlowConfig) -> usize {
        // Neighbouring seeds must not meet each other's flows.
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.flows.len() as u64;
        let stop = config.stop.map_or(Instant::FAR_FUTURE, |stop| START + stop);
        let places = [(config.between.0, config.near), (config.between.1, config.far)];
        let [sender, receiver] = if config.from_far { [1, 0] } else { [0, 1] };
        self.attach(ends(config, self.mtu, seed), [places[sender], places[receiver]], stop)
    }

    /// Adds a flow of any make, from a near host to a far one.
    pub(super) fn join(&mut self, ends: Box<dyn Flow>, near: usize, far: usize) -> usize {
        self.attach(ends, [(NEAR, near), (FAR, far)], Instant::FAR_FUTURE)
    }

    /// Adds a flow from the first place to the second: routers, and their hosts' numbers.
    pub(super) fn attach(
        &mut self,
        ends: Box<dyn Flow>,
        places: [(usize, usize); 2],
        stop: Instant,
    ) -> usize {
        let index = self.flows.len();
        let routes = [self.route(places[1], places[0]), self.route(places[0], places[1])];
        self.flows.push(Line { ends, routes, stop, dropped: (0, 0) });
        self.planned.extend([Instant::FAR_FUTURE; 2]);
        self.plan_end(index, End::Sender);
        index
    }

    /// Cuts a flow off at a time.
    pub(super) fn stop(&mut self, flow: usize, at: Duration) {
        self.flows[flow].stop = START + at;
    }

    /// The links from a host of one router to a host of another.
    fn route(&self, from: (usize, usize), to: (usize, usize)) -> Vec<usize> {
        let access = |(router, host): (usize, usize), way: usize| match router {
            NEAR => &self.near[host][way][..],
            FAR => &self.far[host][way][..],
            _ => &[],
        };
        let way = self.topology.way(from.0, to.0).expect("routers are joined");
        [access(from, 0), &way[..], access(to, 1)].concat()
    }

    /// Makes the links of a side's hosts.
    fn access(&mut self, study: &Study, side: &str, groups: &[HostGroup]) -> Vec<Access> {
        let host = |(number, group): (usize, &HostGroup)| {
            let mut ways = Access::default();
            let processing =
                group.processing().map(|link| (link, ["processing from", "processing to"]));
            for (link, names) in
                processing.into_iter().chain(group.link().map(|it| (it, ["from", "to"])))
            {
                for (way, name) in ways.iter_mut().zip(names) {
                    way.push(self.link(study, &link, format!("{name} {side} host {number}")));
                }
            }
            // What it receives comes over its link first.
            ways[1].reverse();
            ways
        };
        (1..).zip(Scenario::hosts(groups)).map(host).collect()
    }

    /// Makes a link; its number.
    fn link(&mut self, study: &Study, config: &LinkConfig, name: String) -> usize {
        self.names.push(name);
        let number = self.links.len();
        let seed = study.path.seed ^ (number as u64) << 32;
        self.links.push(config.link(study.path.rtt(), seed).expect("a valid link"));
        number
    }

    /// All links in the order of their numbers.
    pub(super) fn links(&self) -> impl Iterator<Item = &Link<impl Sized>> {
        self.links.iter()
    }

    /// What a link is called.
    pub(super) fn name(&self, link: usize) -> &str {
        &self.names[link]
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
        self.links.iter_mut().for_each(|link| link.advance(link_time(end)));
    }

    /// `number` has something to do at this time; whether it still has, it sees then.
    fn plan(&mut self, number: usize, at: Option<Instant>) {
        let Some(at) = at.map(|at| at.max(self.now)) else { return };
        if at < self.planned[number] {
            self.planned[number] = at;
            self.agenda.push(Reverse((at, number as u32)));
        }
    }

    fn plan_exit(&mut self, link: usize) {
        let next = self.links[link].next_exit();
        self.plan(link, next.map(|at| START + at.since(Instant::ZERO)));
    }

    fn plan_end(&mut self, flow: usize, end: End) {
        let next = self.flows[flow].ends.next(end);
        self.plan(self.links.len() + 2 * flow + end as usize, next);
    }

    /// Takes from a link what has reached its end.
    fn empty(&mut self, link: usize) {
        while let Some(exit) = self.links[link].poll(link_time(self.now)) {
            let mut parcel = exit.item;
            if exit.fate != Fate::Delivered {
                let early = matches!(exit.fate, Fate::Dropped(DropCause::Queue | DropCause::Early));
                self.lose(&parcel, early);
                continue;
            }
            parcel.passed += 1;
            parcel.damaged |= exit.damage.is_some();
            let body = &mut self.bodies[parcel.body as usize];
            if exit.marked {
                body.mark();
            }
            if exit.duplicated {
                let copy = body.clone();
                let body = self.bodies.insert(copy) as u32;
                self.forward(Parcel { body, ..parcel });
            }
            self.forward(parcel);
        }
        self.plan_exit(link);
    }

    /// A packet goes on to the next link of its route, or has arrived.
    fn forward(&mut self, parcel: Parcel) {
        let route = &self.flows[parcel.flow as usize].routes[parcel.to as usize];
        let Some(&link) = route.get(usize::from(parcel.passed)) else {
            return self.arrive(parcel);
        };
        let body = &self.bodies[parcel.body as usize];
        let (size, ecn_capable) = (body.size(), body.is_ecn_capable());
        let packet = Packet { size, flow: u64::from(parcel.flow), ecn_capable };
        self.packets += 1;
        match self.links[link].send_packet(link_time(self.now), packet, parcel) {
            Ok(()) => self.plan_exit(link),
            Err(refused) => self.lose(&refused.item, true),
        }
    }

    fn lose(&mut self, parcel: &Parcel, early: bool) {
        self.bodies.remove(parcel.body as usize);
        let dropped = &mut self.flows[parcel.flow as usize].dropped;
        if parcel.to == End::Receiver {
            *(if early { &mut dropped.0 } else { &mut dropped.1 }) += 1;
        }
    }

    fn arrive(&mut self, parcel: Parcel) {
        if parcel.damaged {
            return self.lose(&parcel, false);
        }
        let Parcel { flow, to, body, .. } = parcel;
        let body = self.bodies.remove(body as usize);
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
        let to = if end == End::Sender { End::Receiver } else { End::Sender };
        for body in out.drain(..) {
            let body = self.bodies.insert(body) as u32;
            self.forward(Parcel { flow: flow as u32, body, passed: 0, to, damaged: false });
        }
        self.out = out;
        self.plan_end(flow, end);
    }
}

fn ends(config: &FlowConfig, mtu: Bytes, seed: u64) -> Box<dyn Flow> {
    let start = START + config.start;
    match &config.protocol {
        Protocol::Tcp(tcp) => Box::new(TcpFlow::new(tcp, config.source, start, seed)),
        Protocol::Longhaul(transport) => {
            let amount = match config.source {
                Source::Fixed(size) => size.0,
                Source::Greedy | Source::Http(_) => u64::MAX,
            };
            Box::new(UdpFlow::new(transport, amount, mtu, start, seed))
        }
    }
}

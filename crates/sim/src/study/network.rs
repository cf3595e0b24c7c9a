//! Hosts, the links between them, and what happens next.

use core::time::Duration;

use path::{DropCause, Fate, HostGroup, Link, LinkConfig, Packet, Scenario};
use units::{Bytes, Instant};

use super::Study;
use super::agenda::Agenda;
use super::body::{Bodies, Body, Sent};
use super::flow::{End, Flow, FlowConfig, Protocol, Standing};
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
    Instant::from_nanos(now.as_nanos() - START.as_nanos())
}

/// A packet under way. Links move it from queue to queue, so what it carries stays where it is.
struct Parcel {
    flow: u32,
    body: Body,
    ecn_capable: bool,
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

/// Everything that happens in a run, by time; at the same time links come before the ends of flows, and each by
/// their numbers.
pub(super) struct Network {
    now: Instant,
    /// When something may leave each link.
    exits: Agenda,
    /// And when each end of a flow is to be run: those of the first, then those of the second ...
    runs: Agenda,
    links: Vec<Link<Parcel>>,
    /// What reports call the links.
    names: Vec<String>,
    topology: Topology,
    near: Vec<Access>,
    far: Vec<Access>,
    pub(super) flows: Vec<Line>,
    /// What the packets under way carry.
    bodies: Bodies,
    mtu: Bytes,
    seed: u64,
    /// Packets offered to any link.
    pub(super) packets: u64,
}

impl Network {
    pub(super) fn new(study: &Study) -> Self {
        let (forward, back) = study.path.unchanging_links().expect("a valid path");
        let mut network = Self {
            now: START,
            exits: Agenda::default(),
            runs: Agenda::default(),
            links: vec![forward, back],
            names: vec!["near to far".to_owned(), "far to near".to_owned()],
            topology: Topology::default(),
            near: Vec::new(),
            far: Vec::new(),
            flows: Vec::new(),
            bodies: Bodies::default(),
            mtu: study.mtu(),
            seed: study.path.seed,
            packets: 0,
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
        for _ in 0..network.links.len() {
            network.exits.add();
        }
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
        for _ in [End::Sender, End::Receiver] {
            self.runs.add();
        }
        self.plan(index, End::Sender, self.next_run(index, End::Sender));
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
        self.links.push(config.unchanging(study.path.rtt(), seed).expect("a valid link"));
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
        loop {
            let (exit, run) = (self.exits.first(), self.runs.first());
            self.now = exit.0.min(run.0);
            if self.now > end || self.now == Instant::FAR_FUTURE {
                break;
            }
            if exit.0 <= run.0 {
                let next = self.empty(exit.1);
                self.exits.set(exit.1, next.max(self.now));
            } else {
                let end = if run.1 % 2 == 0 { End::Sender } else { End::Receiver };
                let next = self.run(run.1 / 2, end);
                self.runs.set(run.1, next.max(self.now));
            }
        }
        self.now = end;
        self.links.iter_mut().for_each(|link| link.advance(link_time(end)));
    }

    /// When something may leave a link.
    fn next_exit(&self, link: usize) -> Instant {
        let next = self.links[link].next_exit().map_or(u64::MAX, Instant::as_nanos);
        Instant::from_nanos(next.saturating_add(START.as_nanos()))
    }

    /// An end of a flow has something to do at this time, if not before. Whether it still has, it sees then.
    fn plan(&mut self, flow: usize, end: End, at: Instant) {
        let (number, at) = (2 * flow + end as usize, at.max(self.now));
        if at < self.runs.at(number) {
            self.runs.set(number, at);
        }
    }

    /// Takes from a link what has reached its end; when more may have.
    fn empty(&mut self, link: usize) -> Instant {
        while let Some(exit) = self.links[link].poll(link_time(self.now)) {
            let mut parcel = exit.item;
            if exit.fate != Fate::Delivered {
                let early = matches!(exit.fate, Fate::Dropped(DropCause::Queue | DropCause::Early));
                self.lose(&parcel, early);
                continue;
            }
            parcel.passed += 1;
            parcel.damaged |= exit.damage.is_some();
            if exit.marked {
                self.bodies.mark(parcel.body);
            }
            if exit.duplicated {
                let body = self.bodies.copy(parcel.body);
                self.forward(exit.size, Parcel { body, ..parcel });
            }
            self.forward(exit.size, parcel);
        }
        self.next_exit(link)
    }

    /// A packet of this size goes on to the next link of its route, or has arrived.
    fn forward(&mut self, size: Bytes, parcel: Parcel) {
        let route = &self.flows[parcel.flow as usize].routes[parcel.to as usize];
        let Some(&link) = route.get(usize::from(parcel.passed)) else {
            return self.arrive(parcel);
        };
        let Parcel { flow, ecn_capable, .. } = parcel;
        let packet = Packet { size, flow: flow.into(), ecn_capable };
        self.packets += 1;
        match self.links[link].send_packet(link_time(self.now), packet, parcel) {
            Ok(()) => {
                let next = self.next_exit(link).max(self.now);
                if next < self.exits.at(link) {
                    self.exits.set(link, next);
                }
            }
            Err(refused) => self.lose(&refused.item, true),
        }
    }

    fn lose(&mut self, parcel: &Parcel, early: bool) {
        self.bodies.discard(parcel.body);
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
        let line = &mut self.flows[flow as usize];
        if self.now < line.stop {
            line.ends.arrive(self.now, to, body, &mut self.bodies);
            let next = self.run(flow as usize, to);
            self.plan(flow as usize, to, next);
        } else {
            self.bodies.discard(body);
        }
    }

    /// Lets an end do what is due, and sends what comes of it and of what arrived; when to do so again.
    fn run(&mut self, flow: usize, end: End) -> Instant {
        let line = &mut self.flows[flow];
        if self.now >= line.stop {
            return Instant::FAR_FUTURE;
        }
        line.ends.run(self.now, end, &mut self.bodies);
        let to = if end == End::Sender { End::Receiver } else { End::Sender };
        let mut sent = core::mem::take(&mut self.bodies.sent);
        for Sent { body, size, ecn_capable } in sent.drain(..) {
            let flow = flow as u32;
            self.forward(size, Parcel { flow, body, ecn_capable, passed: 0, to, damaged: false });
        }
        self.bodies.sent = sent;
        self.next_run(flow, end)
    }

    fn next_run(&self, flow: usize, end: End) -> Instant {
        self.flows[flow].ends.next(end).unwrap_or(Instant::FAR_FUTURE)
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

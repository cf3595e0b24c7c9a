//! Hosts, the links between them, and what happens next.

use core::time::Duration;

use path::{HostGroup, LinkConfig, Scenario, Unchanging};
use units::{Bytes, Instant};

use super::Study;
use super::agenda::Agenda;
use super::flow::{End, Flow, FlowConfig, Protocol, Standing};
use super::tcp::TcpFlow;
use super::topology::{FAR, NEAR, Topology, Wire};
use super::transit::{Parcel, Place, Transit};
use super::udp::UdpFlow;
use crate::tcp::Source;

/// When every run begins: late enough that times before it exist. Links count from the run's beginning, as
/// their changes and traces do.
pub(super) const START: Instant = Instant::from_nanos(1_000_000_000);
/// The bottleneck's two links.
const FORWARD: usize = 0;
const BACK: usize = 1;

/// The links of a host, to the path and from it: its own if it has one, and what stands for its
/// processing.
type Access = [Vec<usize>; 2];

/// A flow, and when it is cut off.
pub(super) struct Line {
    ends: Box<dyn Flow>,
    stop: Instant,
}

impl Line {
    pub(super) fn standing(&self) -> Standing {
        self.ends.standing()
    }
}

/// Everything that happens in a run, by time; at the same time links come before the ends of flows, and each by
/// their numbers.
pub(super) struct Network {
    transit: Transit,
    /// When each end of a flow is to be run: those of the first, then those of the second ...
    runs: Agenda,
    /// What reports call the links.
    names: Vec<String>,
    topology: Topology,
    near: Vec<Access>,
    far: Vec<Access>,
    pub(super) flows: Vec<Line>,
    mtu: Bytes,
    seed: u64,
}

impl Network {
    pub(super) fn new(study: &Study) -> Self {
        let (forward, back) = study.path.unchanging_links().expect("a valid path");
        let mut network = Self {
            transit: Transit::new(),
            runs: Agenda::default(),
            names: vec!["near to far".to_owned(), "far to near".to_owned()],
            topology: Topology::default(),
            near: Vec::new(),
            far: Vec::new(),
            flows: Vec::new(),
            mtu: study.mtu(),
            seed: study.path.seed,
        };
        for link in [forward, back] {
            network.transit.add_link(link);
        }
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
        self.transit.add_route(routes);
        self.flows.push(Line { ends, stop });
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
        let seed = study.path.seed ^ (self.transit.links().len() as u64) << 32;
        self.names.push(name);
        self.transit.add_link(config.unchanging(study.path.rtt(), seed).expect("a valid link"))
    }

    /// All links in the order of their numbers.
    pub(super) fn links(&self) -> &[Unchanging<Place>] {
        self.transit.links()
    }

    /// Packets offered to any link.
    pub(super) fn packets(&self) -> u64 {
        self.transit.packets
    }

    /// Data packets of a flow that were dropped before a link, and on one.
    pub(super) fn dropped(&self, flow: usize) -> (u64, u64) {
        self.transit.dropped(flow)
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
            let (exit, run) = (self.transit.first_exit(), self.runs.first());
            let now = exit.0.min(run.0);
            if now > end || now == Instant::FAR_FUTURE {
                break;
            }
            self.transit.now = now;
            if exit.0 <= run.0 {
                while let Some(parcel) = self.transit.poll(exit.1) {
                    self.arrive(parcel);
                    self.arrive_all();
                }
            } else {
                let end = if run.1 % 2 == 0 { End::Sender } else { End::Receiver };
                let next = self.run(run.1 / 2, end);
                self.runs.set(run.1, next.max(now));
                self.arrive_all();
            }
        }
        self.transit.advance(end);
    }

    /// An end of a flow has something to do at this time, if not before. Whether it still has, it sees then.
    #[inline(always)]
    fn plan(&mut self, flow: usize, end: End, at: Instant) {
        let (number, at) = (2 * flow + end as usize, at.max(self.transit.now));
        if at < self.runs.at(number) {
            self.runs.set(number, at);
        }
    }

    /// Hands over what has arrived at once.
    #[inline(always)]
    fn arrive_all(&mut self) {
        while let Some(parcel) = self.transit.next_arrived() {
            self.arrive(parcel);
        }
    }

    /// A packet is where it goes: its end takes it, and does what is due.
    #[inline(always)]
    fn arrive(&mut self, parcel: Parcel) {
        if parcel.damaged {
            return self.transit.count_lost(parcel, false);
        }
        let now = self.transit.now;
        let Parcel { flow, to, body, .. } = parcel;
        let line = &mut self.flows[flow as usize];
        if now >= line.stop {
            return self.transit.discard(body);
        }
        let next = line.ends.take(now, to, body, &mut self.transit.outlet(flow, to));
        self.plan(flow as usize, to, next.unwrap_or(Instant::FAR_FUTURE));
    }

    /// Lets an end do what is due; when to do so again.
    fn run(&mut self, flow: usize, end: End) -> Instant {
        let line = &mut self.flows[flow];
        if self.transit.now >= line.stop {
            return Instant::FAR_FUTURE;
        }
        line.ends.run(self.transit.now, end, &mut self.transit.outlet(flow as u32, end));
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

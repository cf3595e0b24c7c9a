//! Hosts, the links between them, and what happens next.

use core::time::Duration;

use path::{Arrival, HostGroup, LinkConfig, Scenario, Unchanging};
use units::{Bytes, Instant};

use super::Study;
use super::agenda::Agenda;
use super::flow::{End, Flow, FlowConfig, Protocol, Standing};
use super::parcel::{Label, Parcel};
use super::sites::Sites;
use super::striped::StripedFlow;
use super::tcp::TcpFlow;
use super::topology::{FAR, NEAR, Topology, Wire};
use super::transit::{Transit, Turn};
use super::udp::{Manner, UdpFlow};
use crate::tcp::Source;
use crate::world::START;

/// Separates the random numbers of flows from those of links.
const FLOWS: u64 = 0xa409_3822_299f_31d0;
/// The links of a host, to the path and from it: its own if it has one, and what stands for its
/// processing.
type Access = [Vec<usize>; 2];

/// A flow, and when it is cut off.
pub(super) struct Line {
    ends: Box<dyn Flow>,
    stop: Instant,
    /// The sites of its sender and its receiver, and their slots there.
    places: [(usize, usize); 2],
}

impl Line {
    pub(super) fn standing(&self) -> Standing {
        self.ends.standing()
    }
}

/// Everything that happens in a run.
///
/// What happens at a site ([`Sites`]) is by time; at the same time links come before the ends of flows, and each by
/// their numbers. What happens at another is not known before the lookahead is over, so that for as long each site runs
/// by itself: what it needs stays at hand, and mostly the next packet comes over the same link.
pub(super) struct Network {
    transit: Transit,
    sites: Sites,
    /// At each site, when each end of a flow there is to be run: twice the flow's number, and one more for its receiver.
    runs: Vec<Agenda>,
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
    /// A study's network, with its flows.
    pub(super) fn new(study: &Study) -> Self {
        let mut network = Self::undivided(study);
        let flows = (0..).zip(&study.flows);
        let flows: Vec<_> = flows.map(|(index, config)| network.ends(config, index)).collect();
        if flows.iter().all(|ends| ends.is_told_by_packets()) {
            network.divide();
        }
        for (config, ends) in study.flows.iter().zip(flows) {
            network.place(config, ends);
        }
        network
    }

    /// A study's network without its flows, as one site: the ends of those that are added may know of each other what they
    /// like.
    pub(super) fn undivided(study: &Study) -> Self {
        let mut network = Self {
            transit: Transit::new(),
            sites: Sites::one(),
            runs: vec![Agenda::default()],
            names: Vec::new(),
            topology: Topology::default(),
            near: Vec::new(),
            far: Vec::new(),
            flows: Vec::new(),
            mtu: study.mtu(),
            seed: study.path.seed,
        };
        let (forward, back) = study.path.unchanging_links(START).expect("a valid path");
        network.join_routers((NEAR, FAR), forward, "near to far".to_owned());
        network.join_routers((FAR, NEAR), back, "far to near".to_owned());
        network.near = network.access(study, (NEAR, "near"), &study.near);
        network.far = network.access(study, (FAR, "far"), &study.far);
        for Wire { ends: (one, other), names: [from, to], link } in &study.wires {
            let there = network.link(study, link);
            network.join_routers((*one, *other), there, format!("{from} to {to}"));
            let back = network.link(study, link);
            network.join_routers((*other, *one), back, format!("{to} to {from}"));
        }
        network.transit.divide(&network.sites);
        network
    }

    /// Makes as many sites as there can be, while there are no flows.
    fn divide(&mut self) {
        let links = self.topology.links().iter();
        let links = links.map(|&(from, to, link)| (from, to, self.transit.link(link).lookahead()));
        self.sites = Sites::divided(&links.collect::<Vec<_>>());
        self.transit.divide(&self.sites);
        self.runs = vec![Agenda::default(); self.sites.count()];
    }

    fn ends(&self, config: &FlowConfig, index: usize) -> Box<dyn Flow> {
        // In the high bits, so that neighbouring seeds do not meet each other's flows.
        let seed = self.seed ^ FLOWS ^ (index as u64) << 48;
        ends(config, self.mtu, seed)
    }

    fn place(&mut self, config: &FlowConfig, ends: Box<dyn Flow>) {
        let stop = config.stop.map_or(Instant::FAR_FUTURE, |stop| START + stop);
        let places = [(config.between.0, config.near), (config.between.1, config.far)];
        let [sender, receiver] = if config.from_far { [1, 0] } else { [0, 1] };
        self.attach(ends, [places[sender], places[receiver]], stop);
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
        assert!(self.sites.count() == 1 || ends.is_told_by_packets(), "its ends are at two sites");
        let index = self.flows.len();
        let routes = [self.route(places[1], places[0]), self.route(places[0], places[1])];
        self.transit.add_route(routes);
        let places = [End::Sender, End::Receiver].map(|end| {
            let site = self.sites.of(places[end as usize].0);
            (site, self.runs[site].add(2 * index + end as usize))
        });
        self.flows.push(Line { ends, stop, places });
        // The one that connects may be either.
        for end in [End::Sender, End::Receiver] {
            self.plan(index, end, self.next_run(index, end));
        }
        index
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
    fn access(
        &mut self,
        study: &Study,
        (router, side): (usize, &str),
        groups: &[HostGroup],
    ) -> Vec<Access> {
        let host = |(number, group): (usize, &HostGroup)| {
            let mut ways = Access::default();
            let processing =
                group.processing().map(|link| (link, ["processing from", "processing to"]));
            for (link, names) in
                processing.into_iter().chain(group.link().map(|it| (it, ["from", "to"])))
            {
                for (way, name) in ways.iter_mut().zip(names) {
                    let link = self.link(study, &link);
                    way.push(self.add_link(link, router, format!("{name} {side} host {number}")));
                }
            }
            // What it receives comes over its link first.
            ways[1].reverse();
            ways
        };
        (1..).zip(Scenario::hosts(groups)).map(host).collect()
    }

    /// The next link.
    fn link(&self, study: &Study, config: &LinkConfig) -> Unchanging<Parcel> {
        let seed = study.path.seed ^ (self.transit.links().len() as u64) << 32;
        config.unchanging(study.path.rtt(), seed, START).expect("a valid link")
    }

    /// Adds a link that ends at this router; its number.
    fn add_link(&mut self, link: Unchanging<Parcel>, router: usize, name: String) -> usize {
        self.names.push(name);
        self.transit.add_link(link, router)
    }

    /// Adds a link between two routers.
    fn join_routers(&mut self, (from, to): (usize, usize), link: Unchanging<Parcel>, name: String) {
        let number = self.add_link(link, to, name);
        self.topology.add(from, to, number);
    }

    /// All links in the order of their numbers.
    pub(super) fn links(&self) -> impl ExactSizeIterator<Item = &Unchanging<Parcel>> {
        self.transit.links()
    }

    /// The link of this number.
    pub(super) fn link_of(&self, number: usize) -> &Unchanging<Parcel> {
        self.transit.link(number)
    }

    /// Packets offered to any link.
    pub(super) fn packets(&self) -> u64 {
        self.links().map(|link| link.counters().offered.packets).sum()
    }

    /// Data packets of a flow that were dropped before a link, and on one.
    pub(super) fn dropped(&self, flow: usize) -> (u64, u64) {
        self.transit.dropped(flow)
    }

    /// The links that a flow's data crosses.
    pub(super) fn way(&self, flow: usize) -> &[usize] {
        self.transit.way(flow)
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
        let behind = end + Duration::from_nanos(1);
        let sites = self.sites.count();
        let mut until = Instant::ZERO;
        loop {
            let first = (0..sites).map(|site| self.first_at(site)).min();
            let Some(first) = first.filter(|first| *first < behind) else { break };
            debug_assert!(first >= until, "what happened at another site is known too late");
            let lookahead = self.sites.lookahead();
            until = lookahead.map_or(behind, |lookahead| behind.min(first + lookahead));
            (0..sites).for_each(|site| self.run_site(site, until));
        }
        self.transit.advance(end);
    }

    /// When something happens next at a site.
    fn first_at(&self, site: usize) -> Instant {
        self.transit.first_exit(site).0.min(self.runs[site].first().0)
    }

    /// Lets happen what does at a site before this time.
    fn run_site(&mut self, site: usize, until: Instant) {
        loop {
            let (exit, run) = (self.transit.first_exit(site), self.runs[site].first());
            if exit.0.min(run.0) >= until {
                return;
            }
            if exit.0 <= run.0 {
                self.transit.now = exit.0;
                self.take_turn(exit.1, run.0, until);
            } else {
                self.transit.now = run.0;
                let end = if run.1 % 2 == 0 { End::Sender } else { End::Receiver };
                let flow = run.1 / 2;
                let next = self.run(flow, end);
                let (_, slot) = self.flows[flow].places[end as usize];
                self.runs[site].set(slot, next.max(run.0));
                self.arrive_all();
            }
        }
    }

    /// It is a link's turn.
    fn take_turn(&mut self, link: usize, run: Instant, until: Instant) {
        let mut turn = self.transit.begin(link, run, until);
        while self.transit.reach_exit(&turn) {
            match turn.link.first(self.transit.now) {
                Some(first) if self.is_taken(first) => {
                    let label = first.item.label;
                    self.take(label, &mut turn);
                }
                Some(_) => {
                    if let Some(first) = turn.link.pop() {
                        self.transit.leave_link(first);
                    }
                }
                None => {}
            }
            self.arrive_all();
        }
        self.transit.end(turn);
    }

    /// An end of a flow has something to do at this time, if not before. Whether it still has, it sees then.
    #[inline(always)]
    fn plan(&mut self, flow: usize, end: End, at: Instant) {
        let (site, slot) = self.flows[flow].places[end as usize];
        let (runs, at) = (&mut self.runs[site], at.max(self.transit.now));
        if at < runs.at(slot) {
            runs.set(slot, at);
            self.transit.expect_run(at);
        }
    }

    /// Hands over what has arrived at once.
    #[inline(always)]
    fn arrive_all(&mut self) {
        while let Some(parcel) = self.transit.next_arrived() {
            self.arrive(&parcel);
        }
    }

    /// Whether a packet that leaves a link has arrived, as it was sent, for an end that is not cut off.
    #[inline(always)]
    fn is_taken(&self, arrival: &Arrival<Parcel>) -> bool {
        let stop = self.flows[arrival.item.label.flow() as usize].stop;
        self.transit.is_there(arrival) && self.transit.now < stop
    }

    /// An end takes the packets with this label that arrive over the link whose turn it is, until another's is first.
    fn take(&mut self, label: Label, turn: &mut Turn) {
        let line = &mut self.flows[label.flow() as usize];
        let mut inlet = self.transit.inlet(label, line.stop, turn);
        let next = line.ends.take(&mut inlet);
        self.plan(label.flow() as usize, label.to(), next);
    }

    /// A packet is where it goes: its end takes it, and does what is due.
    fn arrive(&mut self, parcel: &Parcel) {
        if parcel.label.is_damaged() {
            return self.transit.count_lost(parcel, false);
        }
        let now = self.transit.now;
        let (flow, to) = (parcel.label.flow(), parcel.label.to());
        let line = &mut self.flows[flow as usize];
        if now >= line.stop {
            return self.transit.discard(&parcel.body);
        }
        let out = &mut self.transit.outlet(flow, to);
        line.ends.arrive(now, to, parcel, out);
        line.ends.run(now, to, out);
        self.plan(flow as usize, to, self.next_run(flow as usize, to));
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
        self.flows[flow].ends.next(end)
    }
}

fn ends(config: &FlowConfig, mtu: Bytes, seed: u64) -> Box<dyn Flow> {
    let start = START + config.start;
    match &config.protocol {
        Protocol::Tcp(tcp) => Box::new(TcpFlow::new(tcp, config.source, start, seed)),
        Protocol::Striped(striping) => {
            let size = match config.source {
                Source::Fixed(size) | Source::Copy(size) => Some(size),
                Source::Greedy | Source::Http(_) | Source::Messages(_) => None,
            };
            Box::new(StripedFlow::new(striping, size, start))
        }
        Protocol::Longhaul(transport) => {
            // Who copies is at the former end.
            let copy = if config.from_far { Manner::Get } else { Manner::Put };
            let task = match config.source {
                Source::Fixed(size) => (size.0, Manner::Plain),
                Source::Copy(size) => (size.0, copy),
                Source::Greedy | Source::Http(_) | Source::Messages(_) => (u64::MAX, Manner::Plain),
            };
            Box::new(UdpFlow::new(transport, task, mtu, start, seed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(text: &str) -> Study {
        let text = format!("about = \"A test\"\nrtt = \"6ms\"\nduration = \"4s\"\n{text}");
        let study: Study = text.parse().expect("a scenario");
        Study { trace: Some(Duration::from_millis(37)), ..study }
    }

    fn sites(text: &str) -> usize {
        Network::new(&study(text)).sites.count()
    }

    /// Runs it at so many sites, and at one; it must show the same.
    fn shows_the_same(count: usize, text: &str) {
        assert_eq!(sites(text), count, "{text}");
        let study = study(text);
        let mut one = Network::undivided(&study);
        for flow in &study.flows {
            let ends = one.ends(flow, one.flows.len());
            one.place(flow, ends);
        }
        let one = study.run_in(one, |_| {});
        assert!(one.of("copy").all(|flow| flow.finished.is_some()), "{:?}", one.flows);
        assert!(one.flows.iter().all(|flow| flow.delivered_bytes > 10_000), "{:?}", one.flows);
        assert!(study.run() == one, "{text}");
    }

    const FLOWS: &str = "[[flow]]\ncount = 3\ntransport = \"tcp\"\nevery = \"100ms\"\n[[flow]]\nfrom = \"far\"\n\
        [[flow]]\nstop = \"2s\"\ntransport = \"tcp\"\nrecovery = \"reno\"\ndelayed-ack = \"none\"\n\
        [[flow]]\nsource = \"1MB\"\n[[flow]]\nname = \"copy to\"\nsource = \"copy:1MB\"\n\
        [[flow]]\nname = \"copy from\"\nsource = \"copy:1MB\"\nfrom = \"far\"\n";

    #[test]
    fn sites_show_what_one_would() {
        let both = |more: &str| format!("both = {{ rate = \"20mbit\", {more} }}\n");
        shows_the_same(2, &(both("queue = \"red\", loss = 0.001") + FLOWS));
        shows_the_same(2, &(both("duplicate = 0.01, corrupt = 0.01, silent = true") + FLOWS));
        shows_the_same(2, &(both("jitter = \"2ms\"") + "back = { delay = \"1ms\" }\n" + FLOWS));
        // Hosts with links of their own, of which one decides as packets leave.
        let hosts = "[[near]]\ncount = 2\nrate = \"30mbit\"\nqueue = \"codel\"\n\
            [[far]]\nper-packet = \"50us\"\ndelay = \"3ms\"\n";
        shows_the_same(2, &(both("loss = 0.001") + hosts + FLOWS));
        let lab = |more: &str| {
            format!(
                "[[link]]\nbetween = [\"far\", \"lab\"]\nrate = \"15mbit\"\n{more}\n\
                 [[flow]]\ntransport = \"tcp\"\nbetween = [\"near\", \"lab\"]\n"
            )
        };
        shows_the_same(3, &(both("loss = 0.001") + &lab("delay = \"2ms\"") + FLOWS));
        // What takes no time is at the far site.
        shows_the_same(2, &(both("loss = 0.001") + &lab("queue = \"20packets\"") + FLOWS));
        shows_the_same(
            2,
            &(both("loss = 0.001") + &lab("delay = \"2ms\"\nqueue = \"codel\"") + FLOWS),
        );
    }

    /// However often the packets that an end takes at a time are cut off by a look.
    #[test]
    fn turns_cut_short_show_the_same() {
        let text = "both = { rate = \"20mbit\", loss = 0.001, duplicate = 0.01, corrupt = 0.01, silent = true }\n\
            [[near]]\ncount = 3\nrate = \"30mbit\"\n[[far]]\nrate = \"30mbit\"\nqueue = \"codel\"\n"
            .to_owned();
        for hosts in ["", "[[far]]\nper-packet = \"50us\"\n"] {
            let study = study(&(text.clone() + hosts + &FLOWS.replace("2s", "200ms")));
            let whole = Study { duration: Duration::from_millis(400), trace: None, ..study };
            let cut = Study { trace: Some(Duration::from_micros(7)), ..whole.clone() };
            let (whole, mut cut) = (whole.run(), cut.run());
            assert!(core::mem::take(&mut cut.samples).len() > 100_000);
            assert!(whole.flows.iter().all(|flow| flow.delivered_bytes > 1000), "{whole:?}");
            assert!(whole == cut, "{hosts}");
        }
    }

    /// What is sent where a link ends never goes over that link, which is not there for others in its turn.
    #[test]
    fn rings_of_routers_run() {
        let mut text =
            "both = { rate = \"20mbit\", duplicate = 0.01, corrupt = 0.01, silent = true }\n\
            [[near]]\ncount = 2\nrate = \"30mbit\"\nper-packet = \"20us\"\n\
            [[far]]\nrate = \"30mbit\"\ndelay = \"1ms\"\n"
                .to_owned();
        for ends in ["\"far\", \"lab\"", "\"lab\", \"near\""] {
            text += &format!("[[link]]\nbetween = [{ends}]\nrate = \"15mbit\"\ndelay = \"2ms\"\n");
        }
        for (one, other) in [("near", "far"), ("far", "lab"), ("lab", "near")] {
            for from in ["near", "far"] {
                text += &format!(
                    "[[flow]]\nbetween = [\"{one}\", \"{other}\"]\nfrom = \"{from}\"\n\
                     [[flow]]\nbetween = [\"{one}\", \"{other}\"]\nfrom = \"{from}\"\ntransport = \"tcp\"\n"
                );
            }
        }
        shows_the_same(3, &text);
    }

    /// Packets that overtake, queues that decide as packets leave, changes, links without delay, and documents.
    #[test]
    fn what_needs_one_site_has_one() {
        let flow = "[[flow]]\ntransport = \"tcp\"\n";
        let both = |more: &str| format!("both = {{ rate = \"20mbit\", {more} }}\n{flow}");
        assert_eq!(sites(&both("jitter = \"2ms\", keep-order = false")), 1);
        assert_eq!(sites(&both("reorder = 0.1, reorder-by = \"1ms\"")), 1);
        assert_eq!(sites(&both("queue = \"codel\"")), 1);
        assert_eq!(sites(&both("queue = \"fq-codel\"")), 1);
        assert_eq!(sites(&both("delay = \"0ms\"")), 1);
        let change = "[[change]]\nat = \"2s\"\nforward = { loss = 0.1 }\n";
        assert_eq!(sites(&(both("loss = 0") + change)), 1);
        assert_eq!(sites(&format!("{}source = \"http\"\n", both("queue = \"50ms\""))), 1);
    }
}

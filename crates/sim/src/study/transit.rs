//! Packets under way: the links that they cross, and what they carry.

use std::collections::VecDeque;

use path::{Arrival, DropCause, Fate, Fortune, Packet, Unchanging};
use slab::Slab;
use units::{Bytes, Instant};

use super::agenda::Agenda;
use super::flow::End;
use super::parcel::{Body, Label, Parcel, Trimmed};
use super::sites::Sites;
use crate::tcp::Segment;
use crate::world::START;

/// The way of a flow's packets, and what became of them.
struct Route {
    /// The links to the sender, and those to the receiver.
    links: [Vec<usize>; 2],
    /// Data packets dropped before a link, and on one.
    dropped: (u64, u64),
}

/// A link whose turn it is.
pub(super) struct Turn {
    pub(super) link: Box<Unchanging<Parcel>>,
}

/// All links, and what is on them.
pub(super) struct Transit {
    pub(super) now: Instant,
    /// The one whose turn it is is missing, so that its packets can be dealt with where they are while ends send over
    /// others: what is sent where a link ends never goes over that link.
    links: Vec<Option<Box<Unchanging<Parcel>>>>,
    /// At each site, when something may leave a link that ends there.
    exits: Vec<Agenda>,
    /// The router at which each link ends, and its site there with its slot.
    routers: Vec<usize>,
    places: Vec<(usize, usize)>,
    /// Until this time, and then too, it is the turn of the link of this number.
    turn_lasts: Instant,
    turn_of: usize,
    routes: Vec<Route>,
    /// What has arrived and was not handed on, for the last link did something to it, or it had no link to cross.
    arrived: VecDeque<Parcel>,
    /// Those of our transport, which are larger than the rest of a parcel.
    datagrams: Slab<Trimmed>,
}

/// A packet as a link sees it.
#[inline(always)]
fn packet(size: Bytes, flow: u32, connection: u32, ecn_capable: bool) -> Packet {
    // Each connection has ports of its own, by which a queue tells it from others.
    Packet { size, flow: u64::from(connection) << 32 | u64::from(flow), ecn_capable }
}

/// The last that is before this time.
fn before(at: Instant) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_sub(1))
}

impl Transit {
    /// Without links, at the beginning of a run.
    pub(super) fn new() -> Self {
        Self {
            now: START,
            links: Vec::new(),
            exits: Vec::new(),
            routers: Vec::new(),
            places: Vec::new(),
            turn_lasts: Instant::FAR_FUTURE,
            turn_of: 0,
            routes: Vec::new(),
            arrived: VecDeque::new(),
            datagrams: Slab::new(),
        }
    }

    /// Adds a link that ends at this router; its number.
    pub(super) fn add_link(&mut self, link: Unchanging<Parcel>, router: usize) -> usize {
        self.links.push(Some(Box::new(link)));
        self.routers.push(router);
        self.links.len() - 1
    }

    /// All links are there, and nothing is on them: each ends at a site.
    pub(super) fn divide(&mut self, sites: &Sites) {
        self.exits = vec![Agenda::default(); sites.count()];
        let place = |(link, router): (usize, &usize)| {
            let site = sites.of(*router);
            (site, self.exits[site].add(link))
        };
        self.places = self.routers.iter().enumerate().map(place).collect();
    }

    /// Adds a flow, whose packets go over these links to its sender and to its receiver.
    pub(super) fn add_route(&mut self, links: [Vec<usize>; 2]) {
        self.routes.push(Route { links, dropped: (0, 0) });
    }

    /// All links in the order of their numbers.
    pub(super) fn links(&self) -> impl ExactSizeIterator<Item = &Unchanging<Parcel>> {
        (0..self.links.len()).map(|number| self.link(number))
    }

    /// The link of this number.
    pub(super) fn link(&self, number: usize) -> &Unchanging<Parcel> {
        self.links[number].as_deref().expect("it is nobody's turn")
    }

    /// Data packets of a flow that were dropped before a link, and on one.
    pub(super) fn dropped(&self, flow: usize) -> (u64, u64) {
        self.routes[flow].dropped
    }

    /// The links that a flow's data crosses.
    pub(super) fn way(&self, flow: usize) -> &[usize] {
        &self.routes[flow].links[End::Receiver as usize]
    }

    /// When something may leave a link next that ends at this site, and which.
    pub(super) fn first_exit(&self, site: usize) -> (Instant, usize) {
        self.exits[site].first()
    }

    /// Lets all links see what the time is.
    pub(super) fn advance(&mut self, now: Instant) {
        self.now = now;
        for link in &mut self.links {
            link.as_mut().expect("it is nobody's turn").advance(now);
        }
    }

    /// What has arrived already and was not handed on.
    #[inline(always)]
    pub(super) fn next_arrived(&mut self) -> Option<Parcel> {
        self.arrived.pop_front()
    }

    /// It is this link's turn, until another link's, or an end has something to do, which it next has at `run`. At
    /// `until` nothing happens any more. The link, which is not there for anybody else until [`Self::end`].
    pub(super) fn begin(&mut self, link: usize, run: Instant, until: Instant) -> Turn {
        let (site, slot) = self.places[link];
        let exits = &mut self.exits[site];
        exits.set(slot, Instant::FAR_FUTURE);
        let (at, other) = exits.first();
        self.turn_of = link;
        self.turn_lasts = run.min(before(until));
        self.yield_to(other, at);
        Turn { link: self.links[link].take().expect("it is nobody else's turn") }
    }

    /// Another link has its turn at this time, if that of this one lasts so long: of two at the same time the lesser number
    /// is first.
    fn yield_to(&mut self, other: usize, at: Instant) {
        let lasts = if self.turn_of < other { at } else { before(at) };
        self.turn_lasts = self.turn_lasts.min(lasts);
    }

    /// The turn is over.
    pub(super) fn end(&mut self, turn: Turn) {
        let (Turn { link }, number) = (turn, self.turn_of);
        let (site, slot) = self.places[number];
        self.exits[site].set(slot, link.next_exit().max(self.now));
        self.links[number] = Some(link);
    }

    /// An end has something to do at this time.
    #[inline(always)]
    pub(super) fn expect_run(&mut self, at: Instant) {
        self.turn_lasts = self.turn_lasts.min(at);
    }

    /// Goes on to when something leaves the link whose turn it is; `false` if the turn is over before.
    #[inline(always)]
    pub(super) fn reach_exit(&mut self, turn: &Turn) -> bool {
        let next = turn.link.next_exit().max(self.now);
        let goes = next <= self.turn_lasts;
        if goes {
            self.now = next;
        }
        goes
    }

    /// Whether a packet has suffered nothing, and leaves the last link of its route.
    #[inline(always)]
    pub(super) fn is_there(&self, arrival: &Arrival<Parcel>) -> bool {
        let label = arrival.item.label;
        let route = &self.routes[label.flow() as usize].links[label.to() as usize];
        let at_end = Label::new(label.flow(), label.to(), route.len() - 1);
        label == at_end && arrival.fortune.is_none()
    }

    /// What arrives with this label for an end of a flow, which is cut off at `stop`, over the link whose turn it is.
    pub(super) fn inlet<'a>(
        &'a mut self,
        label: Label,
        stop: Instant,
        turn: &'a mut Turn,
    ) -> Inlet<'a> {
        self.turn_lasts = self.turn_lasts.min(before(stop));
        Inlet { out: self.outlet(label.flow(), label.to()), turn, label }
    }

    /// A packet has left a link, goes on, and suffers what that has done to it. If it has arrived it is among
    /// [what has](Self::next_arrived).
    pub(super) fn leave_link(&mut self, arrival: Arrival<Parcel>) {
        let Arrival { size, item: mut parcel, fortune, .. } = arrival;
        parcel.label.pass_link();
        if let Some(fortune) = fortune {
            let Fortune { fate, marked, damage, duplicated } = *fortune;
            if fate != Fate::Delivered {
                let early = matches!(fate, Fate::Dropped(DropCause::Queue | DropCause::Early));
                return self.count_lost(&parcel, early);
            }
            if damage.is_some() {
                parcel.label.damage();
            }
            // Here TCP does without marks.
            if let (Body::Datagram(datagram), true) = (&parcel.body, marked) {
                self.datagrams[*datagram as usize].ce = true;
            }
            if duplicated {
                let copy = self.copy(&parcel);
                self.pass_on(size, copy);
            }
        }
        self.pass_on(size, parcel);
    }

    /// A packet goes on to the next link of its route, or has arrived, before what has arrived already.
    fn pass_on(&mut self, size: Bytes, parcel: Parcel) {
        let label = parcel.label;
        match self.routes[label.flow() as usize].links[label.to() as usize].get(label.passed()) {
            Some(&link) => {
                let Parcel { connection, ecn_capable, .. } = parcel;
                let packet = || packet(size, label.flow(), connection, ecn_capable);
                self.put_on(link, packet, || parcel);
            }
            None => self.arrived.push_front(parcel),
        }
    }

    /// A packet goes over a link; it is made where it lies there.
    #[inline(always)]
    fn put_on(
        &mut self,
        link: usize,
        packet: impl FnOnce() -> Packet,
        parcel: impl FnOnce() -> Parcel,
    ) {
        let onto = self.links[link].as_mut().expect("nothing goes over a link from where it ends");
        match onto.send_packet(self.now, packet, parcel) {
            Ok(None) => {}
            Ok(Some(next)) => self.expect_exit(link, next.max(self.now)),
            Err(refused) => self.count_lost(&refused.item, true),
        }
    }

    /// Something may leave a link at this time, if nothing does before.
    fn expect_exit(&mut self, link: usize, next: Instant) {
        let (site, slot) = self.places[link];
        let exits = &mut self.exits[site];
        if next < exits.at(slot) {
            exits.set(slot, next);
            // Of a link to another site it is not before this one's time is over.
            self.yield_to(link, next);
        }
    }

    /// A packet counts as lost, before a link or on one.
    #[cold]
    pub(super) fn count_lost(&mut self, parcel: &Parcel, early: bool) {
        self.discard(&parcel.body);
        let dropped = &mut self.routes[parcel.label.flow() as usize].dropped;
        if parcel.label.to() == End::Receiver {
            *(if early { &mut dropped.0 } else { &mut dropped.1 }) += 1;
        }
    }

    /// Nobody takes what has arrived, or is damaged.
    pub(super) fn discard(&mut self, body: &Body) {
        if let Body::Datagram(place) = body {
            self.datagrams.remove(*place as usize);
        }
    }

    /// The same once more.
    fn copy(&mut self, parcel: &Parcel) -> Parcel {
        let body = match &parcel.body {
            Body::Segment(segment) => Body::Segment(segment.clone()),
            Body::Datagram(place) => {
                let datagram = self.datagrams[*place as usize].clone();
                Body::Datagram(self.datagrams.insert(datagram) as u32)
            }
        };
        Parcel { body, ..*parcel }
    }

    /// What an end of a flow sends through.
    pub(super) fn outlet(&mut self, flow: u32, end: End) -> Outlet<'_> {
        let to = if end == End::Sender { End::Receiver } else { End::Sender };
        let onto = self.routes[flow as usize].links[to as usize].first().copied();
        Outlet { transit: self, flow, to, onto }
    }
}

/// What arrives for an end of a flow over the link whose turn it is.
pub(super) struct Inlet<'a> {
    /// What the end sends through.
    out: Outlet<'a>,
    turn: &'a mut Turn,
    /// What all of them bear: this flow and end, the whole route behind them, no damage.
    label: Label,
}

impl<'a> Inlet<'a> {
    /// For which end of its flow.
    pub(super) fn end(&self) -> End {
        self.label.to()
    }

    /// The first packet, which is for this end and has suffered nothing; the time, and what the end sends through.
    #[inline(always)]
    pub(super) fn first(&mut self) -> Option<(Instant, &Parcel, &mut Outlet<'a>)> {
        let now = self.out.transit.now;
        let first = self.turn.link.first(now)?;
        Some((now, &first.item, &mut self.out))
    }

    /// The last one has been dealt with, and its end is to be run at this time: the next on the link, if its turn is not over
    /// by then, and that one too is for this end.
    #[inline(always)]
    pub(super) fn next(&mut self, run: Instant) -> Option<(Instant, &Parcel, &mut Outlet<'a>)> {
        let Self { out, turn, label } = self;
        let transit = &mut *out.transit;
        let lasts = transit.turn_lasts.min(run.max(transit.now));
        let Arrival { due, item, fortune, .. } = turn.link.step()?;
        let at = transit.now.max(*due);
        let ours = item.label == *label && fortune.is_none();
        if !ours || at > lasts || !transit.arrived.is_empty() {
            return None;
        }
        transit.now = at;
        Some((at, item, out))
    }
}

/// An end of a flow as the network is to it: takes what it sends to the other.
pub(super) struct Outlet<'a> {
    transit: &'a mut Transit,
    flow: u32,
    to: End,
    /// The first link of the way there, if there is any.
    onto: Option<usize>,
}

impl Outlet<'_> {
    /// Sends a segment of the connection of this number.
    #[inline(always)]
    pub(super) fn send_segment(&mut self, connection: u32, segment: Segment) {
        self.send(segment.size(), connection, false, Body::Segment(segment));
    }

    /// Sends a datagram.
    pub(super) fn send_datagram(&mut self, datagram: Trimmed) {
        let (size, ecn_capable) = (datagram.size(), datagram.ecn_capable);
        let body = Body::Datagram(self.transit.datagrams.insert(datagram) as u32);
        self.send(size, 0, ecn_capable, body);
    }

    /// Takes a segment, and the number of its connection; what is none is discarded.
    #[inline(always)]
    pub(super) fn take_segment<'b>(&mut self, parcel: &'b Parcel) -> Option<(u32, &'b Segment)> {
        match &parcel.body {
            Body::Segment(segment) => Some((parcel.connection, segment)),
            body @ Body::Datagram(_) => {
                self.transit.discard(body);
                None
            }
        }
    }

    /// Takes a datagram; what is none is discarded.
    pub(super) fn take_datagram(&mut self, parcel: &Parcel) -> Option<Trimmed> {
        match parcel.body {
            Body::Segment(..) => None,
            Body::Datagram(place) => Some(self.transit.datagrams.remove(place as usize)),
        }
    }

    #[inline(always)]
    fn send(&mut self, size: Bytes, connection: u32, ecn_capable: bool, body: Body) {
        let Self { flow, to, .. } = *self;
        let label = Label::new(flow, to, 0);
        let parcel = || Parcel { label, connection, ecn_capable, body };
        match self.onto {
            Some(link) => {
                self.transit.put_on(link, || packet(size, flow, connection, ecn_capable), parcel);
            }
            None => self.transit.arrived.push_back(parcel()),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use path::PathConfig;
    use units::Rate;

    use super::*;
    use crate::tcp::Kind;

    /// Of links that have their turn at the same time the one of the lesser number is first, and all are before runs.
    #[test]
    fn turns_are_by_time_and_then_by_number() {
        let path =
            PathConfig::new(Rate::from_bits_per_sec(1_000_000_000), Duration::from_millis(2));
        let mut transit = Transit::new();
        for _ in 0..2 {
            transit.add_link(path.unchanging_links(START).expect("a path").0, 0);
        }
        transit.divide(&Sites::one());
        transit.add_route([vec![0], vec![1]]);
        for end in [End::Sender, End::Receiver] {
            let segment = Segment { kind: Kind::Syn, stamp: START, timestamps: false };
            transit.outlet(0, end).send_segment(0, segment);
        }
        let (at, first) = transit.first_exit(0);
        assert_eq!(first, 0);
        let mut goes = |link, run, until| {
            let turn = transit.begin(link, run, until);
            let goes = transit.reach_exit(&turn);
            assert_eq!(transit.now, if goes { at } else { START });
            transit.now = START;
            transit.end(turn);
            goes
        };
        let (behind, far) = (at + Duration::from_nanos(1), Instant::FAR_FUTURE);
        assert_eq!([0, 1].map(|link| goes(link, far, behind)), [true, false]);
        assert_eq!([at, before(at)].map(|run| goes(0, run, behind)), [true, false]);
        assert!(!goes(0, far, at), "nothing happens at the end of a site's time");
    }
}

//! Packets under way: the links that they cross, and what they carry.

use std::collections::VecDeque;

use path::{DropCause, Exit, Fate, Packet, Unchanging};
use slab::Slab;
use smallvec::SmallVec;
use units::{Bytes, Instant};

use super::agenda::Agenda;
use super::flow::End;
use super::sites::Sites;
use crate::tcp::Segment;
use crate::world::{HEADERS, START};

/// What a packet carries.
pub(super) enum Body {
    /// Of a TCP connection of this number, for a flow has one after the other.
    Segment(u32, Segment),
    /// Of our transport: its place among all datagrams, where it stays until it arrives.
    Datagram(u32),
}

/// Where a packet under way is kept: links move this from queue to queue.
pub(super) type Place = u32;

/// A packet under way.
pub(super) struct Parcel {
    pub(super) flow: u32,
    /// Links of its route that are behind it.
    passed: u16,
    /// Where it goes.
    pub(super) to: End,
    ecn_capable: bool,
    /// A link damaged it and let it pass: a checksum or a seal finds that at the end.
    pub(super) damaged: bool,
    pub(super) body: Body,
}

/// The way of a flow's packets, and what became of them.
struct Route {
    /// The links to the sender, and those to the receiver.
    links: [Vec<usize>; 2],
    /// Data packets dropped before a link, and on one.
    dropped: (u64, u64),
}

/// All links, and what is on them.
pub(super) struct Transit {
    pub(super) now: Instant,
    links: Vec<Unchanging<Place>>,
    /// All that are under way: they stay where they are until they arrive.
    parcels: Slab<Parcel>,
    /// At each site, when something may leave a link that ends there.
    exits: Vec<Agenda>,
    /// The router at which each link ends, and its site there with its slot.
    routers: Vec<usize>,
    places: Vec<(usize, usize)>,
    /// The turn of the link that is polled is over at this time, if others' that is not before them: the number of another
    /// link, or [`RUN`]. At the end of a site's time it is over for all links.
    turn_ends: (Instant, usize),
    routes: Vec<Route>,
    /// What has arrived and was not handed on, for it came with another or had no link to cross.
    arrived: VecDeque<Place>,
    /// Those of our transport, which are larger than the rest of a parcel.
    datagrams: Slab<Trimmed>,
    /// Packets offered to any link.
    pub(super) packets: u64,
}

/// Comes behind all links in the order of what happens at the same time.
const RUN: usize = usize::MAX;

/// The time of a link, which begins with the run, as its changes and traces do.
fn link_time(now: Instant) -> Instant {
    Instant::from_nanos(now.as_nanos() - START.as_nanos())
}

/// The time of the network when a link's is this.
fn network_time(at: Option<Instant>) -> Instant {
    let nanos = at.map_or(u64::MAX, Instant::as_nanos);
    Instant::from_nanos(nanos.saturating_add(START.as_nanos()))
}

impl Transit {
    /// Without links, at the beginning of a run.
    pub(super) fn new() -> Self {
        Self {
            now: START,
            links: Vec::new(),
            parcels: Slab::new(),
            exits: Vec::new(),
            routers: Vec::new(),
            places: Vec::new(),
            turn_ends: (Instant::FAR_FUTURE, RUN),
            routes: Vec::new(),
            arrived: VecDeque::new(),
            datagrams: Slab::new(),
            packets: 0,
        }
    }

    /// Adds a link that ends at this router; its number.
    pub(super) fn add_link(&mut self, link: Unchanging<Place>, router: usize) -> usize {
        self.links.push(link);
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
    pub(super) fn links(&self) -> &[Unchanging<Place>] {
        &self.links
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
        self.links.iter_mut().for_each(|link| link.advance(link_time(now)));
    }

    /// What has arrived already and was not handed on.
    #[inline(always)]
    pub(super) fn next_arrived(&mut self) -> Option<Parcel> {
        let place = self.arrived.pop_front()?;
        Some(self.parcels.remove(place as usize))
    }

    /// It is this link's turn, until another link's, or an end has something to do, which it next has at `run`. At
    /// `until` nothing happens any more.
    pub(super) fn begin(&mut self, link: usize, run: Instant, until: Instant) {
        let (site, slot) = self.places[link];
        let exits = &mut self.exits[site];
        exits.set(slot, Instant::FAR_FUTURE);
        self.turn_ends = exits.first().min((run, RUN)).min((until, 0));
    }

    /// An end has something to do at this time.
    #[inline(always)]
    pub(super) fn expect_run(&mut self, at: Instant) {
        self.turn_ends = self.turn_ends.min((at, RUN));
    }

    /// Takes from the link whose turn it is what has reached its end, until something arrives where it goes, which
    /// is then. `None` when its turn is over.
    #[inline(always)]
    pub(super) fn poll(&mut self, link: usize) -> Option<Parcel> {
        loop {
            let next = network_time(self.links[link].next_exit()).max(self.now);
            if (next, link) >= self.turn_ends {
                let (site, slot) = self.places[link];
                self.exits[site].set(slot, next);
                return None;
            }
            self.now = next;
            let Some(exit) = self.links[link].poll(link_time(next)) else { continue };
            let place = exit.item;
            if exit.fate != Fate::Delivered {
                let early = matches!(exit.fate, Fate::Dropped(DropCause::Queue | DropCause::Early));
                self.lose(place, early);
                continue;
            }
            let parcel = &mut self.parcels[place as usize];
            parcel.passed += 1;
            if exit.marked || exit.damage.is_some() || exit.duplicated {
                self.suffer(place, &exit);
            }
            if self.forward(exit.size, place) {
                return Some(self.parcels.remove(place as usize));
            }
        }
    }

    /// What a link has done to a packet that it delivers.
    #[cold]
    fn suffer(&mut self, place: Place, exit: &Exit<Place>) {
        let parcel = &mut self.parcels[place as usize];
        parcel.damaged |= exit.damage.is_some();
        // Here TCP does without marks.
        if let (Body::Datagram(datagram), true) = (&parcel.body, exit.marked) {
            self.datagrams[*datagram as usize].ce = true;
        }
        if exit.duplicated {
            let copy = self.copy(place);
            if self.forward(exit.size, copy) {
                self.arrived.push_back(copy);
            }
        }
    }

    /// A packet of this size goes on to the next link of its route; whether it has arrived instead.
    #[inline(always)]
    fn forward(&mut self, size: Bytes, place: Place) -> bool {
        let Parcel { flow, to, passed, ecn_capable, ref body, .. } = self.parcels[place as usize];
        let route = &self.routes[flow as usize].links[to as usize];
        let Some(&link) = route.get(usize::from(passed)) else { return true };
        self.packets += 1;
        // Each connection has ports of its own, by which a queue tells it from others.
        let connection = if let Body::Segment(connection, _) = body { *connection } else { 0 };
        let ports = u64::from(connection) << 32 | u64::from(flow);
        let packet = Packet { size, flow: ports, ecn_capable };
        match self.links[link].send_packet(link_time(self.now), packet, place) {
            Ok(()) => {
                let next = network_time(self.links[link].next_exit()).max(self.now);
                let (site, slot) = self.places[link];
                let exits = &mut self.exits[site];
                if next < exits.at(slot) {
                    exits.set(slot, next);
                    // Of a link to another site it is not before this one's time is over.
                    self.turn_ends = self.turn_ends.min((next, link));
                }
            }
            Err(refused) => self.lose(refused.item, true),
        }
        false
    }

    /// It does not arrive.
    #[cold]
    fn lose(&mut self, place: Place, early: bool) {
        let parcel = self.parcels.remove(place as usize);
        self.count_lost(parcel, early);
    }

    /// A packet counts as lost, before a link or on one.
    pub(super) fn count_lost(&mut self, parcel: Parcel, early: bool) {
        self.discard(parcel.body);
        let dropped = &mut self.routes[parcel.flow as usize].dropped;
        if parcel.to == End::Receiver {
            *(if early { &mut dropped.0 } else { &mut dropped.1 }) += 1;
        }
    }

    /// Nobody takes what has arrived, or is damaged.
    pub(super) fn discard(&mut self, body: Body) {
        if let Body::Datagram(place) = body {
            self.datagrams.remove(place as usize);
        }
    }

    /// The same once more.
    fn copy(&mut self, place: Place) -> Place {
        let parcel = &self.parcels[place as usize];
        let body = match &parcel.body {
            Body::Segment(connection, segment) => Body::Segment(*connection, segment.clone()),
            Body::Datagram(place) => {
                let datagram = self.datagrams[*place as usize].clone();
                Body::Datagram(self.datagrams.insert(datagram) as u32)
            }
        };
        let copy = Parcel { body, ..*parcel };
        self.parcels.insert(copy) as Place
    }

    /// What an end of a flow sends through.
    pub(super) fn outlet(&mut self, flow: u32, end: End) -> Outlet<'_> {
        let to = if end == End::Sender { End::Receiver } else { End::Sender };
        Outlet { transit: self, flow, to }
    }
}

/// An end of a flow as the network is to it: takes what it sends to the other.
pub(super) struct Outlet<'a> {
    transit: &'a mut Transit,
    flow: u32,
    to: End,
}

impl Outlet<'_> {
    /// Sends a segment of the connection of this number.
    #[inline(always)]
    pub(super) fn send_segment(&mut self, connection: u32, segment: Segment) {
        self.send(segment.size(), Body::Segment(connection, segment), false);
    }

    /// Sends a datagram.
    pub(super) fn send_datagram(&mut self, datagram: Trimmed) {
        let (size, ecn_capable) = (Bytes(datagram.len as u64 + HEADERS), datagram.ecn_capable);
        let body = Body::Datagram(self.transit.datagrams.insert(datagram) as u32);
        self.send(size, body, ecn_capable);
    }

    /// Takes a segment, and the number of its connection; what is none is discarded.
    #[inline(always)]
    pub(super) fn take_segment(&mut self, body: Body) -> Option<(u32, Segment)> {
        match body {
            Body::Segment(connection, segment) => Some((connection, segment)),
            Body::Datagram(_) => {
                self.transit.discard(body);
                None
            }
        }
    }

    /// Takes a datagram; what is none is discarded.
    pub(super) fn take_datagram(&mut self, body: Body) -> Option<Trimmed> {
        match body {
            Body::Segment(..) => None,
            Body::Datagram(place) => Some(self.transit.datagrams.remove(place as usize)),
        }
    }

    #[inline(always)]
    fn send(&mut self, size: Bytes, body: Body, ecn_capable: bool) {
        let Self { flow, to, .. } = *self;
        let parcel = Parcel { flow, passed: 0, to, ecn_capable, damaged: false, body };
        let place = self.transit.parcels.insert(parcel) as Place;
        if self.transit.forward(size, place) {
            self.transit.arrived.push_back(place);
        }
    }
}

/// A datagram of which the zeros at the end are not kept: nothing else is written by the
/// applications here, and what need not be stored need not be fetched when it arrives.
#[derive(Clone)]
pub(super) struct Trimmed {
    /// A queue may mark it, or has.
    pub(super) ecn_capable: bool,
    pub(super) ce: bool,
    /// In place, so that those in a queue lie side by side.
    head: SmallVec<[u8; HEAD]>,
    len: usize,
}

/// What else a datagram of data has, at most.
const HEAD: usize = 128;
/// Zeros are left out by so many.
const ZEROS: [u8; 64] = [0; 64];

impl Trimmed {
    pub(super) fn new(bytes: &[u8], ecn_capable: bool) -> Self {
        let chunks = bytes.rchunks_exact(ZEROS.len());
        let left_out = chunks.take_while(|chunk| **chunk == ZEROS).count() * ZEROS.len();
        let head = SmallVec::from_slice(&bytes[..bytes.len() - left_out]);
        Self { ecn_capable, ce: false, head, len: bytes.len() }
    }

    /// Puts the datagram into a buffer.
    pub(super) fn restore(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(&self.head);
        buffer.resize(self.len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_arrive_as_they_were() {
        let mut buffer = vec![7; 9];
        for length in [0, 1, 63, 64, 65, 200] {
            for last in 0..length {
                let mut bytes = vec![0; length];
                bytes[last] = 1;
                let trimmed = Trimmed::new(&bytes, false);
                assert!(trimmed.head.len() <= last + ZEROS.len());
                trimmed.restore(&mut buffer);
                assert_eq!(buffer, bytes);
            }
        }
        Trimmed::new(&[0; 100], false).restore(&mut buffer);
        assert_eq!(buffer, [0; 100]);
    }
}

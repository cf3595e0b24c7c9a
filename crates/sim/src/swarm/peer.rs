//! A host of the swarm: it may die and come back, and does its part of the plan on every
//! connection.

use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::sync::Arc;

use transport::crypto::{Credentials, Identity};
use transport::{CloseReason, Stats};
use units::Instant;

use super::plan::Plan;
use super::session::Session;
use crate::{Arrived, Datagram, Node, Socket};

/// The address of a side.
fn address(side: usize) -> SocketAddr {
    ([10, 0, side as u8, 1], 7272).into()
}

/// The key of a side, and that of the other, whom alone it lets in.
fn credentials(side: usize) -> Credentials {
    let [own, other] = [side, 1 - side].map(|side| Identity::from_bytes([side as u8 + 1; 32]));
    let host = other.public();
    Credentials::Static { identity: own, host, allowed: Arc::new(move |key| *key == host) }
}

/// One side.
pub struct Peer {
    plan: Plan,
    side: usize,
    /// `None` while dead.
    socket: Option<Socket>,
    sessions: BTreeMap<u32, Session>,
    /// Figures of connections that have ended.
    past: BTreeMap<u32, Stats>,
    lives: u8,
    dies_at: Option<Instant>,
    lives_at: Option<Instant>,
    /// Near side: the connection that it is about.
    current: Option<u32>,
}

impl Peer {
    /// A side of the plan, whose clock says `now`.
    pub fn new(plan: &Plan, side: usize, now: Instant) -> Self {
        let kill = plan.kill.filter(|kill| kill.side == side);
        let mut peer = Self {
            plan: plan.clone(),
            side,
            socket: None,
            sessions: BTreeMap::new(),
            past: BTreeMap::new(),
            lives: 0,
            dies_at: kill.map(|kill| now + kill.at),
            lives_at: None,
            current: None,
        };
        peer.start(now);
        peer
    }

    fn start(&mut self, now: Instant) {
        let mut seed = [self.side as u8; 32];
        seed[..8].copy_from_slice(&self.plan.seed.to_be_bytes());
        seed[8] = self.lives;
        self.lives += 1;
        self.sessions.clear();
        let (address, config) = (address(self.side), self.plan.config);
        self.socket = Some(match self.plan.identities {
            true => Socket::with(credentials(self.side), address, config, seed),
            false => Socket::new(address, config, seed),
        });
        self.connect(now);
    }

    /// The near side connects, and connects again when it lost the connection to a dead one.
    fn connect(&mut self, now: Instant) {
        if self.side == 0
            && let Some(socket) = &mut self.socket
        {
            let number = socket.connect(now, address(1));
            self.sessions.insert(number, Session::new(&self.plan, 0));
            self.current = Some(number);
        }
    }

    /// Whether this side lives, and all its part is done on one connection.
    pub fn is_done(&self) -> bool {
        self.sessions.values().any(Session::is_done)
    }

    /// Whether this side died for ever.
    pub fn is_dead(&self) -> bool {
        self.socket.is_none() && self.lives_at.is_none()
    }

    /// Whether no connection is left.
    pub fn is_quiet(&self) -> bool {
        self.next().is_none()
    }

    /// What was found to be wrong, if anything.
    pub fn wrong(&self) -> Option<&String> {
        self.sessions.values().find_map(|session| session.wrong.as_ref())
    }

    /// Bytes that the applications of this side have read, and written.
    pub fn moved(&self) -> (u64, u64) {
        let each = self.sessions.values().map(Session::moved);
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Bytes on their way between the applications of two sides that have not died.
    pub fn between(&self, other: &Self) -> u64 {
        match (self.established(), other.established()) {
            (Some(ours), Some(theirs)) => ours.between(theirs),
            _ => 0,
        }
    }

    fn established(&self) -> Option<&Session> {
        self.sessions.values().find(|session| session.established && session.closed.is_none())
    }

    /// The figures of each connection of this life.
    pub fn stats(&mut self) -> Vec<Stats> {
        let now = self.socket.iter_mut().flat_map(Socket::connections);
        now.map(|(_, connection)| connection.stats()).chain(self.past.values().copied()).collect()
    }

    /// Bytes that connections whose streams have all ended hold for readers.
    pub fn held_back(&mut self) -> u64 {
        let Self { socket, sessions, .. } = self;
        let now = socket.iter_mut().flat_map(Socket::connections);
        let done = now.filter(|(number, _)| sessions.get(number).is_some_and(Session::is_done));
        done.map(|(_, connection)| connection.stats().unread.0).sum()
    }

    /// Why connections ended.
    pub fn endings(&self) -> impl Iterator<Item = &CloseReason> {
        self.sessions.values().filter_map(|session| session.closed.as_ref())
    }

    /// Ends every connection; who has not died by now lives.
    pub fn close(&mut self, now: Instant) {
        (self.dies_at, self.lives_at) = (None, None);
        for (_, connection) in self.socket.iter_mut().flat_map(Socket::connections) {
            connection.close(now, 0, "done");
        }
    }

    fn live_and_die(&mut self, now: Instant) {
        if self.dies_at.take_if(|at| *at <= now).is_some() {
            self.socket = None;
            let restart = self.plan.kill.and_then(|kill| kill.restart);
            self.lives_at = restart.map(|time| now + time);
        }
        if self.lives_at.take_if(|at| *at <= now).is_some() {
            self.start(now);
        }
    }

    fn run_sessions(&mut self, now: Instant) {
        let Some(socket) = &mut self.socket else { return };
        let (plan, side) = (&self.plan, self.side);
        let mut established = Vec::new();
        for (number, connection) in socket.connections() {
            let session = self.sessions.entry(number).or_insert_with(|| Session::new(plan, side));
            let before = session.established;
            session.run(now, connection);
            if session.established && !before {
                established.push(number);
            }
            if connection.is_closed() {
                self.past.insert(number, connection.stats());
            }
        }
        established.into_iter().for_each(|number| socket.establish(number));
        socket.forget_closed();
        // Even when this side was done: the other one, which has forgotten all, is not.
        let lost = |session: &Session| {
            session.closed.as_ref().is_some_and(|reason| *reason != CloseReason::Local)
        };
        let again = plan.kill.map_or(plan.outlasts_the_opening(), |kill| kill.restart.is_some());
        let current = self.current.and_then(|number| self.sessions.get(&number));
        if again && current.is_some_and(lost) {
            self.connect(now);
        }
    }
}

impl Node for Peer {
    fn address(&self) -> SocketAddr {
        address(self.side)
    }

    fn receive(&mut self, now: Instant, arrived: Arrived<'_>, out: &mut Vec<Datagram>) {
        if let Some(socket) = &mut self.socket {
            socket.receive(now, arrived, out);
        }
    }

    fn run(&mut self, now: Instant, out: &mut Vec<Datagram>) {
        self.live_and_die(now);
        self.run_sessions(now);
        if let Some(socket) = &mut self.socket {
            socket.flush(now, out);
        }
        self.run_sessions(now);
    }

    fn next(&self) -> Option<Instant> {
        let socket = self.socket.iter().filter_map(Socket::next);
        let readers = self.sessions.values().filter_map(|session| session.reads_at());
        let fate = self.dies_at.into_iter().chain(self.lives_at);
        socket.chain(readers.filter(|_| self.socket.is_some())).chain(fate).min()
    }
}

//! A host that is not always there: its threads wait for a processor now and then.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use units::Instant;

use crate::random::uniform;
use crate::{Arrived, Datagram, Node, World};

/// Datagrams that wait for a host which is away.
const RECEIVE_BUFFER: usize = 4000;

/// How often a host is away, and for how long, on average: both lengths are exponential.
#[derive(Clone, Copy, Debug)]
pub struct Absence {
    /// From the end of one to the beginning of the next.
    pub every: Duration,
    /// How long one lasts.
    pub length: Duration,
    /// The longest.
    pub most: Duration,
}

/// A node that does nothing while it is away; what arrives meanwhile waits.
pub struct Busy<N> {
    /// What is there else.
    pub node: N,
    absence: Option<Absence>,
    /// The next time it is away, or the present one.
    away: (Instant, Instant),
    /// It was away when it was last looked at.
    gone: bool,
    inbox: VecDeque<Waiting>,
    random: Pcg64Mcg,
}

/// A datagram that came while the host was away.
struct Waiting {
    from: SocketAddr,
    at: Instant,
    ce: bool,
    bytes: Vec<u8>,
}

impl<N> Busy<N> {
    /// A node that is away as `absence` says, at times drawn by `seed`.
    pub fn new(node: N, absence: Option<Absence>, seed: u64) -> Self {
        let start = World::<N>::START;
        let random = Pcg64Mcg::seed_from_u64(seed);
        let (away, inbox) = ((start, start), VecDeque::new());
        let mut busy = Self { node, absence, away, gone: false, inbox, random };
        busy.draw();
        busy
    }

    /// An exponential time.
    fn time(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-uniform(&mut self.random).ln())
    }

    fn draw(&mut self) {
        let Some(Absence { every, length, most }) = self.absence else { return };
        let from = self.away.1 + self.time(every);
        self.away = (from, from + self.time(length).min(most));
    }

    fn is_away(&mut self, now: Instant) -> bool {
        while self.absence.is_some() && now >= self.away.1 {
            self.draw();
        }
        self.gone = self.absence.is_some() && now >= self.away.0;
        self.gone
    }
}

impl<N: Node> Node for Busy<N> {
    fn address(&self) -> SocketAddr {
        self.node.address()
    }

    fn receive(&mut self, now: Instant, arrived: Arrived<'_>, out: &mut Vec<Datagram>) {
        if !self.is_away(now) && self.inbox.is_empty() {
            self.node.receive(now, arrived, out);
        } else if self.inbox.len() < RECEIVE_BUFFER {
            let Arrived { from, at, ce, bytes } = arrived;
            self.inbox.push_back(Waiting { from, at, ce, bytes: bytes.to_vec() });
        }
    }

    fn run(&mut self, now: Instant, out: &mut Vec<Datagram>) {
        if self.is_away(now) {
            return;
        }
        for Waiting { from, at, ce, mut bytes } in core::mem::take(&mut self.inbox) {
            self.node.receive(now, Arrived { from, at, ce, bytes: &mut bytes }, out);
        }
        self.node.run(now, out);
    }

    fn next(&self) -> Option<Instant> {
        // What was due before it went waits as well.
        if self.gone || !self.inbox.is_empty() {
            return Some(self.away.1);
        }
        let next = self.node.next()?;
        let away = self.absence.is_some() && (self.away.0..self.away.1).contains(&next);
        Some(if away { self.away.1 } else { next })
    }
}

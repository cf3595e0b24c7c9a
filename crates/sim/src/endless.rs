//! A connection whose application always has more to send.

use core::net::SocketAddr;
use core::time::Duration;

use path::PathConfig;
use transport::{Config, Connection, Event, ReadOutcome, WriteOutcome};
use units::Instant;

use crate::{Arrived, Datagram, Faults, Node, Socket, World};

/// What the application writes or reads in one go.
const CHUNK: usize = 32 << 10;

/// One end: the near one writes as much as it can, or up to a limit, from its start on; the far
/// one reads.
pub struct Endless {
    socket: Socket,
    connects: Option<(Instant, SocketAddr)>,
    /// Nothing is written for a round trip after the connection is there, as by who asks first.
    asks: bool,
    /// Until then.
    answered: Option<Instant>,
    stream: Option<u64>,
    /// What is still to be written; nothing at the far end.
    left: u64,
    /// Bytes that the application has read.
    pub read: u64,
}

impl Endless {
    /// Both ends of flow `number`, which begins `start` after the world and sends `limit` bytes.
    pub fn pair(number: usize, start: Duration, config: Config, limit: u64) -> [Self; 2] {
        let end = |side: u8| {
            let [low, high, ..] = number.to_le_bytes();
            let mut seed = [side; 32];
            seed[..2].copy_from_slice(&[low, high]);
            let socket = Socket::new(([10, side, high, low], 7272).into(), config, seed);
            let (asks, answered) = (false, None);
            Self { socket, connects: None, asks, answered, stream: None, left: 0, read: 0 }
        };
        let (mut near, far) = (end(0), end(1));
        near.left = limit;
        near.connects = Some((World::<Self>::START + start, far.socket.address()));
        [near, far]
    }

    /// The same, but nothing is written for a round trip after the connection is there.
    #[must_use]
    pub fn asking(mut self) -> Self {
        self.asks = true;
        self
    }

    /// A world of such flows over one path: the configuration and the start of each.
    pub fn world(path: &PathConfig, flows: &[(Config, Duration)]) -> World<Self> {
        let flows = flows.iter().enumerate();
        let ends = flows
            .flat_map(|(number, &(config, start))| Self::pair(number, start, config, u64::MAX));
        World::of(path, Faults::default(), ends.collect())
    }

    /// The connection, once it has begun.
    pub fn connection(&mut self) -> Option<&mut Connection> {
        self.socket.connection()
    }

    fn application(&mut self, now: Instant) {
        let Some(connection) = self.socket.connection() else { return };
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Established if self.left > 0 => {
                    self.stream = connection.open().ok();
                    self.answered = self.asks.then(|| now + connection.stats().rtt);
                }
                Event::Opened(stream) => self.stream = Some(stream),
                _ => {}
            }
        }
        let Some(stream) = self.stream else { return };
        self.answered.take_if(|at| *at <= now);
        let mut buffer = [0; CHUNK];
        while self.left > 0 && self.answered.is_none() {
            let next = self.left.min(CHUNK as u64) as usize;
            let WriteOutcome::Written(len @ 1..) = connection.write(stream, &buffer[..next]) else {
                break;
            };
            self.left -= len as u64;
        }
        while let ReadOutcome::Read(len) = connection.read(now, stream, &mut buffer) {
            self.read += len as u64;
        }
    }
}

impl Node for Endless {
    fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    fn receive(&mut self, now: Instant, arrived: Arrived<'_>, out: &mut Vec<Datagram>) {
        self.socket.receive(now, arrived, out);
    }

    fn run(&mut self, now: Instant, out: &mut Vec<Datagram>) {
        if let Some((_, to)) = self.connects.take_if(|(at, _)| *at <= now) {
            self.socket.connect(now, to);
        }
        self.application(now);
        self.socket.flush(now, out);
        self.application(now);
    }

    fn next(&self) -> Option<Instant> {
        let connects = self.connects.map(|(at, _)| at);
        [connects, self.answered, self.socket.next()].into_iter().flatten().min()
    }
}

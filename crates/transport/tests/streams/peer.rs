//! A host whose application works on many streams, by events.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use sim::{Arrived, Datagram, Node, Socket};
use transport::{CloseReason, Config, Event, Priority, ReadOutcome, WriteOutcome};
use units::Instant;

/// Writes and reads zeros; counts them.
pub struct Peer {
    pub socket: Socket,
    /// Of each stream: bytes still to be written.
    writing: BTreeMap<u64, u64>,
    /// Of each stream: bytes that it took.
    pub written: BTreeMap<u64, u64>,
    /// Of each stream: bytes read.
    pub read: BTreeMap<u64, u64>,
    /// Streams that were read to the end, or to a reset with this code.
    pub ended: BTreeMap<u64, Option<u64>>,
    /// Streams of which nothing is read.
    pub stalled: BTreeSet<u64>,
    /// Streams to open, of so many bytes each.
    pub wanted: (u64, u64),
    /// Times that opening had to wait.
    pub waits: u64,
    pub most_open: usize,
    pub established: bool,
    pub closed: Option<CloseReason>,
}

impl Peer {
    pub fn new(octet: u8, config: Config) -> Self {
        let address = ([10, 0, octet, 1], 7272).into();
        Self {
            socket: Socket::new(address, config, [octet + 1; 32]),
            writing: BTreeMap::new(),
            written: BTreeMap::new(),
            read: BTreeMap::new(),
            ended: BTreeMap::new(),
            stalled: BTreeSet::new(),
            wanted: (0, 0),
            waits: 0,
            most_open: 0,
            established: false,
            closed: None,
        }
    }

    /// Opens a stream of `len` bytes.
    pub fn send(&mut self, len: u64, priority: Priority) -> u64 {
        let connection = self.socket.connection().unwrap();
        let id = connection.open().unwrap();
        connection.set_priority(id, priority);
        self.writing.insert(id, len);
        self.write(id);
        id
    }

    fn write(&mut self, id: u64) {
        let connection = self.socket.connection().unwrap();
        let Some(left) = self.writing.get_mut(&id) else { return };
        let zeros = [0; 32 << 10];
        while *left > 0 {
            let len = (*left).min(zeros.len() as u64) as usize;
            match connection.write(id, &zeros[..len]) {
                WriteOutcome::Written(len) => {
                    *left -= len as u64;
                    *self.written.entry(id).or_default() += len as u64;
                }
                WriteOutcome::Blocked => return,
                WriteOutcome::Stopped => break,
            }
        }
        connection.finish(id);
        self.writing.remove(&id);
    }

    /// Goes on reading what has stalled.
    pub fn resume(&mut self, now: Instant, id: u64) {
        self.stalled.remove(&id);
        self.read(now, id);
    }

    fn open_wanted(&mut self) {
        while self.wanted.0 > 0 {
            match self.socket.connection().unwrap().open() {
                Ok(id) => {
                    self.wanted.0 -= 1;
                    self.writing.insert(id, self.wanted.1);
                    self.write(id);
                }
                Err(_) => {
                    self.waits += 1;
                    return;
                }
            }
        }
    }

    fn read(&mut self, now: Instant, id: u64) {
        let connection = self.socket.connection().unwrap();
        let mut buffer = [0; 64 << 10];
        while !self.stalled.contains(&id) {
            match connection.read(now, id, &mut buffer) {
                ReadOutcome::Read(len) => *self.read.entry(id).or_default() += len as u64,
                ReadOutcome::Blocked => break,
                ended => {
                    let code = if let ReadOutcome::Reset(code) = ended { Some(code) } else { None };
                    self.ended.insert(id, code);
                    connection.finish(id);
                    connection.release(id);
                    break;
                }
            }
        }
    }

    fn run_application(&mut self, now: Instant) {
        while let Some(event) = self.socket.connection().and_then(|it| it.poll_event()) {
            match event {
                Event::Established => self.established = true,
                Event::Opened(id) => {
                    self.read.insert(id, 0);
                    self.most_open = self.most_open.max(self.read.len() - self.ended.len());
                }
                Event::Readable(id) => self.read(now, id),
                Event::Writable(id) => self.write(id),
                Event::Openable => self.open_wanted(),
                Event::Closed(reason) => self.closed = Some(reason),
            }
        }
        if self.established && self.waits == 0 {
            self.open_wanted();
        }
    }
}

impl Node for Peer {
    fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    fn receive(&mut self, now: Instant, arrived: Arrived<'_>, out: &mut Vec<Datagram>) {
        self.socket.receive(now, arrived, out);
    }

    fn run(&mut self, now: Instant, out: &mut Vec<Datagram>) {
        self.run_application(now);
        self.socket.flush(now, out);
        self.run_application(now);
    }

    fn next(&self) -> Option<Instant> {
        self.socket.next()
    }
}

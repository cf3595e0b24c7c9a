//! A host whose application sends and reads whole streams.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use transport::{CloseReason, Config, Connection, Event, ReadOutcome, WriteOutcome};
use units::Instant;

use crate::{Arrived, Datagram, Node, Socket};

/// What the application reads in one go.
const READ: usize = 16 << 10;

/// One end, and what its application does: it writes what there is room for and reads what there
/// is, at once.
pub struct Host {
    socket: Socket,
    /// What is still to be written, by stream.
    outgoing: BTreeMap<u64, Vec<u8>>,
    written: BTreeMap<u64, usize>,
    /// What was read, and whether to the end, by stream.
    pub incoming: BTreeMap<u64, (Vec<u8>, bool)>,
    /// Answers each stream with its own bytes.
    pub echo: bool,
    /// Why the connection ended, once it has.
    pub closed: Option<CloseReason>,
    /// Whether the connection was made.
    pub established: bool,
}

impl Host {
    /// A host at `address`; `seed` makes its keys.
    pub fn new(address: SocketAddr, config: Config, seed: [u8; 32]) -> Self {
        Self {
            socket: Socket::new(address, config, seed),
            outgoing: BTreeMap::new(),
            written: BTreeMap::new(),
            incoming: BTreeMap::new(),
            echo: false,
            closed: None,
            established: false,
        }
    }

    /// Begins the connection.
    pub fn connect(&mut self, now: Instant, there: SocketAddr) {
        self.socket.connect(now, there);
    }

    /// The connection.
    ///
    /// # Panics
    /// Before the first hello has arrived, or left.
    pub fn connection(&mut self) -> &mut Connection {
        self.socket.connection().expect("there is a connection")
    }

    /// Opens a stream that will carry `bytes` and then end.
    ///
    /// # Panics
    /// When the other end takes no more streams.
    pub fn send(&mut self, bytes: Vec<u8>) -> u64 {
        let id = self.connection().open().expect("credit for a stream");
        self.outgoing.insert(id, bytes);
        self.written.insert(id, 0);
        id
    }

    /// Writes more to a stream that was opened with [`Connection::open`].
    ///
    /// # Panics
    /// When the stream does not take all of it at once.
    pub fn write(&mut self, id: u64, bytes: &[u8]) {
        assert_eq!(self.connection().write(id, bytes), WriteOutcome::Written(bytes.len()));
    }

    fn run_application(&mut self, now: Instant) {
        let Some(connection) = self.socket.connection() else {
            return;
        };
        let mut met = false;
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Established => met = true,
                Event::Opened(id) => {
                    self.incoming.insert(id, Default::default());
                }
                Event::Closed(reason) => self.closed = Some(reason),
                Event::Readable(_) | Event::Writable(_) | Event::Openable => {}
            }
        }
        for (&id, bytes) in &self.outgoing {
            let written = self.written.get_mut(&id).expect("kept together");
            write_rest(connection, id, bytes, written);
            if *written == bytes.len() && !self.echo {
                connection.finish(id);
            }
            self.incoming.entry(id).or_default();
        }
        let mut buffer = [0; READ];
        for (&id, (bytes, ended)) in &mut self.incoming {
            while !*ended {
                match connection.read(now, id, &mut buffer) {
                    ReadOutcome::Read(len) => bytes.extend_from_slice(&buffer[..len]),
                    ReadOutcome::End => *ended = true,
                    ReadOutcome::Blocked | ReadOutcome::Reset(_) => break,
                }
            }
            if self.echo {
                let sent = self.written.entry(id).or_default();
                write_rest(connection, id, bytes, sent);
                if *ended && *sent == bytes.len() {
                    connection.finish(id);
                }
            }
        }
        if met {
            self.established = true;
            self.socket.on_established();
        }
    }
}

/// Writes what there is room for.
fn write_rest(connection: &mut Connection, id: u64, bytes: &[u8], written: &mut usize) {
    while *written < bytes.len() {
        let WriteOutcome::Written(len) = connection.write(id, &bytes[*written..]) else {
            break;
        };
        *written += len;
    }
}

impl Node for Host {
    fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    fn receive(&mut self, now: Instant, arrived: Arrived<'_>, out: &mut Vec<Datagram>) {
        self.socket.receive(now, arrived, out);
    }

    fn run(&mut self, now: Instant, out: &mut Vec<Datagram>) {
        self.run_application(now);
        self.socket.flush(now, out);
        // What the flush did, such as ending the connection, is news for the application.
        self.run_application(now);
    }

    fn next(&self) -> Option<Instant> {
        self.socket.next()
    }
}

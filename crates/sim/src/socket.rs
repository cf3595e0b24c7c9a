//! The transport's end of a host: what the real driver is to a UDP socket.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use transport::crypto::{Credentials, SharedKey};
use transport::{Config, Connection, Endpoint, Received, Routed, Transmit};
use units::Instant;

use crate::{Arrived, Datagram};

/// An endpoint with its connections, in the order of their numbers.
pub struct Socket {
    address: SocketAddr,
    endpoint: Endpoint,
    connections: BTreeMap<u32, Connection>,
    /// The connection that was begun last, from either end.
    latest: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// A socket at `address` that accepts connections. Every such socket holds the same key.
    pub fn new(address: SocketAddr, config: Config, seed: [u8; 32]) -> Self {
        Self::with(SharedKey::from_bytes([7; 32]).into(), address, config, seed)
    }

    /// A socket that proves itself by these credentials.
    pub fn with(
        credentials: Credentials,
        address: SocketAddr,
        config: Config,
        seed: [u8; 32],
    ) -> Self {
        Self {
            address,
            endpoint: Endpoint::new(credentials, config, true, seed),
            connections: BTreeMap::new(),
            latest: 0,
            buffer: Vec::new(),
        }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins a connection to `there`; its number.
    pub fn connect(&mut self, now: Instant, there: SocketAddr) -> u32 {
        let (number, connection) = self.endpoint.connect(now, there);
        self.connections.insert(number, connection);
        self.latest = number;
        number
    }

    /// The connection that was begun last, if there is one.
    pub fn connection(&mut self) -> Option<&mut Connection> {
        self.connections.get_mut(&self.latest)
    }

    /// The same, to look at.
    pub fn latest(&self) -> Option<&Connection> {
        self.connections.get(&self.latest)
    }

    /// The latest connection has said that it is established.
    pub fn on_established(&mut self) {
        self.establish(self.latest);
    }

    /// A connection has said that it is established.
    pub fn establish(&mut self, number: u32) {
        if let Some(connection) = self.connections.get(&number) {
            self.endpoint.on_established(number, connection);
        }
    }

    /// Every connection with its number.
    pub fn connections(&mut self) -> impl Iterator<Item = (u32, &mut Connection)> {
        self.connections.iter_mut().map(|(&number, connection)| (number, connection))
    }

    /// Forgets the connections that have ended, as a driver does once their events are read.
    pub fn forget_closed(&mut self) {
        let closed = self.connections.extract_if(.., |_, connection| connection.is_closed());
        closed.for_each(|(number, _)| self.endpoint.forget(number));
    }

    /// A datagram arrived.
    pub fn receive(&mut self, now: Instant, arrived: Arrived<'_>, out: &mut Vec<Datagram>) {
        let Arrived { from, at, ce, bytes } = arrived;
        match self.endpoint.route(now, from, bytes) {
            Routed::Known(number) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.handle(now, Received { from, to: None, arrived: at, ce, bytes });
                }
            }
            Routed::New(number, connection) => {
                self.latest = number;
                self.connections.insert(number, *connection);
                self.endpoint.take_evicted().map(|evicted| self.connections.remove(&evicted));
            }
            Routed::Refused(bytes) => {
                out.push(Datagram { to: from, ecn_capable: false, bytes });
            }
            Routed::Dropped => {}
        }
    }

    /// Does what is due and sends what may be sent.
    pub fn flush(&mut self, now: Instant, out: &mut Vec<Datagram>) {
        self.flush_to(now, |transmit, bytes| {
            let Transmit { to, ecn: ecn_capable, .. } = *transmit;
            out.push(Datagram { to, ecn_capable, bytes: bytes.to_vec() });
        });
    }

    /// The same, where `send` takes the datagrams, each with what was said of its batch.
    pub fn flush_to(&mut self, now: Instant, mut send: impl FnMut(&Transmit, &[u8])) {
        for connection in self.connections.values_mut() {
            loop {
                connection.handle_timeout(now);
                let Some(transmit) = connection.poll_transmit(now, &mut self.buffer) else {
                    break;
                };
                self.buffer.chunks(transmit.segment).for_each(|bytes| send(&transmit, bytes));
            }
        }
    }

    /// When something is due.
    pub fn next(&self) -> Option<Instant> {
        self.connections.values().filter_map(Connection::poll_timeout).min()
    }
}

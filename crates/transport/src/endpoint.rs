//! One socket's worth of connections: makes them, and tells which one a datagram is for.

use core::net::SocketAddr;
use std::collections::HashMap;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use units::Instant;

use crate::config::Config;
use crate::connection::Connection;
use crate::crypto::{Initiator, Responder, SharedKey};
use crate::wire::{Opening, Parameters, Refusal, VERSION};

/// Names the protocol in the handshake, so that none of its messages serves elsewhere.
const PROLOGUE: &[u8] = b"longhaul udp 1";
/// A hello is at least this long, so that no answer to it is larger.
const HELLO_LEN: usize = 1200;
/// Connections of one endpoint.
const MAX_CONNECTIONS: usize = 10_000;

/// What became of a datagram.
#[derive(Debug)]
pub enum Routed {
    /// It is for this connection: hand it to [`Connection::handle`].
    Known(u32),
    /// It began this connection.
    New(u32, Box<Connection>),
    /// It is refused with this datagram.
    Refused(Vec<u8>),
    /// It is for nobody.
    Dropped,
}

/// The connections of one socket, by number. The connections themselves are the caller's.
#[derive(Debug)]
pub struct Endpoint {
    key: SharedKey,
    config: Config,
    listens: bool,
    random: ChaCha20Rng,
    /// Each connection's number; of a responder's, with the hello that began it.
    connections: HashMap<u32, Option<HelloId>>,
    hellos: HashMap<HelloId, u32>,
}

/// A hello's ephemeral key: different for every hello that is not a repeat.
type HelloId = [u8; Opening::ECHO_LEN];

impl Endpoint {
    /// An endpoint that can connect, and with `listens` also accepts. `seed` must be fresh
    /// randomness.
    pub fn new(key: SharedKey, config: Config, listens: bool, seed: [u8; 32]) -> Self {
        Self {
            key,
            config,
            listens,
            random: ChaCha20Rng::from_seed(seed),
            connections: HashMap::new(),
            hellos: HashMap::new(),
        }
    }

    /// Begins a connection to `address`.
    pub fn connect(&mut self, now: Instant, address: SocketAddr) -> (u32, Connection) {
        let local = self.number();
        let seed = self.seed();
        let mut initiator = Initiator::new(&self.key, seed, PROLOGUE);
        let noise = initiator.hello(&self.parameters(local).encode(HELLO_LEN));
        let mut hello = Vec::with_capacity(noise.len() + 8);
        Opening::Hello { version: VERSION, connection: local, noise: &noise }.encode(&mut hello);
        self.connections.insert(local, None);
        let opening = (initiator, hello);
        (local, Connection::initiate(now, self.config, local, address, opening))
    }

    /// Tells whom a datagram is for.
    pub fn route(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> Routed {
        if let Ok(Opening::Hello { version, connection, noise }) = Opening::decode(datagram) {
            return self.on_hello(now, from, datagram.len(), (version, connection, noise));
        }
        // Both the opening's and the sealed packets' number stands here.
        let number = datagram.get(4..8).and_then(|bytes| bytes.try_into().ok());
        match number.map(u32::from_be_bytes) {
            Some(number) if self.connections.contains_key(&number) => Routed::Known(number),
            _ => Routed::Dropped,
        }
    }

    fn on_hello(
        &mut self,
        now: Instant,
        from: SocketAddr,
        len: usize,
        (version, connection, noise): (u8, u32, &[u8]),
    ) -> Routed {
        let Some(id) = noise.first_chunk::<{ Opening::ECHO_LEN }>() else {
            return Routed::Dropped;
        };
        if !self.listens || len < HELLO_LEN {
            return Routed::Dropped;
        }
        if let Some(&known) = self.hellos.get(id) {
            return Routed::Known(known);
        }
        let refuse = |refusal| {
            let mut out = Vec::new();
            Opening::Refused { connection, refusal, echo: id }.encode(&mut out);
            Routed::Refused(out)
        };
        if version != VERSION {
            return refuse(Refusal::Version(VERSION));
        }
        if self.connections.len() >= MAX_CONNECTIONS {
            return refuse(Refusal::Busy);
        }
        let seed = self.seed();
        let accepted = Responder::accept(&self.key, seed, PROLOGUE, noise);
        let Ok((responder, payload)) = accepted else {
            return refuse(Refusal::WrongKey);
        };
        let Ok(theirs) = Parameters::decode(&payload) else {
            return Routed::Dropped;
        };
        let local = self.number();
        let (noise, keys) = responder.reply(&self.parameters(local).encode(0));
        let mut reply = Vec::with_capacity(noise.len() + 8);
        Opening::Reply { connection, noise: &noise }.encode(&mut reply);
        self.connections.insert(local, Some(*id));
        self.hellos.insert(*id, local);
        let opening = (theirs, keys, reply);
        let connection = Connection::respond(now, self.config, local, from, opening);
        Routed::New(local, Box::new(connection))
    }

    /// Forgets a connection that has ended.
    pub fn forget(&mut self, number: u32) {
        if let Some(Some(hello)) = self.connections.remove(&number) {
            self.hellos.remove(&hello);
        }
    }

    fn parameters(&self, connection: u32) -> Parameters {
        let limits = self.config.limits();
        Parameters {
            connection,
            connection_credit: limits.connection_credit,
            stream_credit: limits.stream_credit,
            streams: limits.streams,
        }
    }

    fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.random.fill_bytes(&mut seed);
        seed
    }

    fn number(&mut self) -> u32 {
        loop {
            let number = self.random.next_u32();
            if !self.connections.contains_key(&number) {
                return number;
            }
        }
    }
}

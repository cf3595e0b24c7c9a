//! One socket's worth of connections: makes them, and tells which one a datagram is for.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use units::Instant;

use crate::admission::{Admission, Verdict};
use crate::config::Config;
use crate::connection::{Connection, Greeting, prologue};
use crate::crypto::{
    Credentials, CryptoError, Pattern, Responder, TAG_LEN, Token, Tokens, digest, octets,
};
use crate::stats::Refusals;
use crate::wire::{self, Echo, HEADER_LEN, Header, Kind, Opening, Parameters, Refusal};

/// Connections of one endpoint.
const MAX_CONNECTIONS: usize = 10_000;

/// What became of a datagram.
#[derive(Debug)]
pub enum Routed {
    /// It is for this connection: hand it to [`Connection::handle`].
    Known(u32),
    /// It began this connection. Where too many are half open, that takes the place of one that
    /// the endpoint has forgotten: see [`Endpoint::take_evicted`].
    New(u32, Box<Connection>),
    /// Nothing is kept of it, and it is answered with this datagram.
    Refused(Vec<u8>),
    /// It is for nobody.
    Dropped,
}

/// The connections of one socket, by number. The connections themselves are the caller's.
#[derive(Debug)]
pub struct Endpoint {
    credentials: Credentials,
    config: Config,
    listens: bool,
    random: ChaCha20Rng,
    connections: HashMap<u32, Known>,
    /// The connections that a hello began, by its ephemeral key: another one for every hello that
    /// is not a repeat.
    hellos: HashMap<Echo, u32>,
    admission: Admission,
    evicted: Option<u32>,
    /// Makes the tokens of our own resets.
    tokens: Tokens,
    /// The tokens of the others' resets, and the connections that they end.
    resets: HashMap<Token, u32>,
    /// The connections begun here for which no report was routed, by the others' numbers for them. A caller may hand
    /// sealed packets to their connections itself: then these stay, and the connection refuses a reset that comes late.
    unreported: HashMap<u32, u32>,
    refusals: Refusals,
}

/// What the endpoint keeps of a connection.
#[derive(Debug, Default)]
struct Known {
    /// Of a responder's: the hello that began it.
    hello: Option<Echo>,
    /// What the other end says when it does not know the connection any more.
    reset: Option<Token>,
    /// Of an initiator's, until a report comes: the other end's number for it.
    unreported: Option<u32>,
}

/// A hello as it came.
struct Hello<'a> {
    from: SocketAddr,
    version: u8,
    pattern: u8,
    connection: u32,
    cookie: &'a Token,
    noise: &'a [u8],
    id: &'a Echo,
    datagram: &'a [u8],
}

impl Hello<'_> {
    fn refuse(&self, refusal: Refusal) -> Routed {
        let (connection, digest) = (self.connection, &digest(self.datagram));
        answer(Opening::Refused { connection, refusal, digest })
    }
}

fn answer(opening: Opening<'_>) -> Routed {
    let mut out = Vec::new();
    opening.encode(&mut out);
    Routed::Refused(out)
}

impl Endpoint {
    /// An endpoint that can connect, and with `listens` also accepts. `seed` must be fresh
    /// randomness.
    pub fn new(
        credentials: impl Into<Credentials>,
        config: Config,
        listens: bool,
        seed: [u8; 32],
    ) -> Self {
        let credentials = credentials.into();
        let mut random = ChaCha20Rng::from_seed(seed);
        Self {
            admission: Admission::new(&bytes(&mut random)),
            evicted: None,
            tokens: credentials.reset_tokens(&[]),
            credentials,
            config,
            listens,
            random,
            connections: HashMap::new(),
            hellos: HashMap::new(),
            resets: HashMap::new(),
            unreported: HashMap::new(),
            refusals: Refusals::default(),
        }
    }

    /// Says where this endpoint is, in bytes that are the same after a restart and no other
    /// endpoint with the same credentials has: its resets are then its own.
    #[must_use]
    pub fn at(mut self, place: &[u8]) -> Self {
        self.tokens = self.credentials.reset_tokens(place);
        self
    }

    /// Begins a connection to `address`.
    pub fn connect(&mut self, now: Instant, address: SocketAddr) -> (u32, Connection) {
        let local = self.number();
        self.connections.insert(local, Known::default());
        let greeting = Greeting {
            credentials: self.credentials.clone(),
            parameters: self.parameters(local, address.ip()),
            random: ChaCha20Rng::from_seed(bytes(&mut self.random)),
        };
        (local, Connection::initiate(now, self.config, local, address, greeting))
    }

    /// Tells whom a datagram is for.
    pub fn route(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> Routed {
        if let (true, Some(answer)) = (self.listens, wire::echo(datagram)) {
            let may = self.admission.may_echo(now);
            return if may { Routed::Refused(answer.to_vec()) } else { Routed::Dropped };
        }
        if !Opening::is_opening(datagram) {
            return self.route_sealed(now, from, datagram);
        }
        match Opening::decode(datagram) {
            Err(_) => self.drop_malformed(),
            Ok(Opening::Hello { version, pattern, connection, cookie, noise }) => {
                match noise.first_chunk() {
                    Some(id) if self.listens && datagram.len() >= Opening::HELLO_LEN => {
                        let hello = Hello {
                            from,
                            version,
                            pattern,
                            connection,
                            cookie,
                            noise,
                            id,
                            datagram,
                        };
                        self.on_hello(now, &hello)
                    }
                    _ => self.drop_malformed(),
                }
            }
            Ok(Opening::Who { connection, nonce }) => match self.credentials.public() {
                Some(key) if self.listens && datagram.len() >= Opening::HELLO_LEN => {
                    answer(Opening::Host { connection, nonce, key })
                }
                _ => self.drop_malformed(),
            },
            Ok(Opening::Gone { connection, token }) => {
                match self.resets.get(token).or_else(|| self.unreported.get(&connection)) {
                    Some(&number) => Routed::Known(number),
                    None => {
                        self.refusals.forged_resets += 1;
                        Routed::Dropped
                    }
                }
            }
            Ok(
                Opening::Reply { connection, .. }
                | Opening::Refused { connection, .. }
                | Opening::Retry { connection, .. }
                | Opening::Host { connection, .. },
            ) => self.known(connection),
        }
    }

    fn drop_malformed(&mut self) -> Routed {
        self.refusals.malformed += 1;
        Routed::Dropped
    }

    fn known(&mut self, number: u32) -> Routed {
        if self.connections.contains_key(&number) {
            return Routed::Known(number);
        }
        self.refusals.unknown += 1;
        Routed::Dropped
    }

    /// Whoever sends to a connection that is not there should know, but not by an answer that is
    /// larger than its packet, nor by more answers than there is time for.
    fn route_sealed(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> Routed {
        let Ok(Header { connection, kind, .. }) = Header::decode(datagram) else {
            return self.drop_malformed();
        };
        if let Some(known) = self.connections.get_mut(&connection) {
            if kind == Kind::Report {
                known.unreported.take().map(|theirs| self.unreported.remove(&theirs));
            }
            return Routed::Known(connection);
        }
        self.refusals.unknown += 1;
        let is_packet = datagram.len() >= HEADER_LEN + TAG_LEN;
        if !self.listens || !is_packet || !self.admission.may_reset(now) {
            return Routed::Dropped;
        }
        self.refusals.resets_sent += 1;
        answer(Opening::Gone { connection, token: &self.reset_token(connection, from.ip()) })
    }

    fn on_hello(&mut self, now: Instant, hello: &Hello<'_>) -> Routed {
        if let Some(&known) = self.hellos.get(hello.id) {
            return Routed::Known(known);
        }
        let versions = self.config.versions;
        if !(versions.oldest..=versions.newest).contains(&hello.version) {
            self.refusals.version += 1;
            return hello.refuse(Refusal::Version(versions));
        }
        if hello.pattern != Pattern::of(&self.credentials) as u8 {
            self.refusals.pattern += 1;
            return hello.refuse(Refusal::Pattern);
        }
        let full = self.connections.len() >= MAX_CONNECTIONS;
        match self.admission.judge(now, hello.from, hello.id, hello.cookie) {
            Verdict::Accept if !full => self.accept(now, hello),
            Verdict::Accept => {
                self.refusals.busy += 1;
                hello.refuse(Refusal::Busy)
            }
            Verdict::Retry(cookie) => {
                self.refusals.retries += 1;
                let (connection, echo) = (hello.connection, hello.id);
                answer(Opening::Retry { connection, echo, cookie: &cookie })
            }
            Verdict::Ignore => {
                self.refusals.ignored += 1;
                Routed::Dropped
            }
        }
    }

    fn accept(&mut self, now: Instant, hello: &Hello<'_>) -> Routed {
        let seed = bytes(&mut self.random);
        let prologue = prologue(hello.version);
        let accepted = Responder::accept(&self.credentials, seed, &prologue, hello.noise);
        let (responder, payload) = match accepted {
            Ok(accepted) => accepted,
            Err(CryptoError::NotAllowed(_)) => {
                self.refusals.not_allowed += 1;
                return hello.refuse(Refusal::NotAllowed);
            }
            Err(_) => {
                self.refusals.wrong_key += 1;
                return hello.refuse(Refusal::WrongKey);
            }
        };
        let Ok(theirs) = Parameters::decode(&payload) else {
            return self.drop_malformed();
        };
        let reflected =
            self.connections.get(&theirs.connection).is_some_and(|known| known.hello.is_none());
        // Somebody on the way may have talked the initiator into an older version.
        if reflected || self.config.versions.common(theirs.versions) != Some(hello.version) {
            self.refusals.tricks += 1;
            return Routed::Dropped;
        }
        if theirs.feedback != self.config.feedback as u8 {
            self.refusals.feedback += 1;
            return hello.refuse(Refusal::Feedback);
        }
        let local = self.number();
        let ours = self.parameters(local, hello.from.ip());
        let (noise, keys) = responder.reply(&ours.encode(0));
        let mut reply = Vec::new();
        // The number from inside the seal: the one in clear may have been damaged on the way.
        let (version, connection) = (hello.version, theirs.connection);
        Opening::Reply { version, connection, noise: &noise }.encode(&mut reply);
        self.connections.insert(local, Known { hello: Some(*hello.id), ..Known::default() });
        self.hellos.insert(*hello.id, local);
        self.evicted = self.admission.begin(local);
        self.evicted.into_iter().for_each(|oldest| self.forget(oldest));
        let (place, seed) = ((local, hello.from), bytes(&mut self.random));
        let opening = ((ours, theirs), keys, reply);
        let connection = Connection::respond(now, self.config, place, seed, opening);
        Routed::New(local, Box::new(connection))
    }

    /// The connection that had to make room for the latest new one, to be dropped by the caller: it
    /// is forgotten here already.
    pub fn take_evicted(&mut self) -> Option<u32> {
        self.evicted.take()
    }

    /// To be called when [`crate::Event::Established`] has come from the connection: it is no
    /// longer half open, and a reset of the other end will be known.
    pub fn on_established(&mut self, number: u32, connection: &Connection) {
        self.admission.end(number);
        if let Some(known) = self.connections.get_mut(&number) {
            known.reset = Some(*connection.reset_token());
            self.resets.insert(*connection.reset_token(), number);
            if known.hello.is_none() {
                known.unreported = Some(connection.remote());
                self.unreported.insert(connection.remote(), number);
            }
        }
    }

    /// Forgets a connection that has ended.
    pub fn forget(&mut self, number: u32) {
        self.admission.end(number);
        if let Some(known) = self.connections.remove(&number) {
            known.hello.map(|hello| self.hellos.remove(&hello));
            known.reset.map(|token| self.resets.remove(&token));
            known.unreported.map(|theirs| self.unreported.remove(&theirs));
        }
    }

    /// What was refused so far without being any connection's.
    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    fn parameters(&self, connection: u32, peer: IpAddr) -> Parameters {
        let limits = self.config.limits();
        Parameters {
            connection,
            connection_credit: limits.connection_credit,
            stream_credit: limits.stream_credit,
            streams: limits.streams,
            idle_timeout: self.config.idle_timeout,
            reset_token: self.reset_token(connection, peer),
            versions: self.config.versions,
            feedback: self.config.feedback as u8,
        }
    }

    /// What shows the other end that a reset is ours. Whoever asks for the number from elsewhere is told
    /// another, lest tokens be gathered for connections to come.
    fn reset_token(&self, connection: u32, peer: IpAddr) -> Token {
        self.tokens.token(&[&connection.to_be_bytes(), &octets(peer.to_canonical())])
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

fn bytes(random: &mut ChaCha20Rng) -> [u8; 32] {
    let mut bytes = [0; 32];
    random.fill_bytes(&mut bytes);
    bytes
}

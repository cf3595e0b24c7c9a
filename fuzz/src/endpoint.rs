//! A listening endpoint among many callers, at many addresses: hellos, floods of them, retries,
//! refusals, moves, copies, damage and ends, in any order.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use arbitrary::{Result, Unstructured};
use transport::crypto::{Sealing, SharedKey};
use transport::{Config, Connection, Endpoint, Event, MAX_HALF_OPEN, Received, Routed};
use units::Instant;

/// Operations of one run at most.
const MOST: usize = 200;
/// Callers that are there at a time, at most, and datagrams under way.
const CALLERS: usize = 6;
const WIRE: usize = 500;
/// Hellos in one flood.
const FLOOD: usize = 300;
/// To an address that has proved nothing goes so many times what came from there.
const AMPLIFICATION: u64 = 3;
/// Calls to nobody end within this, and so do connections that were closed.
const ENOUGH: Duration = Duration::from_secs(200);

fn server() -> SocketAddr {
    ([10, 0, 0, 1], 7272).into()
}

fn address(of: u8) -> SocketAddr {
    ([10, 0, 1, of % 16], 7272).into()
}

/// Bytes that came from an address, and that went there.
#[derive(Default)]
struct Account {
    came: u64,
    went: u64,
    /// It has proved that it is there.
    proved: bool,
}

struct Caller {
    endpoint: Endpoint,
    number: u32,
    connection: Connection,
    at: SocketAddr,
    /// It has the server's key.
    known: bool,
}

struct Server {
    endpoint: Endpoint,
    connections: BTreeMap<u32, (Connection, bool)>,
    accounts: BTreeMap<SocketAddr, Account>,
}

/// The server, who calls it, and what is under way: from, to, bytes.
struct World {
    now: Instant,
    config: Config,
    server: Server,
    callers: Vec<Caller>,
    wire: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    calls: u8,
}

/// Runs one input.
pub fn run(input: &[u8]) {
    let _ = World::new().live(&mut Unstructured::new(input));
}

impl Server {
    fn arrive(&mut self, now: Instant, from: SocketAddr, bytes: &mut [u8]) -> Option<Vec<u8>> {
        self.accounts.entry(from).or_default().came += bytes.len() as u64;
        let is_echo = bytes.len() == 12 && bytes[0] < 0x80;
        match self.endpoint.route(now, from, bytes) {
            Routed::Known(number) => {
                let (connection, _) = self.connections.get_mut(&number).expect("it is known");
                connection.handle(now, Received { from, to: None, arrived: now, ce: false, bytes });
                None
            }
            Routed::New(number, connection) => {
                assert!(self.connections.insert(number, (*connection, false)).is_none());
                if let Some(evicted) = self.endpoint.take_evicted() {
                    let (_, established) = self.connections.remove(&evicted).expect("it is known");
                    assert!(!established, "who has proved its address was thrown out");
                }
                None
            }
            Routed::Refused(answer) => {
                // Paper 3's echo comes back, but for one bit.
                let same = || answer[0] == bytes[0] | 0x80 && answer[1..] == bytes[1..];
                assert!(!is_echo || same());
                Some(answer)
            }
            Routed::Dropped => {
                assert!(!is_echo, "the echo was not answered");
                None
            }
        }
    }

    fn run(&mut self, now: Instant, send: &mut impl FnMut(SocketAddr, &[u8])) {
        let mut out = Vec::new();
        for (&number, (connection, established)) in &mut self.connections {
            loop {
                connection.handle_timeout(now);
                let Some(transmit) = connection.poll_transmit(now, &mut out) else { break };
                out.chunks(transmit.segment).for_each(|bytes| send(transmit.to, bytes));
            }
            while let Some(event) = connection.poll_event() {
                if event == Event::Established {
                    assert!(!*established, "established twice");
                    *established = true;
                    self.endpoint.on_established(number, connection);
                }
            }
            if *established {
                self.accounts.entry(connection.address()).or_default().proved = true;
            }
        }
        let closed = self.connections.extract_if(.., |_, (connection, _)| connection.is_closed());
        closed.for_each(|(number, _)| self.endpoint.forget(number));
    }

    fn check(&self) {
        let half_open = self.connections.values().filter(|(_, established)| !established).count();
        assert!(half_open <= MAX_HALF_OPEN, "{half_open} half open");
        for (address, account) in &self.accounts {
            let Account { came, went, proved } = *account;
            assert!(proved || went <= AMPLIFICATION * came, "{went} to {address} for {came}");
        }
    }
}

impl World {
    fn new() -> Self {
        let config = Config { sealing: Sealing::Simulated, ..Config::default() };
        let endpoint = Endpoint::new(SharedKey::from_bytes([1; 32]), config, true, [0; 32]);
        let connections = BTreeMap::new();
        let server = Server { endpoint, connections, accounts: BTreeMap::new() };
        let now = Instant::from_nanos(1_000_000_000);
        Self { now, config, server, callers: Vec::new(), wire: Vec::new(), calls: 0 }
    }

    fn live(mut self, input: &mut Unstructured<'_>) -> Result<()> {
        for _ in 0..MOST {
            if input.is_empty() {
                break;
            }
            self.step(input)?;
            self.run();
            self.server.check();
        }
        self.end();
        Ok(())
    }

    fn step(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let place = input.int_in_range(0..=self.wire.len().max(1) - 1)?;
        let who = input.int_in_range(0..=self.callers.len().max(1) - 1)?;
        match input.int_in_range(0..=15)? {
            0 | 1 => self.call(address(input.arbitrary()?), input.ratio(7, 8)?),
            2..=5 => {
                for (from, to, bytes) in core::mem::take(&mut self.wire) {
                    self.arrive(from, to, bytes);
                }
            }
            6 if place < self.wire.len() => {
                let (from, to, bytes) = self.wire.remove(place);
                self.arrive(from, to, bytes);
            }
            // A copy, perhaps from elsewhere, perhaps damaged, perhaps cut short.
            7 | 8 if place < self.wire.len() => {
                let (mut from, to, mut bytes) = self.wire[place].clone();
                if input.arbitrary()? {
                    from = address(input.arbitrary()?);
                }
                if input.arbitrary()? {
                    let at = input.int_in_range(0..=bytes.len() - 1)?;
                    bytes[at] ^= 1 << input.int_in_range(0..=7)?;
                }
                if input.ratio(1, 8)? {
                    bytes.truncate(input.int_in_range(0..=bytes.len())?);
                }
                self.arrive(from, to, bytes);
            }
            9 => self.wire.clear(),
            10 => {
                let len = input.int_in_range(0..=60)?;
                let bytes = input.bytes(len)?.to_vec();
                self.arrive(address(input.arbitrary()?), server(), bytes);
            }
            11 => self.flood(input)?,
            12 if who < self.callers.len() => self.callers[who].at = address(input.arbitrary()?),
            13 if who < self.callers.len() => self.callers[who].connection.close(self.now, 1, "so"),
            // The caller dies.
            14 if who < self.callers.len() => drop(self.callers.swap_remove(who)),
            _ => {
                let most = *input.choose(&[1, 1000, 30_000])?;
                self.now += Duration::from_millis(input.int_in_range(0..=most)?);
            }
        }
        Ok(())
    }

    /// Somebody new, with the server's key or another.
    fn caller(&mut self, at: SocketAddr, known: bool) -> Caller {
        self.calls = self.calls.wrapping_add(1);
        let key = SharedKey::from_bytes([if known { 1 } else { 2 }; 32]);
        let mut endpoint = Endpoint::new(key, self.config, false, [self.calls; 32]);
        let (number, connection) = endpoint.connect(self.now, server());
        Caller { endpoint, number, connection, at, known }
    }

    fn call(&mut self, at: SocketAddr, known: bool) {
        if self.callers.len() < CALLERS {
            let caller = self.caller(at, known);
            self.callers.push(caller);
        }
    }

    /// Hellos of a few callers from many addresses, again and again: whoever repeats itself costs nothing.
    fn flood(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let (fresh, known) = (input.int_in_range(1..=8)?, input.ratio(3, 4)?);
        let mut hellos = Vec::new();
        for _ in 0..fresh {
            let mut hello = Vec::new();
            let mut caller = self.caller(address(0), known);
            caller.connection.poll_transmit(self.now, &mut hello).expect("a hello is due");
            hellos.push(hello);
        }
        let addresses: u8 = input.int_in_range(1..=16)?;
        for (of, hello) in hellos.iter().cycle().take(input.int_in_range(1..=FLOOD)?).enumerate() {
            let mut hello = hello.clone();
            // Its number in clear says nothing to the server, but makes each another datagram.
            if let Some(byte) = hello.get_mut(8) {
                *byte ^= of as u8;
            }
            self.arrive(address(of as u8 % addresses), server(), hello);
        }
        Ok(())
    }

    fn arrive(&mut self, from: SocketAddr, to: SocketAddr, mut bytes: Vec<u8>) {
        let now = self.now;
        if to == server() {
            let answer = self.server.arrive(now, from, &mut bytes);
            answer.into_iter().for_each(|answer| self.send(from, &answer));
            return;
        }
        for caller in self.callers.iter_mut().filter(|caller| caller.at == to) {
            if let Routed::Known(number) = caller.endpoint.route(now, from, &bytes) {
                assert_eq!(number, caller.number);
                let bytes = &mut bytes.clone()[..];
                let received = Received { from, to: None, arrived: now, ce: false, bytes };
                caller.connection.handle(now, received);
            }
        }
    }

    /// The server sends.
    fn send(&mut self, to: SocketAddr, bytes: &[u8]) {
        self.server.accounts.entry(to).or_default().went += bytes.len() as u64;
        if self.wire.len() < WIRE {
            self.wire.push((server(), to, bytes.to_vec()));
        }
    }

    fn run(&mut self) {
        let now = self.now;
        let mut sent = Vec::new();
        self.server.run(now, &mut |to, bytes| sent.push((to, bytes.to_vec())));
        sent.into_iter().for_each(|(to, bytes)| self.send(to, &bytes));
        let mut out = Vec::new();
        for caller in &mut self.callers {
            let connection = &mut caller.connection;
            loop {
                connection.handle_timeout(now);
                let Some(transmit) = connection.poll_transmit(now, &mut out) else { break };
                for bytes in out.chunks(transmit.segment) {
                    if self.wire.len() < WIRE {
                        self.wire.push((caller.at, transmit.to, bytes.to_vec()));
                    }
                }
            }
            while let Some(event) = connection.poll_event() {
                if event == Event::Established {
                    assert!(caller.known, "who has another key was let in");
                    caller.endpoint.on_established(caller.number, connection);
                }
            }
        }
        self.callers.retain(|caller| !caller.connection.is_closed());
    }

    /// All callers die; the server is rid of every connection by itself.
    fn end(&mut self) {
        self.callers.clear();
        let end = self.now + ENOUGH;
        while !self.server.connections.is_empty() {
            assert!(self.now < end, "{} connections are left", self.server.connections.len());
            self.now += Duration::from_secs(1);
            self.wire.clear();
            self.run();
            self.server.check();
        }
    }
}

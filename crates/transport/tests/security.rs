//! What strangers, eavesdroppers, floods and restarts can do: two endpoints on a wire that a test
//! may listen in on, write to, lose from and reorder, in virtual time.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use transport::crypto::{Credentials, Identity, SharedKey, digest};
use transport::wire::{Opening, Refusal, Versions};
use transport::{
    CloseReason, Config, Connection, Endpoint, Event, FeedbackKind, MAX_HALF_OPEN, ReadOutcome,
    Received, Refusals, Routed, Stats, WriteOutcome,
};
use units::{Instant, Rate};

const DELAY: Duration = Duration::from_millis(20);

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn at(host: u8, port: u16) -> SocketAddr {
    ([192, 0, 2, host], port).into()
}

fn shared(byte: u8) -> Credentials {
    SharedKey::from_bytes([byte; 32]).into()
}

fn identity(byte: u8) -> Identity {
    Identity::from_bytes([byte; 32])
}

/// Lets in the client with identity 1.
fn server(of: u8) -> Credentials {
    let client = identity(1).public();
    Credentials::server(identity(of), Arc::new(move |key| *key == client))
}

fn client(of: u8, host: u8) -> Credentials {
    Credentials::client(identity(of), identity(host).public())
}

struct Host {
    address: SocketAddr,
    endpoint: Endpoint,
    connections: HashMap<u32, Connection>,
    /// The latest connection.
    number: u32,
    established: bool,
    closed: Option<CloseReason>,
    read: Vec<u8>,
    to_write: Vec<u8>,
    stream: Option<u64>,
}

impl Host {
    fn new(
        address: SocketAddr,
        credentials: Credentials,
        config: Config,
        listens: bool,
        seed: u8,
    ) -> Self {
        Self {
            address,
            endpoint: Endpoint::new(credentials, config, listens, [seed; 32]),
            connections: HashMap::new(),
            number: 0,
            established: false,
            closed: None,
            read: Vec::new(),
            to_write: Vec::new(),
            stream: None,
        }
    }

    fn connection(&mut self) -> &mut Connection {
        self.connections.get_mut(&self.number).expect("there is one")
    }

    fn stats(&mut self) -> Stats {
        self.connection().stats()
    }

    /// Begins to send so many bytes over one stream.
    fn send(&mut self, len: usize) {
        self.stream = Some(self.connection().open().unwrap());
        self.to_write = pattern(len);
    }

    fn run_application(&mut self, now: Instant) {
        let Some(connection) = self.connections.get_mut(&self.number) else { return };
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Established => {
                    self.endpoint.on_established(self.number, connection);
                    self.established = true;
                }
                Event::Opened(id) => self.stream = Some(id),
                Event::Closed(reason) => self.closed = Some(reason),
                Event::Readable(_) | Event::Writable(_) | Event::Openable => {}
            }
        }
        let Some(id) = self.stream else { return };
        while !self.to_write.is_empty() {
            let WriteOutcome::Written(len) = connection.write(id, &self.to_write) else { break };
            self.to_write.drain(..len);
        }
        let mut buffer = [0; 4096];
        while let ReadOutcome::Read(len) = connection.read(now, id, &mut buffer) {
            self.read.extend_from_slice(&buffer[..len]);
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(len as u64).fill_bytes(&mut bytes);
    bytes
}

/// A datagram on the wire: from, to, contents.
type Datagram = (SocketAddr, SocketAddr, Vec<u8>);

struct World {
    now: Instant,
    /// Client and server.
    hosts: [Host; 2],
    wire: BTreeMap<(Instant, u64), Datagram>,
    /// All that was ever sent.
    seen: Vec<Datagram>,
    count: u64,
    random: Pcg64Mcg,
    loss: f64,
    jitter: Duration,
    /// What a translator makes of the client's address.
    mapped: Option<SocketAddr>,
    /// The client is still reached at its own address, too.
    is_at_both: bool,
    /// What is sent there marked for ECN is lost.
    drops_ect: Vec<SocketAddr>,
    /// Datagrams that were.
    marked_lost: usize,
    /// Datagrams of the server that went out marked.
    marked: usize,
    /// Longer datagrams are lost.
    widest: usize,
    /// Who passes on, from here, all that he sees, faster than it comes by itself, and what is sent to him.
    thief: Option<SocketAddr>,
}

impl World {
    fn new(near: Credentials, far: Credentials) -> Self {
        Self::with(near, far, [Config::default(); 2])
    }

    fn with(near: Credentials, far: Credentials, configs: [Config; 2]) -> Self {
        let hosts = [
            Host::new(at(1, 1000), near, configs[0], false, 1),
            Host::new(at(2, 7272), far, configs[1], true, 2),
        ];
        Self {
            now: Instant::from_nanos(1_000_000_000),
            hosts,
            wire: BTreeMap::new(),
            seen: Vec::new(),
            count: 0,
            random: Pcg64Mcg::seed_from_u64(5),
            loss: 0.0,
            jitter: Duration::ZERO,
            mapped: None,
            is_at_both: false,
            drops_ect: Vec::new(),
            marked_lost: 0,
            marked: 0,
            widest: 1472,
            thief: None,
        }
    }

    /// Two ends that hold one key and have met.
    fn connected(config: Config) -> Self {
        let mut world = Self::with(shared(1), shared(1), [config; 2]);
        world.connect();
        assert!(world.run(ms(1000), |world| world.hosts.iter().all(|host| host.established)));
        world
    }

    fn connect(&mut self) {
        let (number, connection) = self.hosts[0].endpoint.connect(self.now, self.hosts[1].address);
        self.hosts[0].connections.insert(number, connection);
        self.hosts[0].number = number;
        self.hosts[0].closed = None;
        self.hosts[0].established = false;
    }

    fn put(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let draw = |random: &mut Pcg64Mcg| random.next_u64() as f64 / u64::MAX as f64;
        self.seen.push((from, to, bytes.clone()));
        if bytes.len() <= self.widest && draw(&mut self.random) >= self.loss {
            let due = self.now + DELAY + self.jitter.mul_f64(draw(&mut self.random));
            self.count += 1;
            if let Some(thief) = self.thief {
                let near = self.mapped.unwrap_or(self.hosts[0].address);
                let far = self.hosts[1].address;
                let copy = (thief, if from == near { far } else { near }, bytes.clone());
                self.wire.insert((due - ms(1), self.count), copy);
            }
            self.wire.insert((due, self.count), (from, to, bytes));
        }
    }

    /// Runs until `done` or until `limit` has passed; whether it was `done`.
    fn run(&mut self, limit: Duration, done: impl Fn(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            self.deliver();
            self.serve();
            if done(self) {
                return true;
            }
            let timeouts = self.hosts.iter().flat_map(|host| host.connections.values());
            let arrival = self.wire.keys().next().map(|&(due, _)| due);
            let next = timeouts.filter_map(Connection::poll_timeout).chain(arrival).min();
            let next = next.unwrap_or(Instant::FAR_FUTURE).max(self.now);
            if next > end {
                self.now = end;
                return false;
            }
            self.now = next;
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.wire.first_entry()
            && entry.key().0 <= self.now
        {
            let (from, to, mut bytes) = entry.remove();
            let outside = [self.mapped.unwrap_or(self.hosts[0].address), self.hosts[1].address];
            let at_both = (self.is_at_both && to == self.hosts[0].address).then_some(0);
            let index = outside.iter().position(|&address| address == to).or(at_both);
            let Some(index) = index else { continue };
            self.arrive(index, from, &mut bytes);
        }
    }

    fn arrive(&mut self, index: usize, from: SocketAddr, bytes: &mut [u8]) {
        let (now, host) = (self.now, &mut self.hosts[index]);
        match host.endpoint.route(now, from, bytes) {
            Routed::Known(number) => {
                if let Some(connection) = host.connections.get_mut(&number) {
                    connection
                        .handle(now, Received { from, to: None, arrived: now, ce: false, bytes });
                }
            }
            Routed::New(number, connection) => {
                // The first one is what the test looks at.
                host.number = if host.number == 0 { number } else { host.number };
                host.connections.insert(number, *connection);
                host.endpoint.take_evicted().map(|evicted| host.connections.remove(&evicted));
            }
            Routed::Refused(answer) => {
                assert!(answer.len() <= bytes.len());
                let own = host.address;
                self.put(own, from, answer);
            }
            Routed::Dropped => {}
        }
    }

    fn serve(&mut self) {
        for index in 0..2 {
            self.hosts[index].run_application(self.now);
            let host = &mut self.hosts[index];
            let own = if index == 0 { self.mapped } else { None }.unwrap_or(host.address);
            let (mut out, mut sent) = (Vec::new(), Vec::new());
            for connection in host.connections.values_mut() {
                connection.handle_timeout(self.now);
                while let Some(transmit) = connection.poll_transmit(self.now, &mut out) {
                    let datagrams = out.chunks(transmit.segment).map(<[u8]>::to_vec);
                    self.marked += if transmit.ecn && index == 1 { datagrams.len() } else { 0 };
                    if transmit.ecn && self.drops_ect.contains(&transmit.to) {
                        self.marked_lost += datagrams.len();
                        continue;
                    }
                    sent.extend(datagrams.map(|bytes| (transmit.to, bytes)));
                }
            }
            for (to, bytes) in sent {
                self.put(own, to, bytes);
            }
            self.hosts[index].run_application(self.now);
        }
    }

    fn refusals(&self) -> Refusals {
        self.hosts[1].endpoint.refusals()
    }

    /// What the client of a connection that is not to be was told.
    fn refused(mut self) -> (Refusal, Refusals) {
        self.connect();
        assert!(self.run(ms(5000), |world| world.hosts[0].closed.is_some()));
        assert!(self.hosts[1].connections.is_empty(), "no state is kept of the refused");
        match &self.hosts[0].closed {
            Some(CloseReason::Refused(refusal)) => (*refusal, self.refusals()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn ends_meet_by_a_shared_key_or_by_the_identity_of_each() {
    for (near, far) in [(shared(1), shared(1)), (client(1, 2), server(2))] {
        let (ours, theirs) = (near.public(), far.public());
        let mut world = World::new(near, far);
        world.connect();
        assert!(world.run(ms(1000), |world| world.hosts.iter().all(|host| host.established)));
        assert_eq!(world.hosts[0].connection().peer(), theirs);
        assert_eq!(world.hosts[1].connection().peer(), ours);
    }
}

#[test]
fn strangers_are_refused_with_the_reason_and_counted() {
    let (refusal, counts) = World::new(shared(2), shared(1)).refused();
    assert_eq!((refusal, counts.wrong_key), (Refusal::WrongKey, 1));
    let (refusal, counts) = World::new(client(7, 2), server(2)).refused();
    assert_eq!((refusal, counts.not_allowed), (Refusal::NotAllowed, 1));
    let (refusal, counts) = World::new(client(1, 9), server(2)).refused();
    assert_eq!((refusal, counts.wrong_key), (Refusal::WrongKey, 1));
    let (refusal, counts) = World::new(shared(1), server(2)).refused();
    assert_eq!((refusal, counts.pattern), (Refusal::Pattern, 1));
}

fn speaking(oldest: u8, newest: u8) -> Config {
    Config { versions: Versions { oldest, newest }, ..Config::default() }
}

#[test]
fn two_releases_meet_in_the_newest_version_that_both_speak() {
    for (near, far) in [((1, 3), (1, 2)), ((1, 2), (1, 2)), ((2, 9), (1, 3))] {
        let configs = [speaking(near.0, near.1), speaking(far.0, far.1)];
        let mut world = World::with(shared(1), shared(1), configs);
        world.connect();
        assert!(world.run(ms(1000), |world| world.hosts.iter().all(|host| host.established)));
        let version = |seen: &Datagram| (seen.2[0] == 2).then_some(seen.2[1]);
        let used = world.seen.iter().find_map(version);
        assert_eq!(used, Some(near.1.min(far.1)));
    }
    let configs = [speaking(3, 4), speaking(1, 2)];
    let (refusal, counts) = World::with(shared(1), shared(1), configs).refused();
    assert_eq!(refusal, Refusal::Version(Versions { oldest: 1, newest: 2 }));
    assert_eq!(counts.version, 1);
}

#[test]
fn nobody_on_the_way_can_ask_for_an_older_version() {
    let configs = [speaking(1, 2), speaking(1, 2)];
    let mut world = World::with(shared(1), shared(1), configs);
    world.connect();
    world.serve();
    let ((_, _), (_, to, hello)) = world.wire.pop_first().unwrap();
    let Ok(Opening::Hello { connection, .. }) = Opening::decode(&hello) else {
        panic!("no hello");
    };
    let mut forged = Vec::new();
    let refusal = Refusal::Version(Versions { oldest: 1, newest: 1 });
    Opening::Refused { connection, refusal, digest: &digest(&hello) }.encode(&mut forged);
    world.put(to, at(1, 1000), forged);
    // The initiator goes on with version 1; the responder knows that both could do better.
    assert!(!world.run(ms(800), |world| world.hosts.iter().any(|host| host.established)));
    assert_eq!(world.refusals().tricks, 1);
}

#[test]
fn a_hello_damaged_on_the_way_is_refused_and_the_refusal_not_believed() {
    let mut world = World::new(shared(1), shared(1));
    world.connect();
    world.serve();
    let ((_, _), (from, to, mut hello)) = world.wire.pop_first().unwrap();
    hello[100] ^= 1;
    world.put(from, to, hello);
    assert!(world.run(ms(2000), |world| world.hosts.iter().all(|host| host.established)));
    assert_eq!(world.refusals().wrong_key, 1);
}

#[test]
fn a_reflected_hello_is_no_connection() {
    let mut world = World::new(shared(1), shared(1));
    // Both ends of this one listen.
    world.hosts[0] = Host::new(at(1, 1000), shared(1), Config::default(), true, 1);
    world.connect();
    world.serve();
    let ((_, _), (from, to, mut hello)) = world.wire.pop_first().unwrap();
    world.arrive(0, to, &mut hello);
    assert_eq!(world.hosts[0].connections.len(), 1);
    assert_eq!(world.hosts[0].endpoint.refusals().tricks, 1);
    world.arrive(1, from, &mut hello);
    assert!(world.run(ms(2000), |world| world.hosts.iter().all(|host| host.established)));
}

#[test]
fn replayed_damaged_and_truncated_packets_change_nothing_and_are_counted() {
    let mut world = World::connected(Config::default());
    world.hosts[0].send(300_000);
    assert!(world.run(ms(5000), |world| world.hosts[1].read.len() == 300_000));
    world.run(ms(2000), |_| false);
    let before = world.hosts[1].stats();
    let sealed: Vec<Datagram> = world
        .seen
        .iter()
        .filter(|(_, to, bytes)| *to == at(2, 7272) && bytes[0] >= 16)
        .cloned()
        .collect();
    for (from, _, bytes) in &sealed {
        world.arrive(1, *from, &mut bytes.clone());
        // The number is bound into the seal: a new one makes no new packet.
        let mut renumbered = bytes.clone();
        renumbered[6] ^= 1;
        world.arrive(1, *from, &mut renumbered);
        world.arrive(1, *from, &mut bytes[..20].to_vec());
        world.arrive(1, *from, &mut bytes[..3].to_vec());
    }
    let after = world.hosts[1].stats();
    let count = sealed.len() as u64;
    assert!(count > 100);
    assert_eq!(after.received, before.received);
    assert_eq!(after.refused.total() - before.refused.total(), count * 3);
    assert!(after.refused.replayed >= count && after.refused.unauthentic >= count);
    assert_eq!(world.hosts[1].read.len(), 300_000);
    assert!(world.hosts[1].closed.is_none() && world.refusals().malformed >= count);
}

#[test]
fn a_restarted_server_ends_its_old_connections_at_once_and_a_forger_does_not() {
    let mut world = World::connected(Config::default());
    let number = world.hosts[0].number;
    for byte in 0..=255 {
        let mut forged = Vec::new();
        Opening::Gone { connection: number, token: &[byte; 16] }.encode(&mut forged);
        world.arrive(0, at(2, 7272), &mut forged);
    }
    assert_eq!(world.hosts[0].endpoint.refusals().forged_resets, 256);
    assert!(world.hosts[0].closed.is_none());

    world.hosts[1] = Host::new(at(2, 7272), shared(1), Config::default(), true, 9);
    world.hosts[0].send(1000);
    assert!(world.run(ms(200), |world| world.hosts[0].closed.is_some()));
    assert_eq!(world.hosts[0].closed, Some(CloseReason::Gone));
    assert!(world.hosts[0].connection().is_closed());
    // A server elsewhere, though it has the same key, does not betray the token.
    let mut world = World::connected(Config::default());
    let mut elsewhere = Host::new(at(2, 7272), shared(1), Config::default(), true, 9);
    elsewhere.endpoint = elsewhere.endpoint.at(b"elsewhere");
    world.hosts[1] = elsewhere;
    world.hosts[0].send(1000);
    assert!(!world.run(ms(5000), |world| world.hosts[0].closed.is_some()));
    assert!(world.hosts[0].endpoint.refusals().forged_resets > 0);
}

/// Who moves during the opening is told another token than was promised. Until the server's
/// first report, a reset for its number does without, and for no other number.
#[test]
fn a_client_that_moved_during_the_opening_hears_that_the_server_has_forgotten_it() {
    let gone = |connection: u32| {
        let mut forged = Vec::new();
        Opening::Gone { connection, token: &[7; 16] }.encode(&mut forged);
        forged
    };
    let mut client = Endpoint::new(shared(1), Config::default(), false, [1; 32]);
    let mut server = Endpoint::new(shared(1), Config::default(), true, [2; 32]);
    let now = Instant::from_nanos(1_000_000_000);
    let (number, mut connection) = client.connect(now, at(2, 7272));
    let mut hello = Vec::new();
    connection.poll_transmit(now, &mut hello).unwrap();
    let Routed::New(theirs, mut answering) = server.route(now, at(1, 1000), &hello) else {
        panic!("the hello was not let in");
    };
    let mut reply = Vec::new();
    answering.poll_transmit(now, &mut reply).unwrap();
    assert!(
        matches!(client.route(now, at(2, 7272), &reply), Routed::Known(known) if known == number)
    );
    let arrive = |connection: &mut Connection, bytes: &mut [u8]| {
        let (from, to, arrived) = (at(2, 7272), None, now);
        connection.handle(now, Received { from, to, arrived, ce: false, bytes });
    };
    arrive(&mut connection, &mut reply);
    client.on_established(number, &connection);

    assert!(matches!(client.route(now, at(2, 7272), &gone(theirs ^ 1)), Routed::Dropped));
    assert_eq!(client.refusals().forged_resets, 1);
    let routed = client.route(now, at(2, 7272), &gone(theirs));
    assert!(matches!(routed, Routed::Known(known) if known == number));
    arrive(&mut connection, &mut gone(theirs));
    assert!(!connection.is_closed(), "one alone may be damaged");
    arrive(&mut connection, &mut gone(theirs));
    assert!(connection.is_closed());
}

/// Else tokens could be gathered, number by number, for connections to come.
#[test]
fn what_a_stranger_is_told_of_a_number_resets_nobody_elses_connection() {
    let mut server = Host::new(at(2, 7272), shared(1), Config::default(), true, 9);
    let now = Instant::from_nanos(1_000_000_000);
    let packet = [&[16, 0, 0, 0][..], &7_u32.to_be_bytes(), &[0; 24]].concat();
    let mut told = |from| match server.endpoint.route(now, from, &packet) {
        Routed::Refused(reset) => reset,
        _ => panic!("no reset for {from}"),
    };
    assert_eq!(told(at(1, 7)), told(at(1, 8)), "another port of the same host");
    assert_ne!(told(at(1, 7)), told(at(3, 7)));
}

/// Nobody is answered more often than what is asked for can be useful.
#[test]
fn echoes_have_a_budget() {
    let mut server = Host::new(at(2, 7272), shared(1), Config::default(), true, 9);
    let now = Instant::from_nanos(1_000_000_000);
    let mut answered = |now| match server.endpoint.route(now, at(1, 7), &[0; 12]) {
        Routed::Refused(echo) => echo.len() == 12,
        _ => false,
    };
    assert_eq!((0..5000).filter(|_| answered(now)).count(), 1000);
    assert_eq!((0..5000).filter(|_| answered(now + ms(10))).count(), 100);
}

#[test]
fn a_flood_of_hellos_keeps_little_state_and_lets_others_in() {
    let mut world = World::connected(Config::default());
    world.hosts[0].send(20_000_000);
    assert!(world.run(ms(20_000), |world| world.hosts[1].read.len() > 1_000_000));
    // Real hellos, recorded from somebody who holds the key, each changed in its clear part, and
    // the same number that are noise.
    let mut attacker = Endpoint::new(shared(1), Config::default(), false, [77; 32]);
    let mut hellos = Vec::new();
    for _ in 0..500 {
        let (_, mut connection) = attacker.connect(world.now, at(2, 7272));
        let mut out = Vec::new();
        connection.poll_transmit(world.now, &mut out).unwrap();
        hellos.push(out);
    }
    let before = world.hosts[1].read.len();
    let (start, mut moved) = (world.now, 0);
    for round in 0..100_000_u32 {
        let mut hello = hellos[round as usize % hellos.len()].clone();
        if round % 2 == 0 {
            hello[24..56].fill_with(|| world.random.next_u64() as u8);
        }
        let from = at(100 + (round % 100) as u8, round as u16);
        world.arrive(1, from, &mut hello);
        world.wire.retain(|_, (_, to, _)| to.port() == 1000 || to.port() == 7272);
        if round % 100 == 0 {
            world.run(ms(1), |_| false);
        }
        // In the midst of it somebody comes who is where he says.
        if round == 50_000 {
            moved = world.hosts[1].read.len() - before;
            world.connect();
        }
    }
    assert!(world.hosts[1].connections.len() <= MAX_HALF_OPEN + 2);
    let counts = world.refusals();
    assert!(counts.retries > 60_000, "{counts:?}");
    assert!(moved > 1_000_000 && world.now.since(start) >= ms(1000), "{moved}");
    let cookies = world.seen.iter().filter(|(_, to, bytes)| *to == at(1, 1000) && bytes[0] == 4);
    assert!(world.hosts[0].established && cookies.count() > 0, "by a cookie");
}

#[test]
fn a_hello_that_is_repeated_for_ever_holds_no_place() {
    let mut world = World::new(shared(1), shared(1));
    world.connect();
    world.serve();
    let ((_, _), (_, _, hello)) = world.wire.pop_first().unwrap();
    world.arrive(1, at(66, 6), &mut hello.clone());
    assert_eq!(world.hosts[1].connections.len(), 1);
    let number = world.hosts[1].number;
    world.hosts[0].connections.clear();
    for _ in 0..21 {
        world.run(ms(1000), |_| false);
        world.arrive(1, at(66, 6), &mut hello.clone());
    }
    assert!(world.hosts[1].connections[&number].is_closed());
}

#[test]
fn a_half_open_connection_ends_without_a_word() {
    let mut world = World::new(shared(1), shared(1));
    world.connect();
    world.serve();
    let ((_, _), (_, _, mut hello)) = world.wire.pop_first().unwrap();
    world.arrive(1, at(66, 6), &mut hello);
    let (now, mut out) = (world.now, Vec::new());
    let connection = world.hosts[1].connection();
    assert!(connection.poll_transmit(now, &mut out).is_some(), "the reply");
    connection.close(now, 1, "no room");
    assert!(connection.is_closed());
    assert_eq!(connection.poll_transmit(now, &mut out), None);
    assert_eq!(connection.poll_timeout(), None);
}

#[test]
fn keys_change_though_every_other_ping_is_lost() {
    let feedback = FeedbackKind::PositiveAck;
    let rate_limit = Some(Rate::from_bits_per_sec(10_000_000));
    let config = Config { key_packets: 50, feedback, rate_limit, ..Config::default() };
    let mut world = World::connected(config);
    world.hosts[0].send(3_000_000);
    let pings = Cell::new(0);
    let lose_pings = |world: &mut World| {
        // The server only acknowledges; its pings are all that it hears of.
        let is_ping = |(from, _, bytes): &Datagram| *from == at(2, 7272) && bytes[0] == 19;
        world.wire.retain(|&(due, _), datagram| {
            let new = due == world.now + DELAY && is_ping(datagram);
            pings.set(pings.get() + u32::from(new));
            !new || pings.get().is_multiple_of(2)
        });
        world.hosts[1].read.len() == 3_000_000
    };
    assert!(world.run(ms(60_000), lose_pings));
    assert!(world.hosts[1].stats().key_updates >= 10, "{:?}", world.hosts[1].stats());
}

#[test]
fn keys_change_under_loss_and_reordering() {
    let config = Config { key_packets: 20, ..Config::default() };
    let mut world = World::connected(config);
    world.loss = 0.05;
    world.jitter = ms(30);
    world.hosts[0].send(3_000_000);
    assert!(world.run(ms(120_000), |world| world.hosts[1].read.len() == 3_000_000));
    assert!(world.hosts[1].read == pattern(3_000_000));
    let updates = world.hosts.each_mut().map(|host| host.stats().key_updates);
    assert!(updates.iter().all(|&updates| updates >= 5), "{updates:?}");
    let refused = world.hosts[1].stats().refused;
    assert_eq!(refused.unauthentic, 0, "no packet is lost for its key");
}

#[test]
fn a_new_port_is_followed_once_it_has_answered_and_loses_nothing() {
    for bulk_from in [0, 1] {
        let mut world = World::connected(Config::default());
        let stream = world.hosts[0].connection().open().unwrap();
        world.hosts[0].stream = Some(stream);
        world.hosts[0].to_write = vec![1];
        assert!(world.run(ms(1000), |world| world.hosts[1].read.len() == 1));
        world.hosts[bulk_from].to_write = pattern(5_000_000);
        let other = 1 - bulk_from;
        assert!(world.run(ms(5000), |world| world.hosts[other].read.len() > 500_000));
        let size = world.hosts[1].stats().datagram;
        world.mapped = Some(at(1, 2000));
        assert!(world.run(ms(60_000), |world| world.hosts[other].read.len() >= 5_000_000));
        assert_eq!(world.hosts[1].connection().address(), at(1, 2000));
        assert_eq!(world.hosts[1].stats().migrations, 1);
        assert!(world.hosts[1].stats().datagram >= size, "the same path");
    }
}

#[test]
fn a_new_host_is_a_new_path() {
    let mut world = downloading(40_000_000);
    let before = world.hosts[1].stats();
    world.mapped = Some(at(3, 1000));
    assert!(world.run(ms(5000), |world| world.hosts[1].stats().migrations == 1));
    let after = world.hosts[1].stats();
    assert!(before.datagram > 1200 && after.datagram == 1200);
    assert!(after.window < before.window, "{:?} {:?}", after.window, before.window);
    assert!(world.run(ms(60_000), |world| world.hosts[0].read.len() >= 40_000_000));
}

/// A client to which the server sends so many bytes, of which some have come.
fn downloading(len: usize) -> World {
    downloading_by(FeedbackKind::Periodic, len)
}

fn downloading_by(feedback: FeedbackKind, len: usize) -> World {
    let mut world = World::connected(Config { feedback, ..Config::default() });
    let stream = world.hosts[0].connection().open().unwrap();
    world.hosts[0].stream = Some(stream);
    world.hosts[0].to_write = vec![1];
    assert!(world.run(ms(3000), |world| world.hosts[1].read.len() == 1));
    world.hosts[1].to_write = pattern(len);
    assert!(world.run(ms(5000), |world| world.hosts[0].read.len() > len / 8));
    world
}

#[test]
fn what_arrives_over_the_old_path_says_nothing_of_the_new_one() {
    let mut world = downloading(40_000_000);
    world.mapped = Some(at(3, 1000));
    world.is_at_both = true;
    assert!(world.run(ms(5000), |world| world.hosts[1].stats().migrations == 1));
    let before = world.hosts[1].stats();
    // What has been sent there since is not reported yet.
    world.run(DELAY * 2 - ms(1), |_| false);
    let after = world.hosts[1].stats();
    assert!(after.in_flight < before.in_flight, "{after:?}");
    assert_eq!((after.window, after.pacing_rate), (before.window, before.pacing_rate));
    assert!(world.run(ms(60_000), |world| world.hosts[0].read.len() >= 40_000_000));
}

#[test]
fn a_new_path_that_loses_what_is_marked_is_used_without_marks() {
    let mut world = downloading(40_000_000);
    world.mapped = Some(at(3, 1000));
    world.is_at_both = true;
    world.drops_ect = vec![at(3, 1000)];
    assert!(world.run(ms(60_000), |world| world.hosts[0].read.len() >= 40_000_000));
    assert_eq!(world.hosts[1].connection().address(), at(3, 1000));
}

#[test]
fn ends_meet_where_what_is_marked_is_lost_and_stop_marking() {
    for lost in [vec![at(1, 1000), at(2, 7272)], vec![at(1, 1000)], vec![at(2, 7272)]] {
        let mut world = World::new(shared(1), shared(1));
        world.drops_ect = lost.clone();
        world.connect();
        assert!(world.run(ms(5000), |world| world.hosts.iter().all(|host| host.established)));
        world.hosts[0].send(500_000);
        assert!(world.run(ms(10_000), |world| world.hosts[1].read.len() == 500_000), "{lost:?}");
        world.hosts[1].to_write = pattern(500_000);
        assert!(world.run(ms(10_000), |world| world.hosts[0].read.len() == 500_000), "{lost:?}");
        assert!(world.marked_lost > 0);
        world.marked_lost = 0;
        world.hosts[0].to_write = pattern(100_000);
        world.hosts[1].to_write = pattern(100_000);
        let whole = |world: &mut World| world.hosts.iter().all(|host| host.read.len() == 600_000);
        assert!(world.run(ms(10_000), whole), "{lost:?}");
        assert_eq!(world.marked_lost, 0, "{lost:?}");
    }
}

#[test]
fn who_writes_little_by_little_where_what_is_marked_is_lost_is_heard() {
    for (feedback, pause) in [
        (FeedbackKind::Periodic, 500),
        (FeedbackKind::Periodic, 20),
        (FeedbackKind::PositiveAck, 20),
    ] {
        let config = Config { feedback, ..Config::default() };
        let mut world = World::with(shared(1), shared(1), [config; 2]);
        world.drops_ect = vec![at(2, 7272)];
        world.connect();
        assert!(world.run(ms(1000), |world| world.hosts[0].established));
        world.hosts[0].send(100);
        for _ in 0..3000 / pause {
            world.hosts[0].to_write.extend([7; 100]);
            world.run(ms(pause), |_| false);
        }
        assert!(world.hosts[1].established, "{feedback:?} {pause}");
        assert!(world.hosts[1].read.len() > 200, "{feedback:?} {pause}");
    }
}

#[test]
fn silence_on_the_old_path_says_nothing_of_the_new_one() {
    for feedback in [FeedbackKind::Periodic, FeedbackKind::PositiveAck] {
        let mut world = downloading_by(feedback, 20_000_000);
        world.loss = 1.0;
        world.run(ms(2000), |_| false);
        (world.loss, world.mapped) = (0.0, Some(at(3, 1000)));
        // Only when the client has heard nothing for long it says a word.
        assert!(world.run(ms(20_000), |world| world.hosts[1].stats().migrations == 1));
        let so_far = world.seen.len();
        world.marked = 0;
        assert!(world.run(ms(60_000), |world| world.hosts[0].read.len() >= 20_000_000));
        assert!(world.marked > 10_000, "{feedback:?}: marks were given up");
        let astray = world.seen[so_far..].iter().filter(|(_, to, _)| *to == at(1, 1000)).count();
        // One by one it takes longer until the old path's packets, which fill the window, are given up.
        if feedback == FeedbackKind::Periodic {
            assert_eq!(astray, 0, "it was looked for where it had been");
        }
    }
}

#[test]
fn a_path_that_becomes_wider_is_noticed_though_nothing_is_sent() {
    let mut world = World::with(shared(1), shared(1), [Config::default(); 2]);
    world.widest = 1300;
    world.connect();
    world.run(ms(5000), |_| false);
    world.widest = 1472;
    let sizes = |world: &mut World| world.hosts.each_mut().map(|host| host.stats().datagram);
    world.run(ms(500_000), |_| false);
    assert_eq!(sizes(&mut world), [1200; 2]);
    world.run(ms(110_000), |_| false);
    assert_eq!(sizes(&mut world), [1472; 2]);
}

#[test]
fn who_relays_a_connection_and_then_falls_silent_does_not_end_it() {
    let kinds = [FeedbackKind::Periodic, FeedbackKind::PositiveAck];
    for (feedback, writes) in
        kinds.into_iter().flat_map(|kind| [None, Some(0), Some(1)].map(|writes| (kind, writes)))
    {
        let mut world = downloading_by(feedback, 1000);
        assert!(world.run(ms(5000), |world| world.hosts[0].read.len() == 1000));
        let len = if writes.is_some() { 3_000_000 } else { 0 };
        if let Some(writer) = writes {
            world.hosts[writer].to_write = pattern(len);
        }
        let (thief, ends) = (at(66, 6), [at(2, 7272), at(1, 1000)]);
        world.thief = Some(thief);
        let what = (feedback, writes);
        assert!(world.run(ms(30_000), |world| places(world) == [thief; 2]), "{what:?}");
        // Until the size of datagrams is found, when nothing is written.
        world.run(ms(if writes.is_none() { 60_000 } else { 0 }), |_| false);
        world.thief = None;
        assert!(world.run(ms(30_000), |world| places(world) == ends), "{what:?}");
        let moved = |world: &mut World| world.hosts[0].read.len() + world.hosts[1].read.len();
        assert!(world.run(ms(30_000), |world| moved(world) == 1001 + len), "{what:?}");
        assert!(world.hosts.iter().all(|host| host.closed.is_none()));
    }
}

fn places(world: &mut World) -> [SocketAddr; 2] {
    world.hosts.each_mut().map(|host| host.connection().address())
}

#[test]
fn who_relays_from_many_ports_and_then_falls_silent_does_not_end_a_connection() {
    // Of the client's two addresses the second is the one in use; that it was found there again between
    // two ports makes it one of the latest.
    let second = Some(at(1, 2000));
    for (mapped, ports, pauses) in [(None, 8, false), (second, 2, false), (second, 8, true)] {
        let mut world = downloading(1000);
        world.mapped = mapped;
        let ends = [at(2, 7272), mapped.unwrap_or(at(1, 1000))];
        world.hosts[0].to_write = vec![1];
        assert!(world.run(ms(30_000), |world| places(world) == ends));
        for port in 1..=ports {
            let thief = at(66, port);
            world.thief = Some(thief);
            for host in &mut world.hosts {
                host.to_write.extend([7; 100]);
            }
            assert!(world.run(ms(30_000), |world| places(world) == [thief; 2]), "{port}");
            if pauses {
                world.thief = None;
                world.hosts[1].to_write.extend([7; 100]);
                assert!(world.run(ms(20_000), |world| places(world) == ends), "after {port}");
            }
        }
        world.thief = None;
        world.hosts[1].to_write = pattern(100_000);
        assert!(world.run(ms(20_000), |world| places(world) == ends), "{mapped:?}");
        let sent = pattern(100_000);
        assert!(world.run(ms(20_000), |world| world.hosts[0].read.ends_with(&sent)));
    }
}

#[test]
fn ends_that_never_cease_to_send_little_look_for_each_other_too() {
    let mut world = downloading(1000);
    let thief = at(66, 6);
    world.thief = Some(thief);
    let write = |world: &mut World, time: u64| {
        for _ in 0..time / 4 {
            for host in &mut world.hosts {
                host.to_write.extend([7; 10]);
            }
            world.run(ms(4), |_| false);
        }
        places(world)
    };
    assert_eq!(write(&mut world, 2000), [thief; 2]);
    world.thief = None;
    assert_eq!(write(&mut world, 3000), [at(2, 7272), at(1, 1000)]);
}

#[test]
fn who_copies_a_packet_does_not_draw_the_connection_to_himself() {
    let mut world = World::connected(Config::default());
    world.hosts[0].send(2_000_000);
    let (thief, mut received, mut sent) = (at(66, 6), 0, 0);
    for _ in 0..200 {
        world.run(ms(5), |_| false);
        // The newest packet on its way arrives from elsewhere, before it arrives by itself.
        let newest =
            world.wire.values().rev().find(|(_, to, bytes)| *to == at(2, 7272) && bytes[0] >= 16);
        if let Some((_, _, bytes)) = newest.cloned() {
            received += bytes.len();
            world.arrive(1, thief, &mut bytes.clone());
        }
        sent = world.seen.iter().filter(|(_, to, _)| *to == thief).map(|s| s.2.len()).sum();
        assert!(sent <= 3 * received, "{sent} for {received}");
    }
    assert!(sent > 0, "it was challenged");
    assert_eq!(world.hosts[1].connection().address(), at(1, 1000));
    assert!(world.run(ms(20_000), |world| world.hosts[1].read.len() == 2_000_000));
    assert_eq!(world.hosts[1].stats().migrations, 0);
}

#[test]
fn the_shorter_idle_time_counts_and_a_ping_in_time_keeps_the_connection() {
    let short = Config { idle_timeout: ms(3000), ..Config::default() };
    let mut world = World::with(shared(1), shared(1), [Config::default(), short]);
    world.connect();
    assert!(!world.run(ms(60_000), |world| world.hosts.iter().any(|h| h.closed.is_some())));
    world.loss = 1.0;
    let start = world.now;
    assert!(world.run(ms(60_000), |world| world.hosts.iter().all(|h| h.closed.is_some())));
    assert!(world.now.since(start) <= ms(4000));
    for host in &world.hosts {
        assert_eq!(host.closed, Some(CloseReason::Silent(ms(3000))));
    }
}

#[test]
fn whoever_closes_is_answered_until_the_answer_arrives() {
    let mut world = World::connected(Config::default());
    let now = world.now;
    world.hosts[0].connection().close(now, 0, "done");
    let is_closed = |world: &mut World| world.hosts[0].connection().is_closed();
    // The answers to it and to its first repeat are lost.
    let closes = |world: &World| world.seen.iter().filter(|seen| seen.0 == at(1, 1000)).count();
    let before = closes(&world);
    world.run(ms(1000), |world| {
        world.wire.retain(|_, (_, to, _)| *to != at(1, 1000));
        closes(world) == before + 3
    });
    assert!(world.run(DELAY * 2, is_closed), "nobody answers");
}

#[test]
fn probes_of_one_tail_do_not_put_off_those_of_the_next() {
    let mut world = World::connected(Config { max_streams: 64, ..Config::default() });
    // The search for the largest datagram asks, too.
    world.run(ms(5000), |_| false);
    let connection = world.hosts[0].connection();
    let id = connection.open().unwrap();
    connection.write(id, &[1]);
    while connection.open().is_ok() {}
    world.run(ms(9000), |_| false);
    assert!(world.hosts[0].stats().probes > 4, "who waits to open a stream asks ever less often");
    world.hosts[0].connection().give_up_opening();
    world.hosts[0].connection().reset(id, 7);
    world.serve();
    world.wire.clear();
    world.hosts[1].stream = None;
    let is_reset = |world: &mut World| {
        let now = world.now;
        world.hosts[1].connection().read(now, id, &mut [0]) == ReadOutcome::Reset(7)
    };
    assert!(world.run(DELAY * 10, is_reset), "the reset is missed late");
}

#[test]
fn anybody_may_ask_a_host_for_its_key() {
    let mut world = World::new(client(1, 2), server(2));
    let mut question = Vec::new();
    Opening::Who { connection: 5, nonce: &[8; 32] }.encode(&mut question);
    world.arrive(1, at(1, 1000), &mut question);
    let ((_, _), (_, to, answer)) = world.wire.pop_first().unwrap();
    let key = identity(2).public();
    let expected = Ok(Opening::Host { connection: 5, nonce: &[8; 32], key });
    assert_eq!((to, Opening::decode(&answer)), (at(1, 1000), expected));
    // Not by a short question, and not one that has no key of its own.
    world.arrive(1, at(1, 1000), &mut question[..200].to_vec());
    assert!(world.wire.is_empty());
}

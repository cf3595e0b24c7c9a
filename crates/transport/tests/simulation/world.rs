//! Two ends of a connection over a modelled path, in virtual time.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use path::{Fate, Link, PathConfig};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use transport::crypto::SharedKey;
use transport::{CloseReason, Config, Connection, Endpoint, Event, ReadOutcome, Received, Routed};
use transport::{Stats, WriteOutcome};
use units::{Bytes, Instant};

/// UDP and IPv4 headers.
const HEADERS: u64 = 28;

/// What the network does beside the path's own loss and delay; probabilities of a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub duplicate: f64,
    pub corrupt: f64,
    /// Held back by up to `jitter`, so that others overtake it.
    pub reorder: f64,
    pub jitter: Duration,
    /// Nothing passes, either way, from the first time on for the second.
    pub blackout: Option<(Duration, Duration)>,
    /// From this time on, longer datagrams vanish without a word.
    pub narrow: Option<(Duration, usize)>,
}

/// One end and what its application does.
pub struct Host {
    address: SocketAddr,
    endpoint: Endpoint,
    connections: HashMap<u32, Connection>,
    /// What is still to be written, by stream.
    outgoing: BTreeMap<u64, Vec<u8>>,
    written: BTreeMap<u64, usize>,
    /// What was read, and whether to the end, by stream.
    pub incoming: BTreeMap<u64, (Vec<u8>, bool)>,
    /// Answers each stream with its own bytes.
    pub echo: bool,
    pub closed: Option<CloseReason>,
    pub established: bool,
    number: u32,
}

impl Host {
    fn new(last_octet: u8, config: Config, seed: u64) -> Self {
        let key = SharedKey::from_bytes([7; 32]);
        let mut bytes = [last_octet; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        Self {
            address: ([10, 0, 0, last_octet], 7272).into(),
            endpoint: Endpoint::new(key, config, true, bytes),
            connections: HashMap::new(),
            outgoing: BTreeMap::new(),
            written: BTreeMap::new(),
            incoming: BTreeMap::new(),
            echo: false,
            closed: None,
            established: false,
            number: 0,
        }
    }

    pub fn connection(&mut self) -> &mut Connection {
        self.connections.get_mut(&self.number).expect("there is a connection")
    }

    /// Opens a stream that will carry `bytes` and then end.
    pub fn send(&mut self, bytes: Vec<u8>) -> u64 {
        let id = self.connection().open();
        self.outgoing.insert(id, bytes);
        self.written.insert(id, 0);
        id
    }

    /// Writes more to a stream that was opened with [`Connection::open`].
    pub fn write(&mut self, id: u64, bytes: &[u8]) {
        assert_eq!(self.connection().write(id, bytes), WriteOutcome::Written(bytes.len()));
    }

    fn handle(&mut self, now: Instant, from: SocketAddr, datagram: &mut [u8]) -> Option<Vec<u8>> {
        match self.endpoint.route(now, from, datagram) {
            Routed::Known(number) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection
                        .handle(now, Received { from, arrived: now, ce: false, bytes: datagram });
                }
            }
            Routed::New(number, connection) => {
                self.number = number;
                self.connections.insert(number, *connection);
            }
            Routed::Refused(reply) => return Some(reply),
            Routed::Dropped => {}
        }
        None
    }

    /// The application: writes what there is room for, reads what there is.
    fn run_application(&mut self, now: Instant) {
        let Some(connection) = self.connections.get_mut(&self.number) else {
            return;
        };
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Established => self.established = true,
                Event::Opened(id) => {
                    self.incoming.insert(id, Default::default());
                }
                Event::Closed(reason) => self.closed = Some(reason),
                Event::Readable(_) | Event::Writable(_) => {}
            }
        }
        for (&id, bytes) in &self.outgoing {
            let written = self.written.get_mut(&id).expect("kept together");
            while *written < bytes.len() {
                let WriteOutcome::Written(len) = connection.write(id, &bytes[*written..]) else {
                    break;
                };
                *written += len;
            }
            if *written == bytes.len() && !self.echo {
                connection.finish(id);
            }
            self.incoming.entry(id).or_default();
        }
        let mut buffer = [0; 16 << 10];
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
                while *sent < bytes.len() {
                    let WriteOutcome::Written(len) = connection.write(id, &bytes[*sent..]) else {
                        break;
                    };
                    *sent += len;
                }
                if *ended && *sent == bytes.len() {
                    connection.finish(id);
                }
            }
        }
    }
}

type Datagram = (Vec<u8>, bool);

/// The whole simulated world.
pub struct World {
    pub now: Instant,
    /// The initiator, then the responder.
    pub hosts: [Host; 2],
    links: [Link<Datagram>; 2],
    /// Datagrams held back by reordering: due, towards which host.
    late: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    faults: Faults,
    random: Pcg64Mcg,
    count: u64,
}

impl World {
    /// A world in which the first host has begun to connect to the second.
    pub fn new(path: &PathConfig, faults: Faults, config: Config) -> Self {
        let seed = path.seed;
        let (forward, back) = path.links().expect("a valid path");
        let now = Instant::from_nanos(1_000_000_000);
        let mut hosts = [Host::new(1, config, seed), Host::new(2, config, !seed)];
        let there = hosts[1].address;
        let (number, connection) = hosts[0].endpoint.connect(now, there);
        hosts[0].connections.insert(number, connection);
        hosts[0].number = number;
        Self {
            now,
            hosts,
            links: [forward, back],
            late: BTreeMap::new(),
            faults,
            random: Pcg64Mcg::seed_from_u64(seed),
            count: 0,
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.now.since(Instant::from_nanos(1_000_000_000))
    }

    pub fn stats(&mut self, host: usize) -> Stats {
        self.hosts[host].connection().stats()
    }

    /// Packets that the forward queue dropped.
    pub fn queue_drops(&self) -> u64 {
        self.links[0].counters().dropped(path::DropCause::Queue).packets
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && (self.random.next_u64() as f64 / u64::MAX as f64) < probability
    }

    /// Runs until `done` or until `limit` has passed; whether it was `done`.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            self.deliver();
            for index in 0..2 {
                self.serve(index);
            }
            if done(self) {
                return true;
            }
            let next = self.next_event();
            if next > end {
                self.now = end;
                return false;
            }
            assert!(next >= self.now);
            self.now = next;
        }
    }

    fn next_event(&mut self) -> Instant {
        let links = self.links.iter().filter_map(Link::next_exit);
        let late = self.late.keys().next().map(|&(due, _)| due);
        let hosts = self.hosts.iter().flat_map(|host| host.connections.values());
        let timeouts = hosts.filter_map(Connection::poll_timeout);
        let next = links.chain(late).chain(timeouts).min().unwrap_or(Instant::FAR_FUTURE);
        next.max(self.now)
    }

    fn deliver(&mut self) {
        let now = self.now;
        for towards in [1, 0] {
            while let Some(exit) = self.links[1 - towards].poll(now) {
                if exit.fate != Fate::Delivered {
                    continue;
                }
                let (mut datagram, held) = exit.item;
                if held {
                    let wait = self.random.next_u64() % (self.faults.jitter.as_nanos() as u64 + 1);
                    let due = now + Duration::from_nanos(wait);
                    self.count += 1;
                    self.late.insert((due, self.count), (towards, datagram));
                    continue;
                }
                self.arrive(towards, &mut datagram);
            }
        }
        while let Some((&key, _)) = self.late.first_key_value()
            && key.0 <= now
        {
            let (towards, mut datagram) = self.late.remove(&key).expect("just seen");
            self.arrive(towards, &mut datagram);
        }
    }

    fn arrive(&mut self, towards: usize, datagram: &mut [u8]) {
        let from = self.hosts[1 - towards].address;
        if let Some(reply) = self.hosts[towards].handle(self.now, from, datagram) {
            self.put(towards, reply);
        }
    }

    fn serve(&mut self, index: usize) {
        let now = self.now;
        self.hosts[index].run_application(now);
        let numbers: Vec<u32> = self.hosts[index].connections.keys().copied().collect();
        let mut out = Vec::new();
        for number in numbers {
            while let Some(connection) = self.hosts[index].connections.get_mut(&number) {
                connection.handle_timeout(now);
                let Some(transmit) = connection.poll_transmit(now, &mut out) else {
                    break;
                };
                for datagram in out.chunks(transmit.segment) {
                    self.put(index, datagram.to_vec());
                }
            }
        }
        self.hosts[index].run_application(now);
    }

    /// A datagram of host `index` enters the network.
    fn put(&mut self, index: usize, mut datagram: Vec<u8>) {
        if datagram.len() > self.mtu() || self.is_dark() {
            return;
        }
        if self.chance(self.faults.corrupt) {
            let place = self.random.next_u64() as usize % datagram.len();
            datagram[place] ^= 1 << (self.random.next_u64() % 8);
        }
        let held = self.chance(self.faults.reorder);
        let size = Bytes(datagram.len() as u64 + HEADERS);
        if self.chance(self.faults.duplicate) {
            let _ = self.links[index].send(self.now, size, (datagram.clone(), held));
        }
        let _ = self.links[index].send(self.now, size, (datagram, held));
    }

    fn mtu(&self) -> usize {
        let narrow = self.faults.narrow.filter(|&(from, _)| self.elapsed() >= from);
        narrow.map_or(1472, |(_, mtu)| mtu)
    }

    fn is_dark(&self) -> bool {
        self.faults
            .blackout
            .is_some_and(|(from, length)| (from..from + length).contains(&self.elapsed()))
    }
}

/// `len` bytes that depend on the seed and their place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

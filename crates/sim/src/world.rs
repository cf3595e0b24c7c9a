//! Hosts, the path that joins them, and the clock.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};

use path::{DropCause, Fate, Link, PathConfig};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use transport::{Config, Stats};
use units::{Bytes, Instant};

use crate::{Datagram, Host, Node};

/// UDP and IPv4 headers.
const HEADERS: u64 = 28;
/// The largest UDP payload under Ethernet's MTU.
const LARGEST: usize = 1472;
/// When every world begins: late enough that times before it exist.
const START: Instant = Instant::from_nanos(1_000_000_000);

/// What the network does beside the path's own loss and delay; probabilities of a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Arrives twice.
    pub duplicate: f64,
    /// Arrives with a bit changed.
    pub corrupt: f64,
    /// Held back by up to `jitter`, so that others overtake it.
    pub reorder: f64,
    /// See `reorder`.
    pub jitter: Duration,
    /// Nothing passes, either way, from the first time on for the second.
    pub blackout: Option<(Duration, Duration)>,
    /// From this time on, longer datagrams vanish without a word.
    pub narrow: Option<(Duration, usize)>,
}

/// A datagram under way.
struct Parcel {
    from: SocketAddr,
    datagram: Datagram,
    /// To be held back at the path's end.
    held: bool,
}

/// The whole simulated world.
///
/// Hosts stand in pairs: those with even numbers on the near side, each with the host of the next
/// number on the far side; all pairs share the path.
pub struct World<N = Host> {
    /// The time.
    pub now: Instant,
    /// The near host of each pair, then its far one.
    pub hosts: Vec<N>,
    /// Hosts to run though nothing is due: something arrived.
    touched: Vec<bool>,
    /// Whose datagrams arrive under which address.
    routes: HashMap<SocketAddr, usize>,
    links: [Link<Parcel>; 2],
    /// Datagrams held back by reordering, by the time they are due and the order they came in.
    late: BTreeMap<(Instant, u64), Parcel>,
    faults: Faults,
    random: Pcg64Mcg,
    count: u64,
    out: Vec<Datagram>,
}

impl World {
    /// A world of two, in which the near host has begun to connect to the far one.
    pub fn new(path: &PathConfig, faults: Faults, config: Config) -> Self {
        Self::dumbbell(path, faults, &[config])
    }

    /// A pair of hosts for each of `configs`, all over one path; every near host has begun to
    /// connect to its far one.
    pub fn dumbbell(path: &PathConfig, faults: Faults, configs: &[Config]) -> Self {
        let mut hosts = Vec::new();
        for (pair, config) in configs.iter().enumerate() {
            let pair = u8::try_from(pair).expect("a path has at most 256 pairs of hosts");
            let host = |side: u8, seed: u64| {
                let mut bytes = [side + 1; 32];
                bytes[..8].copy_from_slice(&(seed ^ u64::from(pair)).to_be_bytes());
                Host::new(([10, side, pair, 1], 7272).into(), *config, bytes)
            };
            let (mut near, far) = (host(0, path.seed), host(1, !path.seed));
            near.connect(START, far.address());
            hosts.extend([near, far]);
        }
        Self::of(path, faults, hosts)
    }

    /// A host's figures.
    pub fn stats(&mut self, host: usize) -> Stats {
        self.hosts[host].connection().stats()
    }
}

impl<N: Node> World<N> {
    /// A world of these hosts, near and far by turns.
    pub fn of(path: &PathConfig, faults: Faults, hosts: Vec<N>) -> Self {
        let (forward, back) = path.links().expect("a valid path");
        let routes = hosts.iter().enumerate().map(|(index, host)| (host.address(), index));
        Self {
            now: START,
            touched: vec![true; hosts.len()],
            routes: routes.collect(),
            hosts,
            links: [forward, back],
            late: BTreeMap::new(),
            faults,
            random: Pcg64Mcg::seed_from_u64(path.seed),
            count: 0,
            out: Vec::new(),
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.now.since(START)
    }

    /// Packets that the forward queue dropped.
    pub fn queue_drops(&self) -> u64 {
        self.links[0].counters().dropped(DropCause::Queue).packets
    }

    /// Runs until `done` or until `limit` has passed; whether it was `done`.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + limit;
        // Whoever calls may have changed any host.
        self.touched.fill(true);
        loop {
            self.deliver();
            for index in 0..self.hosts.len() {
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
            self.now = next;
        }
    }

    fn next_event(&self) -> Instant {
        let links = self.links.iter().filter_map(Link::next_exit);
        let late = self.late.keys().next().map(|&(due, _)| due);
        let hosts = self.hosts.iter().filter_map(Node::next);
        let next = links.chain(late).chain(hosts).min().unwrap_or(Instant::FAR_FUTURE);
        next.max(self.now)
    }

    fn deliver(&mut self) {
        let now = self.now;
        for direction in 0..2 {
            while let Some(exit) = self.links[direction].poll(now) {
                if exit.fate != Fate::Delivered {
                    continue;
                }
                if exit.item.held {
                    let wait = self.random.next_u64() % (self.faults.jitter.as_nanos() as u64 + 1);
                    self.count += 1;
                    self.late.insert((now + Duration::from_nanos(wait), self.count), exit.item);
                } else {
                    self.arrive(exit.item);
                }
            }
        }
        while let Some(entry) = self.late.first_entry()
            && entry.key().0 <= now
        {
            let parcel = entry.remove();
            self.arrive(parcel);
        }
    }

    fn arrive(&mut self, parcel: Parcel) {
        let Parcel { from, mut datagram, .. } = parcel;
        let Some(&index) = self.routes.get(&datagram.to) else {
            return;
        };
        self.touched[index] = true;
        let mut out = core::mem::take(&mut self.out);
        self.hosts[index].receive(self.now, from, &mut datagram.bytes, &mut out);
        self.put_all(index, out);
    }

    fn serve(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        let due = host.next().is_some_and(|at| at <= self.now);
        if !core::mem::take(&mut self.touched[index]) && !due {
            return;
        }
        let mut out = core::mem::take(&mut self.out);
        host.run(self.now, &mut out);
        self.put_all(index, out);
    }

    /// What host `index` sent enters the network.
    fn put_all(&mut self, index: usize, mut out: Vec<Datagram>) {
        for datagram in out.drain(..) {
            self.put(index, datagram);
        }
        self.out = out;
    }

    fn put(&mut self, index: usize, mut datagram: Datagram) {
        if datagram.bytes.len() > self.largest() || self.is_dark() {
            return;
        }
        if self.chance(self.faults.corrupt) {
            let place = self.random.next_u64() as usize % datagram.bytes.len();
            datagram.bytes[place] ^= 1 << (self.random.next_u64() % 8);
        }
        let held = self.chance(self.faults.reorder);
        let copies = 1 + u32::from(self.chance(self.faults.duplicate));
        let from = self.hosts[index].address();
        let size = Bytes(datagram.bytes.len() as u64 + HEADERS);
        for _ in 0..copies {
            let parcel = Parcel { from, datagram: datagram.clone(), held };
            // What the queue refuses, the link counts.
            let _ = self.links[index % 2].send(self.now, size, parcel);
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && (self.random.next_u64() as f64 / u64::MAX as f64) < probability
    }

    fn largest(&self) -> usize {
        let narrow = self.faults.narrow.filter(|&(from, _)| self.elapsed() >= from);
        narrow.map_or(LARGEST, |(_, size)| size)
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

//! Hosts, the path that joins them, and the clock.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, VecDeque};

use path::{Change, DropCause, Fate, Link, Packet, PathConfig};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use transport::{Config, Stats};
use units::{Bytes, Instant};

use crate::{Arrived, Datagram, Host, Node};

/// UDP and IPv4 headers.
pub(crate) const HEADERS: u64 = 28;
/// The largest packet of a path that does not tell it: Ethernet's.
const MTU: Bytes = Bytes(1500);
/// Datagrams that wait at a host which stands still.
const RECEIVE_BUFFER: usize = 1000;
/// Datagrams that a stranger has overheard, to send them again.
pub const REMEMBERED: usize = 64;
/// The stranger: what is sent there vanishes.
const STRANGER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 66, 6, 6)), 666);
/// Steps at one time: more are a host that never does what it says is due.
const MAX_STEPS: u32 = 10_000;
/// When every world and every study begins: late enough that times before it exist.
pub(crate) const START: Instant = Instant::from_nanos(1_000_000_000);
/// Separates the random numbers of faults from those of the path.
const FAULTS: u64 = 0x1319_8a2e_0370_7344;

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
    /// At this time every near host gets another address (a NAT forgot it): what is sent to the
    /// old one vanishes.
    pub rebind: Option<Duration>,
    /// At this time every near host is on another network.
    pub moves: Option<Duration>,
    /// With each datagram one of the last 64 comes again, from a stranger's address,
    /// half of the time with a bit changed.
    pub replay: f64,
    /// How far the far hosts' clocks are ahead from the start on.
    pub ahead: Duration,
    /// At the first time the clock of this host jumps ahead by the second.
    pub jump: Option<(Duration, usize, Duration)>,
    /// From the first time on this host stands still for the second; what arrives meanwhile waits.
    pub freeze: Option<(Duration, usize, Duration)>,
}

/// How often each kind of fault has struck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Struck {
    /// Datagrams lost on the line or dropped by the queue.
    pub lost: u64,
    /// Datagrams that were sent twice.
    pub duplicated: u64,
    /// Datagrams with a bit changed.
    pub corrupted: u64,
    /// Datagrams that were held back.
    pub held: u64,
    /// Datagrams that a stranger sent again.
    pub replayed: u64,
    /// Datagrams that met the blackout.
    pub dark: u64,
    /// Datagrams that were too long.
    pub narrow: u64,
    /// Datagrams sent to where nobody is: to a host's old address, or to the stranger.
    pub astray: u64,
    /// Datagrams that a queue marked instead of dropping them.
    pub marked: u64,
    /// Addresses changed, clocks jumped, hosts frozen.
    pub events: u64,
}

impl Struck {
    /// All of them; a mark is none.
    pub fn total(&self) -> u64 {
        let Self {
            lost, duplicated, corrupted, held, replayed, dark, narrow, astray, events, ..
        } = self;
        lost + duplicated + corrupted + held + replayed + dark + narrow + astray + events
    }
}

/// A datagram under way.
#[derive(Clone)]
struct Parcel {
    from: SocketAddr,
    datagram: Datagram,
    /// A queue has marked it.
    ce: bool,
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
    /// The address that others see.
    public: Vec<SocketAddr>,
    /// How far each host's clock is ahead.
    ahead: Vec<Duration>,
    /// What arrived at a host that stands still.
    frozen: VecDeque<Parcel>,
    links: [Link<Parcel>; 2],
    /// The largest UDP payload that they carry.
    widest: [usize; 2],
    /// Datagrams held back by reordering, by the time they are due and the order they came in.
    late: BTreeMap<(Instant, u64), Parcel>,
    faults: Faults,
    /// What the stranger has overheard, and of whom.
    overheard: VecDeque<(usize, Datagram)>,
    struck: Struck,
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
            near.connect(Self::START, far.address());
            hosts.extend([near, far]);
        }
        Self::of(path, faults, hosts)
    }

    /// A host's figures.
    pub fn stats(&mut self, host: usize) -> Stats {
        self.hosts[host].connection().stats()
    }
}

impl<N> World<N> {
    /// When every world begins: late enough that times before it exist.
    pub const START: Instant = START;
}

impl<N: Node> World<N> {
    /// A world of these hosts, near and far by turns.
    pub fn of(path: &PathConfig, faults: Faults, hosts: Vec<N>) -> Self {
        let (forward, back) = path.links().expect("a valid path");
        let routes = hosts.iter().enumerate().map(|(index, host)| (host.address(), index));
        Self {
            now: Self::START,
            touched: vec![true; hosts.len()],
            routes: routes.collect(),
            public: hosts.iter().map(Node::address).collect(),
            ahead: (0..hosts.len()).map(|index| faults.ahead * (index as u32 % 2)).collect(),
            frozen: VecDeque::new(),
            hosts,
            links: [forward, back],
            widest: [&path.forward, &path.back]
                .map(|link| (link.mtu.unwrap_or(MTU).0 - HEADERS) as usize),
            late: BTreeMap::new(),
            faults,
            overheard: VecDeque::new(),
            struck: Struck::default(),
            random: Pcg64Mcg::seed_from_u64(path.seed ^ FAULTS),
            count: 0,
            out: Vec::new(),
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.now.since(Self::START)
    }

    /// Packets that the forward queue dropped.
    pub fn queue_drops(&self) -> u64 {
        let dropped = |cause| self.links[0].counters().dropped(cause).packets;
        dropped(DropCause::Queue) + dropped(DropCause::Early)
    }

    /// Bytes that wait in the forward queue.
    pub fn queued(&self) -> Bytes {
        self.links[0].queued()
    }

    /// Makes the path another one, both ways.
    ///
    /// # Panics
    /// When no link can be so.
    pub fn change_path(&mut self, change: &Change) {
        for link in &mut self.links {
            link.set(self.now, change).expect("a possible link");
        }
    }

    /// What is sent to this address arrives at this host, too.
    pub fn reach_also_at(&mut self, address: SocketAddr, host: usize) {
        self.routes.insert(address, host);
    }

    /// How often each kind of fault has struck so far.
    pub fn struck(&self) -> Struck {
        self.struck
    }

    /// Puts a host's clock ahead.
    pub fn put_ahead(&mut self, host: usize, by: Duration) {
        self.ahead[host] += by;
    }

    /// A host's clock.
    pub fn clock(&self, host: usize) -> Instant {
        self.now + self.ahead[host]
    }

    /// Runs until `done` or until `limit` has passed; whether it was `done`.
    ///
    /// # Panics
    /// When time stands still.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + limit;
        // Whoever calls may have changed any host.
        self.touched.fill(true);
        let mut steps = 0;
        loop {
            self.change();
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
            steps = if next > self.now { 0 } else { steps + 1 };
            assert!(
                steps < MAX_STEPS,
                "a host wants to run again and again without doing anything"
            );
            self.now = next;
        }
    }

    fn next_event(&self) -> Instant {
        let links = self.links.iter().filter_map(Link::next_exit);
        let late = self.late.keys().next().map(|&(due, _)| due);
        let hosts = (0..self.hosts.len()).filter_map(|index| {
            let thaw = self.thaw(index);
            thaw.or_else(|| self.hosts[index].next().map(|at| at - self.ahead[index]))
        });
        let next = links.chain(late).chain(hosts).min().unwrap_or(Instant::FAR_FUTURE);
        next.max(self.now)
    }

    /// Makes the changes whose time has come.
    fn change(&mut self) {
        let elapsed = self.elapsed();
        if self.faults.rebind.take_if(|at| *at <= elapsed).is_some() {
            self.readdress(|public| public.set_port(public.port() + 1));
        }
        if self.faults.moves.take_if(|at| *at <= elapsed).is_some() {
            self.readdress(|public| public.set_ip(elsewhere(public.ip())));
        }
        if let Some((_, host, by)) = self.faults.jump.take_if(|(at, ..)| *at <= elapsed) {
            self.struck.events += 1;
            self.ahead[host] += by;
            self.touched[host] = true;
        }
        if let Some((_, host, _)) = self.faults.freeze.filter(|(at, ..)| *at <= elapsed)
            && self.thaw(host).is_none()
        {
            self.struck.events += 1;
            self.faults.freeze = None;
            // Its kernel stood still as well: it stamps them now.
            let waiting = core::mem::take(&mut self.frozen);
            waiting.into_iter().for_each(|parcel| self.arrive(parcel));
        }
    }

    fn readdress(&mut self, change: impl Fn(&mut SocketAddr)) {
        self.struck.events += 1;
        for (index, public) in self.public.iter_mut().enumerate().step_by(2) {
            self.routes.remove(public);
            change(public);
            self.routes.insert(*public, index);
        }
    }

    /// When a host that stands still goes on.
    fn thaw(&self, index: usize) -> Option<Instant> {
        let (at, host, length) = self.faults.freeze?;
        let end = Self::START + at + length;
        (host == index && self.elapsed() >= at && self.now < end).then_some(end)
    }

    fn deliver(&mut self) {
        let now = self.now;
        for direction in 0..2 {
            while let Some(exit) = self.links[direction].poll(now) {
                if exit.fate != Fate::Delivered {
                    self.struck.lost += 1;
                    continue;
                }
                let parcel = Parcel { ce: exit.marked, ..exit.item };
                self.struck.marked += u64::from(exit.marked);
                if parcel.held {
                    self.struck.held += 1;
                    let wait = self.random.next_u64() % (self.faults.jitter.as_nanos() as u64 + 1);
                    self.count += 1;
                    self.late.insert((now + Duration::from_nanos(wait), self.count), parcel);
                } else {
                    self.arrive(parcel);
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
        let Some(&index) = self.routes.get(&parcel.datagram.to) else {
            self.struck.astray += 1;
            return;
        };
        if self.thaw(index).is_some() {
            if self.frozen.len() < RECEIVE_BUFFER {
                self.frozen.push_back(parcel);
            }
            return;
        }
        let Parcel { from, mut datagram, ce, .. } = parcel;
        self.touched[index] = true;
        let now = self.now + self.ahead[index];
        let mut out = core::mem::take(&mut self.out);
        let arrived = Arrived { from, at: now, ce, bytes: &mut datagram.bytes };
        self.hosts[index].receive(now, arrived, &mut out);
        self.put_all(index, out);
    }

    fn serve(&mut self, index: usize) {
        if self.thaw(index).is_some() {
            return;
        }
        let now = self.now + self.ahead[index];
        let host = &mut self.hosts[index];
        let due = host.next().is_some_and(|at| at <= now);
        if !core::mem::take(&mut self.touched[index]) && !due {
            return;
        }
        let mut out = core::mem::take(&mut self.out);
        host.run(now, &mut out);
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
        if self.is_dark() {
            self.struck.dark += 1;
            return;
        }
        if datagram.bytes.len() > self.largest(index) {
            // That one is lost which the path never carries is no fault.
            self.struck.narrow += u64::from(datagram.bytes.len() <= self.widest[index % 2]);
            return;
        }
        if self.chance(self.faults.corrupt) {
            self.struck.corrupted += 1;
            self.change_a_bit(&mut datagram);
        }
        if self.faults.replay > 0.0 {
            self.overhear(index, &datagram);
        }
        let held = self.chance(self.faults.reorder);
        let parcel = Parcel { from: self.public[index], datagram, ce: false, held };
        if self.chance(self.faults.duplicate) {
            self.struck.duplicated += 1;
            self.send(index, parcel.clone());
        }
        self.send(index, parcel);
    }

    /// The stranger keeps a copy of what a host sends, and sends one of those that it has.
    fn overhear(&mut self, index: usize, datagram: &Datagram) {
        if self.overheard.len() == REMEMBERED {
            self.overheard.pop_front();
        }
        self.overheard.push_back((index, datagram.clone()));
        if !self.chance(self.faults.replay) {
            return;
        }
        self.struck.replayed += 1;
        let which = self.random.next_u64() as usize % self.overheard.len();
        let (index, mut datagram) = self.overheard[which].clone();
        if self.chance(0.5) {
            self.change_a_bit(&mut datagram);
        }
        self.send(index, Parcel { from: STRANGER, datagram, ce: false, held: false });
    }

    fn change_a_bit(&mut self, datagram: &mut Datagram) {
        let place = self.random.next_u64() as usize % datagram.bytes.len();
        datagram.bytes[place] ^= 1 << (self.random.next_u64() % 8);
    }

    fn send(&mut self, index: usize, parcel: Parcel) {
        let Datagram { ecn_capable, bytes, .. } = &parcel.datagram;
        let size = Bytes(bytes.len() as u64 + HEADERS);
        let packet = Packet { ecn_capable: *ecn_capable, ..Packet::new(size) };
        let sent = self.links[index % 2].send_packet(self.now, packet, parcel);
        self.struck.lost += u64::from(sent.is_err());
    }

    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && (self.random.next_u64() as f64 / u64::MAX as f64) < probability
    }

    fn largest(&self, index: usize) -> usize {
        let narrow = self.faults.narrow.filter(|&(from, _)| self.elapsed() >= from);
        narrow.map_or(self.widest[index % 2], |(_, size)| size)
    }

    fn is_dark(&self) -> bool {
        self.faults
            .blackout
            .is_some_and(|(from, length)| (from..from + length).contains(&self.elapsed()))
    }
}

/// The address that a host gets elsewhere.
fn elsewhere(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() ^ (1 << 23)).into(),
        other => other,
    }
}

/// `len` bytes that depend on the seed and their place.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

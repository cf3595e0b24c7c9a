//! One run: flows over a path, and what was seen of them.

use core::net::SocketAddr;
use core::time::Duration;

use path::PathConfig;
use sim::{Absence, Arrived, Bbr, Busy, Datagram, Endless, Faults, Node, World};
use transport::Config;
use transport::cc::{Algorithm, Remembered};
use units::Instant;

/// Time between two looks.
pub const STEP: Duration = Duration::from_millis(10);
/// Payload of our full data packets, less by a byte or two beyond 32 GiB, and what TCP would carry in their place.
const PAYLOAD: f64 = 1440.0;
const TCP_PAYLOAD: f64 = 1448.0;
/// A packet on the line, and of that what UDP and IPv4 add.
const PACKET: f64 = 1500.0;
const HEADERS: f64 = 28.0;

/// Who sends.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Ours(Algorithm),
    Remembering(Remembered),
    Bbr,
}

/// A flow: who, from when on, and how many bytes.
#[derive(Clone, Copy)]
pub struct Flow {
    pub kind: Kind,
    pub start: Duration,
    pub bytes: u64,
    /// Nothing is sent for a round trip after the connection is there.
    pub asks: bool,
    /// How far the clocks of its ends are ahead of what the time is.
    pub ahead: Duration,
}

impl Flow {
    pub fn new(kind: Kind, start_ms: u64) -> Self {
        let (start, ahead) = (Duration::from_millis(start_ms), Duration::ZERO);
        Self { kind, start, bytes: u64::MAX, asks: false, ahead }
    }
}

enum End {
    Ours(Box<Endless>),
    Bbr(Box<Bbr>),
}

impl Node for End {
    fn address(&self) -> SocketAddr {
        match self {
            Self::Ours(end) => end.address(),
            Self::Bbr(end) => end.address(),
        }
    }

    fn receive(&mut self, now: Instant, arrived: Arrived<'_>, out: &mut Vec<Datagram>) {
        match self {
            Self::Ours(end) => end.receive(now, arrived, out),
            Self::Bbr(end) => end.receive(now, arrived, out),
        }
    }

    fn run(&mut self, now: Instant, out: &mut Vec<Datagram>) {
        match self {
            Self::Ours(end) => end.run(now, out),
            Self::Bbr(end) => end.run(now, out),
        }
    }

    fn next(&self) -> Option<Instant> {
        match self {
            Self::Ours(end) => end.next(),
            Self::Bbr(end) => end.next(),
        }
    }
}

impl End {
    /// Bytes that have arrived here, as on the line: what the application has read lags behind by
    /// what was lost.
    fn arrived(&mut self) -> f64 {
        match self {
            Self::Ours(end) => end.connection().map_or(0.0, |connection| {
                let (packets, bytes) = connection.stats().received;
                bytes.0 as f64 + packets as f64 * HEADERS
            }),
            Self::Bbr(end) => end.received as f64 * PACKET,
        }
    }

    fn read(&self) -> u64 {
        match self {
            Self::Ours(end) => end.read,
            Self::Bbr(_) => 0,
        }
    }

    fn said(&mut self) -> String {
        let Self::Ours(end) = self else { return String::new() };
        end.connection().map_or(String::new(), |one| {
            format!("{}, {:?}", one.controller().describe(), one.stats().limits.current())
        })
    }
}

/// What to run.
#[derive(Clone)]
pub struct Setup {
    pub path: PathConfig,
    pub flows: Vec<Flow>,
    pub time: Duration,
    /// How the hosts of our flows are away.
    pub absence: Option<Absence>,
}

/// What was seen after each [`STEP`].
pub struct Seen {
    /// Bytes on the line that had arrived, by flow.
    arrived: Vec<Vec<f64>>,
    /// Bytes that the first flow's application had read.
    read: Vec<u64>,
    /// Seconds of data in the queue.
    queue: Vec<f64>,
    /// Packets that the queue dropped by then.
    drops: Vec<u64>,
    /// Packets that it marked instead.
    pub marked: u64,
    rate: f64,
    /// Bytes of a full packet.
    packet: f64,
}

impl Setup {
    /// Runs it; with `trace`, tells what the senders think so often.
    pub fn run(&self, trace: Option<Duration>) -> Seen {
        let mut ends = Vec::new();
        for (number, flow) in self.flows.iter().enumerate() {
            let config = match flow.kind {
                Kind::Ours(congestion) => Config { congestion, ..Config::default() },
                Kind::Remembering(path) => Config { remembered: Some(path), ..Config::default() },
                Kind::Bbr => {
                    let seed = self.path.seed + number as u64;
                    ends.extend(
                        Bbr::pair(number, flow.start + flow.ahead, seed)
                            .map(|end| End::Bbr(Box::new(end.limited_to(flow.bytes)))),
                    );
                    continue;
                }
            };
            let pair = Endless::pair(number, flow.start + flow.ahead, config, flow.bytes);
            let pair = if flow.asks { pair.map(Endless::asking) } else { pair };
            ends.extend(pair.map(|end| End::Ours(Box::new(end))));
        }
        let busy = |(number, end): (usize, End)| {
            // The rivals are a kernel's.
            let rival =
                [Kind::Bbr, Kind::Ours(Algorithm::Cubic)].contains(&self.flows[number / 2].kind);
            let seed = self.path.seed * 1000 + number as u64;
            Busy::new(end, self.absence.filter(|_| !rival), seed)
        };
        let ends = ends.into_iter().enumerate().map(busy).collect();
        let mut world = World::of(&self.path, Faults::default(), ends);
        for (number, flow) in self.flows.iter().enumerate() {
            (2 * number..2 * number + 2).for_each(|host| world.put_ahead(host, flow.ahead));
        }
        let rate = self.path.forward.rate.as_bits_per_sec() as f64;
        let packet = self.path.forward.mtu.map_or(PACKET, |mtu| mtu.0 as f64);
        let (arrived, read, queue, drops) = Default::default();
        let mut seen = Seen { arrived, read, queue, drops, marked: 0, rate, packet };
        let looks = self.time.as_nanos().div_ceil(STEP.as_nanos()) as usize;
        let every = trace.map_or(usize::MAX, |at| (at.as_millis() / STEP.as_millis()) as usize);
        for look in 1..=looks {
            world.run_until(STEP, |_| false);
            let far = world.hosts.iter_mut().skip(1).step_by(2);
            seen.arrived.push(far.map(|end: &mut Busy<End>| end.node.arrived()).collect());
            seen.read.push(world.hosts[1].node.read());
            seen.queue.push(world.queued().0 as f64 * 8.0 / rate);
            seen.drops.push(world.queue_drops());
            if look % every == 0 {
                seen.tell(look, every, &mut world.hosts);
            }
        }
        seen.marked = world.struck().marked;
        seen
    }
}

impl Seen {
    fn tell(&self, look: usize, every: usize, hosts: &mut [Busy<End>]) {
        let (to, from) = (look as f64 * 0.01, (look - every) as f64 * 0.01);
        let (queue, drops) = (self.queue[look - 1] * 1e3, self.dropped(from, to));
        eprint!("{to:7.2} queue {queue:6.2} ms, {drops:4} dropped");
        for (flow, host) in hosts.iter_mut().step_by(2).enumerate() {
            eprint!(" | {:7.2} {}", self.rate(flow, from, to) / 1e6, host.node.said());
        }
        eprintln!();
    }

    fn at(&self, flow: usize, seconds: f64) -> f64 {
        self.look(seconds).map_or(0.0, |look| self.arrived[look][flow])
    }

    /// The last look by then; none before the first.
    fn look(&self, seconds: f64) -> Option<usize> {
        let look = (seconds / STEP.as_secs_f64()).round() as usize;
        look.checked_sub(1).map(|look| look.min(self.arrived.len() - 1))
    }

    /// How many flows there are.
    pub fn flows(&self) -> usize {
        self.arrived[0].len()
    }

    /// Bits on the line a second of one flow, between two times in seconds.
    pub fn rate(&self, flow: usize, from: f64, to: f64) -> f64 {
        (self.at(flow, to) - self.at(flow, from)) * 8.0 / (to - from)
    }

    /// The same of all flows.
    pub fn rates(&self, from: f64, to: f64) -> Vec<f64> {
        (0..self.flows()).map(|flow| self.rate(flow, from, to)).collect()
    }

    /// The part of the link that all together used.
    pub fn used(&self, from: f64, to: f64) -> f64 {
        self.rates(from, to).iter().sum::<f64>() / self.rate
    }

    /// Our payload, as part of what TCP's packets could carry of what a path with this loss lets
    /// through.
    pub fn of_limit(&self, loss: f64, from: f64, to: f64) -> f64 {
        self.used(from, to) * PAYLOAD / TCP_PAYLOAD / (1.0 - loss)
    }

    /// What the first flow's application read, as part of the same: what arrived twice, or waits behind holes, is not in it.
    pub fn read_of_limit(&self, loss: f64, from: f64, to: f64) -> f64 {
        let at = |seconds: f64| self.look(seconds).map_or(0, |look| self.read[look]);
        let rate = (at(to) - at(from)) as f64 * 8.0 / (to - from);
        rate / self.rate * self.packet / TCP_PAYLOAD / (1.0 - loss)
    }

    /// Packets dropped in the queue between two times.
    pub fn dropped(&self, from: f64, to: f64) -> u64 {
        let at = |seconds: f64| self.look(seconds).map_or(0, |look| self.drops[look]);
        at(to) - at(from)
    }

    /// The same, as part of what arrived.
    pub fn drop_share(&self, from: f64, to: f64) -> f64 {
        self.dropped(from, to) as f64 * self.packet * 8.0
            / (self.used(from, to) * self.rate * (to - from))
    }

    /// The queue in seconds which so much of the time between two times was not exceeded.
    pub fn queue(&self, part: f64, from: f64, to: f64) -> f64 {
        let look = |seconds: f64| (seconds / STEP.as_secs_f64()).round() as usize;
        let mut queue = self.queue[look(from)..look(to).min(self.queue.len())].to_vec();
        queue.sort_by(f64::total_cmp);
        queue[((queue.len() - 1) as f64 * part) as usize]
    }

    /// When the first flow's application has read so many bytes, in seconds.
    pub fn brought(&self, bytes: u64) -> f64 {
        let look = self.read.iter().position(|&read| read >= bytes);
        look.map_or(f64::INFINITY, |look| (look + 1) as f64 * STEP.as_secs_f64())
    }

    /// When a flow's rate over 100 ms first reached a part of the link, in seconds.
    pub fn reached(&self, flow: usize, part: f64) -> f64 {
        let enough = |&at: &usize| {
            let to = at as f64 * STEP.as_secs_f64();
            self.rate(flow, to - 0.1, to) >= part * self.rate
        };
        (10..=self.arrived.len()).find(enough).map_or(f64::INFINITY, |at| at as f64 * 0.01)
    }
}

/// Jain's index of fairness.
pub fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    sum * sum / (rates.len() as f64 * rates.iter().map(|rate| rate * rate).sum::<f64>())
}

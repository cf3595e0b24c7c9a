//! A stream over many TCP connections: as many as one of the product's controllers asks for.
//!
//! What is to be sent goes to whichever connection's socket has room, as the product's records do. How much the
//! receiver can hold out of order is not modelled, nor is what is late sent once more over another connection, and
//! none is held to a rate that was asked for. All connections that are wanted are opened at once.

use core::time::Duration;

use stripe::count::{Controller, Law, MAX_CONNECTIONS, Policy, Sample, TICK};
use units::{Bytes, Instant, Rate};

use super::agenda::Agenda;
use super::flow::{End, Flow, Standing};
use super::outcome::Documents;
use super::parcel::Parcel;
use super::transit::Outlet;
use crate::tcp::{Config, Congestion, Receiver, Sender};

/// Bytes that wait unsent, all connections together, and in one of them at least and at most, as the product has it with
/// controls other than BBR (`crates/net/src/tcp/keeper.rs`, `pacing.rs`).
const UNSENT: u64 = 1 << 20;
const UNSENT_EACH: [u64; 2] = [8 << 10, 128 << 10];
/// A socket holds so many of the largest congestion window that there was, of so many segments at least, as Linux has it.
const WINDOWS: u64 = 2;
const SEGMENTS: u64 = 10;

/// Striping over TCP. With no connections at most, or segments of nothing, it cannot be run.
#[derive(Clone, Copy, Debug)]
pub struct Striping {
    /// Each of the connections.
    pub connection: Config,
    /// How many there are.
    pub policy: Policy,
    /// But never more than these.
    pub most: usize,
}

impl Striping {
    /// With no other bound than the product's own.
    pub fn new(connection: Config, policy: Policy) -> Self {
        Self { connection, policy, most: MAX_CONNECTIONS }
    }

    /// How many connections, in a word.
    pub(super) fn count(&self) -> String {
        match self.policy {
            Policy::Fixed(count) => usize::from(count).min(self.most).to_string(),
            Policy::Equation { .. } => "equation".to_owned(),
            Policy::RttBounded { .. } => "rtt-bounded".to_owned(),
            Policy::Auto { .. } => "auto".to_owned(),
        }
    }
}

pub(super) struct StripedFlow {
    striping: Striping,
    controller: Box<dyn Controller>,
    /// All connections that there were, by their numbers, but for those that are over.
    lanes: Vec<Option<Box<Lane>>>,
    /// The numbers of those that are not.
    live: Vec<usize>,
    /// When each sender is to be run, and each receiver.
    runs: [Agenda; 2],
    /// Bytes of the stream, those that were given to no connection, and those that have arrived.
    size: u64,
    left: u64,
    delivered: u64,
    /// When the controller is asked again.
    tick: Instant,
    /// The least round-trip time that any connection saw.
    base_rtt: Duration,
    /// Of connections that are over.
    past: Standing,
    start: Instant,
    finished: Option<Instant>,
}

/// One of the connections.
struct Lane {
    sender: Sender,
    receiver: Receiver,
    stage: Stage,
    /// Bytes that the sender's socket holds: a segment at least.
    socket: u64,
}

/// What is done with a connection.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// TCP's handshake.
    Opening,
    /// The stream's own, until this time.
    Greeting(Instant),
    /// It is given what its socket has room for.
    Carrying,
    /// It is given nothing more, and ends when all that it was given has arrived.
    Retiring,
}

impl Lane {
    fn new(config: &Config) -> Self {
        // The product has it so (TCP_NODELAY).
        let config = &Config { nagle: false, ..*config };
        let mut sender = Sender::new(config);
        sender.open();
        Self {
            sender,
            receiver: Receiver::new(config),
            stage: Stage::Opening,
            socket: config.mss.0,
        }
    }

    /// Whether it has carried, and is not over: one that retires still counts, as in the product.
    fn carries(&self) -> bool {
        matches!(self.stage, Stage::Carrying | Stage::Retiring)
    }

    /// The round-trip time as Linux tells it: smoothed, but by a time for each segment. Without timestamps one a round trip is
    /// timed here, of which the last is nearest to that.
    fn rtt(&self, config: &Config) -> Option<Duration> {
        if config.timestamps { self.sender.smoothed_rtt() } else { self.sender.stats().rtt }
    }

    /// Goes on to the next stage when its time has come.
    fn advance(&mut self, now: Instant) {
        if self.stage == Stage::Opening && self.sender.is_open() {
            self.stage = Stage::Greeting(now + self.sender.stats().rtt.unwrap_or_default());
        }
        if matches!(self.stage, Stage::Greeting(end) if end <= now) {
            self.stage = Stage::Carrying;
        }
    }

    /// Takes whole segments of what is left, as many as its socket has room for, but no more than this waits in it.
    fn fill(&mut self, config: &Config, most: u64, left: &mut u64) {
        if self.stage != Stage::Carrying {
            return;
        }
        let windows = WINDOWS * self.sender.stats().window.0.max(SEGMENTS * config.mss.0);
        self.socket = self.socket.max(windows.min(config.send_buffer.0));
        let room = self.socket.saturating_sub(self.sender.held());
        let room = room.min(most.max(config.mss.0).saturating_sub(self.sender.unsent()));
        let given = (room - room % config.mss.0).min(*left);
        self.sender.write(given);
        *left -= given;
    }

    fn next(&self, end: End) -> Instant {
        match (end, self.stage) {
            (End::Sender, Stage::Greeting(end)) => self.sender.next_timeout().min(end),
            (End::Sender, _) => self.sender.next_timeout(),
            (End::Receiver, _) => self.receiver.next_timeout(),
        }
    }
}

impl StripedFlow {
    /// So many bytes from `start` on, or without an end.
    pub(super) fn new(striping: &Striping, size: Option<Bytes>, start: Instant) -> Self {
        let size = size.map_or(u64::MAX, |size| size.0);
        Self {
            striping: *striping,
            controller: striping.policy.controller(),
            lanes: Vec::new(),
            live: Vec::new(),
            runs: <_>::default(),
            size,
            left: size,
            delivered: 0,
            tick: start,
            base_rtt: Duration::MAX,
            past: Standing::default(),
            start,
            finished: None,
        }
    }

    /// Those that are not over.
    fn open(&self) -> impl Iterator<Item = &Lane> {
        self.live.iter().filter_map(|&number| self.lanes[number].as_deref())
    }

    /// Of all connections together; their round-trip time is the mean of those that carry.
    fn sum(&self) -> Standing {
        let mut sum = Standing { delivered: self.delivered, finished: self.finished, ..self.past };
        let (mut rtts, mut count) = (Duration::ZERO, 0);
        for lane in self.open() {
            let stats = lane.sender.stats();
            sum.sent += stats.sent;
            sum.retransmitted += stats.retransmitted;
            sum.timeouts += stats.timeouts;
            if let (true, Some(rtt)) = (lane.carries(), lane.rtt(&self.striping.connection)) {
                sum.window += lane.sender.usable_window();
                rtts += rtt;
                count += 1;
            }
        }
        sum.connections = Some(count);
        sum.rtt = rtts.checked_div(count).filter(|rtt| !rtt.is_zero());
        sum.rate = sum.rtt.and_then(|rtt| Rate::of(sum.window, rtt));
        sum
    }

    /// Asks the controller, and does what it says.
    fn on_tick(&mut self, now: Instant) {
        if self.lanes.is_empty() {
            self.adjust(now, self.striping.policy.first());
        } else if let Some(sample) = self.sample(now) {
            let count = self.controller.connections(&sample);
            self.adjust(now, count);
        }
        self.tick = if self.finished.is_none() { now + TICK } else { Instant::FAR_FUTURE };
    }

    /// What the controller is told; nothing before a connection carries.
    fn sample(&self, now: Instant) -> Option<Sample> {
        let carrying = self.open().filter(|lane| lane.carries());
        let least_rtt = carrying.filter_map(|lane| lane.rtt(&self.striping.connection)).min()?;
        let config = &self.striping.connection;
        let sum = self.sum();
        let connections = sum.connections? as usize;
        Some(Sample {
            now,
            connections,
            resting: 0,
            most: self.striping.most.min(MAX_CONNECTIONS),
            delivered: Bytes(sum.delivered),
            rtt: sum.rtt?,
            least_rtt,
            base_rtt: self.base_rtt,
            window: Bytes(sum.window.0 / connections as u64),
            segment: config.mss,
            sent: sum.sent,
            resent: sum.retransmitted,
            arrived: sum.delivered / config.mss.0,
            lost: sum.retransmitted,
            law: match config.congestion {
                Congestion::Reno => Law::Reno,
                Congestion::Cubic => Law::Cubic,
            },
            paced: false,
            idle: self.left == 0,
        })
    }

    /// Opens connections, or lets the youngest go.
    fn adjust(&mut self, now: Instant, count: usize) {
        let count = count.clamp(1, self.striping.most);
        let stays = |&number: &usize| {
            self.lanes[number].as_ref().is_some_and(|lane| lane.stage != Stage::Retiring)
        };
        let stay: Vec<usize> = self.live.iter().copied().filter(stays).collect();
        for &number in stay.iter().skip(count) {
            if let Some(lane) = &mut self.lanes[number] {
                lane.stage = Stage::Retiring;
            }
            self.runs[End::Sender as usize].set(number, now);
        }
        for _ in stay.len()..count {
            let number = self.lanes.len();
            self.lanes.push(Some(Box::new(Lane::new(&self.striping.connection))));
            self.live.push(number);
            for runs in &mut self.runs {
                runs.add(number);
            }
            self.runs[End::Sender as usize].set(number, now);
        }
    }

    /// Bytes that may wait unsent in each connection.
    fn unsent(&self) -> u64 {
        let [least, most] = UNSENT_EACH;
        (UNSENT / self.live.len().max(1) as u64).clamp(least, most)
    }

    /// Lets an end of a connection do what is due.
    fn run_lane(&mut self, now: Instant, end: End, number: usize, out: &mut Outlet<'_>) {
        let unsent = self.unsent();
        let Some(lane) = &mut self.lanes[number] else { return self.end_lane(number) };
        match end {
            End::Sender => {
                lane.sender.handle_timeout(now);
                lane.advance(now);
                lane.fill(&self.striping.connection, unsent, &mut self.left);
                while let Some(segment) = lane.sender.poll(now) {
                    out.send_segment(number as u32, segment);
                    lane.fill(&self.striping.connection, unsent, &mut self.left);
                }
                if lane.stage == Stage::Retiring && lane.sender.is_done() {
                    return self.end_lane(number);
                }
            }
            End::Receiver => {
                if let Some(late) = lane.receiver.handle_timeout(now) {
                    out.send_segment(number as u32, late);
                }
            }
        }
        let next = lane.next(end);
        self.runs[end as usize].set(number, next);
    }

    fn end_lane(&mut self, number: usize) {
        if let Some(lane) = self.lanes[number].take() {
            let stats = lane.sender.stats();
            self.past.sent += stats.sent;
            self.past.retransmitted += stats.retransmitted;
            self.past.timeouts += stats.timeouts;
        }
        self.live.retain(|&other| other != number);
        for runs in &mut self.runs {
            runs.set(number, Instant::FAR_FUTURE);
        }
    }

    /// A segment arrives at an end of a connection; its number, if there still is one.
    fn take_in(
        &mut self,
        now: Instant,
        end: End,
        parcel: &Parcel,
        out: &mut Outlet<'_>,
    ) -> Option<usize> {
        let (number, segment) = out.take_segment(parcel)?;
        let lane = self.lanes[number as usize].as_mut()?;
        match end {
            End::Sender => {
                lane.sender.handle(now, segment);
                self.base_rtt =
                    lane.sender.stats().rtt.map_or(self.base_rtt, |rtt| rtt.min(self.base_rtt));
            }
            End::Receiver => {
                let before = lane.receiver.delivered();
                if let Some(answer) = lane.receiver.handle(now, segment) {
                    out.send_segment(number, answer);
                }
                self.delivered += lane.receiver.delivered() - before;
                if self.delivered == self.size {
                    self.finished.get_or_insert(now);
                }
            }
        }
        Some(number as usize)
    }
}

impl Flow for StripedFlow {
    fn arrive(&mut self, now: Instant, end: End, parcel: &Parcel, out: &mut Outlet<'_>) {
        if let Some(number) = self.take_in(now, end, parcel, out) {
            self.runs[end as usize].set(number, now);
        }
    }

    fn run(&mut self, now: Instant, end: End, out: &mut Outlet<'_>) {
        if end == End::Sender && self.tick <= now {
            self.on_tick(now);
        }
        loop {
            let (at, number) = self.runs[end as usize].first();
            if at > now {
                return;
            }
            self.run_lane(now, end, number, out);
        }
    }

    fn next(&self, end: End) -> Instant {
        let first = self.runs[end as usize].first().0;
        if end == End::Sender { first.min(self.tick) } else { first }
    }

    fn is_told_by_packets(&self) -> bool {
        // The controller knows what has arrived by now.
        false
    }

    fn standing(&self) -> Standing {
        let sum = self.sum();
        let Some(end) = self.finished else { return sum };
        let mut documents = Documents::default();
        documents.note(end.since(self.start));
        // Its connections are closed.
        Standing { documents, connections: Some(0), window: Bytes::ZERO, rate: None, ..sum }
    }
}

//! A file over several TCP connections, block by block, as paper 1 has it (section 3.3).
//!
//! Each connection is given blocks and carries them in order; the product's own [`Gather`] puts
//! those of all connections in order, and bounds how far one may run ahead of another. The product's `Scatter` is not in it: it
//! sends what is late once more over another connection, however it was assigned, so that nothing would be seen of what
//! paper 1 tells of static assignment.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use path::{HostGroup, PathConfig};
use stripe::{Assignment, Gather};
use units::{Bytes, Instant};

use super::Study;
use super::flow::{End, Flow, Standing};
use super::network::Network;
use super::parcel::Parcel;
use super::transit::Outlet;
use crate::tcp::{Config, Receiver, Sender};
use crate::world::START;

/// Bytes of a block: those of paper 3, for paper 1 does not tell.
const BLOCK: usize = 8 << 10;
static CONTENT: [u8; BLOCK] = [0; BLOCK];
/// How soon a connection that found no block asks again.
const PATIENCE: Duration = Duration::from_millis(1);
/// How often it is looked whether all has arrived.
const GLANCE: Duration = Duration::from_millis(10);

/// A file on its way over several connections.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// The path.
    pub path: PathConfig,
    /// The near side's hosts, to which the connections are dealt.
    pub near: Vec<HostGroup>,
    /// Each of the connections.
    pub connection: Config,
    /// How many.
    pub count: usize,
    /// Which blocks a connection is given: every `count`th for good, or the next when it can take
    /// one.
    pub assignment: Assignment,
    /// The file.
    pub file: Bytes,
    /// What the receiver can hold out of order, in whole blocks but at least
    /// [`stripe::INITIAL_RECORDS`] of them.
    pub buffer: Bytes,
    /// When the first connection begins, and how much later each next.
    pub start: Duration,
    /// See `start`.
    pub every: Duration,
    /// When it is over, whether or not all has arrived.
    pub duration: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Carried {
    /// Seconds until all had arrived, or those of the run.
    pub seconds: f64,
    /// Bytes that arrived in order.
    pub bytes: u64,
    /// The most that the receiver held out of order.
    pub peak: u64,
}

impl Carried {
    /// Bits a second.
    pub fn goodput(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds
    }
}

impl Blocks {
    /// Runs it with this seed.
    ///
    /// # Panics
    /// When the path is impossible.
    pub fn run(&self, seed: u64) -> Carried {
        let hosts: u32 = self.near.iter().map(|group| group.count).sum();
        let path = self.path.clone().with_seed(seed);
        let far = vec![HostGroup::default()];
        let study = Study::of(path, self.near.clone(), far, self.duration);
        let mut network = Network::undivided(&study);
        let file = Arc::new(Mutex::new(File::new(self)));
        for number in 0..self.count {
            let lane = Lane::new(self, number as u64, &file);
            network.join(Box::new(lane), number % hosts as usize, 0);
        }
        let mut at = Duration::ZERO;
        while at < self.duration && locked(&file).finished.is_none() {
            at += GLANCE;
            network.run_until(at);
        }
        let file = locked(&file);
        let end = file.finished.map_or(self.duration, Network::since_start);
        Carried { seconds: end.as_secs_f64(), bytes: file.read, peak: file.peak }
    }
}

fn locked(file: &Mutex<File>) -> MutexGuard<'_, File> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the connections share: the sender's assignment, and the receiver's order.
struct File {
    assignment: Assignment,
    lanes: u64,
    /// Blocks of the file.
    total: u64,
    /// The first that no connection was given, with dynamic assignment.
    next: u64,
    /// Those below may be sent, as far as the sender knows.
    limit: u64,
    gather: Gather,
    /// Bytes that arrived, and that were read in order.
    arrived: u64,
    read: u64,
    peak: u64,
    finished: Option<Instant>,
}

impl File {
    fn new(blocks: &Blocks) -> Self {
        // The gatherer reckons with the product's records, which are larger.
        let records = Bytes(blocks.buffer.0 / BLOCK as u64 * stripe::MAX_PAYLOAD as u64);
        let gather = Gather::new(records);
        Self {
            assignment: blocks.assignment,
            lanes: blocks.count as u64,
            total: blocks.file.0.div_ceil(BLOCK as u64),
            next: 0,
            limit: gather.limit(),
            gather,
            arrived: 0,
            read: 0,
            peak: 0,
            finished: None,
        }
    }

    /// The next block for a connection that was given so many.
    fn give(&mut self, lane: u64, given: u64) -> Option<u64> {
        let number = match self.assignment {
            Assignment::Dynamic => self.next,
            Assignment::Static => lane + given * self.lanes,
        };
        let number = Some(number).filter(|number| *number < self.limit.min(self.total));
        self.next += u64::from(number.is_some());
        number
    }

    fn take(&mut self, now: Instant, number: u64) {
        let payload = bytes::Bytes::from_static(&CONTENT);
        let new = self.gather.accept(number, payload).expect("nothing is sent beyond the limit");
        self.arrived += u64::from(new) * BLOCK as u64;
        let mut sink = [0; BLOCK];
        while self.gather.has_data() {
            self.read += self.gather.read(&mut sink) as u64;
        }
        self.peak = self.peak.max(self.arrived - self.read);
        if self.gather.through() == self.total {
            self.finished.get_or_insert(now);
        }
    }
}

/// One of the connections.
struct Lane {
    number: u64,
    file: Arc<Mutex<File>>,
    begin: Option<Instant>,
    sender: Sender,
    receiver: Receiver,
    /// What the sending socket holds.
    room: u64,
    given: u64,
    /// Blocks on their way, and where each ends among this connection's bytes.
    carried: VecDeque<(u64, u64)>,
    /// How far the receiver's window of blocks reached when it had so many bytes: what its
    /// acknowledgements tell.
    told: VecDeque<(u64, u64)>,
    /// When to ask for a block again.
    asks: Option<Instant>,
}

impl Lane {
    fn new(blocks: &Blocks, number: u64, file: &Arc<Mutex<File>>) -> Self {
        Self {
            number,
            file: Arc::clone(file),
            begin: Some(START + blocks.start + blocks.every * number as u32),
            sender: Sender::new(&blocks.connection),
            receiver: Receiver::new(&blocks.connection),
            room: blocks.connection.send_buffer.0,
            given: 0,
            carried: VecDeque::new(),
            told: VecDeque::new(),
            asks: None,
        }
    }

    /// Writes blocks as long as the socket has room.
    fn fill(&mut self, now: Instant) {
        let mut file = locked(&self.file);
        self.asks = None;
        while self.sender.held() + BLOCK as u64 <= self.room {
            let Some(block) = file.give(self.number, self.given) else {
                self.asks = Some(now + PATIENCE).filter(|_| self.sender.is_done());
                return;
            };
            self.given += 1;
            self.carried.push_back((block, self.given * BLOCK as u64));
            self.sender.write(BLOCK as u64);
        }
    }

    fn on_ack(&mut self) {
        let mut file = locked(&self.file);
        while let Some((_, limit)) =
            self.told.pop_front_if(|told| told.0 <= self.sender.acknowledged())
        {
            file.limit = file.limit.max(limit);
        }
    }

    /// Takes the blocks that have arrived whole.
    fn on_data(&mut self, now: Instant) {
        let delivered = self.receiver.delivered();
        let mut file = locked(&self.file);
        while let Some((block, _)) = self.carried.pop_front_if(|carried| carried.1 <= delivered) {
            file.take(now, block);
        }
        self.told.push_back((delivered, file.gather.limit()));
    }
}

/// A connection has one flow for itself.
const NUMBER: u32 = 0;

impl Flow for Lane {
    fn arrive(&mut self, now: Instant, end: End, parcel: &Parcel, out: &mut Outlet<'_>) {
        let Some((_, segment)) = out.take_segment(parcel) else { return };
        match end {
            End::Sender => {
                self.sender.handle(now, segment);
                self.on_ack();
            }
            End::Receiver => {
                if let Some(answer) = self.receiver.handle(now, segment) {
                    out.send_segment(NUMBER, answer);
                }
                self.on_data(now);
            }
        }
    }

    fn run(&mut self, now: Instant, end: End, out: &mut Outlet<'_>) {
        match end {
            End::Sender => {
                if self.begin.take_if(|begin| *begin <= now).is_some() {
                    self.sender.open();
                }
                if self.begin.is_none() {
                    self.fill(now);
                }
                self.sender.handle_timeout(now);
                while let Some(segment) = self.sender.poll(now) {
                    out.send_segment(NUMBER, segment);
                }
            }
            End::Receiver => {
                if let Some(late) = self.receiver.handle_timeout(now) {
                    out.send_segment(NUMBER, late);
                }
            }
        }
    }

    fn next(&self, end: End) -> Instant {
        match end {
            End::Sender => {
                let others = self.begin.into_iter().chain(self.asks);
                others.fold(self.sender.next_timeout(), Instant::min)
            }
            End::Receiver => self.receiver.next_timeout(),
        }
    }

    fn is_told_by_packets(&self) -> bool {
        // The window of blocks may move after the acknowledgement that tells of it was sent.
        false
    }

    fn standing(&self) -> Standing {
        Standing::of_tcp(self.receiver.delivered(), &self.sender.stats())
    }
}

#[cfg(test)]
mod tests {
    use units::Rate;

    use super::*;
    use crate::tcp::Recovery;

    #[test]
    fn a_file_arrives_whole_over_connections_that_lose() {
        let path = PathConfig::new(Rate::from_bits_per_sec(10_000_000), Duration::from_millis(50))
            .with_loss(0.01);
        for assignment in [Assignment::Dynamic, Assignment::Static] {
            let blocks = Blocks {
                path: path.clone(),
                near: vec![HostGroup::default()],
                connection: Config {
                    send_buffer: Bytes::kib(64),
                    ..Config::classic(Recovery::NewReno, 1460, 65_535)
                },
                count: 4,
                assignment,
                file: Bytes::mib(1),
                buffer: Bytes::mib(1),
                start: Duration::ZERO,
                every: Duration::from_millis(50),
                duration: Duration::from_secs(60),
            };
            let carried = blocks.run(1);
            assert_eq!(carried.bytes, 1 << 20, "{assignment:?}");
            assert!(carried.seconds < 30.0 && carried.peak > 0, "{carried:?}");
            assert_eq!(carried, blocks.run(1));
        }
    }
}

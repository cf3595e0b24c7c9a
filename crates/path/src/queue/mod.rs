//! What waits for the transmitter.

mod codel;
mod config;
mod fair;
mod limit;
mod red;

use std::collections::VecDeque;

use core::time::Duration;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use units::{Bytes, Instant, Rate};

use crate::{DropCause, Packet, Tally};
use codel::Codel;
pub use config::{CodelConfig, FqCodelConfig, QueueConfig, RedConfig};
use fair::Fair;
use limit::Room;
pub use limit::{Limit, ParseLimitError};
use red::{Red, Sight};

/// What a discipline does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    /// Passes, with the mark of congestion (RFC 3168).
    Mark,
    Drop,
}

/// One waiting packet.
pub(crate) struct Waiting<T> {
    pub(crate) size: Bytes,
    pub(crate) arrived: Instant,
    pub(crate) flow: u64,
    pub(crate) ecn_capable: bool,
    pub(crate) marked: bool,
    pub(crate) item: T,
}

/// What comes from the head of the queue.
pub(crate) enum Departure<T> {
    /// To the transmitter.
    Send(Waiting<T>),
    /// Nowhere; the next packet follows at the same time.
    Drop(Waiting<T>),
}

impl<T> Departure<T> {
    fn new(mut packet: Waiting<T>, verdict: Verdict) -> Self {
        match verdict {
            Verdict::Drop => Self::Drop(packet),
            Verdict::Pass => Self::Send(packet),
            Verdict::Mark => {
                packet.marked = true;
                Self::Send(packet)
            }
        }
    }
}

/// The queue with its discipline, which decides on arrival ([`admit`](Self::admit)) and, when it
/// drops at the head, on departure ([`take`](Self::take)).
pub(crate) struct Queue<T> {
    discipline: Discipline<T>,
    room: Room,
    /// What waits, except under FQ-CoDel, which keeps its own.
    fifo: VecDeque<Waiting<T>>,
    bytes: Bytes,
    last_arrival: Instant,
}

// With a tag of its own, for it is read with each packet.
#[repr(u8)]
enum Discipline<T> {
    DropTail,
    Red(Red),
    Codel(Codel),
    Fair(Fair<T>),
}

impl<T> Queue<T> {
    pub(crate) fn new(config: &QueueConfig, rate: Rate, rtt: Duration, mut rng: Pcg64Mcg) -> Self {
        let red = |config, instantaneous, rng| {
            let thresholds = RedConfig::thresholds(config, rate, rtt);
            let red = Red::new(config, instantaneous, &thresholds, rate, rng);
            (Discipline::Red(red), Room::new(thresholds.limit, rate))
        };
        let (discipline, room) = match config {
            QueueConfig::DropTail(limit) => (Discipline::DropTail, Room::new(*limit, rate)),
            QueueConfig::Red(config) => red(config, false, rng),
            QueueConfig::RedI(config) => red(config, true, rng),
            QueueConfig::Codel(config) => {
                (Discipline::Codel(Codel::new(config)), Room::new(config.limit, rate))
            }
            QueueConfig::FqCodel(config) => {
                let room = Room::new(config.codel.limit, rate);
                (Discipline::Fair(Fair::new(config, room, rng.random())), room)
            }
        };
        let fifo = VecDeque::new();
        Self { discipline, room, fifo, bytes: Bytes::ZERO, last_arrival: Instant::ZERO }
    }

    /// This queue under another configuration, with what waits in it.
    pub(crate) fn become_like(&mut self, mut other: Self) {
        // Of several flows the order of arrival is not kept across queues, only within each.
        while let Some(packet) = self.remove() {
            other.push(packet);
        }
        *self = other;
    }

    fn remove(&mut self) -> Option<Waiting<T>> {
        match &mut self.discipline {
            Discipline::Fair(fair) => fair.remove(),
            _ => self.fifo.pop_front(),
        }
    }

    /// Lets a packet in behind `backlog`, marked or not, or says why not. A transmitter that is `free` takes it
    /// at once, so that nothing is asked of the limit then. Nothing has waited or been sent since `idle_since`, if that is past.
    #[inline(always)]
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        Packet { size, ecn_capable, .. }: Packet,
        backlog: Tally,
        free: bool,
        idle_since: Instant,
    ) -> Result<Verdict, DropCause> {
        let Tally { packets, bytes } = backlog;
        let red = match &mut self.discipline {
            // Full or not, it takes the packet and drops another (see `trim`).
            Discipline::Fair(_) => return Ok(Verdict::Pass),
            Discipline::DropTail | Discipline::Codel(_) => None,
            Discipline::Red(red) => Some(red),
        };
        let fits = self.room.holds(bytes + size, packets as usize + 1) || free;
        let mut verdict = Verdict::Pass;
        if let Some(red) = red {
            let idle = (idle_since <= now).then(|| now.since(idle_since));
            let sight = Sight { bytes: bytes.0, packets, idle };
            verdict = red.arrival(sight, ecn_capable);
            if !fits {
                red.overflowed();
            }
        }
        match verdict {
            _ if !fits => Err(DropCause::Queue),
            Verdict::Drop => Err(DropCause::Early),
            Verdict::Pass | Verdict::Mark => Ok(verdict),
        }
    }

    /// Whether all is decided on arrival, and packets leave in the order in which they came.
    pub(crate) fn decides_on_arrival(&self) -> bool {
        matches!(self.discipline, Discipline::DropTail | Discipline::Red(_))
    }

    pub(crate) fn push(&mut self, packet: Waiting<T>) {
        self.last_arrival = packet.arrived;
        match &mut self.discipline {
            Discipline::Fair(fair) => fair.push(packet),
            _ => {
                self.bytes += packet.size;
                self.fifo.push_back(packet);
            }
        }
    }

    /// A packet that has no room any more since another arrived.
    pub(crate) fn trim(&mut self) -> Option<Waiting<T>> {
        match &mut self.discipline {
            Discipline::Fair(fair) => fair.trim(),
            _ => None,
        }
    }

    /// Takes the packet whose turn it is at `now`.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Departure<T>> {
        if let Discipline::Fair(fair) = &mut self.discipline {
            return fair.take(now);
        }
        let head = self.fifo.pop_front()?;
        self.bytes -= head.size;
        let verdict = match &mut self.discipline {
            Discipline::Codel(codel) => {
                codel.departure(now, head.arrived, head.size, self.bytes, head.ecn_capable)
            }
            _ => Verdict::Pass,
        };
        Some(Departure::new(head, verdict))
    }

    /// When the last packet arrived. What waits arrived no later, and whenever anything waits
    /// the transmitter is busy until after it, so this serves as the arrival of any of them.
    pub(crate) fn last_arrival(&self) -> Instant {
        self.last_arrival
    }

    pub(crate) fn bytes(&self) -> Bytes {
        match &self.discipline {
            Discipline::Fair(fair) => fair.bytes(),
            _ => self.bytes,
        }
    }

    /// Packets that there is room for without an allocation.
    pub(crate) fn capacity(&self) -> usize {
        match &self.discipline {
            Discipline::Fair(fair) => fair.capacity(),
            _ => self.fifo.capacity(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.discipline {
            Discipline::Fair(fair) => fair.len(),
            _ => self.fifo.len(),
        }
    }
}

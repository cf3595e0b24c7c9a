//! Packets that are on the line ahead of their time.

use std::collections::VecDeque;

use units::{Bytes, Instant};

use crate::counters::Tally;

/// What waits on a link of which nothing will change, and whose queue decides as packets arrive. When each
/// of them leaves is known then, so that it is on the line already and need not be handled once more
/// when its turn comes. Only what the line has of it so far is still to be counted.
#[derive(Default)]
pub(crate) struct Ahead {
    waiting: VecDeque<Waiting>,
    bytes: Bytes,
}

/// When a packet begins to leave, and its size without framing and with it.
pub(crate) struct Waiting {
    pub(crate) start: Instant,
    pub(crate) size: Bytes,
    pub(crate) line_size: Bytes,
}

impl Ahead {
    /// One more waits.
    pub(crate) fn push(&mut self, packet: Waiting) {
        self.bytes += packet.size;
        self.waiting.push_back(packet);
    }

    /// How much began to leave by `now`, with its framing.
    pub(crate) fn begin(&mut self, now: Instant) -> Bytes {
        let mut begun = Bytes::ZERO;
        while let Some(packet) = self.waiting.pop_front_if(|packet| packet.start <= now) {
            self.bytes -= packet.size;
            begun += packet.line_size;
        }
        begun
    }

    /// What had not by then.
    pub(crate) fn backlog(&self) -> Tally {
        Tally { packets: self.waiting.len() as u64, bytes: self.bytes }
    }

    /// Packets that there is room for without an allocation.
    pub(crate) fn capacity(&self) -> usize {
        self.waiting.capacity()
    }
}

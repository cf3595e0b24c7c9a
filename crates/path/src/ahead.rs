//! Packets that are on the line ahead of their time.

use std::collections::VecDeque;

use units::{Bytes, Instant};

use crate::counters::Tally;

/// What waits on a link that will not change, and whose queue decides as packets arrive. When each of them
/// will leave is known then, so that it is put on the line at once and not handled again when its turn
/// comes: here is only what the backlog is, and what the line has carried so far. Like the line, which
/// holds the same packets, it is bounded by [`MAX_HELD`](crate::MAX_HELD).
#[derive(Default)]
pub(crate) struct Ahead {
    waiting: VecDeque<Promised>,
    bytes: Bytes,
}

/// When a packet will begin to leave, and its size without framing and with it.
pub(crate) struct Promised {
    pub(crate) start: Instant,
    pub(crate) size: Bytes,
    pub(crate) line_size: Bytes,
}

impl Ahead {
    /// One more waits.
    pub(crate) fn push(&mut self, packet: Promised) {
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

//! What a splice counts while it carries, without a lock, for whoever looks at it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use net::udp::StreamMeter;

/// What passed, from the first end of a splice to the second, and back.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) there: Counter,
    pub(crate) back: Counter,
    /// Of the end that is the trunk's.
    pub(crate) meter: OnceLock<StreamMeter>,
}

impl Counters {
    /// The bytes of both.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.there.bytes(), self.back.bytes())
    }
}

/// One direction of a splice.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    bytes: AtomicU64,
    /// One of [`Pause`].
    pause: AtomicU8,
}

/// Why a direction of a splice does not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The end that is read has nothing.
    Reading,
    /// The end that is written takes nothing.
    Writing,
    /// It has ended.
    Ended,
}

impl Counter {
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn pause(&self, pause: Pause) {
        self.pause.store(pause as u8, Ordering::Relaxed);
    }

    pub(super) fn is(&self, pause: Pause) -> bool {
        self.pause.load(Ordering::Relaxed) == pause as u8
    }
}

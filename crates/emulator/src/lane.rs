//! One direction under the real clock: the path's link, and the frames that are in it.

use std::io;

use path::{Fate, Limit, Link, LinkConfig, PathConfig, PathError, QueueConfig};
use units::{Bytes, Instant};

use crate::clock::Clock;
use crate::report::{LaneReport, LatenessRecord, OutsideModel};
use crate::ring::{MAX_FRAME, Ring};

/// Room in a ring beside what the model holds: frames whose segments were mostly dropped, and
/// the rounding of small ones.
const RING_SLACK: u64 = 8 << 20;

/// The largest ring. A path that holds more is refused instead of taking all memory.
const MAX_RING: u64 = 4 << 30;

/// The size of packet that a queue limit in packets is reckoned with.
const MTU: u64 = 1500;

/// How a frame falls into segments, each of which the path treats as a packet.
pub(crate) trait Segments {
    /// How many segments `len` bytes of frame are; at least one.
    fn count(&self, len: usize) -> u32;
    /// What segment `index` of a frame of `len` bytes weighs on the path.
    fn size(&self, len: usize, index: u32) -> Bytes;
    /// How long the frame is when only its first `count` segments are left.
    fn prefix(&self, len: usize, count: u32) -> usize;
}

/// Where what leaves a lane goes.
pub(crate) trait Outlet<M> {
    /// Emits `count` segments of a frame from segment `first` on, in one piece.
    fn emit(&mut self, frame: &[u8], meta: &M, first: u32, count: u32) -> io::Result<()>;
}

/// Which segment of which frame a packet in the link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    frame: u64,
    segment: u32,
}

/// Segments of one frame that leave together.
#[derive(Default)]
struct Run {
    frame: u64,
    first: u32,
    /// When each was due.
    due: Vec<Instant>,
}

impl Run {
    fn continues_with(&self, place: Place) -> bool {
        self.frame == place.frame && self.first + self.due.len() as u32 == place.segment
    }
}

/// One direction.
pub(crate) struct Lane<M> {
    link: Link<Place>,
    ring: Ring<M>,
    /// Where frames are read that the ring has no room for.
    spill: Box<[u8]>,
    run: Run,
    lateness: LatenessRecord,
    outside: OutsideModel,
}

impl<M: Segments> Lane<M> {
    fn new(link: Link<Place>, config: &LinkConfig) -> Option<Self> {
        let room = ring_size(config)?;
        Some(Self {
            link,
            ring: Ring::new(room),
            spill: vec![0; MAX_FRAME].into_boxed_slice(),
            run: Run::default(),
            lateness: LatenessRecord::new(),
            outside: OutsideModel::default(),
        })
    }

    /// Takes in up to `most` frames, as long as `read` has any: it fills a buffer and returns the
    /// frame's length and kind. Returns whether there may be more.
    pub(crate) fn take_batch(
        &mut self,
        clock: &Clock,
        most: usize,
        mut read: impl FnMut(&mut [u8]) -> io::Result<(usize, M)>,
    ) -> bool {
        for _ in 0..most {
            if let Err(error) = self.take_in(clock, &mut read) {
                // Anything else is a frame that came and could not be read.
                self.outside.refused += u64::from(error.kind() != io::ErrorKind::WouldBlock);
                return false;
            }
        }
        true
    }

    fn take_in(
        &mut self,
        clock: &Clock,
        read: impl FnOnce(&mut [u8]) -> io::Result<(usize, M)>,
    ) -> io::Result<()> {
        let Some(space) = self.ring.space() else {
            let (len, meta) = read(&mut self.spill)?;
            self.outside.ring_full += u64::from(meta.count(len));
            return Ok(());
        };
        let (len, meta) = read(space)?;
        let now = clock.now();
        let frame = self.ring.next_number();
        let (mut pending, mut kept) = (0, 0);
        for segment in 0..meta.count(len) {
            let size = meta.size(len, segment);
            if self.link.send(now, size, Place { frame, segment }).is_ok() {
                pending += 1;
                kept = segment + 1;
            }
        }
        if pending > 0 {
            // A full queue drops the tail of a burst: what nobody will ask for takes no room.
            self.ring.keep(meta.prefix(len, kept), meta, pending);
        }
        Ok(())
    }

    /// Emits everything due by now, neighbours in one frame as one piece.
    pub(crate) fn emit_due(&mut self, clock: &Clock, outlet: &mut impl Outlet<M>) {
        let now = clock.now();
        while let Some(exit) = self.link.poll(now) {
            if exit.fate != Fate::Delivered {
                self.ring.release(exit.item.frame);
                continue;
            }
            if !self.run.continues_with(exit.item) {
                self.flush(clock, outlet);
                self.run.frame = exit.item.frame;
                self.run.first = exit.item.segment;
            }
            self.run.due.push(exit.due);
        }
        self.flush(clock, outlet);
    }

    fn flush(&mut self, clock: &Clock, outlet: &mut impl Outlet<M>) {
        let Run { frame, first, due } = &mut self.run;
        if due.is_empty() {
            return;
        }
        let (bytes, meta) = self.ring.frame(*frame);
        // Before the write: it returns only after the receiving host has handled the packets.
        let now = clock.now();
        if outlet.emit(bytes, meta, *first, due.len() as u32).is_err() {
            self.outside.refused += due.len() as u64;
        }
        for due in due.drain(..) {
            self.lateness.add(now.since(due));
            self.ring.release(*frame);
        }
    }

    /// When the next segment is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.link.next_exit()
    }

    /// What happened so far, apart from what was lost before it came here.
    pub(crate) fn report(&self) -> LaneReport {
        LaneReport {
            counters: *self.link.counters(),
            lateness: self.lateness.summary(),
            outside: self.outside,
        }
    }
}

/// The lanes of a path, forward and back.
pub(crate) fn lanes<M: Segments>(path: &PathConfig) -> Result<[Lane<M>; 2], LaneError> {
    let (forward, back) = path.links()?;
    Ok([
        Lane::new(forward, &path.forward).ok_or(LaneError::TooLarge)?,
        Lane::new(back, &path.back).ok_or(LaneError::TooLarge)?,
    ])
}

/// Why a path cannot be emulated.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The path itself is impossible.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Rate times delay is more than memory should hold.
    #[error(
        "rate x delay + queue is above the {} GiB held in memory; lower one of them",
        MAX_RING >> 30
    )]
    TooLarge,
}

/// Bytes of ring for everything that is in a link at once: what is on the line and in the queue,
/// half as much again because small packets are rounded up, and slack.
fn ring_size(config: &LinkConfig) -> Option<usize> {
    let QueueConfig::DropTail(limit) = config.queue else {
        return None;
    };
    let queue = match limit {
        Limit::Bytes(bytes) => bytes,
        Limit::Packets(packets) => Bytes(packets.saturating_mul(MTU)),
        Limit::Time(time) => config.rate.bytes_in(time),
    };
    let held = config.rate.bytes_in(config.delay) + queue;
    let size = held.0.saturating_add(held.0 / 2).saturating_add(RING_SLACK);
    (size <= MAX_RING).then(|| usize::try_from(size).ok()).flatten()
}

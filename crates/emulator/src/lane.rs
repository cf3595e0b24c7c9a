//! One direction under the real clock: the path's link, and the frames that are in it.

use std::io;
use std::ops::Range;

use path::{Damage, Exit, Fate, Link, Packet, PathConfig, PathError};
use units::{Bytes, Instant};

use crate::clock::Clock;
use crate::report::{LaneReport, LatenessRecord, OutsideModel};
use crate::ring::{MAX_FRAME, Ring};

/// Room in a ring beside what the model holds: frames whose segments were mostly dropped, and
/// the rounding of small ones.
const RING_SLACK: u64 = 8 << 20;

/// The largest ring. A path that holds more is refused instead of taking all memory.
const MAX_RING: u64 = 4 << 30;

/// How a frame falls into segments, each of which the path treats as a packet.
pub(crate) trait Segments {
    /// How many segments `len` bytes of frame are; at least one.
    fn count(&self, len: usize) -> u32;
    /// What segment `index` of a frame of `len` bytes weighs on the path.
    fn size(&self, len: usize, index: u32) -> Bytes;
    /// How long the frame is when only its first `count` segments are left.
    fn prefix(&self, len: usize, count: u32) -> usize;
    /// A number that all frames of a flow share.
    fn flow(&self, frame: &[u8]) -> u64;
    /// Whether the segments can carry a mark of congestion.
    fn ecn_capable(&self, frame: &[u8]) -> bool;
}

/// What the path did to a segment beside delaying it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    /// It carries the mark of congestion.
    pub(crate) marked: bool,
    /// A bit of it is wrong.
    pub(crate) damage: Option<Damage>,
    /// It arrives twice.
    pub(crate) duplicated: bool,
}

impl<T> From<&Exit<T>> for Effect {
    fn from(exit: &Exit<T>) -> Self {
        Self { marked: exit.marked, damage: exit.damage, duplicated: exit.duplicated }
    }
}

impl Effect {
    /// Whether it is one segment's own: others with the same do not leave together with it.
    fn single(self) -> bool {
        self.duplicated || self.damage.is_some()
    }
}

/// Where what leaves a lane goes.
pub(crate) trait Outlet<M> {
    /// Emits `segments` of a frame in one piece, after the path had this effect on each of them.
    fn emit(
        &mut self,
        frame: &[u8],
        meta: &M,
        segments: Range<u32>,
        effect: Effect,
    ) -> io::Result<()>;
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
    effect: Effect,
    /// When each was due.
    due: Vec<Instant>,
}

impl Run {
    fn continues_with(&self, place: Place, effect: Effect) -> bool {
        let adjacent = self.frame == place.frame && self.end() == place.segment;
        adjacent && self.effect == effect && !effect.single()
    }

    fn end(&self) -> u32 {
        self.first + self.due.len() as u32
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
    /// Around a link that holds no more than `most_held` at once.
    fn new(link: Link<Place>, most_held: Bytes) -> Result<Self, LaneError> {
        let room = ring_size(most_held).ok_or(LaneError::TooLarge)?;
        Ok(Self {
            link,
            ring: Ring::new(room),
            spill: vec![0; MAX_FRAME].into_boxed_slice(),
            run: Run::default(),
            lateness: LatenessRecord::new(),
            outside: OutsideModel::default(),
        })
    }

    /// Takes in up to `most` frames, as long as `read` has any: it fills a buffer and returns the
    /// frame's length and kind. `refuse` tells the sender of a frame whose segment is larger than
    /// the link's MTU. Returns whether there may be more.
    pub(crate) fn take_batch(
        &mut self,
        clock: &Clock,
        most: usize,
        mut read: impl FnMut(&mut [u8]) -> io::Result<(usize, M)>,
        mut refuse: impl FnMut(&[u8], &M, u32, Bytes),
    ) -> bool {
        for _ in 0..most {
            if let Err(error) = self.take_in(clock, &mut read, &mut refuse) {
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
        refuse: impl FnOnce(&[u8], &M, u32, Bytes),
    ) -> io::Result<()> {
        let frame = self.ring.next_number();
        let Some(space) = self.ring.space() else {
            let (len, meta) = read(&mut self.spill)?;
            self.outside.ring_full += u64::from(meta.count(len));
            return Ok(());
        };
        let (len, meta) = read(space)?;
        let now = clock.now();
        let bytes = &space[..len];
        let (flow, ecn_capable) = (meta.flow(bytes), meta.ecn_capable(bytes));
        let (mut pending, mut kept, mut refused) = (0, 0, None);
        for segment in 0..meta.count(len) {
            let packet = Packet { size: meta.size(len, segment), flow, ecn_capable };
            match self.link.send_packet(now, packet, Place { frame, segment }) {
                Ok(()) => {
                    pending += 1;
                    kept = segment + 1;
                }
                Err(error) => {
                    refused = refused.or(error.tell_mtu.map(|mtu| (segment, mtu)));
                }
            }
        }
        // Once for a frame: its sender needs to hear it once (RFC 1812, 4.3.2.8, asks for
        // moderation).
        if let Some((segment, mtu)) = refused {
            refuse(bytes, &meta, segment, mtu);
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
            let effect = Effect::from(&exit);
            if !self.run.continues_with(exit.item, effect) {
                self.flush(clock, outlet);
                self.run.frame = exit.item.frame;
                self.run.first = exit.item.segment;
                self.run.effect = effect;
            }
            self.run.due.push(exit.due);
        }
        self.flush(clock, outlet);
    }

    fn flush(&mut self, clock: &Clock, outlet: &mut impl Outlet<M>) {
        let segments = self.run.first..self.run.end();
        let Run { frame, effect, due, .. } = &mut self.run;
        if due.is_empty() {
            return;
        }
        let (bytes, meta) = self.ring.frame(*frame);
        // Before the write: it returns only after the receiving host has handled the packets.
        let now = clock.now();
        for _ in 0..=u8::from(effect.duplicated) {
            let result = outlet.emit(bytes, meta, segments.clone(), *effect);
            // A host may refuse what is damaged at once.
            if result.is_err() && effect.damage.is_none() {
                self.outside.refused += due.len() as u64;
            }
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
        Lane::new(forward, path.forward.most_held(path.rtt()))?,
        Lane::new(back, path.back.most_held(path.rtt()))?,
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

/// Bytes of ring for everything that is in a link at once: half as much again because small
/// packets are rounded up, and slack.
fn ring_size(held: Bytes) -> Option<usize> {
    let size = held.0.saturating_add(held.0 / 2).saturating_add(RING_SLACK);
    (size <= MAX_RING).then(|| usize::try_from(size).ok()).flatten()
}

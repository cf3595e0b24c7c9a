//! One direction under the real clock: the path's link, and the frames that are in it.

use core::time::Duration;
use std::io;
use std::ops::Range;

use path::{
    Change, Damage, Exit, Fate, HostGroup, Link, LinkConfig, Packet, PathConfig, PathError,
};
use units::{Bytes, Instant};

use crate::access::Access;
use crate::clock::Clock;
use crate::memory::Memory;
use crate::report::{LaneReport, LaneSample, LatenessRecord, OutsideModel};
use crate::ring::{MAX_FRAME, Ring};
use crate::room::{Demand, MAX_RING, ring_size};
use crate::trace::Tracer;

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
    /// Which host of the sending side it comes from.
    fn from(&self) -> usize {
        0
    }
    /// Which host of the receiving side it goes to.
    fn to(&self) -> usize {
        0
    }
}

/// Segment `index` as a packet.
fn packet<M: Segments>(frame: &[u8], meta: &M, index: u32) -> Packet {
    let size = meta.size(frame.len(), index);
    Packet { size, flow: meta.flow(frame), ecn_capable: meta.ecn_capable(frame) }
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
    /// Whether its sender's own link has marked it.
    marked: bool,
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
    /// The senders' own links, which lead to the path.
    approach: Access<Place>,
    link: Link<Place>,
    /// The receivers' own links, behind the path.
    exits: Access<(Place, Effect)>,
    /// The path's round-trip time when it was made.
    rtt: Duration,
    ring: Ring<M>,
    /// The largest packet the hosts send.
    mtu: Bytes,
    /// What the hosts' own links may hold.
    access_room: Bytes,
    tracer: Option<Tracer>,
    /// Where frames are read that the ring has no room for.
    spill: Box<[u8]>,
    run: Run,
    /// Until when the path was carried on.
    reached: Instant,
    lateness: LatenessRecord,
    /// How long frames waited to be taken in.
    intake: LatenessRecord,
    outside: OutsideModel,
}

impl<M: Segments> Lane<M> {
    /// What needs room for this direction of a path between such hosts.
    fn new(
        link: Link<Place>,
        from: &[HostGroup],
        to: &[HostGroup],
        (rtt, seed, mtu): (Duration, u64, Bytes),
    ) -> Result<Self, LaneError> {
        let access = |hosts| Access::<()>::most_held(hosts, rtt, link.config().rate);
        let access_room = access(from) + access(to);
        let room = ring_size(link.config(), rtt, mtu, access_room)?;
        Ok(Self {
            approach: Access::new(from, rtt, seed)?,
            exits: Access::new(to, rtt, !seed)?,
            link,
            rtt,
            ring: Ring::new(room).map_err(LaneError::Memory)?,
            mtu,
            access_room,
            tracer: None,
            spill: vec![0; MAX_FRAME].into_boxed_slice(),
            run: Run::default(),
            reached: Instant::ZERO,
            lateness: LatenessRecord::new(),
            intake: LatenessRecord::new(),
            outside: OutsideModel::default(),
        })
    }

    /// What a change of the link at `now` asks for.
    ///
    /// # Errors
    /// The change leads to an impossible link.
    pub(crate) fn demand(&mut self, now: Instant, change: &Change) -> Result<Demand, LaneError> {
        self.advance(now);
        Ok(Demand {
            link: self.link.after(change)?,
            rtt: self.rtt,
            mtu: self.mtu,
            access_room: self.access_room,
            capacity: self.ring.capacity(),
        })
    }

    /// See [`Link::moved_by`].
    pub(crate) fn moved_by(&mut self, now: Instant, change: &Change) -> bool {
        self.advance(now);
        self.link.moved_by(change)
    }

    /// Changes the link, after [`demand`](Self::demand) has seen the change, and takes the
    /// memory that it asked for.
    pub(crate) fn set(
        &mut self,
        now: Instant,
        change: &Change,
        memory: Option<Memory>,
    ) -> Result<(), LaneError> {
        if let Some(memory) = memory.filter(|memory| memory.len() > self.ring.capacity()) {
            self.ring.grow(memory);
        }
        self.advance(now);
        Ok(self.link.set(now, change)?)
    }

    /// The link as it is now.
    pub(crate) fn config(&mut self, now: Instant) -> &LinkConfig {
        self.advance(now);
        self.link.config()
    }

    /// From now on notes drops and, when asked, the queue.
    pub(crate) fn trace(&mut self, tracer: Tracer) {
        self.tracer = Some(tracer);
    }

    /// Notes how much waits.
    pub(crate) fn note_queue(&mut self, now: Instant) {
        self.advance(now);
        if let Some(tracer) = &self.tracer {
            tracer.queue(now, self.link.backlog());
        }
    }

    /// Takes in up to `most` frames, as long as `read` has any: it fills a buffer and returns the
    /// frame's length and kind. `refuse` tells the sender of a frame whose segment is larger than
    /// the link's MTU. They `arrived` then at the earliest, or now, and have `waited` at most for so
    /// long. Says whether there may be more.
    pub(crate) fn take_batch(
        &mut self,
        clock: &Clock,
        (arrived, waited): (Option<Instant>, Duration),
        most: u64,
        mut read: impl FnMut(&mut [u8]) -> io::Result<(usize, M)>,
        mut refuse: impl FnMut(&[u8], &M, u32, Bytes),
    ) -> bool {
        for taken in 0..most {
            if let Err(error) = self.take_in(clock, arrived, &mut read, &mut refuse) {
                // Anything else is a frame that came and could not be read.
                let unreadable = error.kind() != io::ErrorKind::WouldBlock;
                self.outside.refused += u64::from(unreadable);
                self.intake.add(waited, taken);
                return unreadable;
            }
        }
        self.intake.add(waited, most);
        true
    }

    fn take_in(
        &mut self,
        clock: &Clock,
        arrived: Option<Instant>,
        read: impl FnOnce(&mut [u8]) -> io::Result<(usize, M)>,
        refuse: impl FnOnce(&[u8], &M, u32, Bytes),
    ) -> io::Result<()> {
        // With links of the hosts' own, in the order of time: what has left them comes first.
        let before = arrived
            .map(|at| at.max(self.reached))
            .or_else(|| (!self.approach.is_empty()).then(|| clock.now()));
        before.inspect(|&now| self.advance(now));
        let frame = self.ring.next_number();
        let Some(space) = self.ring.space() else {
            let (len, meta) = read(&mut self.spill)?;
            self.outside.ring_full += u64::from(meta.count(len));
            return Ok(());
        };
        let (len, meta) = read(space)?;
        let now = before.unwrap_or_else(|| clock.now());
        let bytes = &space[..len];
        let (flow, ecn_capable) = (meta.flow(bytes), meta.ecn_capable(bytes));
        let (mut pending, mut kept, mut refused) = (0, 0, None);
        for segment in 0..meta.count(len) {
            let packet = Packet { size: meta.size(len, segment), flow, ecn_capable };
            let place = Place { frame, segment, marked: false };
            // Only the path tells its MTU, so what is too large for it goes there at once.
            let fits = self.link.config().mtu.is_none_or(|mtu| packet.size <= mtu);
            let own = self.approach.of(meta.from()).filter(|_| fits);
            let by_host = own.is_some();
            let sent = match own {
                Some(own) => own.send_packet(now, packet, place),
                None => self.link.send_packet(now, packet, place),
            };
            match sent {
                Ok(()) => {
                    pending += 1;
                    kept = segment + 1;
                }
                Err(_) if by_host => note_host_drop(self.tracer.as_ref(), now, packet.size),
                Err(error) => {
                    note_drop(self.tracer.as_ref(), now, Fate::Dropped(error.cause), packet.size);
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

    /// Brings to the path what has left the senders' own links by `now`.
    fn advance(&mut self, now: Instant) {
        self.reached = now;
        while let Some(exit) = self.approach.poll(now) {
            let place = Place { marked: exit.marked, ..exit.item };
            let (frame, meta) = self.ring.frame(place.frame);
            let packet = packet(frame, meta, place.segment);
            if exit.fate != Fate::Delivered {
                note_host_drop(self.tracer.as_ref(), exit.due, exit.size);
                self.ring.release(place.frame);
            } else if let Err(error) = self.link.send_packet(exit.due, packet, place) {
                let fate = Fate::Dropped(error.cause);
                note_drop(self.tracer.as_ref(), exit.due, fate, packet.size);
                self.ring.release(place.frame);
            }
        }
        self.link.advance(now);
    }

    /// Emits everything due by now, neighbours in one frame as one piece.
    pub(crate) fn emit_due(&mut self, clock: &Clock, outlet: &mut impl Outlet<M>) {
        let now = clock.now();
        self.advance(now);
        while let Some(exit) = self.link.poll(now) {
            let place = exit.item;
            if exit.fate != Fate::Delivered {
                note_drop(self.tracer.as_ref(), exit.due, exit.fate, exit.size);
                self.ring.release(place.frame);
                continue;
            }
            let mut effect = Effect::from(&exit);
            effect.marked |= place.marked;
            if self.exits.is_empty() || !self.enter_exit(place, effect, exit.due) {
                self.leave(clock, outlet, place, effect, exit.due);
            }
        }
        while let Some(exit) = self.exits.poll(now) {
            let (place, mut effect) = exit.item;
            if exit.fate != Fate::Delivered {
                note_host_drop(self.tracer.as_ref(), exit.due, exit.size);
                self.ring.release(place.frame);
                continue;
            }
            effect.marked |= exit.marked;
            self.leave(clock, outlet, place, effect, exit.due);
        }
        self.flush(clock, outlet);
    }

    /// Hands a segment to its receiver's own link, twice if there are two of it by now; false when that has none.
    fn enter_exit(&mut self, place: Place, effect: Effect, at: Instant) -> bool {
        let (frame, meta) = self.ring.frame(place.frame);
        let Some(own) = self.exits.of(meta.to()) else {
            return false;
        };
        let packet = packet(frame, meta, place.segment);
        if effect.duplicated {
            self.ring.hold(place.frame);
        }
        for _ in 0..=u8::from(effect.duplicated) {
            let single = Effect { duplicated: false, ..effect };
            if own.send_packet(at, packet, (place, single)).is_err() {
                note_host_drop(self.tracer.as_ref(), at, packet.size);
                self.ring.release(place.frame);
            }
        }
        true
    }

    fn leave(
        &mut self,
        clock: &Clock,
        outlet: &mut impl Outlet<M>,
        place: Place,
        effect: Effect,
        due: Instant,
    ) {
        if !self.run.continues_with(place, effect) {
            self.flush(clock, outlet);
            self.run.frame = place.frame;
            self.run.first = place.segment;
            self.run.effect = effect;
        }
        self.run.due.push(due);
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
            self.lateness.add(now.since(due), 1);
            self.ring.release(*frame);
        }
    }

    /// When the next segment is due, or on its way to the path.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let exits = [self.approach.next_exit(), self.link.next_exit(), self.exits.next_exit()];
        exits.into_iter().flatten().min()
    }

    /// What happened so far, apart from what was lost before it came here.
    pub(crate) fn report(&self) -> LaneReport {
        LaneReport {
            counters: *self.link.counters(),
            lateness: self.lateness.summary(),
            intake: self.intake.summary(),
            outside: self.outside,
            access_drops: self.approach.dropped() + self.exits.dropped(),
        }
    }

    /// What is so now, and was so since this was last asked.
    pub(crate) fn sample(&mut self, now: Instant) -> LaneSample {
        self.advance(now);
        let (queue, peak) = (self.link.backlog(), self.link.take_peak());
        let rate = self.link.config().rate;
        LaneSample {
            report: self.report(),
            queue,
            peak,
            queue_time: [queue, peak].map(|waiting| rate.time_for(waiting.bytes)),
            lateness: self.lateness.take_recent(),
        }
    }
}

fn note_drop(tracer: Option<&Tracer>, at: Instant, fate: Fate, size: Bytes) {
    if let (Some(tracer), Fate::Dropped(cause)) = (tracer, fate) {
        tracer.dropped(at, cause, size);
    }
}

fn note_host_drop(tracer: Option<&Tracer>, at: Instant, size: Bytes) {
    if let Some(tracer) = tracer {
        tracer.dropped_by_host(at, size);
    }
}

/// The lanes of a path, forward and back, between such hosts, which send packets of up to `mtu`.
pub(crate) fn lanes<M: Segments>(
    path: &PathConfig,
    near: &[HostGroup],
    far: &[HostGroup],
    mtu: Bytes,
) -> Result<[Lane<M>; 2], LaneError> {
    let (forward, back) = path.links()?;
    let common = (path.rtt(), path.seed, mtu);
    Ok([Lane::new(forward, near, far, common)?, Lane::new(back, far, near, common)?])
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
    /// The kernel has no memory for that.
    #[error("no memory for the packets under way: {0}; lower rate x delay or the queue")]
    Memory(io::Error),
}

#[cfg(test)]
mod tests {
    use units::Rate;

    use super::*;
    use crate::report::Lateness;

    /// A frame that is a packet.
    struct Plain;

    impl Segments for Plain {
        fn count(&self, _: usize) -> u32 {
            1
        }

        fn size(&self, len: usize, _: u32) -> Bytes {
            Bytes(len as u64)
        }

        fn prefix(&self, len: usize, _: u32) -> usize {
            len
        }

        fn flow(&self, _: &[u8]) -> u64 {
            0
        }

        fn ecn_capable(&self, _: &[u8]) -> bool {
            false
        }
    }

    /// Five frames wait, of which two at a time are read.
    #[test]
    fn frames_are_taken_in_until_none_is_left_and_have_waited() {
        let ms = Duration::from_millis;
        let path = PathConfig::new(Rate::from_bits_per_sec(1_000_000), ms(2));
        let [mut lane, _] = lanes::<Plain>(&path, &[], &[], Bytes(1500)).unwrap();
        let (clock, mut left) = (Clock::start(), 5);
        let mut take = |waited| {
            let read = |_: &mut [u8]| -> io::Result<(usize, Plain)> {
                left = u64::checked_sub(left, 1).ok_or(io::ErrorKind::WouldBlock)?;
                Ok((100, Plain))
            };
            let untold = |_: &[u8], _: &Plain, _, _| {};
            let more = lane.take_batch(&clock, (None, ms(waited)), 2, read, untold);
            (more, lane.report().intake)
        };
        assert!(take(0).0 && take(3).0);
        let (more, Lateness { packets, p50, max, .. }) = take(7);
        assert_eq!((more, packets), (false, 5));
        let near = |time: Duration, expected: f64| {
            (time.as_secs_f64() * 1e3 / expected - 1.0).abs() < 0.02
        };
        assert!(near(p50, 3.0) && near(max, 7.0), "{p50:?} {max:?}");
    }
}

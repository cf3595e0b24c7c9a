//! One direction of a path that nobody changes from outside, as in a simulation.

use core::time::Duration;
use std::collections::VecDeque;

use units::{Bytes, Instant};

use crate::link::MAX_HELD;
use crate::queue::{Queue, Verdict};
use crate::random::{Stream, stream};
use crate::transmitter::Steady;
use crate::wire::{Framing, Wire};
use crate::{Counters, Damage, DropCause, Exit, Fate, Link, LinkConfig, Packet, Refused, Tally};

/// A [`Link`] that nobody will [`set`](Link::set): what it does is the same, in a fraction of the time if
/// its rate is steady, its queue decides as packets arrive and its line keeps their order.
pub struct Unchanging<T>(Kind<T>);

#[expect(clippy::large_enum_variant, reason = "nearly all links are the large one, and are few")]
enum Kind<T> {
    Settled(Settled<T>),
    Other(Box<Other<T>>),
}

/// A link that has to be asked.
struct Other<T> {
    link: Link<T>,
    /// When it begins, from which its own time counts.
    origin: Instant,
    /// What has left it and was not taken.
    first: Option<Arrival<T>>,
}

impl<T> Other<T> {
    /// The link's own time when that of its caller is this.
    fn own_time(&self, now: Instant) -> Instant {
        Instant::ZERO + now.since(self.origin)
    }

    /// The other way round.
    fn callers_time(&self, at: Instant) -> Instant {
        self.origin + at.since(Instant::ZERO)
    }

    fn first(&mut self, now: Instant) -> Option<&Arrival<T>> {
        if self.first.is_none() {
            let exit = self.link.poll(self.own_time(now))?;
            self.first = Some(Arrival { due: self.callers_time(exit.due), ..exit.into() });
        }
        self.first.as_ref()
    }
}

/// A packet that leaves the link.
pub struct Arrival<T> {
    /// When; as in [`Exit::due`].
    pub due: Instant,
    /// Its size, without framing.
    pub size: Bytes,
    /// What was sent with it.
    pub item: T,
    /// `None` if it arrives as it was sent, like nearly all.
    pub fortune: Option<Box<Fortune>>,
}

/// What a link has done to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fortune {
    /// As in [`Exit::fate`].
    pub fate: Fate,
    /// As in [`Exit::marked`].
    pub marked: bool,
    /// As in [`Exit::damage`].
    pub damage: Option<Damage>,
    /// As in [`Exit::duplicated`].
    pub duplicated: bool,
}

impl Fortune {
    /// It arrives as it was sent.
    const USUAL: Self =
        Self { fate: Fate::Delivered, marked: false, damage: None, duplicated: false };
}

impl<T> From<Exit<T>> for Arrival<T> {
    fn from(exit: Exit<T>) -> Self {
        let fortune = exit.fortune();
        let Exit { due, size, item, .. } = exit;
        Self { due, size, item, fortune: (fortune != Fortune::USUAL).then(|| Box::new(fortune)) }
    }
}

impl<T> Unchanging<T> {
    pub(crate) fn new(config: &LinkConfig, rtt: Duration, seed: u64, origin: Instant) -> Self {
        let settled = Settled::new(config, rtt, seed, origin).map(Kind::Settled);
        Self(settled.unwrap_or_else(|| {
            let link = Link::new(config, rtt, seed);
            Kind::Other(Box::new(Other { link, origin, first: None }))
        }))
    }

    /// As [`Link::send_packet`]; and what [`Self::next_exit`] is now, `None` if that is no sooner than it was. What is sent
    /// with the packet is made where it stays until the packet leaves, and of the packet what is looked at.
    ///
    /// # Errors
    /// The queue did not take it, or it is larger than the MTU.
    #[inline(always)]
    pub fn send_packet(
        &mut self,
        now: Instant,
        packet: impl FnOnce() -> Packet,
        item: impl FnOnce() -> T,
    ) -> Result<Option<Instant>, Refused<T>> {
        match &mut self.0 {
            Kind::Settled(link) => link.send_packet(now, packet(), item),
            Kind::Other(other) => {
                other.link.send_packet(other.own_time(now), packet(), item())?;
                Ok(Some(self.next_exit()))
            }
        }
    }

    /// The next packet whose way has ended at or before `now`, in the order of `due`. It stays where it is until
    /// [`Self::pop`] or [`Self::step`]: to move it costs more than all else that is done with it.
    #[inline(always)]
    pub fn first(&mut self, now: Instant) -> Option<&Arrival<T>> {
        match &mut self.0 {
            Kind::Settled(link) if link.next_exit <= now => link.line.front(),
            Kind::Settled(_) => None,
            Kind::Other(other) => other.first(now),
        }
    }

    /// Takes what [`Self::first`] returned last, and is to be called for nothing else. [`MAX_HELD`] then does not count it.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Arrival<T>> {
        match &mut self.0 {
            Kind::Settled(link) => link.pop(),
            Kind::Other(other) => other.first.take(),
        }
    }

    /// Takes what [`Self::first`] returned last, and returns what comes behind it, be it due or not. A link that has to be
    /// asked does not tell here: [`Self::first`] does.
    #[inline(always)]
    pub fn step(&mut self) -> Option<&Arrival<T>> {
        match &mut self.0 {
            Kind::Settled(link) => {
                // As in `pop`, but that nothing is moved out.
                let Arrival { size, fortune, .. } = link.line.pop_front()?;
                if let Some(fortune) = fortune {
                    link.counters.end(size, &fortune);
                }
                link.look_at_first()
            }
            Kind::Other(other) => {
                other.first = None;
                None
            }
        }
    }

    /// As [`Link::next_exit`]; the far future when the link is empty.
    #[inline(always)]
    pub fn next_exit(&self) -> Instant {
        match &self.0 {
            Kind::Settled(link) => link.next_exit,
            Kind::Other(other) => match &other.first {
                Some(first) => first.due,
                None => other.callers_time(other.link.next_exit().unwrap_or(Instant::FAR_FUTURE)),
            },
        }
    }

    /// The least time from when a packet is sent to when it leaves. Who has sent all that is sent before a time may
    /// take what leaves up to so long after it, and go on to send from that time on. `None` if nothing may be taken ahead
    /// of what is sent.
    pub fn lookahead(&self) -> Option<Duration> {
        match &self.0 {
            Kind::Settled(link) => Some(link.config.delay),
            Kind::Other(..) => None,
        }
    }

    /// As [`Link::advance`].
    pub fn advance(&mut self, now: Instant) {
        match &mut self.0 {
            Kind::Settled(link) => link.advance(now),
            Kind::Other(other) => other.link.advance(other.own_time(now)),
        }
    }

    /// As [`Link::backlog`], at the last call of [`Self::send_packet`] or [`Self::advance`].
    pub fn backlog(&self) -> Tally {
        match &self.0 {
            Kind::Settled(link) => link.waiting(),
            Kind::Other(other) => other.link.backlog(),
        }
    }

    /// As [`Link::counters`], of which what is on the line waits for [`Self::advance`] too. It goes through all that is under
    /// way.
    pub fn counters(&self) -> Counters {
        match &self.0 {
            Kind::Settled(link) => link.counters(),
            Kind::Other(other) => *other.link.counters(),
        }
    }

    /// As [`Link::config`].
    pub fn config(&self) -> &LinkConfig {
        match &self.0 {
            Kind::Settled(link) => &link.config,
            Kind::Other(other) => other.link.config(),
        }
    }
}

/// A link of which all is settled when a packet is sent: whether it is taken, when it begins to leave and
/// when it arrives. So it is put on the line at once, and not handled again when its turn comes.
struct Settled<T> {
    config: LinkConfig,
    framing: Framing,
    /// Holds nothing: it decides, and what waits is on the line.
    queue: Queue<T>,
    transmitter: Steady,
    wire: Wire,
    /// How long a line takes that does nothing else to packets, in nanoseconds.
    plain: Option<u64>,
    /// In the order in which they were sent, begin to leave and arrive.
    line: VecDeque<Arrival<T>>,
    /// When the first of them leaves; the far future when there is none.
    next_exit: Instant,
    /// Those whose turn had not come when something was sent last, or at [`Self::advance`]: when it comes, and their sizes.
    starts: VecDeque<(Instant, Bytes)>,
    /// When it comes for the first of them; the far future when there is none.
    next_start: Instant,
    /// The sizes together.
    waiting_bytes: Bytes,
    /// Its `line` has the bytes of what waits too, and its `delivered` means nothing: [`Self::counters`], which is seldom asked,
    /// works both out.
    counters: Counters,
}

impl<T> Settled<T> {
    /// `None` if such a link cannot be told ahead.
    fn new(config: &LinkConfig, rtt: Duration, seed: u64, origin: Instant) -> Option<Self> {
        let queue = Queue::new(&config.queue, config.rate, rtt, stream(seed, Stream::Queue));
        let steady = config.trace.is_none() && config.schedule.steps().is_empty();
        let wire = Wire::new(config, seed);
        let settled = steady && queue.decides_on_arrival() && config.keeps_order();
        settled.then(|| Self {
            framing: Framing::of(config),
            queue,
            transmitter: Steady::new(config.rate, origin),
            plain: wire.is_plain().then(|| (Instant::ZERO + config.delay).as_nanos()),
            wire,
            line: VecDeque::new(),
            next_exit: Instant::FAR_FUTURE,
            starts: VecDeque::new(),
            next_start: Instant::FAR_FUTURE,
            waiting_bytes: Bytes::ZERO,
            counters: Counters::default(),
            config: config.clone(),
        })
    }

    #[inline(always)]
    fn send_packet(
        &mut self,
        now: Instant,
        packet: Packet,
        item: impl FnOnce() -> T,
    ) -> Result<Option<Instant>, Refused<T>> {
        self.advance(now);
        self.counters.offered += packet.size;
        match self.admit(now, packet) {
            Ok(verdict) => {
                let first = self.line.is_empty();
                let due = self.put_on_line(now, packet.size, verdict == Verdict::Mark, item);
                if !first {
                    return Ok(None);
                }
                self.next_exit = due;
                Ok(Some(due))
            }
            Err(cause) => {
                self.counters.drop_one(cause, packet.size);
                Err(Refused::new(&self.config, cause, item()))
            }
        }
    }

    /// What waits, as it was when something was sent last, or at [`Self::advance`].
    #[inline(always)]
    fn waiting(&self) -> Tally {
        Tally { packets: self.starts.len() as u64, bytes: self.waiting_bytes }
    }

    #[inline(always)]
    fn admit(&mut self, now: Instant, packet: Packet) -> Result<Verdict, DropCause> {
        if self.config.mtu.is_some_and(|mtu| packet.size > mtu) {
            return Err(DropCause::TooBig);
        }
        if self.line.len() >= MAX_HELD {
            return Err(DropCause::Overflow);
        }
        let free_at = self.transmitter.free_at();
        self.queue.admit(now, packet, self.waiting(), free_at <= now, free_at)
    }

    #[inline(always)]
    fn put_on_line(
        &mut self,
        now: Instant,
        size: Bytes,
        marked: bool,
        item: impl FnOnce() -> T,
    ) -> Instant {
        let start = self.transmitter.free_at().max(now);
        let line_size = self.framing.line_size(size);
        let sent = self.transmitter.send(start, line_size);
        if start > now {
            self.next_start = self.next_start.min(start);
            self.starts.push_back((start, size));
            self.waiting_bytes += size;
        }
        self.counters.line += line_size;
        let (due, fortune) = match self.plain {
            Some(delay) if !marked => {
                (Instant::from_nanos(sent.as_nanos().saturating_add(delay)), None)
            }
            _ => self.meet(sent, size, marked),
        };
        push_back(&mut self.line, || Arrival { due, size, item: item(), fortune });
        due
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<Arrival<T>> {
        let arrival = self.line.pop_front()?;
        if let Some(fortune) = &arrival.fortune {
            self.counters.end(arrival.size, fortune);
        }
        self.look_at_first();
        Some(arrival)
    }

    /// Another packet is the first, or none is: notes when it leaves.
    #[inline(always)]
    fn look_at_first(&mut self) -> Option<&Arrival<T>> {
        let first = self.line.front();
        self.next_exit = first.map_or(Instant::FAR_FUTURE, |first| first.due);
        first
    }

    fn counters(&self) -> Counters {
        let mut counters = self.counters;
        for (_, size) in &self.starts {
            counters.line -= self.framing.line_size(*size);
        }
        counters.delivered = counters.offered;
        let held = self.line.iter().map(|arrival| Tally { packets: 1, bytes: arrival.size });
        let dropped = DropCause::ALL.map(|cause| counters.dropped(cause));
        for gone in held.chain(dropped) {
            counters.delivered.packets -= gone.packets;
            counters.delivered.bytes -= gone.bytes;
        }
        counters
    }

    /// When a packet arrives that was `sent`, and what it meets on the way.
    #[inline(never)]
    fn meet(
        &mut self,
        sent: Instant,
        size: Bytes,
        marked: bool,
    ) -> (Instant, Option<Box<Fortune>>) {
        let passage = self.wire.pass(&self.config, sent, size);
        let Arrival { due, fortune, .. } = Exit::of(passage, size, marked, ()).into();
        (due, fortune)
    }

    #[inline(always)]
    fn advance(&mut self, now: Instant) {
        while self.next_start <= now
            && let Some((_, size)) = self.starts.pop_front()
        {
            self.waiting_bytes -= size;
            self.next_start = self.starts.front().map_or(Instant::FAR_FUTURE, |first| first.0);
        }
    }
}

/// Pushes what is made where it stays: were there no room for it, it would be made elsewhere, and copied.
#[inline(always)]
fn push_back<T>(queue: &mut VecDeque<T>, element: impl FnOnce() -> T) {
    if queue.len() == queue.capacity() {
        return push_and_grow(queue, element());
    }
    queue.push_back(element());
}

#[cold]
#[inline(never)]
fn push_and_grow<T>(queue: &mut VecDeque<T>, element: T) {
    queue.push_back(element);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::link::tests::{Sending, sendings};
    use crate::{Jitter, PathConfig};

    #[test]
    fn what_keeps_order_is_settled() {
        let rate = units::Rate::from_bits_per_sec(1_000_000);
        let mut config = PathConfig::new(rate, Duration::from_millis(4)).with_loss(0.1);
        config.forward.impairments.jitter = Jitter::Uniform(Duration::from_millis(1));
        for (keep_order, settled) in [(true, true), (false, false)] {
            config.forward.impairments.keep_order = keep_order;
            let link = config.unchanging_links::<u32>(Instant::ZERO).expect("a path").0;
            assert_eq!(matches!(link.0, Kind::Settled(_)), settled);
        }
    }

    proptest! {
        /// Whoever asks cannot tell it from a link that could be changed.
        #[test]
        fn it_does_what_a_link_does(
            sending in sendings(),
            (lazy, ahead) in prop::sample::select(vec![(false, false), (true, false), (true, true)]),
            steps in any::<bool>(),
        ) {
            let Sending { config, packets } = sending;
            let origin = Instant::from_nanos(1_000_000_007);
            let late = |at: Instant| origin + at.since(Instant::ZERO);
            let exit = |arrival: &Arrival<usize>| {
                let Arrival { due, size, item, ref fortune } = *arrival;
                let Fortune { fate, marked, damage, duplicated } =
                    fortune.as_deref().copied().unwrap_or(Fortune::USUAL);
                let due = Instant::ZERO + due.since(origin);
                Exit { due, size, item, fate, marked, damage, duplicated }
            };
            let mut behind = None;
            let mut pop = |link: &mut Unchanging<usize>, now| {
                let first = exit(link.first(now)?);
                assert!(behind.take().is_none_or(|told| told == first));
                if steps {
                    behind = link.step().map(exit);
                } else {
                    link.pop();
                }
                Some(first)
            };
            let mut link = config.links().expect("a path").0;
            let mut other = config.unchanging_links(origin).expect("a path").0;
            let mut exits = [Vec::new(), Vec::new()];
            for (i, &(now, packet)) in packets.iter().enumerate() {
                let (sent, before) = (link.send_packet(now, packet, i), other.next_exit());
                let told = other.send_packet(late(now), || packet, || i);
                let next = other.next_exit();
                prop_assert!(next >= before || told.as_ref().map_or(true, |told| *told == Some(next)));
                prop_assert_eq!(sent, told.map(drop));
                prop_assert_eq!(link.backlog(), other.backlog());
                prop_assert_eq!(link.counters().line, other.counters().line);
                if let Some(lookahead) = other.lookahead().filter(|_| ahead) {
                    let ahead = late(now) + lookahead;
                    exits[1].extend(core::iter::from_fn(|| pop(&mut other, ahead)));
                }
                if !lazy {
                    exits[0].extend(core::iter::from_fn(|| link.poll(now)));
                    exits[1].extend(core::iter::from_fn(|| pop(&mut other, late(now))));
                    prop_assert_eq!(*link.counters(), other.counters());
                }
            }
            while let Some(next) = link.next_exit().filter(|_| !lazy) {
                let told = other.next_exit();
                exits[0].extend(core::iter::from_fn(|| link.poll(next)));
                let before = exits[1].len();
                exits[1].extend(core::iter::from_fn(|| pop(&mut other, late(next))));
                if let (Kind::Settled(_), Some(exit)) = (&other.0, exits[1].get(before)) {
                    prop_assert_eq!(told, late(exit.due));
                }
                other.advance(late(next));
                prop_assert_eq!(link.backlog(), other.backlog());
            }
            exits[0].extend(core::iter::from_fn(|| link.poll(Instant::FAR_FUTURE)));
            exits[1].extend(core::iter::from_fn(|| pop(&mut other, Instant::FAR_FUTURE)));
            other.advance(Instant::FAR_FUTURE);
            prop_assert_eq!(other.backlog(), Tally::default());
            prop_assert_eq!(other.next_exit(), Instant::FAR_FUTURE);
            prop_assert_eq!(*link.counters(), other.counters());
            let [one, two] = exits;
            prop_assert_eq!(one, two);
        }
    }
}

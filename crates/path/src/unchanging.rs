//! One direction of a path that nobody changes from outside, as in a simulation.

use core::time::Duration;
use std::collections::VecDeque;

use units::{Bytes, Instant};

use crate::link::MAX_HELD;
use crate::queue::{Queue, Verdict};
use crate::random::{Stream, stream};
use crate::transmitter::Steady;
use crate::wire::{Framing, Passage, Wire};
use crate::{Counters, Damage, DropCause, Exit, Fate, Link, LinkConfig, Packet, Refused, Tally};

/// A [`Link`] that nobody will [`set`](Link::set): what it does is the same, in a fraction of the time if
/// its rate is steady, its queue decides as packets arrive and its line keeps their order.
pub struct Unchanging<T>(Kind<T>);

#[expect(clippy::large_enum_variant, reason = "nearly all links are the large one, and are few")]
enum Kind<T> {
    Settled(Settled<T>),
    Other(Box<Link<T>>),
}

impl<T> Unchanging<T> {
    pub(crate) fn new(config: &LinkConfig, rtt: Duration, seed: u64) -> Self {
        let settled = Settled::new(config, rtt, seed).map(Kind::Settled);
        Self(settled.unwrap_or_else(|| Kind::Other(Box::new(Link::new(config, rtt, seed)))))
    }

    /// As [`Link::send_packet`].
    ///
    /// # Errors
    /// The queue did not take it, or it is larger than the MTU.
    #[inline(always)]
    pub fn send_packet(&mut self, now: Instant, packet: Packet, item: T) -> Result<(), Refused<T>> {
        match &mut self.0 {
            Kind::Settled(link) => link.send_packet(now, packet, item),
            Kind::Other(link) => link.send_packet(now, packet, item),
        }
    }

    /// As [`Link::poll`], which may be ahead of what is sent by the [lookahead](Self::lookahead). [`MAX_HELD`] then does not
    /// count what was polled.
    #[inline(always)]
    pub fn poll(&mut self, now: Instant) -> Option<Exit<T>> {
        match &mut self.0 {
            Kind::Settled(link) => link.poll(now),
            Kind::Other(link) => link.poll(now),
        }
    }

    /// As [`Link::next_exit`].
    #[inline(always)]
    pub fn next_exit(&self) -> Option<Instant> {
        match &self.0 {
            Kind::Settled(link) => {
                link.line.front().map(|first| first.due).filter(|due| *due < Instant::FAR_FUTURE)
            }
            Kind::Other(link) => link.next_exit(),
        }
    }

    /// The least time from when a packet is sent to when it leaves. Who has sent all that is sent before a time may
    /// [`poll`](Self::poll) up to so long after it, and go on to send from that time on. `None` if a poll must not be
    /// ahead of what is sent.
    pub fn lookahead(&self) -> Option<Duration> {
        match &self.0 {
            Kind::Settled(link) => Some(link.config.delay),
            Kind::Other(_) => None,
        }
    }

    /// As [`Link::advance`].
    pub fn advance(&mut self, now: Instant) {
        match &mut self.0 {
            Kind::Settled(link) => link.advance(now),
            Kind::Other(link) => link.advance(now),
        }
    }

    /// As [`Link::backlog`], at the last call of [`Self::send_packet`] or [`Self::advance`]: a poll takes out of it only
    /// what began to leave before the packet that it returns.
    pub fn backlog(&self) -> Tally {
        match &self.0 {
            Kind::Settled(link) => link.waiting,
            Kind::Other(link) => link.backlog(),
        }
    }

    /// As [`Link::counters`], of which what is on the line waits for [`Self::advance`] too.
    pub fn counters(&self) -> &Counters {
        match &self.0 {
            Kind::Settled(link) => &link.counters,
            Kind::Other(link) => link.counters(),
        }
    }

    /// As [`Link::config`].
    pub fn config(&self) -> &LinkConfig {
        match &self.0 {
            Kind::Settled(link) => &link.config,
            Kind::Other(link) => link.config(),
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
    /// In the order in which they were sent, begin to leave and arrive.
    line: VecDeque<Passing<T>>,
    /// Those at the end of the line whose turn had not come at the last call.
    waiting: Tally,
    /// When it comes for the first of them; the far future when there is none.
    next_start: Instant,
    counters: Counters,
}

/// A packet that will begin to leave, or has begun.
struct Passing<T> {
    start: Instant,
    due: Instant,
    size: Bytes,
    item: T,
    /// `None` if it arrives as it was sent, like nearly all.
    fortune: Option<Box<Fortune>>,
}

/// What else a link may do to a packet.
struct Fortune {
    fate: Fate,
    marked: bool,
    damage: Option<Damage>,
    duplicated: bool,
}

impl<T> Passing<T> {
    #[inline(always)]
    fn new(start: Instant, size: Bytes, marked: bool, passage: Passage, item: T) -> Self {
        let marked = marked && passage.is_delivered();
        let Passage { due, fate, damage, duplicated } = passage;
        let usual = fate == Fate::Delivered && !marked && damage.is_none() && !duplicated;
        let fortune = (!usual).then(|| Box::new(Fortune { fate, marked, damage, duplicated }));
        Self { start, due, size, item, fortune }
    }

    #[inline(always)]
    fn exit(self) -> Exit<T> {
        let Self { due, size, item, fortune, .. } = self;
        match fortune {
            None => Exit::new(due, size, item, Fate::Delivered),
            Some(fortune) => {
                let Fortune { fate, marked, damage, duplicated } = *fortune;
                Exit { due, size, item, fate, marked, damage, duplicated }
            }
        }
    }
}

impl<T> Settled<T> {
    /// `None` if such a link cannot be told ahead.
    fn new(config: &LinkConfig, rtt: Duration, seed: u64) -> Option<Self> {
        let queue = Queue::new(&config.queue, config.rate, rtt, stream(seed, Stream::Queue));
        let steady = config.trace.is_none() && config.schedule.steps().is_empty();
        let wire = Wire::new(config, seed);
        let settled = steady && queue.decides_on_arrival() && config.keeps_order();
        settled.then(|| Self {
            framing: Framing::of(config),
            queue,
            transmitter: Steady::new(config.rate, Instant::ZERO),
            wire,
            line: VecDeque::new(),
            waiting: Tally::default(),
            next_start: Instant::FAR_FUTURE,
            counters: Counters::default(),
            config: config.clone(),
        })
    }

    #[inline(always)]
    fn send_packet(&mut self, now: Instant, packet: Packet, item: T) -> Result<(), Refused<T>> {
        self.advance(now);
        self.counters.offered += packet.size;
        match self.admit(now, packet) {
            Ok(verdict) => {
                self.put_on_line(now, packet.size, verdict == Verdict::Mark, item);
                Ok(())
            }
            Err(cause) => {
                self.counters.drop_one(cause, packet.size);
                Err(Refused::new(&self.config, cause, item))
            }
        }
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
        let idle = (free_at <= now).then(|| now.since(free_at));
        self.queue.admit(packet.size, packet.ecn_capable, self.waiting, idle.is_some(), idle)
    }

    #[inline(always)]
    fn put_on_line(&mut self, now: Instant, size: Bytes, marked: bool, item: T) {
        let start = self.transmitter.free_at().max(now);
        let line_size = self.framing.line_size(size);
        let sent = self.transmitter.send(start, line_size);
        if start > now {
            self.next_start = self.next_start.min(start);
            self.waiting += size;
        } else {
            self.counters.line += line_size;
        }
        let passage = self.wire.pass(&self.config, sent, size);
        self.line.push_back(Passing::new(start, size, marked, passage, item));
    }

    #[inline(always)]
    fn poll(&mut self, now: Instant) -> Option<Exit<T>> {
        let Passing { start, due, .. } = *self.line.front()?;
        if due > now {
            return None;
        }
        // And no further: others may yet be sent at a time before.
        self.advance(start);
        let exit = self.line.pop_front()?.exit();
        match exit.fate {
            Fate::Delivered => self.counters.deliver(&exit),
            Fate::Dropped(cause) => self.counters.drop_one(cause, exit.size),
        }
        Some(exit)
    }

    #[inline(always)]
    fn advance(&mut self, now: Instant) {
        while self.waiting.packets > 0 && self.next_start <= now {
            self.begin_next();
        }
    }

    /// The turn of the first that waits has come.
    fn begin_next(&mut self) {
        let begun = self.line.len() - self.waiting.packets as usize;
        let size = self.line[begun].size;
        self.waiting.packets -= 1;
        self.waiting.bytes -= size;
        self.counters.line += self.framing.line_size(size);
        self.next_start =
            self.line.get(begun + 1).map_or(Instant::FAR_FUTURE, |packet| packet.start);
    }
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
            let link = config.unchanging_links::<u32>().expect("a path").0;
            assert_eq!(matches!(link.0, Kind::Settled(_)), settled);
        }
    }

    proptest! {
        /// Whoever asks cannot tell it from a link that could be changed.
        #[test]
        fn it_does_what_a_link_does(
            sending in sendings(),
            (lazy, ahead) in prop::sample::select(vec![(false, false), (true, false), (true, true)]),
        ) {
            let Sending { config, packets } = sending;
            let mut link = config.links().expect("a path").0;
            let mut other = config.unchanging_links().expect("a path").0;
            let mut exits = [Vec::new(), Vec::new()];
            for (i, &(now, packet)) in packets.iter().enumerate() {
                let sent = link.send_packet(now, packet, i);
                prop_assert_eq!(sent, other.send_packet(now, packet, i));
                prop_assert_eq!(link.backlog(), other.backlog());
                prop_assert_eq!(link.counters().line, other.counters().line);
                if let Some(lookahead) = other.lookahead().filter(|_| ahead) {
                    exits[1].extend(core::iter::from_fn(|| other.poll(now + lookahead)));
                }
                if !lazy {
                    exits[0].extend(core::iter::from_fn(|| link.poll(now)));
                    exits[1].extend(core::iter::from_fn(|| other.poll(now)));
                    prop_assert_eq!(link.counters(), other.counters());
                }
            }
            while let Some(next) = link.next_exit().filter(|_| !lazy) {
                let told = other.next_exit();
                exits[0].extend(core::iter::from_fn(|| link.poll(next)));
                let before = exits[1].len();
                exits[1].extend(core::iter::from_fn(|| other.poll(next)));
                if let (Kind::Settled(_), Some(exit)) = (&other.0, exits[1].get(before)) {
                    prop_assert_eq!(told, Some(exit.due));
                }
                other.advance(next);
                prop_assert_eq!(link.backlog(), other.backlog());
            }
            exits[0].extend(core::iter::from_fn(|| link.poll(Instant::FAR_FUTURE)));
            exits[1].extend(core::iter::from_fn(|| other.poll(Instant::FAR_FUTURE)));
            other.advance(Instant::FAR_FUTURE);
            prop_assert_eq!(other.backlog(), Tally::default());
            prop_assert_eq!(other.next_exit(), None);
            prop_assert_eq!(link.counters(), other.counters());
            let [one, two] = exits;
            prop_assert_eq!(one, two);
        }
    }
}

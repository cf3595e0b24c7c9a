//! One direction of a path.

use core::time::Duration;
use units::{Bytes, Instant};

use crate::change::{Agenda, Change};
use crate::line::Line;
use crate::queue::{Departure, Queue, Verdict, Waiting};
use crate::random::{Stream, stream};
use crate::transmitter::Transmitter;
use crate::wire::{Passage, Wire};
use crate::{Counters, DropCause, Fortune, LinkConfig, PathError, Tally};

/// The most packets one link holds, queued and under way: 400 Gbit/s for half a second.
pub const MAX_HELD: usize = 1 << 24;

/// A packet as the path sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its size, without framing of the link.
    pub size: Bytes,
    /// The flow it belongs to, told apart by `fq-codel` alone: any number that the packets of a
    /// flow share, such as a hash of addresses and ports.
    pub flow: u64,
    /// Whether it can carry a mark of congestion (ECT in RFC 3168).
    pub ecn_capable: bool,
}

impl Packet {
    /// A packet of flow 0 that cannot be marked.
    pub fn new(size: Bytes) -> Self {
        Self { size, flow: 0, ecn_capable: false }
    }
}

/// How a packet's way ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// Reached the other end.
    Delivered,
    /// Did not, for this reason.
    Dropped(DropCause),
}

/// Damage that no checksum of the line has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The bit of the packet, counted from its first, that is wrong.
    pub bit: u64,
}

/// A packet that leaves the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit<T> {
    /// When the model says it leaves; at or before the `now` of the poll.
    pub due: Instant,
    /// Its size, without framing.
    pub size: Bytes,
    /// What was sent with it.
    pub item: T,
    /// How it went.
    pub fate: Fate,
    /// Whether it carries the mark of congestion now: the caller sets CE in its IP header. Only
    /// packets that came in as `ecn_capable` are marked.
    pub marked: bool,
    /// What to damage before it is handed on.
    pub damage: Option<Damage>,
    /// Whether it arrives twice: the caller hands it on two times.
    pub duplicated: bool,
}

impl<T> Exit<T> {
    /// A packet that arrives, or not, as it was sent.
    pub(crate) fn new(due: Instant, size: Bytes, item: T, fate: Fate) -> Self {
        Self { due, size, item, fate, marked: false, damage: None, duplicated: false }
    }

    /// What happened to it.
    pub(crate) fn fortune(&self) -> Fortune {
        let Self { fate, marked, damage, duplicated, .. } = *self;
        Fortune { fate, marked, damage, duplicated }
    }

    /// A packet whose way over the wire is known; `marked` before it.
    pub(crate) fn of(passage: Passage, size: Bytes, marked: bool, item: T) -> Self {
        let marked = marked && passage.is_delivered();
        let Passage { due, fate, damage, duplicated } = passage;
        Self { due, size, item, fate, marked, damage, duplicated }
    }
}

/// A packet the link did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<T> {
    /// Why.
    pub cause: DropCause,
    /// What was sent with it.
    pub item: T,
    /// The MTU to tell its sender of, when the packet was too big for the link and the link says
    /// so (ICMP "fragmentation needed", RFC 1191; "packet too big", RFC 4443).
    pub tell_mtu: Option<Bytes>,
}

impl<T> Refused<T> {
    /// By a link of this configuration.
    pub(crate) fn new(config: &LinkConfig, cause: DropCause, item: T) -> Self {
        let told = cause == DropCause::TooBig && config.icmp;
        Self { cause, item, tell_mtu: config.mtu.filter(|_| told) }
    }
}

/// One direction of a path, carrying packets marked with a `T` of the caller's choice.
///
/// [`send`](Self::send), then [`poll`](Self::poll) until it returns nothing, then come back at
/// [`next_exit`](Self::next_exit). Time must not run backwards between calls.
pub struct Link<T> {
    config: LinkConfig,
    /// The path's at the start, when this link's part of it was `first_delay`.
    rtt: Duration,
    first_delay: Duration,
    seed: u64,
    agenda: Agenda,
    queue: Queue<T>,
    transmitter: Transmitter,
    /// When the transmitter became, or becomes, free.
    free_at: Instant,
    /// Nothing is put on the line before this.
    held_until: Instant,
    /// What is put on the line before this is lost.
    dark_until: Instant,
    /// When what waits begins to leave; the far future when nothing does.
    next_start: Instant,
    wire: Wire,
    line: Line<T>,
    counters: Counters,
    /// The most packets and bytes that waited since the last look.
    peak: Tally,
}

impl<T> Link<T> {
    pub(crate) fn new(config: &LinkConfig, rtt: Duration, seed: u64) -> Self {
        let rng = stream(seed, Stream::Queue);
        Self {
            agenda: Agenda::new(config.schedule.clone()),
            queue: Queue::new(&config.queue, config.rate, rtt, rng),
            transmitter: Transmitter::new(config.rate, config.trace.as_ref()),
            free_at: Instant::ZERO,
            held_until: Instant::ZERO,
            dark_until: Instant::ZERO,
            next_start: Instant::FAR_FUTURE,
            wire: Wire::new(config, seed),
            line: Line::new(),
            counters: Counters::default(),
            peak: Tally::default(),
            config: config.clone(),
            rtt,
            first_delay: config.delay,
            seed,
        }
    }

    /// Sends a packet of `size` bytes into the link at `now`.
    ///
    /// # Errors
    /// The queue had no room for it.
    pub fn send(&mut self, now: Instant, size: Bytes, item: T) -> Result<(), Refused<T>> {
        self.send_packet(now, Packet::new(size), item)
    }

    /// As [`send`](Self::send), of a packet that belongs to a flow or can be marked.
    ///
    /// # Errors
    /// The queue did not take it, or it is larger than the MTU.
    pub fn send_packet(&mut self, now: Instant, packet: Packet, item: T) -> Result<(), Refused<T>> {
        self.advance(now);
        self.counters.offered += packet.size;
        match self.admit(now, packet) {
            Ok(verdict) => {
                let Packet { size, flow, ecn_capable } = packet;
                let marked = verdict == Verdict::Mark;
                self.wait(Waiting { size, arrived: now, flow, ecn_capable, marked, item });
            }
            Err(cause) => {
                self.counters.drop_one(cause, packet.size);
                return Err(Refused::new(&self.config, cause, item));
            }
        }
        while let Some(victim) = self.queue.trim() {
            self.drop_waiting(now, victim, DropCause::Queue);
        }
        let Tally { packets, bytes } = self.backlog();
        self.peak =
            Tally { packets: self.peak.packets.max(packets), bytes: self.peak.bytes.max(bytes) };
        Ok(())
    }

    fn wait(&mut self, packet: Waiting<T>) {
        let (now, others) = (packet.arrived, self.queue.len());
        self.queue.push(packet);
        // Behind others it changes nothing of when the first of them leaves.
        if others == 0 {
            self.work_off(now);
        }
    }

    fn admit(&mut self, now: Instant, packet: Packet) -> Result<Verdict, DropCause> {
        if self.config.mtu.is_some_and(|mtu| packet.size > mtu) {
            return Err(DropCause::TooBig);
        }
        if self.held() >= MAX_HELD {
            return Err(DropCause::Overflow);
        }
        let backlog = self.backlog();
        let empty = backlog.packets == 0 && self.held_until <= now;
        let free = empty && self.transmitter.ready(now) <= now;
        // A recorded link rests until its next opportunity, and is hardly ever free at a time between.
        let idle_since = if empty { self.free_at } else { Instant::FAR_FUTURE };
        self.queue.admit(now, packet, backlog, free, idle_since)
    }

    /// The next packet whose way has ended at or before `now`, in the order of `due`.
    pub fn poll(&mut self, now: Instant) -> Option<Exit<T>> {
        self.advance(now);
        let exit = self.line.pop_due(now)?;
        self.counters.end(exit.size, &exit.fortune());
        Some(exit)
    }

    /// When to poll next: no packet arrives before, and as long as the delay stays the same one
    /// ends its way then. Otherwise a poll may find nothing. `None` when the link is empty.
    pub fn next_exit(&self) -> Option<Instant> {
        // What waits may overtake what is under way, once the delay varies.
        let waiting = match self.queue.len() {
            0 => Instant::FAR_FUTURE,
            _ => (self.next_start + self.config.delay).min(self.agenda.next_at()),
        };
        let next = self.line.next_due().unwrap_or(Instant::FAR_FUTURE).min(waiting);
        (next < Instant::FAR_FUTURE).then_some(next)
    }

    /// Changes parameters from `now` on; what is under way arrives as it was to. Changes on the
    /// schedule come on top when their time comes.
    ///
    /// # Errors
    /// The change leads to an impossible link; nothing was changed.
    pub fn set(&mut self, now: Instant, change: &Change) -> Result<(), PathError> {
        self.advance(now);
        self.after(change)?;
        self.change(now, change);
        self.work_off(now);
        Ok(())
    }

    /// What a change would make of the link.
    ///
    /// # Errors
    /// An impossible link.
    pub fn after(&self, change: &Change) -> Result<LinkConfig, PathError> {
        self.config.after(change, self.first_delay, self.rtt)
    }

    /// Whether a change leaves it with another delay than at the start, so that the path's
    /// round-trip time is not the one that thresholds come from.
    pub fn moved_by(&self, change: &Change) -> bool {
        change.delay.unwrap_or(self.config.delay) != self.first_delay
    }

    /// The link as it is now, after all changes up to the last call.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets inside: waiting, on the transmitter and on the line.
    pub fn held(&self) -> usize {
        self.queue.len() + self.line.len()
    }

    /// Bytes waiting in the queue at the last call.
    pub fn queued(&self) -> Bytes {
        self.backlog().bytes
    }

    /// What waits in the queue at the last call; [`advance`](Self::advance) makes that now.
    pub fn backlog(&self) -> Tally {
        Tally { packets: self.queue.len() as u64, bytes: self.queue.bytes() }
    }

    /// The most packets, and the most bytes, that waited at once since this was last asked.
    pub fn take_peak(&mut self) -> Tally {
        let now = self.backlog();
        core::mem::replace(&mut self.peak, now)
    }

    /// Packets that memory is set aside for. It grows to the most the link ever held and no
    /// further: no packet costs an allocation of its own.
    pub fn capacity(&self) -> usize {
        self.queue.capacity() + self.line.capacity()
    }

    /// Makes every change and puts on the line every packet whose turn comes by `now`, each at
    /// its own exact time, so that the result does not depend on when this is called.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        if self.next_start.min(self.agenda.next_at()) <= now {
            self.work_off(now);
        }
    }

    fn work_off(&mut self, now: Instant) {
        loop {
            self.next_start = if self.queue.len() == 0 {
                Instant::FAR_FUTURE
            } else {
                self.transmitter.ready(self.queue.last_arrival().max(self.held_until))
            };
            let until = self.next_start.min(now);
            if self.agenda.next_at() <= until
                && let Some((at, change)) = self.agenda.due(until)
            {
                self.change(at, &change);
                continue;
            }
            if self.queue.len() == 0 || self.next_start > now {
                return;
            }
            match self.queue.take(self.next_start) {
                Some(Departure::Send(packet)) => self.put_on_line(self.next_start, packet),
                Some(Departure::Drop(packet)) => {
                    self.drop_waiting(self.next_start, packet, DropCause::Early);
                }
                None => return,
            }
        }
    }

    fn put_on_line(&mut self, start: Instant, packet: Waiting<T>) {
        let Waiting { size, item, marked, .. } = packet;
        let line_size = self.config.line_size(size);
        self.counters.line += line_size;
        let sent = self.transmitter.send(start, line_size);
        self.free_at = sent;
        let passage = self.wire.pass(&self.config, sent, size);
        self.line.push(if start < self.dark_until {
            Exit::new(passage.due, size, item, Fate::Dropped(DropCause::Blackout))
        } else {
            Exit::of(passage, size, marked, item)
        });
    }

    fn drop_waiting(&mut self, at: Instant, packet: Waiting<T>, cause: DropCause) {
        self.line.push(Exit::new(at, packet.size, packet.item, Fate::Dropped(cause)));
    }

    fn change(&mut self, at: Instant, change: &Change) {
        change.apply(&mut self.config);
        let Self { config, .. } = self;
        if change.rate.is_some() || change.rate_trace.is_some() {
            self.transmitter.change(at, config.rate, config.trace.as_ref());
        }
        // Other streams than at the start, or the same choices would come again; and by the time alone, for of
        // changes that repeat while nothing is sent not all are made.
        let seed = self.seed ^ at.as_nanos();
        if change.queue.is_some() {
            let rng = stream(seed, Stream::Queue);
            self.queue.become_like(Queue::new(&config.queue, config.rate, self.rtt, rng));
        }
        self.wire.change(config, change, seed);
        if let Some(blackout) = change.blackout {
            self.dark_until = self.dark_until.max(at + blackout);
        }
        if let Some(hold) = change.hold {
            self.held_until = self.held_until.max(at + hold);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Jitter, Limit, PathConfig, QueueConfig, Schedule};
    use proptest::prelude::*;
    use units::Rate;

    const MS: Duration = Duration::from_millis(1);

    fn link(config: PathConfig) -> Link<u64> {
        config.links().expect("a valid path").0
    }

    fn path(bits: u64, rtt: Duration) -> PathConfig {
        PathConfig::new(Rate::from_bits_per_sec(bits), rtt)
    }

    #[test]
    fn delay_is_exact() {
        let mut link = link(path(1_000_000_000, 200 * MS));
        for i in 0..1000 {
            let now = Instant::ZERO + MS * u32::try_from(i).expect("small");
            link.send(now, Bytes(1500), i).expect("an idle link");
            let due = now + Duration::from_micros(12) + 100 * MS;
            assert!(link.poll(due - Duration::from_nanos(1)).is_none());
            assert_eq!(link.poll(due).map(|exit| exit.due), Some(due));
        }
    }

    /// Keeps the link busy for a second; the rate must hold for rates that divide badly.
    #[test]
    fn rate_is_exact() {
        for bits in [9_600, 1_544_000, 622_080_000, 7_777_777_777, 100_000_000_000] {
            for size in [Bytes(40), Bytes(1500), Bytes(9000)] {
                let mut link = link(path(bits, Duration::ZERO));
                let (mut now, mut sent, mut last) = (Instant::ZERO, 0u64, Instant::ZERO);
                while sent < 20_000 {
                    while sent < 20_000 && link.send(now, size, 0).is_ok() {
                        sent += 1;
                    }
                    now = link.next_exit().expect("busy");
                    while let Some(exit) = link.poll(now) {
                        last = exit.due;
                    }
                }
                while let Some(due) = link.next_exit() {
                    last = link.poll(due).expect("due").due;
                }
                let expected = (sent * size.0 * 8) as f64 / bits as f64;
                let took = last.as_nanos() as f64 / 1e9;
                assert!((took / expected - 1.0).abs() < 1e-3, "{took} {expected} at {bits}");
                assert!((took - expected).abs() < 2e-9, "no rounding adds up: {took} {expected}");
            }
        }
    }

    #[test]
    fn queue_holds_its_limit_beside_the_packet_being_sent() {
        let limits = [
            Limit::Packets(100),
            Limit::Bytes(Bytes(150_000)),
            Limit::Time(Duration::from_micros(1200)),
        ];
        for limit in limits {
            let config = path(1_000_000_000, MS).with_queue(QueueConfig::DropTail(limit));
            let mut link = link(config);
            let taken = (0..1000).filter(|&i| link.send(Instant::ZERO, Bytes(1500), i).is_ok());
            assert_eq!(taken.count(), 101, "{limit}");
            assert_eq!(link.counters().dropped(DropCause::Queue).packets, 899);
            assert_eq!(link.queued(), Bytes(150_000));
            // One packet time later there is room for exactly one more.
            let later = Instant::ZERO + Duration::from_micros(12);
            assert!(link.send(later, Bytes(1500), 0).is_ok());
            assert!(link.send(later, Bytes(1500), 0).is_err());
        }
    }

    #[test]
    fn loss_uses_the_line_and_is_within_the_binomial_interval() {
        let (n, p) = (1_000_000, 0.01);
        let mut link = link(path(1_000_000_000, MS).with_loss(p).with_seed(7));
        let mut now = Instant::ZERO;
        for i in 0..n {
            now = Instant::ZERO + Duration::from_micros(12) * u32::try_from(i).expect("small");
            link.send(now, Bytes(1500), i).expect("sent at the rate");
            while link.poll(now).is_some() {}
        }
        assert_eq!(link.free_at, now + Duration::from_micros(12));
        while link.poll(Instant::FAR_FUTURE).is_some() {}
        let lost = link.counters().dropped(DropCause::Loss).packets as f64;
        let mean = n as f64 * p;
        assert!((lost - mean).abs() <= 3.2905 * (mean * (1.0 - p)).sqrt(), "{lost}");
    }

    #[test]
    fn framing_costs_rate() {
        let mut config = path(1_000_000, Duration::ZERO);
        config.forward.framing = Bytes(25);
        let mut link = link(config);
        link.send(Instant::ZERO, Bytes(100), 0).expect("idle");
        assert_eq!(link.next_exit(), Some(Instant::ZERO + MS));
    }

    fn queues() -> impl Strategy<Value = QueueConfig> {
        let spellings = [
            "droptail:limit=10packets",
            "droptail:limit=20kB",
            "red:min=1packets,max=10packets,weight=0.2",
            "red-i:min=1packets,max=10packets,ecn=yes,gentle=no",
            "codel:target=10us,interval=100us,limit=20packets",
            "fq-codel:target=10us,interval=100us,limit=20packets,flows=3,quantum=300",
        ];
        prop::sample::select(spellings.to_vec())
            .prop_map(|spelling| spelling.parse().expect("a queue"))
    }

    fn changes() -> impl Strategy<Value = Change> {
        let change = |name: &str, text: &str| {
            let mut change = Change::default();
            match name {
                "rate" => change.rate = text.parse().ok(),
                "delay" => change.delay = humantime::parse_duration(text).ok(),
                "queue" => change.queue = text.parse().ok(),
                "trace" => change.rate_trace = text.parse().ok(),
                "hold" => change.hold = humantime::parse_duration(text).ok(),
                _ => change.blackout = humantime::parse_duration(text).ok(),
            }
            assert_ne!(change, Change::default(), "{name} {text}");
            change
        };
        let all = [
            ("rate", "3mbit"),
            ("delay", "100us"),
            ("queue", "fq-codel:flows=3,limit=5packets"),
            ("queue", "droptail:limit=3packets"),
            ("trace", "1\n1\n2"),
            ("hold", "700us"),
            ("blackout", "300us"),
        ];
        prop::sample::select(all.to_vec()).prop_map(move |(name, text)| change(name, text))
    }

    /// A path, and packets that are sent over it at their times.
    #[derive(Debug)]
    pub(crate) struct Sending {
        pub(crate) config: PathConfig,
        pub(crate) packets: Vec<(Instant, Packet)>,
    }

    pub(crate) fn sendings() -> impl Strategy<Value = Sending> {
        let sends = prop::collection::vec((0u64..50_000, 0u64..9000, 0u64..4), 1..300);
        let change = prop::option::of((0u64..5_000_000, changes()));
        let bits = 1_000_000u64..10_000_000_000;
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        (sends, bits, queues(), 0.0..0.5f64, change, flags).prop_map(
            |(sends, bits, queue, loss, change, (ordered, plain, steady, atm))| {
                let loss = if plain { 0.0 } else { loss };
                let mut config = path(bits, 4 * MS).with_loss(loss).with_queue(queue);
                config.forward.mtu = Some(Bytes(8000));
                config.forward.atm = atm;
                let impairments = &mut config.forward.impairments;
                impairments.keep_order = ordered;
                if !plain && !steady {
                    impairments.jitter = Jitter::Uniform(Duration::from_micros(100));
                    // What is held back is overtaken.
                    impairments.reorder = if ordered { 0.0 } else { loss };
                    impairments.reorder_by = Duration::from_micros(200);
                }
                impairments.duplicate = loss;
                impairments.cell_loss = loss * 1e-3;
                impairments.bit_error = loss * 1e-4;
                if let Some((at, change)) = change {
                    let steps = vec![(Duration::from_nanos(at), change)];
                    config.forward.schedule = Schedule::new(steps, Some(5 * MS));
                }
                let mut now = Instant::ZERO;
                let packet = |(gap, size, flow)| {
                    now += Duration::from_nanos(gap);
                    (now, Packet { size: Bytes(size), flow, ecn_capable: flow % 2 == 0 })
                };
                Sending { packets: sends.into_iter().map(packet).collect(), config }
            },
        )
    }

    /// Whether packets of several flows leave in the order in which they came.
    fn is_fair(config: &LinkConfig) -> bool {
        let steps = config.schedule.steps().iter();
        let queues = steps.filter_map(|(_, change)| change.queue).chain([config.queue]);
        queues.into_iter().any(|queue| matches!(queue, QueueConfig::FqCodel(_)))
    }

    proptest! {
        /// Nothing appears, vanishes or leaves early, or overtakes where it should not; when the
        /// link is polled changes nothing.
        #[test]
        fn conserves_packets(sending in sendings(), lazy in any::<bool>()) {
            let Sending { config, packets } = sending;
            let (mut eager, mut other) = (link(config.clone()), link(config.clone()));
            let mut exits = [Vec::new(), Vec::new()];
            for (i, &(now, packet)) in packets.iter().enumerate() {
                let first = eager.send_packet(now, packet, i as u64);
                let second = other.send_packet(now, packet, i as u64);
                prop_assert_eq!(first, second);
                prop_assert_eq!(eager.backlog(), other.backlog());
                prop_assert_eq!(eager.take_peak(), other.take_peak());
                prop_assert_eq!(eager.counters().line, other.counters().line);
                exits[0].extend(core::iter::from_fn(|| eager.poll(now)));
                if !lazy {
                    exits[1].extend(core::iter::from_fn(|| other.poll(now)));
                }
                let c = eager.counters();
                let dropped: u64 = DropCause::ALL.iter().map(|&d| c.dropped(d).packets).sum();
                let held = eager.held() as u64;
                prop_assert_eq!(c.offered.packets, c.delivered.packets + dropped + held);
            }
            exits[0].extend(core::iter::from_fn(|| eager.poll(Instant::FAR_FUTURE)));
            exits[1].extend(core::iter::from_fn(|| other.poll(Instant::FAR_FUTURE)));
            prop_assert_eq!((eager.held(), other.held()), (0, 0));
            prop_assert_eq!(eager.counters(), other.counters());
            prop_assert!(exits[0].is_sorted_by_key(|exit| exit.due));
            let ordered = config.forward.impairments.keep_order && !is_fair(&config.forward);
            let arrived = exits[0].iter().filter(|exit| matches!(exit.fate, Fate::Delivered));
            prop_assert!(!ordered || arrived.is_sorted_by_key(|exit| exit.item));
            let [first, second] = exits;
            prop_assert_eq!(first, second);
        }
    }
}

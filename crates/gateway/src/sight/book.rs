//! What is carried now, and what became of all the rest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use net::clock;
use net::udp::StreamMeter;
use tokio::task::yield_now;
use tokio::time::{MissedTickBehavior, interval};
use units::{Bytes, Instant, Rate};

use super::Cause;
use super::counters::{Counter, Counters, Pause};
use super::status::{Connection, Missed, Sample, Side, Status, Totals, TrunkState, Waits};
use crate::Event;
use crate::record::{Bypass, Outcome, Record};
use crate::trunk::{Trunk, TrunkEvent};

/// Seconds of history.
const HISTORY: usize = 600;
/// Connections that a picture shows: the busiest.
const SHOWN: usize = 200;
/// Connections that went another way, or came to nothing, and are remembered: the last.
const MISSED: usize = 50;
/// Connections that are looked at before others may enter and leave theirs.
const SLICE: usize = 1024;

struct Open {
    side: Side,
    client: SocketAddr,
    server: String,
    since: Instant,
    counters: Arc<Counters>,
    /// What the counters said a second ago, and a second before that.
    seen: [(u64, u64); 2],
    /// What of them is in the totals already.
    counted: (u64, u64),
}

/// The trunk as it was last looked at.
#[derive(Clone, Copy, Default)]
struct Looked {
    /// Which of them it was.
    link: u64,
    sent: (u64, u64),
    received: u64,
    lost: u64,
}

struct Pages {
    began: Instant,
    open: BTreeMap<u64, Open>,
    entered: u64,
    totals: Totals,
    trunk: Trunk,
    /// Why there was none to each of those that are called when it was last told, by their places.
    causes: BTreeMap<usize, Cause>,
    /// Why there was none to others, or to anybody.
    otherwise: Option<Cause>,
    /// How many had been turned away when there was one.
    turned_away: u64,
    looked: Looked,
    limit: &'static str,
    missing: u64,
    history: VecDeque<Sample>,
    missed: VecDeque<Missed>,
}

/// Shared by all who carry.
#[derive(Clone)]
pub(crate) struct Book(Arc<Mutex<Pages>>);

/// A connection's line in the book; crossed out when dropped.
pub(crate) struct Entry {
    book: Book,
    id: u64,
    counters: Arc<Counters>,
}

impl Entry {
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut pages = self.book.pages();
        if let Some(mut open) = pages.open.remove(&self.id) {
            pages.totals.count(&mut open);
        }
    }
}

impl Book {
    pub(crate) fn new(trunk: Trunk) -> Self {
        Self(Arc::new(Mutex::new(Pages {
            began: clock::now(),
            open: BTreeMap::new(),
            entered: 0,
            totals: Totals::default(),
            trunk,
            causes: BTreeMap::new(),
            otherwise: None,
            turned_away: 0,
            looked: Looked::default(),
            limit: "",
            missing: 0,
            history: VecDeque::new(),
            missed: VecDeque::new(),
        })))
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that is carried from now on.
    pub(crate) fn enter(&self, side: Side, client: SocketAddr, server: String) -> Entry {
        let counters = Arc::new(Counters::default());
        let mut pages = self.pages();
        pages.entered += 1;
        let id = pages.entered;
        let (since, seen, counted) = (clock::now(), [(0, 0); 2], (0, 0));
        let open = Open { side, client, server, since, counters: counters.clone(), seen, counted };
        pages.open.insert(id, open);
        drop(pages);
        Entry { book: self.clone(), id, counters }
    }

    /// So many SYNs went direct that came too fast to be looked at.
    pub(crate) fn count_unseen(&self, passed: u32) {
        if passed > 0 {
            self.pages().totals.bypassed_unseen += u64::from(passed);
        }
    }

    /// Takes in what happened.
    pub(crate) fn note(&self, event: &Event) {
        let (side, record) = match event {
            Event::Near(record) => (Side::Near, record),
            Event::Far(record) => (Side::Far, record),
            Event::Trunk(event) => return self.pages().note_trunk(event),
            Event::StandsBy(address) => {
                let mut pages = self.pages();
                pages.causes.clear();
                pages.otherwise = Some(Cause::stands_by(*address));
                return;
            }
            // Those that it tells of are counted as they are found.
            Event::Overrun(_) => return,
            Event::Rootless | Event::Hidden(_) | Event::Full(_) => return,
        };
        self.pages().note(side, record);
    }

    /// Looks at the trunk every second, without end.
    pub(crate) async fn watch(&self) {
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = ticks.tick().await;
        loop {
            let now = ticks.tick().await;
            self.each(|_, open| open.seen = [open.counters.read(), open.seen[0]]).await;
            self.pages().sample(now.duration_since(last));
            last = now;
        }
    }

    /// The picture of this moment.
    pub(crate) async fn status(&self) -> Status {
        let mut busiest = BinaryHeap::new();
        self.each(|id, open| {
            busiest.push(Reverse((open.last_second(), Reverse(id))));
            if busiest.len() > SHOWN {
                busiest.pop();
            }
        })
        .await;
        let ids = busiest.into_sorted_vec().into_iter().map(|Reverse((_, Reverse(id)))| id);
        self.pages().status(ids)
    }

    /// Looks at all connections, and counts what they have carried, a slice at a time, for nobody
    /// who carries is to wait for one who looks.
    async fn each(&self, mut look: impl FnMut(u64, &mut Open)) {
        let last = self.pages().entered;
        let mut next = Some(0);
        while let Some(first) = next.filter(|first| *first <= last) {
            next = self.pages().slice(first..=last, &mut look);
            if next.is_some() {
                yield_now().await;
            }
        }
    }
}

impl Pages {
    /// Looks at the first of those that have these numbers; where to go on, if there may be more.
    fn slice(
        &mut self,
        numbers: RangeInclusive<u64>,
        look: &mut impl FnMut(u64, &mut Open),
    ) -> Option<u64> {
        let mut last = None;
        for (looked, (&id, open)) in self.open.range_mut(numbers).take(SLICE).enumerate() {
            self.totals.count(open);
            look(id, open);
            last = (looked + 1 == SLICE).then_some(id);
        }
        last.map(|id| id + 1)
    }

    /// Counts a connection that has ended, or was not made.
    fn note(&mut self, side: Side, record: &Record) {
        self.totals.add(&record.outcome);
        if record.is_whole() {
            return;
        }
        if self.missed.len() == MISSED {
            self.missed.pop_front();
        }
        self.missed.push_back(Missed {
            at: clock::now().since(self.began).as_secs_f64(),
            side,
            client: record.client.to_string(),
            server: record.server.clone(),
            client_name: None,
            server_name: None,
            why: record.outcome.to_string(),
        });
    }

    fn note_trunk(&mut self, event: &TrunkEvent) {
        match event {
            TrunkEvent::Up(peer) => {
                self.turned_away = self.trunk.turned_away();
                self.otherwise = None;
                if let Some(rank) = self.trunk.rank(*peer) {
                    self.causes.remove(&rank);
                }
            }
            TrunkEvent::Down(peer, error) => match self.trunk.rank(*peer) {
                Some(rank) => drop(self.causes.insert(rank, Cause::of(error))),
                None => self.otherwise = Some(Cause::of(error)),
            },
            TrunkEvent::Silent(_) | TrunkEvent::Back(_) => {}
        }
    }

    /// Why there is no trunk, if that is known: none to the preferred gateway. Who was turned away since there was one is more
    /// likely the reason than how that one ended.
    fn cause(&self) -> Option<Cause> {
        match self.trunk.turned_away().saturating_sub(self.turned_away) {
            0 => self.causes.values().next().or(self.otherwise.as_ref()).cloned(),
            calls => Some(Cause::strangers(calls)),
        }
    }

    fn sample(&mut self, past: Duration) {
        let mut sample = Sample {
            at: clock::now().since(self.began).as_secs_f64(),
            open: self.open.len() as u64,
            ..Sample::default()
        };
        if let Some((link, _)) = self.trunk.best() {
            let stats = link.connection.stats();
            let (received, lost) = (stats.received.1.0, stats.lost.0);
            let sent = (stats.sent.0, stats.sent.1.0);
            let looked = Looked { link: link.id(), sent, received, lost };
            // What another link did before now was not done in this second.
            let before = if self.looked.link == looked.link { self.looked } else { looked };
            self.looked = looked;
            let rate = |now: u64, before: u64| {
                let rate = Rate::of(Bytes(now.saturating_sub(before)), past);
                rate.map_or(0.0, |rate| rate.as_bits_per_sec() as f64)
            };
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            sample.sent = rate(sent.1, before.sent.1);
            sample.received = rate(received, before.received);
            let packets = sent.0.saturating_sub(before.sent.0);
            let lost = lost.saturating_sub(before.lost);
            sample.loss = (lost as f64 / packets.max(1) as f64).min(1.0);
            sample.rtt_ms = ms(stats.rtt);
            sample.queue_ms = ms(stats.rtt.saturating_sub(stats.min_rtt));
            sample.pace = stats.pacing_rate.as_bits_per_sec() as f64;
            (self.limit, self.missing) = (stats.limits.current().name(), stats.missing);
        }
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(sample);
    }

    /// The picture, with these connections if they are open.
    fn status(&self, shown: impl Iterator<Item = u64>) -> Status {
        let now = clock::now();
        let shown = shown.filter_map(|id| self.open.get(&id));
        let connections = shown.map(|open| open.show(now)).collect();
        let best = self.trunk.best();
        let state = match best {
            Some((_, true)) => TrunkState::Up,
            Some((_, false)) => TrunkState::Silent,
            None => TrunkState::Down,
        };
        Status {
            seconds: now.since(self.began).as_secs_f64(),
            trunk: super::TrunkStatus {
                state,
                peer: best.map(|(link, _)| link.connection.address().to_string()),
                heard: self.trunk.heard().iter().map(ToString::to_string).collect(),
                cause: if state == TrunkState::Up { None } else { self.cause() },
                sent: self.looked.sent.0,
                lost: self.looked.lost,
                missing: self.missing,
                limit: self.limit.to_owned(),
                now: self.history.back().copied().unwrap_or_default(),
            },
            totals: self.totals.clone(),
            open: self.open.len() as u64,
            connections,
            history: self.history.iter().copied().collect(),
            missed: self.missed.iter().cloned().collect(),
        }
    }
}

impl Open {
    /// Bytes of the last second, both ways.
    fn last_second(&self) -> u64 {
        let [last, before] = self.seen;
        last.0 - before.0 + last.1 - before.1
    }

    /// What its two directions wait for. The first end of a splice is where the connection comes
    /// from: the client here, or the trunk.
    fn waits(&self) -> (Waits, Waits) {
        let Counters { there, back, .. } = &*self.counters;
        let near = self.side == Side::Near;
        let waits = |it: &Counter, from_host: bool| match (it.is(Pause::Writing), from_host) {
            _ if it.is(Pause::Ended) => Waits::Nothing,
            (false, true) => Waits::Sender,
            (true, false) => Waits::Receiver,
            (false, false) | (true, true) => Waits::Trunk,
        };
        (waits(there, near), waits(back, !near))
    }

    fn show(&self, now: Instant) -> Connection {
        let (there, back) = self.counters.read();
        let [last, before] = self.seen;
        let bits = |last: u64, before: u64| (last - before) as f64 * 8.0;
        let (waits_there, waits_back) = self.waits();
        Connection {
            side: self.side,
            client: self.client.to_string(),
            server: self.server.clone(),
            client_name: None,
            server_name: None,
            seconds: now.since(self.since).as_secs_f64(),
            there,
            back,
            scheduled: self.counters.meter.get().map_or(0, StreamMeter::sent),
            rate_there: bits(last.0, before.0),
            rate_back: bits(last.1, before.1),
            waits_there,
            waits_back,
        }
    }
}

impl Totals {
    /// Counts what a connection has carried since it was last counted.
    fn count(&mut self, open: &mut Open) {
        let (there, back) = open.counters.read();
        self.there += there - open.counted.0;
        self.back += back - open.counted.1;
        open.counted = (there, back);
    }

    /// Counts what became of one.
    fn add(&mut self, outcome: &Outcome) {
        let count = match outcome {
            Outcome::Carried(passed) => {
                self.undelivered += passed.undelivered;
                if passed.whole { &mut self.carried } else { &mut self.reset }
            }
            Outcome::Bypassed(Bypass::NoTrunk) => &mut self.bypassed_no_trunk,
            Outcome::Bypassed(Bypass::NoRoom) => &mut self.bypassed_no_room,
            Outcome::Bypassed(Bypass::Far) => &mut self.bypassed_by_far,
            Outcome::Refused(_) => &mut self.refused,
            Outcome::Lost => &mut self.lost,
        };
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::splice::Passed;

    fn connections(book: &Book, count: usize) -> Vec<Entry> {
        let client = "192.0.2.1:1".parse().unwrap();
        (0..count).map(|it| book.enter(Side::Near, client, it.to_string())).collect()
    }

    async fn second(book: &Book) {
        book.each(|_, open| open.seen = [open.counters.read(), open.seen[0]]).await;
    }

    #[tokio::test]
    async fn who_looks_at_many_connections_lets_others_enter_and_leave_theirs() {
        let book = Book::new(Trunk::default());
        let mut entries = connections(&book, 3 * SLICE);
        let mut status = pin!(book.status());
        let mut slices = 0;
        let status = loop {
            slices += 1;
            assert!(slices <= 4, "those who came since are looked at too");
            match status.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(status) => break status,
                // The book is free: one leaves, others come.
                Poll::Pending => {
                    assert!(book.0.try_lock().is_ok());
                    entries.swap_remove(0);
                    entries.extend(connections(&book, SLICE));
                }
            }
        };
        assert!(slices >= 3, "{slices} slices are no slices");
        assert_eq!(status.open, entries.len() as u64);
    }

    #[tokio::test]
    async fn what_came_too_fast_is_counted_when_it_is_found_and_once() {
        let book = Book::new(Trunk::default());
        book.count_unseen(3);
        assert_eq!(book.status().await.totals.bypassed_unseen, 3);
        book.note(&Event::Overrun(3));
        assert_eq!(book.status().await.totals.bypassed_unseen, 3);
    }

    #[tokio::test]
    async fn the_busiest_are_shown_the_busiest_first() {
        let book = Book::new(Trunk::default());
        let entries = connections(&book, SLICE + SHOWN);
        for (bytes, entry) in entries.iter().enumerate() {
            entry.counters().back.add(bytes);
        }
        second(&book).await;
        let shown = book.status().await.connections;
        let expected = (SLICE..SLICE + SHOWN).rev();
        assert!(shown.iter().map(|it| it.there + it.back).eq(expected.map(|it| it as u64)));
    }

    #[tokio::test]
    async fn bytes_are_counted_while_they_are_carried_and_none_twice() {
        let book = Book::new(Trunk::default());
        let entry = &connections(&book, 1)[0];
        let client = "192.0.2.1:1".parse().unwrap();
        let other = book.enter(Side::Far, client, String::new());
        let mut last = 0;
        for bytes in [5, 0, 7] {
            entry.counters().there.add(bytes);
            other.counters().there.add(bytes);
            second(&book).await;
            let totals = book.status().await.totals;
            assert_eq!((totals.there, totals.back), (last + 2 * bytes as u64, 0));
            last = totals.there;
        }
        other.counters().back.add(3);
        let passed = Passed { bytes: (12, 3), undelivered: 2, ..Passed::default() };
        drop(other);
        let ended = |outcome| Event::Far(Record { client, server: String::new(), outcome });
        book.note(&ended(Outcome::Carried(passed)));
        let totals = book.status().await.totals;
        assert_eq!((totals.there, totals.back, totals.undelivered), (24, 3, 2));
    }

    #[test]
    fn why_there_is_no_trunk_is_told_until_there_is_one() {
        let book = Book::new(Trunk::default());
        let address = "192.0.2.1:7273".parse().unwrap();
        let told = |event| {
            book.note(&Event::Trunk(event));
            book.pages().status([].into_iter()).trunk.cause
        };
        let cause = told(TrunkEvent::Down(address, net::NetError::WrongKey { address })).unwrap();
        assert!(cause.what.contains("key") && cause.mend.contains("key"), "{cause:?}");
        assert_eq!(told(TrunkEvent::Up(address)), None);
    }

    #[test]
    fn why_there_is_no_trunk_to_the_preferred_gateway_is_told_before_the_standbys_reasons() {
        let peers = ["192.0.2.1:7273", "192.0.2.2:7273"].map(|peer| peer.parse().unwrap());
        let book = Book::new(Trunk::to(peers.to_vec()));
        let told = |event| {
            book.note(&Event::Trunk(event));
            book.pages().status([].into_iter()).trunk.cause.map(|cause| cause.what)
        };
        let [wrong, closed] =
            [net::NetError::WrongKey { address: peers[0] }, net::NetError::Closed];
        let texts = [&wrong, &closed].map(|error| Some(error.to_string()));
        assert_eq!(told(TrunkEvent::Down(peers[1], closed)), texts[1]);
        assert_eq!(told(TrunkEvent::Down(peers[0], wrong)), texts[0]);
        assert_eq!(told(TrunkEvent::Down(peers[1], net::NetError::Closed)), texts[0]);
        assert_eq!(told(TrunkEvent::Up(peers[0])), texts[1]);
        assert_eq!(told(TrunkEvent::Up(peers[1])), None);
    }

    #[test]
    fn what_a_connection_waits_for_is_told() {
        let (book, end) = (Book::new(Trunk::default()), Waits::Nothing);
        for (side, there, back) in [
            (Side::Near, [Waits::Sender, Waits::Trunk, end], [Waits::Trunk, Waits::Receiver, end]),
            (Side::Far, [Waits::Trunk, Waits::Receiver, end], [Waits::Sender, Waits::Trunk, end]),
        ] {
            let entry = book.enter(side, "192.0.2.1:1".parse().unwrap(), String::new());
            let pauses = [Pause::Reading, Pause::Writing, Pause::Ended];
            for (index, pause) in pauses.into_iter().enumerate() {
                entry.counters().there.pause(pause);
                entry.counters().back.pause(pause);
                let waits = book.pages().open[&entry.id].waits();
                assert_eq!(waits, (there[index], back[index]), "{side:?} {pause:?}");
            }
        }
    }

    #[test]
    fn the_last_that_were_not_carried_are_remembered() {
        let book = Book::new(Trunk::default());
        let client = "192.0.2.1:1".parse().unwrap();
        for number in 0..=MISSED {
            let outcome = Outcome::Bypassed(Bypass::NoRoom);
            book.note(&Event::Near(Record { client, server: number.to_string(), outcome }));
        }
        let missed = &book.pages().missed;
        assert_eq!((missed.len(), missed[0].server.as_str()), (MISSED, "1"));
        assert!(missed[0].why.contains("no room"), "{}", missed[0].why);
    }
}

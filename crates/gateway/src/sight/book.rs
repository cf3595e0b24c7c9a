//! What is carried now, and what became of all the rest.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use net::clock;
use tokio::time::{MissedTickBehavior, interval};
use units::{Bytes, Instant, Rate};

use super::status::{Connection, Sample, Side, Status, Totals, TrunkState};
use crate::Event;
use crate::record::{Bypass, Outcome};
use crate::trunk::Trunk;

/// Seconds of history.
const HISTORY: usize = 600;
/// Connections that a picture shows: the busiest.
const SHOWN: usize = 200;

/// Bytes that were passed on, from the first end of a splice to the second, and back.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) there: AtomicU64,
    pub(crate) back: AtomicU64,
}

impl Counters {
    /// Both.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.there.load(Ordering::Relaxed), self.back.load(Ordering::Relaxed))
    }
}

struct Open {
    side: Side,
    client: SocketAddr,
    server: String,
    since: Instant,
    counters: Arc<Counters>,
    /// What the counters said a second ago, and a second before that.
    seen: [(u64, u64); 2],
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
    looked: Looked,
    limit: &'static str,
    missing: u64,
    history: VecDeque<Sample>,
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
        self.book.pages().open.remove(&self.id);
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
            looked: Looked::default(),
            limit: "",
            missing: 0,
            history: VecDeque::new(),
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
        let (since, seen) = (clock::now(), [(0, 0); 2]);
        let open = Open { side, client, server, since, counters: counters.clone(), seen };
        pages.open.insert(id, open);
        drop(pages);
        Entry { book: self.clone(), id, counters }
    }

    /// Takes in what happened.
    pub(crate) fn note(&self, event: &Event) {
        let mut pages = self.pages();
        match event {
            Event::Trunk(_) | Event::Hidden(_) | Event::Full(_) => {}
            Event::Near(record) | Event::Far(record) => pages.totals.add(&record.outcome),
        }
    }

    /// Looks at the trunk every second, without end.
    pub(crate) async fn watch(&self) {
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = ticks.tick().await;
        loop {
            let now = ticks.tick().await;
            self.pages().sample(now.duration_since(last));
            last = now;
        }
    }

    /// The picture of this moment.
    pub(crate) fn status(&self) -> Status {
        self.pages().status()
    }
}

impl Pages {
    fn sample(&mut self, past: Duration) {
        for open in self.open.values_mut() {
            open.seen = [open.counters.read(), open.seen[0]];
        }
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

    fn status(&self) -> Status {
        let now = clock::now();
        let mut connections: Vec<_> = self.open.values().map(|open| open.show(now)).collect();
        let rate = |it: &Connection| it.rate_there + it.rate_back;
        connections.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        connections.truncate(SHOWN);
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
        }
    }
}

impl Open {
    fn show(&self, now: Instant) -> Connection {
        let (there, back) = self.counters.read();
        let [last, before] = self.seen;
        let bits = |last: u64, before: u64| (last - before) as f64 * 8.0;
        Connection {
            side: self.side,
            client: self.client.to_string(),
            server: self.server.clone(),
            seconds: now.since(self.since).as_secs_f64(),
            there,
            back,
            rate_there: bits(last.0, before.0),
            rate_back: bits(last.1, before.1),
        }
    }
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        let count = match outcome {
            Outcome::Carried(passed) => {
                self.there += passed.bytes.0;
                self.back += passed.bytes.1;
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

//! Rates that streams keep to, each alone or several together.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use net::PublicKey;
use tokio::time::Sleep;
use transfer::AskedRate;
use units::{Bytes, Instant, Rate};

/// Bytes go in pieces of so much time, so that the rate holds from one moment to the next.
const PIECE: Duration = Duration::from_millis(10);
/// Smaller pieces cost more than they are worth.
const PIECE_MIN: u64 = 1 << 10;
/// The most that streams which were held up may catch up.
const CATCH_UP: Duration = Duration::from_millis(100);

/// A rate for payload. All streams to which it is given keep to it together.
#[derive(Clone)]
pub struct Pacer(Arc<Mutex<Pace>>);

struct Pace {
    limit: Limit,
    /// When the next bytes may go.
    due: Instant,
}

enum Limit {
    Rate(Option<Rate>),
    /// What the client asks for, which is known once its request was read.
    Asked(AskedRate),
}

impl Pacer {
    /// As fast as it goes without a rate.
    pub fn new(rate: Option<Rate>) -> Self {
        Self::of(Limit::Rate(rate))
    }

    /// As the client asks.
    pub fn asked(asked: AskedRate) -> Self {
        Self::of(Limit::Asked(asked))
    }

    fn of(limit: Limit) -> Self {
        Self(Arc::new(Mutex::new(Pace { limit, due: net::clock::now() })))
    }

    fn lock(&self) -> MutexGuard<'_, Pace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is now.
    pub fn rate(&self) -> Option<Rate> {
        self.lock().rate()
    }

    fn set(&self, rate: Option<Rate>) {
        self.lock().limit = Limit::Rate(rate);
    }

    /// Sets aside the time of so many bytes, and gives when it begins.
    fn book(&self, bytes: u64, now: Instant) -> Instant {
        let mut pace = self.lock();
        let Some(rate) = pace.rate() else { return now };
        let begin = pace.due.max(now - CATCH_UP);
        pace.due = begin + rate.time_for(Bytes(bytes));
        begin
    }

    /// So many booked bytes did not go.
    fn give_back(&self, bytes: u64) {
        let mut pace = self.lock();
        if let Some(rate) = pace.rate() {
            pace.due = pace.due - rate.time_for(Bytes(bytes));
        }
    }
}

impl Pace {
    fn rate(&self) -> Option<Rate> {
        match &self.limit {
            Limit::Rate(rate) => *rate,
            Limit::Asked(asked) => asked.get(),
        }
    }
}

/// The least of these rates.
pub fn least(pacers: &[Pacer]) -> Option<Rate> {
    pacers.iter().filter_map(Pacer::rate).min()
}

/// What each direction of a stream keeps to: all of these.
#[derive(Clone, Default)]
pub struct Pacers {
    pub writing: Vec<Pacer>,
    pub reading: Vec<Pacer>,
}

impl Pacers {
    /// With one more rate for what is written, if there is one.
    #[must_use]
    pub fn writing_at(mut self, rate: Option<Rate>) -> Self {
        self.writing.extend(rate.map(|rate| Pacer::new(Some(rate))));
        self
    }
}

/// The rates of keys. Whoever holds a key has its rate once in each direction, over all connections.
#[derive(Default)]
pub struct RatesOfKeys(Mutex<HashMap<PublicKey, Pacers>>);

impl RatesOfKeys {
    /// What the streams of this key keep to, those that are open too: its rate may have been changed.
    pub fn of(&self, key: PublicKey, rate: Option<Rate>) -> Pacers {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other, pacers| {
            let in_use = pacers.writing.iter().any(|pacer| Arc::strong_count(&pacer.0) > 1);
            in_use || *other == key
        });
        let fresh = || Pacers { writing: vec![Pacer::new(rate)], reading: vec![Pacer::new(rate)] };
        let pacers = match rate {
            None => known.remove(&key).unwrap_or_default(),
            Some(_) => known.entry(key).or_insert_with(fresh).clone(),
        };
        pacers.writing.iter().chain(&pacers.reading).for_each(|pacer| pacer.set(rate));
        pacers
    }
}

/// One direction of a stream.
pub struct Turn {
    pub pacers: Vec<Pacer>,
    /// Bytes whose time is set aside.
    booked: u64,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Turn {
    pub fn new(pacers: Vec<Pacer>) -> Self {
        Self { pacers, booked: 0, timer: None }
    }

    /// Waits until bytes may go, and gives how many of those that want to. A wait that begins is told.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        wanted: usize,
        waits: impl FnOnce(Duration),
    ) -> Poll<usize> {
        if self.booked == 0 {
            let Some(rate) = least(&self.pacers) else { return Poll::Ready(wanted) };
            let now = net::clock::now();
            self.booked = rate.bytes_in(PIECE).0.max(PIECE_MIN).min(wanted as u64);
            let begin = self.pacers.iter().map(|pacer| pacer.book(self.booked, now)).max();
            let wait = begin.map_or(Duration::ZERO, |begin| begin.since(now));
            if !wait.is_zero() {
                waits(wait);
                self.timer = Some(Box::pin(tokio::time::sleep(wait)));
            }
        }
        if let Some(timer) = &mut self.timer {
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
        }
        Poll::Ready(wanted.min(self.booked as usize))
    }

    /// So many of them went.
    pub fn went(&mut self, bytes: usize) {
        let rest = std::mem::take(&mut self.booked).saturating_sub(bytes as u64);
        if rest > 0 {
            self.pacers.iter().for_each(|pacer| pacer.give_back(rest));
        }
    }
}

impl Drop for Turn {
    /// Who is gone has no turn any more.
    fn drop(&mut self) {
        self.went(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Option<Rate> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_key_has_its_rate_once_whatever_it_was_before() {
        let rates = RatesOfKeys::default();
        let [one, two] = [1, 2].map(|byte| PublicKey::from_bytes([byte; 32]));
        let first = rates.of(one, rate("1mbit"));
        let again = rates.of(one, rate("2mbit"));
        let other = rates.of(two, rate("3mbit"));
        assert_eq!(least(&first.writing), rate("2mbit"), "it was changed");
        assert!(Arc::ptr_eq(&first.reading[0].0, &again.reading[0].0));
        assert!(!Arc::ptr_eq(&first.reading[0].0, &first.writing[0].0));
        assert_eq!(least(&other.reading), rate("3mbit"));
        drop((again, other));
        assert!(rates.of(one, None).writing.iter().all(|pacer| pacer.rate().is_none()));
        assert_eq!(least(&first.reading), None, "it was lifted");
        assert!(rates.0.lock().unwrap().is_empty(), "nobody is left");
    }

    #[test]
    fn time_is_set_aside_once_for_all() {
        let pacer = Pacer::new(rate("8mbit"));
        let start = pacer.lock().due;
        let ms = |ms| start + Duration::from_millis(ms);
        assert_eq!(pacer.book(10_000, start), start);
        assert_eq!(pacer.book(10_000, start), ms(10));
        pacer.give_back(5000);
        assert_eq!(pacer.book(10_000, ms(1)), ms(15));
        // Who was held up catches up, but not for ever.
        assert_eq!(pacer.book(10_000, ms(60)), ms(25));
        assert_eq!(pacer.book(10_000, ms(5000)), ms(5000) - CATCH_UP);
    }
}

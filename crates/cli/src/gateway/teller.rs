//! Tells what happens on a thread of its own: who reads it too slowly, or not at all, must not hold up
//! what is carried.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use net::clock;

/// What may wait to be told; what comes beyond that is counted.
const WAITING: usize = 4096;
/// How long the last of it may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What is told.
#[derive(Debug, PartialEq, Eq)]
pub enum News<T> {
    Happened(T),
    /// So many that happened here are not told.
    Missed(u64),
}

/// What happened, when (since 1970), and how many before it found no room.
struct Noted<T> {
    what: T,
    at: Duration,
    missed: u64,
}

/// Takes what happens; who calls it never waits.
pub struct Teller<T> {
    queue: SyncSender<Noted<T>>,
    missed: Arc<AtomicU64>,
}

/// What is left to be told once the teller is gone.
pub struct Rest(Receiver<Infallible>);

impl<T: Send + 'static> Teller<T> {
    /// Has all told by `tell`, with its time.
    pub fn new(tell: impl Fn(News<T>, Duration) + Send + 'static) -> (Self, Rest) {
        let (queue, waiting) = sync_channel::<Noted<T>>(WAITING);
        let (telling, rest) = channel();
        let missed = Arc::new(AtomicU64::new(0));
        let (teller, last) = (Self { queue, missed: missed.clone() }, missed);
        thread::spawn(move || {
            let _telling = telling;
            let tell_missed = |missed, at| {
                if missed > 0 {
                    tell(News::Missed(missed), at);
                }
            };
            // Behind the last that found room, others may have been missed.
            let next = || {
                waiting.try_recv().or_else(|_| {
                    tell_missed(last.swap(0, Relaxed), clock::wall());
                    waiting.recv()
                })
            };
            while let Ok(Noted { what, at, missed }) = next() {
                tell_missed(missed, at);
                tell(News::Happened(what), at);
            }
        });
        (teller, Rest(rest))
    }

    pub fn note(&self, what: T) {
        let missed = self.missed.swap(0, Relaxed);
        if self.queue.try_send(Noted { what, at: clock::wall(), missed }).is_err() {
            self.missed.fetch_add(missed + 1, Relaxed);
        }
    }
}

impl Rest {
    /// Waits until it is told, but not long for somebody who does not read.
    pub fn wait(self) {
        let _ = self.0.recv_timeout(LAST_WORDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_who_does_not_read_and_what_is_missing_is_counted() {
        let (say, said) = sync_channel(0);
        let (teller, rest) = Teller::new(move |news, _| say.send(news).unwrap());
        let next = || said.recv_timeout(10 * LAST_WORDS).unwrap();
        teller.note(0);
        // From now on one is being told, and so many wait.
        while teller.missed.load(Relaxed) < 3 {
            teller.note(1);
        }
        assert_eq!(next(), News::Happened(0));
        while next() == News::Happened(1) && teller.missed.load(Relaxed) > 0 {
            teller.note(2);
        }
        drop(teller);
        let told: Vec<_> = std::iter::from_fn(|| said.recv().ok()).collect();
        let (missed, last) = (&told[told.len() - 2], &told[told.len() - 1]);
        assert!(matches!(missed, News::Missed(3..)), "{missed:?}");
        assert_eq!(last, &News::Happened(2));
        rest.wait();
    }

    #[test]
    fn what_was_missed_last_is_told_once_all_else_is() {
        let (say, said) = sync_channel(0);
        let (teller, rest) = Teller::new(move |news, _| say.send(news).unwrap());
        let next = || said.recv_timeout(10 * LAST_WORDS).unwrap();
        let overfill = || {
            teller.note(0);
            while teller.missed.load(Relaxed) < 3 {
                teller.note(1);
            }
        };
        overfill();
        while next() != News::Missed(3) {}
        overfill();
        drop(teller);
        let told: Vec<_> = std::iter::from_fn(|| said.recv().ok()).collect();
        assert_eq!(told.last(), Some(&News::Missed(3)));
        rest.wait();
    }
}

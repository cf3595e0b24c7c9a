//! Requests that are at work at a time, of one client and of all. Each blocks threads and holds memory for as long
//! as its client keeps it waiting, and others are not to lack them for that.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use net::PublicKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Of one client; further ones wait.
const REQUESTS_MAX: usize = 64;

/// At work and waiting, of one client: those that wait hold what they ask for.
const KNOWN_MAX: usize = 1024;

/// But not for ever: who comes and goes would leave them behind, and two that wait for each other would not end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Threads that a request blocks: one reads or writes, one counts what there is to send.
const THREADS: usize = 2;

/// Clients ask for files here, and to have them sent elsewhere: each has turns of its own. Probes block no thread.
const KINDS: usize = 2;

/// For all else that blocks a thread.
const OTHER_THREADS: usize = 512;

/// More are nobody's good, and a host that is asked for them may end the process.
const THREADS_MAX: usize = 16 << 10;

/// Of all clients: what is at work has its threads.
const ALL_MAX: usize = (THREADS_MAX - OTHER_THREADS) / (KINDS * THREADS);

/// So many threads are enough for all that so many clients can have at work.
pub fn threads(clients: u16) -> usize {
    let requests = (usize::from(clients) * REQUESTS_MAX).min(ALL_MAX);
    OTHER_THREADS + requests * KINDS * THREADS
}

/// Whose requests count together.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    /// That of whoever holds this key.
    Key(PublicKey),
    /// All have the same key.
    Host(IpAddr),
}

/// Who has how many.
pub struct Turns {
    each: Mutex<HashMap<Who, Own>>,
    all: Arc<Semaphore>,
}

/// What one client has left.
#[derive(Clone)]
struct Own {
    known: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

/// One of the client's turns, and of all.
pub struct Turn {
    _known: OwnedSemaphorePermit,
    _turns: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl Default for Turns {
    fn default() -> Self {
        Self { each: Mutex::default(), all: Arc::new(Semaphore::new(ALL_MAX)) }
    }
}

impl Turns {
    /// Waits until it is the client's turn, for as long as what this gives lives.
    ///
    /// # Errors
    /// It was not for a while, or too many wait already; the text says so.
    pub async fn take(&self, who: Who) -> Result<Turn, String> {
        let Own { known, turns } = self.of(who);
        let Ok(known) = known.try_acquire_owned() else {
            return Err(format!("{KNOWN_MAX} requests of yours are here already: try later"));
        };
        let (own, all) = (turns.acquire_owned(), self.all.clone().acquire_owned());
        let waiting = async { (own.await, all.await) };
        match timeout(PATIENCE, waiting).await {
            Ok((own, all)) => {
                let never = "it is never closed";
                Ok(Turn { _known: known, _turns: (own.expect(never), all.expect(never)) })
            }
            Err(_) => Err(format!(
                "{REQUESTS_MAX} requests of yours are at work here, or {ALL_MAX} of all: try again when one of \
                 them is done"
            )),
        }
    }

    fn of(&self, who: Who) -> Own {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        each.retain(|_, own| Arc::strong_count(&own.known) > 1);
        let [known, turns] = [KNOWN_MAX, REQUESTS_MAX];
        let new = || Own {
            known: Arc::new(Semaphore::new(known)),
            turns: Arc::new(Semaphore::new(turns)),
        };
        each.entry(who).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Who {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Who::Key(PublicKey::from_bytes(bytes))
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_enough_waits_and_nobody_else() {
        let turns = Turns::default();
        let [one, other] = [key(1), key(2)];
        let mut taken = Vec::new();
        for _ in 0..REQUESTS_MAX {
            taken.push(turns.take(one).await.unwrap());
        }
        assert!(turns.take(one).await.err().unwrap().contains("at work here"));
        let address = Who::Host([127, 0, 0, 1].into());
        drop((turns.take(other).await.unwrap(), turns.take(address).await.unwrap()));
        taken.pop();
        taken.push(turns.take(one).await.unwrap());
        taken.clear();
        turns.of(other);
        assert_eq!(turns.each.lock().unwrap().len(), 1, "who has none is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_too_many_waiting_is_turned_away_at_once() {
        let turns = Turns::default();
        let known = turns.of(key(1)).known.try_acquire_many_owned(KNOWN_MAX as u32).unwrap();
        assert!(turns.take(key(1)).await.err().unwrap().contains("already"));
        drop(known);
        drop(turns.take(key(1)).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_is_at_work_has_its_threads() {
        let turns = Turns::default();
        let mut taken = Vec::new();
        for number in 0..ALL_MAX {
            taken.push(turns.take(key(number / REQUESTS_MAX)).await.unwrap());
        }
        assert!(turns.take(key(ALL_MAX)).await.err().unwrap().contains("of all"));
        taken.pop();
        taken.push(turns.take(key(ALL_MAX)).await.unwrap());
        assert!(taken.len() * KINDS * THREADS + OTHER_THREADS <= threads(u16::MAX));
        assert!(threads(u16::MAX) <= THREADS_MAX && threads(1) < threads(2));
    }
}

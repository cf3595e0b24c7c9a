//! Requests of one client that are at work at a time. Each blocks threads and holds memory for as long as
//! the client keeps it waiting, and others are not to lack them for that.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use net::PublicKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Further ones wait.
const REQUESTS_MAX: usize = 64;

/// Threads that a request blocks: one reads or writes, one counts what there is to send.
const THREADS: usize = 2;

/// Clients ask for files here, and to have them sent elsewhere: each has turns of its own.
const KINDS: usize = 2;

/// For all else that blocks a thread.
const OTHER_THREADS: usize = 512;

/// With so many threads at the most, none of so many clients waits for another.
pub fn threads(clients: u16) -> usize {
    OTHER_THREADS + usize::from(clients) * KINDS * REQUESTS_MAX * THREADS
}

/// Whose requests count together.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    /// That of whoever holds this key.
    Key(PublicKey),
    /// All have the same key.
    Address(IpAddr),
}

/// Who has how many.
#[derive(Default)]
pub struct Turns(Mutex<HashMap<Who, Arc<Semaphore>>>);

impl Turns {
    /// Waits until it is the client's turn, for as long as what this gives lives.
    pub async fn take(&self, who: Who) -> OwnedSemaphorePermit {
        self.of(who).acquire_owned().await.expect("it is never closed")
    }

    fn of(&self, who: Who) -> Arc<Semaphore> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, turns| Arc::strong_count(turns) > 1);
        known.entry(who).or_insert_with(|| Arc::new(Semaphore::new(REQUESTS_MAX))).clone()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_has_enough_waits_and_nobody_else() {
        let turns = Turns::default();
        let [one, other] = [1, 2].map(|byte| Who::Key(PublicKey::from_bytes([byte; 32])));
        let mut taken = Vec::new();
        for _ in 0..REQUESTS_MAX {
            taken.push(turns.take(one).await);
        }
        let waits = timeout(Duration::from_secs(1), turns.take(one)).await.is_err();
        assert!(waits);
        let address = Who::Address([127, 0, 0, 1].into());
        drop((turns.take(other).await, turns.take(address).await));
        taken.pop();
        taken.push(turns.take(one).await);
        taken.clear();
        turns.of(other);
        assert_eq!(turns.0.lock().unwrap().len(), 1, "who has none is forgotten");
    }
}

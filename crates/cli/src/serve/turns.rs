//! Requests of one client that are at work at a time. Each blocks threads and holds memory for as long as
//! the client keeps it waiting, and others are not to lack them for that.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use net::PublicKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Further ones wait.
const REQUESTS_MAX: usize = 64;

/// But not for ever: who comes and goes would leave them behind, and two that wait for each other would not end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Threads that a request blocks: one reads or writes, one counts what there is to send.
const THREADS: usize = 2;

/// Clients ask for files here, and to have them sent elsewhere: each has turns of its own.
const KINDS: usize = 2;

/// For all else that blocks a thread.
const OTHER_THREADS: usize = 512;

/// More are nobody's good, and a host that is asked for them may end the process.
const THREADS_MAX: usize = 16 << 10;

/// With so many threads at the most, none of so many clients waits for another, up to what one host has.
pub fn threads(clients: u16) -> usize {
    (OTHER_THREADS + usize::from(clients) * KINDS * REQUESTS_MAX * THREADS).min(THREADS_MAX)
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
#[derive(Default)]
pub struct Turns(Mutex<HashMap<Who, Arc<Semaphore>>>);

impl Turns {
    /// Waits until it is the client's turn, for as long as what this gives lives.
    ///
    /// # Errors
    /// It was not for a while; the text says so.
    pub async fn take(&self, who: Who) -> Result<OwnedSemaphorePermit, String> {
        match timeout(PATIENCE, self.of(who).acquire_owned()).await {
            Ok(turn) => Ok(turn.expect("it is never closed")),
            Err(_) => Err(format!(
                "{REQUESTS_MAX} copies of yours are at work here: try again when one of them is done"
            )),
        }
    }

    fn of(&self, who: Who) -> Arc<Semaphore> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, turns| Arc::strong_count(turns) > 1);
        known.entry(who).or_insert_with(|| Arc::new(Semaphore::new(REQUESTS_MAX))).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_has_enough_waits_and_nobody_else() {
        let turns = Turns::default();
        let [one, other] = [1, 2].map(|byte| Who::Key(PublicKey::from_bytes([byte; 32])));
        let mut taken = Vec::new();
        for _ in 0..REQUESTS_MAX {
            taken.push(turns.take(one).await.unwrap());
        }
        assert!(turns.take(one).await.unwrap_err().contains("at work here"));
        let address = Who::Host([127, 0, 0, 1].into());
        drop((turns.take(other).await, turns.take(address).await));
        taken.pop();
        taken.push(turns.take(one).await.unwrap());
        taken.clear();
        turns.of(other);
        assert_eq!(turns.0.lock().unwrap().len(), 1, "who has none is forgotten");
    }
}

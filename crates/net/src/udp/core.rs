//! What the drivers of an endpoint and the application have in common: the endpoint, its
//! connections, and who waits for one.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use transport::{Endpoint, Received, Refusals, Routed, Side};

use super::shared::{Alarm, Inner, Shared, lock};
use crate::clock;

/// Established connections that wait to be accepted.
const MAX_BACKLOG: usize = 256;
/// The code of a close because nobody will accept the connection.
const BUSY: u64 = 1;

pub(super) struct Core {
    state: Mutex<State>,
    /// One for each driver.
    alarms: Vec<Alarm>,
    /// Of each driver's socket: datagrams that it had no room for.
    drops: Vec<AtomicU64>,
    stopping: AtomicBool,
    /// Whose turn it is to drive the next connection made here.
    next_owner: AtomicUsize,
}

struct State {
    endpoint: Endpoint,
    connections: HashMap<u32, Shared>,
    accepted: VecDeque<Shared>,
    waiting: Vec<Waker>,
    failed: Option<io::ErrorKind>,
}

/// What is to be done with a datagram.
pub(super) enum Taken {
    /// It is for this connection.
    For(u32, Shared),
    /// It is answered with this one.
    Answered(Vec<u8>),
    /// Nothing more.
    Nothing,
}

impl Core {
    pub(super) fn new(endpoint: Endpoint, drivers: usize) -> io::Result<Self> {
        let state = State {
            endpoint,
            connections: HashMap::new(),
            accepted: VecDeque::new(),
            waiting: Vec::new(),
            failed: None,
        };
        Ok(Self {
            state: Mutex::new(state),
            alarms: (0..drivers).map(|_| Alarm::new()).collect::<io::Result<_>>()?,
            drops: (0..drivers).map(|_| AtomicU64::new(0)).collect(),
            stopping: AtomicBool::new(false),
            next_owner: AtomicUsize::new(0),
        })
    }

    pub(super) fn alarm(&self, driver: usize) -> &Alarm {
        &self.alarms[driver]
    }

    /// The driver's socket has had no room for so many datagrams.
    pub(super) fn note_drops(&self, driver: usize, drops: u64) {
        self.drops[driver].store(drops, Ordering::Relaxed);
    }

    /// Datagrams that arrived here and for which the sockets had no room.
    pub(super) fn drops(&self) -> u64 {
        self.drops.iter().map(|drops| drops.load(Ordering::Relaxed)).sum()
    }

    /// The driver goes to sleep, unless somebody rang or nothing is left to be done.
    pub(super) fn may_sleep(&self, driver: usize) -> bool {
        let alarm = self.alarm(driver);
        if !alarm.may_sleep() {
            return false;
        }
        // Whoever stops the drivers from now on finds this one asleep.
        let over = self.is_over();
        if over {
            alarm.silence(false);
        }
        !over
    }

    /// The connection's driver must look at it.
    pub(super) fn ring(&self, inner: &Inner) {
        self.alarms[inner.owner].ring(inner.number);
    }

    pub(super) fn connect(&self, address: SocketAddr) -> Shared {
        let owner = self.next_owner.fetch_add(1, Ordering::Relaxed) % self.alarms.len();
        let mut state = lock(&self.state);
        let (number, connection) = state.endpoint.connect(clock::now(), address);
        let shared = Shared::new(number, owner, connection);
        if state.failed.is_some() {
            shared.lock().fail();
        } else {
            state.connections.insert(number, shared.clone());
        }
        self.alarms[owner].ring(number);
        shared
    }

    /// Asks the endpoint whom a datagram is for that `driver` received.
    pub(super) fn route(&self, driver: usize, received: &Received<'_>) -> Taken {
        let mut state = lock(&self.state);
        match state.endpoint.route(clock::now(), received.from, received.bytes) {
            Routed::Known(number) => match state.connections.get(&number) {
                Some(shared) => Taken::For(number, shared.clone()),
                None => Taken::Nothing,
            },
            Routed::New(number, mut connection) => {
                // Else this would last for as long as others come.
                let ends = self.is_stopping() || state.failed.is_some();
                if ends {
                    state.endpoint.forget(number);
                } else {
                    connection.answer_from(received.to);
                    let shared = Shared::new(number, driver, *connection);
                    state.connections.insert(number, shared);
                    self.alarms[driver].ring(number);
                }
                let evicted = state.endpoint.take_evicted();
                if let Some(evicted) = evicted.and_then(|old| state.connections.remove(&old)) {
                    let mut inner = evicted.lock();
                    inner.connection.close(clock::now(), BUSY, "no room for another connection");
                    self.ring(&inner);
                }
                Taken::Nothing
            }
            Routed::Refused(reply) => Taken::Answered(reply),
            Routed::Dropped => Taken::Nothing,
        }
    }

    pub(super) fn find(&self, number: u32) -> Option<Shared> {
        lock(&self.state).connections.get(&number).cloned()
    }

    /// A connection has been established, or has ended.
    pub(super) fn on_change(&self, number: u32, shared: &Shared, closed: bool) {
        let mut state = lock(&self.state);
        if closed {
            state.endpoint.forget(number);
            state.connections.remove(&number);
            if state.connections.is_empty() && self.is_stopping() {
                self.alarms.iter().for_each(Alarm::wake);
            }
        } else if state.connections.contains_key(&number) {
            let mut inner = shared.lock();
            state.endpoint.on_established(number, &inner.connection);
            let full = state.accepted.len() >= MAX_BACKLOG;
            if inner.connection.side() == Side::Initiator {
                // Whoever connected waits for it.
            } else if full || self.is_stopping() {
                inner.connection.close(clock::now(), BUSY, "no room for another connection");
                self.ring(&inner);
            } else {
                state.accepted.push_back(shared.clone());
            }
        }
        let waiting = core::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The next established connection; `Err` when a driver has ended.
    pub(super) fn poll_accept(&self, waker: &Waker) -> Result<Option<Shared>, io::ErrorKind> {
        let mut state = lock(&self.state);
        if let Some(shared) = state.accepted.pop_front() {
            return Ok(Some(shared));
        }
        if let Some(kind) = state.failed {
            return Err(kind);
        }
        state.wait(waker);
        Ok(None)
    }

    pub(super) fn refusals(&self) -> Refusals {
        lock(&self.state).endpoint.refusals()
    }

    /// Whether every connection has ended.
    pub(super) fn poll_idle(&self, waker: &Waker) -> bool {
        let mut state = lock(&self.state);
        let idle = state.connections.is_empty() || state.failed.is_some();
        if !idle {
            state.wait(waker);
        }
        idle
    }

    /// The drivers end once every connection has.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let accepted = core::mem::take(&mut lock(&self.state).accepted);
        for shared in accepted {
            let mut inner = shared.lock();
            inner.connection.close(clock::now(), BUSY, "the listener has ended");
            self.ring(&inner);
        }
        self.alarms.iter().for_each(Alarm::wake);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Whether the drivers have nothing to do any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_stopping() && lock(&self.state).connections.is_empty()
    }

    /// A driver has ended: nobody waits any longer.
    pub(super) fn fail(&self, why: io::ErrorKind) {
        let mut state = lock(&self.state);
        state.failed = Some(why);
        let connections: Vec<_> = state.connections.drain().collect();
        let waiting = core::mem::take(&mut state.waiting);
        drop(state);
        for (_, shared) in connections {
            shared.lock().fail();
        }
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl State {
    fn wait(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|known| known.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use transport::Config;
    use transport::crypto::SharedKey;

    use super::*;

    #[test]
    fn a_driver_that_was_awake_when_all_ended_does_not_go_to_sleep() {
        let key = SharedKey::from_bytes([1; 32]);
        let core = Core::new(Endpoint::new(key, Config::default(), true, [2; 32]), 1).unwrap();
        assert!(core.may_sleep(0));
        core.alarm(0).silence(false);
        core.stop();
        assert!(!core.may_sleep(0));
    }
}

//! The thread that moves datagrams between a socket and its connections.
//!
//! One loop: receive what waits, let each connection do what is due and send what it wants, pass
//! events on, sleep until the next time that matters. It runs outside the async runtime because
//! pacing needs finer timers than a runtime's milliseconds.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use transport::{Endpoint, Routed, Side, Transmit};
use units::Instant;

use super::shared::{Alarm, Inner, lock};
use super::socket::{BatchSocket, Buffers};
use crate::clock;

/// Receive calls before sending gets its turn again.
const RECEIVE_ROUNDS: usize = 4;
/// Batches a connection may send before receiving gets its turn again.
const SEND_ROUNDS: usize = 8;
/// Established connections that wait to be accepted.
const MAX_BACKLOG: usize = 256;
/// The code of a close because nobody will accept the connection.
const BUSY: u64 = 1;

/// A connection that driver and application hold.
pub(super) type Shared = Arc<Mutex<Inner>>;

/// What the application can reach of the driver.
pub(super) struct Core {
    state: Mutex<State>,
    pub(super) alarm: Alarm,
    stopping: AtomicBool,
}

struct State {
    endpoint: Endpoint,
    connections: HashMap<u32, Shared>,
    accepted: Vec<Shared>,
    waiting: Vec<Waker>,
    failed: Option<io::ErrorKind>,
}

impl Core {
    pub(super) fn new(endpoint: Endpoint) -> io::Result<Self> {
        let state = State {
            endpoint,
            connections: HashMap::new(),
            accepted: Vec::new(),
            waiting: Vec::new(),
            failed: None,
        };
        let alarm = Alarm::new()?;
        Ok(Self { state: Mutex::new(state), alarm, stopping: AtomicBool::new(false) })
    }

    pub(super) fn connect(&self, address: std::net::SocketAddr) -> Shared {
        let mut state = lock(&self.state);
        let (number, connection) = state.endpoint.connect(clock::now(), address);
        let shared = Arc::new(Mutex::new(Inner::new(connection)));
        if state.failed.is_some() {
            lock(&shared).fail("the socket of this side has failed");
        } else {
            state.connections.insert(number, shared.clone());
        }
        self.alarm.ring();
        shared
    }

    /// The next established connection; `Err` when the driver has ended.
    pub(super) fn poll_accept(&self, waker: &Waker) -> Result<Option<Shared>, io::ErrorKind> {
        let mut state = lock(&self.state);
        if !state.accepted.is_empty() {
            return Ok(Some(state.accepted.remove(0)));
        }
        if let Some(kind) = state.failed {
            return Err(kind);
        }
        state.wait(waker);
        Ok(None)
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

    /// The thread ends once every connection has.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let accepted = core::mem::take(&mut lock(&self.state).accepted);
        for shared in accepted {
            lock(&shared).connection.close(clock::now(), BUSY, "the listener has ended");
        }
        self.alarm.ring();
    }
}

impl State {
    fn wait(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|known| known.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }
}

pub(super) struct Driver {
    core: Arc<Core>,
    socket: BatchSocket,
    buffers: Buffers,
    /// A batch that the socket had no room for.
    held: Option<(Transmit, Vec<u8>)>,
    out: Vec<u8>,
}

impl Driver {
    pub(super) fn new(core: Arc<Core>, socket: BatchSocket) -> Self {
        Self { core, socket, buffers: Buffers::new(), held: None, out: Vec::new() }
    }

    /// Runs until the endpoint is dropped and its connections have ended, or the socket fails.
    pub(super) fn run(mut self) {
        let mut guard = Ended { core: self.core.clone(), why: io::ErrorKind::Other };
        guard.why = loop {
            let full = match self.receive() {
                Ok(full) => full,
                Err(error) => break error.kind(),
            };
            let (wake_at, busy) = self.serve_connections();
            let stopping = self.core.stopping.load(Ordering::Relaxed);
            if stopping && lock(&self.core.state).connections.is_empty() {
                break io::ErrorKind::NotConnected;
            }
            if !(full || busy) {
                self.sleep(wake_at);
            }
        };
    }

    /// Takes in what waits; whether there may be more.
    fn receive(&mut self) -> io::Result<bool> {
        for _ in 0..RECEIVE_ROUNDS {
            let count = match self.socket.receive(&mut self.buffers) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(error),
            };
            let now = clock::now();
            let mut state = lock(&self.core.state);
            for received in self.buffers.datagrams(now, count) {
                let from = received.from;
                match state.endpoint.route(now, from, received.bytes) {
                    Routed::Known(number) => {
                        if let Some(shared) = state.connections.get(&number) {
                            lock(shared).connection.handle(now, received);
                        }
                    }
                    Routed::New(number, connection) => {
                        let shared = Arc::new(Mutex::new(Inner::new(*connection)));
                        state.connections.insert(number, shared);
                    }
                    Routed::Refused(reply) => {
                        let transmit = Transmit { to: from, segment: reply.len() };
                        // As likely to be lost on the network as here.
                        let _ = self.socket.send(&transmit, &reply);
                    }
                    Routed::Dropped => {}
                }
            }
        }
        Ok(true)
    }

    /// Lets each connection do what is due; gives when to come again and whether one is not done.
    fn serve_connections(&mut self) -> (Instant, bool) {
        let connections: Vec<(u32, Shared)> = {
            let state = lock(&self.core.state);
            state.connections.iter().map(|(&number, shared)| (number, shared.clone())).collect()
        };
        let (mut wake_at, mut busy) = (Instant::FAR_FUTURE, false);
        for (number, shared) in connections {
            let mut inner = lock(&shared);
            inner.connection.handle_timeout(clock::now());
            busy |= self.transmit(&mut inner);
            let established = inner.wake();
            wake_at = wake_at.min(inner.plan());
            let closed = inner.connection.is_closed();
            drop(inner);
            if closed || established {
                self.on_change(number, &shared, closed);
            }
        }
        (wake_at, busy)
    }

    fn on_change(&self, number: u32, shared: &Shared, closed: bool) {
        let mut state = lock(&self.core.state);
        if closed {
            state.endpoint.forget(number);
            state.connections.remove(&number);
        } else {
            let mut inner = lock(shared);
            let full = state.accepted.len() >= MAX_BACKLOG;
            if inner.connection.side() == Side::Initiator {
                // Whoever connected waits for it.
            } else if full || self.core.stopping.load(Ordering::Relaxed) {
                inner.connection.close(clock::now(), BUSY, "no room for another connection");
            } else {
                drop(inner);
                state.accepted.push(shared.clone());
            }
        }
        state.waiting.drain(..).for_each(Waker::wake);
    }

    /// Sends what the connection wants; whether it wants to send more at once.
    fn transmit(&mut self, inner: &mut Inner) -> bool {
        if let Some((transmit, contents)) = self.held.take() {
            self.send(transmit, contents);
        }
        for _ in 0..SEND_ROUNDS {
            if self.held.is_some() {
                return false;
            }
            let mut out = core::mem::take(&mut self.out);
            let Some(transmit) = inner.connection.poll_transmit(clock::now(), &mut out) else {
                self.out = out;
                return false;
            };
            self.send(transmit, out);
        }
        true
    }

    /// Sends; keeps what a full socket does not take. An error loses the batch, as the network
    /// may: a probe can be too long for an interface, an interface can be down for a while.
    fn send(&mut self, transmit: Transmit, mut contents: Vec<u8>) {
        match self.socket.send(&transmit, &contents) {
            Ok(sent) if sent < contents.len() => {
                contents.drain(..sent);
                self.held = Some((transmit, contents));
            }
            _ => self.out = contents,
        }
    }

    fn sleep(&self, until: Instant) {
        // With a full socket nothing is due before it has room.
        let until = if self.held.is_some() { Instant::FAR_FUTURE } else { until };
        let wait = until.since(clock::now()).min(Duration::from_secs(1));
        let Ok(timeout) = Timespec::try_from(wait) else {
            return;
        };
        let interest = match self.held {
            Some(_) => PollFlags::IN | PollFlags::OUT,
            None => PollFlags::IN,
        };
        let mut fds =
            [PollFd::new(&self.socket, interest), PollFd::new(self.core.alarm.fd(), PollFlags::IN)];
        // Interrupted or not: the loop looks at everything again.
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
        if fds[1].revents().contains(PollFlags::IN) {
            self.core.alarm.silence();
        }
    }
}

/// However the thread ends, nobody waits for it any longer.
struct Ended {
    core: Arc<Core>,
    why: io::ErrorKind,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let mut state = lock(&self.core.state);
        state.failed = Some(self.why);
        for (_, shared) in state.connections.drain() {
            lock(&shared).fail("the socket of this side has failed");
        }
        state.waiting.drain(..).for_each(Waker::wake);
    }
}

/// Errors that ICMP messages about earlier datagrams leave on a socket.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::Interrupted
    )
}

//! The thread that moves datagrams between a socket and its connections.
//!
//! One loop: receive what waits, let each connection that has something to do send what is due,
//! pass events on, sleep until the next time that matters. It runs outside the async runtime
//! because pacing needs finer timers than a runtime's milliseconds.
//!
//! An endpoint may have several drivers, each with a socket of its own bound to the same address.
//! The kernel gives each a share of the peers; whichever socket a datagram comes to, it reaches
//! its connection, so a peer that changes its address need not be steered.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use transport::wire::Opening;
use transport::{Received, Transmit, Unreachable};
use units::Instant;

use super::core::{Core, Taken};
use super::roster::Roster;
use super::shared::{Inner, Shared};
use super::slice;
use super::socket::{BatchSocket, Buffers, is_fatal};
use crate::clock;

/// Receive calls before sending gets its turn again.
const RECEIVE_ROUNDS: usize = 4;
/// Batches a connection may send before receiving gets its turn again.
const SEND_ROUNDS: usize = 8;
/// Errors of the network looked at in one go; more are dropped.
const MAX_ERRORS: usize = 64;

pub(super) struct Driver {
    core: Arc<Core>,
    /// Which of the core's drivers this is.
    index: usize,
    socket: Arc<BatchSocket>,
    buffers: Buffers,
    roster: Roster,
    /// Those served in this round.
    round: Vec<u32>,
    /// A batch that the socket had no room for.
    held: Option<(Transmit, Vec<u8>)>,
    out: Vec<u8>,
}

impl Driver {
    pub(super) fn new(core: Arc<Core>, index: usize, socket: Arc<BatchSocket>) -> Self {
        Self {
            core,
            index,
            socket,
            buffers: Buffers::new(),
            roster: Roster::default(),
            round: Vec::new(),
            held: None,
            out: Vec::new(),
        }
    }

    /// Runs until the endpoint is dropped and its connections have ended, or the socket fails.
    pub(super) fn run(mut self) {
        // Without it the pace is kept less well, no more.
        let _ = slice::shorten();
        let mut guard = Ended { core: self.core.clone(), why: io::ErrorKind::Other };
        guard.why = loop {
            let full = match self.receive() {
                Ok(full) => full,
                Err(error) => break error.kind(),
            };
            for number in self.core.alarm(self.index).take() {
                self.on_ring(number);
            }
            self.roster.activate_due(clock::now());
            self.serve();
            if self.core.is_over() {
                break io::ErrorKind::NotConnected;
            }
            if !full {
                self.sleep();
            }
        };
    }

    fn on_ring(&mut self, number: u32) {
        if self.roster.find(number).is_none()
            && let Some(shared) = self.core.find(number)
        {
            self.roster.insert(number, shared);
        }
        self.roster.activate(number);
    }

    /// Takes in what waits; whether there may be more.
    fn receive(&mut self) -> io::Result<bool> {
        for _ in 0..RECEIVE_ROUNDS {
            match self.socket.receive(&mut self.buffers) {
                Ok(count) => self.take_in(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if is_fatal(&error) => return Err(error),
                Err(_) => self.take_errors(),
            }
        }
        Ok(true)
    }

    /// Hands the datagrams of `count` batches to their connections, each of which is locked once
    /// for all that follow one another.
    fn take_in(&mut self, count: usize) {
        let (now, wall) = clock::both();
        let mut datagrams = self.buffers.datagrams((now, wall), count).peekable();
        while let Some(first) = datagrams.next() {
            let known = number(&first).and_then(|of| Some((of, self.roster.find(of)?.clone())));
            let taken = match known {
                Some((of, shared)) => Taken::For(of, shared),
                None => self.core.route(self.index, &first),
            };
            match taken {
                Taken::For(of, shared) => {
                    let mut inner = shared.lock();
                    inner.connection.handle(now, first);
                    while let Some(next) = datagrams.next_if(|next| number(next) == Some(of)) {
                        inner.connection.handle(now, next);
                    }
                    if inner.owner == self.index {
                        self.roster.activate(of);
                    } else {
                        self.core.alarm(inner.owner).ring(of);
                    }
                }
                Taken::Answered(reply) => {
                    let (to, from, segment) = (first.from, first.to, reply.len());
                    let transmit = Transmit { to, from, segment, ecn: false };
                    // As likely to be lost on the network as here.
                    let _ = self.socket.send(&transmit, &reply);
                }
                Taken::Nothing => {}
            }
        }
    }

    /// Tells connections what the network said of their datagrams.
    fn take_errors(&mut self) {
        let errors = core::iter::from_fn(|| self.socket.next_error()).take(MAX_ERRORS);
        let mut errors: Vec<(SocketAddr, Unreachable)> = errors.flatten().collect();
        errors.sort_unstable();
        errors.dedup();
        let now = clock::now();
        for (address, what) in errors {
            for shared in self.roster.activate_at(address) {
                shared.lock().connection.on_unreachable(now, what);
            }
        }
    }

    /// Lets each connection with something to do do it.
    fn serve(&mut self) {
        let mut round = core::mem::take(&mut self.round);
        self.roster.take_active(&mut round);
        for &number in &round {
            let Some(shared) = self.roster.find(number).cloned() else { continue };
            self.serve_one(number, &shared);
        }
        self.round = round;
    }

    fn serve_one(&mut self, number: u32, shared: &Shared) {
        let mut inner = shared.lock();
        inner.connection.handle_timeout(clock::now());
        if self.transmit(&mut inner) {
            self.roster.activate(number);
        }
        let established = inner.wake();
        let (at, address) = (inner.plan(), inner.connection.address());
        let closed = inner.connection.is_closed();
        drop(inner);
        if closed {
            self.roster.remove(number);
        } else {
            self.roster.plan(number, at, address);
        }
        if closed || established {
            self.core.on_change(number, shared, closed);
        }
    }

    /// Sends what the connection wants; whether it wants to send more at once.
    fn transmit(&mut self, inner: &mut Inner) -> bool {
        if let Some((transmit, contents)) = self.held.take() {
            self.send(transmit, contents);
        }
        for _ in 0..SEND_ROUNDS {
            if self.held.is_some() {
                inner.connection.on_socket_full(clock::now());
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

    fn sleep(&mut self) {
        // With a full socket nothing is due before it has room.
        let until = if self.held.is_some() { Instant::FAR_FUTURE } else { self.roster.next() };
        let wait = until.since(clock::now()).min(Duration::from_secs(1));
        let Ok(timeout) = Timespec::try_from(wait) else {
            return;
        };
        let interest = match self.held {
            Some(_) => PollFlags::IN | PollFlags::OUT,
            None => PollFlags::IN,
        };
        let alarm = self.core.alarm(self.index);
        if wait.is_zero() || !alarm.may_sleep() {
            return;
        }
        let mut fds =
            [PollFd::new(&*self.socket, interest), PollFd::new(alarm.fd(), PollFlags::IN)];
        // Interrupted or not: the loop looks at everything again.
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
        let [socket, rang] = fds.each_ref().map(PollFd::revents);
        alarm.silence(rang.contains(PollFlags::IN));
        if socket.contains(PollFlags::ERR) {
            // A send may have reported the error: until its queue is read, nobody can sleep.
            self.take_errors();
        }
        if let Some((transmit, contents)) = self.held.take() {
            self.send(transmit, contents);
        }
    }
}

/// The connection's number in a sealed packet.
fn number(received: &Received<'_>) -> Option<u32> {
    let number = received.bytes.get(4..8).filter(|_| !Opening::is_opening(received.bytes))?;
    Some(u32::from_be_bytes(number.try_into().ok()?))
}

/// However the thread ends, nobody waits for it any longer.
struct Ended {
    core: Arc<Core>,
    why: io::ErrorKind,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.core.fail(self.why);
    }
}

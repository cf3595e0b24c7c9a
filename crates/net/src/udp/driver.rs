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
use transport::wire::Header;
use transport::{Received, Transmit, Unreachable};
use units::Instant;

use super::core::{Core, Taken};
use super::receive::Buffers;
use super::roster::Roster;
use super::shared::{Barred, Inner, Shared};
use super::slice;
use super::socket::{self, BatchSocket, is_fatal};
use crate::clock;

/// Receive calls before sending gets its turn again.
const RECEIVE_ROUNDS: usize = 4;
/// Batches a connection may send before receiving gets its turn again.
const SEND_ROUNDS: usize = 8;
/// Errors of the network looked at in one go; more are dropped.
const MAX_ERRORS: usize = 64;
/// How long a batch waits that an interface's queue had no room for.
const QUEUE_WAIT: Duration = Duration::from_millis(1);
/// So often it is tried.
const QUEUE_TRIES: u32 = 10;
/// How often the socket is asked what it had no room for.
const DROPS_INTERVAL: Duration = Duration::from_millis(50);

/// So many datagrams that came together are a stream of them: more follow, and each of them alone is not worth waking
/// for. Fewer may be a question.
const STREAM: usize = 3;
/// How long those that follow are left to gather, half the time that senders put into a batch. When they came
/// is known from the kernel.
const GATHER: Duration = Duration::from_micros(250);

/// A batch that there was no room for.
struct Held {
    /// Whose it is.
    number: u32,
    transmit: Transmit,
    contents: Vec<u8>,
    /// Not to be tried again before; `None`: as soon as the socket has room.
    at: Option<Instant>,
    /// How often a queue below the socket had no room for it.
    tries: u32,
}

pub(super) struct Driver {
    core: Arc<Core>,
    /// Which of the core's drivers this is.
    index: usize,
    socket: BatchSocket,
    buffers: Buffers,
    roster: Roster,
    /// Those served in this round.
    round: Vec<u32>,
    held: Option<Held>,
    /// The latest batch, once it is gone.
    out: Vec<u8>,
    /// When the socket was last asked what it had no room for.
    drops_seen: Instant,
    /// How many datagrams came since this thread last slept.
    came: usize,
}

impl Driver {
    pub(super) fn new(core: Arc<Core>, index: usize, socket: BatchSocket) -> Self {
        Self {
            core,
            index,
            socket,
            buffers: Buffers::new(),
            roster: Roster::default(),
            round: Vec::new(),
            held: None,
            out: Vec::new(),
            drops_seen: Instant::ZERO,
            came: 0,
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
            let now = clock::now();
            self.see_drops(now);
            self.send_held(now);
            self.roster.activate_due(now);
            self.serve();
            if self.core.is_over() {
                break io::ErrorKind::NotConnected;
            }
            if !full {
                self.sleep();
            }
        };
    }

    fn see_drops(&mut self, now: Instant) {
        if now >= self.drops_seen + DROPS_INTERVAL {
            self.drops_seen = now;
            self.core.note_drops(self.index, self.socket.drops());
        }
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
                Ok(_) => self.take_in(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if is_fatal(&error) => return Err(error),
                Err(_) => self.take_errors(),
            }
        }
        Ok(true)
    }

    /// Hands the datagrams that have come to their connections, each of which is locked once
    /// for all that follow one another.
    fn take_in(&mut self) {
        let (now, wall) = clock::both();
        // Nobody can be answered at port 0.
        let answerable = |received: &Received<'_>| received.from.port() != 0;
        let datagrams = self.buffers.datagrams((now, wall)).filter(answerable);
        let mut datagrams = datagrams.peekable();
        while let Some(first) = datagrams.next() {
            self.came += 1;
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
                        self.came += 1;
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
        let mut last = None;
        for &number in &round {
            let Some(shared) = self.roster.find(number).cloned() else { continue };
            let had_room = self.held.is_none();
            if !self.serve_one(number, &shared) {
                continue;
            }
            if had_room && self.held.is_some() {
                last = Some(number);
            } else {
                self.roster.activate(number);
            }
        }
        // Who has found no room comes after those who had to wait for it, or they would each time.
        last.into_iter().for_each(|number| self.roster.activate(number));
        self.round = round;
    }

    /// Whether it wants to send more at once.
    fn serve_one(&mut self, number: u32, shared: &Shared) -> bool {
        let mut inner = shared.lock();
        inner.connection.handle_timeout(clock::now());
        let wants_more = self.transmit(number, &mut inner);
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
        wants_more && !closed
    }

    /// Sends what the connection wants; whether it wants to send more at once.
    fn transmit(&mut self, number: u32, inner: &mut Inner) -> bool {
        for _ in 0..SEND_ROUNDS {
            if self.held.is_some() {
                inner.connection.on_socket_full(clock::now());
                return true;
            }
            let mut out = core::mem::take(&mut self.out);
            let Some(transmit) = inner.connection.poll_transmit(clock::now(), &mut out) else {
                self.out = out;
                return false;
            };
            if let Some(error) = self.send(number, transmit, out, 0) {
                self.tell(inner, &transmit, &error);
            }
        }
        true
    }

    /// Sends; keeps what there is no room for. Gives the error that has lost some of the batch.
    fn send(
        &mut self,
        number: u32,
        transmit: Transmit,
        mut contents: Vec<u8>,
        tries: u32,
    ) -> Option<io::Error> {
        // A batch may be too long for a queue that has room for one datagram.
        let at_once = if tries == 0 { contents.len() } else { transmit.segment };
        let (mut sent, mut error) = (0, None);
        for part in contents.chunks(at_once.max(1)) {
            let (gone, failed) = self.socket.send(&transmit, part);
            (sent, error) = (sent + gone, failed.or(error));
            if gone < part.len() {
                break;
            }
        }
        let is_full = error.as_ref().is_some_and(socket::is_queue_full);
        // As if the network had lost it: a filter drops it each time, or the queue is too short for it.
        let is_hopeless = is_full && tries + 1 == QUEUE_TRIES;
        if sent == contents.len() || is_hopeless {
            self.out = contents;
            return error.filter(|_| !is_hopeless);
        }
        contents.drain(..sent);
        let at = is_full.then(|| clock::now() + QUEUE_WAIT);
        let tries = if is_full && sent == 0 { tries + 1 } else { 0 };
        self.held = Some(Held { number, transmit, contents, at, tries });
        None
    }

    /// Tells the connection why its latest batch has not left. What is not said is as if the network had
    /// lost it.
    fn tell(&self, inner: &mut Inner, transmit: &Transmit, error: &io::Error) {
        if socket::is_too_long(error) {
            inner.connection.on_too_long(transmit, &self.out);
        } else if socket::is_barred(error) {
            inner.barred = Some(Barred::new(error));
            inner.connection.on_unreachable(clock::now(), Unreachable::Address);
        }
    }

    /// Tries again what there was no room for.
    fn send_held(&mut self, now: Instant) {
        let Some(held) = self.held.take_if(|held| held.at.is_none_or(|at| now >= at)) else {
            return;
        };
        let Held { number, transmit, contents, tries, .. } = held;
        if let Some(error) = self.send(number, transmit, contents, tries)
            && let Some(shared) = self.roster.find(number).cloned()
        {
            self.tell(&mut shared.lock(), &transmit, &error);
            self.roster.activate(number);
        }
    }

    fn sleep(&mut self) {
        // What waits for room lets nothing pass before it.
        let until = match &self.held {
            Some(held) => held.at.unwrap_or(Instant::FAR_FUTURE),
            None => self.roster.next(),
        };
        let gathers = self.came >= STREAM && self.held.is_none();
        let most = if gathers { GATHER } else { Duration::from_secs(1) };
        let wait = until.since(clock::now()).min(most);
        let Ok(timeout) = Timespec::try_from(wait) else {
            return;
        };
        let interest = match self.held {
            Some(Held { at: None, .. }) => PollFlags::IN | PollFlags::OUT,
            // Errors are reported all the same.
            _ if gathers => PollFlags::empty(),
            _ => PollFlags::IN,
        };
        if wait.is_zero() || !self.core.may_sleep(self.index) {
            return;
        }
        let alarm = self.core.alarm(self.index);
        let mut fds = [PollFd::new(&self.socket, interest), PollFd::new(alarm.fd(), PollFlags::IN)];
        self.came = 0;
        // Interrupted or not: the loop looks at everything again.
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
        let [socket, rang] = fds.each_ref().map(PollFd::revents);
        alarm.silence(rang.contains(PollFlags::IN));
        if socket.contains(PollFlags::ERR) {
            // A send may have reported the error: until its queue is read, nobody can sleep.
            self.take_errors();
        }
    }
}

/// The connection's number in a sealed packet.
fn number(received: &Received<'_>) -> Option<u32> {
    Some(Header::decode(received.bytes).ok()?.connection)
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use transport::crypto::SharedKey;
    use transport::wire::{Kind, Opening};
    use transport::{Config, Endpoint};

    use super::*;

    /// Whoever finds a packet's connection spares it the way through the endpoint, and its lock.
    #[test]
    fn sealed_packets_tell_their_connection() {
        let header = Header {
            kind: Kind::Data,
            fin: true,
            follows: true,
            epoch: 0x11,
            connection: 0x2233_4455,
            number: 0x6677_8899,
        };
        let of = |bytes: &mut [u8]| {
            let from = (Ipv4Addr::LOCALHOST, 1).into();
            number(&Received { from, to: None, arrived: clock::now(), ce: false, bytes })
        };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        assert_eq!(of(&mut bytes), Some(header.connection));
        assert_eq!(of(&mut bytes[1..]), None);
        bytes.clear();
        Opening::Gone { connection: header.connection, token: &[1; 16] }.encode(&mut bytes);
        assert_eq!(of(&mut bytes), None);
    }

    #[test]
    fn what_the_socket_had_no_room_for_is_told() {
        let home = (Ipv4Addr::LOCALHOST, 0);
        let socket = BatchSocket::bind(home.into(), false).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 0).unwrap();
        let sender = UdpSocket::bind(home).unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 1200], socket.local_address().unwrap()).unwrap();
        }
        let key = SharedKey::from_bytes([1; 32]);
        let endpoint = Endpoint::new(key, Config::default(), true, [2; 32]);
        let core = Arc::new(Core::new(endpoint, 1).unwrap());
        let mut driver = Driver::new(core.clone(), 0, socket);
        driver.see_drops(clock::now());
        assert!((1..=100).contains(&core.drops()), "{}", core.drops());
    }
}

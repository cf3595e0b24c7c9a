//! The loopback form: a path for UDP alone, in process, without privileges.

use core::time::Duration;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use path::PathConfig;
use quinn_udp::EcnCodepoint;
use units::{Bytes, Instant};

use crate::clock::Clock;
use crate::engine::{Carrier, Engine};
use crate::error::{Attempt, LabError};
use crate::lane::{Effect, Lane, Outlet, Segments, lanes};
use crate::report::{LabReport, LaneReport};
use crate::sources::Sources;
use crate::udp::{Received, Udp};

/// Clients served at a time; a new one takes the place of the one that was silent longest.
const MAX_CLIENTS: usize = 64;

/// Batches read from one socket before others and what is due have their turn.
const BATCH: u64 = 8;

/// The number of the socket that clients send to, among the engine's sources; theirs follow.
const FRONT: u64 = 0;

/// What a datagram's headers weigh on the path: IPv4 and UDP, whatever loopback uses.
const HEADERS: usize = 28;

/// The longest IP packet the path takes, as between the namespaces. Loopback itself takes 64 KiB.
const MTU: usize = 1500;

/// A UDP relay: what is sent to its address crosses the path and reaches the target, and answers
/// return the same way. It needs no privileges and carries nothing but UDP: a relay that ended
/// TCP connections would hide the path's losses from them.
pub struct Relay {
    engine: Engine<Exchange>,
    address: SocketAddr,
}

impl Relay {
    /// Starts a relay to `target` on the loopback interface, at a free port.
    ///
    /// # Errors
    /// The path is impossible, or a socket could not be made.
    pub fn start(path: &PathConfig, target: SocketAddr) -> Result<Self, LabError> {
        let lanes = lanes(path, &[], &[], Bytes(MTU as u64))?;
        let here = if target.is_ipv4() {
            SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
        } else {
            SocketAddr::from((Ipv6Addr::LOCALHOST, 0))
        };
        let front = Udp::bind(here).attempt("open the relay's socket")?;
        let address = front.local_address().attempt("find the relay's address")?;
        let sources = Sources::new().map(Arc::new).attempt("make an epoll set")?;
        sources.add(&front, FRONT).attempt("watch the relay's socket")?;
        let clients = Clients {
            target,
            known: Vec::new(),
            sources: Arc::clone(&sources),
            last_source: FRONT,
        };
        let engine = Engine::start(Exchange { lanes, front, clients }, sources)
            .attempt("start the emulator thread")?;
        Ok(Self { engine, address })
    }

    /// Where to send what is meant for the target.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What happened so far.
    pub fn stats(&self) -> LabReport {
        self.engine.report()
    }

    /// Ends the relay and says what happened. Datagrams still under way are lost.
    pub fn stop(self) -> LabReport {
        self.stats()
    }
}

/// One client, with a socket of its own towards the target, by which answers find back.
struct Client {
    address: SocketAddr,
    upstream: Udp,
    /// Its number among the engine's sources.
    source: u64,
}

/// Datagrams received together.
struct Parcel {
    client: Arc<Client>,
    stride: usize,
    ecn: Option<EcnCodepoint>,
}

impl Segments for Parcel {
    fn count(&self, len: usize) -> u32 {
        len.div_ceil(self.stride).max(1) as u32
    }

    fn size(&self, len: usize, index: u32) -> Bytes {
        Bytes((self.stride.min(len - index as usize * self.stride) + HEADERS) as u64)
    }

    fn prefix(&self, len: usize, count: u32) -> usize {
        len.min(count as usize * self.stride)
    }

    fn flow(&self, _: &[u8]) -> u64 {
        u64::from(self.client.address.port())
    }

    fn ecn_capable(&self, _: &[u8]) -> bool {
        self.ecn.is_some()
    }
}

/// Receives what the path takes; what is too long for it vanishes.
fn receive(socket: &Udp, space: &mut [u8]) -> io::Result<Received> {
    loop {
        match socket.receive(space) {
            Ok(got) if got.stride + HEADERS <= MTU => return Ok(got),
            Ok(_) => {}
            Err(error) => pass_over_refusals(error)?,
        }
    }
}

/// The segments' bytes.
fn cut<'a>(frame: &'a [u8], parcel: &Parcel, segments: Range<u32>) -> &'a [u8] {
    let start = segments.start as usize * parcel.stride;
    &frame[start..frame.len().min(segments.end as usize * parcel.stride)]
}

/// How datagrams are marked when they arrive.
fn mark(parcel: &Parcel, effect: Effect) -> Option<EcnCodepoint> {
    if effect.marked { Some(EcnCodepoint::Ce) } else { parcel.ecn }
}

struct Clients {
    target: SocketAddr,
    /// The most recent first.
    known: Vec<Arc<Client>>,
    sources: Arc<Sources>,
    /// The number of the newest client's source.
    last_source: u64,
}

impl Clients {
    fn find(&mut self, address: SocketAddr) -> io::Result<Arc<Client>> {
        if let Some(at) = self.known.iter().position(|client| client.address == address) {
            self.known[..=at].rotate_right(1);
        } else {
            let any = match self.target {
                SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            };
            let upstream = Udp::bind(any)?.connect(self.target)?;
            self.last_source += 1;
            let source = self.last_source;
            self.sources.add(&upstream, source)?;
            if self.known.len() == MAX_CLIENTS {
                // What is under way to its target keeps the socket, of which nobody reads now.
                let silent = self.known.pop();
                silent.map(|client| self.sources.remove(&client.upstream)).transpose()?;
            }
            self.known.insert(0, Arc::new(Client { address, upstream, source }));
        }
        Ok(Arc::clone(&self.known[0]))
    }
}

/// The sockets and the lanes between them.
struct Exchange {
    lanes: [Lane<Parcel>; 2],
    front: Udp,
    clients: Clients,
}

/// Where a lane ends: at the target, or without one at the client.
struct Outward<'a> {
    front: &'a Udp,
    target: Option<SocketAddr>,
}

impl Outlet<Parcel> for Outward<'_> {
    fn emit(
        &mut self,
        frame: &[u8],
        meta: &Parcel,
        segments: Range<u32>,
        effect: Effect,
    ) -> io::Result<()> {
        if effect.damage.is_some() {
            return Ok(()); // The receiver's checksum finds every single bit.
        }
        let (socket, to) = match self.target {
            Some(target) => (&meta.client.upstream, target),
            None => (self.front, meta.client.address),
        };
        let send =
            || socket.send(cut(frame, meta, segments.clone()), meta.stride, to, mark(meta, effect));
        match send() {
            // What an earlier datagram met: nobody listens at the target. This one has its turn.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => send(),
            result => result,
        }
        .or_else(pass_over_refusals)
    }
}

/// That nobody listens at the target is no fault of the path: a datagram that comes there is lost
/// as on any network.
fn pass_over_refusals(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::ConnectionRefused { Ok(()) } else { Err(error) }
}

impl Carrier for Exchange {
    fn emit_due(&mut self, clock: &Clock) {
        let Self { lanes: [forward, back], front, clients } = self;
        forward.emit_due(clock, &mut Outward { front, target: Some(clients.target) });
        back.emit_due(clock, &mut Outward { front, target: None });
    }

    fn take_in(
        &mut self,
        clock: &Clock,
        source: u64,
        arrived: Option<Instant>,
        waited: Duration,
    ) -> bool {
        let arrived = (arrived, waited);
        let Self { lanes: [forward, back], front, clients } = self;
        // Loopback has no way to tell a sender of a smaller MTU.
        let untold = |_: &[u8], _: &Parcel, _, _| {};
        if source == FRONT {
            let from_client = |space: &mut [u8]| {
                let got = receive(front, space)?;
                let client = clients.find(got.from)?;
                Ok((got.len, Parcel { client, stride: got.stride.max(1), ecn: got.ecn }))
            };
            forward.take_batch(clock, arrived, BATCH, from_client, untold)
        } else if let Some(client) = clients.known.iter().find(|client| client.source == source) {
            let from_target = |space: &mut [u8]| {
                let got = receive(&client.upstream, space)?;
                let client = Arc::clone(client);
                Ok((got.len, Parcel { client, stride: got.stride.max(1), ecn: got.ecn }))
            };
            back.take_batch(clock, arrived, BATCH, from_target, untold)
        } else {
            false
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.lanes.iter().filter_map(Lane::next_due).min()
    }

    fn report(&self) -> [LaneReport; 2] {
        let mut reports = self.lanes.each_ref().map(Lane::report);
        let answers = self.clients.known.iter().map(|client| client.upstream.overflow());
        reports[0].outside.device_overflow = self.front.overflow();
        reports[1].outside.device_overflow = answers.sum();
        reports
    }
}

//! A flow over our own transport: the very code of the product, between two sockets.

use core::net::SocketAddr;

use transport::crypto::Sealing;
use transport::{Config, Event, ReadOutcome, WriteOutcome};
use units::{Bytes, Instant};

use super::flow::{End, Flow, Standing};
use super::outcome::Documents;
use super::transit::{Body, Outlet, Trimmed};
use crate::world::HEADERS;
use crate::{Arrived, Datagram, Socket};

/// What the application writes or reads in one go.
const CHUNK: usize = 64 << 10;
/// Bytes that it lets wait to be sent: more than goes out at once, and little enough to stay in
/// the processor's cache.
const AHEAD: u64 = 128 << 10;
/// What it writes.
static CONTENT: [u8; CHUNK] = [0; CHUNK];

pub(super) struct UdpFlow {
    sockets: [Socket; 2],
    /// The stream, as its sender and as its receiver know it.
    streams: [Option<u64>; 2],
    /// Still to be written; to a greedy source's there is no end.
    left: u64,
    delivered: u64,
    /// When it begins; `None` once it has.
    begin: Option<Instant>,
    started: Instant,
    finished: Option<Instant>,
    buffer: Vec<u8>,
    /// The largest datagram that the hosts' devices take.
    largest: usize,
    /// What arrived last.
    arrived: Vec<u8>,
    /// What answers it at once.
    answers: Vec<Datagram>,
}

impl UdpFlow {
    /// A flow of `amount` bytes, between devices of this MTU.
    /// Seals cost more than all the rest, and say nothing of the network: there are none.
    pub(super) fn new(config: &Config, amount: u64, mtu: Bytes, start: Instant, seed: u64) -> Self {
        let socket = |end: u8| {
            let mut bytes = [end + 1; 32];
            bytes[..8].copy_from_slice(&(seed ^ u64::from(end)).to_be_bytes());
            let config = Config { sealing: Sealing::Simulated, ..*config };
            Socket::new(address(end), config, bytes)
        };
        Self {
            sockets: [socket(0), socket(1)],
            streams: [None; 2],
            left: amount,
            delivered: 0,
            begin: Some(start),
            started: start,
            finished: None,
            buffer: vec![0; CHUNK],
            largest: (mtu.0 - HEADERS) as usize,
            arrived: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn send(&mut self) {
        let Some(connection) = self.sockets[0].connection() else { return };
        let mut met = false;
        while let Some(event) = connection.poll_event() {
            met |= matches!(event, Event::Established);
        }
        if met {
            self.streams[0] = connection.open().ok();
        }
        let Some(stream) = self.streams[0] else { return };
        while self.left > 0 {
            let room = AHEAD.saturating_sub(connection.queued().0.0);
            let chunk = &CONTENT[..self.left.min(CHUNK as u64).min(room) as usize];
            if chunk.is_empty() {
                break;
            }
            let WriteOutcome::Written(len) = connection.write(stream, chunk) else { break };
            self.left -= len as u64;
            if self.left == 0 {
                connection.finish(stream);
            }
        }
        if met {
            self.sockets[0].on_established();
        }
    }

    fn receive(&mut self, now: Instant) {
        let Some(connection) = self.sockets[1].connection() else { return };
        let (mut met, mut news) = (false, false);
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Established => met = true,
                Event::Opened(stream) => (self.streams[1], news) = (Some(stream), true),
                Event::Readable(_) => news = true,
                _ => {}
            }
        }
        if let Some(stream) = self.streams[1].filter(|_| news) {
            loop {
                match connection.read(now, stream, &mut self.buffer) {
                    ReadOutcome::Read(len) => self.delivered += len as u64,
                    ReadOutcome::End => {
                        self.finished.get_or_insert(now);
                        break;
                    }
                    ReadOutcome::Blocked | ReadOutcome::Reset(_) => break,
                }
            }
        }
        if met {
            self.sockets[1].on_established();
        }
    }

    /// Sends what the devices take, for probes for jumbo frames vanish; whether that was anything.
    fn flush(&mut self, now: Instant, end: End, out: &mut Outlet<'_>) -> bool {
        let (largest, mut any) = (self.largest, false);
        self.sockets[end as usize].flush_to(now, |transmit, bytes| {
            any = true;
            if bytes.len() <= largest {
                out.send_datagram(Trimmed::new(bytes, transmit.ecn));
            }
        });
        any
    }

    fn work(&mut self, now: Instant, end: End) {
        match end {
            End::Sender => self.send(),
            End::Receiver => self.receive(now),
        }
    }
}

fn address(end: u8) -> SocketAddr {
    ([10, end, 0, 1], 7272).into()
}

impl Flow for UdpFlow {
    fn arrive(&mut self, now: Instant, end: End, body: Body, out: &mut Outlet<'_>) {
        let Some(datagram) = out.take_datagram(body) else { return };
        datagram.restore(&mut self.arrived);
        let from = address(1 - end as u8);
        let arrived = Arrived { from, at: now, ce: datagram.ce, bytes: &mut self.arrived };
        self.sockets[end as usize].receive(now, arrived, &mut self.answers);
        for answer in self.answers.drain(..) {
            out.send_datagram(Trimmed::new(&answer.bytes, answer.ecn_capable));
        }
    }

    fn run(&mut self, now: Instant, end: End, out: &mut Outlet<'_>) {
        if end == End::Sender && self.begin.take_if(|begin| *begin <= now).is_some() {
            self.sockets[0].connect(now, address(1));
        }
        loop {
            self.work(now, end);
            // What was sent has made room for more.
            if !self.flush(now, end, out) {
                break;
            }
        }
    }

    fn next(&self, end: End) -> Option<Instant> {
        let begin = self.begin.filter(|_| end == End::Sender);
        begin.or_else(|| self.sockets[end as usize].next())
    }

    fn is_told_by_packets(&self) -> bool {
        true
    }

    fn standing(&self) -> Standing {
        let Some(connection) = self.sockets[0].latest() else {
            return Standing::default();
        };
        let stats = connection.stats();
        let mut documents = Documents::default();
        self.finished.iter().for_each(|end| documents.note(end.since(self.started)));
        Standing {
            delivered: self.delivered,
            rtt: Some(stats.rtt).filter(|rtt| !rtt.is_zero()),
            window: stats.window,
            rate: Some(stats.pacing_rate),
            sent: stats.sent.0,
            retransmitted: stats.lost.0,
            timeouts: stats.probes,
            documents,
            finished: self.finished,
        }
    }
}

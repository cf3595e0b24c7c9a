//! A flow over our own transport: the very code of the product, between two sockets.

use core::net::SocketAddr;

use transport::crypto::Sealing;
use transport::{Config, Connection, Delivery, Event, ReadOutcome, WriteOutcome};
use units::{Bytes, Instant};

use super::flow::{End, Flow, Standing};
use super::outcome::Documents;
use super::parcel::{Parcel, Trimmed};
use super::transit::Outlet;
use crate::world::HEADERS;
use crate::{Arrived, Datagram, Socket};

/// What the application writes or reads in one go.
const CHUNK: usize = 64 << 10;
/// Bytes that it lets wait to be sent: more than goes out at once, and little enough to stay in
/// the processor's cache.
const AHEAD: u64 = 128 << 10;
/// What it writes.
static CONTENT: [u8; CHUNK] = [0; CHUNK];
/// From so many bytes on a put has a journal there, and its client waits until the server knows of the
/// end (`CHECKPOINT` in `transfer`).
const JOURNAL: u64 = 8 << 20;

/// What the two ends say beside the bytes, and who is the client: the one that connects and opens the
/// stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Nothing: the sender writes, and all is done when the last byte has arrived.
    Plain,
    /// As `longhaul cp` sends a file: the server ends its direction when it has all; the client ends its
    /// own, with a journal, and closes.
    Put,
    /// As `longhaul cp` fetches one: the sender waits for the client's request, and the client, when it
    /// has all, ends its direction and closes.
    Get,
}

impl Manner {
    fn client(self) -> End {
        match self {
            Self::Plain | Self::Put => End::Sender,
            Self::Get => End::Receiver,
        }
    }
}

pub(super) struct UdpFlow {
    manner: Manner,
    /// Bytes in all.
    amount: u64,
    sockets: [Socket; 2],
    /// The stream, as its sender and as its receiver know it.
    streams: [Option<u64>; 2],
    /// Still to be written; to a greedy source's there is no end.
    left: u64,
    delivered: u64,
    /// The client of a copy has read the server's direction to its end: all is there.
    heard: bool,
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
    pub(super) fn new(
        config: &Config,
        (amount, manner): (u64, Manner),
        mtu: Bytes,
        start: Instant,
        seed: u64,
    ) -> Self {
        let socket = |end: u8| {
            let mut bytes = [end + 1; 32];
            bytes[..8].copy_from_slice(&(seed ^ u64::from(end)).to_be_bytes());
            let config = Config { sealing: Sealing::Simulated, ..*config };
            Socket::new(address(end), config, bytes)
        };
        Self {
            manner,
            amount,
            sockets: [socket(0), socket(1)],
            streams: [None; 2],
            left: amount,
            delivered: 0,
            heard: false,
            begin: Some(start),
            started: start,
            finished: None,
            buffer: vec![0; CHUNK],
            largest: (mtu.0 - HEADERS) as usize,
            arrived: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// What the application of an end does, by what it knows itself: the other may be at another site.
    fn work(&mut self, now: Instant, end: End) {
        let Some(connection) = self.sockets[end as usize].connection() else { return };
        let (mut met, mut news) = (false, false);
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Established => met = true,
                Event::Opened(stream) => {
                    (self.streams[end as usize], news) = (Some(stream), true);
                }
                Event::Readable(_) => news = true,
                _ => {}
            }
        }
        let is_client = end == self.manner.client();
        if met && is_client {
            self.streams[end as usize] = connection.open().ok();
        }
        if let Some(stream) = self.streams[end as usize] {
            if end == End::Sender {
                self.send(stream);
            } else if met && is_client {
                // The request: the server learns of a stream by its first bytes.
                connection.write(stream, &CONTENT[..1]);
            }
            if news {
                self.read(now, end, stream);
            }
            if is_client && self.heard {
                self.part(now, end, stream);
            }
        }
        if met {
            self.sockets[end as usize].on_established();
        }
    }

    fn send(&mut self, stream: u64) {
        let Some(connection) = self.sockets[0].connection() else { return };
        while self.left > 0 {
            let room = AHEAD.saturating_sub(connection.queued().0.0);
            let chunk = &CONTENT[..self.left.min(CHUNK as u64).min(room) as usize];
            if chunk.is_empty() {
                break;
            }
            let WriteOutcome::Written(len) = connection.write(stream, chunk) else { break };
            self.left -= len as u64;
            if self.left == 0 && self.manner != Manner::Put {
                connection.finish(stream);
            }
        }
    }

    fn read(&mut self, now: Instant, end: End, stream: u64) {
        let Some(connection) = self.sockets[end as usize].connection() else { return };
        loop {
            match connection.read(now, stream, &mut self.buffer) {
                ReadOutcome::Read(len) if end == End::Receiver => self.delivered += len as u64,
                ReadOutcome::Read(_) => {}
                ReadOutcome::End => {
                    if self.manner == Manner::Plain {
                        self.finished.get_or_insert(now);
                    } else if end == self.manner.client() {
                        self.heard = true;
                    }
                    break;
                }
                ReadOutcome::Blocked | ReadOutcome::Reset(_) => break,
            }
        }
        let has_all = end == End::Receiver && self.delivered == self.amount;
        if has_all && self.manner == Manner::Put {
            connection.finish(stream);
        }
    }

    /// The client of a copy takes its leave.
    fn part(&mut self, now: Instant, end: End, stream: u64) {
        let Some(connection) = self.sockets[end as usize].connection() else { return };
        if self.manner == Manner::Get || self.amount >= JOURNAL {
            connection.finish(stream);
            if connection.delivery(stream) == Delivery::Pending {
                return;
            }
        }
        connection.close(now, 0, "done");
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
}

fn address(end: u8) -> SocketAddr {
    ([10, end, 0, 1], 7272).into()
}

impl Flow for UdpFlow {
    fn arrive(&mut self, now: Instant, end: End, parcel: &Parcel, out: &mut Outlet<'_>) {
        let Some(datagram) = out.take_datagram(parcel) else { return };
        datagram.restore(&mut self.arrived);
        let from = address(1 - end as u8);
        let arrived = Arrived { from, at: now, ce: datagram.ce, bytes: &mut self.arrived };
        self.sockets[end as usize].receive(now, arrived, &mut self.answers);
        for answer in self.answers.drain(..) {
            out.send_datagram(Trimmed::new(&answer.bytes, answer.ecn_capable));
        }
    }

    fn run(&mut self, now: Instant, end: End, out: &mut Outlet<'_>) {
        let is_client = end == self.manner.client();
        if is_client && self.begin.take_if(|begin| *begin <= now).is_some() {
            self.sockets[end as usize].connect(now, address(1 - end as u8));
        }
        loop {
            self.work(now, end);
            // What was sent has made room for more.
            if !self.flush(now, end, out) {
                break;
            }
        }
        // The other end has answered the close, or will not.
        let is_over = || self.sockets[end as usize].latest().is_some_and(Connection::is_closed);
        if is_client && self.heard && is_over() {
            self.finished.get_or_insert(now);
        }
    }

    fn next(&self, end: End) -> Instant {
        let begin = self.begin.filter(|_| end == self.manner.client());
        begin.or_else(|| self.sockets[end as usize].next()).unwrap_or(Instant::FAR_FUTURE)
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
            connections: None,
            sent: stats.sent.0,
            retransmitted: stats.lost.0,
            timeouts: stats.probes,
            documents,
            finished: self.finished,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Study;
    use super::super::outcome::FlowReport;

    /// The only flow's report, over a round trip of 200 ms.
    fn run(loss: f64, seed: u64, flow: &str) -> FlowReport {
        let study: Study = format!(
            "about = \"A test\"\nrtt = \"200ms\"\nduration = \"30s\"\nseed = {seed}\n\
             both = {{ rate = \"1gbit\", loss = {loss} }}\n[[flow]]\n{flow}\n"
        )
        .parse()
        .expect("a scenario");
        study.run().flows.remove(0)
    }

    /// Round trips until it is done.
    fn trips(source: &str, from: &str) -> f64 {
        let flow = run(0.0, 1, &format!("source = \"{source}\"\nfrom = \"{from}\""));
        flow.finished.unwrap_or_else(|| panic!("{flow:?}")) / 0.2
    }

    /// What `longhaul cp` took on an emulated path, of one byte: 3.05 and 4.1 round trips.
    #[test]
    fn a_copy_takes_the_round_trips_of_its_words() {
        let near = |found: f64, trips: f64| {
            assert!((found - trips).abs() < 0.1, "{found}, not {trips}");
        };
        near(trips("1B", "near"), 1.5);
        near(trips("copy:1B", "near"), 3.0);
        near(trips("copy:1B", "far"), 4.0);
        for (size, put) in [("1MiB", 1.5), ("16MiB", 2.5)] {
            let beside = |from: &str| trips(&format!("copy:{size}"), from) - trips(size, from);
            near(beside("near"), put);
            near(beside("far"), 2.5);
        }
    }

    /// A copy of a byte is hardly anything but words.
    #[test]
    fn words_that_are_lost_are_said_again() {
        let copy = |source: &str, from: &str, seed: u64| {
            let flow = format!("source = \"copy:{source}\"\nfrom = \"{from}\"");
            run(0.2, seed, &flow).finished.unwrap_or_else(|| panic!("{source} {from} {seed}"))
        };
        for from in ["near", "far"] {
            let took: Vec<_> = (1..=20).map(|seed| copy("1B", from, seed)).collect();
            assert!(took.iter().any(|took| *took > 1.0), "none was lost: {took:?}");
        }
        copy("10MB", "near", 1);
    }
}

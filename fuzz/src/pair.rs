//! Two ends of a connection: what their applications do, and what the network does, is the input;
//! a model of every stream says what must come of it.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use arbitrary::{Result, Unstructured};
use transport::cc::Algorithm;
use transport::crypto::SharedKey;
use transport::{
    Class, Config, Connection, Delivery, Endpoint, Event, Priority, ReadOutcome, Received, Routed,
    WriteOutcome,
};
use units::{Bytes, Instant, Rate};

/// Operations of one run at most.
const MOST: usize = 400;
/// Streams that one end opens at most.
const STREAMS: usize = 8;
/// Bytes on a stream at most.
const LENGTH: u64 = 200_000;
/// The code of every reset and stop.
const CODE: u64 = 7;
/// Between two looks at timers.
const STEP: Duration = Duration::from_millis(5);
/// Once nothing disturbs it any more, everything is done within this.
const ENOUGH: Duration = Duration::from_secs(60);
/// Datagrams of an end that the network holds; more are lost.
const WIRE: usize = 2000;

/// A stream's bytes depend on who writes them and where they stand.
fn byte(stream: u64, side: usize, at: u64) -> u8 {
    (at ^ (at >> 8)).wrapping_mul(31).wrapping_add(stream * 7 + side as u64) as u8
}

/// One direction of a stream, as it has to be.
#[derive(Clone, Debug, Default)]
struct Flow {
    written: u64,
    finished: bool,
    /// The writer gave up.
    reset: bool,
    /// The reader did.
    stopped: bool,
    read: u64,
    /// The reader has seen the end.
    over: bool,
}

struct End {
    endpoint: Endpoint,
    connection: Option<(u32, Connection)>,
    established: bool,
    opened: usize,
    /// The streams that it knows.
    streams: BTreeSet<u64>,
    /// What it sent and the network holds.
    wire: VecDeque<Vec<u8>>,
}

/// Both ends, the network between them, and the time.
struct Pair {
    now: Instant,
    ends: [End; 2],
    /// By stream and the end that writes.
    flows: BTreeMap<(u64, usize), Flow>,
}

fn address(side: usize) -> core::net::SocketAddr {
    ([10, 0, 0, side as u8 + 1], 7272).into()
}

impl Pair {
    /// Two ends that have met.
    fn new(config: Config) -> Self {
        let end = |side: u8| End {
            endpoint: Endpoint::new(SharedKey::from_bytes([1; 32]), config, side == 1, [side; 32]),
            connection: None,
            established: false,
            opened: 0,
            streams: BTreeSet::new(),
            wire: VecDeque::new(),
        };
        let now = Instant::from_nanos(1_000_000_000);
        let mut pair = Self { now, ends: [end(0), end(1)], flows: BTreeMap::new() };
        pair.ends[0].connection = Some(pair.ends[0].endpoint.connect(now, address(1)));
        while pair.ends.iter().any(|end| !end.established) {
            pair.pass();
        }
        pair
    }

    /// Everything on the wire arrives in order, and time goes on.
    fn pass(&mut self) {
        for side in [0, 1] {
            while let Some(datagram) = self.ends[side].wire.pop_front() {
                self.arrive(1 - side, datagram);
            }
        }
        self.wait(STEP);
    }

    fn arrive(&mut self, side: usize, mut bytes: Vec<u8>) {
        let (now, from, end) = (self.now, address(1 - side), &mut self.ends[side]);
        match end.endpoint.route(now, from, &bytes) {
            Routed::Known(number) => {
                if let Some((known, connection)) = &mut end.connection {
                    assert_eq!(number, *known);
                    let bytes = &mut bytes[..];
                    let received = Received { from, to: None, arrived: now, ce: false, bytes };
                    connection.handle(now, received);
                }
            }
            Routed::New(number, connection) => end.connection = Some((number, *connection)),
            Routed::Refused(_) | Routed::Dropped => {}
        }
        self.run(side);
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.run(0);
        self.run(1);
    }

    /// Timers, and all that is to be sent.
    fn run(&mut self, side: usize) {
        let (now, end) = (self.now, &mut self.ends[side]);
        let Some((number, connection)) = &mut end.connection else { return };
        let mut out = Vec::new();
        loop {
            connection.handle_timeout(now);
            let Some(transmit) = connection.poll_transmit(now, &mut out) else { break };
            for datagram in out.chunks(transmit.segment) {
                // The network carries what Ethernet does.
                if datagram.len() <= 1472 && end.wire.len() < WIRE {
                    end.wire.push_back(datagram.to_vec());
                }
            }
        }
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Established => {
                    assert!(!end.established, "established twice");
                    end.established = true;
                    end.endpoint.on_established(*number, connection);
                }
                Event::Opened(id) => {
                    assert!(self.flows.contains_key(&(id, 1 - side)), "nobody opened {id}");
                    assert!(end.streams.insert(id), "{id} was opened twice");
                }
                Event::Closed(reason) => panic!("nobody ended the connection: {reason}"),
                Event::Readable(_) | Event::Writable(_) | Event::Openable => {}
            }
        }
    }

    fn open(&mut self, side: usize) {
        if self.ends[side].opened < STREAMS
            && let Ok(id) = self.connection(side).open()
        {
            self.ends[side].opened += 1;
            self.ends[side].streams.insert(id);
            self.flows.extend([0, 1].map(|writer| ((id, writer), Flow::default())));
        }
    }

    fn connection(&mut self, side: usize) -> &mut Connection {
        &mut self.ends[side].connection.as_mut().expect("they have met").1
    }

    fn streams(&self, side: usize) -> Vec<u64> {
        self.ends[side].streams.iter().copied().collect()
    }

    /// What an end writes on a stream.
    fn flow(&mut self, id: u64, writer: usize) -> &mut Flow {
        self.flows.get_mut(&(id, writer)).expect("both directions of a stream are opened at once")
    }

    /// The stream of this end that the input chooses.
    fn stream(&self, side: usize, input: &mut Unstructured<'_>) -> Result<Option<u64>> {
        let ids = self.streams(side);
        if ids.is_empty() { Ok(None) } else { Ok(Some(*input.choose(&ids)?)) }
    }

    fn write(&mut self, side: usize, id: u64, len: u64) {
        let Flow { written, finished, reset, stopped, .. } = *self.flow(id, side);
        let bytes: Vec<u8> =
            (written..LENGTH.min(written + len)).map(|at| byte(id, side, at)).collect();
        let over = finished || reset;
        match self.connection(side).write(id, &bytes) {
            WriteOutcome::Written(len) => {
                assert!(!over, "{id} was written after its end");
                self.flow(id, side).written += len as u64;
            }
            WriteOutcome::Blocked => assert!(!over, "{id} blocks after its end"),
            WriteOutcome::Stopped => assert!(over || stopped, "{id} was stopped by nobody"),
        }
    }

    fn finish(&mut self, side: usize, id: u64) {
        self.connection(side).finish(id);
        self.flow(id, side).finished = true;
    }

    fn reset(&mut self, side: usize, id: u64) {
        self.connection(side).reset(id, CODE);
        self.flow(id, side).reset = true;
    }

    /// This end reads no more of what the other writes.
    fn stop(&mut self, side: usize, id: u64) {
        self.connection(side).stop(id, CODE);
        self.flow(id, 1 - side).stopped = true;
    }

    /// Reads at most `most` bytes of what the other end writes.
    fn read(&mut self, side: usize, id: u64, most: usize) -> bool {
        let now = self.now;
        let mut buffer = vec![0; most];
        let outcome = self.connection(side).read(now, id, &mut buffer);
        let flow = self.flow(id, 1 - side);
        match outcome {
            ReadOutcome::Read(len) => {
                assert!(!flow.over && flow.read + len as u64 <= flow.written);
                for (place, &read) in buffer[..len].iter().enumerate() {
                    assert_eq!(read, byte(id, 1 - side, flow.read + place as u64), "at {place}");
                }
                flow.read += len as u64;
            }
            ReadOutcome::Blocked => return false,
            ReadOutcome::End => {
                assert!(flow.stopped || flow.finished && flow.read == flow.written, "{flow:?}");
                flow.over = true;
                return false;
            }
            ReadOutcome::Reset(code) => {
                assert!(code == CODE && (flow.reset || flow.stopped), "{flow:?}");
                flow.over = true;
                return false;
            }
        }
        true
    }

    /// One thing that an application does.
    fn operate(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let side = usize::from(input.arbitrary::<bool>()?);
        let what = input.int_in_range(0..=9)?;
        if what == 0 {
            self.open(side);
            return Ok(());
        }
        let Some(id) = self.stream(side, input)? else { return Ok(()) };
        match what {
            1..=3 => self.write(side, id, input.int_in_range(0..=LENGTH / 4)?),
            4 | 5 => drop(self.read(side, id, input.int_in_range(1..=20_000)?)),
            6 => self.finish(side, id),
            7 => self.reset(side, id),
            8 => self.stop(side, id),
            _ => {
                let class = *input.choose(&[Class::Interactive, Class::Bulk, Class::Background])?;
                let (group, weight) = (input.int_in_range(0..=2)?, input.arbitrary()?);
                self.connection(side).set_priority(id, Priority { class, group, weight });
            }
        }
        self.run(side);
        Ok(())
    }

    /// One thing that the network does.
    fn disturb(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let side = usize::from(input.arbitrary::<bool>()?);
        let wire = &mut self.ends[side].wire;
        let place = input.int_in_range(0..=wire.len().max(1) - 1)?;
        match input.int_in_range(0..=9)? {
            // Any one arrives; mostly the first.
            0 => {
                if let Some(datagram) = wire.remove(place) {
                    self.arrive(1 - side, datagram);
                }
            }
            1 | 2 => {
                for datagram in core::mem::take(wire) {
                    self.arrive(1 - side, datagram);
                }
            }
            3 => drop(wire.remove(place)),
            4 => wire.clear(),
            // A copy arrives and the datagram stays.
            5 => {
                if let Some(datagram) = wire.get(place).cloned() {
                    self.arrive(1 - side, datagram);
                }
            }
            // A damaged copy, or something of the input's own.
            6 => {
                if let Some(mut datagram) = wire.get(place).cloned() {
                    let at = input.int_in_range(0..=datagram.len() - 1)?;
                    datagram[at] ^= 1 << input.int_in_range(0..=7)?;
                    self.arrive(1 - side, datagram);
                }
            }
            7 => {
                let len = input.int_in_range(0..=60)?;
                let datagram = input.bytes(len)?.to_vec();
                self.arrive(1 - side, datagram);
            }
            _ => self.wait(Duration::from_micros(input.int_in_range(0..=300_000)?)),
        }
        Ok(())
    }

    /// Everybody ends and reads what is open, and nothing is disturbed any more.
    fn settle(&mut self) {
        let end = self.now + ENOUGH;
        while !self.is_settled() {
            assert!(self.now < end, "not done: {:?}", self.flows);
            for side in [0, 1] {
                for id in self.streams(side) {
                    if !self.flow(id, side).finished {
                        self.finish(side, id);
                    }
                    while !self.flow(id, 1 - side).over && self.read(side, id, 50_000) {}
                }
            }
            self.pass();
        }
    }

    fn is_settled(&mut self) -> bool {
        let keys: Vec<(u64, usize)> = self.flows.keys().copied().collect();
        keys.into_iter().all(|(id, writer)| {
            let over = self.flow(id, writer).over;
            over && self.connection(writer).delivery(id) != Delivery::Pending
        })
    }

    /// What both ends' figures must agree on, whatever has happened.
    fn check(&mut self) {
        let stats = [0, 1].map(|side| self.connection(side).stats());
        for side in [0, 1] {
            let (sent, received) = (&stats[side], &stats[1 - side]);
            assert!(received.received.0 <= sent.sent.0 && received.received.1 <= sent.sent.1);
            assert!(sent.lost.0 <= sent.sent.0 && sent.in_flight <= sent.sent.1);
        }
    }
}

/// Applications do what the input says; the network only carries.
pub fn streams(input: &[u8]) {
    let _ = exchange(&mut Unstructured::new(input), false);
}

/// The network loses, repeats, damages and reorders as the input says.
pub fn recovery(input: &[u8]) {
    let _ = exchange(&mut Unstructured::new(input), true);
}

fn exchange(input: &mut Unstructured<'_>, disturbed: bool) -> Result<()> {
    let receive_memory = Bytes(*input.choose(&[20_000, 1 << 20, 1 << 29])?);
    let send_memory = Bytes(*input.choose(&[1000, 1 << 20])?);
    let admission = Some(Bytes(10_000)).filter(|_| input.ratio(1, 4).unwrap_or(false));
    let key_packets = *input.choose(&[10, 1 << 22])?;
    let idle_timeout = Duration::from_secs(100_000);
    // No controller takes what the input does for congestion.
    let congestion = Algorithm::Fixed(Rate::from_bits_per_sec(1_000_000_000));
    let config = Config {
        congestion,
        receive_memory,
        send_memory,
        admission,
        key_packets,
        idle_timeout,
        ..Config::default()
    };
    let mut pair = Pair::new(config);
    let mut operations = 0;
    while !input.is_empty() && operations < MOST {
        operations += 1;
        if disturbed && input.ratio(2, 3)? {
            pair.disturb(input)?;
        } else {
            pair.operate(input)?;
            if !disturbed && input.ratio(1, 2)? {
                pair.pass();
            }
        }
    }
    pair.check();
    pair.settle();
    pair.check();
    Ok(())
}

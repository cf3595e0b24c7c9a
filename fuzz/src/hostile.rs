//! An authentic peer that misbehaves: it has made a connection, and now sends under its seal whatever
//! the input says. Nothing panics, what the victim keeps and sends stays bounded, and it can end the
//! connection.

use core::time::Duration;

use arbitrary::{Result, Unstructured};
use transport::cc::{Algorithm, Remembered};
use transport::crypto::{Sealing, SharedKey, TAG_LEN};
use transport::wire::{
    Challenge, Close, Data, Header, Kind, Piece, Report, Run, State, StreamCredit, StreamSignal,
};
use transport::{Config, Connection, Endpoint, Event, FeedbackKind, ReadOutcome, Received, Routed};
use units::{Bytes, Instant, Rate};

/// Operations of one run at most.
const MOST: usize = 300;
/// Steps that a connection does at one time at most: more are one that never does what is due.
const STEPS: usize = 20_000;
/// Streams that the victim opens at most.
const STREAMS: usize = 4;
/// What a stream may hold beyond the victim's memory to send (`transport`: `AHEAD`), and whole packets.
const AHEAD: u64 = 128 << 10;
/// Once the victim has closed, it is gone within this.
const ENOUGH: Duration = Duration::from_secs(60);
const KINDS: [Kind; 10] = [
    Kind::Data,
    Kind::Report,
    Kind::State,
    Kind::Ping,
    Kind::Reset,
    Kind::Stop,
    Kind::Close,
    Kind::PathChallenge,
    Kind::PathResponse,
    Kind::Pieces,
];

fn address(of: u8) -> core::net::SocketAddr {
    ([10, 0, 0, of], 7272).into()
}

/// One real end, and what its peer knows of it.
struct Victim {
    now: Instant,
    config: Config,
    number: u32,
    connection: Connection,
    /// The streams that it knows.
    streams: Vec<u64>,
    opened: usize,
    /// The largest number that it has sent, and the last challenge.
    sent: u64,
    challenge: Challenge,
    /// The last number of its peer.
    number_sent: u64,
    /// Datagrams that were handed to it.
    handed: u64,
}

/// Runs one input.
pub fn run(input: &[u8]) {
    let _ = misbehave(&mut Unstructured::new(input));
}

fn misbehave(input: &mut Unstructured<'_>) -> Result<()> {
    let config = config(input)?;
    let mut victim = Victim::new(config, input.arbitrary()?);
    for _ in 0..MOST {
        if input.is_empty() || victim.connection.is_closed() {
            break;
        }
        match input.int_in_range(0..=5)? {
            0..=3 => victim.attack(input)?,
            4 => victim.work(input)?,
            _ => {
                let time = *input.choose(&[1, 1_000, 30_000, 1_000_000, 11_000_000])?;
                victim.wait(Duration::from_micros(input.int_in_range(0..=time)?));
            }
        }
        victim.run();
        victim.check();
    }
    victim.end();
    Ok(())
}

fn config(input: &mut Unstructured<'_>) -> Result<Config> {
    let rate = Rate::from_bits_per_sec(*input.choose(&[64_000, 100_000_000, u64::MAX])?);
    let algorithms = [
        Algorithm::Longhaul,
        Algorithm::Background,
        Algorithm::Cubic,
        Algorithm::NewReno,
        Algorithm::Udt,
        Algorithm::UdtG,
        Algorithm::Fixed(rate),
    ];
    let rtt = Duration::from_millis(*input.choose(&[0, 1, 600, 1 << 40])?);
    let usual = Config::default();
    Ok(Config {
        sealing: Sealing::Simulated,
        congestion: *input.choose(&algorithms)?,
        feedback: *input.choose(&[FeedbackKind::Periodic, FeedbackKind::PositiveAck])?,
        remembered: Some(Remembered { rate, rtt }).filter(|_| input.ratio(1, 4).unwrap_or(false)),
        rate_limit: Some(rate).filter(|_| input.ratio(1, 8).unwrap_or(false)),
        receive_memory: Bytes(*input.choose(&[20_000, 1 << 20])?),
        send_memory: Bytes(*input.choose(&[1000, 1 << 20])?),
        admission: Some(Bytes(10_000)).filter(|_| input.ratio(1, 4).unwrap_or(false)),
        key_packets: *input.choose(&[10, usual.key_packets])?,
        trace: input.ratio(1, 4)?,
        ..usual
    })
}

impl Victim {
    /// An end that has just met its peer, whom it called or who called it.
    fn new(config: Config, called: bool) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let end = |of: u8| Endpoint::new(SharedKey::from_bytes([1; 32]), config, of == 1, [of; 32]);
        let (mut near, mut far) = (end(0), end(1));
        let (number, mut caller) = near.connect(now, address(1));
        let mut bytes = Vec::new();
        caller.poll_transmit(now, &mut bytes).expect("a hello is due");
        let Routed::New(other, mut answerer) = far.route(now, address(0), &bytes) else {
            panic!("the hello was not taken")
        };
        answerer.poll_transmit(now, &mut bytes).expect("a reply is due");
        let from = address(1);
        let bytes = &mut bytes[..];
        caller.handle(now, Received { from, to: None, arrived: now, ce: false, bytes });
        let (number, connection) = if called { (number, caller) } else { (other, *answerer) };
        Self {
            now,
            config,
            number,
            connection,
            streams: Vec::new(),
            opened: 0,
            sent: 0,
            challenge: Challenge(0),
            number_sent: 0,
            handed: 0,
        }
    }

    /// A packet of the peer.
    fn attack(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let kind = *input.choose(&KINDS)?;
        // Closing ends the run, so it is rare.
        let kind = if kind == Kind::Close && !input.ratio(1, 16)? { Kind::Report } else { kind };
        let number = match input.int_in_range(0..=9)? {
            0 => input.arbitrary()?,
            1 => self.number_sent + input.int_in_range(0..=100_000)?,
            2 => self.number_sent.saturating_sub(input.int_in_range(0..=70)?),
            _ => self.number_sent + 1,
        };
        if number <= self.number_sent + 100_000 {
            self.number_sent = self.number_sent.max(number);
        }
        let epoch = if input.ratio(1, 16)? { input.arbitrary()? } else { 0 };
        let (fin, follows) = (input.ratio(1, 8)?, input.arbitrary()?);
        let mut packet = Vec::new();
        let connection = self.number;
        Header { kind, fin, follows, epoch, connection, number: number as u32 }.encode(&mut packet);
        if input.ratio(1, 4)? {
            let len = input.int_in_range(0..=200)?;
            packet.extend_from_slice(input.bytes(len)?);
        } else {
            self.body(kind, input, &mut packet)?;
        }
        packet.extend([0; TAG_LEN]);
        let from = address(if input.ratio(1, 16)? { 9 } else { self.peer() });
        let (now, ce, bytes) = (self.now, input.ratio(1, 8)?, &mut packet[..]);
        self.handed += 1;
        self.connection.handle(now, Received { from, to: None, arrived: now, ce, bytes });
        Ok(())
    }

    fn peer(&self) -> u8 {
        u8::from(self.connection.side() == transport::Side::Initiator)
    }

    /// A number near what is right, or any.
    fn near(input: &mut Unstructured<'_>, right: u64) -> Result<u64> {
        Ok(match input.int_in_range(0..=5)? {
            0 => input.arbitrary()?,
            1 => u64::MAX - input.int_in_range(0..=2)?,
            2 => right.saturating_sub(input.int_in_range(0..=100)?),
            _ => right.saturating_add(input.int_in_range(0..=2)?),
        })
    }

    /// A stream that is there, may be opened, or any.
    fn stream(&self, input: &mut Unstructured<'_>) -> Result<u64> {
        if input.ratio(1, 16)? { input.arbitrary() } else { input.int_in_range(0..=9) }
    }

    /// A body as there may be one of this kind, but for what it says.
    fn body(&self, kind: Kind, input: &mut Unstructured<'_>, out: &mut Vec<u8>) -> Result<()> {
        let credit = |input: &mut Unstructured<'_>| -> Result<StreamCredit> {
            Ok(StreamCredit { stream: self.stream(input)?, credit: Self::near(input, 100_000)? })
        };
        match kind {
            Kind::Data => {
                let right = input.int_in_range(0..=30_000)?;
                Data::encode_prefix(out, self.stream(input)?, Self::near(input, right)?);
                out.resize(out.len() + input.int_in_range(0..=1400)?, 7);
            }
            Kind::Pieces => {
                for _ in 0..input.int_in_range(1..=4)? {
                    let len = input.int_in_range(0..=300)?;
                    let right = input.int_in_range(0..=30_000)?;
                    let (stream, offset) = (self.stream(input)?, Self::near(input, right)?);
                    // Nothing, without being the end, is padding.
                    let fin = input.ratio(1, 8)? || len == 0;
                    Piece::encode_prefix(out, stream, offset, (len, fin));
                    out.resize(out.len() + len, 7);
                }
            }
            Kind::Report => self.report(input)?.encode(out),
            Kind::State => {
                let (lower, upper) = (self.number_sent.saturating_sub(9), self.number_sent);
                let (lower, upper) = (Self::near(input, lower)?, Self::near(input, upper)?);
                let (queued, rtt) = (input.arbitrary()?, Self::near(input, 50_000_000)?);
                let blocked = (0..input.int_in_range(0..=3)?).map(|_| credit(input));
                let blocked = blocked.collect::<Result<_>>()?;
                State { lower, upper, queued, rtt, pairs: input.arbitrary()?, blocked }.encode(out);
            }
            Kind::Reset | Kind::Stop => {
                let stream = self.stream(input)?;
                let (code, end) = (input.arbitrary()?, Self::near(input, 10_000)?);
                StreamSignal { stream, code, end }.encode(out);
            }
            Kind::Close => {
                let close = Close { code: input.arbitrary()?, reason: "enough".into() };
                let last = self.report(input)?;
                close.encode(Some(&last).filter(|_| last.lower % 2 == 0), out);
            }
            Kind::PathChallenge => Challenge(input.arbitrary()?).encode(out),
            Kind::PathResponse => Challenge(Self::near(input, self.challenge.0)?).encode(out),
            Kind::Ping => out.resize(out.len() + input.int_in_range(0..=1400)?, 0),
        }
        Ok(())
    }

    fn report(&self, input: &mut Unstructured<'_>) -> Result<Report> {
        let stats = self.connection.stats();
        let credit = |input: &mut Unstructured<'_>| -> Result<StreamCredit> {
            Ok(StreamCredit { stream: self.stream(input)?, credit: Self::near(input, 100_000)? })
        };
        let run = |input: &mut Unstructured<'_>| -> Result<Run> {
            let missing = input.int_in_range(0..=3)?;
            Ok(Run { received: input.int_in_range(1..=40)?, missing })
        };
        let now = self.now.as_nanos();
        Ok(Report {
            lower: Self::near(input, self.sent.saturating_sub(50))?,
            largest: Self::near(input, self.sent)?,
            largest_arrival: Self::near(input, now)?,
            made_at: Self::near(input, now)?,
            bytes: Self::near(input, stats.sent.1.0)?,
            connection_credit: Self::near(input, 1 << 20)?,
            streams: Self::near(input, 100)?,
            capacity: Self::near(input, 1_000_000_000)?,
            ecn_ce: Self::near(input, stats.ce.1.saturating_add(1))?,
            from: Self::near(input, self.sent.saturating_sub(60))?,
            credits: (0..input.int_in_range(0..=3)?)
                .map(|_| credit(input))
                .collect::<Result<_>>()?,
            runs: (0..input.int_in_range(0..=5)?).map(|_| run(input)).collect::<Result<_>>()?,
        })
    }

    /// The victim's application does something.
    fn work(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let what = input.int_in_range(0..=6)?;
        if what == 0 || self.streams.is_empty() {
            if self.opened < STREAMS
                && let Ok(id) = self.connection.open()
            {
                self.opened += 1;
                self.streams.push(id);
            }
            return Ok(());
        }
        let id = *input.choose(&self.streams)?;
        match what {
            1 | 2 => {
                let bytes = vec![5; input.int_in_range(0..=50_000)?];
                self.connection.write(id, &bytes);
            }
            3 => {
                let mut buffer = vec![0; input.int_in_range(1..=20_000)?];
                if let ReadOutcome::Read(len) = self.connection.read(self.now, id, &mut buffer) {
                    assert!(0 < len && len <= buffer.len());
                }
            }
            4 => self.connection.finish(id),
            5 => self.connection.reset(id, 1),
            _ => self.connection.stop(id, 1),
        }
        Ok(())
    }

    /// Time goes on, from one thing that is due to the next.
    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..STEPS {
            match self.connection.poll_timeout().filter(|&at| at <= end) {
                Some(at) => self.now = self.now.max(at),
                None => break,
            }
            self.run();
        }
        self.now = end;
    }

    /// Timers, and all that is to be sent.
    fn run(&mut self) {
        let mut out = Vec::new();
        let mut steps = 0;
        loop {
            self.connection.handle_timeout(self.now);
            let Some(transmit) = self.connection.poll_transmit(self.now, &mut out) else { break };
            steps += 1;
            assert!(steps < STEPS, "it sends without end");
            for datagram in out.chunks(transmit.segment) {
                let Ok(header) = Header::decode(datagram) else { continue };
                self.sent = self.sent.max(header.number_near(self.sent));
                if header.kind == Kind::PathChallenge {
                    let body = &datagram[transport::wire::HEADER_LEN..];
                    self.challenge = Challenge::decode(body).expect("its own challenge");
                }
            }
        }
        while let Some(event) = self.connection.poll_event() {
            if let Event::Opened(id) = event {
                assert!(!self.streams.contains(&id), "{id} was opened twice");
                self.streams.push(id);
            }
        }
    }

    /// What it keeps is bounded, and its figures agree.
    fn check(&self) {
        let Config { receive_memory, send_memory, max_streams, .. } = self.config;
        let stats = self.connection.stats();
        assert!(stats.lost.0 <= stats.sent.0 && stats.in_flight <= stats.sent.1, "{stats:?}");
        assert!(stats.received.0 <= self.handed + 1, "{stats:?}");
        assert!(self.streams.len() as u64 <= 2 * max_streams + STREAMS as u64);
        let unread: u64 = self.streams.iter().map(|&id| self.connection.unread(id)).sum();
        assert!(unread <= receive_memory.0 + AHEAD, "{unread} bytes unread");
        let queued = self.connection.queued().0.0;
        assert!(queued <= send_memory.0 + AHEAD * STREAMS as u64 * 2, "{queued} bytes queued");
    }

    /// Whatever has happened, it can go.
    fn end(&mut self) {
        self.connection.close(self.now, 0, "enough");
        self.run();
        self.wait(ENOUGH);
        assert!(self.connection.is_closed(), "it does not end");
    }
}

//! Who holds the key and breaks the rules.

use core::net::SocketAddr;
use core::time::Duration;

use transport::crypto::{Initiator, Keys, Pattern, Sealer, SharedKey};
use transport::wire::{
    Data, HEADER_LEN, Header, Kind, Opening, Parameters, Report, Run, StreamSignal, Versions,
};
use transport::{CloseReason, Config, Connection, Endpoint, Event, Received, Routed};
use units::Instant;

const OURS: u32 = 0x0a0b_0c01;

/// An initiator that is no [`Connection`], and the responder's connection with it.
struct Breach {
    now: Instant,
    keys: Keys,
    connection: Connection,
    theirs: u32,
    /// The next number here.
    number: u64,
    /// The kinds of what the connection has sent, by number, and their bytes.
    sent: Vec<Kind>,
    bytes: u64,
}

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 1000).into()
}

impl Breach {
    fn new() -> Self {
        let key = SharedKey::from_bytes([1; 32]);
        let now = Instant::from_nanos(1_000_000_000);
        let mut endpoint = Endpoint::new(key.clone(), Config::default(), true, [2; 32]);
        let parameters = Parameters {
            connection: OURS,
            connection_credit: 1 << 26,
            stream_credit: 1 << 25,
            streams: 1024,
            idle_timeout: Duration::from_secs(30),
            reset_token: [3; 16],
            versions: Versions { oldest: 1, newest: 1 },
            feedback: 0,
        };
        let pattern = Pattern::of(&key.clone().into());
        let mut initiator = Initiator::new(&key.into(), [4; 32], b"longhaul udp \x01");
        let padded = 1200 - Opening::HELLO_PREFIX_LEN - pattern.hello_overhead();
        let noise = initiator.hello(&parameters.encode(padded));
        let (version, pattern, cookie) = (1, pattern as u8, &[0; 16]);
        let mut hello = Vec::new();
        Opening::Hello { version, pattern, connection: OURS, cookie, noise: &noise }
            .encode(&mut hello);
        let Routed::New(_, connection) = endpoint.route(now, address(), &hello) else {
            panic!("it is let in")
        };
        let mut connection = *connection;
        let mut reply = Vec::new();
        connection.poll_transmit(now, &mut reply).expect("a reply");
        let Ok(Opening::Reply { noise, .. }) = Opening::decode(&reply) else { panic!("{reply:?}") };
        let (payload, keys) = initiator.finish(noise).expect("the right host");
        let theirs = Parameters::decode(&payload).expect("parameters").connection;
        let mut breach =
            Self { now, keys, connection, theirs, number: 0, sent: Vec::new(), bytes: 0 };
        breach.send(Kind::Ping, |_| ());
        breach
    }

    fn send(&mut self, kind: Kind, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut packet = Vec::new();
        let number = self.number as u32;
        let (fin, follows, epoch, connection) = (false, false, 0, self.theirs);
        Header { kind, fin, follows, epoch, connection, number }.encode(&mut packet);
        fill(&mut packet);
        let (header, body) = packet.split_at_mut(HEADER_LEN);
        let sealer: &Sealer = &self.keys.sealer;
        let tag = sealer.seal(self.number, header, body);
        packet.extend_from_slice(&tag);
        self.number += 1;
        let (now, from) = (self.now, address());
        let received = Received { from, to: None, arrived: now, ce: false, bytes: &mut packet };
        self.connection.handle(now, received);
    }

    /// The connection sends all that it wants to.
    fn listen(&mut self) {
        let mut out = Vec::new();
        self.connection.handle_timeout(self.now);
        while let Some(transmit) = self.connection.poll_transmit(self.now, &mut out) {
            self.bytes += out.len() as u64;
            for packet in out.chunks(transmit.segment) {
                let header = Header::decode(packet).expect("it is sealed");
                assert_eq!(header.number as usize, self.sent.len());
                self.sent.push(header.kind);
            }
        }
    }

    /// Reports all that was sent but for what is of this kind.
    fn report_all_but(&mut self, kept: Kind) {
        let mut runs = vec![Run { received: 0, missing: 0 }];
        for &kind in &self.sent {
            let last = runs.last_mut().expect("there is one");
            match (kind == kept, last.missing) {
                (true, _) => last.missing += 1,
                (false, 0) => last.received += 1,
                (false, _) => runs.push(Run { received: 1, missing: 0 }),
            }
        }
        let largest = self.sent.iter().rposition(|&kind| kind != kept).expect("one of others");
        runs.last_mut().expect("there is one").missing = 0;
        let report = self.report(largest as u64, runs);
        self.send(Kind::Report, |out| report.encode(out));
    }

    fn report(&self, largest: u64, runs: Vec<Run>) -> Report {
        Report {
            lower: 0,
            largest,
            largest_arrival: self.now.as_nanos(),
            made_at: self.now.as_nanos(),
            bytes: 0,
            connection_credit: 1 << 26,
            streams: 1024,
            capacity: 0,
            ecn_ce: 0,
            from: 0,
            credits: Vec::new(),
            runs,
        }
    }

    fn end(&mut self) -> Option<CloseReason> {
        core::iter::from_fn(|| self.connection.poll_event()).find_map(|event| match event {
            Event::Closed(reason) => Some(reason),
            _ => None,
        })
    }
}

/// A report costs the sender what is in it.
#[test]
fn a_report_that_is_longer_than_one_may_be_ends_the_connection() {
    for (count, why) in [(500, None), (600, Some("a report is longer than one may be"))] {
        let mut breach = Breach::new();
        breach.listen();
        let mut runs = vec![Run { received: 0, missing: 0 }; count];
        runs[0].received = 1;
        let report = breach.report(0, runs);
        breach.send(Kind::Report, |out| report.encode(out));
        assert_eq!(breach.end(), why.map(CloseReason::Violation));
    }
}

/// Nobody sends on a stream that has ended, whether or not it is known that he was told to stop.
#[test]
fn a_stop_is_not_sent_again_once_its_stream_has_ended() {
    let mut breach = Breach::new();
    breach.send(Kind::Data, |out| {
        Data::encode_prefix(out, 0, 0);
        out.extend_from_slice(&[7; 100]);
    });
    breach.listen();
    breach.connection.stop(0, 9);
    breach.connection.reset(0, 9);
    breach.connection.release(0);
    for step in 0..300 {
        breach.listen();
        breach.now += Duration::from_millis(10);
        breach.report_all_but(Kind::Stop);
        if step == 2 {
            let signal = StreamSignal { stream: 0, code: 1, end: 100 };
            breach.send(Kind::Reset, |out| signal.encode(out));
        }
        if step % 10 == 0 {
            breach.send(Kind::Ping, |_| ());
        }
    }
    let stops = breach.sent.iter().filter(|&&kind| kind == Kind::Stop).count();
    assert!((1..=8).contains(&stops), "{stops}");
    assert_eq!(breach.end(), None);
}

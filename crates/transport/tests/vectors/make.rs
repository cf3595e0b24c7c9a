//! Makes the test vectors: a name, ` = `, and bytes in hexadecimal, one a line.

use core::fmt::Write;
use core::time::Duration;
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use transport::crypto::{
    Credentials, Identity, Initiator, Keys, Pattern, Responder, Sealer, SharedKey, Tokens,
};
use transport::wire::{
    Challenge, Close, Data, HEADER_LEN, Header, Kind, Opening, Parameters, Piece, Refusal, Report,
    Run, State, StreamCredit, StreamSignal, Versions,
};

struct Vectors(String);

impl Vectors {
    fn title(&mut self, title: &str) {
        write!(self.0, "\n# {title}\n").expect("a string takes all");
    }

    fn put(&mut self, name: &str, bytes: &[u8]) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.0, "{name} = {hex}").expect("a string takes all");
    }

    fn opening(&mut self, name: &str, opening: Opening<'_>) {
        let mut out = Vec::new();
        opening.encode(&mut out);
        assert_eq!(Opening::decode(&out), Ok(opening));
        self.put(name, &out);
    }
}

/// All of them.
pub fn vectors() -> String {
    let mut vectors =
        Vectors("# Made by `cargo run -p longhaul-transport --example vectors`.\n".to_owned());
    keys(&mut vectors);
    openings(&mut vectors);
    let key = SharedKey::from_bytes([0x11; 32]);
    handshake(&mut vectors, "shared", &key.into(), None);
    let (near, far) = (Identity::from_bytes([0x22; 32]), Identity::from_bytes([0x33; 32]));
    let client = Credentials::client(near, far.public());
    handshake(&mut vectors, "static", &client, Some(Credentials::server(far, Arc::new(|_| true))));
    packets(&mut vectors);
    epochs(&mut vectors);
    vectors.0
}

fn keys(vectors: &mut Vectors) {
    vectors.title("Keys and tokens");
    let private = core::array::from_fn(|i| i as u8);
    vectors.put("identity private", &private);
    vectors.put("identity public", Identity::from_bytes(private).public().as_bytes());
    let cookie = [&7_u64.to_be_bytes()[..], &[0; 10], &[255, 255, 192, 0, 2, 1], &[0x1c, 0x68]];
    let cookie = [&cookie.concat()[..], &[0x44; 32]].concat();
    vectors.put("cookie input, period 7, 192.0.2.1 port 7272", &cookie);
    vectors.put("cookie under 55..55", &Tokens::new(&[0x55; 32]).token(&[&cookie]));
    let resets = Tokens::derived(&private, &[b"longhaul reset", b"\x1c\x68host"]);
    let peer = [&[0; 10][..], &[255, 255, 192, 0, 2, 1]].concat();
    let token = resets.token(&[&0xabcd_0123_u32.to_be_bytes(), &peer]);
    let name = "reset token of connection abcd0123 for 192.0.2.1, that identity, place 1c68 host";
    vectors.put(name, &token);
}

fn openings(vectors: &mut Vectors) {
    vectors.title("Packets without a seal (those of the handshakes stand there)");
    let (echo, token) = (&[0x44; 32], &[0x66; 16]);
    let refusals = [
        ("another key", Refusal::WrongKey),
        ("version, 2 to 5 are spoken", Refusal::Version(Versions { oldest: 2, newest: 5 })),
        ("no room", Refusal::Busy),
        ("key not let in", Refusal::NotAllowed),
        ("another pattern", Refusal::Pattern),
        ("another feedback", Refusal::Feedback),
    ];
    for (why, refusal) in refusals {
        let name = format!("refused: {why}");
        vectors.opening(&name, Opening::Refused { connection: 0x0102_0304, refusal, digest: echo });
    }
    let connection = 0x0102_0304;
    vectors.opening("retry", Opening::Retry { connection, echo, cookie: token });
    vectors.opening("gone", Opening::Gone { connection, token });
    vectors.opening("who", Opening::Who { connection, nonce: echo });
    let key = Identity::from_bytes([0x33; 32]).public();
    vectors.opening("host", Opening::Host { connection, nonce: echo, key });
}

fn parameters(connection: u32) -> Parameters {
    Parameters {
        connection,
        connection_credit: 1 << 26,
        stream_credit: 1 << 25,
        streams: 1024,
        idle_timeout: Duration::from_secs(30),
        reset_token: [connection as u8; 16],
        versions: Versions { oldest: 1, newest: 1 },
        feedback: 0,
    }
}

fn handshake(vectors: &mut Vectors, name: &str, near: &Credentials, far: Option<Credentials>) {
    vectors.title(&format!("A handshake, pattern {name}, version 1"));
    let (far, pattern) = (far.unwrap_or_else(|| near.clone()), Pattern::of(near));
    for (end, credentials) in [("initiator", near), ("responder", &far)] {
        match credentials.public() {
            None => vectors.put("shared key", &[0x11; 32]),
            Some(public) => {
                let private = if end == "initiator" { [0x22; 32] } else { [0x33; 32] };
                vectors.put(&format!("{end}'s private key"), &private);
                vectors.put(&format!("{end}'s public key"), public.as_bytes());
            }
        }
    }
    let ephemeral = |seed| {
        let mut private = [0; 32];
        ChaCha20Rng::from_seed(seed).fill_bytes(&mut private);
        private
    };
    vectors.put("initiator's ephemeral private key", &ephemeral([1; 32]));
    vectors.put("responder's ephemeral private key", &ephemeral([2; 32]));
    let prologue = b"longhaul udp \x01";
    vectors.put("prologue", prologue);
    let (ours, theirs) = (0x0a0b_0c01, 0x0a0b_0c02);
    let mut initiator = Initiator::new(near, [1; 32], prologue);
    let padded = 1200 - Opening::HELLO_PREFIX_LEN - pattern.hello_overhead();
    vectors.put("hello's payload, without its zeros", &parameters(ours).encode(0));
    let noise = initiator.hello(&parameters(ours).encode(padded));
    let (version, pattern, connection, cookie) = (1, pattern as u8, ours, &[0; 16]);
    let hello = Opening::Hello { version, pattern, connection, cookie, noise: &noise };
    vectors.opening("hello", hello);
    let (responder, payload) = Responder::accept(&far, [2; 32], prologue, &noise).expect("let in");
    assert_eq!(Parameters::decode(&payload), Ok(parameters(ours)));
    vectors.put("reply's payload", &parameters(theirs).encode(0));
    let (noise, there) = responder.reply(&parameters(theirs).encode(0));
    vectors.opening("reply", Opening::Reply { version, connection, noise: &noise });
    let (_, here) = initiator.finish(&noise).expect("the right host");
    pings(vectors, (&here, &there), (ours, theirs));
}

fn pings(vectors: &mut Vectors, (here, there): (&Keys, &Keys), (ours, theirs): (u32, u32)) {
    for (name, sealer, opener, connection) in [
        ("initiator's ping, number 0", &here.sealer, &there.opener, theirs),
        ("responder's ping, number 0", &there.sealer, &here.opener, ours),
    ] {
        let packet = sealed(sealer, Kind::Ping, 0, connection, 0, &[]);
        vectors.put(name, &packet);
        let (header, mut body) = (&packet[..HEADER_LEN], packet[HEADER_LEN..].to_vec());
        opener.open(0, header, &mut body).expect("authentic");
    }
}

fn sealed(
    sealer: &Sealer,
    kind: Kind,
    epoch: u8,
    connection: u32,
    number: u64,
    body: &[u8],
) -> Vec<u8> {
    let mut packet = Vec::new();
    let (fin, follows) = (kind == Kind::Data, kind == Kind::Data);
    Header { kind, fin, follows, epoch, connection, number: number as u32 }.encode(&mut packet);
    let mut body = body.to_vec();
    let tag = sealer.seal(number, &packet, &mut body);
    [packet, body, tag.to_vec()].concat()
}

fn packets(vectors: &mut Vectors) {
    vectors.title(
        "Sealed packets, epoch 0, to connection abcd0123, s0 = 77..77; data with both flags",
    );
    let sealer = Sealer::new(&[0x77; 32]);
    let mut data = Vec::new();
    Data::encode_prefix(&mut data, 4, 1 << 40);
    data.extend(b"payload");
    let signal = |end| {
        let mut body = Vec::new();
        StreamSignal { stream: 4, code: 9, end }.encode(&mut body);
        body
    };
    let (mut report, mut state, mut close, mut challenge) = (vec![], vec![], vec![], vec![]);
    example_report().encode(&mut report);
    let blocked = vec![StreamCredit { stream: 6, credit: 1 << 25 }];
    State { lower: 5, upper: 300, queued: 70_000, rtt: 200_000_000, pairs: false, blocked }
        .encode(&mut state);
    let mut pieces = Vec::new();
    for (stream, payload, fin) in [(8, b"one", false), (10, b"two", true)] {
        Piece::encode_prefix(&mut pieces, stream, 1000, (payload.len(), fin));
        pieces.extend(payload);
    }
    Close { code: 3, reason: "enough".to_owned() }.encode(Some(&example_report()), &mut close);
    Challenge(0x0123_4567_89ab_cdef).encode(&mut challenge);
    for (number, (name, kind, body)) in [
        ("data", Kind::Data, data),
        ("report", Kind::Report, report),
        ("state", Kind::State, state),
        ("ping", Kind::Ping, vec![0; 3]),
        ("reset", Kind::Reset, signal(1000)),
        ("stop", Kind::Stop, signal(0)),
        ("close", Kind::Close, close),
        ("path challenge", Kind::PathChallenge, challenge.clone()),
        ("path response", Kind::PathResponse, challenge),
        ("pieces", Kind::Pieces, pieces),
    ]
    .into_iter()
    .enumerate()
    {
        let number = number as u64;
        vectors.put(&format!("{name}, number {number}, body"), &body);
        let packet = sealed(&sealer, kind, 0, 0xabcd_0123, number, &body);
        vectors.put(&format!("{name}, number {number}, packet"), &packet);
    }
}

/// Numbers 10 to 309 have arrived but 12 and 200 to 299.
fn example_report() -> Report {
    Report {
        lower: 2,
        largest: 309,
        largest_arrival: 1_000_000_000,
        made_at: 1_001_000_000,
        bytes: 240_000,
        connection_credit: 1 << 26,
        streams: 16_384,
        capacity: 1_000_000_000,
        ecn_ce: 1,
        from: 10,
        credits: vec![StreamCredit { stream: 4, credit: 1 << 25 }],
        runs: vec![
            Run { received: 2, missing: 1 },
            Run { received: 187, missing: 100 },
            Run { received: 10, missing: 0 },
        ],
    }
}

fn epochs(vectors: &mut Vectors) {
    vectors.title("The same ping, number 1000, in the epochs after s0 = 77..77");
    let mut sealer = Sealer::new(&[0x77; 32]);
    for epoch in 0..3 {
        let packet = sealed(&sealer, Kind::Ping, epoch, 0xabcd_0123, 1000, &[]);
        vectors.put(&format!("ping in epoch {epoch}"), &packet);
        sealer = sealer.next();
    }
    vectors.title("A ping whose number, 2^32 + 5, the header does not hold whole, s0 = 77..77");
    let packet = sealed(&Sealer::new(&[0x77; 32]), Kind::Ping, 0, 0xabcd_0123, (1 << 32) + 5, &[]);
    vectors.put("ping", &packet);
}

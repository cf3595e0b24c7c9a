//! The transport's packets: what is read, is written again as it was.

use std::time::Duration;

use transport::crypto::PublicKey;
use transport::wire::{
    Challenge, Close, Data, HEADER_LEN, Header, Kind, MAX_CREDITS, Opening, Parameters, Piece,
    Refusal, Report, Run, SPOKEN, State, StreamCredit, StreamSignal, Versions,
};

/// The first byte names the parser, the rest is what it reads.
pub fn run(input: &[u8]) {
    let Some((parser, bytes)) = input.split_first() else { return };
    let mut again = Vec::new();
    match parser % 10 {
        0 => {
            let Ok(header) = Header::decode(bytes) else { return };
            header.encode(&mut again);
            assert_eq!(again, bytes[..HEADER_LEN]);
        }
        1 => {
            let Ok(opening) = Opening::decode(bytes) else { return };
            assert!(Opening::is_opening(bytes));
            opening.encode(&mut again);
            // Which version a hello speaks is its own business; other fields repeat or are fixed.
            assert_eq!(Opening::decode(&again), Ok(opening));
            // A question is padded; the endpoint answers none that was not.
            let padded = matches!(opening, Opening::Who { .. });
            let most = if padded { Opening::HELLO_LEN } else { 0 };
            assert!(again.len() <= bytes.len().max(most));
        }
        2 => {
            let Ok(report) = Report::decode(bytes) else { return };
            assert!(report.credits.len() <= MAX_CREDITS && report.runs.len() <= bytes.len());
            report.encode(&mut again);
            // A number may be spelled with needless zeros: never longer than it was read.
            assert!(again.len() <= bytes.len());
            assert_eq!(Report::decode(&again), Ok(report));
        }
        3 => {
            let Ok(data) = Data::decode(bytes) else { return };
            Data::encode_prefix(&mut again, data.stream, data.offset);
            again.extend_from_slice(data.payload);
            // Needless zeros in a number are left out.
            assert!(again.len() <= bytes.len());
            assert_eq!(Data::decode(&again), Ok(data));
        }
        4 => {
            let Ok(state) = State::decode(bytes) else { return };
            state.encode(&mut again);
            assert!(state.lower <= state.upper && bytes.starts_with(&again));
        }
        5 => {
            let Ok(signal) = StreamSignal::decode(bytes) else { return };
            signal.encode(&mut again);
            assert!(bytes.starts_with(&again));
        }
        6 => {
            let Ok((close, last)) = Close::decode(bytes) else { return };
            assert!(close.reason.chars().all(|c| !c.is_control()));
            close.encode(last.as_ref(), &mut again);
            let (second, again) = Close::decode(&again).expect("it was just written");
            assert!(close.reason.starts_with(&second.reason) && second.code == close.code);
            assert_eq!(last, again);
        }
        7 => {
            let mut rest = bytes;
            while let Ok(Some(piece @ Piece { data, fin })) = Piece::decode(&mut rest) {
                let (start, len) = (again.len(), data.payload.len());
                Piece::encode_prefix(&mut again, data.stream, data.offset, (len, fin));
                again.extend_from_slice(data.payload);
                assert!(again.len() + rest.len() <= bytes.len());
                assert_eq!(Piece::decode(&mut &again[start..]), Ok(Some(piece)));
            }
        }
        8 => {
            let Ok(challenge) = Challenge::decode(bytes) else { return };
            challenge.encode(&mut again);
            assert!(bytes.starts_with(&again));
        }
        _ => {
            let Ok(parameters) = Parameters::decode(bytes) else { return };
            assert!(bytes.starts_with(&parameters.encode(0)));
        }
    }
}

/// One of each, as the transport writes them.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |parser: u8, fill: &dyn Fn(&mut Vec<u8>)| {
        let mut seed = vec![parser];
        fill(&mut seed);
        seed
    };
    let report = Report {
        lower: 5,
        largest: 70_000,
        largest_arrival: 1 << 40,
        made_at: 1 << 41,
        bytes: 100_000_000,
        connection_credit: 1 << 30,
        streams: 16_384,
        capacity: 1_000_000_000,
        ecn_ce: 3,
        from: 17,
        credits: vec![StreamCredit { stream: 4, credit: 1 << 25 }],
        runs: vec![Run { received: 300, missing: 1 }, Run { received: 70_000, missing: 0 }],
    };
    let header = Header {
        kind: Kind::Data,
        fin: true,
        follows: true,
        epoch: 3,
        connection: 0xabcd,
        number: 77,
    };
    let close = Close { code: 42, reason: "enough".into() };
    let mut seeds = vec![
        seed(0, &|out| header.encode(out)),
        seed(2, &|out| report.encode(out)),
        seed(3, &|out| {
            Data::encode_prefix(out, 8, 1 << 33);
            out.extend([1; 40]);
        }),
        seed(4, &|out| {
            let blocked = vec![StreamCredit { stream: 6, credit: 1 << 20 }];
            State { lower: 1, upper: 9, queued: 4, rtt: 5, pairs: true, blocked }.encode(out);
        }),
        seed(5, &|out| StreamSignal { stream: 2, code: 7, end: 1000 }.encode(out)),
        seed(6, &|out| close.encode(Some(&report), out)),
        seed(7, &|out| {
            for (stream, fin) in [(4, false), (8, true)] {
                Piece::encode_prefix(out, stream, 1 << 33, (3, fin));
                out.extend([1; 3]);
            }
        }),
        seed(8, &|out| Challenge(77).encode(out)),
        seed(9, &|out| {
            let parameters = Parameters {
                connection: 1,
                connection_credit: 1 << 26,
                stream_credit: 1 << 25,
                streams: 1024,
                idle_timeout: Duration::from_secs(30),
                reset_token: [9; 16],
                versions: SPOKEN,
                feedback: 1,
            };
            out.extend(parameters.encode(40));
        }),
    ];
    seeds.extend(openings());
    seeds
}

/// One of each packet without a seal.
fn openings() -> Vec<Vec<u8>> {
    let (echo, token) = (&[7; 32], &[9; 16]);
    let (connection, noise) = (2, &[7; 60][..]);
    let refused = |refusal| Opening::Refused { connection, refusal, digest: echo };
    let openings = [
        Opening::Hello { version: 1, pattern: 2, connection, cookie: token, noise },
        Opening::Reply { version: 1, connection, noise },
        refused(Refusal::WrongKey),
        refused(Refusal::Version(Versions { oldest: 2, newest: 5 })),
        Opening::Retry { connection, echo, cookie: token },
        Opening::Gone { connection, token },
        Opening::Who { connection, nonce: echo },
        Opening::Host { connection, nonce: echo, key: PublicKey::from_bytes([5; 32]) },
    ];
    let seed = |opening: &Opening<'_>| {
        let mut seed = vec![1];
        opening.encode(&mut seed);
        seed
    };
    openings.iter().map(seed).collect()
}

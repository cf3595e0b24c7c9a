use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::crypto::PublicKey;

fn runs() -> impl Strategy<Value = Vec<Run>> {
    let run =
        (0..1u64 << 50, 0..1u64 << 50).prop_map(|(received, missing)| Run { received, missing });
    prop::collection::vec(run, 0..200)
}

fn credits() -> impl Strategy<Value = Vec<StreamCredit>> {
    let credit = any::<(u64, u64)>().prop_map(|(stream, credit)| StreamCredit { stream, credit });
    prop::collection::vec(credit, 0..=MAX_CREDITS)
}

fn report_of(runs: Vec<Run>) -> Report {
    Report {
        lower: 0,
        largest: 0,
        largest_arrival: 0,
        made_at: 0,
        bytes: 0,
        connection_credit: 0,
        streams: 0,
        capacity: 0,
        ecn_ce: 0,
        from: 0,
        credits: vec![],
        runs,
    }
}

proptest! {
    #[test]
    fn report_round_trips(fields: [u64; 9], from in 0..1u64 << 50, credits in credits(), runs in runs()) {
        let [lower, largest, largest_arrival, made_at, bytes, connection_credit, streams, capacity, ecn_ce] = fields;
        let report = Report {
            lower, largest, largest_arrival, made_at, bytes, connection_credit, streams, capacity, ecn_ce, from, credits, runs,
        };
        let mut body = Vec::new();
        report.encode(&mut body);
        prop_assert_eq!(Report::decode(&body), Ok(report));
    }

    #[test]
    fn small_bodies_round_trip(blocked in credits().prop_map(|mut list| { list.truncate(MAX_BLOCKED); list }), a: u64, b: u64, c: u64, d: u64, epoch: u8, token: [u8; 16]) {
        let mut out = Vec::new();
        let (fin, follows, connection) = (b & 1 == 0, c & 1 == 0, d as u32);
        let header = Header { kind: Kind::Data, fin, follows, epoch, connection, number: (a >> 2) as u32 };
        header.encode(&mut out);
        prop_assert_eq!(out.len(), HEADER_LEN);
        prop_assert_eq!(Header::decode(&out), Ok(header));

        let (lower, upper, pairs) = (a.min(b), a.max(b), c % 2 == 0);
        let state = State { lower, upper, queued: c, rtt: d, pairs, blocked };
        let mut out = Vec::new();
        state.encode(&mut out);
        prop_assert_eq!(State::decode(&out), Ok(state));

        let signal = StreamSignal { stream: a, code: b, end: c };
        let mut out = Vec::new();
        signal.encode(&mut out);
        prop_assert_eq!(StreamSignal::decode(&out), Ok(signal));

        let mut out = Vec::new();
        Challenge(a).encode(&mut out);
        prop_assert_eq!(Challenge::decode(&out), Ok(Challenge(a)));

        let parameters = Parameters {
            connection,
            connection_credit: a,
            stream_credit: b,
            streams: c,
            idle_timeout: Duration::from_millis(d),
            reset_token: token,
            versions: Versions { oldest: token[0], newest: token[1] },
            feedback: token[2],
        };
        prop_assert_eq!(Parameters::decode(&parameters.encode(100)), Ok(parameters));
    }

    #[test]
    fn pieces_round_trip(
        pieces in prop::collection::vec((any::<u64>(), 0u64..=1 << 62, 0usize..200, any::<bool>()), 0..9),
        padding in 0..=Piece::MAX_PREFIX_LEN,
    ) {
        let mut out = Vec::new();
        let pieces = pieces.into_iter().map(|(stream, offset, len, fin)| (stream, offset, len, fin || len == 0));
        let pieces: Vec<_> = pieces.collect();
        for &(stream, offset, len, fin) in &pieces {
            let start = out.len();
            Piece::encode_prefix(&mut out, stream, offset, (len, fin));
            prop_assert_eq!(out.len() - start, Piece::prefix_len(stream, offset));
            prop_assert!(out.len() - start <= Piece::MAX_PREFIX_LEN);
            out.resize(out.len() + len, len as u8);
        }
        out.resize(out.len() + padding, 0);
        let mut body = &out[..];
        for (stream, offset, len, fin) in pieces {
            let payload = &vec![len as u8; len][..];
            let piece = Piece { data: Data { stream, offset, payload }, fin };
            prop_assert_eq!(Piece::decode(&mut body), Ok(Some(piece)));
        }
        prop_assert_eq!(Piece::decode(&mut body), Ok(None));
    }

    #[test]
    fn close_round_trips_and_cuts(code: u64, reason in "\\PC{0,300}", runs in runs(), has_report: bool) {
        let mut out = Vec::new();
        let last = has_report.then(|| report_of(runs));
        Close { code, reason: reason.clone() }.encode(last.as_ref(), &mut out);
        let (read, report) = Close::decode(&out).unwrap();
        prop_assert_eq!(report, last);
        prop_assert_eq!(read.code, code);
        prop_assert!(reason.starts_with(&read.reason));
    }

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Header::decode(&bytes);
        let _ = Opening::decode(&bytes);
        let _ = Parameters::decode(&bytes);
        let _ = Data::decode(&bytes);
        let mut body = &bytes[..];
        while let Ok(Some(_)) = Piece::decode(&mut body) {}
        let _ = State::decode(&bytes);
        let _ = StreamSignal::decode(&bytes);
        let _ = Close::decode(&bytes);
        let _ = Challenge::decode(&bytes);
        if let Ok(report) = Report::decode(&bytes) {
            prop_assert!(report.runs.len() <= bytes.len());
        }
    }
}

proptest! {
    #[test]
    fn a_number_is_known_by_its_last_bytes_near_others(number in 0..=Header::MAX_NUMBER, away in -(1i64 << 31) + 1..=1 << 31) {
        let near = number.saturating_add_signed(away);
        prop_assert_eq!(header_of(number).number_near(near), number);
    }
}

fn header_of(number: u64) -> Header {
    let number = number as u32;
    Header { kind: Kind::Ping, fin: false, follows: false, epoch: 0, connection: 0, number }
}

#[test]
fn numbers_at_the_borders_are_the_nearest_there_are() {
    const HALF: u64 = 1 << 31;
    const WHOLE: u64 = 1 << 32;
    for (last, near, number) in [
        (0, 0, 0),
        (HALF, 0, HALF),
        (WHOLE - 1, 0, WHOLE - 1),
        (0, HALF, 0),
        (0, HALF + 1, WHOLE),
        (WHOLE - 1, WHOLE, WHOLE - 1),
        (1, WHOLE - 1, WHOLE + 1),
        (HALF, WHOLE, HALF),
        (HALF - 1, WHOLE, WHOLE + HALF - 1),
    ] {
        assert_eq!(header_of(last).number_near(near), number, "{last} near {near}");
    }
}

#[test]
fn openings_round_trip() {
    let echo = &[7; 32];
    let token = &[9; crate::crypto::TOKEN_LEN];
    let refusals = [
        Refusal::WrongKey,
        Refusal::Version(Versions { oldest: 3, newest: 9 }),
        Refusal::Busy,
        Refusal::NotAllowed,
        Refusal::Pattern,
        Refusal::Feedback,
    ];
    let refusals =
        refusals.map(|refusal| Opening::Refused { connection: 3, refusal, digest: echo });
    let key = PublicKey::from_bytes([5; 32]);
    for opening in [
        Opening::Hello { version: 9, pattern: 2, connection: 1, cookie: token, noise: b"noise" },
        Opening::Reply { version: 9, connection: 2, noise: b"" },
        Opening::Retry { connection: 4, echo, cookie: token },
        Opening::Gone { connection: 4, token },
        Opening::Who { connection: 4, nonce: echo },
        Opening::Host { connection: 4, nonce: echo, key },
    ]
    .into_iter()
    .chain(refusals)
    {
        let mut out = Vec::new();
        opening.encode(&mut out);
        assert!(Opening::is_opening(&out));
        assert_eq!(Opening::decode(&out), Ok(opening));
    }
}

#[test]
fn overlong_and_overflowing_maps_are_refused() {
    let report = Report { from: u64::MAX, ..report_of(vec![Run { received: 1, missing: 0 }]) };
    let mut body = Vec::new();
    report.encode(&mut body);
    assert_eq!(Report::decode(&body), Err(WireError::Field("map")));
    body.truncate(Report::FIXED_LEN);
    body.extend([0xff; 10]);
    assert_eq!(Report::decode(&body), Err(WireError::Field("LEB128 number")));
}

#[test]
fn two_ends_use_the_newest_version_that_both_speak() {
    let versions = |oldest, newest| Versions { oldest, newest };
    assert_eq!(versions(1, 3).common(versions(2, 9)), Some(3));
    assert_eq!(versions(2, 9).common(versions(1, 3)), Some(3));
    assert_eq!(versions(1, 1).common(versions(1, 1)), Some(1));
    assert_eq!(versions(1, 1).common(versions(2, 3)), None);
}

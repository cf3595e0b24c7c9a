//! What the program's ends say to each other. It is no library: these files of it are taken in as they are.

#[path = "../../crates/cli/src/ssh/channel.rs"]
mod channel;
#[path = "../../crates/cli/src/ssh/greeting.rs"]
#[expect(dead_code, reason = "some of it is for people")]
mod greeting;
#[path = "../../crates/cli/src/handover.rs"]
#[expect(dead_code, reason = "streams begin with some of it")]
mod handover;
#[path = "../../crates/cli/src/forward/wire.rs"]
pub mod wire;

use std::io::ErrorKind;

use net::SharedKey;
use transfer::wire::Terms;

use crate::memory::{peer, settled};
use channel::Channel;
use greeting::{Heard, Place};
use handover::{Ask, Held, Made, Wish};

/// The longest target, and the longest piece of a stream over ssh.
const TARGET_MAX: usize = 300;
const PIECE_MAX: usize = 64 << 10;
/// In the place of a piece's length.
const RESET: u32 = u32::MAX;

/// The first byte names the parser, the rest is what it reads.
pub fn run(input: &[u8]) {
    let Some((parser, bytes)) = input.split_first() else { return };
    match parser % 7 {
        0 => target(bytes),
        1 => answer(bytes),
        2 => streams(bytes),
        3 => near(bytes),
        4 => far(bytes),
        5 => ask(bytes),
        _ => hear(bytes),
    }
}

/// A server of forwarding hears its client: what is asked for can be asked for again.
fn target(said: &[u8]) {
    let mut left = said;
    let head = settled(wire::opening(&mut left));
    let target = settled(wire::target(&mut left));
    assert!(said.starts_with(&head) && (head.len() == wire::OPENING_LEN || left.is_empty()));
    assert!(said.len() - left.len() <= wire::OPENING_LEN + wire::HEAD + TARGET_MAX);
    let Ok(target) = target else { return };
    let mut server = peer(b"\0\0");
    let connected = settled(wire::ask(&mut server, &target)).expect("it has answered");
    assert_eq!(connected, Ok(()));
    let (_, again) = server.into_inner();
    let again = again.strip_prefix(&wire::FORWARD).expect("so it begins");
    // What is no text has become longer.
    if target.len() <= TARGET_MAX {
        assert_eq!(settled(wire::target(&mut &again[..])).expect("it was asked for"), target);
    }
}

/// And its client the server.
fn answer(said: &[u8]) {
    let mut server = peer(said);
    let answer = settled(wire::ask(&mut server, "host:1"));
    let (left, _) = server.into_inner();
    assert!(said.len() - left.len() <= wire::HEAD + wire::PIECE_MAX);
    let Ok(Err(reason)) = answer else { return };
    let mut again = Vec::new();
    settled(wire::answer(&mut again, &reason)).expect("there is room");
    let second = settled(wire::ask(&mut peer(&again), "host:1")).expect("it has answered");
    assert!(reason.len() > wire::PIECE_MAX || second == Err(reason));
}

/// Streams over ssh are those that a plain walk finds.
fn streams(said: &[u8]) {
    assert_eq!(settled(streams_of(said)), walk(said));
}

async fn streams_of(said: &[u8]) -> Vec<Vec<u8>> {
    use tokio::io::AsyncReadExt;
    let mut channel = Channel::new(said, Vec::<u8>::new());
    let mut streams = Vec::new();
    while channel.incoming().await.expect("memory does not fail") {
        let (mut stream, mut data) = (channel.stream(), Vec::new());
        let read = stream.read_to_end(&mut data).await;
        streams.push(data);
        match read {
            Ok(_) => stream.finish().await.expect("it has ended"),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                channel.reset().await.expect("it has ended");
            }
            Err(_) => break,
        }
    }
    streams
}

fn walk(mut said: &[u8]) -> Vec<Vec<u8>> {
    let mut streams = Vec::new();
    while !said.is_empty() {
        let mut data = Vec::new();
        let is_whole = loop {
            let Some((length, rest)) = said.split_first_chunk() else { break false };
            said = rest;
            let length = match u32::from_le_bytes(*length) {
                0 | RESET => break true,
                length => length as usize,
            };
            if length > PIECE_MAX {
                break false;
            }
            let (piece, rest) = said.split_at(length.min(said.len()));
            data.extend_from_slice(piece);
            said = rest;
            if piece.len() < length {
                break false;
            }
        };
        streams.push(data);
        if !is_whole {
            break;
        }
    }
    streams
}

/// The far side hears the near one: a key is a key, and what is refused can be heard there.
fn near(said: &[u8]) {
    match settled(greeting::hear_near(said)) {
        Ok(Ok((version, key))) => {
            let again = settled(greeting::hear_near(greeting::near(&key).as_bytes()));
            let Ok(Ok(again)) = again else { panic!("it was just said") };
            assert_eq!(again, (version, key));
        }
        Ok(Err((answer, _))) => {
            let Heard::Line(line) = settled(greeting::hear_far(answer.as_bytes())) else {
                panic!("it was just said")
            };
            assert!(greeting::place(&line, "there").is_err());
        }
        Err(_) => {}
    }
}

/// And the near side the far one.
fn far(said: &[u8]) {
    let place = |said: &[u8]| match settled(greeting::hear_far(said)) {
        Heard::Line(line) => greeting::place(&line, "there").ok(),
        Heard::Nothing => None,
        Heard::Silence => panic!("it has ended"),
    };
    if let Some(met) = place(said) {
        assert_eq!(place(greeting::far(1, &met).as_bytes()), Some(met));
    }
}

/// What a server is asked to copy can be asked for again.
fn ask(said: &[u8]) {
    let Ok(ask) = settled(handover::hear_ask(&mut &said[..])) else { return };
    if !handover::fits(&ask).expect("it can be said") {
        return;
    }
    let line = line(&ask);
    let again = settled(handover::hear_ask(&mut &line[..])).expect("it was just said");
    assert_eq!(self::line(&again), line);
}

fn line(said: &impl serde::Serialize) -> Vec<u8> {
    let mut line = Vec::new();
    settled(handover::say(&mut line, said)).expect("there is room");
    line
}

/// Everything else that the three of a copy between servers say; nobody's words do anything to a terminal.
fn hear(said: &[u8]) {
    let made = settled(handover::hear::<Made>(&mut &said[..])).map(drop);
    let wish = settled(handover::hear::<Wish>(&mut &said[..])).map(drop);
    let held = settled(handover::hear::<Held>(&mut &said[..])).map(drop);
    for error in [made, wish, held].into_iter().filter_map(Result::err) {
        assert!(!error.to_string().chars().any(char::is_control), "{error}");
    }
}

/// One of each, as the program says them.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |parser: u8, bytes: &[u8]| [&[parser][..], bytes].concat();
    let mut client = peer(b"\0\0");
    let connected = settled(wire::ask(&mut client, "[2001:db8::1]:22"));
    assert_eq!(connected.expect("it has answered"), Ok(()));
    let mut refusal = Vec::new();
    settled(wire::answer(&mut refusal, "no")).expect("there is room");
    let place = Place { port: 4242, address: Some([192, 0, 2, 1].into()) };
    let ask = Ask {
        sources: vec!["a/b".to_owned()],
        host: "example.org".to_owned(),
        port: 7272,
        key: "x25519:".to_owned(),
        destination: String::new(),
        terms: Terms { patterns: vec!["*.o".to_owned()], rate: Some(1), ..Terms::default() },
        transport: "auto".to_owned(),
        compares: false,
    };
    vec![
        seed(0, &client.into_inner().1),
        seed(0, &wire::MUX),
        seed(1, b"\0\0"),
        seed(1, &refusal),
        seed(2, b"\x03\0\0\0abc\x01\0\0\0d\0\0\0\0\x02\0\0\0ef\xff\xff\xff\xff\0\0\0\0"),
        seed(3, greeting::near(&SharedKey::from_bytes([7; 32])).as_bytes()),
        seed(3, b"longhaul-near 2-3 later words\n"),
        seed(4, b"Welcome!\nlonghaul-reached\nlonghaul-far 1 4242 ::1\n"),
        seed(4, greeting::far(1, &place).as_bytes()),
        seed(4, b"longhaul-far none 2-3\n"),
        seed(5, &line(&ask)),
        seed(6, &line(&Made { key: String::new() })),
        seed(6, &line(&Wish { key: String::new(), destination: "a".to_owned() })),
        seed(6, &line(&Held { held: true })),
        seed(6, b"{\"error\":\"no\\u001b room\"}\n"),
    ]
}

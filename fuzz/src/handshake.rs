//! What strangers say: the handshake of striped TCP, at either end, and echoes.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use net::NetError;
use net::tcp::{Policy, fuzzing};
use transport::crypto::{Credentials, Identity, SharedKey};

use crate::memory::{peer, settled};

/// Bytes of what a client says first, and of what it is answered, up to a message; and of the longest message.
const OPENING: usize = 8;
const ANSWER_HEAD: usize = 4;
const MESSAGE_MAX: usize = 1024;

static SHARED: LazyLock<Credentials> = LazyLock::new(|| SharedKey::from_bytes([1; 32]).into());
/// Lets everybody in.
static SERVER: LazyLock<Credentials> =
    LazyLock::new(|| Credentials::server(Identity::from_bytes([2; 32]), Arc::new(|_| true)));

/// The first byte names the parser, the rest is what it reads.
pub fn run(input: &[u8]) {
    let Some((parser, bytes)) = input.split_first() else { return };
    match parser % 5 {
        0 => answer(bytes, &SHARED),
        1 => answer(bytes, &SERVER),
        2 => ask(bytes),
        3 => hello(bytes),
        _ => echoes(bytes),
    }
}

/// A server reads no more than it has to, and a client understands what it answers.
fn answer(said: &[u8], credentials: &Credentials) {
    let mut left = said;
    let answer = settled(fuzzing::answer(&mut left, credentials));
    assert!(said.len() - left.len() <= OPENING + MESSAGE_MAX);
    let Some(answer) = answer else { return };
    assert!(said.starts_with(b"LHT"));
    let is_in = answer.is_ok();
    let answer = answer.unwrap_or_else(|last_words| last_words);
    let mut server = peer(&answer);
    let key = settled(fuzzing::ask(&mut server, address()));
    let (rest, _) = server.into_inner();
    assert!(rest.is_empty(), "there is more than is understood: {answer:?}");
    match key {
        // Any reply is longer than a key.
        Ok(key) => assert!(is_in || Some(key) == credentials.public()),
        Err(NetError::Lost { .. }) => panic!("there is less than is waited for: {answer:?}"),
        Err(error) => assert!(!is_in && !error.to_string().contains("not a longhaul"), "{error}"),
    }
}

fn address() -> SocketAddr {
    ([192, 0, 2, 1], 7272).into()
}

/// A client asks what a server may be asked, reads no more than it has to, and takes nothing else for a key.
fn ask(answer: &[u8]) {
    let mut server = peer(answer);
    let key = settled(fuzzing::ask(&mut server, address()));
    let (left, asked) = server.into_inner();
    assert_eq!(asked, question());
    assert!(answer.len() - left.len() <= ANSWER_HEAD + MESSAGE_MAX);
    if let Ok(key) = key {
        assert!(answer[0] == 0 && answer[ANSWER_HEAD..].starts_with(key.as_bytes()));
    }
}

fn question() -> Vec<u8> {
    let mut server = peer(&[]);
    assert!(settled(fuzzing::ask(&mut server, address())).is_err(), "nobody has answered");
    server.into_inner().1
}

/// What is read is written again as it was, but for what means nothing in this policy.
fn hello(payload: &[u8]) {
    let Some(again) = fuzzing::hello(payload) else { return };
    // The group, whether it is joined, and the policy's kind; then its count, which bounds do not have.
    let same = if payload[17] == 2 { 18 } else { 20 };
    assert!(again.len() <= payload.len() && again[..same] == payload[..same]);
    assert_eq!(fuzzing::hello(&again), Some(again));
}

/// Number and time stand at the end of an answer.
fn echoes(datagram: &[u8]) {
    for (_, time) in fuzzing::echoes(datagram) {
        assert!(datagram.ends_with(&time.to_be_bytes()));
    }
}

/// First messages, answers to them, and echoes.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |parser: u8, bytes: &[u8]| [&[parser][..], bytes].concat();
    let (own, host) = (Identity::from_bytes([1; 32]), Identity::from_bytes([2; 32]).public());
    let client = Credentials::client(own, host);
    let question = question();
    let key = settled(fuzzing::answer(&mut &question[..], &SERVER)).expect("it is told");
    let key = key.expect_err("a question lets nobody in");
    let hello = |policy: Policy| [&[7_u8; 16][..], &[0], &policy.encode()].concat();
    let carried = [&[0x80_u8, 0, 0, 9][..], &[1; 8]].concat();
    vec![
        seed(0, &fuzzing::first_message(&SHARED)),
        seed(0, b"LHT\x06\x09"),
        seed(0, &question),
        seed(1, &fuzzing::first_message(&client)),
        seed(1, &question),
        seed(2, &key),
        seed(2, &[3, 9, 6]),
        seed(2, &[1]),
        seed(3, &hello(Policy::default())),
        seed(3, &hello(Policy::Fixed(8))),
        seed(4, &carried),
        seed(4, &[&[0_u8, 0, 0, 0, 0, 0, 0, 9][..], &carried].concat()),
        seed(4, &[&[129_u8, 0, 0, 0, 0, 0, 0, 9][..], &carried].concat()),
        seed(4, &[&[0x45_u8; 20][..], &[0; 8], &carried].concat()),
    ]
}

//! The handshake of one TCP connection:
//!
//! 1. client, in clear: [`MAGIC`], the oldest and the newest version that it speaks, the kind of handshake
//!    ([`Pattern`]), and the length of what follows, two bytes, big endian: the Noise message with the [`Hello`]
//!    inside; or [`WHO`] and nothing, to ask for the server's key;
//! 2. server: one byte, [`ACCEPTED`], the version, a length, and the Noise answer with the oldest and the newest
//!    version that it speaks inside (or the key that was asked for); or a reason to refuse;
//! 3. client: a seal over nothing. Only now has it shown that it holds the key and is no replay
//!    of an older message, and only now does it count.
//!
//! The version is the newest that both speak; what decides on it is the same in all. The client's clear bytes
//! are part of the Noise prologue, and it reckons the version from the server's sealed ones once more: nobody on
//! the way makes the two speak an older one. What either side says inside beyond the fields it knows is ignored,
//! so that a later release can add some.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use stripe::count::{POLICY_LEN, Policy};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use transport::crypto::{
    Credentials, CryptoError, Initiator, Keys, Pattern, PublicKey, Responder, TAG_LEN,
};
use transport::wire::Versions;

use super::options::MAX_STREAMS;
use crate::error::NetError;

/// A connection that has not finished its handshake by then is dropped: room for a second
/// retransmission over a satellite.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(8);

/// Names the protocol in clear, so that a peer of another kind is told from one with another key.
const MAGIC: [u8; 3] = *b"LHT";
/// What this release speaks. Version 4 and those before it named themselves alone.
pub(super) const SPOKEN: Versions = Versions { oldest: 5, newest: 5 };
/// Stands in the place of the pattern.
const WHO: u8 = 0;
/// Binds the handshake to TCP: one recorded on UDP is worth nothing here, nor the other way.
const PROLOGUE: &[u8] = b"longhaul tcp \x03";
const CONFIRM: &[u8] = b"confirm";

/// The client's clear bytes up to its versions, and all of them.
const VERSIONS_END: usize = MAGIC.len() + 2;
const OPENING_LEN: usize = VERSIONS_END + 1 + 2;
/// No Noise message is longer, whatever a later release adds.
const MESSAGE_MAX: usize = 1024;

const HELLO_LEN: usize = GROUP_LEN + 1 + POLICY_LEN;
const GROUP_LEN: usize = 16;

const ACCEPTED: u8 = 0;
const REFUSED_KEY: u8 = 1;
const REFUSED_STREAMS: u8 = 2;
/// Followed by the newest and the oldest version that the server speaks; up to version 4, by the one.
const REFUSED_VERSION: u8 = 3;
const REFUSED_CLIENT: u8 = 4;
const REFUSED_PATTERN: u8 = 5;

/// The seal's number of the confirmation; records have the numbers after it.
const CONFIRM_NUMBER: u64 = 0;
/// The seal's number of a connection's first record, in each direction.
pub(super) const FIRST_RECORD: u64 = CONFIRM_NUMBER + 1;

/// Which stream this connection is to join, or to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// Random, the same in all connections of a stream. It never shows outside of the handshake's
    /// encryption, and so is what lets further connections in, at any time.
    pub group: [u8; GROUP_LEN],
    /// Whether the stream must be there already.
    pub joins: bool,
    /// How the server is to find how many connections it would like for what it sends.
    pub policy: Policy,
}

impl Hello {
    pub fn encode(self) -> [u8; HELLO_LEN] {
        let parts = [&self.group[..], &[self.joins.into()], &self.policy.encode()];
        parts.concat().try_into().expect("the lengths are fixed")
    }

    /// `None` for a policy that is not known here, or more connections than a stream may have.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (group, rest) = bytes.split_first_chunk()?;
        let (joins, rest) = rest.split_first()?;
        let joins = [false, true].into_iter().find(|&known| u8::from(known) == *joins)?;
        let (policy, _) = rest.split_first_chunk()?;
        let policy = Policy::decode(policy)?;
        (policy.first() <= MAX_STREAMS).then_some(Self { group: *group, joins, policy })
    }
}

/// A connection whose handshake is done.
pub(super) struct Connection {
    pub socket: TcpStream,
    pub keys: Keys,
}

/// Fresh random bytes.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("every Linux we run on gives random bytes");
    bytes
}

/// The client's part, within [`HANDSHAKE_TIME`].
pub(super) async fn initiate(
    socket: TcpStream,
    address: SocketAddr,
    credentials: &Credentials,
    hello: Hello,
) -> Result<Connection, NetError> {
    within(address, join(socket, address, credentials, hello, SPOKEN)).await
}

/// Asks the server for its key, within [`HANDSHAKE_TIME`].
pub(super) async fn ask_host(
    mut socket: TcpStream,
    address: SocketAddr,
) -> Result<PublicKey, NetError> {
    within(address, key_of(&mut socket, address)).await
}

/// Asks whoever is at the other end for its key.
pub(super) async fn key_of(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    address: SocketAddr,
) -> Result<PublicKey, NetError> {
    let (_, key) = ask(stream, address, &opening(SPOKEN, WHO, 0), SPOKEN).await?;
    let key = key.first_chunk().ok_or_else(|| stranger(address))?;
    Ok(PublicKey::from_bytes(*key))
}

async fn within<T>(
    address: SocketAddr,
    handshake: impl Future<Output = Result<T, NetError>>,
) -> Result<T, NetError> {
    match timeout(HANDSHAKE_TIME, handshake).await {
        Ok(result) => result,
        Err(_) => Err(NetError::NoAnswer { address, after: HANDSHAKE_TIME, carrier: "TCP" }),
    }
}

fn opening(spoken: Versions, kind: u8, length: usize) -> Vec<u8> {
    let [high, low] = (length as u16).to_be_bytes();
    [&MAGIC[..], &[spoken.oldest, spoken.newest, kind, high, low]].concat()
}

/// Makes what was said in clear part of what the two prove to each other.
fn prologue(opening: &[u8]) -> Vec<u8> {
    [PROLOGUE, opening].concat()
}

pub(super) fn first_message(
    credentials: &Credentials,
    seed: [u8; 32],
    hello: Hello,
    spoken: Versions,
) -> (Initiator, Vec<u8>) {
    let (pattern, payload) = (Pattern::of(credentials), hello.encode());
    let length = pattern.hello_overhead() + payload.len();
    let mut message = opening(spoken, pattern as u8, length);
    let mut initiator = Initiator::new(credentials, seed, &prologue(&message));
    message.extend(initiator.hello(&payload));
    (initiator, message)
}

fn stranger(address: SocketAddr) -> NetError {
    NetError::Refused { address, reason: "this is not a longhaul server".to_owned() }
}

/// What it has not said it has not refused: a server that has too many handshakes drops some, too.
fn lost(address: SocketAddr, error: &io::Error) -> NetError {
    let reason = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it closed the connection during the handshake".to_owned(),
        _ => format!("during the handshake: {error}"),
    };
    NetError::Lost { address, reason }
}

/// Sends the first message and reads the answer to it: the version, and what is said in it.
async fn ask(
    socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
    address: SocketAddr,
    message: &[u8],
    spoken: Versions,
) -> Result<(u8, Vec<u8>), NetError> {
    let lost = |error| lost(address, &error);
    socket.write_all(message).await.map_err(lost)?;
    let reason = match socket.read_u8().await.map_err(lost)? {
        ACCEPTED => {
            let version = socket.read_u8().await.map_err(lost)?;
            let length = usize::from(socket.read_u16().await.map_err(lost)?);
            if length > MESSAGE_MAX {
                return Err(stranger(address));
            }
            let mut answer = vec![0; length];
            socket.read_exact(&mut answer).await.map_err(lost)?;
            return Ok((version, answer));
        }
        REFUSED_KEY => return Err(NetError::WrongKey { address }),
        REFUSED_PATTERN => return Err(NetError::OtherKind { address }),
        REFUSED_CLIENT => return Err(NetError::NotAllowed { address }),
        REFUSED_STREAMS => "it does not take so many connections a stream".to_owned(),
        REFUSED_VERSION => {
            let newest = socket.read_u8().await.map_err(lost)?;
            let oldest = socket.read_u8().await.unwrap_or(newest);
            let theirs = Versions { oldest, newest };
            format!(
                "it speaks {theirs} of the protocol, this side {spoken}: install the same release on both sides"
            )
        }
        _ => return Err(stranger(address)),
    };
    Err(NetError::Refused { address, reason })
}

async fn join(
    mut socket: TcpStream,
    address: SocketAddr,
    credentials: &Credentials,
    hello: Hello,
    spoken: Versions,
) -> Result<Connection, NetError> {
    let (mut initiator, message) = first_message(credentials, random(), hello, spoken);
    let (version, reply) = ask(&mut socket, address, &message, spoken).await?;
    let finished = initiator.finish(&reply);
    let (payload, keys) = finished.map_err(|_| NetError::WrongKey { address })?;
    let common = match payload[..] {
        [oldest, newest, ..] => spoken.common(Versions { oldest, newest }),
        _ => None,
    };
    if common != Some(version) {
        let reason = "somebody on the way has changed which version of the protocol it speaks";
        return Err(NetError::Refused { address, reason: reason.to_owned() });
    }
    let confirmation = keys.sealer.seal(CONFIRM_NUMBER, CONFIRM, &mut []);
    socket.write_all(&confirmation).await.map_err(|error| lost(address, &error))?;
    Ok(Connection { socket, keys })
}

/// The server's part, within [`HANDSHAKE_TIME`]. `None` for a peer that failed: it has been told
/// when that helps it, and there is nobody else to tell.
pub(super) async fn respond(
    socket: TcpStream,
    credentials: &Credentials,
) -> Option<(Hello, Connection)> {
    timeout(HANDSHAKE_TIME, answer(socket, credentials, SPOKEN)).await.ok()?
}

async fn answer(
    mut socket: TcpStream,
    credentials: &Credentials,
    spoken: Versions,
) -> Option<(Hello, Connection)> {
    match accept(&mut socket, credentials, spoken).await? {
        Ok((hello, reply, keys)) => {
            socket.write_all(&reply).await.ok()?;
            let mut confirmation = [0; TAG_LEN];
            socket.read_exact(&mut confirmation).await.ok()?;
            keys.opener.open(CONFIRM_NUMBER, CONFIRM, &mut confirmation).ok()?;
            Some((hello, Connection { socket, keys }))
        }
        Err(last_words) => {
            socket.write_all(&last_words).await.ok()?;
            None
        }
    }
}

/// Reads the first message. Gives what to answer: the reply of a handshake, or all there is to say.
pub(super) async fn accept(
    socket: &mut (impl AsyncRead + Unpin),
    credentials: &Credentials,
    spoken: Versions,
) -> Option<Result<(Hello, Vec<u8>, Keys), Vec<u8>>> {
    let mut opening = [0; OPENING_LEN];
    socket.read_exact(&mut opening[..VERSIONS_END]).await.ok()?;
    let [m1, m2, m3, oldest, newest, ..] = opening;
    if [m1, m2, m3] != MAGIC {
        return None;
    }
    // An older client had the kind in the place of the newest version, and may say no more before it is answered.
    let Some(version) = spoken.common(Versions { oldest, newest }) else {
        return Some(Err(vec![REFUSED_VERSION, spoken.newest, spoken.oldest]));
    };
    socket.read_exact(&mut opening[VERSIONS_END..]).await.ok()?;
    let [.., kind, high, low] = opening;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MESSAGE_MAX {
        return None;
    }
    let mut message = vec![0; length];
    socket.read_exact(&mut message).await.ok()?;
    let accepted = |answer: &[u8]| {
        let length = (answer.len() as u16).to_be_bytes();
        [&[ACCEPTED, version], &length[..], answer].concat()
    };
    if kind == WHO {
        return Some(Err(accepted(credentials.public()?.as_bytes())));
    }
    if kind != Pattern::of(credentials) as u8 {
        return Some(Err(vec![REFUSED_PATTERN]));
    }
    Some(match Responder::accept(credentials, random(), &prologue(&opening), &message) {
        Err(CryptoError::NotAllowed(_)) => Err(vec![REFUSED_CLIENT]),
        Err(_) => Err(vec![REFUSED_KEY]),
        Ok((responder, payload)) => match Hello::decode(&payload) {
            None => Err(vec![REFUSED_STREAMS]),
            Some(hello) => {
                let (message, keys) = responder.reply(&[spoken.oldest, spoken.newest]);
                Ok((hello, accepted(&message), keys))
            }
        },
    })
}

#[cfg(test)]
pub(super) mod tests {
    use tokio::net::TcpListener;
    use transport::crypto::SharedKey;

    use super::*;

    const HELLO: Hello = Hello { group: [7; 16], joins: false, policy: Policy::Fixed(1) };

    /// As somebody who listens in on a client with one connection records it.
    pub fn recorded(credentials: &Credentials) -> Vec<u8> {
        first_message(credentials, [7; 32], HELLO, SPOKEN).1
    }

    fn key() -> Credentials {
        SharedKey::from_bytes([1; 32]).into()
    }

    fn versions(oldest: u8, newest: u8) -> Versions {
        Versions { oldest, newest }
    }

    /// How a client and a server meet that speak these, and whether the server takes the connection.
    async fn meet(client: Versions, server: Versions) -> (Result<Connection, NetError>, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let credentials = key();
        let serving = async {
            let (socket, _) = listener.accept().await.unwrap();
            answer(socket, &credentials, server).await.is_some_and(|(hello, _)| hello == HELLO)
        };
        let joining = async {
            let socket = TcpStream::connect(address).await.unwrap();
            join(socket, address, &credentials, HELLO, client).await
        };
        tokio::join!(joining, serving)
    }

    #[tokio::test]
    async fn releases_meet_where_their_ranges_do() {
        for (client, server) in [
            (SPOKEN, SPOKEN),
            (versions(5, 9), SPOKEN),
            (SPOKEN, versions(5, 9)),
            (versions(5, 7), versions(6, 9)),
        ] {
            let (joined, is_taken) = meet(client, server).await;
            assert!(joined.is_ok() && is_taken, "{client} and {server}: {:?}", joined.err());
        }
    }

    #[tokio::test]
    async fn releases_that_have_no_version_in_common_are_told_so() {
        for (client, server, expected) in [
            (
                SPOKEN,
                versions(6, 9),
                "it speaks versions 6 to 9 of the protocol, this side version 5:",
            ),
            (
                versions(6, 9),
                SPOKEN,
                "it speaks version 5 of the protocol, this side versions 6 to 9:",
            ),
        ] {
            let (joined, is_taken) = meet(client, server).await;
            let said = joined.err().unwrap().to_string();
            assert!(said.contains(expected) && said.contains("the same release"), "{said}");
            assert!(!is_taken);
        }
    }

    #[tokio::test]
    async fn releases_that_named_one_version_are_understood_and_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let old = async {
            // As a server.
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.read_exact(&mut [0; VERSIONS_END]).await.unwrap();
            socket.write_all(&[REFUSED_VERSION, 4]).await.unwrap();
            socket.shutdown().await.unwrap();
            // As a client that asks for the key, and says no more.
            let mut asking = TcpStream::connect(address).await.unwrap();
            asking.write_all(&[&MAGIC[..], &[4, WHO]].concat()).await.unwrap();
            let mut said = Vec::new();
            asking.read_to_end(&mut said).await.unwrap();
            said
        };
        let new = async {
            let socket = TcpStream::connect(address).await.unwrap();
            let refused = ask_host(socket, address).await.unwrap_err().to_string();
            assert!(refused.contains("it speaks version 4 of the protocol"), "{refused}");
            let (socket, _) = listener.accept().await.unwrap();
            assert!(answer(socket, &key(), versions(5, 6)).await.is_none());
        };
        assert_eq!(tokio::join!(old, new).0, [REFUSED_VERSION, 6, 5]);
    }

    /// Somebody on the way changes one byte of what the client or the server says in clear.
    async fn meddled(of_client: bool, at: usize, to: u8) -> Result<Connection, NetError> {
        let [front, back] = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let address = front.local_addr().unwrap();
        let listener = |listener: std::net::TcpListener| {
            listener.set_nonblocking(true).unwrap();
            TcpListener::from_std(listener).unwrap()
        };
        let behind = back.local_addr().unwrap();
        let (front, back) = (listener(front), listener(back));
        let meddling = async {
            let (mut near, _) = front.accept().await.unwrap();
            let mut far = TcpStream::connect(behind).await.unwrap();
            let (from, into) =
                if of_client { (&mut near, &mut far) } else { (&mut far, &mut near) };
            let mut first = vec![0; at + 1];
            if !of_client {
                // The client speaks first.
                let length = recorded(&key()).len();
                let mut said = vec![0; length];
                into.read_exact(&mut said).await.unwrap();
                from.write_all(&said).await.unwrap();
            }
            from.read_exact(&mut first).await.unwrap();
            first[at] = to;
            into.write_all(&first).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        };
        let (credentials, both) = (key(), versions(5, 9));
        let serving = async {
            let (socket, _) = back.accept().await.unwrap();
            assert!(answer(socket, &credentials, both).await.is_none());
        };
        let joining = async {
            let socket = TcpStream::connect(address).await.unwrap();
            join(socket, address, &credentials, HELLO, both).await
        };
        tokio::join!(joining, serving, meddling).0
    }

    #[tokio::test]
    async fn nobody_on_the_way_makes_them_speak_an_older_version() {
        let newest = MAGIC.len() + 1;
        assert!(matches!(meddled(true, newest, 5).await, Err(NetError::WrongKey { .. })));
        let said = meddled(false, 1, 5).await.err().unwrap().to_string();
        assert!(said.contains("somebody on the way"), "{said}");
    }

    #[test]
    fn only_groups_of_bounded_size_decode() {
        let hello = |policy| Hello { group: [9; 16], joins: true, policy };
        let most = MAX_STREAMS as u16;
        for good in [hello(Policy::Fixed(most)), hello(Policy::default())] {
            assert_eq!(Hello::decode(&good.encode()), Some(good));
            let longer = [&good.encode()[..], b"of a later release"].concat();
            assert_eq!(Hello::decode(&longer), Some(good));
        }
        assert_eq!(Hello::decode(&hello(Policy::Fixed(most + 1)).encode()), None);
        assert_eq!(Hello::decode(&[9; HELLO_LEN]), None);
        assert_eq!(Hello::decode(&[0; HELLO_LEN - 1]), None);
    }
}

//! The handshake of one TCP connection, in messages of fixed length:
//!
//! 1. client: [`MAGIC`], the version, the kind of handshake ([`Pattern`]), then the Noise message
//!    with the [`Hello`] inside; or [`WHO`] and nothing, to ask for the server's key;
//! 2. server: one byte, [`ACCEPTED`] and the Noise answer (or the key that was asked for), or a
//!    reason to refuse;
//! 3. client: a seal over nothing. Only now has it shown that it holds the key and is no replay
//!    of an older message, and only now does it count.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use stripe::count::{POLICY_LEN, Policy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use transport::crypto::{
    Credentials, CryptoError, Initiator, Keys, Pattern, PublicKey, Responder, TAG_LEN,
};

use super::options::MAX_STREAMS;
use crate::error::NetError;

/// A connection that has not finished its handshake by then is dropped: room for a second
/// retransmission over a satellite.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(8);

/// Names the protocol in clear, so that a peer of another kind is told from one with another key.
const MAGIC: [u8; 3] = *b"LHT";
/// The one version there is.
const VERSION: u8 = 4;
/// Stands in the place of the pattern.
const WHO: u8 = 0;
/// Binds the handshake to TCP: one recorded on UDP is worth nothing here, nor the other way.
const PROLOGUE: &[u8] = b"longhaul tcp \x02";
const CONFIRM: &[u8] = b"confirm";

const HELLO_LEN: usize = GROUP_LEN + 1 + POLICY_LEN;
const GROUP_LEN: usize = 16;

const ACCEPTED: u8 = 0;
const REFUSED_KEY: u8 = 1;
const REFUSED_STREAMS: u8 = 2;
/// Followed by the newest version that the server speaks.
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
    fn encode(self) -> [u8; HELLO_LEN] {
        let parts = [&self.group[..], &[self.joins.into()], &self.policy.encode()];
        parts.concat().try_into().expect("the lengths are fixed")
    }

    /// `None` for a policy that is not known here, or more connections than a stream may have.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (group, rest) = bytes.split_first_chunk()?;
        let (joins, policy) = rest.split_first()?;
        let joins = [false, true].into_iter().find(|&known| u8::from(known) == *joins)?;
        let policy = Policy::decode(policy.try_into().ok()?)?;
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
    within(address, join(socket, address, credentials, hello)).await
}

/// Asks the server for its key, within [`HANDSHAKE_TIME`].
pub(super) async fn ask_host(
    mut socket: TcpStream,
    address: SocketAddr,
) -> Result<PublicKey, NetError> {
    let asking = async {
        let mut key = [0; 32];
        ask(&mut socket, address, &opening(WHO), &mut key).await?;
        Ok(PublicKey::from_bytes(key))
    };
    within(address, asking).await
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

fn opening(kind: u8) -> Vec<u8> {
    [&MAGIC[..], &[VERSION, kind]].concat()
}

fn first_message(credentials: &Credentials, seed: [u8; 32], hello: Hello) -> (Initiator, Vec<u8>) {
    let mut initiator = Initiator::new(credentials, seed, PROLOGUE);
    let mut message = opening(Pattern::of(credentials) as u8);
    message.extend(initiator.hello(&hello.encode()));
    (initiator, message)
}

fn lost(address: SocketAddr, error: &io::Error) -> NetError {
    let reason = match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            let reason = "it closed the connection during the handshake".to_owned();
            return NetError::Refused { address, reason };
        }
        _ => format!("during the handshake: {error}"),
    };
    NetError::Lost { address, reason }
}

/// Sends the first message and reads the answer to it, which has this length if it is no refusal.
async fn ask(
    socket: &mut TcpStream,
    address: SocketAddr,
    message: &[u8],
    answer: &mut [u8],
) -> Result<(), NetError> {
    let lost = |error| lost(address, &error);
    socket.write_all(message).await.map_err(lost)?;
    let reason = match socket.read_u8().await.map_err(lost)? {
        ACCEPTED => {
            socket.read_exact(answer).await.map_err(lost)?;
            return Ok(());
        }
        REFUSED_KEY => return Err(NetError::WrongKey { address }),
        REFUSED_PATTERN => return Err(NetError::OtherKind { address }),
        REFUSED_CLIENT => return Err(NetError::NotAllowed { address }),
        REFUSED_STREAMS => "it does not take so many connections a stream".to_owned(),
        REFUSED_VERSION => {
            let theirs = socket.read_u8().await.map_err(lost)?;
            format!("it speaks version {theirs} of the protocol, this side {VERSION}")
        }
        _ => "this is not a longhaul server".to_owned(),
    };
    Err(NetError::Refused { address, reason })
}

async fn join(
    mut socket: TcpStream,
    address: SocketAddr,
    credentials: &Credentials,
    hello: Hello,
) -> Result<Connection, NetError> {
    let (mut initiator, message) = first_message(credentials, random(), hello);
    let mut reply = [0; Pattern::REPLY_OVERHEAD];
    ask(&mut socket, address, &message, &mut reply).await?;
    let finished = initiator.finish(&reply);
    let (_, keys) = finished.map_err(|_| NetError::WrongKey { address })?;
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
    timeout(HANDSHAKE_TIME, answer(socket, credentials)).await.ok()?
}

async fn answer(mut socket: TcpStream, credentials: &Credentials) -> Option<(Hello, Connection)> {
    match accept(&mut socket, credentials).await? {
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
async fn accept(
    socket: &mut TcpStream,
    credentials: &Credentials,
) -> Option<Result<(Hello, Vec<u8>, Keys), Vec<u8>>> {
    let mut opening = [0; MAGIC.len() + 2];
    socket.read_exact(&mut opening).await.ok()?;
    let [m1, m2, m3, version, kind] = opening;
    if [m1, m2, m3] != MAGIC {
        return None;
    }
    if version != VERSION {
        return Some(Err(vec![REFUSED_VERSION, VERSION]));
    }
    if kind == WHO {
        let key = credentials.public()?;
        return Some(Err([&[ACCEPTED], &key.as_bytes()[..]].concat()));
    }
    let pattern = Pattern::of(credentials);
    if kind != pattern as u8 {
        return Some(Err(vec![REFUSED_PATTERN]));
    }
    let mut message = vec![0; pattern.hello_overhead() + HELLO_LEN];
    socket.read_exact(&mut message).await.ok()?;
    Some(match Responder::accept(credentials, random(), PROLOGUE, &message) {
        Err(CryptoError::NotAllowed(_)) => Err(vec![REFUSED_CLIENT]),
        Err(_) => Err(vec![REFUSED_KEY]),
        Ok((responder, payload)) => match Hello::decode(&payload) {
            None => Err(vec![REFUSED_STREAMS]),
            Some(hello) => {
                let (message, keys) = responder.reply(&[]);
                Ok((hello, [&[ACCEPTED], &message[..]].concat(), keys))
            }
        },
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// As somebody who listens in on a client with one connection records it.
    pub fn recorded(credentials: &Credentials) -> Vec<u8> {
        let hello = Hello { group: [7; 16], joins: false, policy: Policy::Fixed(1) };
        first_message(credentials, [7; 32], hello).1
    }

    #[test]
    fn only_groups_of_bounded_size_decode() {
        let hello = |policy| Hello { group: [9; 16], joins: true, policy };
        let most = MAX_STREAMS as u16;
        for good in [hello(Policy::Fixed(most)), hello(Policy::default())] {
            assert_eq!(Hello::decode(&good.encode()), Some(good));
        }
        assert_eq!(Hello::decode(&hello(Policy::Fixed(most + 1)).encode()), None);
        assert_eq!(Hello::decode(&[9; HELLO_LEN]), None);
        assert_eq!(Hello::decode(&[0; HELLO_LEN - 1]), None);
        assert_eq!(Hello::decode(&[0; HELLO_LEN + 1]), None);
    }
}

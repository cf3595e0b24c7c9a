//! The handshake of one TCP connection, in messages of fixed length:
//!
//! 1. client: [`MAGIC`], then the Noise message with the [`Hello`] inside;
//! 2. server: one byte, [`ACCEPTED`] and the Noise answer, or a reason to refuse;
//! 3. client: a seal over nothing. Only now has it shown that it holds the key and is no replay
//!    of an older message, and only now does it count.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use transport::crypto::{Initiator, Keys, Responder, SharedKey, TAG_LEN};

use super::options::MAX_STREAMS;
use crate::error::NetError;

/// A connection that has not finished its handshake by then is dropped: room for a second
/// retransmission over a satellite.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(8);

/// Names protocol and version in clear, so that a peer of another kind is told from one with
/// another key.
const MAGIC: [u8; 4] = *b"LHT1";
/// Binds the handshake to TCP: one recorded on UDP is worth nothing here, nor the other way.
const PROLOGUE: &[u8] = b"longhaul tcp 1";
const CONFIRM: &[u8] = b"confirm";

/// An ephemeral key and a seal, with which each Noise message begins and ends.
const NOISE_OVERHEAD: usize = 32 + TAG_LEN;
const HELLO_LEN: usize = 20;

const ACCEPTED: u8 = 0;
const REFUSED_KEY: u8 = 1;
const REFUSED_STREAMS: u8 = 2;

/// The seal's number of the confirmation; records have the numbers after it.
const CONFIRM_NUMBER: u64 = 0;
/// The seal's number of a connection's first record, in each direction.
pub(super) const FIRST_RECORD: u64 = CONFIRM_NUMBER + 1;

/// Which connection of which stream this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// Random, the same in all connections of a stream.
    pub group: [u8; 16],
    /// This connection's place, below `count`.
    pub index: u16,
    /// Connections of the stream.
    pub count: u16,
}

impl Hello {
    fn encode(self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..16].copy_from_slice(&self.group);
        bytes[16..18].copy_from_slice(&self.index.to_be_bytes());
        bytes[18..].copy_from_slice(&self.count.to_be_bytes());
        bytes
    }

    /// `None` for a group that is too large, or a place outside it.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (group, rest) = bytes.split_first_chunk()?;
        let [i1, i2, c1, c2] = *rest else { return None };
        let hello = Self {
            group: *group,
            index: u16::from_be_bytes([i1, i2]),
            count: u16::from_be_bytes([c1, c2]),
        };
        (hello.index < hello.count && usize::from(hello.count) <= MAX_STREAMS).then_some(hello)
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
    key: &SharedKey,
    hello: Hello,
) -> Result<Connection, NetError> {
    match timeout(HANDSHAKE_TIME, ask(socket, address, key, hello)).await {
        Ok(result) => result,
        Err(_) => Err(NetError::NoAnswer { address, after: HANDSHAKE_TIME, carrier: "TCP" }),
    }
}

fn first_message(initiator: &mut Initiator, hello: Hello) -> Vec<u8> {
    let mut message = MAGIC.to_vec();
    message.extend(initiator.hello(&hello.encode()));
    message
}

async fn ask(
    mut socket: TcpStream,
    address: SocketAddr,
    key: &SharedKey,
    hello: Hello,
) -> Result<Connection, NetError> {
    let refused = |reason: &str| NetError::Refused { address, reason: reason.to_owned() };
    let lost = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => refused("it closed the connection during the handshake"),
        _ => NetError::Lost { address, reason: format!("during the handshake: {error}") },
    };
    let mut initiator = Initiator::new(key, random(), PROLOGUE);
    let message = first_message(&mut initiator, hello);
    socket.write_all(&message).await.map_err(lost)?;
    match socket.read_u8().await.map_err(lost)? {
        ACCEPTED => {}
        REFUSED_KEY => return Err(NetError::WrongKey { address }),
        REFUSED_STREAMS => return Err(refused("it does not take so many connections a stream")),
        _ => return Err(refused("this is not a longhaul server")),
    }
    let mut reply = [0; NOISE_OVERHEAD];
    socket.read_exact(&mut reply).await.map_err(lost)?;
    let finished = initiator.finish(&reply);
    let (_, keys) = finished.map_err(|_| NetError::WrongKey { address })?;
    let confirmation = keys.sealer.seal(CONFIRM_NUMBER, CONFIRM, &mut []);
    socket.write_all(&confirmation).await.map_err(lost)?;
    Ok(Connection { socket, keys })
}

/// The server's part, within [`HANDSHAKE_TIME`]. `None` for a peer that failed: it has been told
/// when that helps it, and there is nobody else to tell.
pub(super) async fn respond(socket: TcpStream, key: &SharedKey) -> Option<(Hello, Connection)> {
    timeout(HANDSHAKE_TIME, answer(socket, key)).await.ok()?
}

async fn answer(mut socket: TcpStream, key: &SharedKey) -> Option<(Hello, Connection)> {
    let mut magic = [0; MAGIC.len()];
    socket.read_exact(&mut magic).await.ok()?;
    if magic != MAGIC {
        return None;
    }
    let mut message = [0; NOISE_OVERHEAD + HELLO_LEN];
    socket.read_exact(&mut message).await.ok()?;
    let Ok((responder, payload)) = Responder::accept(key, random(), PROLOGUE, &message) else {
        socket.write_u8(REFUSED_KEY).await.ok()?;
        return None;
    };
    let Some(hello) = Hello::decode(&payload) else {
        socket.write_u8(REFUSED_STREAMS).await.ok()?;
        return None;
    };
    let (message, keys) = responder.reply(&[]);
    let mut reply = vec![ACCEPTED];
    reply.extend(message);
    socket.write_all(&reply).await.ok()?;
    let mut confirmation = [0; TAG_LEN];
    socket.read_exact(&mut confirmation).await.ok()?;
    let opener = &keys.opener;
    opener.open(CONFIRM_NUMBER, CONFIRM, &mut confirmation).ok()?;
    Some((hello, Connection { socket, keys }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// As somebody who listens in on a client with one connection records it.
    pub fn recorded(key: &SharedKey) -> Vec<u8> {
        let hello = Hello { group: [7; 16], index: 0, count: 1 };
        first_message(&mut Initiator::new(key, [7; 32], PROLOGUE), hello)
    }

    #[test]
    fn only_places_inside_groups_of_bounded_size_decode() {
        let hello = |index, count| Hello { group: [9; 16], index, count };
        let most = MAX_STREAMS as u16;
        for good in [hello(0, 1), hello(most - 1, most)] {
            assert_eq!(Hello::decode(&good.encode()), Some(good));
        }
        for bad in [hello(0, 0), hello(1, 1), hello(0, most + 1)] {
            assert_eq!(Hello::decode(&bad.encode()), None);
        }
        assert_eq!(Hello::decode(&[1; HELLO_LEN - 1]), None);
        assert_eq!(Hello::decode(&[0; HELLO_LEN + 1]), None);
    }
}

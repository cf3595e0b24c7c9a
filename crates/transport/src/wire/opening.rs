//! The packets before there are keys.

use bytes::{Buf, BufMut};

use super::WireError;

/// The protocol's version. Bound into the handshake, so it cannot be changed on the way.
pub const VERSION: u8 = 1;

const HELLO: u8 = 1;
const REPLY: u8 = 2;
const REFUSED: u8 = 3;

/// Why a hello was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The responder holds another key.
    #[error("the other side holds a different key")]
    WrongKey,
    /// The responder speaks another version of the protocol.
    #[error("the other side speaks version {0} of the protocol, this side {VERSION}")]
    Version(u8),
    /// The responder has no room for another connection.
    #[error("the other side has no room for another connection; try again later")]
    Busy,
}

/// A packet of the opening: `kind u8, version u8, detail u16, connection u32, rest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening<'a> {
    /// Initiator to responder: a Noise message, padded so that no answer is larger.
    Hello {
        /// The version the initiator speaks.
        version: u8,
        /// The connection's number at the initiator.
        connection: u32,
        /// The Noise message.
        noise: &'a [u8],
    },
    /// Responder to initiator.
    Reply {
        /// The connection's number at the initiator.
        connection: u32,
        /// The Noise message.
        noise: &'a [u8],
    },
    /// Responder to initiator, without any state kept. Not authenticated: believed only when
    /// it repeats the hello's first bytes, which nobody off the path can know.
    Refused {
        /// The connection's number at the initiator.
        connection: u32,
        /// Why.
        refusal: Refusal,
        /// The first [`Opening::ECHO_LEN`] bytes of the hello's Noise message.
        echo: &'a [u8],
    },
}

impl<'a> Opening<'a> {
    /// How much of a hello a refusal repeats: the initiator's ephemeral key.
    pub const ECHO_LEN: usize = 32;
    const FIXED_LEN: usize = 8;

    /// Whether the datagram's first byte says that it belongs to the opening.
    pub fn is_opening(datagram: &[u8]) -> bool {
        matches!(datagram.first(), Some(&(HELLO | REPLY | REFUSED)))
    }

    /// Appends the packet to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, version, detail, connection, rest) = match *self {
            Self::Hello { version, connection, noise } => (HELLO, version, 0, connection, noise),
            Self::Reply { connection, noise } => (REPLY, VERSION, 0, connection, noise),
            Self::Refused { connection, refusal, echo } => {
                let (detail, version) = match refusal {
                    Refusal::WrongKey => (1, VERSION),
                    Refusal::Version(version) => (2, version),
                    Refusal::Busy => (3, VERSION),
                };
                (REFUSED, version, detail, connection, echo)
            }
        };
        out.put_u8(kind);
        out.put_u8(version);
        out.put_u16(detail);
        out.put_u32(connection);
        out.put_slice(rest);
    }

    /// Reads a packet of the opening.
    ///
    /// # Errors
    /// [`WireError`] when it is none.
    pub fn decode(mut datagram: &'a [u8]) -> Result<Self, WireError> {
        if datagram.len() < Self::FIXED_LEN {
            return Err(WireError::Truncated);
        }
        let kind = datagram.get_u8();
        let version = datagram.get_u8();
        let detail = datagram.get_u16();
        let connection = datagram.get_u32();
        match kind {
            HELLO => Ok(Self::Hello { version, connection, noise: datagram }),
            REPLY => Ok(Self::Reply { connection, noise: datagram }),
            REFUSED => {
                let refusal = match detail {
                    1 => Refusal::WrongKey,
                    2 => Refusal::Version(version),
                    3 => Refusal::Busy,
                    _ => return Err(WireError::Field("refusal")),
                };
                let echo = datagram.get(..Self::ECHO_LEN).ok_or(WireError::Truncated)?;
                Ok(Self::Refused { connection, refusal, echo })
            }
            other => Err(WireError::Kind(other)),
        }
    }
}

/// What each end tells the other inside the handshake's sealed payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The connection's number at the end that speaks.
    pub connection: u32,
    /// Bytes of all streams together that the other end may send before the first report.
    pub connection_credit: u64,
    /// Bytes that the other end may send on each stream before the first report.
    pub stream_credit: u64,
    /// Streams that the other end may have open at a time.
    pub streams: u64,
}

impl Parameters {
    /// The length of the encoded form.
    pub const LEN: usize = 28;

    /// The encoded form, with zeros behind it up to `padded` bytes.
    pub fn encode(&self, padded: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(padded.max(Self::LEN));
        out.put_u32(self.connection);
        out.put_u64(self.connection_credit);
        out.put_u64(self.stream_credit);
        out.put_u64(self.streams);
        out.resize(padded.max(Self::LEN), 0);
        out
    }

    /// Reads the fields; what follows them is ignored, so that later versions can add some.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    pub fn decode(mut payload: &[u8]) -> Result<Self, WireError> {
        Ok(Self {
            connection: payload.try_get_u32()?,
            connection_credit: payload.try_get_u64()?,
            stream_credit: payload.try_get_u64()?,
            streams: payload.try_get_u64()?,
        })
    }
}

//! The packets without a seal: those before there are keys, and the reset when there are none any
//! more.

use core::time::Duration;

use bytes::{Buf, BufMut};

use super::WireError;
use crate::crypto::{Pattern, PublicKey, TOKEN_LEN, Token};

const HELLO: u8 = 1;
const REPLY: u8 = 2;
const REFUSED: u8 = 3;
const RETRY: u8 = 4;
const GONE: u8 = 5;
const WHO: u8 = 6;
const HOST: u8 = 7;

/// Versions of the protocol that one end speaks.
pub type Versions = units::Versions<u8>;

/// What this program speaks.
pub const SPOKEN: Versions = Versions { oldest: 1, newest: 1 };

/// Why a hello was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The hello is not for the key that the responder holds.
    #[error("the other side holds a different key")]
    WrongKey,
    /// The responder does not speak this version of the protocol.
    #[error("the other side speaks {0} of the protocol")]
    Version(Versions),
    /// The responder has no room for another connection.
    #[error("the other side has no room for another connection; try again later")]
    Busy,
    /// The initiator's own key is not let in.
    #[error("the other side does not let this key in")]
    NotAllowed,
    /// The responder proves itself in another way.
    #[error("the other side does not take this kind of key")]
    Pattern,
    /// The responder uses another [`crate::FeedbackKind`].
    #[error("the other side uses another feedback; give both the same --feedback")]
    Feedback,
}

/// What an answer repeats of its question: of a hello, the initiator's ephemeral key.
pub type Echo = [u8; 32];

/// A packet without a seal: `kind u8, version u8, oldest u8, detail u8, connection u32, rest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening<'a> {
    /// Initiator to responder: a cookie (zeros if it was given none) and a Noise message, padded
    /// so that no answer is larger.
    Hello {
        /// The version of the protocol that follows.
        version: u8,
        /// The kind of handshake, a [`Pattern`].
        pattern: u8,
        /// The connection's number at the initiator.
        connection: u32,
        /// What a [`Opening::Retry`] gave.
        cookie: &'a Token,
        /// The Noise message.
        noise: &'a [u8],
    },
    /// Responder to initiator.
    Reply {
        /// The version of the hello.
        version: u8,
        /// The connection's number at the initiator.
        connection: u32,
        /// The Noise message.
        noise: &'a [u8],
    },
    /// Responder to initiator, without any state kept. Not authenticated: believed only of
    /// exactly the hello that was sent, which nobody off the path can know. One that was damaged
    /// on the way is refused as well, and that says nothing.
    Refused {
        /// The connection's number at the initiator.
        connection: u32,
        /// Why.
        refusal: Refusal,
        /// Which hello: its [`crate::crypto::digest`].
        digest: &'a Echo,
    },
    /// Responder to initiator, without any state kept: say it again with this cookie, to prove
    /// that you are where you say. Believed when it repeats the hello's first bytes.
    Retry {
        /// The connection's number at the initiator.
        connection: u32,
        /// The first bytes of the hello's Noise message.
        echo: &'a Echo,
        /// To be put into the hello.
        cookie: &'a Token,
    },
    /// The answer to a sealed packet of a connection that the responder does not know, as after a
    /// restart.
    Gone {
        /// The number in the packet.
        connection: u32,
        /// Believed when it is the one of the handshake.
        token: &'a Token,
    },
    /// Anybody to responder: what is your key? Padded as a hello is.
    Who {
        /// A number of the asker's choice.
        connection: u32,
        /// Random.
        nonce: &'a Echo,
    },
    /// The answer. It proves nothing; a handshake with that key does.
    Host {
        /// The number of the question.
        connection: u32,
        /// The nonce of the question.
        nonce: &'a Echo,
        /// The responder's key.
        key: PublicKey,
    },
}

impl<'a> Opening<'a> {
    /// Hellos and questions are exactly so long: no answer is larger, and every path carries it.
    pub const HELLO_LEN: usize = 1200;
    /// What stands before a hello's Noise message.
    pub const HELLO_PREFIX_LEN: usize = Self::FIXED_LEN + TOKEN_LEN;
    const FIXED_LEN: usize = 8;

    /// Whether the datagram's first byte says that it has no seal.
    pub fn is_opening(datagram: &[u8]) -> bool {
        matches!(datagram.first(), Some(HELLO..=HOST))
    }

    /// Appends the packet to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut begin = |kind, version, oldest, detail, connection| {
            out.put_slice(&[kind, version, oldest, detail]);
            out.put_u32(connection);
        };
        match *self {
            Self::Hello { version, pattern, connection, cookie, noise } => {
                begin(HELLO, version, 0, pattern, connection);
                out.put_slice(cookie);
                out.put_slice(noise);
            }
            Self::Reply { version, connection, noise } => {
                begin(REPLY, version, 0, 0, connection);
                out.put_slice(noise);
            }
            Self::Refused { connection, refusal, digest } => {
                let none = Versions { oldest: 0, newest: 0 };
                let (detail, versions) = match refusal {
                    Refusal::WrongKey => (1, none),
                    Refusal::Version(versions) => (2, versions),
                    Refusal::Busy => (3, none),
                    Refusal::NotAllowed => (4, none),
                    Refusal::Pattern => (5, none),
                    Refusal::Feedback => (6, none),
                };
                begin(REFUSED, versions.newest, versions.oldest, detail, connection);
                out.put_slice(digest);
            }
            Self::Retry { connection, echo, cookie } => {
                begin(RETRY, 0, 0, 0, connection);
                out.put_slice(echo);
                out.put_slice(cookie);
            }
            Self::Gone { connection, token } => {
                begin(GONE, 0, 0, 0, connection);
                out.put_slice(token);
            }
            Self::Who { connection, nonce } => {
                begin(WHO, 0, 0, 0, connection);
                out.put_slice(nonce);
                out.resize(start + Self::HELLO_LEN, 0);
            }
            Self::Host { connection, nonce, key } => {
                begin(HOST, 0, 0, 0, connection);
                out.put_slice(nonce);
                out.put_slice(key.as_bytes());
            }
        }
    }

    /// Reads a packet without a seal.
    ///
    /// # Errors
    /// [`WireError`] when it is none.
    pub fn decode(mut datagram: &'a [u8]) -> Result<Self, WireError> {
        if datagram.len() < Self::FIXED_LEN {
            return Err(WireError::Truncated);
        }
        let kind = datagram.get_u8();
        let version = datagram.get_u8();
        let oldest = datagram.get_u8();
        let detail = datagram.get_u8();
        let connection = datagram.get_u32();
        let rest = &mut datagram;
        match kind {
            HELLO => {
                let cookie = array(rest)?;
                Ok(Self::Hello { version, pattern: detail, connection, cookie, noise: rest })
            }
            REPLY => Ok(Self::Reply { version, connection, noise: rest }),
            REFUSED => {
                let refusal = match detail {
                    1 => Refusal::WrongKey,
                    2 => Refusal::Version(Versions { oldest, newest: version }),
                    3 => Refusal::Busy,
                    4 => Refusal::NotAllowed,
                    5 => Refusal::Pattern,
                    6 => Refusal::Feedback,
                    _ => return Err(WireError::Field("refusal")),
                };
                let digest = array(rest)?;
                Ok(Self::Refused { connection, refusal, digest })
            }
            RETRY => {
                let echo = array(rest)?;
                Ok(Self::Retry { connection, echo, cookie: array(rest)? })
            }
            GONE => Ok(Self::Gone { connection, token: array(rest)? }),
            WHO => Ok(Self::Who { connection, nonce: array(rest)? }),
            HOST => {
                let nonce = array(rest)?;
                let key = PublicKey::from_bytes(*array(rest)?);
                Ok(Self::Host { connection, nonce, key })
            }
            other => Err(WireError::Kind(other)),
        }
    }
}

/// The first bytes, which are cut off.
fn array<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], WireError> {
    let (first, after) = rest.split_first_chunk().ok_or(WireError::Truncated)?;
    *rest = after;
    Ok(first)
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
    /// Without any authentic packet for so long, the end that speaks gives the connection up.
    /// Whole milliseconds on the wire.
    pub idle_timeout: Duration,
    /// What the end that speaks will say when it does not know the connection any more.
    pub reset_token: Token,
    /// What the end that speaks speaks.
    pub versions: Versions,
    /// A [`crate::FeedbackKind`], which must be that of both.
    pub feedback: u8,
}

impl Parameters {
    /// The length of the encoded form.
    pub const LEN: usize = 55;

    /// The encoded form, with zeros behind it up to `padded` bytes.
    pub fn encode(&self, padded: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(padded.max(Self::LEN));
        out.put_u32(self.connection);
        out.put_u64(self.connection_credit);
        out.put_u64(self.stream_credit);
        out.put_u64(self.streams);
        out.put_u64(u64::try_from(self.idle_timeout.as_millis()).unwrap_or(u64::MAX));
        out.put_slice(&self.reset_token);
        out.put_slice(&[self.versions.oldest, self.versions.newest, self.feedback]);
        out.resize(padded.max(Self::LEN), 0);
        out
    }

    /// Reads the fields; what follows them is ignored, so that later versions can add some.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    pub fn decode(mut payload: &[u8]) -> Result<Self, WireError> {
        let rest = &mut payload;
        Ok(Self {
            connection: rest.try_get_u32()?,
            connection_credit: rest.try_get_u64()?,
            stream_credit: rest.try_get_u64()?,
            streams: rest.try_get_u64()?,
            idle_timeout: Duration::from_millis(rest.try_get_u64()?),
            reset_token: *array(rest)?,
            versions: Versions { oldest: rest.try_get_u8()?, newest: rest.try_get_u8()? },
            feedback: rest.try_get_u8()?,
        })
    }
}

/// A hello of the given version and pattern, without a cookie.
pub(crate) fn hello(version: u8, pattern: Pattern, connection: u32, noise: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(Opening::HELLO_LEN);
    let (pattern, cookie) = (pattern as u8, &[0; TOKEN_LEN]);
    Opening::Hello { version, pattern, connection, cookie, noise }.encode(&mut out);
    out
}

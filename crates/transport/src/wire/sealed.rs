//! The header of sealed packets, and the bodies of all kinds but the report.

use bytes::{Buf, BufMut};

use super::{Report, StreamCredit, WireError, leb128};

/// Length of [`Header`].
pub const HEADER_LEN: usize = 10;

/// The kinds of sealed packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A piece of a stream ([`Data`]).
    Data = 16,
    /// The receiver's whole state ([`super::Report`]).
    Report = 17,
    /// The sender's whole state ([`State`]).
    State = 18,
    /// Asks for a report; padded, it probes the path's MTU.
    Ping = 19,
    /// The sender of a stream gives it up ([`StreamSignal`]).
    Reset = 20,
    /// The reader of a stream wants no more of it ([`StreamSignal`]).
    Stop = 21,
    /// The connection ends ([`Close`]).
    Close = 22,
    /// Asks whether the other end is at the address it is sent to ([`Challenge`]).
    PathChallenge = 23,
    /// The answer, from there ([`Challenge`]).
    PathResponse = 24,
    /// Pieces of several streams ([`Piece`]).
    Pieces = 25,
}

impl Kind {
    /// Whether the packet asks for a report. Reports and states do not: a report of reports
    /// would never end.
    pub const fn wants_report(self) -> bool {
        matches!(self, Self::Data | Self::Pieces | Self::Ping | Self::Reset | Self::Stop)
    }
}

impl TryFrom<u8> for Kind {
    type Error = WireError;
    fn try_from(byte: u8) -> Result<Self, WireError> {
        Ok(match byte {
            16 => Self::Data,
            17 => Self::Report,
            18 => Self::State,
            19 => Self::Ping,
            20 => Self::Reset,
            21 => Self::Stop,
            22 => Self::Close,
            23 => Self::PathChallenge,
            24 => Self::PathResponse,
            25 => Self::Pieces,
            other => return Err(WireError::Kind(other)),
        })
    }
}

/// `flags and kind u8, epoch u8, connection u32, number u32`; authenticated, not encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the body is.
    pub kind: Kind,
    /// Whether the piece of stream reaches the stream's end.
    pub fin: bool,
    /// Whether the packet was sent in one go with the one numbered before it.
    pub follows: bool,
    /// Which of the sender's keys sealed the packet, modulo 2^8.
    pub epoch: u8,
    /// The connection's number at the end that receives the packet.
    pub connection: u32,
    /// The packet number, modulo 2^32: one sequence for all kinds, never reused.
    pub number: u32,
}

impl Header {
    /// No connection lasts long enough for more packets: 2^62 at 10^9 a second take 146 years.
    pub const MAX_NUMBER: u64 = 1 << 62;
    const FIN: u8 = 0x40;
    const FOLLOWS: u8 = 0x80;

    /// Appends the header to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let fin = if self.fin { Self::FIN } else { 0 };
        let follows = if self.follows { Self::FOLLOWS } else { 0 };
        out.put_u8(self.kind as u8 | fin | follows);
        out.put_u8(self.epoch);
        out.put_u32(self.connection);
        out.put_u32(self.number);
    }

    /// Reads the header.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(mut packet: &[u8]) -> Result<Self, WireError> {
        if packet.len() < HEADER_LEN {
            return Err(WireError::Truncated);
        }
        let first = packet.get_u8();
        Ok(Self {
            kind: Kind::try_from(first & !(Self::FIN | Self::FOLLOWS))?,
            fin: first & Self::FIN != 0,
            follows: first & Self::FOLLOWS != 0,
            epoch: packet.get_u8(),
            connection: packet.get_u32(),
            number: packet.get_u32(),
        })
    }

    /// The whole packet number: of those that end like this the one nearest to `near`. A sender that
    /// means another one has sealed the packet under another nonce.
    pub fn number_near(&self, near: u64) -> u64 {
        let ahead = self.number.wrapping_sub(near as u32).cast_signed();
        near.checked_add_signed(ahead.into()).unwrap_or_else(|| self.number.into())
    }
}

/// `stream, offset, payload`; the numbers are LEB128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// The stream.
    pub stream: u64,
    /// Where in the stream the payload belongs.
    pub offset: u64,
    /// The bytes.
    pub payload: &'a [u8],
}

impl<'a> Data<'a> {
    /// Length of what stands before the payload.
    pub const fn prefix_len(stream: u64, offset: u64) -> usize {
        leb128::len(stream) + leb128::len(offset)
    }

    /// Appends what stands before the payload.
    pub fn encode_prefix(out: &mut Vec<u8>, stream: u64, offset: u64) {
        leb128::put(out, stream);
        leb128::put(out, offset);
    }

    /// Reads a data packet's body.
    ///
    /// # Errors
    /// [`WireError`], also when the offset is above 2^62.
    pub fn decode(mut body: &'a [u8]) -> Result<Self, WireError> {
        let (stream, offset) = Self::decode_prefix(&mut body)?;
        Ok(Self { stream, offset, payload: body })
    }

    fn decode_prefix(body: &mut &[u8]) -> Result<(u64, u64), WireError> {
        let (stream, offset) = (leb128::get(body)?, leb128::get(body)?);
        if offset > 1 << 62 {
            return Err(WireError::Field("offset"));
        }
        Ok((stream, offset))
    }
}

/// One of several pieces of streams that share a packet: `length u16, stream, offset, payload`, where the
/// highest bit of the length tells that the piece reaches the stream's end. A length of zero without that
/// bit, and a single byte at the packet's end, begin padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The bytes and where they belong.
    pub data: Data<'a>,
    /// Whether the piece reaches the stream's end.
    pub fin: bool,
}

impl<'a> Piece<'a> {
    /// Nothing that stands before a payload is longer.
    pub const MAX_PREFIX_LEN: usize = Self::LENGTH_LEN + 2 * leb128::MAX_LEN;
    const LENGTH_LEN: usize = 2;
    const FIN: u16 = 1 << 15;

    /// Length of what stands before the payload.
    pub const fn prefix_len(stream: u64, offset: u64) -> usize {
        Self::LENGTH_LEN + Data::prefix_len(stream, offset)
    }

    /// Appends what stands before the payload of `len` bytes, of which there are some or it is the end.
    pub fn encode_prefix(out: &mut Vec<u8>, stream: u64, offset: u64, (len, fin): (usize, bool)) {
        debug_assert!(len < usize::from(Self::FIN) && (len > 0 || fin));
        out.put_u16(len as u16 | if fin { Self::FIN } else { 0 });
        Data::encode_prefix(out, stream, offset);
    }

    /// Reads the next piece and moves `body` past it; `None` at the end.
    ///
    /// # Errors
    /// [`WireError`], also when the offset is above 2^62.
    pub fn decode(body: &mut &'a [u8]) -> Result<Option<Self>, WireError> {
        let length = body.try_get_u16().unwrap_or(0);
        if length == 0 {
            return Ok(None);
        }
        let (stream, offset) = Data::decode_prefix(body)?;
        let (payload, rest) =
            body.split_at_checked(usize::from(length & !Self::FIN)).ok_or(WireError::Truncated)?;
        *body = rest;
        let data = Data { stream, offset, payload };
        Ok(Some(Self { data, fin: length & Self::FIN != 0 }))
    }
}

/// The most blocked streams that one state names; with more they take turns.
pub const MAX_BLOCKED: usize = 16;

/// The sender's whole state (paper 5, packet type 1):
/// `lower u64, upper u64, queued u64, rtt u64, pairs u8`, and blocked streams to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Every number below is settled: received, or given up and its content sent again.
    pub lower: u64,
    /// The next number to be sent.
    pub upper: u64,
    /// Bytes written by the application and not yet sent.
    pub queued: u64,
    /// The sender's smoothed round-trip time in nanoseconds, 0 while unknown.
    pub rtt: u64,
    /// Whether reports are to tell the capacity by pairs of packets instead of trains.
    pub pairs: bool,
    /// Streams that wait for credit, with the credit that the sender knows of.
    pub blocked: Vec<StreamCredit>,
}

impl State {
    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for field in [self.lower, self.upper, self.queued, self.rtt] {
            out.put_u64(field);
        }
        out.put_u8(u8::from(self.pairs));
        self.blocked.iter().for_each(|stream| stream.encode(out));
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(mut body: &[u8]) -> Result<Self, WireError> {
        let body = &mut body;
        let mut state = Self {
            lower: body.try_get_u64()?,
            upper: body.try_get_u64()?,
            queued: body.try_get_u64()?,
            rtt: body.try_get_u64()?,
            pairs: match body.try_get_u8()? {
                0 => false,
                1 => true,
                _ => return Err(WireError::Field("way to tell the capacity")),
            },
            blocked: Vec::new(),
        };
        while body.has_remaining() {
            if state.blocked.len() == MAX_BLOCKED {
                return Err(WireError::Field("number of blocked streams"));
            }
            state.blocked.push(StreamCredit::decode(body)?);
        }
        if state.lower > state.upper { Err(WireError::Field("window")) } else { Ok(state) }
    }
}

/// A reset or a stop: `stream u64, code u64, end u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSignal {
    /// The stream.
    pub stream: u64,
    /// The application's reason.
    pub code: u64,
    /// Of a reset: how many bytes of the stream count against credit. Of a stop: 0.
    pub end: u64,
}

impl StreamSignal {
    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for field in [self.stream, self.code, self.end] {
            out.put_u64(field);
        }
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(mut body: &[u8]) -> Result<Self, WireError> {
        Ok(Self {
            stream: body.try_get_u64()?,
            code: body.try_get_u64()?,
            end: body.try_get_u64()?,
        })
    }
}

/// What proves that a packet sent to an address arrived there: `token u64`, random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge(pub u64);

impl Challenge {
    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.0);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(mut body: &[u8]) -> Result<Self, WireError> {
        Ok(Self(body.try_get_u64()?))
    }
}

/// The connection's end: `code u64, reason` in UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The application's code; 0 is an orderly end.
    pub code: u64,
    /// For people.
    pub reason: String,
}

impl Close {
    /// The code of a close for a broken protocol; applications use smaller ones.
    pub const VIOLATION: u64 = u64::MAX;
    /// Longer reasons are cut.
    pub const MAX_REASON: usize = 512;

    /// The length of the body without a report.
    pub fn body_len(&self) -> usize {
        8 + 2 + self.reason.floor_char_boundary(Self::MAX_REASON)
    }

    /// Appends the body to `out`; `last` is the last word on what has arrived, if anything has.
    pub fn encode(&self, last: Option<&Report>, out: &mut Vec<u8>) {
        out.put_u64(self.code);
        let cut = self.reason.floor_char_boundary(Self::MAX_REASON);
        out.put_u16(cut as u16);
        out.put_slice(&self.reason.as_bytes()[..cut]);
        if let Some(report) = last {
            report.encode(out);
        }
    }

    /// Reads the body, and the report in it; what is not printable text in the reason is replaced.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(mut body: &[u8]) -> Result<(Self, Option<Report>), WireError> {
        let code = body.try_get_u64()?;
        let len = usize::from(body.try_get_u16()?);
        if len > Self::MAX_REASON {
            return Err(WireError::Field("length of the reason"));
        }
        let (reason, rest) = body.split_at_checked(len).ok_or(WireError::Truncated)?;
        let reason = String::from_utf8_lossy(reason);
        // It will be shown on a terminal.
        let reason = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let last = (!rest.is_empty()).then(|| Report::decode(rest)).transpose()?;
        Ok((Self { code, reason }, last))
    }
}

//! The header of sealed packets, and the bodies of all kinds but the report.

use bytes::{Buf, BufMut};

use super::{Report, StreamCredit, WireError};

/// Length of [`Header`].
pub const HEADER_LEN: usize = 16;
/// Length of what stands before the payload in a data packet.
pub const DATA_PREFIX_LEN: usize = 16;

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

/// `kind u8, flags u8, epoch u16, connection u32, number u64`; authenticated, not encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the body is.
    pub kind: Kind,
    /// Whether the piece of stream reaches the stream's end.
    pub fin: bool,
    /// Whether the packet was sent in one go with the one numbered before it.
    pub follows: bool,
    /// Which of the sender's keys sealed the packet.
    pub epoch: u16,
    /// The connection's number at the end that receives the packet.
    pub connection: u32,
    /// The packet number: one sequence for all kinds, never reused.
    pub number: u64,
}

impl Header {
    /// No connection lasts long enough for more: 2^62 packets at 10^9 a second take 146 years.
    pub const MAX_NUMBER: u64 = 1 << 62;
    const FIN: u8 = 1;
    const FOLLOWS: u8 = 2;

    /// Appends the header to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.kind as u8);
        let fin = if self.fin { Self::FIN } else { 0 };
        let follows = if self.follows { Self::FOLLOWS } else { 0 };
        out.put_u8(fin | follows);
        out.put_u16(self.epoch);
        out.put_u32(self.connection);
        out.put_u64(self.number);
    }

    /// Reads the header.
    ///
    /// # Errors
    /// [`WireError`]; unknown flags are refused, as nothing sends them yet.
    pub fn decode(mut packet: &[u8]) -> Result<Self, WireError> {
        if packet.len() < HEADER_LEN {
            return Err(WireError::Truncated);
        }
        let kind = Kind::try_from(packet.get_u8())?;
        let flags = packet.get_u8();
        if flags & !(Self::FIN | Self::FOLLOWS) != 0 {
            return Err(WireError::Field("flags"));
        }
        let epoch = packet.get_u16();
        let (connection, number) = (packet.get_u32(), packet.get_u64());
        if number > Self::MAX_NUMBER {
            return Err(WireError::Field("number"));
        }
        Ok(Self {
            kind,
            fin: flags & Self::FIN != 0,
            follows: flags & Self::FOLLOWS != 0,
            epoch,
            connection,
            number,
        })
    }
}

/// `stream u64, offset u64, payload`.
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
    /// Appends what stands before the payload.
    pub fn encode_prefix(out: &mut Vec<u8>, stream: u64, offset: u64) {
        out.put_u64(stream);
        out.put_u64(offset);
    }

    /// Reads a data packet's body.
    ///
    /// # Errors
    /// [`WireError`], also when the payload would reach past 2^62 bytes.
    pub fn decode(mut body: &'a [u8]) -> Result<Self, WireError> {
        let stream = body.try_get_u64()?;
        let offset = body.try_get_u64()?;
        if offset > 1 << 62 {
            return Err(WireError::Field("offset"));
        }
        Ok(Self { stream, offset, payload: body })
    }
}

/// One of several pieces of streams that share a packet: `stream u64, offset u64, length u16,
/// payload`, where the highest bit of the length tells that the piece reaches the stream's end.
/// Fewer bytes than [`Piece::PREFIX_LEN`] at the packet's end are padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The bytes and where they belong.
    pub data: Data<'a>,
    /// Whether the piece reaches the stream's end.
    pub fin: bool,
}

impl<'a> Piece<'a> {
    /// Length of what stands before each payload.
    pub const PREFIX_LEN: usize = 18;
    const FIN: u16 = 1 << 15;

    /// Appends what stands before the payload of `len` bytes.
    pub fn encode_prefix(out: &mut Vec<u8>, stream: u64, offset: u64, (len, fin): (usize, bool)) {
        debug_assert!(len < usize::from(Self::FIN));
        Data::encode_prefix(out, stream, offset);
        out.put_u16(len as u16 | if fin { Self::FIN } else { 0 });
    }

    /// Reads the next piece and moves `body` past it; `None` at the end.
    ///
    /// # Errors
    /// [`WireError`], also when the payload would reach past 2^62 bytes.
    pub fn decode(body: &mut &'a [u8]) -> Result<Option<Self>, WireError> {
        if body.len() < Self::PREFIX_LEN {
            return Ok(None);
        }
        let (prefix, rest) = body.split_at(DATA_PREFIX_LEN);
        let Data { stream, offset, .. } = Data::decode(prefix)?;
        *body = rest;
        let length = body.try_get_u16()?;
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

//! The receiver's whole state (paper 5, packet type 0).

use bytes::{Buf, BufMut};

use super::{WireError, leb128};

/// The most stream credits in one report; more follow in the next.
pub const MAX_CREDITS: usize = 32;

/// `received` numbers that have arrived, then `missing` that have not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How many numbers in a row have arrived.
    pub received: u64,
    /// How many numbers after them have not.
    pub missing: u64,
}

impl Run {
    /// The bytes that it takes in a map.
    pub(crate) const fn len(&self) -> usize {
        leb128::len(self.received) + leb128::len(self.missing)
    }
}

/// How far the other end may send on one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamCredit {
    /// The stream.
    pub stream: u64,
    /// The offset that must not be passed.
    pub credit: u64,
}

impl StreamCredit {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.stream);
        out.put_u64(self.credit);
    }

    pub(super) fn decode(body: &mut &[u8]) -> Result<Self, WireError> {
        Ok(Self { stream: body.try_get_u64()?, credit: body.try_get_u64()? })
    }
}

/// Everything the sender needs to know of its receiver. A lost report costs nothing: the next
/// one says everything again.
///
/// Fixed fields of 8 bytes in the order below, then the number of credits (`u8`) and the
/// credits, then the map: runs as pairs of LEB128 numbers, beginning at `from`, to the end of
/// the body. Of a map that does not fit in one datagram each report tells a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// As in [`super::State::lower`], for the numbers of the end that sends the report.
    pub lower: u64,
    /// The largest number received.
    pub largest: u64,
    /// When it arrived, in nanoseconds of the receiver's clock.
    pub largest_arrival: u64,
    /// When the report was made, in nanoseconds of the receiver's clock.
    pub made_at: u64,
    /// Bytes of all datagrams received and authentic, without UDP and IP headers.
    pub bytes: u64,
    /// Bytes of all streams together that may be sent.
    pub connection_credit: u64,
    /// Streams that may be opened, from the connection's beginning on.
    pub streams: u64,
    /// The path's capacity in bits a second, from trains of packets; 0 while unknown.
    pub capacity: u64,
    /// Datagrams that arrived marked "congestion experienced".
    pub ecn_ce: u64,
    /// The number at which the map begins.
    pub from: u64,
    /// Credits of streams.
    pub credits: Vec<StreamCredit>,
    /// The map.
    pub runs: Vec<Run>,
}

impl Report {
    /// The length of the fixed part, without credits and map.
    pub const FIXED_LEN: usize = 10 * 8 + 1;

    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.credits.len() <= MAX_CREDITS);
        for field in [
            self.lower,
            self.largest,
            self.largest_arrival,
            self.made_at,
            self.bytes,
            self.connection_credit,
            self.streams,
            self.capacity,
            self.ecn_ce,
            self.from,
        ] {
            out.put_u64(field);
        }
        out.put_u8(self.credits.len() as u8);
        self.credits.iter().for_each(|credit| credit.encode(out));
        for run in &self.runs {
            leb128::put(out, run.received);
            leb128::put(out, run.missing);
        }
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`WireError`], also when the map reaches past the last possible number.
    pub fn decode(mut body: &[u8]) -> Result<Self, WireError> {
        let body = &mut body;
        let mut report = Self {
            lower: body.try_get_u64()?,
            largest: body.try_get_u64()?,
            largest_arrival: body.try_get_u64()?,
            made_at: body.try_get_u64()?,
            bytes: body.try_get_u64()?,
            connection_credit: body.try_get_u64()?,
            streams: body.try_get_u64()?,
            capacity: body.try_get_u64()?,
            ecn_ce: body.try_get_u64()?,
            from: body.try_get_u64()?,
            credits: Vec::new(),
            runs: Vec::new(),
        };
        let credits = usize::from(body.try_get_u8()?);
        if credits > MAX_CREDITS {
            return Err(WireError::Field("number of credits"));
        }
        for _ in 0..credits {
            report.credits.push(StreamCredit::decode(body)?);
        }
        let mut end = report.from;
        while body.has_remaining() {
            let run = Run { received: leb128::get(body)?, missing: leb128::get(body)? };
            end = end
                .checked_add(run.received)
                .and_then(|end| end.checked_add(run.missing))
                .ok_or(WireError::Field("map"))?;
            report.runs.push(run);
        }
        Ok(report)
    }
}

//! The record format of general streams: a fixed header, then the payload.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | kind: 0 data, 1 acknowledgement, 2 leave, 3 reset |
//! | 1..4 | zero |
//! | 4..8 | length of the payload, big endian: 0 to [`MAX_PAYLOAD`] for data, [`ACK_LEN`], 0, 0 |
//! | 8..16 | number, big endian: data records count from 0; 0 for the others |
//!
//! A data record without payload is the end of its direction. *Leave* is the last word of an end
//! about one connection: it will send no more data over it and has all that it sent over it
//! confirmed. *Reset* ends the stream unfinished.

use units::SeqNo;

use crate::count::System;

/// Bytes in front of each payload.
pub const HEADER_LEN: usize = 16;

/// The longest payload. Large enough that the cost of a record is small beside that of its bytes;
/// small, because the end of a stream waits for the last record of the slowest connection.
pub const MAX_PAYLOAD: usize = 32 << 10;

/// Bytes of an [`Ack`].
pub const ACK_LEN: usize = 60;

const DATA: u8 = 0;
const ACK: u8 = 1;
const LEAVE: u8 = 2;
const RESET: u8 = 3;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A piece of the stream, or its end.
    Data {
        /// Its place among the records of this direction, below [`u64::MAX`].
        number: SeqNo,
        /// Bytes of payload that follow, up to [`MAX_PAYLOAD`]; none at the end.
        length: usize,
    },
    /// An [`Ack`] follows.
    Ack,
    /// This side sends no more data over this connection, and nothing that it did is unconfirmed.
    Leave,
    /// The stream is given up by this side.
    Reset,
}

/// Bytes that are no record header. The stream cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// There is no such kind, or the zero bytes are not zero.
    #[error("unknown kind of record: the other side speaks another version")]
    Kind,
    /// Not the length of a record of this kind.
    #[error("impossible record length {0}")]
    Length(u32),
    /// No record of this kind has such a number.
    #[error("impossible record number {0}")]
    Number(u64),
}

impl Header {
    /// Bytes of payload behind this header.
    pub const fn payload(self) -> usize {
        match self {
            Self::Data { length, .. } => length,
            Self::Ack => ACK_LEN,
            Self::Leave | Self::Reset => 0,
        }
    }

    /// The wire form.
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let (kind, number) = match self {
            Self::Data { number, .. } => (DATA, number.0),
            Self::Ack => (ACK, 0),
            Self::Leave => (LEAVE, 0),
            Self::Reset => (RESET, 0),
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = kind;
        bytes[4..8].copy_from_slice(&(self.payload() as u32).to_be_bytes());
        bytes[8..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// [`HeaderError`] for everything [`Header::encode`] does not write.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, HeaderError> {
        let [kind, z1, z2, z3, l1, l2, l3, l4, number @ ..] = *bytes;
        let length = u32::from_be_bytes([l1, l2, l3, l4]);
        let number = u64::from_be_bytes(number);
        let header = match kind {
            _ if [z1, z2, z3] != [0; 3] => return Err(HeaderError::Kind),
            DATA if length as usize <= MAX_PAYLOAD => {
                Self::Data { number: SeqNo(number), length: length as usize }
            }
            DATA => return Err(HeaderError::Length(length)),
            ACK => Self::Ack,
            LEAVE => Self::Leave,
            RESET => Self::Reset,
            _ => return Err(HeaderError::Kind),
        };
        if header.payload() != length as usize {
            return Err(HeaderError::Length(length));
        }
        let possible = match header {
            Self::Data { .. } => number < u64::MAX,
            _ => number == 0,
        };
        if possible { Ok(header) } else { Err(HeaderError::Number(number)) }
    }
}

/// What a receiver tells over a connection about the other direction: how far it has come, and how
/// far it will go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Data records that came over this connection.
    pub received: u64,
    /// All records below this number came, over whichever connection.
    pub through: u64,
    /// Records from this number on must not be sent yet.
    pub limit: u64,
    /// How many connections this end would like to send over; 0 when it does not mind.
    pub wish: u32,
    /// The round-trip time that this end sees by echoes, and the least of it, in microseconds; 0 when
    /// it asks for none.
    pub echoed: [u32; 2],
    /// What this end, as the one that sends, has learnt of the way to the other; zeros for nothing.
    pub system: Option<System>,
}

impl Ack {
    /// The payload behind [`Header::Ack`], big endian in the order of the fields.
    pub fn encode(&self) -> [u8; ACK_LEN] {
        let mut bytes = [0; ACK_LEN];
        for (place, number) in [self.received, self.through, self.limit].into_iter().enumerate() {
            bytes[8 * place..][..8].copy_from_slice(&number.to_be_bytes());
        }
        let [smoothed, least] = self.echoed;
        for (place, number) in [self.wish, smoothed, least].into_iter().enumerate() {
            bytes[24 + 4 * place..][..4].copy_from_slice(&number.to_be_bytes());
        }
        let system = self.system.map_or([0; 3], System::numbers);
        for (place, number) in system.into_iter().enumerate() {
            bytes[36 + 8 * place..][..8].copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// Reads it; anything means something.
    pub fn decode(bytes: &[u8; ACK_LEN]) -> Self {
        let large = |at: usize| u64::from_be_bytes(*bytes[at..].first_chunk().expect("it fits"));
        let small = |place: usize| {
            u32::from_be_bytes(*bytes[24 + 4 * place..].first_chunk().expect("three fit"))
        };
        let [received, through, limit] = [0, 8, 16].map(large);
        let (wish, echoed) = (small(0), [1, 2].map(small));
        let system = System::from_numbers([36, 44, 52].map(large));
        Self { received, through, limit, wish, echoed, system }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_decodes_encodes_to_the_same_bytes(
            kind in 0..5u8, zeros in prop_oneof![Just([0; 3]), any::<[u8; 3]>()],
            length in prop_oneof![
                0..3u32, Just(ACK_LEN as u32), MAX_PAYLOAD as u32 - 1..MAX_PAYLOAD as u32 + 3,
                any::<u32>()
            ],
            number in prop_oneof![Just(0), any::<u64>(), Just(u64::MAX)],
        ) {
            let mut bytes = [0; HEADER_LEN];
            bytes[0] = kind;
            bytes[1..4].copy_from_slice(&zeros);
            bytes[4..8].copy_from_slice(&length.to_be_bytes());
            bytes[8..].copy_from_slice(&number.to_be_bytes());
            match Header::decode(&bytes) {
                Ok(header) => {
                    prop_assert_eq!(header.encode(), bytes);
                    prop_assert!(header.payload() <= MAX_PAYLOAD);
                }
                Err(HeaderError::Kind) => prop_assert!(kind > RESET || zeros != [0; 3]),
                Err(HeaderError::Length(l)) => prop_assert!(
                    l == length && (l as usize > MAX_PAYLOAD || kind != DATA)
                ),
                Err(HeaderError::Number(n)) => {
                    prop_assert!(n == number && (n == u64::MAX || kind != DATA));
                }
            }
        }

        #[test]
        fn headers_and_acknowledgements_survive_the_wire(
            number in 0..u64::MAX, length in 0..=MAX_PAYLOAD,
            received: u64, through: u64, limit: u64, wish: u32, echoed: [u32; 2],
            known: bool, k in 1..=1000u16, window: u64, rtt: u32,
        ) {
            let data = Header::Data { number: SeqNo(number), length };
            for header in [data, Header::Ack, Header::Leave, Header::Reset] {
                prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
            }
            let rtt = core::time::Duration::from_micros(rtt.into());
            let system = known.then_some(System { k, window: units::Bytes(window), rtt });
            let ack = Ack { received, through, limit, wish, echoed, system };
            prop_assert_eq!(Ack::decode(&ack.encode()), ack);
        }
    }
}

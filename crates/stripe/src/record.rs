//! The record format of general streams: a fixed header, then the payload.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | kind: 0 data, 1 fin |
//! | 1..4 | zero |
//! | 4..8 | length of the payload, big endian; 1 to [`MAX_PAYLOAD`] for data, 0 for fin |
//! | 8..16 | number, big endian: data records count from 0, a fin carries how many there were |
//!
//! Every connection ends with a fin of its own, so that a connection which was cut is told from
//! one that has nothing left to carry.

use units::SeqNo;

/// Bytes in front of each payload.
pub const HEADER_LEN: usize = 16;

/// The longest payload. Large enough that the cost of a record is small beside that of its bytes;
/// small, because the end of a stream waits for the last record of the slowest connection.
pub const MAX_PAYLOAD: usize = 32 << 10;

const DATA: u8 = 0;
const FIN: u8 = 1;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A piece of the stream.
    Data {
        /// Its place among the records of this direction, below [`u64::MAX`].
        number: SeqNo,
        /// Bytes of payload that follow, 1 to [`MAX_PAYLOAD`].
        length: usize,
    },
    /// Nothing more comes over this connection.
    Fin {
        /// How many data records this direction had, over all connections.
        count: u64,
    },
}

/// Bytes that are no record header. The stream cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The kind is neither data nor fin, or the zero bytes are not zero.
    #[error("unknown kind of record: the other side speaks another version")]
    Kind,
    /// Longer than a record may be, an empty data record, or a fin with a payload.
    #[error("impossible record length {0}")]
    Length(u32),
    /// No stream has so many records.
    #[error("impossible record number {0}")]
    Number(u64),
}

impl Header {
    /// Bytes of payload behind this header.
    pub const fn payload(self) -> usize {
        match self {
            Self::Data { length, .. } => length,
            Self::Fin { .. } => 0,
        }
    }

    /// The wire form.
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let (kind, number) = match self {
            Self::Data { number, .. } => (DATA, number.0),
            Self::Fin { count } => (FIN, count),
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
        match (kind, length as usize, [z1, z2, z3]) {
            (DATA, 1..=MAX_PAYLOAD, [0, 0, 0]) if number == u64::MAX => {
                Err(HeaderError::Number(number))
            }
            (DATA, length @ 1..=MAX_PAYLOAD, [0, 0, 0]) => {
                Ok(Self::Data { number: SeqNo(number), length })
            }
            (FIN, 0, [0, 0, 0]) => Ok(Self::Fin { count: number }),
            (DATA | FIN, _, [0, 0, 0]) => Err(HeaderError::Length(length)),
            _ => Err(HeaderError::Kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_decodes_encodes_to_the_same_bytes(
            kind in 0..3u8, zeros in prop_oneof![Just([0; 3]), any::<[u8; 3]>()],
            length in prop_oneof![0..3u32, MAX_PAYLOAD as u32 - 1..MAX_PAYLOAD as u32 + 3, any::<u32>()],
            number in prop_oneof![any::<u64>(), Just(u64::MAX)],
        ) {
            let mut bytes = [0; HEADER_LEN];
            bytes[0] = kind;
            bytes[1..4].copy_from_slice(&zeros);
            bytes[4..8].copy_from_slice(&length.to_be_bytes());
            bytes[8..].copy_from_slice(&number.to_be_bytes());
            match Header::decode(&bytes) {
                Ok(header) => prop_assert_eq!(header.encode(), bytes),
                Err(HeaderError::Kind) => prop_assert!(kind > 1 || zeros != [0; 3]),
                Err(HeaderError::Length(l)) => prop_assert!(
                    l == length && (kind == FIN || l == 0 || l as usize > MAX_PAYLOAD)
                ),
                Err(HeaderError::Number(n)) => prop_assert!(n == u64::MAX && kind == DATA),
            }
        }

        #[test]
        fn headers_survive_the_wire(number in 0..u64::MAX, length in 1..=MAX_PAYLOAD) {
            let data = Header::Data { number: SeqNo(number), length };
            let fin = Header::Fin { count: number };
            prop_assert_eq!(Header::decode(&data.encode()), Ok(data));
            prop_assert_eq!(Header::decode(&fin.encode()), Ok(fin));
        }
    }
}

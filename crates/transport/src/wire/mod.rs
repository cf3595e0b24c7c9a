//! The packets. Fields have fixed places (paper 5) and are big-endian; but what each packet of a transfer
//! carries beside its payload, and what there are many of in one packet, is as short as its value
//! (`leb128`). `docs/spec/transport.md` is the same in prose.
//!
//! Packets before there are keys, and the reset, have no seal (`opening`). All others have one 10-byte
//! header, authenticated in clear, and a sealed body (`sealed`, `report`).

mod leb128;
mod opening;
mod report;
mod sealed;

pub(crate) use opening::hello;
pub use opening::{Echo, Opening, Parameters, Refusal, SPOKEN, Versions};
pub use report::{MAX_CREDITS, Report, Run, StreamCredit};
pub use sealed::{
    Challenge, Close, Data, HEADER_LEN, Header, Kind, MAX_BLOCKED, Piece, State, StreamSignal,
};

/// Why a datagram could not be read. Such a datagram is counted and otherwise ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Shorter than its fixed fields.
    #[error("truncated")]
    Truncated,
    /// Its first byte names no kind of packet.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// A field holds what no sender would write.
    #[error("impossible {0}")]
    Field(&'static str),
}

/// The answer to the echo datagram of paper 3 (section 3.3), which is no packet of ours: 12 bytes, a
/// sequence number and a time. They come back with the highest bit of the number set. Where it is set,
/// this is an answer itself, and gets none: else two servers could be made to answer each other for
/// ever.
pub(crate) fn echo(datagram: &[u8]) -> Option<[u8; ECHO_LEN]> {
    let mut answer: [u8; ECHO_LEN] = datagram.try_into().ok()?;
    let is_question = answer[0] < 0x80;
    answer[0] |= 0x80;
    is_question.then_some(answer)
}

const ECHO_LEN: usize = 12;
const _: () = assert!(ECHO_LEN < HEADER_LEN + crate::crypto::TAG_LEN);

impl From<bytes::TryGetError> for WireError {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Truncated
    }
}

#[cfg(test)]
mod tests;

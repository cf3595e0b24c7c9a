//! A packet under way: whose it is, where on its way, and what it carries.

use smallvec::SmallVec;
use units::Bytes;

use super::flow::End;
use crate::tcp::Segment;
use crate::world::HEADERS;

/// What a packet carries.
pub(super) enum Body {
    Segment(Segment),
    /// Of our transport: its place among all datagrams, where it stays until it arrives.
    Datagram(u32),
}

/// A packet under way.
pub(super) struct Parcel {
    pub(super) label: Label,
    /// The number of its TCP connection, for a flow has one after the other.
    pub(super) connection: u32,
    pub(super) ecn_capable: bool,
    pub(super) body: Body,
}

/// Whose a packet is, to which end it goes, how many links of its route are behind it, and whether one of them has damaged
/// it and let it pass, which a checksum or a seal finds at the end: as one number, for that is compared with each packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(u64);

impl Label {
    const PASSED: u64 = 1 << 32;
    const TO_RECEIVER: u64 = 1 << 48;
    const DAMAGED: u64 = 1 << 49;

    /// Of a packet that has so many links behind it.
    pub(super) fn new(flow: u32, to: End, passed: usize) -> Self {
        let to = if to == End::Receiver { Self::TO_RECEIVER } else { 0 };
        Self(u64::from(flow) + passed as u64 * Self::PASSED + to)
    }

    pub(super) fn flow(self) -> u32 {
        self.0 as u32
    }

    /// Another link is behind it.
    pub(super) fn pass_link(&mut self) {
        self.0 += Self::PASSED;
    }

    pub(super) fn damage(&mut self) {
        self.0 |= Self::DAMAGED;
    }

    pub(super) fn passed(self) -> usize {
        usize::from((self.0 / Self::PASSED) as u16)
    }

    pub(super) fn to(self) -> End {
        if self.0 & Self::TO_RECEIVER == 0 { End::Sender } else { End::Receiver }
    }

    pub(super) fn is_damaged(self) -> bool {
        self.0 & Self::DAMAGED != 0
    }
}

/// A datagram of which the zeros at the end are not kept: nothing else is written by the
/// applications here, and what need not be stored need not be fetched when it arrives.
#[derive(Clone)]
pub(super) struct Trimmed {
    /// A queue may mark it, or has.
    pub(super) ecn_capable: bool,
    pub(super) ce: bool,
    /// In place, so that those in a queue lie side by side.
    head: SmallVec<[u8; HEAD]>,
    len: usize,
}

/// What else a datagram of data has, at most.
const HEAD: usize = 128;
/// Zeros are left out by so many.
const ZEROS: [u8; 64] = [0; 64];

impl Trimmed {
    pub(super) fn new(bytes: &[u8], ecn_capable: bool) -> Self {
        let chunks = bytes.rchunks_exact(ZEROS.len());
        let left_out = chunks.take_while(|chunk| **chunk == ZEROS).count() * ZEROS.len();
        let head = SmallVec::from_slice(&bytes[..bytes.len() - left_out]);
        Self { ecn_capable, ce: false, head, len: bytes.len() }
    }

    /// Its size as an IP packet.
    pub(super) fn size(&self) -> Bytes {
        Bytes(self.len as u64 + HEADERS)
    }

    /// Puts the datagram into a buffer.
    pub(super) fn restore(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(&self.head);
        buffer.resize(self.len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_arrive_as_they_were() {
        let mut buffer = vec![7; 9];
        for length in [0, 1, 63, 64, 65, 200] {
            for last in 0..length {
                let mut bytes = vec![0; length];
                bytes[last] = 1;
                let trimmed = Trimmed::new(&bytes, false);
                assert!(trimmed.head.len() <= last + ZEROS.len());
                trimmed.restore(&mut buffer);
                assert_eq!(buffer, bytes);
            }
        }
        Trimmed::new(&[0; 100], false).restore(&mut buffer);
        assert_eq!(buffer, [0; 100]);
    }
}

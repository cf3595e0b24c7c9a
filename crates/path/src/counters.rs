//! What has happened on a link.

use core::ops::AddAssign;

use units::Bytes;

/// Why a link did not deliver a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropCause {
    /// The queue was full.
    Queue,
    /// Lost on the line.
    Loss,
    /// The model held [`MAX_HELD`](crate::MAX_HELD) packets: outside of what it can show, so a
    /// run that meets it proves nothing.
    Overflow,
}

impl DropCause {
    /// Every cause, in the order of the way through the link.
    pub const ALL: [Self; 3] = [Self::Queue, Self::Loss, Self::Overflow];
}

/// A number of packets and their bytes, without framing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

impl AddAssign<Bytes> for Tally {
    /// Counts one packet.
    fn add_assign(&mut self, size: Bytes) {
        self.packets += 1;
        self.bytes += size;
    }
}

/// What a link has done since it was made. `offered` = `delivered` + every drop + what the link
/// holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Everything sent into the link.
    pub offered: Tally,
    /// Everything that left at the other end.
    pub delivered: Tally,
    dropped: [Tally; DropCause::ALL.len()],
}

impl Counters {
    /// What was dropped for `cause`.
    pub fn dropped(&self, cause: DropCause) -> Tally {
        self.dropped[cause as usize]
    }

    pub(crate) fn drop_one(&mut self, cause: DropCause, size: Bytes) {
        self.dropped[cause as usize] += size;
    }
}

//! What has happened on a link.

use core::ops::AddAssign;

use units::Bytes;

use crate::{Fate, Fortune};

/// Why a link did not deliver a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropCause {
    /// Larger than the link's MTU.
    TooBig,
    /// The queue was full.
    Queue,
    /// The queue's management chose it (RED, `CoDel`).
    Early,
    /// Lost on the line, whole or by one of its cells.
    Loss,
    /// Damaged on the line, and dropped where a checksum found it.
    Damage,
    /// Nobody received: a blackout.
    Blackout,
    /// The model held [`MAX_HELD`](crate::MAX_HELD) packets: outside of what it can show, so a
    /// run that meets it proves nothing.
    Overflow,
}

impl DropCause {
    /// Every cause, in the order of the way through the link.
    pub const ALL: [Self; 7] = [
        Self::TooBig,
        Self::Queue,
        Self::Early,
        Self::Loss,
        Self::Damage,
        Self::Blackout,
        Self::Overflow,
    ];

    /// A word for it, as in a report.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooBig => "too-big",
            Self::Queue => "queue",
            Self::Early => "early",
            Self::Loss => "loss",
            Self::Damage => "damage",
            Self::Blackout => "blackout",
            Self::Overflow => "overflow",
        }
    }
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
    /// Everything that left at the other end, duplicates counted once.
    pub delivered: Tally,
    /// Of these: with a new mark of congestion.
    pub marked: Tally,
    /// Of these: damaged without a checksum having found it.
    pub damaged: Tally,
    /// Of these: twice.
    pub duplicated: Tally,
    /// Bytes that everything has taken on the line, what was lost there too: with framing and in whole cells.
    pub line: Bytes,
    dropped: [Tally; DropCause::ALL.len()],
}

impl Counters {
    /// What was dropped for `cause`.
    pub fn dropped(&self, cause: DropCause) -> Tally {
        self.dropped[cause as usize]
    }

    /// Counts a packet whose way has ended.
    pub(crate) fn end(&mut self, size: Bytes, fortune: &Fortune) {
        let Fortune { fate, marked, damage, duplicated } = *fortune;
        match fate {
            Fate::Delivered => self.delivered += size,
            Fate::Dropped(cause) => return self.drop_one(cause, size),
        }
        for (tally, counts) in [
            (&mut self.marked, marked),
            (&mut self.damaged, damage.is_some()),
            (&mut self.duplicated, duplicated),
        ] {
            if counts {
                *tally += size;
            }
        }
    }

    pub(crate) fn drop_one(&mut self, cause: DropCause, size: Bytes) {
        self.dropped[cause as usize] += size;
    }
}

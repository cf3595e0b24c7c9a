//! What a transfer did.

use serde::{Deserialize, Serialize};
use units::Instant;

use crate::notes::Notes;
use crate::pipe::Occupancy;

/// What was installed under its final name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Regular files.
    pub files: u64,
    /// Directories, those that were already there included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// What was removed, for the sender does not have it.
    pub removed: u64,
}

/// What stood at the destination before, and was not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Whole files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of other files: begun ones, and older versions.
    pub begun: u64,
}

impl Kept {
    /// Without what the same transfer had brought, before it was cut and found it there.
    #[must_use]
    pub fn without(self, files: u64, bytes: u64) -> Self {
        let rest = bytes.saturating_sub(self.bytes);
        Self {
            files: self.files.saturating_sub(files),
            bytes: self.bytes.saturating_sub(bytes),
            begun: self.begun.saturating_sub(rest),
        }
    }
}

/// What a transfer did; the same on both sides, but for the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// What is now at the destination, verified and on the disk.
    pub counts: Counts,
    /// How much of it was there before.
    pub kept: Kept,
    /// What was left out, from both sides.
    pub notes: Notes,
    /// The sender's pipe between its disk and the network.
    pub sending: Occupancy,
    /// The receiver's pipe between the network and its disk.
    pub receiving: Occupancy,
    /// When the sender heard that all is there; what follows is good manners.
    pub confirmed: Option<Instant>,
}

/// The slowest part of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Reading and hashing at the source.
    Source,
    /// The stream.
    Network,
    /// Writing and hashing at the destination.
    Destination,
}

impl Summary {
    /// Whether something that should have been copied was not.
    pub fn is_partial(&self) -> bool {
        self.notes.failed() > 0
    }

    /// What limited the speed. A pipe that was mostly full waited for a stage behind it, one that was
    /// mostly empty for a stage before. The receiver's goes first: what it waits for on its own disk,
    /// no stage before it can hide.
    pub fn bottleneck(&self) -> Bottleneck {
        if self.receiving.full > self.receiving.empty {
            Bottleneck::Destination
        } else if self.sending.empty > self.sending.full {
            Bottleneck::Source
        } else {
            Bottleneck::Network
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_that_the_pipes_waited_for_is_the_bottleneck() {
        let pipe = |full, empty| Occupancy { blocks: 10, full, empty };
        let of =
            |sending, receiving| Summary { sending, receiving, ..Summary::default() }.bottleneck();
        assert_eq!(of(pipe(1, 9), pipe(1, 9)), Bottleneck::Source);
        assert_eq!(of(pipe(9, 1), pipe(1, 9)), Bottleneck::Network);
        assert_eq!(of(pipe(9, 1), pipe(9, 1)), Bottleneck::Destination);
    }

    #[test]
    fn what_a_transfer_has_brought_itself_was_not_there_before() {
        let kept = Kept { files: 5, bytes: 100, begun: 10 };
        assert_eq!(kept.without(0, 0), kept);
        assert_eq!(kept.without(3, 70), Kept { files: 2, bytes: 30, begun: 10 });
        assert_eq!(kept.without(9, 107), Kept { files: 0, bytes: 0, begun: 3 });
        assert_eq!(kept.without(9, 999), Kept::default());
    }
}

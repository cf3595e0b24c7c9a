//! What was left out of a transfer, and why.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};

use crate::relpath::{PATH_MAX, RawBytes};

/// How many notes are kept; beyond, they are only counted.
pub const NOTES_MAX: usize = 1000;

/// The longest reason carried, in bytes.
pub(crate) const REASON_MAX: usize = 1024;

/// What a note tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoteKind {
    /// It should have been copied and was not.
    Failed,
    /// It is of a kind that is never copied: a socket, a pipe, a device.
    Skipped,
    /// It was begun earlier, and is begun anew.
    Changed,
    /// Nothing was done, for nothing was to be: it would be copied, mended or removed.
    Would,
}

/// One thing that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// What it tells.
    pub kind: NoteKind,
    /// Its path, as the user named its beginning.
    pub path: RawBytes,
    /// Why, and what to do.
    pub reason: String,
}

impl Note {
    /// Notes something left out; what is too long for a message is cut.
    pub fn new(kind: NoteKind, path: &[u8], reason: &str) -> Self {
        let path = RawBytes(path[..path.len().min(PATH_MAX)].to_vec());
        Self { kind, path, reason: clip(reason) }
    }
}

/// Names and reasons come from the other side, so they are shown with control characters escaped.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", OsStr::from_bytes(&self.path.0), printable(&self.reason))
    }
}

/// The first notes of a transfer, and how many there were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    kept: Vec<Note>,
    failed: u64,
    skipped: u64,
    would: u64,
}

impl Notes {
    /// Adds one.
    pub fn push(&mut self, note: Note) {
        match note.kind {
            NoteKind::Failed => self.failed += 1,
            NoteKind::Skipped => self.skipped += 1,
            NoteKind::Changed => {}
            NoteKind::Would => self.would += 1,
        }
        if self.kept.len() < NOTES_MAX {
            self.kept.push(note);
        }
    }

    /// The first [`NOTES_MAX`] notes.
    pub fn iter(&self) -> impl Iterator<Item = &Note> {
        self.kept.iter()
    }

    /// How many files, links and directories should have been copied and were not.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// How many special files were passed over.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// How much would be copied, mended or removed, each name counted.
    pub fn would(&self) -> u64 {
        self.would
    }

    /// Adds another list behind this one: what it has counted counts, also what it did not keep.
    pub fn append(&mut self, other: Self) {
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.would += other.would;
        let room = NOTES_MAX - self.kept.len();
        self.kept.extend(other.kept.into_iter().take(room));
    }
}

/// A reason short enough for a message.
pub(crate) fn clip(reason: &str) -> String {
    reason[..reason.floor_char_boundary(REASON_MAX)].to_owned()
}

/// Text from the other side, safe on a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_bounded_but_all_counted() {
        let mut notes = Notes::default();
        for _ in 0..NOTES_MAX + 5 {
            notes.push(Note::new(NoteKind::Failed, b"a", "b"));
        }
        let mut both = Notes::default();
        both.push(Note::new(NoteKind::Skipped, b"c", "d"));
        both.append(notes);
        assert_eq!((both.failed(), both.skipped()), (NOTES_MAX as u64 + 5, 1));
        assert_eq!(both.iter().count(), NOTES_MAX);
    }

    #[test]
    fn a_hostile_name_does_not_reach_the_terminal() {
        let note = Note::new(NoteKind::Failed, b"\x1b[2J\xff", "\x1b]0;owned\x07");
        assert!(!note.to_string().contains(['\x1b', '\x07']));
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        assert_eq!(clip(&"é".repeat(REASON_MAX)).len(), REASON_MAX);
        assert!(clip(&format!("x{}", "é".repeat(REASON_MAX))).len() < REASON_MAX);
    }
}

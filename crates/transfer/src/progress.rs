//! What a progress bar samples while a transfer runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use net::clock;
use units::Instant;

/// A handle on a running transfer's counters; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    files: AtomicU64,
    kept_bytes: AtomicU64,
    kept_files: AtomicU64,
    heard: AtomicU64,
    /// In nanoseconds of the clock; zero while nothing was.
    heard_at: AtomicU64,
    is_over: AtomicBool,
    totals: Mutex<Option<(u64, u64)>>,
    current: Mutex<Current>,
    current_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Current {
    path: Vec<u8>,
    size: Option<u64>,
}

/// One look at a [`Progress`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Bytes written at the destination.
    pub bytes: u64,
    /// Bytes of files that stand there and were left out by a comparison, as far as this side knows.
    pub kept_bytes: u64,
    /// Bytes there are, once they have been counted.
    pub bytes_total: Option<u64>,
    /// Files installed at the destination.
    pub files: u64,
    /// Files that were left out.
    pub kept_files: u64,
    /// Files there are, once they have been counted.
    pub files_total: Option<u64>,
    /// Pieces of the stream that have come from the other side: while this grows, the stream carries
    /// data, be it no file's.
    pub heard: u64,
    /// When the last of them came.
    pub heard_at: Option<Instant>,
    /// The file that this side is at; characters that a terminal would obey are replaced.
    pub current: String,
    /// How many of its bytes this side has read or written.
    pub current_bytes: u64,
    /// How many it has, where that is known.
    pub current_total: Option<u64>,
}

impl Sample {
    /// Bytes with which nothing is left to be done.
    pub fn done_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.kept_bytes)
    }

    /// Such files.
    pub fn done_files(&self) -> u64 {
        self.files.saturating_add(self.kept_files)
    }
}

impl Progress {
    /// Nothing moved yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the transfer is now.
    pub fn sample(&self) -> Sample {
        let totals = *self.0.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        Sample {
            bytes: self.0.bytes.load(Relaxed),
            kept_bytes: self.0.kept_bytes.load(Relaxed),
            bytes_total: totals.map(|(_, bytes)| bytes),
            files: self.0.files.load(Relaxed),
            kept_files: self.0.kept_files.load(Relaxed),
            files_total: totals.map(|(files, _)| files),
            heard: self.0.heard.load(Relaxed),
            heard_at: Some(self.0.heard_at.load(Relaxed))
                .filter(|&nanos| nanos > 0)
                .map(Instant::from_nanos),
            current: crate::notes::printable(&String::from_utf8_lossy(&current.path)),
            current_bytes: self.0.current_bytes.load(Relaxed),
            current_total: current.size,
        }
    }

    /// Whether everything is done, and only the stream's own end is still to come: to begin again
    /// would be in vain.
    pub fn is_over(&self) -> bool {
        self.0.is_over.load(Relaxed)
    }

    /// Something has come from the other side.
    pub(crate) fn hear(&self) {
        self.0.heard.fetch_add(1, Relaxed);
        self.0.heard_at.store(clock::now().as_nanos(), Relaxed);
    }

    /// What follows is good manners.
    pub(crate) fn end(&self) {
        self.0.is_over.store(true, Relaxed);
    }

    /// Files installed and bytes written.
    pub(crate) fn moved(&self) -> (u64, u64) {
        (self.0.files.load(Relaxed), self.0.bytes.load(Relaxed))
    }

    /// So many bytes are at the destination.
    pub fn set_bytes(&self, bytes: u64) {
        self.0.bytes.store(bytes, Relaxed);
    }

    /// So many files are installed there.
    pub fn set_files(&self, files: u64) {
        self.0.files.store(files, Relaxed);
    }

    /// So many files and bytes stand there and are left out.
    pub fn set_kept(&self, files: u64, bytes: u64) {
        self.0.kept_files.store(files, Relaxed);
        self.0.kept_bytes.store(bytes, Relaxed);
    }

    /// The same of one sitting by now: an earlier one may have found more already.
    pub(crate) fn keep(&self, (files, bytes): (u64, u64)) {
        self.0.kept_files.fetch_max(files, Relaxed);
        self.0.kept_bytes.fetch_max(bytes, Relaxed);
    }

    /// So much is there at the end, with what was left out.
    pub(crate) fn set_done(&self, files: u64, bytes: u64) {
        let Sample { kept_files, kept_bytes, .. } = self.sample();
        self.set_files(files.saturating_sub(kept_files));
        self.set_bytes(bytes.saturating_sub(kept_bytes));
    }

    /// There is so much in all.
    pub fn set_totals(&self, files: u64, bytes: u64) {
        *self.0.totals.lock().unwrap_or_else(PoisonError::into_inner) = Some((files, bytes));
    }

    /// This file is at work, and has so many bytes.
    pub fn set_current(&self, path: &[u8], size: Option<u64>) {
        let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.path.clear();
        current.path.extend_from_slice(path);
        current.size = size;
        self.0.current_bytes.store(0, Relaxed);
    }

    /// So many of its bytes were read or written.
    pub fn set_current_bytes(&self, bytes: u64) {
        self.0.current_bytes.store(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_file_begins_at_nothing() {
        let progress = Progress::new();
        progress.set_current(b"one", Some(9));
        progress.set_current_bytes(7);
        let Sample { current, current_bytes, current_total, .. } = progress.sample();
        assert_eq!((&current[..], current_bytes, current_total), ("one", 7, Some(9)));
        progress.set_current(b"t\x1bwo", None);
        let Sample { current, current_bytes, current_total, .. } = progress.sample();
        assert_eq!((current_bytes, current_total), (0, None));
        assert!(current.starts_with('t') && !current.contains('\x1b'), "{current}");
    }
}

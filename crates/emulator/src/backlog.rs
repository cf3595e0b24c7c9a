//! How far the emulator is behind with what the hosts send.

use units::Instant;

use crate::sources::Ready;

/// The sources that may have more than was read of them. None says when what waits in it came: only that it was
/// not seen empty since.
#[derive(Default)]
pub(crate) struct Backlog(Vec<(u64, Instant)>);

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All sources are empty.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Those that this look does not show are empty, unless there are more than it can show.
    pub(crate) fn look(&mut self, ready: &Ready) {
        if !ready.is_full() {
            self.0.retain(|&(source, _)| ready.numbers().any(|number| number == source));
        }
    }

    /// Since when a source was not seen empty, if it may have more.
    pub(crate) fn since(&self, source: u64) -> Option<Instant> {
        self.0.iter().find(|(known, _)| *known == source).map(|&(_, since)| since)
    }

    /// A source that was not seen empty `since` may have more, or has none.
    pub(crate) fn note(&mut self, source: u64, since: Option<Instant>) {
        self.0.retain(|&(known, _)| known != source);
        self.0.extend(since.map(|since| (source, since)));
    }
}

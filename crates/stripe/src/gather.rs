//! The receiving half: puts the records of several connections back in order.
//!
//! Memory is bounded by a window of record numbers that begins at the first record not yet read.
//! The other side is told where it ends ([`Gather::limit`]) and sends nothing beyond. So whatever
//! comes can be taken, no connection is ever held back, and what it carries for the other direction
//! is never stuck behind data.
//!
//! Records that had to be sent again may come twice; all but the first are dropped.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use crate::INITIAL_RECORDS;
use crate::record::MAX_PAYLOAD;

/// Why the stream cannot go on: the other side broke the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatherError {
    /// A record that was not yet to be sent.
    #[error("record {number} came, but only those below {limit} were to be sent")]
    BeyondWindow {
        /// The record.
        number: u64,
        /// [`Gather::limit`] at that time.
        limit: u64,
    },
    /// A record beyond the end, or an end before a record that came.
    #[error("the stream was said to end at record {end}, but has record {number}")]
    BeyondEnd {
        /// Records the stream was said to have.
        end: u64,
        /// A record that it has beyond them.
        number: u64,
    },
    /// Two different ends.
    #[error("the stream was said to end at record {0} and at record {1}")]
    EndsDiffer(u64, u64),
}

/// Puts one direction of a stream together again. Holds at most its capacity.
#[derive(Debug)]
pub struct Gather {
    /// The first record not wholly read. Slot `i` is record `base + i`.
    base: u64,
    slots: VecDeque<Option<Bytes>>,
    /// Records from `base` on that may be stored.
    window: u64,
    /// All records below came.
    through: u64,
    /// Where the end is, once it came.
    end: Option<u64>,
    /// One more than the highest data record that came.
    data_end: u64,
}

impl Gather {
    /// Stores `capacity` rounded down to whole records of [`MAX_PAYLOAD`], but at least
    /// [`INITIAL_RECORDS`].
    pub fn new(capacity: units::Bytes) -> Self {
        Self {
            base: 0,
            slots: VecDeque::new(),
            window: (capacity.0 / MAX_PAYLOAD as u64).max(INITIAL_RECORDS),
            through: 0,
            end: None,
            data_end: 0,
        }
    }

    /// Records from this number on must not come yet. Grows by [`Gather::read`].
    pub const fn limit(&self) -> u64 {
        self.base.saturating_add(self.window)
    }

    /// How many records may be stored.
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// All records below this number came.
    pub const fn through(&self) -> u64 {
        self.through
    }

    /// Takes a record, of which one without payload is the end; says whether it is new.
    ///
    /// # Errors
    /// [`GatherError`] when the record breaks the rules; the stream is then lost.
    pub fn accept(&mut self, number: u64, payload: Bytes) -> Result<bool, GatherError> {
        let limit = self.limit();
        if number >= limit {
            return Err(GatherError::BeyondWindow { number, limit });
        }
        match (payload.is_empty(), self.end) {
            (true, Some(end)) if end != number => return Err(GatherError::EndsDiffer(end, number)),
            (true, _) if number < self.data_end => {
                return Err(GatherError::BeyondEnd { end: number, number: self.data_end - 1 });
            }
            (true, _) => self.end = Some(number),
            (false, Some(end)) if number >= end => {
                return Err(GatherError::BeyondEnd { end, number });
            }
            (false, _) => self.data_end = self.data_end.max(number + 1),
        }
        Ok(self.store(number, payload))
    }

    /// Puts a record of the window in its slot, unless it is there.
    fn store(&mut self, number: u64, payload: Bytes) -> bool {
        let Some(slot) = number.checked_sub(self.base).map(|slot| slot as usize) else {
            return false;
        };
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        if self.slots[slot].is_some() {
            return false;
        }
        self.slots[slot] = Some(payload);
        while let Some(Some(_)) = self.slots.get((self.through - self.base) as usize) {
            self.through += 1;
        }
        true
    }

    /// Moves what comes next in the stream into `out`, and says how many bytes that was: none
    /// when the next record is missing.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < out.len()
            && let Some(Some(front)) = self.slots.front_mut()
            && !front.is_empty()
        {
            let n = front.len().min(out.len() - filled);
            front.copy_to_slice(&mut out[filled..filled + n]);
            filled += n;
            if front.is_empty() {
                self.slots.pop_front();
                self.base += 1;
            }
        }
        filled
    }

    /// Whether [`Gather::read`] has something to give.
    pub fn has_data(&self) -> bool {
        matches!(self.slots.front(), Some(Some(front)) if !front.is_empty())
    }

    /// Whether everything came.
    pub fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| self.through > end)
    }

    /// Whether everything was read.
    pub fn is_ended(&self) -> bool {
        self.end == Some(self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(gather: &mut Gather, number: u64) -> Result<bool, GatherError> {
        gather.accept(number, Bytes::copy_from_slice(&[number as u8]))
    }

    fn end(gather: &mut Gather, number: u64) -> Result<bool, GatherError> {
        gather.accept(number, Bytes::new())
    }

    #[test]
    fn reading_moves_the_window_and_what_comes_twice_is_dropped() {
        let mut gather = Gather::new(units::Bytes(0));
        let (limit, mut out) = (gather.limit(), [0; 8]);
        assert_eq!(limit, INITIAL_RECORDS);
        assert_eq!(accept(&mut gather, 1), Ok(true));
        assert_eq!(accept(&mut gather, 1), Ok(false));
        let beyond = GatherError::BeyondWindow { number: limit, limit };
        assert_eq!(accept(&mut gather, limit), Err(beyond));
        assert_eq!((gather.read(&mut out), gather.through()), (0, 0));
        assert_eq!(accept(&mut gather, 0), Ok(true));
        assert_eq!((gather.read(&mut out), gather.through()), (2, 2));
        assert_eq!((out[..2].to_vec(), gather.limit()), (vec![0, 1], limit + 2));
        assert_eq!(accept(&mut gather, 0), Ok(false), "long since read");
    }

    #[test]
    fn ends_only_when_everything_was_read() {
        let mut gather = Gather::new(units::Bytes(0));
        accept(&mut gather, 0).unwrap();
        end(&mut gather, 2).unwrap();
        assert_eq!(gather.read(&mut [0; 8]), 1);
        assert!(!gather.is_ended() && !gather.is_complete());
        accept(&mut gather, 1).unwrap();
        assert!(!gather.is_ended() && gather.is_complete() && gather.through() == 3);
        assert_eq!(gather.read(&mut [0; 8]), 1);
        assert!(gather.is_ended() && end(&mut gather, 2) == Ok(false));
    }

    #[test]
    fn contradictions_about_the_end_are_errors() {
        let mut gather = Gather::new(units::Bytes(0));
        accept(&mut gather, 3).unwrap();
        assert_eq!(end(&mut gather, 3), Err(GatherError::BeyondEnd { end: 3, number: 3 }));
        assert_eq!(end(&mut gather, 5), Ok(true));
        assert_eq!(end(&mut gather, 6), Err(GatherError::EndsDiffer(5, 6)));
        let beyond = GatherError::BeyondEnd { end: 5, number: 5 };
        assert_eq!(accept(&mut gather, 5), Err(beyond));
        assert_eq!(accept(&mut gather, 4), Ok(true));
    }
}

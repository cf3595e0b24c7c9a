//! Which streams may exist: numbers, and the credit for opening them.

use rangemap::RangeSet;

use super::StreamError;
use crate::Side;

/// Streams that each end may always have open, and so before it has heard of more.
pub(crate) const EARLY_STREAMS: u64 = 64;

/// The streams of both ends by index: number / 2. Credit for opening is cumulative: so many from
/// the beginning on.
#[derive(Debug)]
pub(super) struct Numbers {
    side: Side,
    /// Opened here, and how many may be.
    opened: u64,
    may_open: u64,
    /// Someone here waits for more.
    pub(super) is_blocked: bool,
    /// Of the other end's: those that are no more. At least one range's worth of indices below
    /// `told` is not among them for each gap, so there are at most `at_once` + 1 ranges.
    closed: RangeSet<u64>,
    closed_count: u64,
    at_once: u64,
    /// The other end may open indices below.
    told: u64,
}

impl Numbers {
    pub(super) fn new(side: Side, at_once: u64) -> Self {
        Self {
            side,
            opened: 0,
            may_open: EARLY_STREAMS,
            is_blocked: false,
            closed: RangeSet::new(),
            closed_count: 0,
            at_once,
            told: at_once,
        }
    }

    pub(super) fn is_local(&self, id: u64) -> bool {
        id.is_multiple_of(2) == (self.side == Side::Initiator)
    }

    /// The number of a new stream, if one may be opened now.
    pub(super) fn open(&mut self) -> Option<u64> {
        if self.is_spent() {
            self.is_blocked = true;
            return None;
        }
        let first = u64::from(self.side == Side::Responder);
        self.opened += 1;
        Some((self.opened - 1) * 2 + first)
    }

    /// Whether none may be opened now.
    pub(super) fn is_spent(&self) -> bool {
        self.opened >= self.may_open
    }

    /// Nobody waits to open one any longer.
    pub(super) fn give_up(&mut self) {
        self.is_blocked = false;
    }

    /// The other end lets us open so many; whether someone waited for that.
    pub(super) fn on_grant(&mut self, may_open: u64) -> bool {
        if may_open <= self.may_open {
            return false;
        }
        self.may_open = may_open;
        core::mem::take(&mut self.is_blocked)
    }

    /// Whether a stream that is not open here may be opened by the other end now; `false` when
    /// it is no more.
    ///
    /// # Errors
    /// [`StreamError::NoSuchStream`] when it cannot exist.
    pub(super) fn may_appear(&self, id: u64) -> Result<bool, StreamError> {
        let index = id / 2;
        let exists = if self.is_local(id) { index < self.opened } else { index < self.told };
        if !exists {
            return Err(StreamError::NoSuchStream);
        }
        Ok(!self.is_local(id) && !self.closed.contains(&index))
    }

    /// A stream is no more.
    pub(super) fn on_closed(&mut self, id: u64) {
        if !self.is_local(id) {
            self.closed.insert(id / 2..id / 2 + 1);
            self.closed_count += 1;
        }
    }

    /// Whether the other end should hear of more streams now.
    pub(super) fn has_news(&self) -> bool {
        self.closed_count + self.at_once > self.told + self.at_once / 4
    }

    /// How many streams the other end may open in all; with `more`, others for those closed.
    pub(super) fn grant(&mut self, more: bool) -> u64 {
        if more {
            self.told = self.closed_count + self.at_once;
        }
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_opener_waits_for_credit_and_closed_streams_give_it() {
        let mut opener = Numbers::new(Side::Initiator, 100);
        let mut other = Numbers::new(Side::Responder, 70);
        opener.on_grant(70);
        let ids: Vec<u64> = core::iter::from_fn(|| opener.open()).collect();
        assert_eq!(ids, (0..70).map(|index| index * 2).collect::<Vec<_>>());
        assert!(ids.iter().all(|&id| other.may_appear(id) == Ok(true)));
        assert_eq!(other.may_appear(140), Err(StreamError::NoSuchStream));
        other.on_closed(6);
        assert_eq!(other.grant(false), 70);
        assert!(opener.on_grant(other.grant(true)));
        assert_eq!((opener.open(), opener.open()), (Some(140), None));
        assert_eq!((other.may_appear(140), other.may_appear(6)), (Ok(true), Ok(false)));
    }

    #[test]
    fn what_is_remembered_of_closed_streams_is_bounded() {
        let mut numbers = Numbers::new(Side::Responder, 64);
        // The first stays open, and every other one until much later.
        for index in 1..100_000u64 {
            let id = if index % 2 == 1 { index } else { index.saturating_sub(50).max(2) } * 2;
            if numbers.may_appear(id) == Ok(true) {
                numbers.on_closed(id);
            }
            numbers.grant(true);
            assert!(numbers.closed.len() <= 65);
        }
    }
}

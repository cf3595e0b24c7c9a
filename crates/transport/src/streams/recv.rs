//! The receiving half of a stream.
//!
//! ```text
//! Open --end known--> Sized --all arrived--> Whole --read--> Ended
//!   |                   |                     |
//!   +-------reset-------+---------------------+---read-----> Ended
//! ```

use rangemap::RangeSet;
use units::Instant;

use super::lender::Room;
use super::store::{ByteStore, Pool};
use super::window::{Growth, Window};
use super::{ReadOutcome, StreamError};

/// How far a stream's counters moved, for the sums over all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Of the largest offset seen.
    pub(super) seen: u64,
    /// Of what arrived without a hole before it.
    pub(super) arrived: u64,
    /// Of what was read, or will never be.
    pub(super) consumed: u64,
    /// Bytes sent beyond the stream's own credit.
    pub(super) borrowed: u64,
    /// Of the holes in what arrived.
    pub(super) holes: i64,
}

/// What arrived and was not read yet.
#[derive(Debug)]
pub(super) struct RecvHalf {
    store: ByteStore,
    window: Window,
    /// Everything below has been read.
    read: u64,
    /// Everything below has arrived.
    arrived: u64,
    /// Arrived above `arrived`.
    ahead: RangeSet<u64>,
    /// The largest offset seen, which counts against the connection's credit.
    highest: u64,
    /// The credit that the other end was told last.
    pub(super) told: u64,
    /// Where the stream ends, once known.
    end: Option<u64>,
    reset: Option<u64>,
    /// The application wants no more.
    stopped: bool,
    /// The application has seen the end or the reset.
    ended: bool,
}

impl RecvHalf {
    pub(super) fn new(window: Window) -> Self {
        Self {
            store: ByteStore::default(),
            told: window.credit(),
            window,
            read: 0,
            arrived: 0,
            ahead: RangeSet::new(),
            highest: 0,
            end: None,
            reset: None,
            stopped: false,
            ended: false,
        }
    }

    pub(super) fn credit(&self) -> u64 {
        self.window.credit()
    }

    /// There is so much more credit than the other end was told that it should be.
    pub(super) fn has_news(&self) -> bool {
        self.end.is_none() && self.credit() > self.told + self.window.step()
    }

    pub(super) fn is_done(&self) -> bool {
        self.ended || (self.stopped && (self.reset.is_some() || self.is_whole()))
    }

    fn is_whole(&self) -> bool {
        self.end == Some(self.arrived)
    }

    /// The sender has said where the stream ends, and nobody has given it up.
    pub(super) fn is_finished(&self) -> bool {
        self.end.is_some() && self.reset.is_none() && !self.stopped
    }

    pub(super) fn is_readable(&self) -> bool {
        self.reset.is_some() || self.arrived > self.read || self.is_whole()
    }

    /// The largest offset moves to `end`, on credit or on the connection's `loan`.
    fn see(&mut self, end: u64, loan: u64) -> Result<Progress, StreamError> {
        let seen = end.saturating_sub(self.highest);
        let borrowed = end.saturating_sub(self.credit().max(self.highest));
        if borrowed > loan {
            return Err(StreamError::CreditExceeded);
        }
        self.highest += seen;
        Ok(Progress { seen, borrowed, ..Progress::default() })
    }

    /// Takes a piece in; gives how far the stream's counters moved.
    ///
    /// # Errors
    /// [`StreamError`] when the other end breaks the rules; the connection must then end.
    pub(super) fn on_data(
        &mut self,
        (offset, payload, fin): (u64, &[u8], bool),
        room: Room,
        pool: &mut Pool,
    ) -> Result<Progress, StreamError> {
        let end = offset + payload.len() as u64;
        let past_the_end = self.end.is_some_and(|known| end > known || (fin && end != known));
        if past_the_end || (fin && end < self.highest) {
            return Err(StreamError::EndMoved);
        }
        let mut progress = self.see(end, room.loan)?;
        if fin {
            self.end = Some(end);
        }
        if self.stopped || self.reset.is_some() {
            return Ok(self.abandon(progress, pool));
        }
        let start = offset.max(self.arrived);
        if start < end {
            self.store.write(start, &payload[(start - offset) as usize..], pool);
            let before = self.ahead.len();
            progress.arrived = self.note_arrived(start, end, room);
            progress.holes = self.ahead.len() as i64 - before as i64;
        }
        Ok(progress)
    }

    /// Notes what arrived; gives how far the first hole moved.
    fn note_arrived(&mut self, start: u64, end: u64, room: Room) -> u64 {
        if start > self.arrived {
            self.ahead.insert(start..end);
            // Out of order is the path's doing, and deserves room; unread is the reader's.
            if self.arrived - self.read < self.highest - self.arrived {
                self.window.on_held(self.highest - self.read, room.round, room.most);
            }
            return 0;
        }
        let before = core::mem::replace(&mut self.arrived, end);
        while let Some(range) = self.ahead.first().cloned()
            && range.start <= self.arrived
        {
            self.arrived = self.arrived.max(range.end);
            self.ahead.remove(range);
        }
        self.arrived - before
    }

    /// The sender gave the stream up after `end` bytes; gives how far the counters moved.
    ///
    /// # Errors
    /// [`StreamError`] as for data.
    pub(super) fn on_reset(
        &mut self,
        (code, end): (u64, u64),
        loan: u64,
        pool: &mut Pool,
    ) -> Result<Progress, StreamError> {
        if end < self.highest || self.end.is_some_and(|known| known != end) {
            return Err(StreamError::EndMoved);
        }
        let progress = self.see(end, loan)?;
        self.end = Some(end);
        self.reset = Some(code);
        Ok(self.abandon(progress, pool))
    }

    /// What was seen will never be read: `progress` goes on to there.
    fn abandon(&mut self, progress: Progress, pool: &mut Pool) -> Progress {
        let holes = progress.holes - self.ahead.len() as i64;
        let arrived = progress.arrived + self.highest - self.arrived;
        let consumed = progress.consumed + self.highest - self.read;
        (self.arrived, self.read) = (self.highest, self.highest);
        self.ahead = RangeSet::new();
        self.store.clear(self.read, pool);
        Progress { arrived, consumed, holes, ..progress }
    }

    /// Bytes that have arrived, behind holes too, and were not read.
    pub(super) fn unread(&self) -> u64 {
        let ahead: u64 = self.ahead.iter().map(|range| range.end - range.start).sum();
        self.arrived - self.read + ahead
    }

    /// The application wants no more; gives how far the counters moved.
    pub(super) fn stop(&mut self, pool: &mut Pool) -> Progress {
        // What is whole stays so; what is not is seen to its end or reset.
        self.stopped = true;
        self.abandon(Progress::default(), pool)
    }

    /// Hands at most `most` bytes to `take`, in pieces.
    pub(super) fn read(
        &mut self,
        now: Instant,
        most: usize,
        take: impl FnMut(&[u8]),
        growth: Growth,
        pool: &mut Pool,
    ) -> ReadOutcome {
        if let Some(code) = self.reset {
            self.ended = true;
            return ReadOutcome::Reset(code);
        }
        let len = (self.arrived - self.read).min(most as u64) as usize;
        if len == 0 {
            if self.is_whole() && self.read == self.arrived {
                self.ended = true;
                return ReadOutcome::End;
            }
            return ReadOutcome::Blocked;
        }
        self.store.read(self.read, len, take);
        self.read += len as u64;
        self.store.release(self.read, pool);
        self.window.on_consumed(now, len as u64, self.arrived, growth);
        ReadOutcome::Read(len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn half(window: u64) -> RecvHalf {
        RecvHalf::new(Window::new(window))
    }

    fn read_all(half: &mut RecvHalf) -> (Vec<u8>, ReadOutcome) {
        let mut all = Vec::new();
        loop {
            let take = |bytes: &[u8]| all.extend_from_slice(bytes);
            match half.read(Instant::ZERO, 100, take, Growth::default(), &mut Pool::default()) {
                ReadOutcome::Read(_) => {}
                other => return (all, other),
            }
        }
    }

    fn data(half: &mut RecvHalf, offset: u64, bytes: &[u8], fin: bool) -> Result<u64, StreamError> {
        let progress = half.on_data((offset, bytes, fin), Room::default(), &mut Pool::default())?;
        Ok(progress.seen)
    }

    proptest! {
        #[test]
        fn any_order_with_repeats_and_overlaps_gives_the_stream(
            len in 0usize..3000,
            cuts in prop::collection::vec((0usize..3000, 0usize..500), 0..60),
        ) {
            let text: Vec<u8> = (0..len).map(|i| (i * 31 / 7) as u8).collect();
            let mut half = half(1 << 20);
            let (mut got, mut arrived) = (Vec::new(), 0);
            let take = |half: &mut RecvHalf, start: usize, end: usize| {
                let piece = (start as u64, &text[start..end], end == len);
                half.on_data(piece, Room::default(), &mut Pool::default()).unwrap().arrived
            };
            for (start, size) in cuts {
                let start = start.min(len);
                arrived += take(&mut half, start, (start + size).min(len));
                got.extend(read_all(&mut half).0);
            }
            arrived += take(&mut half, 0, len);
            let (rest, outcome) = read_all(&mut half);
            got.extend(rest);
            prop_assert_eq!(got, &text[..]);
            prop_assert_eq!(arrived, len as u64);
            prop_assert_eq!(outcome, ReadOutcome::End);
            prop_assert!(half.is_done());
        }
    }

    #[test]
    fn rules_are_enforced() {
        let mut half = half(10);
        assert_eq!(data(&mut half, 8, b"abc", false), Err(StreamError::CreditExceeded));
        assert_eq!(data(&mut half, 2, b"abc", true), Ok(5));
        assert!(half.is_finished());
        assert_eq!(data(&mut half, 4, b"ab", false), Err(StreamError::EndMoved));
        assert_eq!(data(&mut half, 0, b"ab", true), Err(StreamError::EndMoved));
        let mut reset = |end| half.on_reset((1, end), 0, &mut Pool::default());
        assert_eq!(reset(9), Err(StreamError::EndMoved));
        assert_eq!(reset(5).unwrap().consumed, 5);
        assert!(!half.is_finished());
        assert_eq!(read_all(&mut half).1, ReadOutcome::Reset(1));
    }

    #[test]
    fn a_loan_goes_beyond_credit_and_is_counted_once() {
        let mut half = half(10);
        let mut data = |offset, len: usize, loan| {
            half.on_data(
                (offset, &vec![0; len], false),
                Room { loan, ..Room::default() },
                &mut Pool::default(),
            )
        };
        assert_eq!(data(0, 15, 4), Err(StreamError::CreditExceeded));
        assert_eq!(data(12, 3, 5).unwrap().borrowed, 5);
        assert_eq!(data(0, 15, 0).unwrap().borrowed, 0);
        assert_eq!(
            data(15, 5, 5).unwrap(),
            Progress { seen: 5, arrived: 5, borrowed: 5, ..Progress::default() }
        );
    }

    #[test]
    fn what_nobody_will_read_counts_as_consumed() {
        let mut half = half(100);
        data(&mut half, 5, b"abcde", false).unwrap();
        let progress = half.stop(&mut Pool::default());
        assert_eq!((progress.arrived, progress.consumed, progress.holes), (10, 10, -1));
        let progress =
            half.on_data((8, b"abcd", false), Room::default(), &mut Pool::default()).unwrap();
        let expected = Progress { seen: 2, arrived: 2, consumed: 2, ..Progress::default() };
        assert_eq!(progress, expected);
        assert!(!half.is_done());
        data(&mut half, 12, b"", true).unwrap();
        assert!(half.is_done() && !half.is_finished());
    }
}

//! The sending half of a stream.
//!
//! ```text
//! Ready --finish--> Finishing --all acknowledged--> Done
//!   |                   |
//!   +------reset--------+-----> Reset --acknowledged--> Done
//! ```

use rangemap::{RangeMap, RangeSet};

use super::Delivery;
use super::store::{ByteStore, Pool};

/// A piece of a stream that goes into one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// Reaches the stream's end.
    pub(crate) fin: bool,
    /// How often it was lost before.
    pub(crate) losses: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// The application has written its last byte; whether that is known at the other end.
    Finishing {
        fin_acked: bool,
    },
    Reset {
        acked: bool,
    },
}

/// What the application wrote, until the other end has it.
#[derive(Debug)]
pub(super) struct SendHalf {
    state: State,
    store: ByteStore,
    /// Everything below has been acknowledged and forgotten.
    base: u64,
    /// Acknowledged above `base`.
    acked: RangeSet<u64>,
    /// To be sent again, with how often it was lost.
    lost: RangeMap<u64, u8>,
    /// Everything below has been sent once.
    next: u64,
    /// Everything below has been written.
    end: u64,
    /// The end must be (re)sent even without a byte.
    fin_due: bool,
    credit: u64,
}

impl SendHalf {
    pub(super) fn new(credit: u64) -> Self {
        Self {
            state: State::Ready,
            store: ByteStore::default(),
            base: 0,
            acked: RangeSet::new(),
            lost: RangeMap::new(),
            next: 0,
            end: 0,
            fin_due: false,
            credit,
        }
    }

    /// Written and not yet sent.
    pub(super) fn unsent(&self) -> u64 {
        if self.is_reset() { 0 } else { self.end - self.next }
    }

    pub(super) fn is_writable(&self) -> bool {
        self.state == State::Ready
    }

    pub(super) fn is_reset(&self) -> bool {
        matches!(self.state, State::Reset { .. })
    }

    /// Nothing is left to be sent or acknowledged.
    pub(super) fn is_done(&self) -> bool {
        match self.state {
            State::Ready => false,
            State::Finishing { fin_acked } => fin_acked && self.base == self.end,
            State::Reset { acked } => acked,
        }
    }

    pub(super) fn delivery(&self) -> Delivery {
        match self.state {
            State::Reset { .. } => Delivery::GivenUp,
            _ if self.is_done() => Delivery::Done,
            _ => Delivery::Pending,
        }
    }

    /// Written and not known to have arrived.
    pub(super) fn held(&self) -> u64 {
        self.end - self.base
    }

    /// Bytes that were sent once and count against credit for ever.
    pub(super) fn sent(&self) -> u64 {
        self.next
    }

    pub(super) fn write(&mut self, bytes: &[u8], pool: &mut Pool) {
        debug_assert!(self.is_writable());
        self.store.write(self.end, bytes, pool);
        self.end += bytes.len() as u64;
    }

    pub(super) fn finish(&mut self) {
        if self.state == State::Ready {
            self.state = State::Finishing { fin_acked: false };
            self.fin_due = true;
        }
    }

    /// Gives the stream up; `false` when that was done or needless already.
    pub(super) fn reset(&mut self, pool: &mut Pool) -> bool {
        if self.is_reset() || self.is_done() {
            return false;
        }
        self.state = State::Reset { acked: false };
        self.store.clear(self.end, pool);
        self.lost.clear();
        true
    }

    pub(super) fn on_reset_acked(&mut self) {
        if let State::Reset { acked } = &mut self.state {
            *acked = true;
        }
    }

    pub(super) fn on_credit(&mut self, credit: u64) {
        self.credit = self.credit.max(credit);
    }

    pub(super) fn credit(&self) -> u64 {
        self.credit
    }

    /// Something that was sent before, or the end alone, must go out: it needs no credit.
    pub(super) fn wants_again(&self) -> bool {
        !self.is_reset() && (!self.lost.is_empty() || (self.fin_due && self.next == self.end))
    }

    /// How far may be sent: the stream's credit, and `loan` beyond that or what was borrowed already.
    pub(super) fn reach(&self, loan: u64) -> u64 {
        self.credit.max(self.next).saturating_add(loan)
    }

    /// Something was written and not sent, for which the stream has credit, or borrows `loan`.
    pub(super) fn has_new(&self, loan: u64) -> bool {
        !self.is_reset() && self.next < self.end.min(self.reach(loan))
    }

    /// Something was written and not sent, for which the stream has no credit.
    pub(super) fn is_blocked(&self) -> bool {
        !self.is_reset() && self.next < self.end && self.next >= self.credit
    }

    /// Whether the other end may still lack all of the piece.
    pub(super) fn wants(&self, piece: Piece) -> bool {
        let range = piece.offset..piece.offset + piece.len as u64;
        let known = piece.offset < self.base || !range.is_empty() && self.acked.overlaps(&range);
        !self.is_reset() && !known && !self.is_done()
    }

    /// Where the next piece begins of what needs no credit.
    pub(super) fn again_from(&self) -> u64 {
        self.lost.first_range_value().map_or(self.end, |(range, _)| range.start)
    }

    /// The next piece of what needs no credit, of at most `max` bytes.
    pub(super) fn take_again(&mut self, max: usize) -> Option<Piece> {
        if !self.wants_again() {
            return None;
        }
        let Some((range, &losses)) = self.lost.first_range_value() else {
            return Some(self.piece(self.end, self.end, 1));
        };
        let (start, end) = (range.start, range.end.min(range.start + max as u64));
        self.lost.remove(start..end);
        Some(self.piece(start, end, losses))
    }

    /// The next piece of what was never sent, of at most `max` bytes, of which `loan` beyond the
    /// stream's own credit.
    pub(super) fn take_new(&mut self, max: u64, loan: u64) -> Option<Piece> {
        if !self.has_new(loan) {
            return None;
        }
        let end = self.end.min(self.reach(loan)).min(self.next + max);
        let start = core::mem::replace(&mut self.next, end);
        Some(self.piece(start, end, 0))
    }

    fn piece(&mut self, start: u64, end: u64, losses: u8) -> Piece {
        let finishing = matches!(self.state, State::Finishing { .. });
        let fin = finishing && end == self.end && self.next == self.end;
        if fin {
            self.fin_due = false;
        }
        Piece { offset: start, len: (end - start) as usize, fin, losses }
    }

    /// Appends the piece's bytes to `out`.
    pub(super) fn copy_to(&self, piece: Piece, out: &mut Vec<u8>) {
        self.store.read(piece.offset, piece.len, |bytes| out.extend_from_slice(bytes));
    }

    pub(super) fn on_acked(&mut self, piece: Piece, pool: &mut Pool) {
        if self.is_reset() {
            return;
        }
        if piece.fin
            && let State::Finishing { fin_acked } = &mut self.state
        {
            *fin_acked = true;
            self.fin_due = false;
        }
        let start = piece.offset.max(self.base);
        let end = piece.offset + piece.len as u64;
        if start >= end {
            return;
        }
        if !self.lost.is_empty() {
            self.lost.remove(start..end);
        }
        if start > self.base {
            self.acked.insert(start..end);
            if let Some(known) = self.acked.get(&start) {
                self.store.punch(start..end, known, pool);
            }
            return;
        }
        self.base = end;
        while let Some(range) = self.acked.first().cloned()
            && range.start <= self.base
        {
            self.base = self.base.max(range.end);
            self.acked.remove(range);
        }
        self.store.release(self.base, pool);
    }

    pub(super) fn on_lost(&mut self, piece: Piece) {
        if self.is_reset() {
            return;
        }
        if piece.fin && self.state == (State::Finishing { fin_acked: false }) {
            self.fin_due = true;
        }
        let range = piece.offset.max(self.base)..piece.offset + piece.len as u64;
        if range.is_empty() {
            return;
        }
        for missing in self.acked.gaps(&range) {
            self.lost.insert(missing, piece.losses.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(credit: u64, text: &[u8]) -> SendHalf {
        let mut half = SendHalf::new(credit);
        half.write(text, &mut Pool::default());
        half
    }

    fn acked(half: &mut SendHalf, piece: Piece) {
        half.on_acked(piece, &mut Pool::default());
    }

    fn bytes(half: &SendHalf, piece: Piece) -> Vec<u8> {
        let mut out = Vec::new();
        half.copy_to(piece, &mut out);
        out
    }

    #[test]
    fn the_end_is_marked_once_more_when_it_was_lost() {
        let mut half = half(100, b"abcdefgh");
        half.finish();
        let first = half.take_new(4, 0).unwrap();
        let second = half.take_new(4, 0).unwrap();
        assert!(!first.fin && second.fin);
        assert!(!half.has_new(9) && !half.wants_again());
        half.on_lost(first);
        half.on_lost(second);
        let again = half.take_again(6).unwrap();
        assert_eq!(bytes(&half, again), b"abcdef");
        let rest = half.take_again(6).unwrap();
        assert_eq!(bytes(&half, rest), b"gh");
        assert!(rest.fin && rest.losses == 1);
        acked(&mut half, rest);
        assert!(!half.is_done());
        acked(&mut half, again);
        assert!(half.is_done());
    }

    #[test]
    fn a_late_acknowledgement_cancels_the_resend() {
        let mut half = half(100, b"abcdefgh");
        let piece = half.take_new(8, 0).unwrap();
        half.on_lost(piece);
        acked(&mut half, Piece { len: 4, ..piece });
        let again = half.take_again(8).unwrap();
        assert_eq!((again.offset, again.len), (4, 4));
        half.on_lost(piece);
        assert_eq!(half.take_again(8).unwrap().offset, 4);
    }

    #[test]
    fn losses_are_counted() {
        let mut half = half(100, b"abcdefgh");
        let (first, second) = (half.take_new(4, 0).unwrap(), half.take_new(4, 0).unwrap());
        assert_eq!(first.losses, 0);
        half.on_lost(first);
        let again = half.take_again(8).unwrap();
        half.on_lost(again);
        half.on_lost(second);
        let (first, second) = (half.take_again(8).unwrap(), half.take_again(8).unwrap());
        assert_eq!((first.losses, second.losses), (2, 1), "not joined");
    }

    #[test]
    fn credit_holds_back_what_is_new_only_and_a_loan_goes_beyond_it() {
        let mut half = half(3, b"abcdefgh");
        let piece = half.take_new(2, 0).unwrap();
        assert_eq!((piece.len, half.take_new(8, 0).unwrap().len), (2, 1));
        assert!(half.is_blocked() && !half.has_new(0) && half.has_new(1));
        assert_eq!(half.take_new(8, 1).unwrap().len, 1);
        assert!(half.has_new(1), "what was borrowed before is not borrowed twice");
        half.on_lost(piece);
        assert_eq!(half.take_again(8).unwrap().len, 2);
        half.on_credit(6);
        assert_eq!(half.take_new(8, 0).unwrap().len, 2);
    }

    #[test]
    fn an_empty_stream_ends_with_an_empty_piece() {
        let mut half = SendHalf::new(0);
        half.finish();
        let piece = half.take_again(8).unwrap();
        assert!(piece.fin && piece.len == 0);
        assert!(!half.wants_again());
        half.on_lost(piece);
        assert!(half.take_again(8).unwrap().fin);
        acked(&mut half, piece);
        assert!(half.is_done());
    }
}

//! The sending half of a stream.
//!
//! ```text
//! Ready --finish--> Finishing --all acknowledged--> Done
//!   |                   |
//!   +------reset--------+-----> Reset --acknowledged--> Done
//! ```

use rangemap::RangeSet;

use super::Delivery;
use super::store::ByteStore;

/// A piece of a stream that goes into one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// Reaches the stream's end.
    pub(crate) fin: bool,
    /// Sent for the first time, so it counts against the connection's credit.
    pub(crate) fresh: bool,
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
    /// To be sent again.
    lost: RangeSet<u64>,
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
            lost: RangeSet::new(),
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

    /// Bytes that were sent and count against the connection's credit for ever.
    pub(super) fn sent(&self) -> u64 {
        self.next
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        debug_assert!(self.is_writable());
        self.store.write(self.end, bytes);
        self.end += bytes.len() as u64;
    }

    pub(super) fn finish(&mut self) {
        if self.state == State::Ready {
            self.state = State::Finishing { fin_acked: false };
            self.fin_due = true;
        }
    }

    /// Gives the stream up; `false` when that was done or needless already.
    pub(super) fn reset(&mut self) -> bool {
        if self.is_reset() || self.is_done() {
            return false;
        }
        self.state = State::Reset { acked: false };
        self.store = ByteStore::default();
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

    /// Whether [`Self::take`] would give a piece; `fresh` tells whether the connection has credit
    /// for what was never sent.
    pub(super) fn has_pending(&self, fresh: bool) -> bool {
        !self.is_reset()
            && (!self.lost.is_empty()
                || (self.fin_due && self.next == self.end)
                || (fresh && self.next < self.end.min(self.credit)))
    }

    /// Held back by the stream's credit alone.
    pub(super) fn is_blocked(&self) -> bool {
        !self.is_reset() && self.lost.is_empty() && self.next < self.end && self.next >= self.credit
    }

    /// The next piece to send, of at most `max` bytes, of which at most `allowance` for the
    /// first time: what was lost first, then what is new.
    pub(super) fn take(&mut self, max: usize, allowance: u64) -> Option<Piece> {
        if self.is_reset() {
            return None;
        }
        if let Some(range) = self.lost.first().cloned() {
            let end = range.end.min(range.start + max as u64);
            self.lost.remove(range.start..end);
            return Some(self.piece(range.start, end, false));
        }
        let limit = self.end.min(self.credit).min(self.next.saturating_add(allowance));
        let end = limit.min(self.next + max as u64);
        if end <= self.next {
            // The end alone, once nothing is left before it.
            return (self.fin_due && self.next == self.end)
                .then(|| self.piece(self.end, self.end, false));
        }
        let start = core::mem::replace(&mut self.next, end);
        Some(self.piece(start, end, true))
    }

    fn piece(&mut self, start: u64, end: u64, fresh: bool) -> Piece {
        let finishing = matches!(self.state, State::Finishing { .. });
        let fin = finishing && end == self.end && self.next == self.end;
        if fin {
            self.fin_due = false;
        }
        Piece { offset: start, len: (end - start) as usize, fin, fresh }
    }

    /// Appends the piece's bytes to `out`.
    pub(super) fn copy_to(&self, piece: Piece, out: &mut Vec<u8>) {
        self.store.read(piece.offset, piece.len, |bytes| out.extend_from_slice(bytes));
    }

    pub(super) fn on_acked(&mut self, piece: Piece) {
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
            return;
        }
        self.base = end;
        while let Some(range) = self.acked.first().cloned()
            && range.start <= self.base
        {
            self.base = self.base.max(range.end);
            self.acked.remove(range);
        }
        self.store.release(self.base);
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
        let missing: Vec<_> = self.acked.gaps(&range).collect();
        self.lost.extend(missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(text: &[u8]) -> SendHalf {
        let mut half = SendHalf::new(u64::MAX);
        half.write(text);
        half
    }

    fn bytes(half: &SendHalf, piece: Piece) -> Vec<u8> {
        let mut out = Vec::new();
        half.copy_to(piece, &mut out);
        out
    }

    #[test]
    fn what_was_lost_goes_first_and_the_end_is_marked_once_more() {
        let mut half = half(b"abcdefgh");
        half.finish();
        let first = half.take(4, 100).unwrap();
        let second = half.take(4, 100).unwrap();
        assert!(!first.fin && second.fin);
        assert_eq!(half.take(4, 100), None);
        half.on_lost(first);
        half.on_lost(second);
        let again = half.take(6, 100).unwrap();
        assert_eq!(bytes(&half, again), b"abcdef");
        let rest = half.take(6, 100).unwrap();
        assert_eq!(bytes(&half, rest), b"gh");
        assert!(rest.fin && !rest.fresh);
        half.on_acked(rest);
        assert!(!half.is_done());
        half.on_acked(again);
        assert!(half.is_done());
    }

    #[test]
    fn a_late_acknowledgement_cancels_the_resend() {
        let mut half = half(b"abcdefgh");
        let piece = half.take(8, 100).unwrap();
        half.on_lost(piece);
        half.on_acked(Piece { len: 4, ..piece });
        let again = half.take(8, 100).unwrap();
        assert_eq!((again.offset, again.len), (4, 4));
        half.on_lost(piece);
        assert_eq!(half.take(8, 100).unwrap().offset, 4);
    }

    #[test]
    fn credit_holds_back_what_is_new_only() {
        let mut half = SendHalf::new(3);
        half.write(b"abcdefgh");
        let piece = half.take(8, 2).unwrap();
        assert_eq!(piece.len, 2);
        assert_eq!(half.take(8, 9).unwrap().len, 1);
        assert!(half.is_blocked() && !half.has_pending(true));
        half.on_lost(piece);
        assert!(half.has_pending(false));
        assert_eq!(half.take(8, 0).unwrap().len, 2);
        half.on_credit(5);
        assert_eq!(half.take(8, 9).unwrap().len, 2);
    }

    #[test]
    fn an_empty_stream_ends_with_an_empty_piece() {
        let mut half = SendHalf::new(0);
        half.finish();
        let piece = half.take(8, 0).unwrap();
        assert!(piece.fin && piece.len == 0);
        assert_eq!(half.take(8, 0), None);
        half.on_lost(piece);
        assert!(half.take(8, 0).unwrap().fin);
        half.on_acked(piece);
        assert!(half.is_done());
    }
}

//! What a sender with selective acknowledgements knows of each segment in flight (RFC 6675).

use std::collections::VecDeque;

/// Segments that must have arrived behind a hole before it counts as lost.
const DUPLICATES: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Sacked,
    /// And to be sent again.
    Lost,
    /// Sent again.
    Resent,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    seq: u64,
    len: u64,
    state: State,
}

impl Piece {
    fn end(&self) -> u64 {
        self.seq + self.len
    }
}

/// The segments between what is acknowledged and what was sent last. Places are counted from the
/// first segment of the connection, so that they stay the same when the front leaves.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    pieces: VecDeque<Piece>,
    /// The place of the first piece.
    first: u64,
    /// Every piece before this place has been judged.
    judged: u64,
    /// Pieces from there on that were acknowledged selectively.
    sacked: u32,
    /// No piece before this place waits to be sent again.
    resend_from: u64,
    in_flight: u64,
    /// The blocks of the last acknowledgement: what lies in them is known.
    known: Vec<(u64, u64)>,
}

impl Scoreboard {
    /// Bytes that are still under way: RFC 6675's pipe.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// New data went out.
    pub(super) fn on_sent(&mut self, seq: u64, len: u64) {
        self.pieces.push_back(Piece { seq, len, state: State::InFlight });
        self.in_flight += len;
    }

    /// Everything before `ack` arrived; how much of it was news, in bytes.
    pub(super) fn on_ack(&mut self, ack: u64) -> u64 {
        let mut news = 0;
        while let Some(piece) = self.pieces.front().filter(|piece| piece.end() <= ack) {
            match piece.state {
                State::InFlight | State::Resent => self.in_flight -= piece.len,
                State::Sacked => self.sacked -= u32::from(self.first >= self.judged),
                State::Lost => {}
            }
            news += if piece.state == State::Sacked { 0 } else { piece.len };
            self.first += 1;
            self.pieces.pop_front();
        }
        self.judged = self.judged.max(self.first);
        self.resend_from = self.resend_from.max(self.first);
        news
    }

    /// These blocks arrived.
    pub(super) fn on_sack(&mut self, blocks: &[(u64, u64)]) {
        if blocks.is_empty() && self.known.is_empty() {
            return self.judge();
        }
        let known = core::mem::take(&mut self.known);
        for &(start, end) in blocks {
            // The blocks of the last time have grown at most: what lay in them is not new.
            match known.iter().find(|known| known.0 < end && known.1 > start) {
                Some(&(from, to)) => {
                    self.mark(start, from.min(end));
                    self.mark(to.max(start), end);
                }
                None => self.mark(start, end),
            }
        }
        self.known = known;
        self.known.clear();
        self.known.extend_from_slice(blocks);
        self.judge();
    }

    fn mark(&mut self, start: u64, end: u64) {
        let mut at = self.pieces.partition_point(|piece| piece.seq < start);
        while let Some(piece) = self.pieces.get_mut(at).filter(|piece| piece.end() <= end) {
            if piece.state != State::Sacked {
                if piece.state != State::Lost {
                    self.in_flight -= piece.len;
                }
                piece.state = State::Sacked;
                self.sacked += u32::from(self.first + at as u64 >= self.judged);
            }
            at += 1;
        }
    }

    /// Holes with enough behind them are lost.
    fn judge(&mut self) {
        while let Some(piece) = self.pieces.get_mut((self.judged - self.first) as usize) {
            if piece.state == State::Sacked {
                self.sacked -= 1;
            } else if self.sacked >= DUPLICATES {
                piece.state = State::Lost;
                self.in_flight -= piece.len;
                self.resend_from = self.resend_from.min(self.judged);
            } else {
                break;
            }
            self.judged += 1;
        }
    }

    /// A time-out: whatever is not known to have arrived is lost.
    pub(super) fn lose_all(&mut self) {
        for piece in self.pieces.iter_mut().filter(|piece| piece.state != State::Sacked) {
            piece.state = State::Lost;
        }
        (self.in_flight, self.sacked) = (0, 0);
        self.judged = self.first + self.pieces.len() as u64;
        self.resend_from = self.first;
    }

    /// The first that is to be sent again: its number and length.
    pub(super) fn next_lost(&mut self) -> Option<(u64, u64)> {
        while self.resend_from < self.judged {
            let piece = self.pieces.get((self.resend_from - self.first) as usize)?;
            if piece.state == State::Lost {
                return Some((piece.seq, piece.len));
            }
            self.resend_from += 1;
        }
        None
    }

    /// What [`Self::next_lost`] returned was sent again.
    pub(super) fn on_resent(&mut self) {
        let at = (self.resend_from - self.first) as usize;
        if let Some(piece) = self.pieces.get_mut(at).filter(|piece| piece.state == State::Lost) {
            piece.state = State::Resent;
            self.in_flight += piece.len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_with_three_behind_it_is_lost_and_sent_once() {
        let mut board = Scoreboard::default();
        (0..8).for_each(|at| board.on_sent(at * 10, 10));
        assert_eq!((board.on_ack(10), board.in_flight()), (10, 70));
        board.on_sack(&[(20, 40)]);
        assert_eq!((board.in_flight(), board.next_lost()), (50, None));
        board.on_sack(&[(20, 50)]);
        // Of seven three have arrived and one is lost.
        assert_eq!((board.in_flight(), board.next_lost()), (30, Some((10, 10))));
        board.on_resent();
        assert_eq!((board.in_flight(), board.next_lost()), (40, None));
        // Another hole, at 50, with two behind it only.
        board.on_sack(&[(60, 80), (20, 50)]);
        assert_eq!((board.in_flight(), board.next_lost()), (20, None));
        // Of what this covers only the hole is news.
        assert_eq!((board.on_ack(50), board.in_flight()), (10, 10));
        board.lose_all();
        assert_eq!((board.in_flight(), board.next_lost()), (0, Some((50, 10))));
        board.on_ack(80);
        assert_eq!((board.in_flight(), board.next_lost()), (0, None));
        board.on_sent(80, 10);
        assert_eq!(board.in_flight(), 10);
    }
}

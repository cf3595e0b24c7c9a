//! What a sender with selective acknowledgements knows of each segment in flight (RFC 6675).

use std::collections::VecDeque;

use units::Instant;

use super::rack::Rack;

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
    /// Rack's, of the last time it was sent.
    number: u64,
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
    /// Of who sees that what was sent again is lost again.
    rack: Option<Rack>,
    /// The blocks of the last acknowledgement: what lies in them is known.
    known: Vec<(u64, u64)>,
}

impl Scoreboard {
    pub(super) fn new(rack: Option<Rack>) -> Self {
        Self { rack, ..Self::default() }
    }

    /// Bytes that are still under way: RFC 6675's pipe.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// New data went out.
    pub(super) fn on_sent(&mut self, seq: u64, len: u64) {
        let number = self.rack.as_mut().map_or(0, Rack::on_sent);
        self.pieces.push_back(Piece { seq, len, number, state: State::InFlight });
        self.in_flight += len;
    }

    /// Everything before `ack` arrived, as an answer to what was `sent` then tells; how much of it was news, in bytes.
    #[inline(always)]
    pub(super) fn on_ack(&mut self, ack: u64, sent: Instant) -> u64 {
        let mut news = 0;
        while let Some(piece) = self.pieces.front().filter(|piece| piece.end() <= ack) {
            if piece.state == State::Sacked {
                self.sacked -= u32::from(self.first >= self.judged);
            } else {
                news += piece.len;
                if piece.state != State::Lost {
                    self.in_flight -= piece.len;
                    if let Some(rack) = &mut self.rack {
                        rack.on_arrival(piece.number, sent);
                    }
                }
            }
            self.first += 1;
            self.pieces.pop_front();
        }
        self.judged = self.judged.max(self.first);
        self.resend_from = self.resend_from.max(self.first);
        news
    }

    /// These blocks arrived, as the same answer tells; whether something is to be sent again.
    #[inline(always)]
    pub(super) fn on_sack(&mut self, blocks: &[(u64, u64)], sent: Instant) -> bool {
        if !blocks.is_empty() || !self.known.is_empty() {
            self.mark_all(blocks, sent);
        }
        if self.sacked > 0 || self.rack.is_some() {
            self.judge();
        }
        self.next_lost().is_some()
    }

    /// Notes what is new of these blocks.
    #[inline(never)]
    fn mark_all(&mut self, blocks: &[(u64, u64)], sent: Instant) {
        let known = core::mem::take(&mut self.known);
        for &(start, end) in blocks {
            // The blocks of the last time have grown at most: what lay in them is not new.
            match known.iter().find(|known| known.0 < end && known.1 > start) {
                Some(&(from, to)) => {
                    self.mark(start, from.min(end), sent);
                    self.mark(to.max(start), end, sent);
                }
                None => self.mark(start, end, sent),
            }
        }
        self.known = known;
        self.known.clear();
        self.known.extend_from_slice(blocks);
    }

    fn mark(&mut self, start: u64, end: u64, sent: Instant) {
        let mut at = self.pieces.partition_point(|piece| piece.seq < start);
        while let Some(piece) = self.pieces.get_mut(at).filter(|piece| piece.end() <= end) {
            if piece.state != State::Sacked {
                if piece.state != State::Lost {
                    self.in_flight -= piece.len;
                    if let Some(rack) = &mut self.rack {
                        rack.on_arrival(piece.number, sent);
                    }
                }
                piece.state = State::Sacked;
                self.sacked += u32::from(self.first + at as u64 >= self.judged);
            }
            at += 1;
        }
    }

    /// Holes with enough behind them are lost.
    #[inline(never)]
    fn judge(&mut self) {
        while self.sacked > 0
            && let Some(piece) = self.pieces.get_mut((self.judged - self.first) as usize)
        {
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
        while let Some(place) = self.rack.as_mut().and_then(Rack::next_judged) {
            let at = place.checked_sub(self.first);
            let piece = at.and_then(|at| self.pieces.get_mut(at as usize));
            if let Some(piece) = piece.filter(|piece| piece.state == State::Resent) {
                piece.state = State::Lost;
                self.in_flight -= piece.len;
                self.resend_from = self.resend_from.min(place);
            }
        }
    }

    /// A time-out: whatever is not known to have arrived is lost.
    pub(super) fn lose_all(&mut self) {
        for piece in self.pieces.iter_mut().filter(|piece| piece.state != State::Sacked) {
            piece.state = State::Lost;
        }
        (self.in_flight, self.sacked) = (0, 0);
        if let Some(rack) = &mut self.rack {
            rack.forget();
        }
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
    pub(super) fn on_resent(&mut self, now: Instant) {
        let place = self.resend_from;
        let piece = self.pieces.get_mut((place - self.first) as usize);
        if let Some(piece) = piece.filter(|piece| piece.state == State::Lost) {
            piece.state = State::Resent;
            piece.number = self.rack.as_mut().map_or(0, |rack| rack.on_resent(now, place));
            self.in_flight += piece.len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    #[test]
    fn what_was_sent_again_is_lost_when_something_arrives_that_was_sent_three_later() {
        let at = Instant::from_nanos;
        for (rack, expected) in [(None, None), (Some(Rack::default()), Some((0, 10)))] {
            let mut board = Scoreboard::new(rack);
            (0..4).for_each(|piece| board.on_sent(piece * 10, 10));
            board.on_sack(&[(10, 40)], at(1));
            assert_eq!(board.next_lost(), Some((0, 10)));
            board.on_resent(at(2));
            (4..8).for_each(|piece| board.on_sent(piece * 10, 10));
            board.on_sack(&[(10, 60)], at(3));
            assert_eq!((board.next_lost(), board.in_flight()), (None, 30));
            board.on_sack(&[(10, 70)], at(3));
            assert_eq!(board.next_lost(), expected);
            // Sent once more, it is judged by what is sent after that.
            if board.rack.is_some() {
                board.on_resent(at(4));
                board.on_sack(&[(10, 80)], at(3));
                assert_eq!((board.next_lost(), board.in_flight()), (None, 10));
                assert_eq!((board.on_ack(80, at(4)), board.in_flight()), (10, 0));
            }
        }
    }

    #[test]
    fn a_hole_with_three_behind_it_is_lost_and_sent_once() {
        let mut board = Scoreboard::default();
        (0..8).for_each(|at| board.on_sent(at * 10, 10));
        assert_eq!((board.on_ack(10, NOW), board.in_flight()), (10, 70));
        board.on_sack(&[(20, 40)], NOW);
        assert_eq!((board.in_flight(), board.next_lost()), (50, None));
        board.on_sack(&[(20, 50)], NOW);
        // Of seven three have arrived and one is lost.
        assert_eq!((board.in_flight(), board.next_lost()), (30, Some((10, 10))));
        board.on_resent(NOW);
        assert_eq!((board.in_flight(), board.next_lost()), (40, None));
        // Another hole, at 50, with two behind it only.
        board.on_sack(&[(60, 80), (20, 50)], NOW);
        assert_eq!((board.in_flight(), board.next_lost()), (20, None));
        // Of what this covers only the hole is news.
        assert_eq!((board.on_ack(50, NOW), board.in_flight()), (10, 10));
        board.lose_all();
        assert_eq!((board.in_flight(), board.next_lost()), (0, Some((50, 10))));
        board.on_ack(80, NOW);
        assert_eq!((board.in_flight(), board.next_lost()), (0, None));
        board.on_sent(80, 10);
        assert_eq!(board.in_flight(), 10);
    }
}

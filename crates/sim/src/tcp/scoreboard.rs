//! What a sender with selective acknowledgements knows of each segment in flight (RFC 6675).

use std::collections::VecDeque;

use smallvec::SmallVec;
use units::Instant;

use super::rack::Rack;
use super::segment::MAX_SACK_BLOCKS;

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

/// A block that is known, from one byte to another: all pieces from its start up to the place `behind` are marked, be it that an
/// older acknowledgement told of less. Blocks begin and end where pieces do.
#[derive(Clone, Copy, Debug)]
struct Known {
    start: u64,
    end: u64,
    behind: u64,
}

/// Segments in flight of which nothing else is known, one after the other and all of one length.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    count: u64,
    /// What the first of them is as a [`Piece`]; the numbers of the others follow its own.
    seq: u64,
    len: u64,
    number: u64,
}

/// The segments between what is acknowledged and what was sent last. Places are counted from the
/// first segment of the connection, so that they stay the same when the front leaves.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    pieces: VecDeque<Piece>,
    /// Behind them: without a loss it is all there is.
    fresh: Run,
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
    /// The blocks of the last acknowledgement.
    known: SmallVec<[Known; MAX_SACK_BLOCKS]>,
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
        if len != self.fresh.len {
            self.unfold();
            self.fresh = Run { count: 0, seq, len, number };
        }
        self.fresh.count += 1;
        self.in_flight += len;
    }

    /// Makes pieces of the run, for what comes next makes them differ.
    #[cold]
    fn unfold(&mut self) {
        let Run { count, seq, len, number } = core::mem::take(&mut self.fresh);
        let piece =
            |at| Piece { seq: seq + at * len, len, number: number + at, state: State::InFlight };
        self.pieces.extend((0..count).map(piece));
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
        let fresh = &mut self.fresh;
        while fresh.count > 0 && fresh.seq + fresh.len <= ack {
            if let Some(rack) = &mut self.rack {
                rack.on_arrival(fresh.number, sent);
            }
            news += fresh.len;
            self.in_flight -= fresh.len;
            self.first += 1;
            fresh.count -= 1;
            fresh.seq += fresh.len;
            fresh.number += 1;
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
            if self.fresh.count > 0 && end > self.fresh.seq {
                self.unfold();
            }
            // What was marked stays so: only what lies before a known block, or behind, is looked at.
            let behind = match known.iter().find(|known| known.start < end && known.end > start) {
                Some(old) => {
                    if start < old.start {
                        self.mark(self.place(start), old.start, sent);
                    }
                    self.mark(old.behind, end, sent)
                }
                None => self.mark(self.place(start), end, sent),
            };
            self.known.push(Known { start, end, behind });
        }
    }

    /// The place of the first piece at or beyond this byte.
    fn place(&self, seq: u64) -> u64 {
        self.first + self.pieces.partition_point(|piece| piece.seq < seq) as u64
    }

    /// The pieces from this place on that end at or before `end` have arrived; the place behind them.
    fn mark(&mut self, from: u64, end: u64, sent: Instant) -> u64 {
        let mut at = from.saturating_sub(self.first) as usize;
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
        self.first + at as u64
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
        self.unfold();
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
        // The numbers behind are no longer one after the other.
        self.unfold();
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
    use proptest::prelude::*;

    use super::*;
    use crate::tcp::{Config, Kind, Receiver, Recovery, Segment};

    proptest! {
        /// As a board that has a piece for each segment at once, and looks for each block anew.
        #[test]
        fn runs_and_known_blocks_change_nothing(
            racks in any::<bool>(),
            steps in prop::collection::vec((0u8..8, 0usize..12, 1u64..12), 1..200),
        ) {
            let mut boards = [(); 2].map(|()| Scoreboard::new(racks.then(Rack::default)));
            let mut receiver = Receiver::new(&Config::classic(Recovery::Sack, 10, 1000));
            // What is sent and has not arrived, with when, answers that are late, and where the next begins.
            let (mut under_way, mut late, mut end) = (Vec::new(), Vec::new(), 0);
            for (now, (step, which, count)) in (0..).zip(steps) {
                let at = Instant::from_nanos(now);
                match step {
                    // Few are small.
                    0..3 => for _ in 0..count {
                        let len = if which == 0 { 3 } else { 10 };
                        boards.iter_mut().for_each(|board| board.on_sent(end, len));
                        boards[1].unfold();
                        under_way.push((at, end, len));
                        end += len;
                    },
                    3..6 => for _ in 0..count.min(under_way.len() as u64) {
                        let (stamp, seq, len) = under_way.remove(which % under_way.len());
                        let segment = Segment { kind: Kind::Data { seq, len }, stamp, timestamps: true };
                        late.extend(receiver.handle(at, &segment));
                        let answer = match step {
                            // Some come late, and some never.
                            3 => late.pop(),
                            4 if count % 3 == 0 => continue,
                            _ => (!late.is_empty()).then(|| late.remove(which % late.len())),
                        };
                        let Some(Segment { kind: Kind::Ack { ack, sack, .. }, stamp, .. }) = answer else {
                            continue;
                        };
                        boards[1].known.clear();
                        let [one, other] = boards.each_mut().map(|board| {
                            (board.on_ack(ack, stamp), board.on_sack(sack.as_slice(), stamp))
                        });
                        prop_assert_eq!(one, other);
                    },
                    6 if count == 1 => boards.iter_mut().for_each(Scoreboard::lose_all),
                    _ => for _ in 0..count {
                        let [one, other] = boards.each_mut().map(|board| {
                            board.next_lost().inspect(|_| board.on_resent(at))
                        });
                        prop_assert_eq!(one, other);
                        under_way.extend(one.map(|(seq, len)| (at, seq, len)));
                    },
                }
                let seen = boards.each_mut().map(|board| {
                    let count = board.pieces.len() as u64 + board.fresh.count;
                    (board.first, count, board.in_flight(), board.next_lost())
                });
                prop_assert_eq!(seen[0], seen[1]);
            }
        }
    }

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

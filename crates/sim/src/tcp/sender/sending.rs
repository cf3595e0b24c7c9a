//! What is sent next, as far as windows let it go.

use units::Instant;

use super::{Phase, Sender};
use crate::tcp::config::Recovery;
use crate::tcp::segment::{Kind, Segment};

impl Sender {
    /// The next segment that may be sent.
    #[inline(always)]
    pub fn poll(&mut self, now: Instant) -> Option<Segment> {
        let kind = match self.phase {
            Phase::Open | Phase::Recovery(_) | Phase::GoingBack(_) => {
                let (seq, len) = self.choose(now)?;
                self.note(now, seq, len);
                Kind::Data { seq, len }
            }
            Phase::Closed | Phase::SynSent => return None,
            Phase::Opening => {
                self.phase = Phase::SynSent;
                self.timer = self.rto.strikes_at(now);
                Kind::Syn
            }
        };
        Some(Segment { kind, stamp: now, timestamps: self.config.timestamps })
    }

    /// What may be sent next: its first byte, and how much.
    #[inline(always)]
    fn choose(&mut self, now: Instant) -> Option<(u64, u64)> {
        let forced = core::mem::take(&mut self.resend);
        let in_flight = match &mut self.board {
            Some(board) => {
                if let Some((seq, len)) = board.next_lost() {
                    let goes = forced || board.in_flight() + len <= self.control.window();
                    self.full = !goes;
                    return goes.then(|| {
                        board.on_resent(now);
                        (seq, len)
                    });
                }
                board.in_flight()
            }
            None if forced && self.most > self.una => {
                self.full = false;
                return Some((self.una, (self.most - self.una).min(self.config.mss.0)));
            }
            None => self.next - self.una,
        };
        let (mss, room) = (self.config.mss.0, self.control.window() + self.inflation);
        let unsent = self.limit.saturating_sub(self.next);
        let len = unsent.min(mss);
        self.full = len > 0 && in_flight + len > room;
        let goes = !self.full && (len == mss || self.may_be_small(len));
        goes.then(|| {
            // Whether another full one fits, if there is one, is known already.
            self.full = unsent >= 2 * mss && in_flight + 2 * mss > room;
            (self.next, len)
        })
    }

    /// Whether the last [poll](Self::poll) has found that the congestion window lets nothing more go: the next would return
    /// nothing, and change nothing. It need not have found that where it is so.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Whether a segment of less than its full size goes.
    fn may_be_small(&self, len: u64) -> bool {
        let window = self.window.min(self.config.send_buffer.0);
        // Silly windows are avoided, and small segments held back (RFC 1122, 4.2.3.4), but for the one that
        // bears the FIN: BSD and Linux let it go at once.
        let whole = len >= window.div_ceil(2);
        let last = self.next + len == self.written;
        let waits = self.config.nagle && !self.closed;
        let quiet = !waits || self.next == self.una || self.next < self.most;
        len > 0 && (whole || last && quiet)
    }

    #[inline(always)]
    fn note(&mut self, now: Instant, seq: u64, len: u64) {
        self.stats.sent += 1;
        if seq < self.most {
            self.stats.retransmitted += 1;
            // Karn: what was sent twice is not timed, nor what waits behind it.
            self.timed = None;
            if seq == self.una && self.config.recovery == Recovery::Rack {
                // It has a whole time-out to arrive each time.
                self.timer = Instant::FAR_FUTURE;
            }
        } else {
            if self.timed.is_none() {
                self.timed = Some((seq + len, now));
            }
            if let Some(board) = &mut self.board {
                board.on_sent(seq, len);
            }
        }
        if seq == self.next {
            self.next += len;
        }
        self.most = self.most.max(self.next);
        if self.timer == Instant::FAR_FUTURE {
            self.timer = self.rto.strikes_at(now);
        }
    }
}

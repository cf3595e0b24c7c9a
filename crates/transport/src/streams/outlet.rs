//! What is to be sent, and the credit that the other end gives for it.

use std::collections::{BTreeSet, VecDeque};

use super::send::SendHalf;
use super::turns::{Priority, Turns};

/// Queues of streams, and what all of them together may send and hold.
#[derive(Debug, Default)]
pub(super) struct Outlet {
    /// Streams with something that needs no credit: what was lost, and ends.
    again: VecDeque<u64>,
    /// Streams with something new, and credit of their own for it.
    turns: Turns,
    /// Streams that wait for credit of their own.
    blocked: BTreeSet<u64>,
    /// The stream after which the next list of blocked ones begins.
    blocked_turn: u64,
    /// Bytes that may be sent on all streams, and those sent.
    credit: u64,
    sent: u64,
    /// Bytes that may still be sent beyond the credits of streams.
    loan: u64,
    /// Bytes written and not yet sent.
    queued: u64,
}

/// Which queues a stream stands in.
#[derive(Debug, Default)]
pub(super) struct Places {
    again: bool,
    turns: bool,
}

impl Outlet {
    /// The other end's first credit for all streams together, which is a loan beyond their own.
    pub(super) fn on_first_credit(&mut self, credit: u64) {
        self.loan = credit;
        self.on_credit(credit);
    }

    pub(super) fn on_credit(&mut self, credit: u64) {
        self.credit = self.credit.max(credit);
    }

    pub(super) fn loan(&self) -> u64 {
        self.loan
    }

    pub(super) fn queued(&self) -> u64 {
        self.queued
    }

    pub(super) fn on_written(&mut self, len: u64) {
        self.queued += len;
    }

    /// So much was written and will not be sent.
    pub(super) fn on_given_up(&mut self, id: u64, unsent: u64) {
        self.queued -= unsent;
        self.blocked.remove(&id);
    }

    /// Puts the stream into the queues where it belongs now.
    pub(super) fn enlist(&mut self, id: u64, entry: (&SendHalf, &mut Places, Priority)) {
        let (send, places, priority) = entry;
        if send.wants_again() && !places.again {
            places.again = true;
            self.again.push_back(id);
        }
        if send.has_new(self.loan) {
            self.blocked.remove(&id);
            if !places.turns {
                places.turns = true;
                self.turns.join(id, priority);
            }
        } else if send.is_blocked() {
            self.blocked.insert(id);
        }
    }

    /// The stream's priority changes.
    pub(super) fn move_place(&mut self, id: u64, places: &mut Places, old: Priority) {
        if core::mem::take(&mut places.turns) {
            self.turns.leave(id, old);
        }
    }

    /// The next stream with something that needs no credit, taken from its queue.
    pub(super) fn pop_again(&mut self) -> Option<u64> {
        self.again.pop_front()
    }

    /// The stream whose turn it is to send something new, and how much at most and on loan.
    pub(super) fn current(&mut self) -> Option<(u64, u64, u64)> {
        let allowance = self.credit - self.sent;
        let id = (allowance > 0).then(|| self.turns.current())??;
        Some((id, allowance, self.loan))
    }

    pub(super) fn left_again(places: &mut Places) {
        places.again = false;
    }

    /// The stream whose turn it was sent `len` bytes, `borrowed` of them on loan.
    pub(super) fn on_sent(&mut self, len: usize, borrowed: u64, entry: (&SendHalf, &mut Places)) {
        let (send, places) = entry;
        self.sent += len as u64;
        self.queued -= len as u64;
        self.loan -= borrowed;
        places.turns = send.has_new(self.loan);
        self.turns.charge(len, places.turns);
    }

    /// The stream whose turn it was is no more, or has nothing.
    pub(super) fn skip(&mut self) {
        self.turns.charge(0, false);
    }

    /// Whether a stream has something it may send.
    pub(super) fn has_pending(&self) -> bool {
        !self.again.is_empty() || (self.credit > self.sent && !self.turns.is_empty())
    }

    /// Whether something was written that only credit holds back.
    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty() || (self.credit <= self.sent && !self.turns.is_empty())
    }

    /// Up to `most` streams that wait for credit, in turn.
    pub(super) fn blocked(&mut self, most: usize) -> Vec<u64> {
        let turn = self.blocked_turn;
        let list: Vec<u64> = self
            .blocked
            .range(turn..)
            .chain(self.blocked.range(..turn))
            .take(most)
            .copied()
            .collect();
        self.blocked_turn = list.last().map_or(0, |last| last + 1);
        list
    }
}

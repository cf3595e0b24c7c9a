//! What is to be sent, and the credit that the other end gives for it.

use std::collections::{BTreeSet, VecDeque};

use super::send::SendHalf;
use super::turns::{Class, Priority, Turns};

/// An interactive stream that has more than this unsent takes turns with the bulk until all of it has
/// gone: what goes before all others must be little.
const LITTLE: u64 = 32 << 10;

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
    /// The class in which it takes its turn.
    turns: Option<Class>,
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

    /// So much was written to a stream of this priority and will not be sent.
    pub(super) fn on_given_up(&mut self, id: u64, unsent: u64, entry: (&mut Places, Priority)) {
        let (places, priority) = entry;
        self.queued -= unsent;
        self.blocked.remove(&id);
        self.move_place(id, places, priority);
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
            let much = priority.class == Class::Interactive && send.unsent() > LITTLE;
            let class = if much { Class::Bulk } else { places.turns.unwrap_or(priority.class) };
            if places.turns != Some(class) {
                self.move_place(id, places, priority);
                places.turns = Some(class);
                self.turns.join(id, Priority { class, ..priority });
            }
        } else if send.is_blocked() {
            self.blocked.insert(id);
        }
    }

    /// The stream's priority changes, or the class in which it takes its turn, or it takes none any more.
    pub(super) fn move_place(&mut self, id: u64, places: &mut Places, old: Priority) {
        if let Some(class) = places.turns.take() {
            self.turns.leave(id, Priority { class, ..old });
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
        let more = send.has_new(self.loan);
        places.turns = places.turns.filter(|_| more);
        self.turns.charge(len, more);
    }

    /// The stream whose turn it was is no more, or has nothing.
    pub(super) fn skip(&mut self) {
        self.turns.charge(0, false);
    }

    /// Whether a stream has something it may send.
    pub(super) fn has_pending(&self) -> bool {
        !self.again.is_empty() || (!self.is_spent() && !self.turns.is_empty())
    }

    /// Whether nothing new may be sent on any stream until there is more credit.
    pub(super) fn is_spent(&self) -> bool {
        self.credit <= self.sent
    }

    /// Whether something was written that only credit holds back.
    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty() || (self.is_spent() && !self.turns.is_empty())
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

#[cfg(test)]
mod tests {
    use super::super::store::Pool;
    use super::*;

    #[test]
    fn an_interactive_stream_with_much_to_send_waits_its_turn_until_all_has_gone() {
        let mut outlet = Outlet::default();
        outlet.on_first_credit(1 << 20);
        let classes = [Class::Bulk, Class::Interactive];
        let mut streams = classes.map(|_| (SendHalf::new(1 << 20), Places::default()));
        let write = |outlet: &mut Outlet, streams: &mut [(SendHalf, Places)], id: usize, len| {
            let (send, places) = &mut streams[id];
            send.write(&vec![0; len], &mut Pool::default());
            outlet.on_written(len as u64);
            let priority = Priority { class: classes[id], ..Priority::default() };
            outlet.enlist(id as u64, (send, places, priority));
        };
        let next = |outlet: &mut Outlet, streams: &mut [(SendHalf, Places)]| {
            let (id, allowance, loan) = outlet.current().unwrap();
            let (send, places) = &mut streams[id as usize];
            let len = send.take_new(allowance.min(1500), loan).unwrap().len;
            outlet.on_sent(len, 0, (send, places));
            let priority = Priority { class: classes[id as usize], ..Priority::default() };
            outlet.enlist(id, (send, places, priority));
            id
        };
        write(&mut outlet, &mut streams, 0, 150_000);
        write(&mut outlet, &mut streams, 1, 30_000);
        assert_eq!(next(&mut outlet, &mut streams), 1);
        // It has grown, and stays where it is when it is little again.
        write(&mut outlet, &mut streams, 1, 31_500);
        let order: Vec<u64> = (0..80).map(|_| next(&mut outlet, &mut streams)).collect();
        assert!(order.chunks(2).all(|pair| pair == [0, 1]), "{order:?}");
        assert_eq!(next(&mut outlet, &mut streams), 0);
        write(&mut outlet, &mut streams, 1, 3000);
        assert_eq!([(); 3].map(|()| next(&mut outlet, &mut streams)), [1, 1, 0]);
    }
}

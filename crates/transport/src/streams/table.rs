//! A connection's streams.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use units::Instant;

use super::lender::Lender;
use super::numbers::Numbers;
use super::outlet::Outlet;
use super::recv::Progress;
use super::store::Pool;
use super::stream::Stream;
use super::turns::Priority;
use super::window::{Growth, Window};
use super::{Delivery, Grant, Limits, OpenError, Piece, ReadOutcome, StreamError, WriteOutcome};
use crate::wire::{MAX_BLOCKED, MAX_CREDITS, StreamCredit};
use crate::{Event, Side};

/// All streams, and the credit in both directions.
#[derive(Debug)]
pub(crate) struct Streams {
    limits: Limits,
    table: BTreeMap<u64, Stream>,
    numbers: Numbers,
    outlet: Outlet,
    lender: Lender,
    pool: Pool,
    /// The other end's first credit for each new stream.
    remote_stream_credit: u64,
    /// Bytes that wait at the other end to be sent.
    remote_queued: u64,
}

impl Streams {
    pub(crate) fn new(side: Side, limits: Limits) -> Self {
        Self {
            limits,
            table: BTreeMap::new(),
            numbers: Numbers::new(side, limits.streams),
            outlet: Outlet::default(),
            lender: Lender::new(limits.connection_credit, limits.receive_memory),
            pool: Pool::default(),
            remote_stream_credit: 0,
            remote_queued: 0,
        }
    }

    /// The other end's first grants.
    pub(crate) fn on_parameters(
        &mut self,
        (connection_credit, stream_credit, streams): (u64, u64, u64),
        events: &mut VecDeque<Event>,
    ) {
        self.outlet.on_first_credit(connection_credit);
        self.remote_stream_credit = stream_credit;
        self.on_streams_credit(streams, events);
        let waiting: Vec<u64> = self.table.keys().copied().collect();
        for stream in waiting {
            self.on_stream_credit(StreamCredit { stream, credit: stream_credit }, events);
        }
    }

    pub(crate) fn open(&mut self) -> Result<u64, OpenError> {
        let queued = self.outlet.queued();
        if let Some(limit) = self.limits.admission.filter(|&limit| queued > limit) {
            return Err(OpenError::Overloaded { queued, limit });
        }
        let id = self.numbers.open().ok_or(OpenError::Blocked)?;
        self.insert(id);
        Ok(id)
    }

    /// Whether a stream that is opened now may have to wait for readers of others, at either end.
    pub(crate) fn is_crowded(&self) -> bool {
        self.lender.is_crowded() || self.outlet.is_spent() || self.numbers.is_spent()
    }

    /// Nobody waits to open a stream any longer.
    pub(crate) fn give_up_opening(&mut self) {
        self.numbers.give_up();
    }

    fn insert(&mut self, id: u64) {
        let window = Window::new(self.limits.stream_credit.min(self.limits.receive_memory));
        self.table.insert(id, Stream::new(self.remote_stream_credit, window));
    }

    /// The stream that a packet names, opened if it is new. `None` when it is no more.
    fn named(
        &mut self,
        id: u64,
        events: &mut VecDeque<Event>,
    ) -> Result<Option<&mut Stream>, StreamError> {
        if !self.table.contains_key(&id) {
            if !self.numbers.may_appear(id)? {
                return Ok(None);
            }
            self.insert(id);
            events.push_back(Event::Opened(id));
        }
        Ok(self.table.get_mut(&id))
    }

    /// Forgets the stream when both halves are done and nobody asks for it any more.
    fn settle(&mut self, id: u64) {
        let done =
            |stream: &Stream| stream.released && stream.send.is_done() && stream.recv.is_done();
        if self.table.get(&id).is_some_and(done) {
            self.table.remove(&id);
            self.numbers.on_closed(id);
        }
    }

    /// Puts the stream into the queues of those that have something to send.
    fn enlist(&mut self, id: u64) {
        if let Some(stream) = self.table.get_mut(&id) {
            self.outlet.enlist(id, (&stream.send, &mut stream.places, stream.priority));
        }
    }

    // What the application does.

    pub(crate) fn set_priority(&mut self, id: u64, priority: Priority) {
        if let Some(stream) = self.table.get_mut(&id) {
            let old = core::mem::replace(&mut stream.priority, priority);
            self.outlet.move_place(id, &mut stream.places, old);
        }
        self.enlist(id);
    }

    pub(crate) fn write(&mut self, id: u64, bytes: &[u8]) -> WriteOutcome {
        let Some(stream) = self.table.get_mut(&id) else {
            return WriteOutcome::Stopped;
        };
        if !stream.send.is_writable() {
            return WriteOutcome::Stopped;
        }
        let most = stream.most_unsent(&self.limits, &self.outlet);
        let room = most.saturating_sub(stream.send.unsent());
        let room = room.min(self.limits.held.saturating_sub(stream.send.held()));
        let len = (bytes.len() as u64).min(room) as usize;
        if len == 0 && !bytes.is_empty() {
            stream.write_blocked = true;
            return WriteOutcome::Blocked;
        }
        stream.send.write(&bytes[..len], &mut self.pool);
        self.outlet.on_written(len as u64);
        self.enlist(id);
        WriteOutcome::Written(len)
    }

    pub(crate) fn finish(&mut self, id: u64) {
        if let Some(stream) = self.table.get_mut(&id) {
            stream.send.finish();
        }
        self.enlist(id);
    }

    /// What became of all that was written.
    pub(crate) fn delivery(&self, id: u64) -> Delivery {
        self.table.get(&id).map_or(Delivery::GivenUp, |stream| stream.send.delivery())
    }

    /// Bytes that were written and are not known to have arrived.
    pub(crate) fn undelivered(&self, id: u64) -> u64 {
        self.table.get(&id).map_or(0, |stream| stream.send.held())
    }

    /// Bytes that were sent, those that were sent again counted once.
    pub(crate) fn sent(&self, id: u64) -> u64 {
        self.table.get(&id).map_or(0, |stream| stream.send.sent())
    }

    /// Bytes that have arrived and were not read.
    pub(crate) fn unread(&self, id: u64) -> u64 {
        self.table.get(&id).map_or(0, |stream| stream.recv.unread())
    }

    /// Bytes that have arrived in order on all streams, those that have ended too, and were not read.
    pub(crate) fn all_unread(&self) -> u64 {
        self.lender.unread()
    }

    /// The sender has said where it ends, and nobody has given it up.
    pub(crate) fn is_finished(&self, id: u64) -> bool {
        self.table.get(&id).is_some_and(|stream| stream.recv.is_finished())
    }

    /// The application lets go of the stream: it will not ask again.
    pub(crate) fn release(&mut self, id: u64) {
        if let Some(stream) = self.table.get_mut(&id) {
            stream.released = true;
        }
        self.settle(id);
    }

    /// Gives up sending; the offset to name in the reset, if one must be sent.
    pub(crate) fn reset(&mut self, id: u64) -> Option<u64> {
        let Stream { send, places, priority, .. } = self.table.get_mut(&id)?;
        let unsent = send.unsent();
        if !send.reset(&mut self.pool) {
            return None;
        }
        self.outlet.on_given_up(id, unsent, (places, *priority));
        Some(send.sent())
    }

    /// Gives up reading; whether the other end must be told.
    pub(crate) fn stop(&mut self, id: u64) -> bool {
        let Some(stream) = self.table.get_mut(&id) else {
            return false;
        };
        let progress = stream.recv.stop(&mut self.pool);
        let tell = !stream.recv.is_done();
        // Nothing new was seen, so no credit can be exceeded.
        let _ = self.lender.on_progress(progress);
        self.settle(id);
        tell
    }

    pub(crate) fn read(
        &mut self,
        now: Instant,
        id: u64,
        most: usize,
        take: impl FnMut(&[u8]),
        rtt: Duration,
    ) -> ReadOutcome {
        let share = self.lender.share(self.table.len());
        let growth = Growth { rtt, share, most: self.lender.most() };
        let Some(stream) = self.table.get_mut(&id) else {
            return ReadOutcome::End;
        };
        let outcome = stream.recv.read(now, most, take, growth, &mut self.pool);
        match outcome {
            ReadOutcome::Read(len) => {
                let consumed = len as u64;
                let _ = self.lender.on_progress(Progress { consumed, ..Progress::default() });
                if stream.recv.has_news() {
                    self.owe(id);
                }
            }
            ReadOutcome::End | ReadOutcome::Reset(_) => self.settle(id),
            ReadOutcome::Blocked => {}
        }
        outcome
    }

    /// The other end must hear of the stream's credit.
    pub(crate) fn owe(&mut self, id: u64) {
        if let Some(stream) = self.table.get_mut(&id)
            && !core::mem::replace(&mut stream.owed, true)
        {
            self.lender.owed.push_back(id);
        }
    }

    // What arrives.

    pub(crate) fn on_data(
        &mut self,
        (id, offset, payload, fin): (u64, u64, &[u8], bool),
        events: &mut VecDeque<Event>,
    ) -> Result<(), StreamError> {
        let room = self.lender.room();
        if self.named(id, events)?.is_none() {
            return Ok(());
        }
        let Some(stream) = self.table.get_mut(&id) else {
            return Ok(());
        };
        let progress = stream.recv.on_data((offset, payload, fin), room, &mut self.pool)?;
        let readable = (progress.arrived > 0 || fin) && stream.recv.is_readable();
        let news = stream.recv.has_news();
        self.lender.on_progress(progress)?;
        if readable {
            events.push_back(Event::Readable(id));
        }
        if news {
            self.owe(id);
        }
        self.settle(id);
        Ok(())
    }

    pub(crate) fn on_reset(
        &mut self,
        (id, code, end): (u64, u64, u64),
        events: &mut VecDeque<Event>,
    ) -> Result<(), StreamError> {
        let loan = self.lender.room().loan;
        if self.named(id, events)?.is_none() {
            return Ok(());
        }
        let Some(stream) = self.table.get_mut(&id) else {
            return Ok(());
        };
        let progress = stream.recv.on_reset((code, end), loan, &mut self.pool)?;
        self.lender.on_progress(progress)?;
        events.push_back(Event::Readable(id));
        self.settle(id);
        Ok(())
    }

    /// The reader wants no more; gives the offset to name in the reset that answers.
    pub(crate) fn on_stop(
        &mut self,
        id: u64,
        events: &mut VecDeque<Event>,
    ) -> Result<Option<u64>, StreamError> {
        if self.named(id, events)?.is_none() {
            return Ok(None);
        }
        events.push_back(Event::Writable(id));
        Ok(self.reset(id))
    }

    /// The other end's sender: how much waits there, and which streams it cannot send on, and
    /// since which credit. A credit that was lost on the way is told again.
    pub(crate) fn on_sender_state(&mut self, queued: u64, blocked: &[StreamCredit]) {
        self.remote_queued = queued;
        for at in blocked {
            let more = |stream: &Stream| stream.recv.credit() > at.credit;
            if self.table.get(&at.stream).is_some_and(more) {
                self.owe(at.stream);
            }
        }
    }

    pub(crate) fn on_connection_credit(&mut self, credit: u64) {
        self.outlet.on_credit(credit);
    }

    pub(crate) fn on_streams_credit(&mut self, streams: u64, events: &mut VecDeque<Event>) {
        if self.numbers.on_grant(streams) {
            events.push_back(Event::Openable);
        }
    }

    pub(crate) fn on_stream_credit(&mut self, credit: StreamCredit, events: &mut VecDeque<Event>) {
        if let Some(stream) = self.table.get_mut(&credit.stream) {
            stream.send.on_credit(credit.credit);
            stream.unblock_writer(credit.stream, (&self.limits, &self.outlet), events);
            self.enlist(credit.stream);
        }
    }

    pub(crate) fn on_piece_acked(&mut self, id: u64, piece: Piece, events: &mut VecDeque<Event>) {
        if let Some(stream) = self.table.get_mut(&id) {
            stream.send.on_acked(piece, &mut self.pool);
            stream.unblock_writer(id, (&self.limits, &self.outlet), events);
            if stream.send.is_done() {
                events.push_back(Event::Writable(id));
            }
            self.settle(id);
        }
    }

    pub(crate) fn on_piece_lost(&mut self, id: u64, piece: Piece) {
        if let Some(stream) = self.table.get_mut(&id) {
            stream.send.on_lost(piece);
            self.enlist(id);
        }
    }

    pub(crate) fn on_reset_acked(&mut self, id: u64) {
        if let Some(stream) = self.table.get_mut(&id) {
            stream.send.on_reset_acked();
            self.settle(id);
        }
    }

    /// Whether the stream's reset still matters, so that a lost one must be sent again.
    pub(crate) fn has_reset(&self, id: u64) -> bool {
        self.table.get(&id).is_some_and(|stream| stream.send.is_reset())
    }

    /// The same of its stop: the other end may still be sending.
    pub(crate) fn has_stopped(&self, id: u64) -> bool {
        self.table.get(&id).is_some_and(|stream| !stream.recv.is_done())
    }

    // What is to be sent.

    /// The next piece, of at most the bytes that a packet `fits` of this stream from this offset on: what
    /// needs no credit first, so that a loss delays nobody for longer than it must; then something new of
    /// the stream whose turn it is.
    pub(crate) fn take(
        &mut self,
        fits: impl Fn(u64, u64) -> usize,
        events: &mut VecDeque<Event>,
    ) -> Option<(u64, Piece)> {
        while let Some(id) = self.outlet.pop_again() {
            let Some(stream) = self.table.get_mut(&id) else { continue };
            Outlet::left_again(&mut stream.places);
            let max = fits(id, stream.send.again_from());
            if let Some(piece) = stream.send.take_again(max) {
                self.enlist(id);
                return Some((id, piece));
            }
        }
        while let Some((id, allowance, loan)) = self.outlet.current() {
            let Some(stream) = self.table.get_mut(&id) else {
                self.outlet.skip();
                continue;
            };
            let max = fits(id, stream.send.sent()) as u64;
            let Some(piece) = stream.send.take_new(allowance.min(max), loan) else {
                self.outlet.on_sent(0, 0, (&stream.send, &mut stream.places));
                self.enlist(id);
                continue;
            };
            let end = piece.offset + piece.len as u64;
            let borrowed = end.saturating_sub(stream.send.credit().max(piece.offset));
            self.outlet.on_sent(piece.len, borrowed, (&stream.send, &mut stream.places));
            stream.unblock_writer(id, (&self.limits, &self.outlet), events);
            self.enlist(id);
            return Some((id, piece));
        }
        None
    }

    /// Whether the other end may still lack the piece.
    pub(crate) fn wants(&self, id: u64, piece: Piece) -> bool {
        self.table.get(&id).is_some_and(|stream| stream.send.wants(piece))
    }

    pub(crate) fn copy_piece(&self, id: u64, piece: Piece, out: &mut Vec<u8>) {
        self.table[&id].send.copy_to(piece, out);
    }

    /// Whether a stream has something it may send.
    pub(crate) fn has_pending(&self) -> bool {
        self.outlet.has_pending()
    }

    /// Whether something was written, or a stream wanted, that only credit holds back.
    pub(crate) fn is_blocked(&self) -> bool {
        self.outlet.is_blocked() || self.numbers.is_blocked
    }

    /// The streams that wait for credit, a few at a time, with the credit that they have.
    pub(crate) fn blocked(&mut self) -> Vec<StreamCredit> {
        let credit = |id: &u64| self.table.get(id).map_or(0, |stream| stream.send.credit());
        let blocked = self.outlet.blocked(MAX_BLOCKED);
        blocked.iter().map(|id| StreamCredit { stream: *id, credit: credit(id) }).collect()
    }

    /// Bytes written and not yet sent.
    pub(crate) fn queued(&self) -> u64 {
        self.outlet.queued()
    }

    /// Bytes that wait at the other end to be sent, by its last word.
    pub(crate) fn remote_queued(&self) -> u64 {
        self.remote_queued
    }

    /// Whether there is so much more credit that the other end should hear of it now.
    pub(crate) fn credit_is_due(&self) -> bool {
        self.lender.has_news() || (self.admits() && self.numbers.has_news())
    }

    /// Whether further streams of the other end are welcome.
    fn admits(&self) -> bool {
        let flooded = self.limits.admission.is_some_and(|limit| self.remote_queued > limit);
        !flooded && !self.lender.is_crowded()
    }

    /// The path is said to carry so many bytes in a round trip.
    pub(crate) fn on_path(&mut self, round: u64) {
        self.lender.on_path(round);
    }

    /// The credit of the connection, for streams, and of up to [`MAX_CREDITS`] streams that have
    /// news.
    pub(crate) fn grant(&mut self, now: Instant, rtt: Duration) -> Grant {
        let mut credits = Vec::new();
        while credits.len() < MAX_CREDITS
            && let Some(id) = self.lender.owed.pop_front()
        {
            let Some(stream) = self.table.get_mut(&id) else { continue };
            stream.owed = false;
            stream.recv.told = stream.recv.credit();
            credits.push(StreamCredit { stream: id, credit: stream.recv.told });
        }
        let more = self.admits();
        Grant {
            connection: self.lender.grant(now, rtt),
            streams: self.numbers.grant(more),
            credits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn a_stream_that_was_given_up_waits_for_no_credit() {
        let mut streams = Streams::new(Side::Initiator, Config::default().limits());
        let mut events = VecDeque::new();
        streams.on_parameters((1000, 1 << 20, 1), &mut events);
        let id = streams.open().unwrap();
        streams.write(id, &[0; 1500]);
        assert_eq!(streams.take(|_, _| 1200, &mut events).unwrap().1.len, 1000);
        assert!(streams.is_blocked());
        assert_eq!(streams.reset(id), Some(1000));
        assert!(!streams.is_blocked() && streams.queued() == 0);
    }
}

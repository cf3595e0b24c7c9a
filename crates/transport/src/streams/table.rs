//! A connection's streams.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use rangemap::RangeSet;
use units::Instant;

use super::recv::RecvHalf;
use super::send::SendHalf;
use super::window::Window;
use super::{Delivery, Piece, ReadOutcome, StreamError, WriteOutcome};
use crate::wire::{MAX_CREDITS, StreamCredit};
use crate::{Event, Side};

/// Bounds of a connection's buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Window of a stream at its start, and at most.
    pub(crate) stream_window: (u64, u64),
    /// Window of the whole connection at its start, and at most.
    pub(crate) connection_window: (u64, u64),
    /// Streams that the other end may have open at a time.
    pub(crate) streams: u64,
    /// Bytes written but not sent that a stream holds.
    pub(crate) unsent: u64,
    /// Bytes written but not acknowledged that a stream holds.
    pub(crate) held: u64,
}

#[derive(Debug)]
struct Stream {
    send: SendHalf,
    recv: RecvHalf,
    /// Stands in the ring of streams with something to send.
    in_ring: bool,
    /// The application waits for room to write.
    write_blocked: bool,
    /// The application has let go of it.
    released: bool,
}

impl Stream {
    /// Tells a waiting writer that there is room for a good deal again.
    fn unblock_writer(&mut self, id: u64, limits: &Limits, events: &mut VecDeque<Event>) {
        let room = self.send.unsent() <= limits.unsent / 2 && self.send.held() < limits.held;
        if self.write_blocked && room {
            self.write_blocked = false;
            events.push_back(Event::Writable(id));
        }
    }
}

/// All streams, the turns they take, and the connection's credit in both directions.
#[derive(Debug)]
pub(crate) struct Streams {
    side: Side,
    limits: Limits,
    table: BTreeMap<u64, Stream>,
    /// Streams with something to send, in the order of their turns.
    ring: VecDeque<u64>,
    next_local: u64,
    /// Streams that the other end opened and that are no more.
    closed: RangeSet<u64>,
    remote_open: u64,
    /// The other end's first credit for each new stream.
    remote_stream_credit: u64,
    /// Bytes the other end lets us send on all streams, and those sent.
    send_credit: u64,
    sent: u64,
    /// Our own grant, and what counts against it.
    window: Window,
    received: u64,
    /// Credit that reading has freed since the last report.
    granted: u64,
    /// The stream whose credit leads the next report's list.
    credit_turn: u64,
}

impl Streams {
    pub(crate) fn new(side: Side, limits: Limits) -> Self {
        let (start, max) = limits.connection_window;
        Self {
            side,
            limits,
            table: BTreeMap::new(),
            ring: VecDeque::new(),
            next_local: match side {
                Side::Initiator => 0,
                Side::Responder => 1,
            },
            closed: RangeSet::new(),
            remote_open: 0,
            remote_stream_credit: 0,
            send_credit: 0,
            sent: 0,
            window: Window::new(start, max),
            received: 0,
            granted: 0,
            credit_turn: 0,
        }
    }

    /// The other end's first grants.
    pub(crate) fn on_parameters(&mut self, connection_credit: u64, stream_credit: u64) {
        self.send_credit = self.send_credit.max(connection_credit);
        self.remote_stream_credit = stream_credit;
        for stream in self.table.values_mut() {
            stream.send.on_credit(stream_credit);
        }
        let waiting: Vec<u64> = self.table.keys().copied().collect();
        waiting.into_iter().for_each(|id| self.enlist(id));
    }

    pub(crate) fn open(&mut self) -> u64 {
        let id = self.next_local;
        self.next_local += 2;
        self.insert(id);
        id
    }

    fn insert(&mut self, id: u64) {
        let (start, max) = self.limits.stream_window;
        let send = SendHalf::new(self.remote_stream_credit);
        let recv = RecvHalf::new(Window::new(start, max));
        self.table.insert(
            id,
            Stream { send, recv, in_ring: false, write_blocked: false, released: false },
        );
    }

    fn is_local(&self, id: u64) -> bool {
        id.is_multiple_of(2) == (self.side == Side::Initiator)
    }

    /// The stream that a packet names, opened if it is new. `None` when it is no more.
    fn named(
        &mut self,
        id: u64,
        events: &mut VecDeque<Event>,
    ) -> Result<Option<&mut Stream>, StreamError> {
        if !self.table.contains_key(&id) {
            if self.is_local(id) {
                return if id < self.next_local {
                    Ok(None)
                } else {
                    Err(StreamError::NoSuchStream)
                };
            }
            if self.closed.contains(&(id / 2)) {
                return Ok(None);
            }
            if self.remote_open >= self.limits.streams {
                return Err(StreamError::NoSuchStream);
            }
            self.remote_open += 1;
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
            if !self.is_local(id) {
                self.closed.insert(id / 2..id / 2 + 1);
                self.remote_open -= 1;
            }
        }
    }

    /// Puts the stream into the ring when it has something to send.
    fn enlist(&mut self, id: u64) {
        if let Some(stream) = self.table.get_mut(&id)
            && !stream.in_ring
            && stream.send.has_pending(true)
        {
            stream.in_ring = true;
            self.ring.push_back(id);
        }
    }

    // What the application does.

    pub(crate) fn write(&mut self, id: u64, bytes: &[u8]) -> WriteOutcome {
        let Some(stream) = self.table.get_mut(&id) else {
            return WriteOutcome::Stopped;
        };
        if !stream.send.is_writable() {
            return WriteOutcome::Stopped;
        }
        let unsent = self.limits.unsent.saturating_sub(stream.send.unsent());
        let room = unsent.min(self.limits.held.saturating_sub(stream.send.held()));
        let len = (bytes.len() as u64).min(room) as usize;
        if len == 0 && !bytes.is_empty() {
            stream.write_blocked = true;
            return WriteOutcome::Blocked;
        }
        stream.send.write(&bytes[..len]);
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

    /// The application lets go of the stream: it will not ask again.
    pub(crate) fn release(&mut self, id: u64) {
        if let Some(stream) = self.table.get_mut(&id) {
            stream.released = true;
        }
        self.settle(id);
    }

    /// Gives up sending; the offset to name in the reset, if one must be sent.
    pub(crate) fn reset(&mut self, id: u64) -> Option<u64> {
        let send = &mut self.table.get_mut(&id)?.send;
        send.reset().then(|| send.sent())
    }

    /// Gives up reading; whether the other end must be told.
    pub(crate) fn stop(&mut self, id: u64) -> bool {
        let Some(stream) = self.table.get_mut(&id) else {
            return false;
        };
        stream.recv.stop();
        let tell = !stream.recv.is_done();
        let freed = stream.recv.abandon();
        self.abandon(freed);
        self.settle(id);
        tell
    }

    pub(crate) fn read(
        &mut self,
        now: Instant,
        id: u64,
        out: &mut [u8],
        rtt: Duration,
    ) -> ReadOutcome {
        let Some(stream) = self.table.get_mut(&id) else {
            return ReadOutcome::End;
        };
        let outcome = stream.recv.read(now, out, rtt);
        match outcome {
            ReadOutcome::Read(len) => self.consume(now, len as u64, rtt),
            ReadOutcome::End | ReadOutcome::Reset(_) => self.settle(id),
            ReadOutcome::Blocked => {}
        }
        outcome
    }

    fn consume(&mut self, now: Instant, amount: u64, rtt: Duration) {
        self.window.on_consumed(now, amount, rtt);
        self.granted += amount;
    }

    /// Gives back credit for bytes that nobody will read.
    fn abandon(&mut self, amount: u64) {
        self.window.on_abandoned(amount);
        self.granted += amount;
    }

    // What arrives.

    pub(crate) fn on_data(
        &mut self,
        (id, offset, payload, fin): (u64, u64, &[u8], bool),
        events: &mut VecDeque<Event>,
    ) -> Result<(), StreamError> {
        let Some(stream) = self.named(id, events)? else {
            return Ok(());
        };
        let (advance, readable) = stream.recv.on_data(offset, payload, fin)?;
        let freed = if stream.recv.is_stopped() { stream.recv.abandon() } else { 0 };
        let out_of_order = stream.recv.out_of_order();
        self.received += advance;
        if self.received > self.window.credit() {
            return Err(StreamError::CreditExceeded);
        }
        // The connection's window is twice a stream's, and grows with it.
        self.window.on_held(out_of_order);
        self.abandon(freed);
        if readable {
            events.push_back(Event::Readable(id));
        }
        self.settle(id);
        Ok(())
    }

    pub(crate) fn on_reset(
        &mut self,
        (id, code, end): (u64, u64, u64),
        events: &mut VecDeque<Event>,
    ) -> Result<(), StreamError> {
        let Some(stream) = self.named(id, events)? else {
            return Ok(());
        };
        let advance = stream.recv.on_reset(code, end)?;
        let freed = stream.recv.abandon();
        self.received += advance;
        self.abandon(freed);
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

    pub(crate) fn on_connection_credit(&mut self, credit: u64) {
        self.send_credit = self.send_credit.max(credit);
    }

    pub(crate) fn on_stream_credit(&mut self, credit: StreamCredit) {
        if let Some(stream) = self.table.get_mut(&credit.stream) {
            stream.send.on_credit(credit.credit);
            self.enlist(credit.stream);
        }
    }

    pub(crate) fn on_piece_acked(&mut self, id: u64, piece: Piece, events: &mut VecDeque<Event>) {
        if let Some(stream) = self.table.get_mut(&id) {
            stream.send.on_acked(piece);
            stream.unblock_writer(id, &self.limits, events);
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

    // What is to be sent.

    /// The next piece of the stream whose turn it is.
    pub(crate) fn take(
        &mut self,
        max: usize,
        events: &mut VecDeque<Event>,
    ) -> Option<(u64, Piece)> {
        for _ in 0..self.ring.len() {
            let id = self.ring.pop_front()?;
            let Some(stream) = self.table.get_mut(&id) else {
                continue;
            };
            stream.in_ring = false;
            let piece = stream.send.take(max, self.send_credit - self.sent);
            if let Some(piece) = piece
                && piece.fresh
            {
                self.sent += piece.len as u64;
                stream.unblock_writer(id, &self.limits, events);
            }
            self.enlist(id);
            if let Some(piece) = piece {
                return Some((id, piece));
            }
        }
        None
    }

    pub(crate) fn copy_piece(&self, id: u64, piece: Piece, out: &mut Vec<u8>) {
        self.table[&id].send.copy_to(piece, out);
    }

    /// Whether a stream has something it may send.
    pub(crate) fn has_pending(&self) -> bool {
        let credit = self.send_credit > self.sent;
        self.ring
            .iter()
            .any(|id| self.table.get(id).is_some_and(|stream| stream.send.has_pending(credit)))
    }

    /// Whether something was written that only credit holds back.
    pub(crate) fn is_blocked(&self) -> bool {
        let exhausted = self.send_credit <= self.sent;
        self.table
            .values()
            .any(|stream| stream.send.is_blocked() || (exhausted && stream.send.unsent() > 0))
    }

    /// Bytes written and not yet sent.
    pub(crate) fn queued(&self) -> u64 {
        self.table.values().map(|stream| stream.send.unsent()).sum()
    }

    /// Whether reading has freed so much credit that the other end should hear of it now.
    pub(crate) fn credit_is_due(&self) -> bool {
        let (start, most) = self.limits.stream_window;
        self.granted > start.min(most) / 4
    }

    /// The connection's credit, and that of up to [`MAX_CREDITS`] streams in turn.
    pub(crate) fn grant(&mut self) -> (u64, Vec<StreamCredit>) {
        self.granted = 0;
        let turn = self.credit_turn;
        let credits: Vec<_> = self
            .table
            .range(turn..)
            .chain(self.table.range(..turn))
            .filter(|(_, stream)| stream.recv.wants_credit())
            .take(MAX_CREDITS)
            .map(|(&stream, entry)| StreamCredit { stream, credit: entry.recv.credit() })
            .collect();
        if credits.len() == MAX_CREDITS {
            self.credit_turn = credits.last().map_or(0, |last| last.stream + 1);
        }
        (self.window.credit(), credits)
    }
}

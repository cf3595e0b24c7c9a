//! What the application does with one connection: it opens, writes, reads, checks and ends every
//! stream of the plan.

use std::sync::LazyLock;

use transport::{CloseReason, Connection, Delivery, Event, OpenError, ReadOutcome, WriteOutcome};
use units::Instant;

use super::plan::{End, Plan, Reader, Stream};

/// The bytes of all streams: a prime length, so that no offset that is wrong by a power of two,
/// a packet or a block finds the same bytes again.
const TILE: usize = 1_048_573;
/// How far the streams begin apart.
const SHIFT: u64 = 7919;
/// Bytes written, and read, in one go at most.
const BATCH: usize = 32 << 10;
/// The code of every reset and stop.
const CODE: u64 = 77;

static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = crate::pattern(1, TILE);
    bytes.extend_from_within(..BATCH);
    bytes
});

/// At most `most` bytes of a stream's text from `offset` on.
fn text(stream: usize, side: usize, offset: u64, most: u64) -> &'static [u8] {
    let start = (offset + (2 * stream + side) as u64 * SHIFT) as usize % TILE;
    &BYTES[start..start + most.min(BATCH as u64) as usize]
}

/// How one direction of a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Not,
    Whole,
    Reset,
    Stopped,
}

/// One side of a stream.
#[derive(Debug)]
struct Flow {
    plan: Stream,
    /// Once it is open.
    id: Option<u64>,
    written: u64,
    /// The writer has said that no more comes, or given up.
    write_over: bool,
    read: u64,
    read_end: Ended,
    /// When the reader goes on, and whether it waits for that.
    reads_at: Instant,
    waits: bool,
    /// Nothing could be read, or written, and no event has said since that it can.
    starved: bool,
    blocked: bool,
    released: bool,
}

/// One connection's work, at one side.
#[derive(Debug)]
pub struct Session {
    side: usize,
    flows: Vec<Flow>,
    pub established: bool,
    pub closed: Option<CloseReason>,
    /// What was found to be wrong.
    pub wrong: Option<String>,
    /// No stream could be opened, and no event has said since that one can.
    full: bool,
    buffer: Vec<u8>,
}

impl Session {
    pub fn new(plan: &Plan, side: usize) -> Self {
        let flow = |&plan| Flow {
            plan,
            id: None,
            written: 0,
            write_over: false,
            read: 0,
            read_end: Ended::Not,
            reads_at: Instant::ZERO,
            waits: false,
            starved: false,
            blocked: false,
            released: false,
        };
        let flows = plan.streams.iter().map(flow).collect();
        let buffer = vec![0; BATCH];
        Self { side, flows, established: false, closed: None, wrong: None, full: false, buffer }
    }

    /// Everything that this side writes has arrived, and everything that it reads was read.
    pub fn is_done(&self) -> bool {
        self.flows.iter().all(|flow| flow.released)
    }

    /// When the next reader goes on; a time that has passed says nothing.
    pub fn reads_at(&self) -> Option<Instant> {
        // A stream may have come before the other end's address was proved: nobody reads it yet.
        let runs = self.established && self.closed.is_none();
        let open = self.flows.iter().filter(|_| runs);
        let waiting = open.filter(|flow| !flow.released && flow.waits);
        waiting.map(|flow| flow.reads_at).min()
    }

    /// Bytes read, and written.
    pub fn moved(&self) -> (u64, u64) {
        let sum = |of: fn(&Flow) -> u64| self.flows.iter().map(of).sum();
        (sum(|flow| flow.read), sum(|flow| flow.written))
    }

    /// Bytes that one of both sides has written and the other has not read, on streams that
    /// neither has given up.
    pub fn between(&self, other: &Self) -> u64 {
        let lack = |from: &Flow, to: &Flow| {
            let given_up = to.read_end != Ended::Not || from.plan.end != End::Finish;
            if given_up { 0 } else { from.written.saturating_sub(to.read) }
        };
        let pairs = self.flows.iter().zip(&other.flows);
        pairs.map(|(ours, theirs)| lack(ours, theirs) + lack(theirs, ours)).sum()
    }

    /// Everything that can be done at this time.
    pub fn run(&mut self, now: Instant, connection: &mut Connection) {
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Established if self.established => self.accuse("established twice".into()),
                Event::Established => self.established = true,
                Event::Opened(id) => self.on_opened(now, id, connection),
                Event::Closed(reason) => self.closed = Some(reason),
                Event::Readable(id) => self.on_event(id, |flow| flow.starved = false),
                Event::Writable(id) => self.on_event(id, |flow| flow.blocked = false),
                Event::Openable => self.full = false,
            }
        }
        if self.closed.is_some() || !self.established {
            return;
        }
        for index in 0..self.flows.len() {
            if self.flows[index].id.is_none() && self.flows[index].plan.opener == self.side {
                self.open(now, index, connection);
            }
            if !self.flows[index].released && self.flows[index].id.is_some() {
                self.write(index, connection);
                self.read(now, index, connection);
                self.settle(index, connection);
            }
        }
    }

    /// An application does nothing on a stream that blocks until an event names it, as the
    /// product's drivers do.
    fn on_event(&mut self, id: u64, change: impl FnOnce(&mut Flow)) {
        self.flows.iter_mut().find(|flow| flow.id == Some(id)).map(change);
    }

    fn open(&mut self, now: Instant, index: usize, connection: &mut Connection) {
        if self.full {
            return;
        }
        match connection.open() {
            Ok(id) => {
                let flow = &mut self.flows[index];
                connection.set_priority(id, flow.plan.priority);
                flow.id = Some(id);
                flow.begin(now);
            }
            Err(OpenError::Blocked) => self.full = true,
            // No event tells of that: it is tried again when anything has happened.
            Err(OpenError::Overloaded { .. }) => {}
        }
    }

    /// Streams of the other side come into being in the order of its plan.
    fn on_opened(&mut self, now: Instant, id: u64, connection: &mut Connection) {
        let place = (id / 2) as usize;
        let side = self.side;
        let mut theirs = self.flows.iter_mut().filter(|flow| flow.plan.opener != side);
        match theirs.nth(place) {
            Some(flow) if flow.id.is_none() => {
                flow.id = Some(id);
                flow.begin(now);
                connection.set_priority(id, flow.plan.priority);
            }
            _ => self.accuse(format!("stream {id} was opened by nobody, or twice")),
        }
    }

    fn accuse(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    fn write(&mut self, index: usize, connection: &mut Connection) {
        let (side, flow) = (self.side, &mut self.flows[index]);
        let Some(id) = flow.id.filter(|_| !flow.write_over) else { return };
        let opens = flow.plan.opener == side;
        if flow.blocked {
            return;
        }
        if !opens && flow.read_end == Ended::Not {
            return; // the answer comes after the question
        }
        let whole = if opens { flow.plan.bytes } else { flow.plan.reply };
        let most = match flow.plan.end {
            End::Reset(most) if opens => most,
            _ => whole,
        };
        while flow.written < most {
            let bytes = text(index, side, flow.written, most - flow.written);
            match connection.write(id, bytes) {
                WriteOutcome::Written(len) => flow.written += len as u64,
                WriteOutcome::Blocked => {
                    flow.blocked = true;
                    return;
                }
                WriteOutcome::Stopped => {
                    let stops = opens && matches!(flow.plan.end, End::Stop(_));
                    flow.write_over = true;
                    if !stops {
                        self.accuse(format!("stream {id} was stopped by nobody"));
                    }
                    return;
                }
            }
        }
        flow.write_over = true;
        match flow.plan.end {
            End::Reset(_) if opens => connection.reset(id, CODE),
            _ => connection.finish(id),
        }
    }

    fn read(&mut self, now: Instant, index: usize, connection: &mut Connection) {
        loop {
            let (side, flow, buffer) = (self.side, &mut self.flows[index], &mut self.buffer);
            let Some(id) = flow.id.filter(|_| flow.read_end == Ended::Not) else { return };
            flow.waits = now < flow.reads_at;
            if flow.waits || flow.starved {
                return;
            }
            let most = match flow.plan.reader {
                Reader::Slow(most, _) => most.min(BATCH as u64) as usize,
                Reader::AtOnce | Reader::Stalled(_) => BATCH,
            };
            match connection.read(now, id, &mut buffer[..most]) {
                ReadOutcome::Read(len) => {
                    let expected = text(index, 1 - side, flow.read, len as u64);
                    let same = buffer[..len] == *expected;
                    let at = flow.read;
                    flow.read += len as u64;
                    if let Reader::Slow(_, pause) = flow.plan.reader {
                        flow.reads_at = now + pause;
                    }
                    if let End::Stop(after) = flow.plan.end
                        && flow.plan.opener != side
                        && flow.read >= after
                    {
                        connection.stop(id, CODE);
                        flow.read_end = Ended::Stopped;
                    }
                    if !same {
                        self.accuse(format!("stream {id}: wrong bytes at {at}, {len} long"));
                    }
                }
                ReadOutcome::Blocked => {
                    flow.starved = true;
                    return;
                }
                ReadOutcome::End => flow.read_end = Ended::Whole,
                ReadOutcome::Reset(code) => {
                    flow.read_end = Ended::Reset;
                    if code != CODE {
                        self.accuse(format!("stream {id} was reset with {code}"));
                    }
                }
            }
        }
    }

    /// Checks a stream that is over, and lets go of it.
    fn settle(&mut self, index: usize, connection: &mut Connection) {
        let (side, flow) = (self.side, &mut self.flows[index]);
        let Some(id) = flow.id else { return };
        let delivery = connection.delivery(id);
        let over = flow.read_end != Ended::Not && flow.write_over && delivery != Delivery::Pending;
        if !over {
            return;
        }
        let opens = flow.plan.opener == side;
        let length = if opens { flow.plan.reply } else { flow.plan.bytes };
        let right = match (flow.read_end, flow.plan.end) {
            (Ended::Whole, End::Reset(_)) if !opens => false,
            (Ended::Whole, _) => flow.read == length,
            (Ended::Reset, End::Reset(most)) => !opens && flow.read <= most,
            (Ended::Stopped, End::Stop(_)) => !opens && flow.read <= length,
            _ => false,
        };
        flow.released = true;
        connection.release(id);
        if !right {
            let (end, read) = (flow.read_end, flow.read);
            self.accuse(format!("stream {id} ended {end:?} after {read} of {length} bytes"));
        }
    }
}

impl Flow {
    fn begin(&mut self, now: Instant) {
        if let Reader::Stalled(time) = self.plan.reader {
            self.reads_at = now + time;
            self.waits = true;
        }
    }
}

//! The sending half: cuts a stream into records, hands them out, and keeps each until it is
//! confirmed.
//!
//! With paper 1's dynamic assignment (section 3.3) a record belongs to no connection until one that
//! can take it asks, so a slow connection carries little. What it holds nevertheless is sent over
//! another when it is late and nothing better can be sent, and at once when the connection dies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use units::Instant;

use crate::INITIAL_RECORDS;
use crate::delay::Delay;
use crate::record::{Ack, MAX_PAYLOAD};

/// Records that wait for a connection before no more is taken from the writer. Enough that a
/// connection never waits for the writer to be scheduled; few, because what waits here has not
/// reached the network.
pub const MAX_QUEUED: usize = 8;

/// A connection's name; the caller chooses it, and never uses one twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// Which connection a record goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assignment {
    /// The first that can take one.
    #[default]
    Dynamic,
    /// Each in turn, whether or not it can: for the comparison with paper 1's figures.
    Static,
}

/// A record to be sent now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place in the stream.
    pub number: u64,
    /// What it carries; nothing at the end of the stream.
    pub payload: Bytes,
}

/// The other side confirms what it cannot have received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side confirmed records that were never sent")]
pub struct AckError;

/// One direction of a stream on its way out. Keeps at most its capacity, one record to which more
/// may be written, and the end.
#[derive(Debug)]
pub struct Scatter {
    assignment: Assignment,
    /// Slot `i` is record `base + i`; those before are confirmed.
    slots: VecDeque<Slot>,
    base: u64,
    /// The numbers of the slots that wait for a connection.
    waiting: BTreeSet<u64>,
    /// What was written and has no number yet.
    partial: Vec<u8>,
    finished: bool,
    /// Slots there may be.
    most: usize,
    /// The other side takes records below this number.
    limit: u64,
    lanes: BTreeMap<LaneId, Lane>,
    delay: Delay,
    /// Records below are confirmed, or were sent more than `rounds` times.
    repeated: u64,
    /// How often every record may have been sent and still be sent again: less often than the oldest was.
    rounds: u32,
    confirmed: u64,
}

#[derive(Debug)]
enum Slot {
    Waiting(Bytes),
    Sent(Sent),
    Confirmed,
}

#[derive(Debug)]
struct Sent {
    payload: Bytes,
    /// Living connections that carry it.
    copies: u32,
    /// The last of them, and when it took it.
    lane: LaneId,
    at: Instant,
}

#[derive(Debug, Default)]
struct Lane {
    /// What it carries that the other side has not confirmed having received over it.
    unconfirmed: VecDeque<u64>,
    received: u64,
    drains: bool,
}

impl Scatter {
    /// A stream to which nothing has been written, without connections. It keeps `capacity`
    /// rounded down to whole records of [`MAX_PAYLOAD`], but at least [`INITIAL_RECORDS`].
    pub fn new(assignment: Assignment, capacity: units::Bytes) -> Self {
        let most = (capacity.0 / MAX_PAYLOAD as u64).max(INITIAL_RECORDS);
        Self {
            assignment,
            slots: VecDeque::new(),
            base: 0,
            waiting: BTreeSet::new(),
            partial: Vec::new(),
            finished: false,
            most: usize::try_from(most).unwrap_or(usize::MAX),
            limit: INITIAL_RECORDS,
            lanes: BTreeMap::new(),
            delay: Delay::default(),
            repeated: 0,
            rounds: 1,
            confirmed: 0,
        }
    }

    // The writer.

    /// Takes as much of `data` as there is room for, and says how much that was. What is written
    /// while all connections are busy is collected into full records.
    ///
    /// # Panics
    /// After [`Scatter::finish`].
    pub fn write(&mut self, data: &[u8]) -> usize {
        assert!(!self.finished, "the stream was finished");
        let mut rest = data;
        while !rest.is_empty() {
            if self.partial.len() == MAX_PAYLOAD {
                if self.waiting.len() >= MAX_QUEUED || self.slots.len() >= self.most {
                    break;
                }
                self.cut();
            }
            let (now, later) = rest.split_at(rest.len().min(MAX_PAYLOAD - self.partial.len()));
            self.partial.extend_from_slice(now);
            rest = later;
        }
        data.len() - rest.len()
    }

    /// Nothing more will be written.
    pub fn finish(&mut self) {
        if !self.finished {
            self.finished = true;
            self.cut();
            self.push(Bytes::new());
        }
    }

    /// Gives what was written a number.
    fn cut(&mut self) {
        if !self.partial.is_empty() {
            let payload = std::mem::take(&mut self.partial).into();
            self.push(payload);
        }
    }

    fn push(&mut self, payload: Bytes) {
        self.waiting.insert(self.next());
        self.slots.push_back(Slot::Waiting(payload));
    }

    /// The number of the next record.
    fn next(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Whether [`Scatter::finish`] was called.
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Records that wait for a connection, also one that is not full.
    pub fn queued(&self) -> usize {
        self.waiting.len() + usize::from(!self.partial.is_empty())
    }

    /// Records that are kept, waiting or sent.
    pub fn kept(&self) -> usize {
        self.slots.len() + usize::from(!self.partial.is_empty())
    }

    /// Payload that the other side has.
    pub const fn delivered(&self) -> units::Bytes {
        units::Bytes(self.confirmed)
    }

    /// Whether the other side has everything, and knows that it is all.
    pub fn is_confirmed(&self) -> bool {
        self.finished && self.slots.is_empty()
    }

    // The connections.

    /// A connection comes.
    pub fn join(&mut self, lane: LaneId) {
        self.lanes.insert(lane, Lane::default());
    }

    /// A connection is gone; what only it carried waits for another.
    pub fn leave(&mut self, lane: LaneId) {
        let Some(lane) = self.lanes.remove(&lane) else { return };
        self.repeated = self.base;
        for number in lane.unconfirmed {
            let Some(slot) = slot_of(&mut self.slots, self.base, number) else { continue };
            let Slot::Sent(sent) = slot else { continue };
            sent.copies -= 1;
            if sent.copies == 0 {
                *slot = Slot::Waiting(std::mem::take(&mut sent.payload));
                self.waiting.insert(number);
            }
        }
    }

    /// A connection is to be given no more records.
    pub fn drain(&mut self, lane: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.drains = true;
        }
    }

    /// Whether a connection gets no more records, and all it was given are confirmed.
    pub fn is_drained(&self, lane: LaneId) -> bool {
        self.lanes.get(&lane).is_none_or(|lane| lane.drains && lane.unconfirmed.is_empty())
    }

    /// The next record for the connection that asks because it can send one. `None` while there is
    /// nothing that it should send.
    pub fn take(&mut self, now: Instant, lane: LaneId) -> Option<Record> {
        let carries = self.lanes.get(&lane)?;
        if carries.drains || carries.unconfirmed.len() >= self.most {
            return None;
        }
        if self.waiting.is_empty() && self.slots.len() < self.most {
            self.cut();
        }
        let number = match self.is_pressed() {
            true => self.late(now, lane).or_else(|| self.turn(lane)),
            false => self.turn(lane).or_else(|| self.late(now, lane)),
        }?;
        self.waiting.remove(&number);
        let slot = slot_of(&mut self.slots, self.base, number).expect("found above");
        let (payload, copies) = match std::mem::replace(slot, Slot::Confirmed) {
            Slot::Waiting(payload) => (payload, 1),
            Slot::Sent(sent) => (sent.payload, sent.copies + 1),
            Slot::Confirmed => unreachable!("a confirmed record is not found"),
        };
        *slot = Slot::Sent(Sent { payload: payload.clone(), copies, lane, at: now });
        self.lanes.get_mut(&lane).expect("found above").unconfirmed.push_back(number);
        Some(Record { number, payload })
    }

    /// Whether so much of what the other side takes is used up that the oldest records matter more
    /// than new ones.
    fn is_pressed(&self) -> bool {
        self.limit.saturating_sub(self.next()) < self.limit.saturating_sub(self.base) / 2
    }

    /// The next of the waiting records that may go over this connection.
    fn turn(&self, lane: LaneId) -> Option<u64> {
        let number = match self.assignment {
            Assignment::Dynamic => self.waiting.first().copied(),
            Assignment::Static => {
                let place = self.lanes.keys().position(|&other| other == lane)? as u64;
                let lanes = self.lanes.len() as u64;
                self.waiting.iter().copied().find(|number| number % lanes == place)
            }
        };
        number.filter(|&number| number < self.limit)
    }

    /// The oldest record that should have been confirmed by now, unless this connection was the
    /// last to carry it. Every record is sent a second time; the very oldest, for which all wait,
    /// more often, and less and less so; and the others as often as that one was: they went over the
    /// same connections, and if these have stalled, each would have to become the oldest first.
    fn late(&mut self, now: Instant, lane: LaneId) -> Option<u64> {
        let patience = self.delay.patience();
        let due = |sent: &Sent| sent.at + patience * sent.copies.min(8) <= now && sent.lane != lane;
        if let Some(Slot::Sent(sent)) = self.slots.front()
            && due(sent)
        {
            return Some(self.base);
        }
        let rounds = match self.slots.front() {
            Some(Slot::Sent(oldest)) => oldest.copies.saturating_sub(1).max(1),
            _ => 1,
        };
        if rounds > self.rounds {
            self.repeated = self.base;
        }
        self.rounds = rounds;
        self.repeated = self.repeated.max(self.base);
        while let Some(slot) = self.slots.get((self.repeated - self.base) as usize) {
            match slot {
                Slot::Sent(sent) if sent.copies <= rounds => {
                    return due(sent).then_some(self.repeated);
                }
                Slot::Waiting(_) => break,
                Slot::Sent(_) | Slot::Confirmed => self.repeated += 1,
            }
        }
        None
    }

    /// Whether a connection that found nothing to send should ask again, because the oldest record
    /// is late.
    pub fn is_late(&self, now: Instant) -> bool {
        let mut sent = self.slots.iter().filter_map(|slot| match slot {
            Slot::Sent(sent) => Some(sent),
            _ => None,
        });
        sent.next().is_some_and(|sent| sent.at + self.delay.patience() <= now)
    }

    /// What the other side says over `lane`.
    ///
    /// # Errors
    /// [`AckError`] when that cannot be true; the stream is then lost.
    pub fn confirm(&mut self, now: Instant, lane: LaneId, ack: &Ack) -> Result<(), AckError> {
        if ack.through > self.next() {
            return Err(AckError);
        }
        if let Some(lane) = self.lanes.get_mut(&lane) {
            let new = ack.received.checked_sub(lane.received).ok_or(AckError)?;
            let new = usize::try_from(new).map_err(|_| AckError)?;
            if new > lane.unconfirmed.len() {
                return Err(AckError);
            }
            lane.received = ack.received;
            let confirmed: Vec<u64> = lane.unconfirmed.drain(..new).collect();
            confirmed.into_iter().for_each(|number| self.settle(now, number));
        }
        while self.base < ack.through
            || self.slots.front().is_some_and(|slot| matches!(slot, Slot::Confirmed))
        {
            self.settle(now, self.base);
            self.slots.pop_front();
            self.base += 1;
        }
        self.limit = self.limit.max(ack.limit);
        Ok(())
    }

    /// A record came to the other side.
    fn settle(&mut self, now: Instant, number: u64) {
        let Some(slot) = slot_of(&mut self.slots, self.base, number) else { return };
        match std::mem::replace(slot, Slot::Confirmed) {
            Slot::Sent(sent) => {
                self.confirmed += sent.payload.len() as u64;
                // Which copy of several it was cannot be told.
                if sent.copies == 1 {
                    self.delay.on_sample(now.since(sent.at));
                }
            }
            Slot::Waiting(payload) => {
                self.confirmed += payload.len() as u64;
                self.waiting.remove(&number);
            }
            Slot::Confirmed => {}
        }
    }
}

fn slot_of(slots: &mut VecDeque<Slot>, base: u64, number: u64) -> Option<&mut Slot> {
    slots.get_mut(usize::try_from(number.checked_sub(base)?).ok()?)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    const START: Instant = Instant::from_nanos(1);
    const LANES: [LaneId; 2] = [LaneId(3), LaneId(7)];

    fn scatter(assignment: Assignment) -> Scatter {
        let mut scatter = Scatter::new(assignment, units::Bytes::mib(4));
        LANES.into_iter().for_each(|lane| scatter.join(lane));
        scatter
    }

    fn numbers(scatter: &mut Scatter, now: Instant, lane: LaneId) -> Vec<u64> {
        std::iter::from_fn(|| scatter.take(now, lane)).map(|record| record.number).collect()
    }

    fn ack(received: u64, through: u64) -> Ack {
        Ack { received, through, limit: 1000, ..Ack::default() }
    }

    #[test]
    fn small_writes_share_a_record_and_the_queue_is_bounded() {
        let mut scatter = scatter(Assignment::Dynamic);
        assert_eq!(scatter.take(START, LANES[0]), None);
        assert_eq!(scatter.write(b"ab") + scatter.write(b"c"), 3);
        assert_eq!(scatter.take(START, LANES[0]).unwrap().payload, &b"abc"[..]);
        let large = vec![7; MAX_PAYLOAD * (MAX_QUEUED + 2)];
        assert_eq!(scatter.write(&large), MAX_PAYLOAD * (MAX_QUEUED + 1));
        assert_eq!(scatter.write(b"x"), 0, "the queue is full");
        assert_eq!(scatter.take(START, LANES[1]).unwrap().number, 1);
        assert_eq!(scatter.write(b"x"), 1);
    }

    #[test]
    fn nothing_is_sent_beyond_what_the_receiver_takes_nor_kept_beyond_capacity() {
        let mut scatter = scatter(Assignment::Dynamic);
        let block = vec![1; MAX_PAYLOAD];
        while scatter.write(&block) > 0 {
            numbers(&mut scatter, START, LANES[0]);
        }
        assert_eq!(scatter.take(START, LANES[0]), None);
        scatter.confirm(START, LANES[0], &ack(INITIAL_RECORDS, 0)).unwrap();
        assert_eq!(scatter.take(START, LANES[1]).unwrap().number, INITIAL_RECORDS);
        assert!(scatter.kept() <= 4 * 32 + 1);
    }

    #[test]
    fn what_a_dead_connection_carried_goes_over_another() {
        let mut scatter = scatter(Assignment::Dynamic);
        scatter.write(&vec![1; 3 * MAX_PAYLOAD]);
        scatter.finish();
        assert_eq!(scatter.take(START, LANES[1]).unwrap().number, 0);
        assert_eq!(numbers(&mut scatter, START, LANES[0]), [1, 2, 3]);
        scatter.confirm(START, LANES[0], &ack(2, 0)).unwrap();
        scatter.leave(LANES[0]);
        assert_eq!(numbers(&mut scatter, START, LANES[1]), [3]);
        scatter.confirm(START, LANES[1], &ack(1, 3)).unwrap();
        assert!(!scatter.is_confirmed());
        scatter.confirm(START, LANES[1], &ack(2, 4)).unwrap();
        assert!(scatter.is_confirmed());
    }

    #[test]
    fn late_records_go_over_another_connection_too() {
        let mut scatter = scatter(Assignment::Dynamic);
        scatter.write(&vec![1; 2 * MAX_PAYLOAD]);
        assert_eq!(numbers(&mut scatter, START, LANES[0]), [0, 1]);
        let later = START + Duration::from_secs(3);
        assert!(!scatter.is_late(START) && scatter.is_late(later));
        assert_eq!(numbers(&mut scatter, later, LANES[0]), [] as [u64; 0]);
        assert_eq!(numbers(&mut scatter, later, LANES[1]), [0, 1]);
        scatter.confirm(later, LANES[1], &ack(2, 2)).unwrap();
        scatter.drain(LANES[0]);
        assert!(!scatter.is_drained(LANES[0]), "it has not said what it received");
        scatter.confirm(later, LANES[0], &ack(2, 2)).unwrap();
        assert!(scatter.is_drained(LANES[0]) && scatter.kept() == 0);
    }

    #[test]
    fn what_was_repeated_over_a_connection_that_stalls_goes_over_another_all_at_once() {
        let mut scatter = scatter(Assignment::Dynamic);
        let healthy = LaneId(9);
        scatter.write(&vec![1; 4 * MAX_PAYLOAD]);
        let after = |seconds| START + Duration::from_secs(seconds);
        assert_eq!(numbers(&mut scatter, START, LANES[0]), [0, 1, 2, 3]);
        assert_eq!(numbers(&mut scatter, after(3), LANES[1]), [0, 1, 2, 3]);
        scatter.join(healthy);
        assert_eq!(numbers(&mut scatter, after(3), healthy), [] as [u64; 0], "it may yet come");
        assert_eq!(numbers(&mut scatter, after(60), healthy), [0, 1, 2, 3]);
        assert_eq!(numbers(&mut scatter, after(60), LANES[1]), [] as [u64; 0]);
        scatter.confirm(after(60), healthy, &ack(4, 4)).unwrap();
        assert_eq!(scatter.kept(), 0);
    }

    #[test]
    fn static_assignment_waits_for_whose_turn_it_is() {
        let mut scatter = scatter(Assignment::Static);
        scatter.write(&vec![1; 6 * MAX_PAYLOAD]);
        assert_eq!(numbers(&mut scatter, START, LANES[0]), [0, 2, 4]);
        assert_eq!(numbers(&mut scatter, START, LANES[0]), [] as [u64; 0]);
        assert_eq!(numbers(&mut scatter, START, LANES[1]), [1, 3, 5]);
    }

    #[test]
    fn impossible_confirmations_are_errors() {
        let mut scatter = scatter(Assignment::Dynamic);
        scatter.write(b"x");
        numbers(&mut scatter, START, LANES[0]);
        for (lane, bad) in [(0, ack(2, 0)), (1, ack(1, 0)), (1, ack(0, 2))] {
            assert_eq!(scatter.confirm(START, LANES[lane], &bad), Err(AckError));
        }
        scatter.confirm(START, LANES[0], &ack(1, 1)).unwrap();
        assert_eq!(scatter.confirm(START, LANES[0], &ack(0, 1)), Err(AckError));
    }
}

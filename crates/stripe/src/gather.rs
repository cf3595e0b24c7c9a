//! The receiving half: puts the records of several connections back in order.
//!
//! Memory is bounded by a window of record numbers that begins at the first record not yet read.
//! A record inside the window is stored. One beyond it is *parked* with its connection, which
//! must not be read until the window has come that far: TCP's own flow control then holds the
//! sender back.
//!
//! This cannot deadlock. The records of one connection arrive in increasing order, and parked
//! ones lie beyond the window. So the connection that carries the first missing record of the
//! window has nothing parked, and can be read. If no record of the window is missing, the reader
//! can go on, and moves the window.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use crate::record::{Header, MAX_PAYLOAD};

/// Why the stream cannot go on: the other side broke the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatherError {
    /// A record came although [`Gather::can_read`] said that none may be read.
    #[error("a record was read from a connection that was held back")]
    HeldBack,
    /// A record behind the connection's fin.
    #[error("a record came after the end of its connection")]
    AfterFin,
    /// Numbers on one connection must increase.
    #[error("record {0} came out of order on its connection")]
    OutOfOrder(u64),
    /// The same record came twice.
    #[error("record {0} came twice")]
    Duplicate(u64),
    /// A record beyond the announced end, or an end before a record that came.
    #[error("the stream was said to end at record {end}, but has record {number}")]
    BeyondEnd {
        /// Records the stream was said to have.
        end: u64,
        /// A record that it has beyond them.
        number: u64,
    },
    /// Two connections announced different ends.
    #[error("two connections disagree about the end: {0} and {1} records")]
    EndsDiffer(u64, u64),
    /// All connections ended, and there are holes.
    #[error("all connections ended with {missing} records missing")]
    Missing {
        /// How many never came.
        missing: u64,
    },
}

/// Puts one direction of a stream together again. Holds at most its capacity and one record for
/// each connection.
#[derive(Debug)]
pub struct Gather {
    /// The first record not wholly read. Slot `i` is record `base + i`.
    base: u64,
    slots: VecDeque<Option<Bytes>>,
    /// Records from `base` on that may be stored.
    window: u64,
    lanes: Vec<Lane>,
    /// Different data records that came.
    received: u64,
    /// How many there are in all, once a fin came.
    end: Option<u64>,
}

#[derive(Debug, Default)]
struct Lane {
    /// The least number this connection may still carry.
    least: u64,
    state: LaneState,
}

#[derive(Debug, Default)]
enum LaneState {
    #[default]
    Open,
    /// Holds a record beyond the window.
    Parked(u64, Bytes),
    Finished,
}

impl Gather {
    /// Gathers from `connections` connections, storing `capacity` rounded down to whole records
    /// of [`MAX_PAYLOAD`] but at least one.
    pub fn new(connections: usize, capacity: units::Bytes) -> Self {
        Self {
            base: 0,
            slots: VecDeque::new(),
            window: (capacity.0 / MAX_PAYLOAD as u64).max(1),
            lanes: (0..connections).map(|_| Lane::default()).collect(),
            received: 0,
            end: None,
        }
    }

    /// Whether the next record of `connection` may be read now. One that is held back becomes
    /// readable by [`Gather::read`].
    pub fn can_read(&self, connection: usize) -> bool {
        matches!(self.lanes[connection].state, LaneState::Open)
    }

    /// Takes the next record of `connection`: its header, and as much payload as that says.
    ///
    /// # Errors
    /// [`GatherError`] when the record breaks the rules; the stream is then lost.
    pub fn accept(
        &mut self,
        connection: usize,
        header: Header,
        payload: Bytes,
    ) -> Result<(), GatherError> {
        match self.lanes[connection].state {
            LaneState::Open => {}
            LaneState::Parked(..) => return Err(GatherError::HeldBack),
            LaneState::Finished => return Err(GatherError::AfterFin),
        }
        match header {
            Header::Data { number, .. } => self.accept_data(connection, number.0, payload),
            Header::Fin { count } => self.accept_fin(connection, count),
        }
    }

    fn accept_data(&mut self, lane: usize, number: u64, payload: Bytes) -> Result<(), GatherError> {
        if number < self.lanes[lane].least {
            return Err(GatherError::OutOfOrder(number));
        }
        if let Some(end) = self.end.filter(|&end| number >= end) {
            return Err(GatherError::BeyondEnd { end, number });
        }
        if self.holds(number) {
            return Err(GatherError::Duplicate(number));
        }
        self.lanes[lane].least = number.saturating_add(1);
        self.received += 1;
        if number - self.base < self.window {
            self.store(number, payload);
        } else {
            self.lanes[lane].state = LaneState::Parked(number, payload);
        }
        Ok(())
    }

    fn accept_fin(&mut self, lane: usize, count: u64) -> Result<(), GatherError> {
        if let Some(end) = self.end.filter(|&end| end != count) {
            return Err(GatherError::EndsDiffer(end, count));
        }
        if let Some(lane) = self.lanes.iter().find(|lane| lane.least > count) {
            let number = lane.least - 1;
            return Err(GatherError::BeyondEnd { end: count, number });
        }
        self.end = Some(count);
        self.lanes[lane].state = LaneState::Finished;
        let all_finished = |lane: &Lane| matches!(lane.state, LaneState::Finished);
        // All that came are different and below `count`, so counting them finds any hole.
        if self.received < count && self.lanes.iter().all(all_finished) {
            let missing = count - self.received;
            return Err(GatherError::Missing { missing });
        }
        Ok(())
    }

    /// Whether record `number` came before.
    fn holds(&self, number: u64) -> bool {
        let stored = match number.checked_sub(self.base) {
            None => true,
            Some(i) => {
                usize::try_from(i).ok().and_then(|i| self.slots.get(i)).is_some_and(Option::is_some)
            }
        };
        let parked =
            |lane: &Lane| matches!(lane.state, LaneState::Parked(other, _) if other == number);
        stored || self.lanes.iter().any(parked)
    }

    /// Puts a record of the window in its slot.
    fn store(&mut self, number: u64, payload: Bytes) {
        let slot = (number - self.base) as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        self.slots[slot] = Some(payload);
    }

    /// Moves what comes next in the stream into `out`, and says how many bytes that was: none
    /// when the next record is missing. May release connections that were held back.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < out.len()
            && let Some(Some(front)) = self.slots.front_mut()
        {
            let n = front.len().min(out.len() - filled);
            front.copy_to_slice(&mut out[filled..filled + n]);
            filled += n;
            if front.is_empty() {
                self.slots.pop_front();
                self.base += 1;
                self.release();
            }
        }
        filled
    }

    /// Stores the parked records that the window has reached.
    fn release(&mut self) {
        for lane in 0..self.lanes.len() {
            let state = &mut self.lanes[lane].state;
            match std::mem::take(state) {
                LaneState::Parked(number, payload) if number - self.base < self.window => {
                    self.store(number, payload);
                }
                other => *state = other,
            }
        }
    }

    /// Whether [`Gather::read`] has something to give.
    pub fn has_data(&self) -> bool {
        matches!(self.slots.front(), Some(Some(_)))
    }

    /// Whether the whole stream has been read.
    pub fn is_ended(&self) -> bool {
        self.end == Some(self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::SeqNo;

    const RECORD: u64 = MAX_PAYLOAD as u64;

    fn data(number: u64) -> Header {
        let number = SeqNo(number);
        Header::Data { number, length: 1 }
    }

    fn accept(gather: &mut Gather, lane: usize, number: u64) -> Result<(), GatherError> {
        gather.accept(lane, data(number), Bytes::copy_from_slice(&[number as u8]))
    }

    fn fin(gather: &mut Gather, lane: usize, count: u64) -> Result<(), GatherError> {
        gather.accept(lane, Header::Fin { count }, Bytes::new())
    }

    #[test]
    fn a_record_beyond_the_window_holds_back_only_its_own_connection() {
        let mut gather = Gather::new(2, units::Bytes(2 * RECORD));
        let mut out = [0; 8];
        accept(&mut gather, 0, 1).unwrap();
        accept(&mut gather, 0, 2).unwrap();
        assert!(!gather.can_read(0) && gather.can_read(1));
        assert_eq!(gather.read(&mut out), 0);
        assert_eq!(accept(&mut gather, 0, 3), Err(GatherError::HeldBack));
        accept(&mut gather, 1, 0).unwrap();
        assert_eq!(gather.read(&mut out), 3);
        assert_eq!(out[..3], [0, 1, 2]);
        assert!(gather.can_read(0));
    }

    #[test]
    fn ends_only_when_everything_was_read() {
        let mut gather = Gather::new(2, units::Bytes(RECORD));
        accept(&mut gather, 0, 0).unwrap();
        fin(&mut gather, 0, 2).unwrap();
        assert_eq!(gather.read(&mut [0; 8]), 1);
        assert!(!gather.is_ended());
        accept(&mut gather, 1, 1).unwrap();
        fin(&mut gather, 1, 2).unwrap();
        assert_eq!(gather.read(&mut [0; 8]), 1);
        assert!(gather.is_ended());
    }

    #[test]
    fn hostile_records_are_errors() {
        let refused = |steps: &dyn Fn(&mut Gather) -> Result<(), GatherError>| {
            let mut gather = Gather::new(2, units::Bytes(4 * RECORD));
            accept(&mut gather, 0, 3).unwrap();
            accept(&mut gather, 1, 77).unwrap();
            steps(&mut gather).unwrap_err()
        };
        assert_eq!(refused(&|g| accept(g, 0, 2)), GatherError::OutOfOrder(2));
        assert_eq!(refused(&|g| accept(g, 0, 77)), GatherError::Duplicate(77));
        assert_eq!(refused(&|g| accept(g, 1, 78)), GatherError::HeldBack);
        let beyond = GatherError::BeyondEnd { end: 77, number: 77 };
        assert_eq!(refused(&|g| fin(g, 0, 77)), beyond);
        let after = |g: &mut Gather| fin(g, 0, 90).and_then(|()| accept(g, 0, 80));
        assert_eq!(refused(&after), GatherError::AfterFin);

        let mut gather = Gather::new(2, units::Bytes(4 * RECORD));
        fin(&mut gather, 0, u64::MAX).unwrap();
        let differ = GatherError::EndsDiffer(u64::MAX, 1);
        assert_eq!(fin(&mut gather, 1, 1), Err(differ));
        let missing = u64::MAX;
        assert_eq!(fin(&mut gather, 1, u64::MAX), Err(GatherError::Missing { missing }));
    }
}

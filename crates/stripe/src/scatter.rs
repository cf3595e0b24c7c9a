//! The sending half: cuts a stream into records and hands them out.
//!
//! This is paper 1's dynamic assignment (section 3.3): a record belongs to no connection until
//! one that can take it asks, so a slow connection carries little and holds up nobody.

use std::collections::VecDeque;

use units::SeqNo;

use crate::record::{HEADER_LEN, Header, MAX_PAYLOAD};

/// Records that wait for a connection, at most. Enough that a connection never waits for the
/// writer to be scheduled; few, because what waits here has not reached the network.
pub const MAX_QUEUED: usize = 8;

/// Bytes a connection can append to a data record without moving it: room for a seal.
pub const TRAILER_ROOM: usize = 32;

const FULL: usize = HEADER_LEN + MAX_PAYLOAD;

/// One record to be sent.
#[derive(Debug)]
pub struct Record {
    /// What it is.
    pub header: Header,
    /// The encoded header with the payload behind it.
    pub bytes: Vec<u8>,
}

/// Cuts one direction of a stream into records; each goes to the connection that asks first.
#[derive(Debug, Default)]
pub struct Scatter {
    /// Each begins with room for its header.
    queue: VecDeque<Vec<u8>>,
    /// Records handed out so far.
    taken: u64,
    finished: bool,
}

impl Scatter {
    /// A stream to which nothing has been written.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes as much of `data` as there is room for, and says how much that was. What is written
    /// while all connections are busy is collected into full records.
    ///
    /// # Panics
    /// After [`Scatter::finish`].
    pub fn write(&mut self, data: &[u8]) -> usize {
        assert!(!self.finished, "the stream was finished");
        let mut rest = data;
        while !rest.is_empty() {
            if self.queue.back().is_none_or(|last| last.len() == FULL) {
                if self.queue.len() == MAX_QUEUED {
                    break;
                }
                let mut record = Vec::with_capacity(FULL + TRAILER_ROOM);
                record.resize(HEADER_LEN, 0);
                self.queue.push_back(record);
            }
            let record = self.queue.back_mut().expect("pushed above if it was empty");
            let (now, later) = rest.split_at(rest.len().min(FULL - record.len()));
            record.extend_from_slice(now);
            rest = later;
        }
        data.len() - rest.len()
    }

    /// Nothing more will be written: once the queue is empty every asker gets the fin.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Whether [`Scatter::finish`] was called.
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Records that wait for a connection.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// The next record, for the connection that asks because it can send one. After
    /// [`Scatter::finish`] and the last data record it is the fin, for each that asks: a
    /// connection sends it once and stops asking. `None` while there is nothing to send.
    pub fn take(&mut self) -> Option<Record> {
        if let Some(mut bytes) = self.queue.pop_front() {
            let header =
                Header::Data { number: SeqNo(self.taken), length: bytes.len() - HEADER_LEN };
            bytes[..HEADER_LEN].copy_from_slice(&header.encode());
            self.taken += 1;
            return Some(Record { header, bytes });
        }
        self.finished.then(|| {
            let header = Header::Fin { count: self.taken };
            let bytes = header.encode().to_vec();
            Record { header, bytes }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_writes_share_a_record_and_the_queue_is_bounded() {
        let mut scatter = Scatter::new();
        assert!(scatter.take().is_none());
        assert_eq!(scatter.write(b"ab") + scatter.write(b"c"), 3);
        assert_eq!(&scatter.take().unwrap().bytes[HEADER_LEN..], b"abc");
        let large = vec![7; MAX_PAYLOAD * (MAX_QUEUED + 2)];
        assert_eq!(scatter.write(&large), MAX_PAYLOAD * MAX_QUEUED);
        assert_eq!(scatter.write(b"x"), 0, "the queue is full");
        let record = scatter.take().unwrap();
        assert!(record.bytes.capacity() >= record.bytes.len() + TRAILER_ROOM);
        assert_eq!(scatter.write(b"x"), 1);
    }

    #[test]
    fn every_connection_gets_the_fin_after_the_last_record() {
        let mut scatter = Scatter::new();
        scatter.write(b"last");
        scatter.finish();
        let number = SeqNo(0);
        let data = Header::Data { number, length: 4 };
        assert_eq!(scatter.take().unwrap().header, data);
        for _connection in 0..3 {
            assert_eq!(scatter.take().unwrap().header, Header::Fin { count: 1 });
        }
    }
}

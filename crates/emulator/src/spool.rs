//! Records on their way from the emulator's thread to a file.
//!
//! The emulator never waits for a disk: records go into a bounded buffer, which a thread of its
//! own swaps for an empty one and writes out. What finds no room is counted and said.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes of records that wait; as much again is being written.
const CAPACITY: usize = 16 << 20;

/// A record waits no longer than this.
const PERIOD: Duration = Duration::from_millis(100);

/// Where the emulator's thread puts records.
#[derive(Clone)]
pub(crate) struct Spool(Arc<Shared>);

struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    bytes: Vec<u8>,
    /// Records that found no room.
    missed: u64,
    /// Nothing is taken any more.
    closed: bool,
}

impl Shared {
    /// Nothing in this file panics while it holds the lock.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spool {
    /// Adds a record, in parts; one that stands for `packets` when there is no room.
    pub(crate) fn push(&self, parts: &[&[u8]], packets: u64) {
        let mut waiting = self.0.waiting();
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if waiting.closed || waiting.bytes.len() + length > CAPACITY {
            waiting.missed += packets;
            return;
        }
        parts.iter().for_each(|part| waiting.bytes.extend_from_slice(part));
        if waiting.bytes.len() > CAPACITY / 2 {
            self.0.changed.notify_one();
        }
    }
}

/// A recording of what an emulation does, into a file or anything else that can be written.
/// Ends with [`finish`](Self::finish), or when it is dropped.
pub struct Recording {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<io::Result<()>>>,
}

impl Recording {
    /// Starts a thread that hands what was pushed to `write`, some whole records at a time.
    pub(crate) fn start(
        mut write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<(Self, Spool)> {
        let waiting = Waiting { bytes: touched(), missed: 0, closed: false };
        let shared = Arc::new(Shared { waiting: Mutex::new(waiting), changed: Condvar::new() });
        let mut bytes = touched();
        let writer = thread::Builder::new().name("recorder".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                loop {
                    let closed = shared.take(&mut bytes);
                    let written = write(&bytes);
                    if closed || written.is_err() {
                        // Whatever comes after a failure is missed, and counted so.
                        shared.waiting().closed = true;
                        return written;
                    }
                    bytes.clear();
                }
            }
        })?;
        Ok((Self { shared: Arc::clone(&shared), writer: Some(writer) }, Spool(shared)))
    }

    /// Packets, or other events, that are missing from the recording so far.
    pub fn missed(&self) -> u64 {
        self.shared.waiting().missed
    }

    /// Ends the recording, and says how many packets or events are missing from it.
    ///
    /// # Errors
    /// Something could not be written; the recording ends there.
    pub fn finish(mut self) -> io::Result<u64> {
        self.close()?;
        Ok(self.missed())
    }

    fn close(&mut self) -> io::Result<()> {
        self.shared.waiting().closed = true;
        self.shared.changed.notify_one();
        let ended = self.writer.take().map(JoinHandle::join);
        ended.map_or(Ok(()), |ended| ended.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Who wants to know of a failure asks `finish`.
        let _ = self.close();
    }
}

impl Shared {
    /// Swaps what waits with `empty`, and says whether it was the last.
    fn take(&self, empty: &mut Vec<u8>) -> bool {
        let waiting = self.waiting();
        let idle = |waiting: &mut Waiting| !waiting.closed && waiting.bytes.len() <= CAPACITY / 2;
        let (mut waiting, _) = self
            .changed
            .wait_timeout_while(waiting, PERIOD, idle)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.bytes, empty);
        waiting.closed
    }
}

/// An empty buffer whose memory is there: page faults later would delay packets.
fn touched() -> Vec<u8> {
    let mut bytes = vec![0xff; CAPACITY];
    bytes.clear();
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn records_arrive_whole_and_in_order() {
        let (sender, receiver) = mpsc::channel();
        let (recording, spool) =
            Recording::start(move |bytes| sender.send(bytes.to_vec()).map_err(io::Error::other))
                .unwrap();
        for i in 0..10_000u32 {
            spool.push(&[&i.to_le_bytes()[..1], &i.to_le_bytes()[1..]], 1);
        }
        assert_eq!(recording.finish().unwrap(), 0);
        let bytes: Vec<u8> = receiver.into_iter().flatten().collect();
        let numbers = bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap()));
        assert!(numbers.eq(0..10_000));
        spool.push(&[&[0]], 1);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let (go, wait) = mpsc::channel::<()>();
        let (recording, spool) = Recording::start(move |_| {
            let _ = wait.recv();
            Ok(())
        })
        .unwrap();
        // The writer holds at most one buffer while it is stuck, the spool another.
        let record = vec![0; 1 << 20];
        (0..3 * (CAPACITY >> 20)).for_each(|_| spool.push(&[&record], 44));
        let missed = recording.missed();
        assert!(missed >= 44 * (CAPACITY as u64 >> 20) && missed.is_multiple_of(44), "{missed}");
        drop(go);
        assert_eq!(recording.finish().unwrap(), missed);
    }

    #[test]
    fn a_full_disk_is_said() {
        let full = || Err(io::Error::from(io::ErrorKind::StorageFull));
        let (recording, spool) =
            Recording::start(move |bytes| if bytes.is_empty() { Ok(()) } else { full() }).unwrap();
        spool.push(&[&[1]], 1);
        assert_eq!(recording.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}

//! Streams, as the application uses them.

use core::time::Duration;

use units::{Bytes, Instant};

use super::Connection;
use crate::recovery::Content;
use crate::streams::{Delivery, OpenError, Priority, ReadOutcome, WriteOutcome};

impl Connection {
    /// Opens a stream in both directions; the other end learns of it with the first bytes.
    ///
    /// # Errors
    /// [`OpenError`] when the other end takes no more for now, or too much waits to be sent.
    pub fn open(&mut self) -> Result<u64, OpenError> {
        self.streams.open()
    }

    /// Whether a stream that is opened now may have to wait for the others: nearly all memory here holds
    /// what nobody has read, the other end gives no credit for any stream, or takes no more of them.
    pub fn is_crowded(&self) -> bool {
        self.streams.is_crowded()
    }

    /// Nobody waits any longer for a stream that [`OpenError::Blocked`] refused: the other end is not
    /// asked for more of them.
    pub fn give_up_opening(&mut self) {
        self.streams.give_up_opening();
    }

    /// Sets when the stream's bytes are sent, compared with those of others.
    pub fn set_priority(&mut self, stream: u64, priority: Priority) {
        self.streams.set_priority(stream, priority);
    }

    /// Bytes that wait to be sent: here, and at the other end by its last word.
    pub fn queued(&self) -> (Bytes, Bytes) {
        (Bytes(self.streams.queued()), Bytes(self.streams.remote_queued()))
    }

    /// Writes to a stream; takes what there is room for.
    pub fn write(&mut self, stream: u64, bytes: &[u8]) -> WriteOutcome {
        self.streams.write(stream, bytes)
    }

    /// No more will be written: the other end reads to the end of what was.
    pub fn finish(&mut self, stream: u64) {
        self.streams.finish(stream);
    }

    /// What became of all that was written to a stream.
    pub fn delivery(&self, stream: u64) -> Delivery {
        self.streams.delivery(stream)
    }

    /// Bytes that were written to a stream and are not known to have arrived.
    pub fn undelivered(&self, stream: u64) -> u64 {
        self.streams.undelivered(stream)
    }

    /// Bytes of a stream that were sent, those that were sent again counted once.
    pub fn sent(&self, stream: u64) -> u64 {
        self.streams.sent(stream)
    }

    /// Bytes of a stream that have arrived and were not read.
    pub fn unread(&self, stream: u64) -> u64 {
        self.streams.unread(stream)
    }

    /// Whether the other end has finished a stream, read or not, and nobody has given it up.
    pub fn is_finished(&self, stream: u64) -> bool {
        self.streams.is_finished(stream)
    }

    /// The application is through with the stream and will not name it again. What was written
    /// and finished before still goes out.
    pub fn release(&mut self, stream: u64) {
        self.streams.release(stream);
        self.ask_for_credit();
    }

    /// Gives up sending; the other end reads a reset with this code.
    pub fn reset(&mut self, stream: u64, code: u64) {
        if let Some(end) = self.streams.reset(stream) {
            self.signals.push_back(Content::Reset { stream, code, end });
        }
    }

    /// Gives up reading; the other end is told to stop.
    pub fn stop(&mut self, stream: u64, code: u64) {
        if self.streams.stop(stream) {
            self.signals.push_back(Content::Stop { stream, code });
        }
        self.ask_for_credit();
    }

    /// Reads from a stream.
    pub fn read(&mut self, now: Instant, stream: u64, out: &mut [u8]) -> ReadOutcome {
        let (most, mut filled) = (out.len(), 0);
        self.read_with(now, stream, most, |bytes| {
            out[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        })
    }

    /// Reads at most `most` bytes from a stream, which are handed to `take` in pieces, in order.
    pub fn read_with(
        &mut self,
        now: Instant,
        stream: u64,
        most: usize,
        take: impl FnMut(&[u8]),
    ) -> ReadOutcome {
        let rtt = self.rtt.smoothed().unwrap_or(Duration::from_millis(500));
        let outcome = self.streams.read(now, stream, most, take, rtt);
        self.ask_for_credit();
        outcome
    }

    /// Has the other end told of new credit, if there is enough of it.
    pub(super) fn ask_for_credit(&mut self) {
        if self.streams.credit_is_due() {
            self.feedback.ask();
        }
    }
}

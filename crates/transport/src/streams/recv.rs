//! The receiving half of a stream.

use core::time::Duration;

use rangemap::RangeSet;
use units::Instant;

use super::store::ByteStore;
use super::window::Window;
use super::{ReadOutcome, StreamError};

/// Holes of a stream that are remembered: a second of 10 Gbit/s that lost each tenth packet.
const MAX_HOLES: usize = 1 << 16;

/// What arrived and was not read yet.
#[derive(Debug)]
pub(super) struct RecvHalf {
    store: ByteStore,
    window: Window,
    /// Arrived above `read`.
    received: RangeSet<u64>,
    /// Everything below has been read.
    read: u64,
    /// The largest offset seen, which counts against the connection's credit.
    highest: u64,
    /// Where the stream ends, once known.
    end: Option<u64>,
    reset: Option<u64>,
    /// The application wants no more.
    stopped: bool,
    /// The application has seen the end or the reset.
    ended: bool,
}

impl RecvHalf {
    pub(super) fn new(window: Window) -> Self {
        Self {
            store: ByteStore::default(),
            window,
            received: RangeSet::new(),
            read: 0,
            highest: 0,
            end: None,
            reset: None,
            stopped: false,
            ended: false,
        }
    }

    pub(super) fn credit(&self) -> u64 {
        self.window.credit()
    }

    /// The other end may still want credit.
    pub(super) fn wants_credit(&self) -> bool {
        self.end.is_none() && self.reset.is_none()
    }

    pub(super) fn is_done(&self) -> bool {
        self.ended || (self.stopped && (self.reset.is_some() || self.is_whole()))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| self.contiguous() == end)
    }

    /// Everything below has arrived.
    fn contiguous(&self) -> u64 {
        self.received.get(&self.read).map_or(self.read, |range| range.end)
    }

    /// Takes a piece in; gives how far the largest offset moved and whether reading can go on.
    ///
    /// # Errors
    /// [`StreamError`] when the other end breaks the rules; the connection must then end.
    pub(super) fn on_data(
        &mut self,
        offset: u64,
        payload: &[u8],
        fin: bool,
    ) -> Result<(u64, bool), StreamError> {
        let end = offset + payload.len() as u64;
        if end > self.window.credit() {
            return Err(StreamError::CreditExceeded);
        }
        let past_the_end = self.end.is_some_and(|known| end > known || (fin && end != known));
        if past_the_end || (fin && end < self.highest) {
            return Err(StreamError::EndMoved);
        }
        if fin {
            self.end = Some(end);
        }
        let advance = end.saturating_sub(self.highest);
        self.highest += advance;
        let start = offset.max(self.read);
        if start < end && !self.stopped && self.reset.is_none() {
            self.store.write(start, &payload[(start - offset) as usize..]);
        }
        if start < end {
            self.received.insert(start..end);
            if self.received.len() > MAX_HOLES {
                return Err(StreamError::TooManyHoles);
            }
            self.grow_for_holes();
        }
        Ok((advance, self.is_readable()))
    }

    /// Out of order is the path's doing, and deserves room; unread is the reader's.
    fn grow_for_holes(&mut self) {
        if self.unread() < self.out_of_order() {
            self.window.on_held(self.highest - self.read);
        }
    }

    fn unread(&self) -> u64 {
        self.contiguous() - self.read
    }

    /// Bytes from the first hole to the largest offset seen.
    pub(super) fn out_of_order(&self) -> u64 {
        self.highest - self.contiguous()
    }

    /// The sender gave the stream up after `end` bytes; gives how far the largest offset moved.
    ///
    /// # Errors
    /// [`StreamError`] as for data.
    pub(super) fn on_reset(&mut self, code: u64, end: u64) -> Result<u64, StreamError> {
        if end > self.window.credit() {
            return Err(StreamError::CreditExceeded);
        }
        if end < self.highest || self.end.is_some_and(|known| known != end) {
            return Err(StreamError::EndMoved);
        }
        let advance = end - self.highest;
        self.highest = end;
        self.end = Some(end);
        self.reset = Some(code);
        Ok(advance)
    }

    /// Bytes that arrived and that the application will now never read: they must be given back
    /// to the connection's credit.
    pub(super) fn abandon(&mut self) -> u64 {
        let unread = self.highest - self.read;
        self.read = self.highest;
        self.store = ByteStore::default();
        self.store.release(self.read);
        unread
    }

    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(super) fn is_readable(&self) -> bool {
        self.reset.is_some() || self.contiguous() > self.read || self.is_whole()
    }

    pub(super) fn read(&mut self, now: Instant, out: &mut [u8], rtt: Duration) -> ReadOutcome {
        if let Some(code) = self.reset {
            self.ended = true;
            return ReadOutcome::Reset(code);
        }
        let len = self.unread().min(out.len() as u64) as usize;
        if len == 0 {
            if self.is_whole() {
                self.ended = true;
                return ReadOutcome::End;
            }
            return ReadOutcome::Blocked;
        }
        let mut filled = 0;
        self.store.read(self.read, len, |bytes| {
            out[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        });
        self.received.remove(self.read..self.read + len as u64);
        self.read += len as u64;
        self.store.release(self.read);
        self.window.on_consumed(now, len as u64, rtt);
        ReadOutcome::Read(len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn half(window: u64) -> RecvHalf {
        RecvHalf::new(Window::new(window, window))
    }

    fn read_all(half: &mut RecvHalf) -> (Vec<u8>, ReadOutcome) {
        let mut all = Vec::new();
        let mut buffer = [0; 100];
        loop {
            match half.read(Instant::ZERO, &mut buffer, Duration::ZERO) {
                ReadOutcome::Read(len) => all.extend_from_slice(&buffer[..len]),
                other => return (all, other),
            }
        }
    }

    proptest! {
        #[test]
        fn any_order_with_repeats_and_overlaps_gives_the_stream(
            len in 0usize..3000,
            cuts in prop::collection::vec((0usize..3000, 0usize..500), 0..60),
        ) {
            let text: Vec<u8> = (0..len).map(|i| (i * 31 / 7) as u8).collect();
            let mut half = half(1 << 20);
            let mut got = Vec::new();
            for (start, size) in cuts {
                let start = start.min(len);
                let end = (start + size).min(len);
                half.on_data(start as u64, &text[start..end], end == len).unwrap();
                got.extend(read_all(&mut half).0);
            }
            half.on_data(0, &text, true).unwrap();
            let (rest, outcome) = read_all(&mut half);
            got.extend(rest);
            prop_assert_eq!(got, text);
            prop_assert_eq!(outcome, ReadOutcome::End);
            prop_assert!(half.is_done());
        }
    }

    #[test]
    fn rules_are_enforced() {
        let mut half = half(10);
        assert_eq!(half.on_data(8, b"abc", false), Err(StreamError::CreditExceeded));
        assert_eq!(half.on_data(2, b"abc", true), Ok((5, false)));
        assert_eq!(half.on_data(4, b"ab", false), Err(StreamError::EndMoved));
        assert_eq!(half.on_data(0, b"ab", true), Err(StreamError::EndMoved));
        assert_eq!(half.on_reset(1, 9), Err(StreamError::EndMoved));
        assert_eq!(half.on_reset(1, 5), Ok(0));
        assert_eq!(read_all(&mut half).1, ReadOutcome::Reset(1));
    }
}

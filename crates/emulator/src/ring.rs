//! Frames on their way, in one block of memory that is made and touched in advance.

use std::collections::VecDeque;
use std::io;

use crate::memory::Memory;

/// The largest frame: an IP packet of 65,535 bytes behind a virtio-net header.
pub(crate) const MAX_FRAME: usize = 65_536 + 64;

/// Frames start at multiples of this, so that two share no cache line.
const ALIGN: usize = 64;

/// Frames described in advance; more are when many small ones come.
const INITIAL_FRAMES: usize = 1 << 12;

struct Frame<M> {
    start: usize,
    len: usize,
    meta: M,
    /// Segments that have not left yet.
    pending: u32,
}

/// Memory for a ring of `capacity` bytes.
pub(crate) fn block(capacity: usize) -> io::Result<Memory> {
    Memory::new(capacity + MAX_FRAME)
}

/// Bytes that a frame of `len` takes. An empty one takes some as well, so that the place behind it is another
/// than its own.
fn room(len: usize) -> usize {
    len.max(1).next_multiple_of(ALIGN).min(MAX_FRAME)
}

/// Frames in the order they came, each with an `M` that says what it is. A frame stays until
/// all its segments are released; room is reused from the oldest on.
pub(crate) struct Ring<M> {
    bytes: Memory,
    head: usize,
    frames: VecDeque<Frame<M>>,
    /// The number of the oldest frame; the others follow without gaps.
    oldest: u64,
}

impl<M> Ring<M> {
    /// A ring of `capacity` bytes and the room of one frame.
    pub(crate) fn new(capacity: usize) -> io::Result<Self> {
        let bytes = block(capacity)?;
        let frames = VecDeque::with_capacity(INITIAL_FRAMES);
        Ok(Self { bytes, head: 0, frames, oldest: 0 })
    }

    /// Bytes of all frames for which there is room.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len() - MAX_FRAME
    }

    /// Moves into a larger block of memory, made by [`block`].
    pub(crate) fn grow(&mut self, mut bytes: Memory) {
        debug_assert!(bytes.len() >= self.bytes.len());
        self.head = 0;
        for frame in &mut self.frames {
            let end = self.head + frame.len;
            bytes[self.head..end].copy_from_slice(&self.bytes[frame.start..][..frame.len]);
            frame.start = self.head;
            self.head += room(frame.len);
        }
        self.bytes = bytes;
    }

    /// Room for the next frame, or `None` when the ring is full.
    pub(crate) fn space(&mut self) -> Option<&mut [u8]> {
        match self.frames.front() {
            None => self.head = 0,
            // One byte stays free before the oldest frame, so that full does not look empty.
            Some(front) if self.head <= front.start => {
                if front.start - self.head <= MAX_FRAME {
                    return None;
                }
            }
            Some(front) if self.bytes.len() - self.head < MAX_FRAME => {
                if front.start <= MAX_FRAME {
                    return None;
                }
                self.head = 0;
            }
            Some(_) => {}
        }
        Some(&mut self.bytes[self.head..self.head + MAX_FRAME])
    }

    /// The number the next frame will have.
    pub(crate) fn next_number(&self) -> u64 {
        self.oldest + self.frames.len() as u64
    }

    /// Keeps the first `len` bytes of the room that [`space`](Self::space) returned last as the
    /// next frame, until `pending` (not zero) segments are released.
    pub(crate) fn keep(&mut self, len: usize, meta: M, pending: u32) {
        debug_assert!(len <= MAX_FRAME && pending > 0);
        self.frames.push_back(Frame { start: self.head, len, meta, pending });
        self.head += room(len);
    }

    /// The frame of this number, which must have segments pending.
    pub(crate) fn frame(&self, number: u64) -> (&[u8], &M) {
        let frame = &self.frames[self.position(number)];
        (&self.bytes[frame.start..frame.start + frame.len], &frame.meta)
    }

    /// One more segment of the frame is to leave.
    pub(crate) fn hold(&mut self, number: u64) {
        let position = self.position(number);
        self.frames[position].pending += 1;
    }

    /// One segment of the frame has left.
    pub(crate) fn release(&mut self, number: u64) {
        let position = self.position(number);
        self.frames[position].pending -= 1;
        while self.frames.front().is_some_and(|frame| frame.pending == 0) {
            self.frames.pop_front();
            self.oldest += 1;
        }
    }

    fn position(&self, number: u64) -> usize {
        usize::try_from(number - self.oldest).expect("fewer frames than addresses")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the order of arrivals and releases, a frame keeps its bytes while it is held.
        #[test]
        fn frames_keep_their_bytes(
            steps in prop::collection::vec((any::<bool>(), 0usize..MAX_FRAME, 1u32..4), 1..400),
        ) {
            let mut ring = Ring::new(5 * MAX_FRAME).unwrap();
            let mut held: Vec<(u64, u8, usize, u32)> = Vec::new();
            for (round, (add, len, pending)) in steps.into_iter().enumerate() {
                if round % 50 == 49 {
                    ring.grow(block(ring.capacity() + len).unwrap());
                }
                if add {
                    let fill = round as u8;
                    let number = ring.next_number();
                    let Some(space) = ring.space() else { continue };
                    space[..len].fill(fill);
                    ring.keep(len, fill, pending);
                    held.push((number, fill, len, pending));
                } else if !held.is_empty() {
                    let at = len % held.len();
                    ring.release(held[at].0);
                    held[at].3 -= 1;
                    held.retain(|&(_, _, _, pending)| pending > 0);
                }
                for &(number, fill, len, _) in &held {
                    let (bytes, &meta) = ring.frame(number);
                    prop_assert_eq!((bytes.len(), meta), (len, fill));
                    prop_assert!(bytes.iter().all(|&b| b == fill));
                }
            }
        }
    }

    #[test]
    fn an_empty_frame_leaves_room_for_others() {
        let mut ring = Ring::new(5 * MAX_FRAME).unwrap();
        for number in 0..3 {
            assert!(ring.space().is_some(), "frame {number}");
            ring.keep(0, (), 1);
        }
        ring.grow(block(6 * MAX_FRAME).unwrap());
        assert!(ring.space().is_some());
        assert!(ring.frame(2).0.is_empty());
    }

    #[test]
    fn a_drained_ring_is_whole_again() {
        let mut ring = Ring::new(3 * MAX_FRAME).unwrap();
        for _ in 0..100 {
            let mut numbers = Vec::new();
            while ring.space().is_some() {
                numbers.push(ring.next_number());
                ring.keep(MAX_FRAME, (), 1);
            }
            assert!(numbers.len() >= 3, "{}", numbers.len());
            numbers.into_iter().for_each(|number| ring.release(number));
        }
    }
}

//! Bytes of a stream between two offsets, kept in blocks.

use core::ops::Range;
use std::collections::VecDeque;

/// Size of a block: large enough that blocks are few, small enough that a hole costs little.
const BLOCK: usize = 64 << 10;
/// Empty blocks that a connection keeps for use again, if there are not more in use.
const MIN_SPARE: usize = 64;

/// A connection's empty blocks, shared by its streams, so that an idle stream holds none.
///
/// It keeps as many as are in use. What is given back to the allocator returns to the arena of the thread
/// that asked for it, and is not there for the next one that asks: with 64 spare blocks a sender's memory
/// grew by half within 12 s where a path lost 10%, and more was in use at one time than at another.
#[derive(Debug, Default)]
pub(super) struct Pool {
    spare: Vec<Vec<u8>>,
    in_use: usize,
}

impl Pool {
    fn take(&mut self) -> Vec<u8> {
        self.in_use += 1;
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK))
    }

    fn give(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() < BLOCK {
            return;
        }
        self.in_use = self.in_use.saturating_sub(1);
        bytes.clear();
        self.spare.push(bytes);
        self.spare.truncate(self.in_use.max(MIN_SPARE));
    }
}

/// Part of a block: nothing outside is kept, so a small message costs little more than its size.
#[derive(Debug, Default)]
struct Block {
    /// Place in the block of the first byte.
    from: usize,
    bytes: Vec<u8>,
}

impl Block {
    fn write(&mut self, place: usize, bytes: &[u8]) {
        if self.bytes.is_empty() {
            self.from = place;
        } else if place < self.from {
            // To the block's beginning: what comes backwards would move the rest each time.
            self.bytes.splice(0..0, core::iter::repeat_n(0, self.from));
            self.from = 0;
        }
        let at = place - self.from;
        if at > self.bytes.len() {
            self.bytes.resize(at, 0);
        }
        let over = (self.bytes.len() - at).min(bytes.len());
        self.bytes[at..at + over].copy_from_slice(&bytes[..over]);
        self.bytes.extend_from_slice(&bytes[over..]);
    }
}

/// A window onto a stream's bytes. Blocks exist only where something was written; the caller
/// keeps account of which bytes are valid, and bounds the window by credit.
#[derive(Debug, Default)]
pub(super) struct ByteStore {
    /// Number of the block at the front of `blocks`.
    first: u64,
    blocks: VecDeque<Block>,
}

/// The pieces of `len` bytes at `offset`: block number, place in the block, place in the bytes.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        (done < len).then(|| {
            let at = offset + done as u64;
            let place = (at % BLOCK as u64) as usize;
            let piece = done..(done + BLOCK - place).min(len);
            done = piece.end;
            (at / BLOCK as u64, place, piece)
        })
    })
}

impl ByteStore {
    /// Writes `bytes` at `offset`, which must not lie below what was released.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8], pool: &mut Pool) {
        for (number, place, piece) in pieces(offset, bytes.len()) {
            let index = (number - self.first) as usize;
            if index >= self.blocks.len() {
                self.blocks.resize_with(index + 1, Block::default);
            }
            let block = &mut self.blocks[index];
            // The first block grows with a stream that may stay short.
            if block.bytes.capacity() == 0 && number > 0 {
                block.bytes = pool.take();
            }
            let grows = block.bytes.capacity() < BLOCK;
            block.write(place, &bytes[piece]);
            // As large as the others it goes to the pool with them.
            pool.in_use += usize::from(grows && block.bytes.capacity() >= BLOCK);
        }
    }

    /// Hands the `len` bytes at `offset`, all written before, to `take` in order.
    pub(super) fn read(&self, offset: u64, len: usize, mut take: impl FnMut(&[u8])) {
        for (number, place, piece) in pieces(offset, len) {
            let block = &self.blocks[(number - self.first) as usize];
            let at = place - block.from;
            take(&block.bytes[at..at + piece.len()]);
        }
    }

    /// Forgets those blocks that `piece` touches and that lie wholly in `range`.
    pub(super) fn punch(&mut self, piece: Range<u64>, range: &Range<u64>, pool: &mut Pool) {
        const SIZE: u64 = BLOCK as u64;
        for number in (piece.start / SIZE).max(self.first)..piece.end.div_ceil(SIZE) {
            if range.start <= number * SIZE
                && (number + 1) * SIZE <= range.end
                && let Some(block) = self.blocks.get_mut((number - self.first) as usize)
            {
                pool.give(core::mem::take(block).bytes);
            }
        }
    }

    /// Forgets everything below `offset`.
    pub(super) fn release(&mut self, offset: u64, pool: &mut Pool) {
        let (number, place) = (offset / BLOCK as u64, (offset % BLOCK as u64) as usize);
        while self.first < number {
            let Some(block) = self.blocks.pop_front() else {
                self.first = number;
                break;
            };
            pool.give(block.bytes);
            self.first += 1;
        }
        if let Some(front) = self.blocks.front_mut()
            && front.from + front.bytes.len() <= place
        {
            pool.give(core::mem::take(front).bytes);
        }
        if self.blocks.len() == 1 && self.blocks[0].bytes.is_empty() {
            self.blocks = VecDeque::new();
        }
    }

    /// Forgets everything; what is written from now on lies at `offset` or above.
    pub(super) fn clear(&mut self, offset: u64, pool: &mut Pool) {
        self.blocks.drain(..).for_each(|block| pool.give(block.bytes));
        *self = Self { first: offset / BLOCK as u64, blocks: VecDeque::new() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_between_others_are_forgotten_when_nothing_of_them_is_needed() {
        let (mut store, mut pool) = (ByteStore::default(), Pool::default());
        let size = BLOCK as u64;
        store.write(0, &vec![7; 4 * BLOCK], &mut pool);
        store.punch(size + 1..size + 2, &(size..3 * size - 1), &mut pool);
        store.punch(2 * size..3 * size, &(size..3 * size - 1), &mut pool);
        let held = |store: &ByteStore| store.blocks.iter().map(|block| block.bytes.len()).collect();
        let lens: Vec<usize> = held(&store);
        assert_eq!(lens, [BLOCK, 0, BLOCK, BLOCK]);
        store.read(2 * size, 2 * BLOCK, |bytes| assert!(bytes.iter().all(|&byte| byte == 7)));
        store.release(4 * size, &mut pool);
        assert_eq!((store.first, store.blocks.len()), (4, 0));
    }

    #[test]
    fn as_many_blocks_are_kept_as_are_in_use() {
        let (mut store, mut pool) = (ByteStore::default(), Pool::default());
        let size = BLOCK as u64;
        // The first block is not from the pool, and counts once it is as large.
        let mut others: Vec<_> = (0..100).map(|_| ByteStore::default()).collect();
        others.iter_mut().for_each(|other| other.write(0, &[7; BLOCK], &mut pool));
        store.write(0, &vec![7; 301 * BLOCK], &mut pool);
        assert_eq!((pool.spare.len(), pool.in_use), (0, 401));
        others.iter_mut().for_each(|other| other.clear(size, &mut pool));
        assert_eq!((pool.spare.len(), pool.in_use), (100, 301));
        store.release(101 * size, &mut pool);
        let kept = pool.spare.len();
        assert_eq!((kept, pool.in_use), (200, 200));
        store.write(301 * size, &vec![7; 50 * BLOCK], &mut pool);
        assert_eq!(pool.spare.len(), kept - 50, "used again");
        store.release(351 * size, &mut pool);
        assert_eq!((pool.spare.len(), pool.in_use), (MIN_SPARE, 0));
    }

    #[test]
    fn keeps_what_was_written_across_blocks() {
        let bytes: Vec<u8> = (0..3 * BLOCK).map(|i| (i / 7) as u8).collect();
        let (mut store, mut pool) = (ByteStore::default(), Pool::default());
        store.write(100_000, &bytes[100_000..], &mut pool);
        store.write(10, &bytes[10..100_000], &mut pool);
        store.release(50_000, &mut pool);
        store.release(70_000, &mut pool);
        let mut read = Vec::new();
        store.read(70_000, bytes.len() - 70_000, |piece| read.extend_from_slice(piece));
        assert_eq!(read, bytes[70_000..]);
        store.release(bytes.len() as u64, &mut pool);
        assert!(store.blocks.is_empty());
        store.write(bytes.len() as u64 + 5, b"next", &mut pool);
        let mut read = Vec::new();
        store.read(bytes.len() as u64 + 5, 4, |piece| read.extend_from_slice(piece));
        assert_eq!(read, b"next");
    }

    #[test]
    fn bytes_that_come_backwards_move_the_others_once() {
        let (mut store, mut pool) = (ByteStore::default(), Pool::default());
        for at in (0..500).rev() {
            store.write(at, &[at as u8], &mut pool);
            assert_eq!(store.blocks[0].from, if at == 499 { 499 } else { 0 });
        }
        let mut read = Vec::new();
        store.read(0, 500, |piece| read.extend_from_slice(piece));
        assert!(read.iter().zip(0..500).all(|(&byte, at)| byte == at as u8));
    }

    #[test]
    fn a_short_message_costs_little_and_nothing_once_it_is_gone() {
        let (mut store, mut pool) = (ByteStore::default(), Pool::default());
        store.write(500, b"later", &mut pool);
        store.write(100, b"sooner", &mut pool);
        assert!(store.blocks[0].bytes.capacity() < 2000);
        store.release(505, &mut pool);
        assert!(store.blocks.capacity() == 0);
    }
}

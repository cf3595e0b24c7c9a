//! Bytes of a stream between two offsets, kept in blocks.

use std::collections::VecDeque;

/// Size of a block: large enough that blocks are few, small enough that a hole costs little.
const BLOCK: usize = 64 << 10;
/// Blocks kept for use again.
const MAX_SPARE: usize = 4;

/// A window onto a stream's bytes. Blocks exist only where something was written; the caller
/// keeps account of which bytes are valid, and bounds the window by credit.
#[derive(Debug, Default)]
pub(super) struct ByteStore {
    /// Number of the block at the front of `blocks`.
    first: u64,
    blocks: VecDeque<Option<Box<[u8]>>>,
    spare: Vec<Box<[u8]>>,
}

/// The pieces of `len` bytes at `offset`: block number, place in the block, place in the bytes.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, core::ops::Range<usize>)> {
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
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (number, place, piece) in pieces(offset, bytes.len()) {
            let index = (number - self.first) as usize;
            if index >= self.blocks.len() {
                self.blocks.resize_with(index + 1, || None);
            }
            let spare = &mut self.spare;
            let block = self.blocks[index]
                .get_or_insert_with(|| spare.pop().unwrap_or_else(|| vec![0; BLOCK].into()));
            block[place..place + piece.len()].copy_from_slice(&bytes[piece]);
        }
    }

    /// Hands the `len` bytes at `offset`, all written before, to `take` in order.
    pub(super) fn read(&self, offset: u64, len: usize, mut take: impl FnMut(&[u8])) {
        for (number, place, piece) in pieces(offset, len) {
            let block = self.blocks[(number - self.first) as usize].as_ref();
            let block = block.expect("only what was written is read");
            take(&block[place..place + piece.len()]);
        }
    }

    /// Forgets everything below `offset`.
    pub(super) fn release(&mut self, offset: u64) {
        while self.first < offset / BLOCK as u64 {
            if let Some(Some(block)) = self.blocks.pop_front()
                && self.spare.len() < MAX_SPARE
            {
                self.spare.push(block);
            }
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_was_written_across_blocks() {
        let bytes: Vec<u8> = (0..3 * BLOCK).map(|i| (i / 7) as u8).collect();
        let mut store = ByteStore::default();
        store.write(100_000, &bytes[100_000..]);
        store.write(10, &bytes[10..100_000]);
        store.release(50_000);
        store.release(70_000);
        let mut read = Vec::new();
        store.read(70_000, bytes.len() - 70_000, |piece| read.extend_from_slice(piece));
        assert_eq!(read, bytes[70_000..]);
        store.release(bytes.len() as u64);
        assert!(store.blocks.is_empty());
        store.write(bytes.len() as u64 + 5, b"next");
        let mut read = Vec::new();
        store.read(bytes.len() as u64 + 5, 4, |piece| read.extend_from_slice(piece));
        assert_eq!(read, b"next");
    }
}

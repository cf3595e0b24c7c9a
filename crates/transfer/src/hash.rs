//! BLAKE3 of a file that comes in several sittings: its state can be written down at every block.

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use serde::{Deserialize, Serialize};

/// Between two blocks the state is small. A power of two, so that a block is a subtree of the hash.
pub(crate) const BLOCK: u64 = 256 << 10;

/// The state after whole blocks, when more is to come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct State {
    blocks: u64,
    /// The hashes of the largest whole subtrees, left to right: one for each bit of `blocks`.
    subtrees: Vec<ChainingValue>,
}

/// What others have written down.
#[derive(Deserialize)]
struct Parts {
    blocks: u64,
    subtrees: Vec<ChainingValue>,
}

impl TryFrom<Parts> for State {
    type Error = &'static str;

    fn try_from(Parts { blocks, subtrees }: Parts) -> Result<Self, Self::Error> {
        let fits = subtrees.len() == blocks.count_ones() as usize && blocks <= u64::MAX / BLOCK;
        if fits { Ok(Self { blocks, subtrees }) } else { Err("no state of a hash") }
    }
}

impl State {
    /// Bytes that it stands for.
    pub(crate) fn length(&self) -> u64 {
        self.blocks * BLOCK
    }

    fn push(&mut self, block: ChainingValue) {
        let mut subtree = block;
        self.blocks += 1;
        for _ in 0..self.blocks.trailing_zeros() {
            let left = self.subtrees.pop().expect("one for each bit");
            subtree = merge_subtrees_non_root(&left, &subtree, Mode::Hash);
        }
        self.subtrees.push(subtree);
    }
}

/// A hash under way.
pub(crate) struct Hasher {
    /// Of the blocks before the current one.
    before: State,
    block: blake3::Hasher,
}

impl Default for Hasher {
    fn default() -> Self {
        Self::from(State::default())
    }
}

impl From<State> for Hasher {
    fn from(before: State) -> Self {
        let block = block_at(before.length());
        Self { before, block }
    }
}

impl Hasher {
    /// Bytes taken in.
    pub fn length(&self) -> u64 {
        self.before.length() + self.block.count()
    }

    pub fn update(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let mut room = BLOCK - self.block.count();
            if room == 0 {
                // Only now: the last block of all is merged otherwise.
                self.before.push(self.block.finalize_non_root());
                self.block = block_at(self.before.length());
                room = BLOCK;
            }
            let (now, later) = data.split_at(data.len().min(room as usize));
            self.block.update(now);
            data = later;
        }
    }

    /// Takes in so many zeros.
    pub fn update_zeros(&mut self, mut length: u64) {
        static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
        while length > 0 {
            let now = length.min(BLOCK);
            self.update(&ZEROS[..now as usize]);
            length -= now;
        }
    }

    /// The state at the last whole block, when more than that is still to come.
    pub fn state(&self) -> State {
        let mut state = self.before.clone();
        if self.block.count() == BLOCK {
            state.push(self.block.finalize_non_root());
        }
        state
    }

    pub fn finalize(&self) -> [u8; blake3::OUT_LEN] {
        let Some((first, others)) = self.before.subtrees.split_first() else {
            return *self.block.finalize().as_bytes();
        };
        let last = self.block.finalize_non_root();
        let right = others
            .iter()
            .rfold(last, |right, left| merge_subtrees_non_root(left, &right, Mode::Hash));
        *merge_subtrees_root(first, &right, Mode::Hash).as_bytes()
    }
}

fn block_at(offset: u64) -> blake3::Hasher {
    let mut block = blake3::Hasher::new();
    block.set_input_offset(offset);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn it_is_blake3_however_the_bytes_come() {
        for blocks in 0..9 {
            for more in [0, 1, 1000, BLOCK - 1] {
                let bytes = bytes(blocks * BLOCK + more);
                for piece in [7777, BLOCK as usize, 1 << 20] {
                    let mut hasher = Hasher::default();
                    bytes.chunks(piece).for_each(|piece| hasher.update(piece));
                    assert_eq!(hasher.finalize(), *blake3::hash(&bytes).as_bytes());
                    assert_eq!(hasher.length(), bytes.len() as u64);
                }
            }
        }
    }

    #[test]
    fn it_goes_on_from_a_state_that_was_written_down() {
        let bytes = bytes(9 * BLOCK + 5);
        for cut in [1, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK, 7 * BLOCK + 9, 8 * BLOCK] {
            let mut first = Hasher::default();
            first.update(&bytes[..cut as usize]);
            let state = first.state();
            assert_eq!(state.length(), cut / BLOCK * BLOCK);
            let state: State = postcard::from_bytes(&postcard::to_stdvec(&state).unwrap()).unwrap();
            let kept = state.length() as usize;
            let mut second = Hasher::from(state);
            second.update(&bytes[kept..]);
            assert_eq!(second.finalize(), *blake3::hash(&bytes).as_bytes(), "{cut}");
        }
    }

    #[test]
    fn a_state_that_cannot_be_is_refused() {
        for (blocks, subtrees, fits) in [(3, 1, false), (u64::MAX, 64, false), (0, 0, true)] {
            let bytes = postcard::to_stdvec(&(blocks, vec![[0_u8; 32]; subtrees])).unwrap();
            assert_eq!(postcard::from_bytes::<State>(&bytes).is_ok(), fits, "{blocks}");
        }
    }
}

//! Compression that is there when it pays: while the network is what everything waits for, and only of
//! bytes that become fewer by it.

use crate::wire::DATA_MAX;

/// Packed must be less than so many sixteenths of plain, or it was for nothing.
const WORTH: usize = 14;
/// Less than this is not worth a try.
const LEAST: usize = 512;
/// After a try for nothing so many pieces go plain, twice as many each time.
const REST_FIRST: u32 = 1;
const REST_MOST: u32 = 256;
/// zstd's, the quickest.
const LEVEL: i32 = 1;

/// Packs pieces that are worth it.
pub struct Packer {
    zstd: zstd::bulk::Compressor<'static>,
    packed: Vec<u8>,
    /// Pieces that go plain before the next try.
    rest: u32,
    next_rest: u32,
}

impl Packer {
    /// # Errors
    /// When there is no memory for it.
    pub fn new() -> std::io::Result<Self> {
        let zstd = zstd::bulk::Compressor::new(LEVEL)?;
        Ok(Self { zstd, packed: Vec::new(), rest: 0, next_rest: REST_FIRST })
    }

    /// The piece packed, if that is worth it.
    pub fn pack(&mut self, piece: &[u8]) -> Option<&[u8]> {
        if piece.len() < LEAST {
            return None;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        self.packed.resize(piece.len() / 16 * WORTH, 0);
        // What does not fit was for nothing.
        match self.zstd.compress_to_buffer(piece, &mut self.packed[..]) {
            Ok(length) => {
                self.next_rest = REST_FIRST;
                Some(&self.packed[..length])
            }
            Err(_) => {
                self.rest = self.next_rest;
                self.next_rest = (2 * self.next_rest).min(REST_MOST);
                None
            }
        }
    }
}

/// Unpacks what a [`Packer`] has packed.
pub struct Unpacker {
    zstd: zstd::bulk::Decompressor<'static>,
    plain: Vec<u8>,
}

impl Unpacker {
    /// # Errors
    /// When there is no memory for it.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { zstd: zstd::bulk::Decompressor::new()?, plain: Vec::new() })
    }

    /// The piece as it was; `None` for what no packer has packed, or is longer than a piece may be.
    pub fn unpack(&mut self, packed: &[u8]) -> Option<&[u8]> {
        self.plain.resize(DATA_MAX, 0);
        let length = self.zstd.decompress_to_buffer(packed, &mut self.plain[..]).ok()?;
        (length > 0).then(|| &self.plain[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again_and_noise_is_left_alone() {
        let (mut packer, mut unpacker) = (Packer::new().unwrap(), Unpacker::new().unwrap());
        for length in [512, 5000, 256 << 10] {
            let text: Vec<u8> = b"the same again, ".iter().copied().cycle().take(length).collect();
            let packed = packer.pack(&text).unwrap().to_vec();
            assert!(packed.len() < length / 4);
            assert!(unpacker.unpack(&packed).unwrap() == text);
        }
        assert!(packer.pack(b"short short short").is_none());
        let mut noise = vec![0; 100_000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        assert!(packer.pack(&noise).is_none());
        let text = vec![7; 5000];
        assert!(packer.pack(&text).is_none(), "it rests after a try for nothing");
        assert!(packer.pack(&text).is_some());
    }

    #[test]
    fn bytes_from_anybody_are_unpacked_or_refused() {
        let mut unpacker = Unpacker::new().unwrap();
        assert!(unpacker.unpack(b"no such thing").is_none());
        assert!(unpacker.unpack(b"").is_none());
        let bomb = zstd::bulk::compress(&vec![0; 2 * DATA_MAX], LEVEL).unwrap();
        assert!(unpacker.unpack(&bomb).is_none(), "more than a piece");
    }
}

//! AES-256-GCM with the packet (or record) number as nonce.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};

use super::CryptoError;

/// Bytes that sealing adds.
pub const TAG_LEN: usize = 16;

/// The two directions' keys of one end.
#[derive(Debug)]
pub struct Keys {
    /// Seals what this end sends.
    pub sealer: Sealer,
    /// Opens what the other end sent.
    pub opener: Opener,
}

/// Seals one direction. The caller must never use a number twice: packet and record numbers are
/// 64 bits wide and never reused.
#[derive(Debug)]
pub struct Sealer(LessSafeKey);

/// Opens one direction.
#[derive(Debug)]
pub struct Opener(LessSafeKey);

fn aead_key(key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("AES-256 takes 32 bytes"))
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Sealer {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self(aead_key(key))
    }

    /// Encrypts `body` in place and returns the tag that authenticates it and `associated`.
    pub fn seal(&self, number: u64, associated: &[u8], body: &mut [u8]) -> [u8; TAG_LEN] {
        let tag = self.0.seal_in_place_separate_tag(nonce(number), Aad::from(associated), body);
        let tag = tag.expect("a packet is far below the cipher's limit of 64 GiB");
        tag.as_ref().try_into().expect("the tag has 16 bytes")
    }
}

impl Opener {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self(aead_key(key))
    }

    /// Decrypts `sealed`, a body with its tag behind it, in place and returns the body.
    ///
    /// # Errors
    /// [`CryptoError`] when too short for a tag or not authentic; `sealed` is then garbage.
    pub fn open<'a>(
        &self,
        number: u64,
        associated: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], CryptoError> {
        let split = sealed.len().checked_sub(TAG_LEN).ok_or(CryptoError::Malformed)?;
        let (body, tag) = sealed.split_at_mut(split);
        let tag = Tag::try_from(&*tag).map_err(|_| CryptoError::Malformed)?;
        self.0
            .open_in_place_separate_tag(nonce(number), Aad::from(associated), tag, body, 0..)
            .map_err(|_| CryptoError::Unauthentic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_header_and_body_are_all_bound() {
        let (sealer, opener) = (Sealer::new(&[1; 32]), Opener::new(&[1; 32]));
        let mut sealed = b"body".to_vec();
        let tag = sealer.seal(9, b"header", &mut sealed);
        sealed.extend(tag);
        let open = |number, header: &[u8], mut bytes: Vec<u8>| {
            opener.open(number, header, &mut bytes).map(|body| body.to_vec())
        };
        assert_eq!(open(9, b"header", sealed.clone()), Ok(b"body".to_vec()));
        assert_eq!(open(8, b"header", sealed.clone()), Err(CryptoError::Unauthentic));
        assert_eq!(open(9, b"Header", sealed.clone()), Err(CryptoError::Unauthentic));
        for i in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[i] ^= 1;
            assert_eq!(open(9, b"header", changed), Err(CryptoError::Unauthentic));
        }
        assert_eq!(open(9, b"header", vec![0; 15]), Err(CryptoError::Malformed));
    }
}

//! AES-256-GCM with the packet (or record) number as nonce, under keys that a ratchet makes: from a
//! secret come the key and the next secret, and neither leads back to it.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hkdf;

use super::{CryptoError, PublicKey};

/// Bytes that sealing adds.
pub const TAG_LEN: usize = 16;

/// The two directions' keys of one end, and who holds the other ones.
#[derive(Debug)]
pub struct Keys {
    /// Seals what this end sends.
    pub sealer: Sealer,
    /// Opens what the other end sent.
    pub opener: Opener,
    /// What the other end has proved to be, if both are known by static keys.
    pub peer: Option<PublicKey>,
}

/// Seals one direction. The caller must never use a number twice: packet and record numbers are
/// 64 bits wide and never reused.
#[derive(Debug)]
pub struct Sealer(Ratchet);

/// Opens one direction.
#[derive(Debug)]
pub struct Opener(Ratchet);

/// A key, and the secret from which the next one comes; none in a simulation.
enum Ratchet {
    Aes(Box<Aes>),
    Simulated,
}

struct Aes {
    key: LessSafeKey,
    secret: hkdf::Prk,
}

/// Whether packets are sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sealing {
    /// By AES-256-GCM.
    #[default]
    Sealed,
    /// They only have the size of sealed ones: for both ends of a simulation, where sealing would
    /// cost more than all the rest. No carrier over sockets takes it.
    Simulated,
}

impl Keys {
    /// These, or what stands for them in a simulation.
    pub(crate) fn with(self, sealing: Sealing) -> Self {
        match sealing {
            Sealing::Sealed => self,
            Sealing::Simulated => {
                let (sealer, opener) = (Sealer(Ratchet::Simulated), Opener(Ratchet::Simulated));
                Self { sealer, opener, peer: self.peer }
            }
        }
    }
}

impl core::fmt::Debug for Ratchet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Ratchet(secret)")
    }
}

impl Ratchet {
    fn new(secret: &[u8; 32]) -> Self {
        let secret = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, secret);
        let key = UnboundKey::new(&AES_256_GCM, &expand(&secret, b"longhaul key"));
        let key = LessSafeKey::new(key.expect("AES-256 takes 32 bytes"));
        Self::Aes(Box::new(Aes { key, secret }))
    }

    fn next(&self) -> Self {
        match self {
            Self::Aes(aes) => Self::new(&expand(&aes.secret, b"longhaul next")),
            Self::Simulated => Self::Simulated,
        }
    }
}

/// HKDF-Expand (RFC 5869) with SHA-256, to 32 bytes.
fn expand(secret: &hkdf::Prk, label: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    let filled = secret.expand(&[label], hkdf::HKDF_SHA256).and_then(|okm| okm.fill(&mut out));
    filled.expect("HKDF gives up to 255 hashes");
    out
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Sealer {
    /// Seals under the first key that comes from `secret`.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(Ratchet::new(secret))
    }

    /// What seals under the next key.
    pub fn next(&self) -> Self {
        Self(self.0.next())
    }

    /// Encrypts `body` in place and returns the tag that authenticates it and `associated`.
    pub fn seal(&self, number: u64, associated: &[u8], body: &mut [u8]) -> [u8; TAG_LEN] {
        let Ratchet::Aes(aes) = &self.0 else { return [0; TAG_LEN] };
        let tag = aes.key.seal_in_place_separate_tag(nonce(number), Aad::from(associated), body);
        let tag = tag.expect("a packet is far below the cipher's limit of 64 GiB");
        tag.as_ref().try_into().expect("the tag has 16 bytes")
    }
}

impl Opener {
    /// Opens what was sealed under the first key that comes from `secret`.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(Ratchet::new(secret))
    }

    /// What opens under the next key.
    pub fn next(&self) -> Self {
        Self(self.0.next())
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
        let Ratchet::Aes(aes) = &self.0 else { return Ok(body) };
        let tag = Tag::try_from(&*tag).map_err(|_| CryptoError::Malformed)?;
        aes.key
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

    #[test]
    fn each_step_of_the_ratchet_is_another_key() {
        let (sealer, opener) = (Sealer::new(&[1; 32]).next(), Opener::new(&[1; 32]));
        let mut sealed = b"body".to_vec();
        let tag = sealer.seal(9, b"", &mut sealed);
        sealed.extend(tag);
        assert!(opener.open(9, b"", &mut sealed.clone()).is_err());
        assert!(opener.next().next().open(9, b"", &mut sealed.clone()).is_err());
        assert_eq!(opener.next().open(9, b"", &mut sealed).unwrap(), b"body");
    }
}

//! The handshake: `Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s` (Noise rev. 34), one round trip.
//!
//! The shared key authenticates both ends from the first message on; the ephemeral keys give
//! forward secrecy. A responder checks the first message with one hash and one AEAD operation,
//! before any curve arithmetic.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};

use super::{CryptoError, Keys, Opener, Sealer, SharedKey};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// What a handshake message adds to its payload: an ephemeral key and a tag.
const OVERHEAD: usize = 32 + super::TAG_LEN;
/// The longest handshake message the Noise framework allows.
const MAX_MESSAGE: usize = 65_535;

/// The library's own algorithms, with the caller's seed in place of global randomness.
struct Seeded([u8; 32]);

struct SeededRandom(ChaCha20Rng);

impl Random for SeededRandom {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill_bytes(dest);
        Ok(())
    }
}

impl CryptoResolver for Seeded {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(SeededRandom(ChaCha20Rng::from_seed(self.0))))
    }
    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }
    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }
    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Hands a configured builder to `build`; every parameter is a constant, so building cannot fail.
fn noise(
    key: &SharedKey,
    seed: [u8; 32],
    prologue: &[u8],
    build: impl FnOnce(Builder<'_>) -> Result<HandshakeState, snow::Error>,
) -> HandshakeState {
    let pattern = PATTERN.parse().expect("the pattern's name is well formed");
    Builder::with_resolver(pattern, Box::new(Seeded(seed)))
        .psk(0, key.as_bytes())
        .and_then(|builder| builder.prologue(prologue))
        .and_then(build)
        .expect("constant parameters are accepted")
}

fn write(state: &mut HandshakeState, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![0; payload.len() + OVERHEAD];
    let len = state.write_message(payload, &mut message).expect("our turn, and room enough");
    message.truncate(len);
    message
}

fn read(state: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
    if !(OVERHEAD..=MAX_MESSAGE).contains(&message.len()) {
        return Err(CryptoError::Malformed);
    }
    let mut payload = vec![0; message.len()];
    let len = state.read_message(message, &mut payload).map_err(|_| CryptoError::Unauthentic)?;
    payload.truncate(len);
    Ok(payload)
}

/// The end that speaks first.
pub struct Initiator(HandshakeState);

impl Initiator {
    /// Begins a handshake. `seed` must be fresh randomness; `prologue` names the protocol and
    /// must be equal at both ends.
    pub fn new(key: &SharedKey, seed: [u8; 32], prologue: &[u8]) -> Self {
        Self(noise(key, seed, prologue, |builder| builder.build_initiator()))
    }

    /// The first message, with `payload` sealed inside under the shared key alone (no forward
    /// secrecy for it). To be called once.
    pub fn hello(&mut self, payload: &[u8]) -> Vec<u8> {
        write(&mut self.0, payload)
    }

    /// Reads the responder's message; gives its payload and the keys. After a message that is
    /// not authentic another may be tried.
    ///
    /// # Errors
    /// [`CryptoError`] when it is not authentic: the other side does not hold the key.
    pub fn finish(&mut self, reply: &[u8]) -> Result<(Vec<u8>, Keys), CryptoError> {
        let payload = read(&mut self.0, reply)?;
        let (ours, theirs) = self.0.dangerously_get_raw_split();
        Ok((payload, Keys { sealer: Sealer::new(&ours), opener: Opener::new(&theirs) }))
    }
}

/// The end that answers.
pub struct Responder(HandshakeState);

impl Responder {
    /// Reads an initiator's first message; gives its payload.
    ///
    /// # Errors
    /// [`CryptoError`] when it is not authentic: the other side does not hold the key.
    pub fn accept(
        key: &SharedKey,
        seed: [u8; 32],
        prologue: &[u8],
        hello: &[u8],
    ) -> Result<(Self, Vec<u8>), CryptoError> {
        let mut state = noise(key, seed, prologue, |builder| builder.build_responder());
        let payload = read(&mut state, hello)?;
        Ok((Self(state), payload))
    }

    /// The answer with `payload` sealed inside, and the keys.
    pub fn reply(mut self, payload: &[u8]) -> (Vec<u8>, Keys) {
        let message = write(&mut self.0, payload);
        let (theirs, ours) = self.0.dangerously_get_raw_split();
        (message, Keys { sealer: Sealer::new(&ours), opener: Opener::new(&theirs) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> SharedKey {
        SharedKey::from_bytes([byte; 32])
    }

    #[test]
    fn both_ends_agree() {
        let mut initiator = Initiator::new(&key(1), [2; 32], b"test");
        let hello = initiator.hello(b"from here");
        let (responder, payload) = Responder::accept(&key(1), [3; 32], b"test", &hello).unwrap();
        assert_eq!(payload, b"from here");
        let (reply, there) = responder.reply(b"from there");
        let mut damaged = reply.clone();
        damaged[40] ^= 1;
        assert_eq!(initiator.finish(&damaged).err(), Some(CryptoError::Unauthentic));
        let (payload, here) = initiator.finish(&reply).unwrap();
        assert_eq!(payload, b"from there");
        for (sealer, opener) in [(&here.sealer, &there.opener), (&there.sealer, &here.opener)] {
            let mut sealed = b"secret".to_vec();
            let tag = sealer.seal(0, b"", &mut sealed);
            assert_ne!(sealed, b"secret");
            sealed.extend(tag);
            assert_eq!(opener.open(0, b"", &mut sealed).unwrap(), b"secret");
        }
    }

    #[test]
    fn another_key_prologue_or_a_changed_byte_is_refused() {
        let hello = Initiator::new(&key(1), [2; 32], b"test").hello(b"payload");
        let refused = |key: &SharedKey, prologue: &[u8], hello: &[u8]| {
            Responder::accept(key, [3; 32], prologue, hello).err()
        };
        assert_eq!(refused(&key(9), b"test", &hello), Some(CryptoError::Unauthentic));
        assert_eq!(refused(&key(1), b"tcp", &hello), Some(CryptoError::Unauthentic));
        assert_eq!(refused(&key(1), b"test", &hello[..20]), Some(CryptoError::Malformed));
        for i in 0..hello.len() {
            let mut changed = hello.clone();
            changed[i] ^= 0x40;
            assert_eq!(refused(&key(1), b"test", &changed), Some(CryptoError::Unauthentic));
        }
    }
}

//! The handshake, one round trip (Noise rev. 34), in one of two patterns:
//!
//! - `Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s`: both ends hold one key. It authenticates both from
//!   the first message on, and a responder refuses a stranger's after one hash and one AEAD
//!   operation, before any curve arithmetic.
//! - `Noise_IK_25519_ChaChaPoly_BLAKE2s`: each end has an identity, and the initiator knows the
//!   responder's.
//!
//! In both the ephemeral keys give forward secrecy.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};

use super::{Credentials, CryptoError, Keys, Opener, PublicKey, Sealer, TAG_LEN};

/// What the two ends prove themselves with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One key that both hold.
    Shared = 1,
    /// The identity of each.
    Static = 2,
}

impl Pattern {
    /// The one that these credentials are for.
    pub fn of(credentials: &Credentials) -> Self {
        match credentials {
            Credentials::Shared(_) => Self::Shared,
            Credentials::Static { .. } => Self::Static,
        }
    }

    /// Bytes that the first message adds to its payload: an ephemeral key, a sealed static one
    /// with its tag, and a tag.
    pub const fn hello_overhead(self) -> usize {
        match self {
            Self::Shared => KEY_LEN + TAG_LEN,
            Self::Static => KEY_LEN + KEY_LEN + TAG_LEN + TAG_LEN,
        }
    }

    /// Bytes that the second message adds to its payload.
    pub const REPLY_OVERHEAD: usize = KEY_LEN + TAG_LEN;

    const fn name(self) -> &'static str {
        match self {
            Self::Shared => "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s",
            Self::Static => "Noise_IK_25519_ChaChaPoly_BLAKE2s",
        }
    }
}

const KEY_LEN: usize = 32;
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

/// The state of one end. Every parameter is a constant or a key, so building it cannot fail.
fn noise(
    credentials: &Credentials,
    seed: [u8; 32],
    prologue: &[u8],
    initiates: bool,
) -> HandshakeState {
    let pattern = Pattern::of(credentials).name().parse().expect("the name is well formed");
    let builder = Builder::with_resolver(pattern, Box::new(Seeded(seed))).prologue(prologue);
    let build = |builder: Builder<'_>| {
        if initiates { builder.build_initiator() } else { builder.build_responder() }
    };
    let built = match credentials {
        Credentials::Shared(key) => builder.and_then(|b| b.psk(0, key.as_bytes())).and_then(build),
        Credentials::Static { identity, host, .. } => builder
            .and_then(|b| b.local_private_key(identity.private()))
            .and_then(|b| if initiates { b.remote_public_key(host.as_bytes()) } else { Ok(b) })
            .and_then(build),
    };
    built.expect("constant parameters and whole keys are accepted")
}

fn write(state: &mut HandshakeState, payload: &[u8], overhead: usize) -> Vec<u8> {
    let mut message = vec![0; payload.len() + overhead];
    let len = state.write_message(payload, &mut message).expect("our turn, and room enough");
    message.truncate(len);
    message
}

fn read(
    state: &mut HandshakeState,
    message: &[u8],
    overhead: usize,
) -> Result<Vec<u8>, CryptoError> {
    if !(overhead..=MAX_MESSAGE).contains(&message.len()) {
        return Err(CryptoError::Malformed);
    }
    let mut payload = vec![0; message.len()];
    let len = state.read_message(message, &mut payload).map_err(|_| CryptoError::Unauthentic)?;
    payload.truncate(len);
    Ok(payload)
}

fn peer(state: &HandshakeState) -> Option<PublicKey> {
    state.get_remote_static()?.try_into().ok().map(PublicKey::from_bytes)
}

/// The end that speaks first.
pub struct Initiator(HandshakeState, Pattern);

impl Initiator {
    /// Begins a handshake. `seed` must be fresh randomness; `prologue` names the protocol and
    /// must be equal at both ends.
    pub fn new(credentials: &Credentials, seed: [u8; 32], prologue: &[u8]) -> Self {
        Self(noise(credentials, seed, prologue, true), Pattern::of(credentials))
    }

    /// The first message, with `payload` sealed inside under long-lived keys alone (no forward
    /// secrecy for it). To be called once.
    pub fn hello(&mut self, payload: &[u8]) -> Vec<u8> {
        write(&mut self.0, payload, self.1.hello_overhead())
    }

    /// Reads the responder's message; gives its payload and the keys. After a message that is
    /// not authentic another may be tried.
    ///
    /// # Errors
    /// [`CryptoError`] when it is not authentic: the other side is not who it should be.
    pub fn finish(&mut self, reply: &[u8]) -> Result<(Vec<u8>, Keys), CryptoError> {
        let payload = read(&mut self.0, reply, Pattern::REPLY_OVERHEAD)?;
        let (ours, theirs) = self.0.dangerously_get_raw_split();
        let (sealer, opener) = (Sealer::new(&ours), Opener::new(&theirs));
        Ok((payload, Keys { sealer, opener, peer: peer(&self.0) }))
    }
}

/// The end that answers.
pub struct Responder(HandshakeState);

impl Responder {
    /// Reads an initiator's first message of the pattern that `credentials` are for; gives its
    /// payload.
    ///
    /// # Errors
    /// [`CryptoError`] when it is not authentic, or of somebody who is not let in.
    pub fn accept(
        credentials: &Credentials,
        seed: [u8; 32],
        prologue: &[u8],
        hello: &[u8],
    ) -> Result<(Self, Vec<u8>), CryptoError> {
        let mut state = noise(credentials, seed, prologue, false);
        let payload = read(&mut state, hello, Pattern::of(credentials).hello_overhead())?;
        if let Credentials::Static { allowed, .. } = credentials {
            let peer = peer(&state).ok_or(CryptoError::Unauthentic)?;
            if !allowed(&peer) {
                return Err(CryptoError::NotAllowed(peer));
            }
        }
        Ok((Self(state), payload))
    }

    /// The answer with `payload` sealed inside, and the keys.
    pub fn reply(mut self, payload: &[u8]) -> (Vec<u8>, Keys) {
        let message = write(&mut self.0, payload, Pattern::REPLY_OVERHEAD);
        let (theirs, ours) = self.0.dangerously_get_raw_split();
        let (sealer, opener) = (Sealer::new(&ours), Opener::new(&theirs));
        (message, Keys { sealer, opener, peer: peer(&self.0) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Identity, SharedKey};
    use super::*;

    fn shared(byte: u8) -> Credentials {
        SharedKey::from_bytes([byte; 32]).into()
    }

    fn identity(byte: u8) -> Identity {
        Identity::from_bytes([byte; 32])
    }

    fn client(of: u8, host: u8) -> Credentials {
        Credentials::client(identity(of), identity(host).public())
    }

    fn server(of: u8, lets_in: u8) -> Credentials {
        let client = identity(lets_in).public();
        Credentials::server(identity(of), Arc::new(move |key| *key == client))
    }

    #[test]
    fn both_ends_agree() {
        for (near, far) in [(shared(1), shared(1)), (client(1, 2), server(2, 1))] {
            let mut initiator = Initiator::new(&near, [2; 32], b"test");
            let hello = initiator.hello(b"from here");
            let (responder, payload) = Responder::accept(&far, [3; 32], b"test", &hello).unwrap();
            assert_eq!(payload, b"from here");
            let (reply, there) = responder.reply(b"from there");
            let mut damaged = reply.clone();
            damaged[40] ^= 1;
            assert_eq!(initiator.finish(&damaged).err(), Some(CryptoError::Unauthentic));
            let (payload, here) = initiator.finish(&reply).unwrap();
            assert_eq!(payload, b"from there");
            assert_eq!((here.peer, there.peer), (far.public(), near.public()));
            for (sealer, opener) in [(&here.sealer, &there.opener), (&there.sealer, &here.opener)] {
                let mut sealed = b"secret".to_vec();
                let tag = sealer.seal(0, b"", &mut sealed);
                assert_ne!(sealed, b"secret");
                sealed.extend(tag);
                assert_eq!(opener.open(0, b"", &mut sealed).unwrap(), b"secret");
            }
        }
    }

    #[test]
    fn another_key_prologue_or_a_changed_byte_is_refused() {
        for (near, far, others) in [
            (shared(1), shared(1), [shared(9), server(1, 1)]),
            (client(1, 2), server(2, 1), [server(9, 1), shared(1)]),
        ] {
            let hello = Initiator::new(&near, [2; 32], b"test").hello(&[7; 100]);
            let refused = |credentials: &Credentials, prologue: &[u8], hello: &[u8]| {
                Responder::accept(credentials, [3; 32], prologue, hello).err()
            };
            for other in others {
                assert_eq!(refused(&other, b"test", &hello), Some(CryptoError::Unauthentic));
            }
            assert_eq!(refused(&far, b"tcp", &hello), Some(CryptoError::Unauthentic));
            assert_eq!(refused(&far, b"test", &hello[..20]), Some(CryptoError::Malformed));
            for i in 0..hello.len() {
                let mut changed = hello.clone();
                changed[i] ^= 0x40;
                assert_eq!(refused(&far, b"test", &changed), Some(CryptoError::Unauthentic));
            }
        }
    }

    #[test]
    fn a_stranger_is_named_and_not_let_in() {
        let hello = Initiator::new(&client(7, 2), [2; 32], b"test").hello(b"");
        let error = Responder::accept(&server(2, 1), [3; 32], b"test", &hello).err();
        assert_eq!(error, Some(CryptoError::NotAllowed(identity(7).public())));
    }

    #[test]
    fn a_host_that_only_pretends_to_be_the_known_one_cannot_answer() {
        let mut initiator = Initiator::new(&client(1, 2), [2; 32], b"test");
        initiator.hello(b"");
        // It may make a handshake of its own, but not finish this one.
        let other = Initiator::new(&client(1, 9), [2; 32], b"test").hello(b"");
        let (responder, _) = Responder::accept(&server(9, 1), [3; 32], b"test", &other).unwrap();
        let (reply, _) = responder.reply(b"");
        assert_eq!(initiator.finish(&reply).err(), Some(CryptoError::Unauthentic));
    }
}

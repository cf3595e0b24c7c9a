//! Keys as they are written: the one that both ends share, and the pair that one end is known by.

use core::fmt;
use core::str::FromStr;

use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};

type Bytes = [u8; 32];

/// A text that is not the key it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a {0}")]
pub struct ParseKeyError(&'static str);

fn read_hex(text: &str) -> Option<Bytes> {
    let text = text.as_bytes();
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |d: u8| (d as char).to_digit(16);
        *byte = (digit(digits[0])? * 16 + digit(digits[1])?) as u8;
    }
    Some(bytes)
}

fn write_hex(bytes: &Bytes, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// 32 secret bytes that both ends hold. Written as 64 hexadecimal digits.
///
/// `Debug` does not show the secret; `Display` does, for writing the key file.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedKey(Bytes);

impl SharedKey {
    /// Takes 32 random bytes as a key.
    pub const fn from_bytes(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub(super) const fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

impl FromStr for SharedKey {
    type Err = ParseKeyError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = ParseKeyError(
            "shared key: expected 64 hexadecimal digits, as `longhaul keygen --shared` writes them",
        );
        read_hex(text.trim()).map(Self).ok_or(error)
    }
}

impl fmt::Display for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey(secret)")
    }
}

/// What others know an end by: an X25519 public key, short enough to be its own fingerprint.
/// Written as `x25519:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey(Bytes);

impl PublicKey {
    const PREFIX: &str = "x25519:";

    /// Takes a public key as it stands on the wire.
    pub const fn from_bytes(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The key as it stands on the wire.
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

impl FromStr for PublicKey {
    type Err = ParseKeyError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix(Self::PREFIX).and_then(read_hex);
        digits.map(Self).ok_or(ParseKeyError(
            "public key: expected x25519: and 64 hexadecimal digits, as `longhaul fingerprint` prints them",
        ))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::PREFIX)?;
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The key pair that an end is known by. Written as `x25519-private:` and 64 hexadecimal digits;
/// `Debug` does not show the secret, `Display` does.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    private: Bytes,
    public: PublicKey,
}

impl Identity {
    const PREFIX: &str = "x25519-private:";

    /// Takes 32 random bytes as the private key.
    pub fn from_bytes(private: Bytes) -> Self {
        let dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519);
        let mut dh = dh.expect("the library has X25519");
        dh.set(&private);
        let public = dh.pubkey().try_into().expect("an X25519 key has 32 bytes");
        Self { private, public: PublicKey(public) }
    }

    /// What others know this end by.
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    pub(super) const fn private(&self) -> &Bytes {
        &self.private
    }
}

impl FromStr for Identity {
    type Err = ParseKeyError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.trim().strip_prefix(Self::PREFIX).and_then(read_hex);
        digits.map(Self::from_bytes).ok_or(ParseKeyError(
            "private key: expected x25519-private: and 64 hexadecimal digits, as `longhaul keygen` writes them",
        ))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::PREFIX)?;
        write_hex(&self.private, f)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_round_trip_and_refuse_the_rest() {
        let key = SharedKey::from_bytes(core::array::from_fn(|i| i as u8 * 7));
        assert_eq!(format!(" {key}\n").parse(), Ok(key.clone()));
        for bad in ["".to_owned(), "zz".repeat(32), "é".repeat(32)] {
            assert!(bad.parse::<SharedKey>().is_err());
        }
        assert!(!format!("{key:?}").contains("07"));

        let identity = Identity::from_bytes([7; 32]);
        assert_eq!(format!("{identity}\n").parse(), Ok(identity.clone()));
        assert_eq!(identity.public().to_string().parse(), Ok(identity.public()));
        assert!(identity.public().to_string().parse::<Identity>().is_err());
        assert!(identity.to_string().parse::<PublicKey>().is_err());
        assert!(!format!("{identity:?}").contains("0707"));
    }

    #[test]
    fn a_public_key_is_what_openssl_makes_of_the_private_one() {
        let identity = Identity::from_bytes(core::array::from_fn(|i| i as u8));
        let expected = "x25519:8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f";
        assert_eq!(identity.public().to_string(), expected);
    }
}

//! The key that both ends hold.

use core::fmt;
use core::str::FromStr;

/// 32 secret bytes shared by both ends. Written as 64 hexadecimal digits.
///
/// `Debug` does not show the secret; `Display` does, for writing the key file.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedKey([u8; 32]);

impl SharedKey {
    /// Takes 32 random bytes as a key.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(super) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A text that is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a key: expected 64 hexadecimal digits, as `longhaul keygen` writes them")]
pub struct ParseKeyError;

impl FromStr for SharedKey {
    type Err = ParseKeyError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim().as_bytes();
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() {
            return Err(ParseKeyError);
        }
        for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |d: u8| (d as char).to_digit(16).ok_or(ParseKeyError);
            *byte = (digit(digits[0])? * 16 + digit(digits[1])?) as u8;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_refuses_the_rest() {
        let key = SharedKey::from_bytes(core::array::from_fn(|i| i as u8 * 7));
        assert_eq!(format!(" {key}\n").parse(), Ok(key.clone()));
        assert_eq!("".parse::<SharedKey>(), Err(ParseKeyError));
        assert_eq!("zz".repeat(32).parse::<SharedKey>(), Err(ParseKeyError));
        assert_eq!("é".repeat(32).parse::<SharedKey>(), Err(ParseKeyError));
        assert!(!format!("{key:?}").contains("07"));
    }
}

//! Tokens: what an end recognises as its own without having kept it, and nobody else can make.

use core::net::IpAddr;

use ring::{digest, hmac};

/// Length of a token.
pub const TOKEN_LEN: usize = 16;

/// A token.
pub type Token = [u8; TOKEN_LEN];

/// Makes tokens: the first bytes of HMAC-SHA256 under a secret of this end.
#[derive(Debug)]
pub struct Tokens(hmac::Key);

impl Tokens {
    /// Tokens under a secret.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Tokens under a secret that is made from another for one purpose.
    pub fn derived(secret: &[u8; 32], purpose: &[&[u8]]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, Self::new(secret).tag(purpose).as_ref()))
    }

    /// The token of these bytes, one part behind the other. All parts but the last must be of
    /// fixed length.
    pub fn token(&self, parts: &[&[u8]]) -> Token {
        *self.tag(parts).as_ref().first_chunk().expect("the tag is longer than a token")
    }

    fn tag(&self, parts: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        parts.iter().for_each(|part| context.update(part));
        context.sign()
    }
}

/// An address in the form that tokens are made of: IPv6, or IPv4 mapped into it.
pub(crate) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// What tells one datagram from every other: its SHA-256.
pub fn digest(datagram: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, datagram);
    *digest.as_ref().first_chunk().expect("as long as SHA-256 makes it")
}

/// Whether two tokens are equal, in a time that does not tell where they differ.
pub(crate) fn same(a: &Token, b: &Token) -> bool {
    a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

//! The checksums that clients ask for: HASH (draft-bryan-ftpext-hash) and the older X commands.

use digest::Digest;

/// A checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// CRC-32 of IEEE 802.3, against damage alone.
    Crc32,
    /// MD5, against damage alone.
    Md5,
    /// SHA-1, against damage alone.
    Sha1,
    /// SHA-256.
    #[default]
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// All of them, as FEAT lists them.
    pub const ALL: [Self; 5] = [Self::Crc32, Self::Md5, Self::Sha1, Self::Sha256, Self::Sha512];

    /// Its name in HASH.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha512 => "SHA-512",
        }
    }

    /// Finds one by that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// Begins a checksum.
    pub fn hasher(self) -> Hasher {
        match self {
            Self::Crc32 => Hasher::Crc32(crc32fast::Hasher::new()),
            Self::Md5 => Hasher::Md5(md5::Md5::new()),
            Self::Sha1 => Hasher::Sha1(sha1::Sha1::new()),
            Self::Sha256 => Hasher::Sha256(sha2::Sha256::new()),
            Self::Sha512 => Hasher::Sha512(sha2::Sha512::new()),
        }
    }
}

/// A checksum under way.
#[expect(missing_docs, reason = "named after what they hold")]
pub enum Hasher {
    Crc32(crc32fast::Hasher),
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

impl Hasher {
    /// Takes bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(hasher) => hasher.update(bytes),
            Self::Md5(hasher) => hasher.update(bytes),
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The checksum in hexadecimal.
    pub fn finish(self) -> String {
        match self {
            Self::Crc32(hasher) => format!("{:08x}", hasher.finalize()),
            Self::Md5(hasher) => hex(&hasher.finalize()),
            Self::Sha1(hasher) => hex(&hasher.finalize()),
            Self::Sha256(hasher) => hex(&hasher.finalize()),
            Self::Sha512(hasher) => hex(&hasher.finalize()),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standards() {
        let of = |algorithm: Algorithm| {
            let mut hasher = algorithm.hasher();
            hasher.update(b"a");
            hasher.update(b"bc");
            hasher.finish()
        };
        assert_eq!(of(Algorithm::Crc32), "352441c2");
        assert_eq!(of(Algorithm::Md5), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(of(Algorithm::Sha1), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert!(of(Algorithm::Sha256).starts_with("ba7816bf8f01cfea"));
        assert!(of(Algorithm::Sha512).starts_with("ddaf35a193617aba"));
        assert_eq!(Algorithm::named("sha-256"), Some(Algorithm::Sha256));
    }
}

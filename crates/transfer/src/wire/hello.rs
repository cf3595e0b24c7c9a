//! The first bytes of each side, by which two releases find out what both speak.
//!
//! | bytes | | |
//! |---|---|---|
//! | 0..8 | [`MAGIC`] | |
//! | 8..10 | the newest version that the side speaks | until version 4, the one that it spoke; it ended here |
//! | 10..12 | the oldest one | |
//! | 12..20 | features: a bit for each thing beyond the version that the side understands | none so far |
//!
//! All little endian, and the same in every version to come. Each side reckons from both hellos what
//! both speak: the newest version that is in both ranges. Where there is none, that is the end, and told.
//! A side that cannot do without something begins its range where that begins.
//!
//! Features that are not known are ignored, and so is what stands behind the fields of a message that are: a
//! later release adds fields at the end, and messages only for who has their feature. Until the other
//! side's hello is there, a side writes what the oldest version that it named understands.

use super::WireError;

/// The first bytes of each side.
pub const MAGIC: [u8; 8] = *b"longhaul";

/// Length of the hello.
pub const HELLO_LEN: usize = HELLO_START + 2 + 8;

/// So much tells whether the rest comes.
pub const HELLO_START: usize = MAGIC.len() + 2;

/// The first version whose hello has all of it.
const FIRST_RANGE: u16 = 5;

/// What this release understands beyond the version.
const FEATURES: u64 = 0;

/// Versions of the protocol that one side speaks.
pub type Versions = units::Versions<u16>;

/// What this release speaks.
pub const SPOKEN: Versions = Versions { oldest: 7, newest: 7 };

/// What is said to a side, once it has said what it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The newest version that both speak.
    pub version: u16,
    /// What that side understands beyond it, bits that mean nothing here included.
    pub features: u64,
}

/// The first bytes of a side that speaks these versions and understands these features.
pub fn hello_of(versions: Versions, features: u64) -> [u8; HELLO_LEN] {
    let (newest, oldest) = (versions.newest.to_le_bytes(), versions.oldest.to_le_bytes());
    let parts = [&MAGIC[..], &newest, &oldest, &features.to_le_bytes()];
    parts.concat().try_into().expect("the lengths are fixed")
}

/// The first bytes of this side.
pub fn hello() -> [u8; HELLO_LEN] {
    hello_of(SPOKEN, FEATURES)
}

/// Whether the other side's hello has all of its parts, by the first of them; an older one ends there,
/// and is refused.
pub fn check_start(start: &[u8; HELLO_START]) -> Result<(), WireError> {
    if !start.starts_with(&MAGIC) {
        return Err(WireError::Magic);
    }
    match number(&start[MAGIC.len()..]) {
        old if old < FIRST_RANGE => Err(WireError::Version(Versions { oldest: old, newest: old })),
        _ => Ok(()),
    }
}

/// What is spoken with a side that begins so.
pub fn check_hello(hello: &[u8; HELLO_LEN]) -> Result<Agreed, WireError> {
    let (start, rest) = hello.split_first_chunk().expect("it is longer");
    check_start(start)?;
    let (oldest, features) = rest.split_first_chunk().expect("it is longer");
    let features = u64::from_le_bytes(features.try_into().expect("the rest"));
    let oldest = u16::from_le_bytes(*oldest);
    let theirs = Versions { oldest, newest: number(&start[MAGIC.len()..]) };
    let version = SPOKEN.common(theirs).ok_or(WireError::Version(theirs))?;
    Ok(Agreed { version, features })
}

fn number(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(oldest: u16, newest: u16) -> Result<u16, WireError> {
        let hello = hello_of(Versions { oldest, newest }, u64::MAX);
        check_hello(&hello).map(|agreed| agreed.version)
    }

    #[test]
    fn releases_meet_where_their_ranges_do() {
        let Versions { oldest, newest } = SPOKEN;
        assert_eq!(check_hello(&hello()), Ok(Agreed { version: newest, features: FEATURES }));
        assert_eq!(heard(newest, newest + 7), Ok(newest));
        assert_eq!(heard(oldest, newest + 1), Ok(newest));
        let refused = |oldest, newest| Err(WireError::Version(Versions { oldest, newest }));
        assert_eq!(heard(newest + 1, newest + 2), refused(newest + 1, newest + 2));
        assert_eq!(heard(newest + 1, oldest), refused(newest + 1, oldest), "no range at all");
        assert_eq!(heard(0, FIRST_RANGE - 1), refused(FIRST_RANGE - 1, FIRST_RANGE - 1));
    }

    #[test]
    fn features_that_are_not_known_do_no_harm() {
        for features in [1, 1 << 63, u64::MAX] {
            let hello = hello_of(SPOKEN, features);
            let version = SPOKEN.newest;
            assert_eq!(check_hello(&hello), Ok(Agreed { version, features }));
        }
    }

    #[test]
    fn an_older_hello_is_told_by_its_start_and_others_are_none() {
        let refused = WireError::Version(Versions { oldest: 4, newest: 4 });
        assert_eq!(check_start(b"longhaul\x04\x00"), Err(refused));
        let said = refused.to_string();
        assert!(
            said.contains("speaks version 4 of") && said.contains("the same release"),
            "{said}"
        );
        assert_eq!(check_start(b"SSH-2.0-Op"), Err(WireError::Magic));
    }
}

//! Paths that cannot leave the tree they are relative to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The longest path carried, in bytes: Linux' `PATH_MAX` without its closing zero.
pub const PATH_MAX: usize = 4095;

/// The longest name in a path, in bytes: `NAME_MAX` of every common file system.
pub const NAME_MAX: usize = 255;

/// A path below a directory: names joined by single slashes, none of them `.` or `..`. The empty
/// path is the directory itself.
///
/// Every path from the network is parsed into this type before anything else sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawBytes", into = "RawBytes")]
pub struct RelPath(Vec<u8>);

/// Why bytes are no [`RelPath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Longer than [`PATH_MAX`], or a name longer than [`NAME_MAX`].
    #[error("the path is too long: shorten its names or move it up")]
    TooLong,
    /// A name is empty, `.` or `..`, or holds a zero byte, or the path begins or ends with a slash.
    #[error("the path would lead out of its folder: name it without `..`")]
    Unclean,
}

impl RelPath {
    /// Takes bytes that are already a clean relative path.
    pub fn new(bytes: Vec<u8>) -> Result<Self, PathError> {
        if bytes.len() > PATH_MAX {
            return Err(PathError::TooLong);
        }
        for name in names(&bytes) {
            if name.len() > NAME_MAX {
                return Err(PathError::TooLong);
            }
            if matches!(name, b"" | b"." | b"..") || name.contains(&0) {
                return Err(PathError::Unclean);
            }
        }
        Ok(Self(bytes))
    }

    /// Reads a path as people type it: slashes at its ends or doubled, and `.`, mean nothing.
    /// An absolute path counts from the served folder. `..` is refused.
    pub fn from_typed(bytes: &[u8]) -> Result<Self, PathError> {
        let kept: Vec<&[u8]> = names(bytes).filter(|name| !matches!(*name, b"" | b".")).collect();
        Self::new(kept.join(&b'/'))
    }

    /// This path and one more below it.
    pub fn join(&self, below: &[u8]) -> Result<Self, PathError> {
        if self.0.is_empty() || below.is_empty() {
            return Self::new([&self.0, below].concat());
        }
        Self::new([&self.0, b"/".as_slice(), below].concat())
    }

    /// The directory that holds this path, and its name there; `None` for the empty path.
    pub fn split(&self) -> Option<(&[u8], &OsStr)> {
        let (parent, name) = match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&self.0[..slash], &self.0[slash + 1..]),
            None => (&[][..], &self.0[..]),
        };
        (!name.is_empty()).then(|| (parent, OsStr::from_bytes(name)))
    }

    /// The same path with its first name replaced.
    pub fn with_first(&self, first: &OsStr) -> Result<Self, PathError> {
        let rest = self.0.iter().position(|&byte| byte == b'/').unwrap_or(self.0.len());
        Self::new([first.as_bytes(), &self.0[rest..]].concat())
    }

    /// Whether `other` lies below this path.
    pub fn is_above(&self, other: &Self) -> bool {
        match other.0.strip_prefix(&self.0[..]) {
            Some(rest) => rest.starts_with(b"/") || self.0.is_empty() && !rest.is_empty(),
            None => false,
        }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As a path of the standard library.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

/// The names of a path; the empty path has none.
pub(crate) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|_| !path.is_empty())
}

/// Bytes that travel as one piece. Reading them allocates no more than the frame they came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawBytes(pub Vec<u8>);

impl Serialize for RawBytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for RawBytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&[u8]>::deserialize(deserializer).map(|bytes| Self(bytes.to_vec()))
    }
}

impl TryFrom<RawBytes> for RelPath {
    type Error = PathError;

    fn try_from(raw: RawBytes) -> Result<Self, PathError> {
        Self::new(raw.0)
    }
}

impl From<RelPath> for RawBytes {
    fn from(path: RelPath) -> Self {
        Self(path.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for bad in ["/etc", "..", "a/../b", "a//b", "a/", "./a", "a\0b", "a/.."] {
            assert_eq!(RelPath::new(bad.into()), Err(PathError::Unclean), "{bad}");
        }
        assert_eq!(RelPath::new(vec![b'a'; 256]), Err(PathError::TooLong));
        assert_eq!(RelPath::new(b"a/".repeat(2048)), Err(PathError::TooLong));
        assert!(RelPath::new(b"...".to_vec()).is_ok());
    }

    #[test]
    fn typed_paths_count_from_the_served_folder() {
        let clean = |typed: &str| RelPath::from_typed(typed.as_bytes()).map(|path| path.0);
        assert_eq!(clean("//a/./b//"), Ok(b"a/b".to_vec()));
        assert_eq!(clean("/"), Ok(Vec::new()));
        assert_eq!(clean("a/../../b"), Err(PathError::Unclean));
    }

    #[test]
    fn taking_apart_and_joining() {
        let path = RelPath::new(b"a/b/c".to_vec()).unwrap();
        assert_eq!(path.split(), Some((&b"a/b"[..], OsStr::new("c"))));
        assert_eq!(path.with_first(OsStr::new("x")).unwrap().0, b"x/b/c");
        assert_eq!(path.join(b"d").unwrap().0, b"a/b/c/d");
        assert_eq!(RelPath::default().split(), None);
        assert!(RelPath::new(b"a/b".to_vec()).unwrap().is_above(&path));
        assert!(RelPath::default().is_above(&path));
        assert!(!path.is_above(&RelPath::default()));
        assert!(!RelPath::new(b"a/bb".to_vec()).unwrap().is_above(&path));
        assert!(!RelPath::new(b"a/b/cd".to_vec()).unwrap().is_above(&path));
        assert!(!path.is_above(&path));
    }
}

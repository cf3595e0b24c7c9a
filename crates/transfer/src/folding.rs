//! File systems that do not tell all names apart: capitals from small letters, or two ways to write one
//! character. There nothing of a transfer may take the place of something else of it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::Dir;

use crate::meta::{Meta, Shared};
use crate::relpath::RelPath;
use crate::temp::Temp;

/// Directories that are remembered on such a file system. Beyond, what was there before under a name in
/// other letters is not entered any more.
const ENTERED_MAX: usize = 1 << 20;

/// Why something does not come.
pub(crate) fn alias() -> io::Error {
    io::Error::other(
        "that file system cannot tell its name from another one there, which differs in case alone: \
         rename one of them at the source",
    )
}

/// Gives what is whole its final name, in place of what is called the same there, and of nothing else.
pub(crate) fn name(temp: &mut Temp, name: &OsStr) -> io::Result<()> {
    let directory = temp.directory();
    // The temporary name is random: in other letters nothing is called so.
    let folds = || in_other_case(temp.name()).is_some_and(|other| stands(directory, &other));
    if stands(directory, name) && folds() && !is_listed(directory, name) {
        return Err(alias());
    }
    Ok(temp.rename(name)?)
}

fn stands(directory: &OwnedFd, name: impl AsRef<OsStr>) -> bool {
    Meta::at(directory, name.as_ref()).is_ok()
}

/// A name with its ASCII letters in the other case; `None` when it has none.
fn in_other_case(name: &OsStr) -> Option<Box<OsStr>> {
    let swap = |byte: &u8| if byte.is_ascii_alphabetic() { byte ^ 0x20 } else { *byte };
    let other: Vec<u8> = name.as_bytes().iter().map(swap).collect();
    (other != name.as_bytes()).then(|| OsStr::from_bytes(&other).into())
}

/// Whether a directory lists exactly this name.
pub(crate) fn is_listed(directory: &OwnedFd, name: &OsStr) -> bool {
    let mut entries = Dir::read_from(directory).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_bytes() == name.as_bytes())
}

/// Directories that a transfer has entered, where another name might lead to them: their identities, and
/// hashes of the paths under which they were sent.
#[derive(Default)]
pub(crate) struct Entered(HashMap<Shared, u64>);

impl Entered {
    /// A directory stands there, for what is sent under this path; false when something else that was sent
    /// has it.
    pub fn enter(&mut self, parent: &OwnedFd, name: &OsStr, path: &RelPath) -> bool {
        let Some(there) = might_fold(parent, name) else { return true };
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let path = hasher.finish();
        match self.0.get(&there) {
            Some(sent) => *sent == path,
            None if self.0.len() >= ENTERED_MAX => is_listed(parent, name),
            None => {
                self.0.insert(there, path);
                true
            }
        }
    }

    /// Whether something that was sent has this directory.
    pub fn holds(&self, directory: &Shared) -> bool {
        self.0.contains_key(directory)
    }
}

/// What stands under a name, if another name might lead there too: one with letters is tried, of one that
/// has only others than those of ASCII nobody knows.
fn might_fold(parent: &OwnedFd, name: &OsStr) -> Option<Shared> {
    let identity = |name: &OsStr| Some(Meta::at(parent, name).ok()?.identity());
    match in_other_case(name) {
        Some(other) => identity(&other).filter(|there| identity(name) == Some(*there)),
        None if name.as_bytes().is_ascii() => None,
        None => identity(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_names_are_told_apart_no_directory_is_taken_for_another() {
        let folder = tempfile::tempdir().unwrap();
        let parent = OwnedFd::from(std::fs::File::open(folder.path()).unwrap());
        let mut entered = Entered::default();
        for name in ["Foo", "foo", "1", "ö", "Ö"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            for _ in 0..2 {
                let path = RelPath::new(name.into()).unwrap();
                assert!(entered.enter(&parent, OsStr::new(name), &path), "{name}");
            }
        }
        // Another path of the same directory, as where `a` and `b` differ in nothing for a file system.
        let other = RelPath::new(b"other".to_vec()).unwrap();
        assert!(!entered.enter(&parent, OsStr::new("ö"), &other));
        assert!(entered.enter(&parent, OsStr::new("Foo"), &other), "its name says that none does");
    }
}

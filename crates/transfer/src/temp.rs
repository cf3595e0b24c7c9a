//! Names for what is not whole yet.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::fs::{linkat, openat, readlink, renameat, unlinkat};
use rustix::io::Errno;

use crate::journal::TransferId;
use crate::relpath::{NAME_MAX, RelPath};

/// Why what has such a name is left alone.
pub(crate) const OWN: &str =
    "its name is one of a copy that is not done, by which the command that began it goes on";

/// In front of the number in each of our names.
const MARK: &[u8] = b".longhaul-";

/// Digits of a part's number at the least, and of a journal's.
const PART_DIGITS: usize = 17;
const JOURNAL_DIGITS: usize = 32;

/// Whether a name is one that is given here to a file that is not whole yet, or to a journal. There are file systems to
/// which capitals are the same.
pub fn is_temporary(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let numbered = |ending: &[u8]| {
        let name = name.strip_suffix(ending)?;
        let last = name.iter().rposition(|byte| !byte.is_ascii_hexdigit())?;
        let (begin, digits) = name.split_at(last + 1);
        begin.ends_with(MARK).then_some((begin, digits.len()))
    };
    let is_part = |(begin, digits): (&[u8], _)| begin.starts_with(b".") && digits >= PART_DIGITS;
    numbered(b".part").is_some_and(is_part) || numbered(b".journal") == Some((MARK, JOURNAL_DIGITS))
}

/// Whether something bears such a name; no directory is given one.
pub(crate) fn is_own(name: &[u8], kind: FileType) -> bool {
    kind != FileType::Directory && is_temporary(name)
}

/// Whether what has this path bears such a name.
pub(crate) fn bears_own(path: &RelPath, kind: FileType) -> bool {
    path.split().is_some_and(|(_, name)| is_own(name.as_bytes(), kind))
}

/// Whether an open file bears such a name where it stands, whatever link may have led to it.
pub(crate) fn is_own_file(file: &OwnedFd) -> bool {
    let path = readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new());
    let is_own = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().is_some_and(is_temporary);
    path.is_ok_and(|path| is_own(path.as_bytes()))
}

/// Makes temporary names that nobody else makes: a random number a sitting, and a count. Half of the number
/// is the transfer's, where a journal is kept of it.
pub struct Names {
    transfer: u64,
    made: u64,
}

impl Names {
    /// Names of a new transfer.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn new() -> io::Result<Self> {
        Ok(Self { transfer: getrandom::u64().map_err(io::Error::other)?, made: 0 })
    }

    /// Names of a sitting of this transfer.
    pub(crate) fn of(id: TransferId) -> io::Result<Self> {
        let Self { transfer, made } = Self::new()?;
        let transfer = u64::from(id.mark()) << 32 | transfer >> 32;
        Ok(Self { transfer, made })
    }

    /// Makes a file that has no name before [`Temp::appear`]; a temporary one from the start where
    /// that cannot be had.
    pub fn create_file(
        &mut self,
        directory: &Arc<OwnedFd>,
        name: &OsStr,
    ) -> io::Result<(OwnedFd, Temp)> {
        if let Ok(file) = nameless(directory) {
            return Ok((file, self.plan(directory, name)?));
        }
        self.create_named(directory, name)
    }

    /// A name for what is made only when its turn has come, by [`Temp::link_to`].
    pub(crate) fn plan(&mut self, directory: &Arc<OwnedFd>, name: &OsStr) -> io::Result<Temp> {
        let ((), mut temp) = self.create(directory, name, |_, _| Ok(()))?;
        temp.state = State::Nameless;
        Ok(temp)
    }

    /// Makes a file that has its temporary name from the start.
    pub(crate) fn create_named(
        &mut self,
        directory: &Arc<OwnedFd>,
        name: &OsStr,
    ) -> io::Result<(OwnedFd, Temp)> {
        const NEW: OFlags = OFlags::WRONLY
            .union(OFlags::CREATE)
            .union(OFlags::EXCL)
            .union(OFlags::NOFOLLOW)
            .union(OFlags::CLOEXEC);
        self.create(directory, name, |at, temporary| {
            openat(at, temporary, NEW, Mode::RUSR | Mode::WUSR)
        })
    }

    /// Makes something under `.NAME.longhaul-RANDOM.part`, or without NAME where that is too long.
    pub fn create<T>(
        &mut self,
        directory: &Arc<OwnedFd>,
        name: &OsStr,
        mut make: impl FnMut(&OwnedFd, &OsStr) -> rustix::io::Result<T>,
    ) -> io::Result<(T, Temp)> {
        let ending = format!(".longhaul-{:016x}{:x}.part", self.transfer, self.made);
        self.made += 1;
        let long = [b".", name.as_bytes(), ending.as_bytes()].concat();
        let short = OsStr::from_bytes(ending.as_bytes());
        let mut temporary = OsStr::from_bytes(&long);
        if temporary.len() > NAME_MAX {
            temporary = short;
        }
        let made = match make(directory, temporary) {
            Err(Errno::NAMETOOLONG) => {
                temporary = short;
                make(directory, temporary)?
            }
            done => done?,
        };
        let temp =
            Temp { directory: directory.clone(), name: temporary.to_owned(), state: State::Named };
        Ok((made, temp))
    }
}

/// A new file without a name, where the file system has such; its temporary name comes with
/// [`Temp::appear`].
pub(crate) fn nameless(directory: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(directory, c".", flags, Mode::RUSR | Mode::WUSR)
}

/// Gives a nameless file a name.
pub(crate) fn link(
    file: &impl AsRawFd,
    directory: &OwnedFd,
    name: &OsStr,
) -> rustix::io::Result<()> {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, open, directory, name, AtFlags::SYMLINK_FOLLOW)
}

/// Removes what a killed sitting of this transfer has left in a directory: a name that was about to become the
/// final one, of which no journal tells.
pub(crate) fn sweep(directory: &OwnedFd, id: TransferId, stays: impl Fn(&OsStr) -> bool) {
    let mark = format!(".longhaul-{:08x}", id.mark());
    let is_marked = |name: &[u8]| name.windows(mark.len()).any(|part| part == mark.as_bytes());
    // What cannot be read has been swept, or is noticed where it is written to.
    for entry in Dir::read_from(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_bytes();
        if name.ends_with(b".part") && is_marked(name) && !stays(OsStr::from_bytes(name)) {
            // One that cannot be removed harms nobody.
            let _ = unlinkat(directory, entry.file_name(), AtFlags::empty());
        }
    }
}

/// A name for what has to make room, which says whose it was.
pub(crate) fn aside(name: &OsStr) -> io::Result<OsString> {
    let ending = format!(".longhaul-{:016x}.old", getrandom::u64().map_err(io::Error::other)?);
    let room = NAME_MAX - ending.len();
    let begin = &name.as_bytes()[..name.len().min(room)];
    Ok(OsString::from_vec([begin, ending.as_bytes()].concat()))
}

/// A temporary name, removed when dropped unless it was renamed or is to stay.
pub struct Temp {
    directory: Arc<OwnedFd>,
    name: OsString,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// What it is for has no name yet, and vanishes with the process.
    Nameless,
    /// To be removed.
    Named,
    /// To stay, for a journal tells of it.
    Kept,
    /// Has become the final name.
    Renamed,
}

impl Temp {
    /// A name that was found, and stays.
    pub(crate) fn found(directory: Arc<OwnedFd>, name: OsString) -> Self {
        Self { directory, name, state: State::Kept }
    }

    /// Lets it stay when it is dropped, or be removed then.
    pub(crate) fn keep(&mut self, stays: bool) {
        self.state = match self.state {
            State::Named | State::Nameless if stays => State::Kept,
            State::Kept if !stays => State::Named,
            state => state,
        };
    }

    /// Whether it stays when it is dropped.
    pub(crate) fn is_kept(&self) -> bool {
        self.state == State::Kept
    }

    /// Gives a nameless file its temporary name, so that it can be renamed over another.
    pub fn appear(&mut self, file: &impl AsRawFd) -> rustix::io::Result<()> {
        match self.state {
            State::Nameless => {
                link(file, &self.directory, &self.name)?;
                self.state = State::Named;
            }
            // With the first claim of the journal it has appeared, if that could be written.
            State::Kept => match link(file, &self.directory, &self.name) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            },
            State::Named | State::Renamed => {}
        }
        Ok(())
    }

    /// Makes it one more name of a file there.
    pub(crate) fn link_to(&mut self, directory: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
        linkat(directory, name, &self.directory, &self.name, AtFlags::empty())?;
        self.state = State::Named;
        Ok(())
    }

    /// Gives it its final name in the same directory; a file there is replaced, a directory is not.
    pub fn rename(&mut self, name: &OsStr) -> rustix::io::Result<()> {
        renameat(&self.directory, &self.name, &self.directory, name)?;
        self.state = State::Renamed;
        Ok(())
    }

    /// The temporary name.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// The directory it is in.
    pub fn directory(&self) -> &Arc<OwnedFd> {
        &self.directory
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if self.state == State::Named {
            // Nothing more can be done about a name that cannot be removed.
            let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_made_here_are_known_and_those_of_others_are_theirs() {
        let is_own = |name: &[u8]| is_own(name, FileType::RegularFile);
        let folder = tempfile::tempdir().unwrap();
        let directory = Arc::new(OwnedFd::from(std::fs::File::open(folder.path()).unwrap()));
        let id = TransferId::of([&b"test"[..]]);
        let mut names = Names::of(id).unwrap();
        for name in ["x", &"x".repeat(NAME_MAX)] {
            let temp = names.plan(&directory, OsStr::new(name)).unwrap();
            let made = temp.name().as_bytes();
            assert!(is_own(made) && is_own(&made.to_ascii_uppercase()), "{name}");
            assert!(!super::is_own(made, FileType::Directory));
        }
        assert!(is_own(id.file_name().as_bytes()));
        let digits = |count| "0".repeat(count);
        for theirs in [
            format!(".x.longhaul-{}.part", digits(16)),
            format!("x.longhaul-{}.part", digits(17)),
            format!(".x.longhaul-{}x.part", digits(17)),
            format!(".longhaul-{}.journal", digits(31)),
            format!(".x.longhaul-{}.journal", digits(32)),
            ".longhaul-notes.part".into(),
            "of.longhaul-2026.journal".into(),
        ] {
            assert!(!is_own(theirs.as_bytes()), "{theirs}");
        }
    }
}

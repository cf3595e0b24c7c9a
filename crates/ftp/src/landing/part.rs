//! What was kept of a file: its name, its lock, and who may have it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, StatxFlags, Timespec, XattrFlags, fgetxattr, flock,
    fremovexattr, fsetxattr, openat, renameat, statx,
};
use rustix::io::Errno;
use transfer::{NAME_MAX, Names, Temp};

use crate::names::PARTIAL_ENDING;

/// Opens the kept part of a file to go on in it, where there is one.
pub(super) fn open_kept(directory: impl AsFd, name: &OsStr) -> io::Result<Option<File>> {
    open_part(directory, &partial_name(name))
}

fn open_part(directory: impl AsFd, part: &OsStr) -> io::Result<Option<File>> {
    match openat(directory, part, PART, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        file => {
            let file = File::from(file?);
            Ok(file.metadata()?.is_file().then_some(file))
        }
    }
}

/// What tells one file from all others.
pub(super) const INODE: StatxFlags = StatxFlags::INO;

/// How a kept part is opened.
const PART: OFlags =
    OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Has a new file take the place of the kept part, and locks it; false where another transfer goes on
/// in that.
pub(super) fn replace_part(
    temp: &mut Temp,
    file: &(impl AsFd + AsRawFd),
    name: &OsStr,
) -> io::Result<bool> {
    let part = partial_name(name);
    // Where there is none it is made first: who holds the lock of what has the name may replace it.
    let flags = PART | OFlags::CREATE;
    loop {
        let older = File::from(openat(temp.directory(), &part, flags, Mode::RUSR | Mode::WUSR)?);
        if !older.metadata()?.is_file() || is_in_use(&older) {
            return Ok(false);
        }
        if is_at(temp.directory(), &part, &older)? {
            temp.appear(file)?;
            locked(file);
            temp.rename(&part)?;
            return Ok(true);
        }
    }
}

/// Locks a kept part until it is closed; false where another transfer has it, or nothing can be locked.
pub(super) fn locked(file: &impl AsFd) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Whether another transfer goes on in a kept part; when not, none begins to while this is open, but where nothing can be
/// locked.
pub(super) fn is_in_use(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

/// Whether this very file stands under a name.
pub(super) fn is_at(directory: impl AsFd, name: &OsStr, file: &File) -> io::Result<bool> {
    is_found(directory, name, AtFlags::SYMLINK_NOFOLLOW, file)
}

/// The same, where a link may lead to it unless the flags say otherwise.
pub(super) fn is_found(
    directory: impl AsFd,
    name: &OsStr,
    flags: AtFlags,
    file: &File,
) -> io::Result<bool> {
    let inode = |stat: rustix::fs::Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    let there = match statx(directory, name, flags, INODE) {
        Err(Errno::NOENT) => return Ok(false),
        there => inode(there?),
    };
    Ok(there == inode(statx(file, c"", AtFlags::EMPTY_PATH, INODE)?))
}

/// Takes the kept part, which is this file, by giving it a temporary name that nobody else has.
pub(super) fn claim(directory: &Arc<OwnedFd>, part: &OsStr, file: &File) -> io::Result<Temp> {
    let take = |at: &OwnedFd, temporary: &OsStr| renameat(at, part, at, temporary);
    let ((), mut temp) = Names::new()?.create(directory, part, take)?;
    match is_at(directory, temp.name(), file) {
        Ok(true) => Ok(temp),
        other => {
            // Somebody has put another in its place, and may have it back; or nobody can tell.
            temp.rename(part)?;
            other?;
            Err(io::ErrorKind::NotFound.into())
        }
    }
}

/// Removes what was kept of a file; false when there is nothing, or a transfer goes on in it.
///
/// # Errors
/// When it cannot be removed.
pub(crate) fn forget(directory: impl AsFd, name: &OsStr) -> io::Result<bool> {
    forget_part(directory, &partial_name(name))
}

/// The same, by the name of the part itself.
///
/// # Errors
/// When it cannot be removed.
pub(crate) fn forget_part(directory: impl AsFd, part: &OsStr) -> io::Result<bool> {
    match open_part(&directory, part)? {
        Some(kept) => remove(directory, part, &kept),
        None => Ok(false),
    }
}

/// Removes this very file, where it still has the name of a part and no transfer goes on in it.
pub(super) fn remove(directory: impl AsFd, part: &OsStr, kept: &File) -> io::Result<bool> {
    if is_in_use(kept) || !is_at(&directory, part, kept)? {
        return Ok(false);
    }
    let directory = Arc::new(directory.as_fd().try_clone_to_owned()?);
    match claim(&directory, part, kept) {
        Ok(_removed_when_dropped) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// What was kept of a file, if something was: its size, and its time in seconds since 1970.
///
/// # Errors
/// Other than that there is nothing.
pub fn partial(directory: impl AsFd, name: &OsStr) -> io::Result<Option<(u64, i64)>> {
    match statx(directory, partial_name(name), AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
        Ok(stat) => Ok(Some((stat.stx_size, stat.stx_mtime.tv_sec))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The attribute that holds the [`mark`] of a part too, for file systems whose times are too coarse for it.
const MARK: &str = "user.longhaul.part";

/// The time that says of which file a part is: that of the file's last change, in seconds since 1970, with
/// a fraction that tells it from others of the same second, by where it is and how large.
pub(crate) fn mark(modified: i64, file: &[u8]) -> Timespec {
    // Counted as SMB and NTFS do.
    const STEP: u64 = 100;
    let mut hasher = crate::hash::Algorithm::Sha256.hasher();
    hasher.update(file);
    let digits = hasher.finish();
    let number = digits.get(..15).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let fraction = number.unwrap_or(0) % (1_000_000_000 / STEP) * STEP;
    Timespec { tv_sec: modified, tv_nsec: fraction as _ }
}

/// Whether what was kept is of the file with this [`mark`]: as it was said when it was kept, or else when
/// it began to come.
///
/// # Errors
/// Other than that there is nothing.
pub(crate) fn is_part_of(directory: impl AsFd, name: &OsStr, mark: Timespec) -> io::Result<bool> {
    let flags = StatxFlags::MTIME | StatxFlags::ATIME;
    let stat = match statx(&directory, partial_name(name), AtFlags::SYMLINK_NOFOLLOW, flags) {
        Err(Errno::NOENT) => return Ok(false),
        stat => stat?,
    };
    let is_dated = [stat.stx_mtime, stat.stx_atime]
        .iter()
        .any(|time| (time.tv_sec, i64::from(time.tv_nsec)) == (mark.tv_sec, mark.tv_nsec));
    let is_marked = |part: File| read_mark(&part) == Some(in_words(mark));
    Ok(is_dated || open_kept(directory, name).is_ok_and(|part| part.is_some_and(is_marked)))
}

fn in_words(mark: Timespec) -> String {
    format!("{}.{:09}", mark.tv_sec, mark.tv_nsec)
}

/// Says by its attribute of which file a part is, where there are such.
pub(super) fn write_mark(part: impl AsFd, mark: Timespec) {
    let _ = fsetxattr(part, MARK, in_words(mark).as_bytes(), XattrFlags::empty());
}

fn read_mark(part: impl AsFd) -> Option<String> {
    let mut mark = vec![0; 64];
    let length = fgetxattr(part, MARK, &mut mark[..]).ok()?;
    mark.truncate(length);
    String::from_utf8(mark).ok()
}

/// What is whole is no part.
pub(super) fn remove_mark(file: impl AsFd) {
    // Most have none.
    let _ = fremovexattr(file, MARK);
}

/// Whether this very file is what was kept.
///
/// # Errors
/// When nobody can tell.
pub(crate) fn is_kept(directory: impl AsFd, name: &OsStr, part: &File) -> io::Result<bool> {
    is_at(directory, &partial_name(name), part)
}

/// Opens it for reading.
///
/// # Errors
/// When there is nothing, or no file.
pub(crate) fn open_partial(directory: impl AsFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(directory, partial_name(name), flags, Mode::empty())?.into())
}

/// What is not whole yet is kept under this name.
pub(super) fn partial_name(name: &OsStr) -> OsString {
    let mut partial = OsString::from(".");
    if name.len() + 1 + PARTIAL_ENDING.len() <= NAME_MAX {
        partial.push(name);
    } else {
        // Too long to be told in full: a checksum tells such names apart.
        let mut hasher = crate::hash::Algorithm::Sha256.hasher();
        hasher.update(name.as_encoded_bytes());
        partial.push(hasher.finish());
    }
    partial.push(PARTIAL_ENDING);
    partial
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_time_are_told_apart() {
        let [one, same, other] = ["a 7", "a 7", "b 7"].map(|file| mark(77, file.as_bytes()));
        assert!(one == same && one != other);
        assert!(one.tv_sec == 77 && (0..1_000_000_000).contains(&one.tv_nsec));
    }

    #[test]
    fn long_names_have_parts_of_their_own() {
        let long = |last: &str| partial_name(OsStr::new(&("x".repeat(240) + last)));
        assert!(long("a").len() <= NAME_MAX && long("a") != long("b"));
        assert!(crate::names::is_partial(long("a").as_encoded_bytes()));
    }
}

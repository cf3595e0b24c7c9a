//! Where a file that arrives lands: under a temporary name, and under its own only when it is whole.
//!
//! What was cut is kept as `.NAME.longhaul.part`, so that the same command can resume it. A transfer
//! that resumes locks the kept part, so two never write to the same; it stays in its place until it is
//! whole, so that it outlives the process too.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    fchmod, flock, fsync, futimens, openat, renameat, statx,
};
use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use transfer::{NAME_MAX, Names, Temp};

use crate::data::Sink;
use crate::names::PARTIAL_ENDING;

/// A file that is arriving. Dropped, it leaves nothing behind but the kept part that it went on in.
pub struct Landing {
    file: tokio::fs::File,
    place: Place,
    name: OsString,
    /// With its first byte it becomes the kept part.
    lasts: bool,
    /// Bytes it began with.
    pub offset: u64,
}

/// Where it is until it has its name.
enum Place {
    /// Under a temporary name, or under none.
    New(Temp),
    /// It is the kept part, which it holds the lock of.
    Kept(Arc<OwnedFd>),
}

impl Landing {
    /// From its first byte.
    ///
    /// # Errors
    /// When the directory takes no new file.
    pub fn fresh(directory: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let (file, temp) = Names::new()?.create_file(&Arc::new(directory), name)?;
        Ok(Self::begun(file.into(), Place::New(temp), name, 0))
    }

    /// From a later byte of the file that is there, or else of what was kept of it: never of a part
    /// beside a file, for what is told of the name is told of the file.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when there are not so many bytes.
    pub fn resumed(directory: OwnedFd, name: &OsStr, offset: u64) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(&directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Self::kept(directory, name, offset),
            // Beside the old file, which stays whole until this one is.
            old => Self::copied(File::from(old?), Arc::new(directory), name, offset),
        }
    }

    /// From a later byte of what was kept.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when that has not so many bytes.
    pub fn kept(directory: OwnedFd, name: &OsStr, offset: u64) -> io::Result<Self> {
        let Some(mut file) = open_kept(&directory, name)? else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let directory = Arc::new(directory);
        if !locked(&file) {
            // Another transfer goes on in it. What it began with does not change any more.
            return Self::copied(file, directory, name, offset);
        }
        // Whoever held the lock before may have made it whole meanwhile.
        if file.metadata()?.len() < offset || !is_at(&directory, &partial_name(name), &file)? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        file.set_len(offset)?;
        file.seek(io::SeekFrom::Start(offset))?;
        Ok(Self::begun(file, Place::Kept(directory), name, offset))
    }

    /// Behind what there is: the file, or the kept part of one that is not there yet.
    ///
    /// # Errors
    /// As [`Landing::fresh`].
    pub fn appended(directory: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let there = match stat_at(&directory, name)? {
            None => partial(&directory, name)?,
            there => there,
        };
        match there {
            Some((size, _)) => Self::resumed(directory, name, size),
            None => Self::fresh(directory, name),
        }
    }

    /// In a new file that begins as another does.
    fn copied(old: File, directory: Arc<OwnedFd>, name: &OsStr, offset: u64) -> io::Result<Self> {
        if old.metadata()?.len() < offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (file, temp) = Names::new()?.create_file(&directory, name)?;
        let mut file = File::from(file);
        if io::copy(&mut old.take(offset), &mut file)? < offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self::begun(file, Place::New(temp), name, offset))
    }

    fn begun(file: File, place: Place, name: &OsStr, offset: u64) -> Self {
        let (file, name) = (tokio::fs::File::from_std(file), name.to_owned());
        Self { file, place, name, lasts: false, offset }
    }

    /// Has what comes stand as the kept part from its first byte on, so that it is there though the
    /// process is killed, and says of which time the file is that it is of. That is told by the time of
    /// the last access: writing changes the other.
    pub fn lasting(mut self, modified: Option<i64>) -> Self {
        let times = modified.map(|seconds| Timestamps {
            last_access: Timespec { tv_sec: seconds, tv_nsec: 0 },
            last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        });
        // A part of which this cannot be said is not gone on with by itself, and that is all.
        let _ = times.map(|times| futimens(&self.file, &times));
        self.lasts = true;
        self
    }

    /// Becomes the kept part, unless another transfer goes on in that.
    fn stand(&mut self) -> io::Result<()> {
        if let Place::New(temp) = &mut self.place
            && replace_part(temp, &self.file, &self.name)?
        {
            self.place = Place::Kept(temp.directory().clone());
        }
        Ok(())
    }

    /// It is whole: makes it durable and gives it its name. Blocks.
    ///
    /// # Errors
    /// When the disk fails, or a directory has the name; the old file is there still then.
    pub async fn install(mut self, modified: Option<i64>) -> io::Result<()> {
        self.file.flush().await?;
        let file = self.file.into_std().await;
        let (place, name) = (self.place, self.name);
        blocking(move || {
            let directory = place.directory().clone();
            let old = statx(&directory, &name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MODE);
            let mode = old.map_or_else(|_| new_file_mode(), |old| u32::from(old.stx_mode) & 0o777);
            fchmod(&file, Mode::from_raw_mode(mode))?;
            if let Some(seconds) = modified {
                let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
                futimens(&file, &Timestamps { last_access: now, ..modified_at(seconds) })?;
            }
            fsync(&file)?;
            match place {
                Place::New(mut temp) => {
                    temp.appear(&file)?;
                    temp.rename(&name)?;
                    // Beside a whole file an older part is never looked at.
                    let _ = forget(&directory, &name);
                }
                Place::Kept(_) => {
                    let part = partial_name(&name);
                    let mut temp = claim(&directory, &part, &file)?;
                    if let Err(error) = temp.rename(&name) {
                        // What came is to be gone on with still.
                        let _ = temp.rename(&part);
                        return Err(error.into());
                    }
                }
            }
            match fsync(&directory) {
                // Some file systems cannot sync a directory, and need not.
                Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
                synced => Ok(synced?),
            }
        })
        .await
    }

    /// It was cut: keeps what came, if anything did, with the time of the file that it is of.
    pub async fn keep(mut self, modified: Option<i64>) {
        // A disk that takes no more still holds what it took.
        let _ = self.file.flush().await;
        let file = self.file.into_std().await;
        let (place, name) = (self.place, self.name);
        // What cannot be kept is gone; the next transfer starts at its beginning.
        let _ = blocking(move || {
            if file.metadata()?.len() == 0 {
                return Ok(());
            }
            if let Some(seconds) = modified {
                futimens(&file, &modified_at(seconds))?;
            }
            if let Place::New(mut temp) = place {
                replace_part(&mut temp, &file, &name)?;
            }
            Ok(())
        })
        .await;
    }

    /// What came broke the rules and is not worth keeping; what it began with is.
    pub async fn discard(mut self) {
        let _ = self.file.flush().await;
        if let Place::Kept(_) = self.place {
            // A disk that cannot do this keeps a part whose checksum will not be right.
            let _ = self.file.set_len(self.offset).await;
        }
    }
}

impl Place {
    fn directory(&self) -> &Arc<OwnedFd> {
        match self {
            Self::New(temp) => temp.directory(),
            Self::Kept(directory) => directory,
        }
    }
}

impl Sink for Landing {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.lasts && !bytes.is_empty() {
            self.lasts = false;
            // Where it cannot, it lasts as long as this process.
            let _ = self.stand();
        }
        self.file.write_all(bytes).await
    }
}

/// Runs what waits for a disk where waiting is allowed.
///
/// # Errors
/// Those of the work.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Times for `futimens` that set the last change alone.
pub(crate) fn modified_at(seconds: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: 0 },
    }
}

/// Opens the kept part of a file to go on in it, where there is one.
fn open_kept(directory: impl AsFd, name: &OsStr) -> io::Result<Option<File>> {
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

/// How a kept part is opened.
const PART: OFlags =
    OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Has a new file take the place of the kept part, and locks it; false where another transfer goes on
/// in that.
fn replace_part(temp: &mut Temp, file: &(impl AsFd + AsRawFd), name: &OsStr) -> io::Result<bool> {
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
fn locked(file: &impl AsFd) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Whether another transfer goes on in a kept part; when not, none begins to while this is open.
fn is_in_use(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

/// Whether this very file stands under a name.
fn is_at(directory: impl AsFd, name: &OsStr, file: &File) -> io::Result<bool> {
    let inode = |stat: rustix::fs::Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    let there = match statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO) {
        Err(Errno::NOENT) => return Ok(false),
        there => inode(there?),
    };
    Ok(there == inode(statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)?))
}

/// Takes the kept part, which is this file, by giving it a temporary name that nobody else has.
fn claim(directory: &Arc<OwnedFd>, part: &OsStr, file: &File) -> io::Result<Temp> {
    let take = |at: &OwnedFd, temporary: &OsStr| renameat(at, part, at, temporary);
    let ((), mut temp) = Names::new()?.create(directory, part, take)?;
    if !is_at(directory, temp.name(), file)? {
        // Somebody has put another in its place, and may have it back.
        temp.rename(part)?;
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(temp)
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
fn remove(directory: impl AsFd, part: &OsStr, kept: &File) -> io::Result<bool> {
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
    stat_at(directory, &partial_name(name))
}

/// Whether what was kept is of a file that was changed last then, in seconds since 1970: as it was said
/// when it was kept, or else when it began to come.
///
/// # Errors
/// Other than that there is nothing.
pub(crate) fn is_part_of(directory: impl AsFd, name: &OsStr, modified: i64) -> io::Result<bool> {
    let flags = StatxFlags::MTIME | StatxFlags::ATIME;
    match statx(directory, partial_name(name), AtFlags::SYMLINK_NOFOLLOW, flags) {
        // A time that was set has whole seconds; one of the last write or look is of the part itself.
        Ok(stat) => Ok([stat.stx_mtime, stat.stx_atime]
            .iter()
            .any(|time| time.tv_sec == modified && time.tv_nsec == 0)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Opens it for reading.
///
/// # Errors
/// When there is nothing, or no file.
pub(crate) fn open_partial(directory: impl AsFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(directory, partial_name(name), flags, Mode::empty())?.into())
}

fn stat_at(directory: impl AsFd, name: &OsStr) -> io::Result<Option<(u64, i64)>> {
    match statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
        Ok(stat) => Ok(Some((stat.stx_size, stat.stx_mtime.tv_sec))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What is not whole yet is kept under this name.
fn partial_name(name: &OsStr) -> OsString {
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

/// What this process' umask leaves of a new file's permissions.
fn new_file_mode() -> u32 {
    let mut status = String::new();
    let read =
        File::open("/proc/self/status").and_then(|mut file| file.read_to_string(&mut status));
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let umask = umask.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
    0o666 & !umask.filter(|_| read.is_ok()).unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;

    fn open(folder: &Path) -> OwnedFd {
        File::open(folder).unwrap().into()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn nothing_has_the_name_before_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut landing = Landing::fresh(open(folder.path()), "a".as_ref()).unwrap();
        landing.write(b"one").await.unwrap();
        assert!(!names(folder.path()).contains(&"a".to_owned()));
        landing.install(Some(1_000_000)).await.unwrap();
        assert_eq!(names(folder.path()), ["a"]);
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"one");
    }

    #[tokio::test]
    async fn what_was_cut_is_kept_and_resumed() {
        let folder = tempfile::tempdir().unwrap();
        let name = OsStr::new("a");
        let mut landing = Landing::fresh(open(folder.path()), name).unwrap();
        landing.write(b"one two").await.unwrap();
        landing.keep(Some(77)).await;
        assert_eq!(names(folder.path()), [".a.longhaul.part"]);
        assert_eq!(partial(open(folder.path()), name).unwrap(), Some((7, 77)));
        let beyond = Landing::resumed(open(folder.path()), name, 8);
        assert_eq!(beyond.err().unwrap().kind(), io::ErrorKind::InvalidInput);
        let mut landing = Landing::resumed(open(folder.path()), name, 4).unwrap();
        landing.write(b"three").await.unwrap();
        landing.install(None).await.unwrap();
        assert_eq!(names(folder.path()), ["a"]);
        let mut landing = Landing::appended(open(folder.path()), name).unwrap();
        landing.write(b" four").await.unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"one three");
        landing.install(None).await.unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"one three four");
    }

    /// What an overwriting transfer left when it was cut is no part of the file that is there.
    #[tokio::test]
    async fn a_part_beside_a_file_is_not_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let (name, read) = (OsStr::new("a"), || fs::read(folder.path().join("a")).unwrap());
        fs::write(folder.path().join("a"), b"one").unwrap();
        fs::write(folder.path().join(".a.longhaul.part"), b"something else").unwrap();
        let mut landing = Landing::appended(open(folder.path()), name).unwrap();
        landing.write(b" two").await.unwrap();
        landing.install(None).await.unwrap();
        assert_eq!(read(), b"one two");
        assert_eq!(names(folder.path()), ["a"]);
        fs::write(folder.path().join(".a.longhaul.part"), b"something else").unwrap();
        let beyond = Landing::resumed(open(folder.path()), name, 8);
        assert_eq!(beyond.err().unwrap().kind(), io::ErrorKind::InvalidInput);
        let mut landing = Landing::resumed(open(folder.path()), name, 3).unwrap();
        landing.write(b" three").await.unwrap();
        landing.install(None).await.unwrap();
        assert_eq!(read(), b"one three");
        // A client knows which of the two it asks for.
        fs::write(folder.path().join(".a.longhaul.part"), b"else").unwrap();
        let mut landing = Landing::kept(open(folder.path()), name, 4).unwrap();
        landing.write(b"where").await.unwrap();
        landing.install(None).await.unwrap();
        assert_eq!(read(), b"elsewhere");
    }

    #[tokio::test]
    async fn two_do_not_write_to_the_same_part() {
        let folder = tempfile::tempdir().unwrap();
        let name = OsStr::new("a");
        fs::write(folder.path().join(".a.longhaul.part"), b"one").unwrap();
        let mut first = Landing::kept(open(folder.path()), name, 3).unwrap();
        first.write(b" two").await.unwrap();
        // As it stands there while the first goes on, and when the process is killed.
        assert_eq!(names(folder.path()), [".a.longhaul.part"]);
        let mut second = Landing::resumed(open(folder.path()), name, 3).unwrap();
        second.write(b" three").await.unwrap();
        assert!(!forget(open(folder.path()), name).unwrap(), "the first goes on in it");
        second.keep(None).await;
        first.keep(None).await;
        assert_eq!(fs::read(folder.path().join(".a.longhaul.part")).unwrap(), b"one two");
        let mut first = Landing::kept(open(folder.path()), name, 7).unwrap();
        first.write(b" more").await.unwrap();
        let second = Landing::kept(open(folder.path()), name, 7).unwrap();
        second.install(None).await.unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"one two");
        first.discard().await;
        assert_eq!(fs::read(folder.path().join(".a.longhaul.part")).unwrap(), b"one two");
        assert!(forget(open(folder.path()), name).unwrap());
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[tokio::test]
    async fn a_part_that_was_removed_does_not_become_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (name, part) = (OsStr::new("a"), folder.path().join(".a.longhaul.part"));
        fs::write(&part, b"one").unwrap();
        let landing = Landing::kept(open(folder.path()), name, 3).unwrap();
        fs::remove_file(&part).unwrap();
        fs::write(&part, b"another").unwrap();
        assert!(landing.install(None).await.is_err());
        assert_eq!(names(folder.path()), [".a.longhaul.part"]);
        assert_eq!(fs::read(&part).unwrap(), b"another");
    }

    #[test]
    fn only_what_was_looked_at_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, part) = (open(folder.path()), folder.path().join(".a.longhaul.part"));
        fs::write(&part, b"one").unwrap();
        let old = open_kept(&directory, "a".as_ref()).unwrap().unwrap();
        fs::remove_file(&part).unwrap();
        fs::write(&part, b"another").unwrap();
        assert!(!remove(&directory, &partial_name("a".as_ref()), &old).unwrap());
        let taken = claim(&Arc::new(open(folder.path())), ".a.longhaul.part".as_ref(), &old);
        assert_eq!(taken.err().unwrap().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read(&part).unwrap(), b"another");
        assert!(forget(&directory, "a".as_ref()).unwrap());
        assert!(names(folder.path()).is_empty());
    }

    /// As when the process is killed: nobody keeps it, and nobody says what it is of.
    #[tokio::test]
    async fn what_lasts_is_there_from_its_first_byte_on_and_known_by_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, name) = (open(folder.path()), OsStr::new("a"));
        let of = |time| is_part_of(open(folder.path()), name, time).unwrap();
        fs::write(folder.path().join(".a.longhaul.part"), b"older").unwrap();
        let mut landing =
            Landing::fresh(open(folder.path()), name).unwrap().lasting(Some(1_000_000));
        assert!(!of(1_000_000), "nothing has come of it");
        landing.write(b"one").await.unwrap();
        assert!(!forget(&directory, name).unwrap(), "it goes on");
        landing.file.flush().await.unwrap();
        drop(landing);
        assert_eq!(names(folder.path()), [".a.longhaul.part"]);
        assert_eq!(partial(&directory, name).unwrap().unwrap().0, 3);
        assert!(of(1_000_000) && !of(1_000_001));
        let mut landing =
            Landing::kept(open(folder.path()), name, 3).unwrap().lasting(Some(1_000_000));
        landing.write(b" two").await.unwrap();
        landing.file.flush().await.unwrap();
        drop(landing);
        assert!(of(1_000_000));
        let landing = Landing::kept(open(folder.path()), name, 7).unwrap();
        landing.install(Some(77)).await.unwrap();
        assert_eq!(names(folder.path()), ["a"]);
        let metadata = fs::metadata(folder.path().join("a")).unwrap();
        assert_eq!((metadata.mtime(), metadata.atime() > 1_000_000), (77, true));
    }

    #[tokio::test]
    async fn what_lasts_leaves_a_part_alone_that_another_goes_on_in() {
        let folder = tempfile::tempdir().unwrap();
        let name = OsStr::new("a");
        let fresh = || Landing::fresh(open(folder.path()), name).unwrap().lasting(None);
        let (mut first, mut second) = (fresh(), fresh());
        first.write(b"first").await.unwrap();
        second.write(b"second").await.unwrap();
        first.keep(None).await;
        second.install(None).await.unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["a"], "a part of it is of no use any more");
    }

    #[tokio::test]
    async fn nothing_is_left_of_what_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let mut landing = Landing::fresh(open(folder.path()), "a".as_ref()).unwrap();
        landing.write(b"one").await.unwrap();
        drop(landing);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn long_names_have_parts_of_their_own() {
        let long = |last: &str| partial_name(OsStr::new(&("x".repeat(240) + last)));
        assert!(long("a").len() <= NAME_MAX && long("a") != long("b"));
        assert!(crate::names::is_partial(long("a").as_encoded_bytes()));
    }
}

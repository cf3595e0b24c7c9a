//! Where a file that arrives lands: under a temporary name, and under its own only when it is whole.
//!
//! What was cut is kept as `.NAME.longhaul.part`, so that the same command can resume it. A transfer
//! that resumes takes the kept part for itself by renaming it, so two never write to the same.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, fsync, futimens,
    openat, renameat, statx, unlinkat,
};
use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use transfer::{NAME_MAX, Names, Temp};

use crate::data::Sink;
use crate::names::PARTIAL_ENDING;

/// A file that is arriving. Dropped, it leaves nothing behind.
pub struct Landing {
    file: tokio::fs::File,
    temp: Temp,
    name: OsString,
    /// Bytes it began with.
    pub offset: u64,
}

impl Landing {
    /// From its first byte.
    ///
    /// # Errors
    /// When the directory takes no new file.
    pub fn fresh(directory: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let (file, temp) = Names::new()?.create_file(&Arc::new(directory), name)?;
        Ok(Self::begun(file.into(), temp, name, 0))
    }

    /// From a later byte, with what is before taken from the kept part, or else from the file that
    /// is there.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when neither has so many bytes.
    pub fn resumed(directory: OwnedFd, name: &OsStr, offset: u64) -> io::Result<Self> {
        let directory = Arc::new(directory);
        let mut names = Names::new()?;
        if let Some((file, mut temp)) = claim(&mut names, &directory, name)? {
            if file.metadata()?.len() >= offset {
                return Self::cut_to(file, temp, name, offset);
            }
            temp.rename(&partial_name(name))?;
        }
        // Beside the old file, which stays whole until this one is.
        let old = openat(
            &directory,
            name,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let old = match old {
            Err(Errno::NOENT) => return Err(io::ErrorKind::InvalidInput.into()),
            old => File::from(old?),
        };
        if old.metadata()?.len() < offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (file, temp) = names.create_file(&directory, name)?;
        let mut file = File::from(file);
        io::copy(&mut old.take(offset), &mut file)?;
        Self::cut_to(file, temp, name, offset)
    }

    /// Behind what there is: the kept part of a file that is not there yet, or the file.
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

    fn cut_to(mut file: File, temp: Temp, name: &OsStr, offset: u64) -> io::Result<Self> {
        file.set_len(offset)?;
        file.seek(io::SeekFrom::Start(offset))?;
        Ok(Self::begun(file, temp, name, offset))
    }

    fn begun(file: File, temp: Temp, name: &OsStr, offset: u64) -> Self {
        Self { file: tokio::fs::File::from_std(file), temp, name: name.to_owned(), offset }
    }

    /// It is whole: makes it durable and gives it its name. Blocks.
    ///
    /// # Errors
    /// When the disk fails, or a directory has the name; the old file is there still then.
    pub async fn install(mut self, modified: Option<i64>) -> io::Result<()> {
        self.file.flush().await?;
        let file = self.file.into_std().await;
        let (mut temp, name) = (self.temp, self.name);
        blocking(move || {
            let directory = temp.directory().clone();
            let old = statx(&directory, &name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MODE);
            let mode = old.map_or_else(|_| new_file_mode(), |old| u32::from(old.stx_mode) & 0o777);
            fchmod(&file, Mode::from_raw_mode(mode))?;
            if let Some(seconds) = modified {
                futimens(&file, &modified_at(seconds))?;
            }
            fsync(&file)?;
            temp.appear(&file)?;
            temp.rename(&name)?;
            match unlinkat(&directory, partial_name(&name), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
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
        let (mut temp, name) = (self.temp, self.name);
        // What cannot be kept is gone; the next transfer starts at its beginning.
        let _ = blocking(move || {
            if file.metadata()?.len() > 0 {
                if let Some(seconds) = modified {
                    futimens(&file, &modified_at(seconds))?;
                }
                temp.appear(&file)?;
                temp.rename(&partial_name(&name))?;
            }
            Ok(())
        })
        .await;
    }
}

impl Sink for Landing {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
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

/// Takes the kept part by giving it a temporary name that nobody else has.
fn claim(
    names: &mut Names,
    directory: &Arc<OwnedFd>,
    name: &OsStr,
) -> io::Result<Option<(File, Temp)>> {
    let partial = partial_name(name);
    let claimed =
        names.create(directory, name, |at, temporary| renameat(at, &partial, at, temporary));
    let ((), temp) = match claimed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        claimed => claimed?,
    };
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(directory, temp.name(), flags, Mode::empty())?);
    Ok(file.metadata()?.is_file().then_some((file, temp)))
}

/// What was kept of a file, if something was: its size, and its time in seconds since 1970.
///
/// # Errors
/// Other than that there is nothing.
pub fn partial(directory: impl AsFd, name: &OsStr) -> io::Result<Option<(u64, i64)>> {
    stat_at(directory, &partial_name(name))
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

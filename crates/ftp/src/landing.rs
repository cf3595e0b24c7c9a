//! Where a file that arrives lands: under a temporary name, and under its own only when it is whole.
//!
//! What was cut is kept as `.NAME.longhaul.part`, so that the same command can resume it. A transfer
//! that resumes locks the kept part, so two never write to the same; it stays in its place until it is
//! whole, so that it outlives the process too.

mod part;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, StatxFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, fchmod, flock, fsync, futimens, statx,
};
use rustix::io::Errno;
use tokio::io::AsyncWriteExt;
use transfer::{Names, Temp};

use crate::data::Sink;
use part::{
    INODE, claim, is_at, is_found, is_in_use, locked, open_kept, partial_name, remove, remove_mark,
    replace_part, write_mark,
};

pub use part::partial;
pub(crate) use part::{forget, forget_part, is_kept, is_part_of, mark, open_partial};

/// A file that is arriving. Dropped, it leaves nothing behind but the kept part that it went on in.
pub struct Landing {
    file: tokio::fs::File,
    place: Place,
    name: OsString,
    before: Before,
    /// With its first byte it becomes the kept part.
    lasts: bool,
    /// The permissions of the file that it began with.
    mode: Option<u32>,
    /// Bytes it began with.
    pub offset: u64,
}

/// Whether somebody still waits for what takes long.
pub type Wanted<'a> = &'a dyn Fn() -> bool;

/// So many bytes are copied before that is asked again.
const COPIED_AT_ONCE: u64 = 64 << 20;

/// Where it is until it has its name.
enum Place {
    /// Under a temporary name, or under none.
    New(Temp),
    /// It is the kept part, which it holds the lock of.
    Kept(Kept),
}

/// A kept part that a transfer goes on in; not kept where nothing is in it.
struct Kept {
    directory: Arc<OwnedFd>,
    part: OsString,
    file: File,
    /// Something was written to it, which may not be there yet.
    written: bool,
}

/// What has to have the name still when this takes it: anything else is what somebody else was told is
/// safe.
enum Before {
    Anything,
    Nothing,
    /// This file, whose lock it holds, and of this size.
    File(File, u64),
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

    /// From its first byte, of a file that is not there. It is the kept part from here on, so that
    /// nobody else begins one.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] when somebody has begun one, or it is there.
    pub fn first(directory: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let mut landing = Self::fresh(directory, name)?;
        landing.before = Before::Nothing;
        landing.stand()?;
        landing.alone()
    }

    /// From a later byte of the file that is there, or else of what was kept of it: never of a part
    /// beside a file, for what is told of the name is told of the file.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when there are not so many bytes, [`io::ErrorKind::Interrupted`] when this is not
    /// `wanted` any more.
    pub fn resumed(
        directory: OwnedFd,
        name: &OsStr,
        old: Option<File>,
        offset: u64,
        wanted: Wanted<'_>,
    ) -> io::Result<Self> {
        match old {
            // Beside the old file, which stays whole until this one is.
            Some(old) => Self::beside(&old, directory, name, offset, wanted),
            None => Self::kept(directory, name, offset, wanted),
        }
    }

    /// From a later byte of what was kept.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when that has not so many bytes, [`io::ErrorKind::Interrupted`] when this is not
    /// `wanted` any more.
    pub fn kept(
        directory: OwnedFd,
        name: &OsStr,
        offset: u64,
        wanted: Wanted<'_>,
    ) -> io::Result<Self> {
        let Some(mut file) = open_kept(&directory, name)? else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let directory = Arc::new(directory);
        if !locked(&file) {
            // Another transfer goes on in it. What came is taken back only if it broke the rules.
            return Self::copied(&file, directory, name, offset, wanted);
        }
        // Whoever held the lock before may have made it whole meanwhile.
        if file.metadata()?.len() < offset || !is_at(&directory, &partial_name(name), &file)? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        file.set_len(offset)?;
        file.seek(io::SeekFrom::Start(offset))?;
        let place = Place::Kept(Kept::new(directory, name, &file)?);
        Ok(Self::begun(file, place, name, offset))
    }

    /// Behind what there is: the old file, or the kept part of one that is not there yet.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] when somebody else appends there, [`io::ErrorKind::Interrupted`] when this is not
    /// `wanted` any more.
    pub fn appended(
        directory: OwnedFd,
        name: &OsStr,
        old: Option<File>,
        wanted: Wanted<'_>,
    ) -> io::Result<Self> {
        let landing = match (old, partial(&directory, name)?) {
            (Some(old), _) => {
                if is_in_use(&old) {
                    return Err(io::ErrorKind::ResourceBusy.into());
                }
                let size = old.metadata()?.len();
                let mut landing = Self::beside(&old, directory, name, size, wanted)?;
                landing.before = Before::File(old, size);
                landing
            }
            (None, Some((size, _))) => {
                let mut landing = Self::kept(directory, name, size, wanted)?;
                landing.before = Before::Nothing;
                landing
            }
            (None, None) => return Self::first(directory, name),
        };
        landing.alone()
    }

    /// Unless somebody else has begun one, or had made one whole by the time that this had its lock.
    fn alone(self) -> io::Result<Self> {
        let may_go_on = match (&self.before, &self.place) {
            (Before::Nothing, Place::New(_)) => false,
            (before, place) => before.is_at(place.directory(), &self.name)?,
        };
        may_go_on.then_some(self).ok_or(io::ErrorKind::ResourceBusy.into())
    }

    /// In a new file that begins as the old one does, and is for the same eyes.
    fn beside(
        old: &File,
        directory: OwnedFd,
        name: &OsStr,
        offset: u64,
        wanted: Wanted<'_>,
    ) -> io::Result<Self> {
        let mode = Some(old.metadata()?.mode());
        Ok(Self { mode, ..Self::copied(old, Arc::new(directory), name, offset, wanted)? })
    }

    /// In a new file that begins as another does.
    fn copied(
        old: &File,
        directory: Arc<OwnedFd>,
        name: &OsStr,
        offset: u64,
        wanted: Wanted<'_>,
    ) -> io::Result<Self> {
        if old.metadata()?.len() < offset {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (file, temp) = Names::new()?.create_file(&directory, name)?;
        let mut file = File::from(file);
        let mut left = offset;
        while left > 0 {
            if !wanted() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let piece = left.min(COPIED_AT_ONCE);
            if io::copy(&mut old.take(piece), &mut file)? < piece {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            left -= piece;
        }
        Ok(Self::begun(file, Place::New(temp), name, offset))
    }

    fn begun(file: File, place: Place, name: &OsStr, offset: u64) -> Self {
        let (file, name) = (tokio::fs::File::from_std(file), name.to_owned());
        Self { file, place, name, before: Before::Anything, lasts: false, mode: None, offset }
    }

    /// Has what comes stand as the kept part from its first byte on, so that it is there though the
    /// process is killed, and says by a [`mark`] of which file it is. That is told by the time of the last
    /// access, for writing changes the other, and by an attribute.
    pub(crate) fn lasting(mut self, mark: Option<Timespec>) -> Self {
        if let Some(mark) = mark {
            // A part of which this cannot be said is not gone on with by itself, and that is all.
            let _ = futimens(&self.file, &Timestamps { last_access: mark, ..UNTOUCHED });
            write_mark(&self.file, mark);
        }
        self.lasts = true;
        self
    }

    /// Becomes the kept part, unless another transfer goes on in that.
    fn stand(&mut self) -> io::Result<()> {
        if let Place::New(temp) = &mut self.place {
            let kept = Kept::new(temp.directory().clone(), &self.name, &self.file)?;
            if replace_part(temp, &self.file, &self.name)? {
                self.place = Place::Kept(kept);
            }
        }
        Ok(())
    }

    /// It is whole: makes it durable and gives it its name.
    ///
    /// # Errors
    /// When the disk fails, or a directory has the name; the old file is there still then.
    /// [`io::ErrorKind::ResourceBusy`] when somebody has changed what this went on from.
    pub async fn install(mut self, modified: Option<i64>) -> io::Result<()> {
        self.file.flush().await?;
        let file = self.file.into_std().await;
        let (place, name, before, mode) = (self.place, self.name, self.before, self.mode);
        blocking(move || {
            let directory = place.directory().clone();
            fchmod(&file, mode_for(&directory, &name, mode))?;
            remove_mark(&file);
            if let Some(seconds) = modified {
                let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
                futimens(&file, &Timestamps { last_access: now, ..modified_at(seconds) })?;
            }
            let forget_kept = || {
                if let Place::Kept(kept) = &place {
                    let _ = remove(&kept.directory, &kept.part, &kept.file);
                }
            };
            fsync(&file).inspect_err(|_| {
                // Nobody knows what the disk has lost of it: it is not to be gone on with, nor to be found whole later.
                forget_kept();
            })?;
            if !before.is_at(&directory, &name)? {
                // Beside a whole file it is never looked at.
                forget_kept();
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            match place {
                Place::New(mut temp) => {
                    temp.appear(&file)?;
                    temp.rename(&name)?;
                    // Beside a whole file an older part is never looked at.
                    let _ = forget(&directory, &name);
                }
                Place::Kept(kept) => {
                    let mut temp = claim(&directory, &kept.part, &file)?;
                    if let Err(error) = temp.rename(&name) {
                        // What came is to be gone on with still.
                        let _ = temp.rename(&kept.part);
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

    /// It was cut: keeps what came, if anything did, with the [`mark`] of the file that it is of. Gives what
    /// is kept, for others to go on in.
    pub(crate) async fn keep(mut self, mark: Option<Timespec>) -> Option<File> {
        // A disk that takes no more still holds what it took.
        let _ = self.file.flush().await;
        let file = self.file.into_std().await;
        let (mut place, name) = (self.place, self.name);
        // What cannot be kept is gone; the next transfer starts at its beginning.
        let kept = blocking(move || {
            if file.metadata()?.len() == 0 {
                if let Place::Kept(kept) = &mut place {
                    kept.written = false;
                }
                return Ok(None);
            }
            if let Some(mark) = mark {
                // A part of which this cannot be said is not gone on with by itself, and that is all.
                let _ = futimens(&file, &Timestamps { last_modification: mark, ..UNTOUCHED });
            }
            if let Place::New(mut temp) = place {
                replace_part(&mut temp, &file, &name)?;
            }
            // Where that fails nothing was locked.
            let _ = flock(&file, FlockOperation::Unlock);
            Ok(Some(file))
        });
        kept.await.ok().flatten()
    }

    /// What came broke the rules and is not worth keeping; what it began with is.
    pub async fn discard(mut self) {
        let _ = self.file.flush().await;
        if let Place::Kept(kept) = &mut self.place {
            // A disk that cannot do this keeps a part whose checksum will not be right.
            kept.written = self.file.set_len(self.offset).await.is_err();
        }
    }
}

impl Place {
    fn directory(&self) -> &Arc<OwnedFd> {
        match self {
            Self::New(temp) => temp.directory(),
            Self::Kept(kept) => &kept.directory,
        }
    }
}

impl Kept {
    fn new(directory: Arc<OwnedFd>, name: &OsStr, file: &impl AsFd) -> io::Result<Self> {
        let file = file.as_fd().try_clone_to_owned()?.into();
        Ok(Self { directory, part: partial_name(name), file, written: false })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.written && self.file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            // It may have its final name by now. One that cannot be removed is of an empty file.
            let _ = remove(&self.directory, &self.part, &self.file);
        }
    }
}

impl Before {
    /// Whether it has this name still, itself or by a link.
    fn is_at(&self, directory: &OwnedFd, name: &OsStr) -> io::Result<bool> {
        match self {
            Self::Anything => Ok(true),
            Self::Nothing => match statx(directory, name, AtFlags::empty(), INODE) {
                Err(Errno::NOENT) => Ok(true),
                there => Ok(there.map(|_| false)?),
            },
            Self::File(file, size) => {
                let is_there = is_found(directory, name, AtFlags::empty(), file)?;
                Ok(is_there && file.metadata()?.len() == *size)
            }
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
        if let Place::Kept(kept) = &mut self.place {
            kept.written |= !bytes.is_empty();
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

/// Times for `futimens` that set nothing.
const UNTOUCHED: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
};

/// Times for `futimens` that set the last change alone.
pub(crate) const fn modified_at(seconds: i64) -> Timestamps {
    Timestamps { last_modification: Timespec { tv_sec: seconds, tv_nsec: 0 }, ..UNTOUCHED }
}

/// The permissions of what takes a name: those of the file that has it, for a link's are everything; else of the one that it
/// began with, to which a link led.
fn mode_for(directory: &OwnedFd, name: &OsStr, began_with: Option<u32>) -> Mode {
    let flags = StatxFlags::TYPE | StatxFlags::MODE;
    let old = statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, flags);
    let mode = old.ok().map(|old| u32::from(old.stx_mode));
    let mode = mode.filter(|&mode| FileType::from_raw_mode(mode) == FileType::RegularFile);
    Mode::from_raw_mode(mode.or(began_with).map_or_else(new_file_mode, |mode| mode & 0o777))
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
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use rustix::fs::{XattrFlags, fgetxattr, setxattr};

    use super::*;

    fn open(folder: &Path) -> OwnedFd {
        File::open(folder).unwrap().into()
    }

    /// What stands there as `a`.
    fn old(folder: &Path) -> Option<File> {
        File::open(folder.join("a")).ok()
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
        landing.keep(Some(mark(77, b"a"))).await;
        assert_eq!(names(folder.path()), [".a.longhaul.part"]);
        assert_eq!(partial(open(folder.path()), name).unwrap(), Some((7, 77)));
        assert!(is_part_of(open(folder.path()), name, mark(77, b"a")).unwrap());
        let beyond = Landing::resumed(open(folder.path()), name, old(folder.path()), 8, &|| true);
        assert_eq!(beyond.err().unwrap().kind(), io::ErrorKind::InvalidInput);
        let mut landing =
            Landing::resumed(open(folder.path()), name, old(folder.path()), 4, &|| true).unwrap();
        landing.write(b"three").await.unwrap();
        landing.install(None).await.unwrap();
        assert_eq!(names(folder.path()), ["a"]);
        let mut landing =
            Landing::appended(open(folder.path()), name, old(folder.path()), &|| true).unwrap();
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
        let mut landing =
            Landing::appended(open(folder.path()), name, old(folder.path()), &|| true).unwrap();
        landing.write(b" two").await.unwrap();
        landing.install(None).await.unwrap();
        assert_eq!(read(), b"one two");
        assert_eq!(names(folder.path()), ["a"]);
        fs::write(folder.path().join(".a.longhaul.part"), b"something else").unwrap();
        let beyond = Landing::resumed(open(folder.path()), name, old(folder.path()), 8, &|| true);
        assert_eq!(beyond.err().unwrap().kind(), io::ErrorKind::InvalidInput);
        let mut landing =
            Landing::resumed(open(folder.path()), name, old(folder.path()), 3, &|| true).unwrap();
        landing.write(b" three").await.unwrap();
        landing.install(None).await.unwrap();
        assert_eq!(read(), b"one three");
        // A client knows which of the two it asks for.
        fs::write(folder.path().join(".a.longhaul.part"), b"else").unwrap();
        let mut landing = Landing::kept(open(folder.path()), name, 4, &|| true).unwrap();
        landing.write(b"where").await.unwrap();
        landing.install(None).await.unwrap();
        assert_eq!(read(), b"elsewhere");
    }

    #[tokio::test]
    async fn two_do_not_write_to_the_same_part() {
        let folder = tempfile::tempdir().unwrap();
        let name = OsStr::new("a");
        fs::write(folder.path().join(".a.longhaul.part"), b"one").unwrap();
        let mut first = Landing::kept(open(folder.path()), name, 3, &|| true).unwrap();
        first.write(b" two").await.unwrap();
        // As it stands there while the first goes on, and when the process is killed.
        assert_eq!(names(folder.path()), [".a.longhaul.part"]);
        let mut second =
            Landing::resumed(open(folder.path()), name, old(folder.path()), 3, &|| true).unwrap();
        second.write(b" three").await.unwrap();
        assert!(!forget(open(folder.path()), name).unwrap(), "the first goes on in it");
        second.keep(None).await;
        first.keep(None).await;
        assert_eq!(fs::read(folder.path().join(".a.longhaul.part")).unwrap(), b"one two");
        let mut first = Landing::kept(open(folder.path()), name, 7, &|| true).unwrap();
        first.write(b" more").await.unwrap();
        let second = Landing::kept(open(folder.path()), name, 7, &|| true).unwrap();
        second.install(None).await.unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"one two");
        first.discard().await;
        assert_eq!(fs::read(folder.path().join(".a.longhaul.part")).unwrap(), b"one two");
        assert!(forget(open(folder.path()), name).unwrap());
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[tokio::test]
    async fn two_do_not_append_to_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let name = OsStr::new("a");
        let append = || Landing::appended(open(folder.path()), name, old(folder.path()), &|| true);
        let is_busy = |landing: io::Result<Landing>| {
            landing.err().is_some_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
        };
        // To nothing, to a kept part, and to a file.
        let mut first = append().unwrap();
        assert!(is_busy(append()));
        first.write(b"one").await.unwrap();
        first.keep(None).await;
        let mut second = append().unwrap();
        assert!(is_busy(append()));
        second.write(b" two").await.unwrap();
        second.install(None).await.unwrap();
        let mut third = append().unwrap();
        assert!(is_busy(append()));
        third.write(b" three").await.unwrap();
        third.install(None).await.unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"one two three");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[tokio::test]
    async fn an_append_does_not_undo_what_was_written_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let (name, a) = (OsStr::new("a"), folder.path().join("a"));
        for before in [None, Some("old")] {
            for meanwhile in ["replaced", "longer"] {
                before.inspect(|before| fs::write(&a, before).unwrap());
                let mut landing =
                    Landing::appended(open(folder.path()), name, old(folder.path()), &|| true)
                        .unwrap();
                landing.write(b"more").await.unwrap();
                if meanwhile == "replaced" {
                    let mut other = Landing::fresh(open(folder.path()), name).unwrap();
                    other.write(meanwhile.as_bytes()).await.unwrap();
                    other.install(None).await.unwrap();
                } else {
                    fs::write(&a, meanwhile).unwrap();
                }
                let error = landing.install(None).await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
                assert_eq!(fs::read(&a).unwrap(), meanwhile.as_bytes());
                assert_eq!(names(folder.path()), ["a"]);
                fs::remove_file(&a).unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_name_that_is_taken_for_a_new_file_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let name = OsStr::new("a");
        let first = || Landing::first(open(folder.path()), name);
        let begun = first().unwrap();
        assert!(first().is_err());
        drop(begun);
        assert!(names(folder.path()).is_empty());
        first().unwrap().keep(None).await;
        assert!(names(folder.path()).is_empty(), "nothing came");
        first().unwrap().install(None).await.unwrap();
        assert_eq!(names(folder.path()), ["a"]);
        assert!(first().is_err(), "it is there");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[tokio::test]
    async fn a_file_has_the_mode_of_the_one_before_but_not_that_of_a_link() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = tempfile::tempdir().unwrap();
        let a = folder.path().join("a");
        let mode = || fs::symlink_metadata(&a).unwrap().mode();
        let land = async || {
            let landing = Landing::fresh(open(folder.path()), "a".as_ref()).unwrap();
            landing.install(None).await.unwrap();
        };
        symlink("elsewhere", &a).unwrap();
        land().await;
        assert_eq!(mode() & 0o777, new_file_mode());
        fs::set_permissions(&a, fs::Permissions::from_mode(0o640)).unwrap();
        land().await;
        assert_eq!(mode() & 0o777, 0o640);
    }

    #[tokio::test]
    async fn a_part_that_was_removed_does_not_become_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (name, part) = (OsStr::new("a"), folder.path().join(".a.longhaul.part"));
        fs::write(&part, b"one").unwrap();
        let landing = Landing::kept(open(folder.path()), name, 3, &|| true).unwrap();
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
        let [marked, other] = ["a", "b"].map(|file| mark(1_000_000, file.as_bytes()));
        let of = |mark| is_part_of(open(folder.path()), name, mark).unwrap();
        fs::write(folder.path().join(".a.longhaul.part"), b"older").unwrap();
        let mut landing = Landing::fresh(open(folder.path()), name).unwrap().lasting(Some(marked));
        assert!(!of(marked), "nothing has come of it");
        landing.write(b"one").await.unwrap();
        assert!(!forget(&directory, name).unwrap(), "it goes on");
        landing.file.flush().await.unwrap();
        drop(landing);
        assert_eq!(names(folder.path()), [".a.longhaul.part"]);
        assert_eq!(partial(&directory, name).unwrap().unwrap().0, 3);
        assert!(of(marked) && !of(other));
        let mut landing =
            Landing::kept(open(folder.path()), name, 3, &|| true).unwrap().lasting(Some(marked));
        landing.write(b" two").await.unwrap();
        landing.file.flush().await.unwrap();
        drop(landing);
        assert!(of(marked));
        let landing = Landing::kept(open(folder.path()), name, 7, &|| true).unwrap();
        landing.install(Some(77)).await.unwrap();
        assert_eq!(names(folder.path()), ["a"]);
        let metadata = fs::metadata(folder.path().join("a")).unwrap();
        assert_eq!((metadata.mtime(), metadata.atime() > 1_000_000), (77, true));
    }

    #[tokio::test]
    async fn a_part_is_known_by_its_attribute_where_times_are_coarse() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, name) = (open(folder.path()), OsStr::new("a"));
        if setxattr(folder.path(), "user.longhaul", b"x", XattrFlags::empty()).is_err() {
            return eprintln!("SKIPPED: this file system keeps no extended attributes");
        }
        let [marked, other] = ["a", "b"].map(|file| mark(77, file.as_bytes()));
        let mut landing = Landing::fresh(open(folder.path()), name).unwrap().lasting(Some(marked));
        landing.write(b"one").await.unwrap();
        let part = landing.keep(Some(marked)).await.unwrap();
        let last_access = Timespec { tv_sec: 77, tv_nsec: 0 };
        futimens(&part, &Timestamps { last_access, ..modified_at(77) }).unwrap();
        let of = |mark| is_part_of(&directory, name, mark).unwrap();
        assert!(of(marked) && !of(other));
        Landing::kept(open(folder.path()), name, 3, &|| true).unwrap().install(None).await.unwrap();
        let gone = fgetxattr(&part, "user.longhaul.part", &mut [0; 64][..]);
        assert_eq!(gone, Err(Errno::NODATA), "it is no part any more");
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
        let Place::New(temp) = &mut landing.place else { panic!("a new one") };
        temp.appear(&landing.file).unwrap();
        assert_eq!(names(folder.path()).len(), 1);
        drop(landing);
        assert!(names(folder.path()).is_empty());
    }

    #[tokio::test]
    async fn nothing_is_kept_of_what_broke_the_rules_from_its_first_byte() {
        let folder = tempfile::tempdir().unwrap();
        let mut landing = Landing::first(open(folder.path()), "a".as_ref()).unwrap();
        landing.write(b"nonsense").await.unwrap();
        landing.discard().await;
        assert!(names(folder.path()).is_empty());
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), b"one").unwrap();
        let cut =
            Landing::appended(open(folder.path()), "a".as_ref(), old(folder.path()), &|| false);
        assert_eq!(cut.err().unwrap().kind(), io::ErrorKind::Interrupted);
        assert_eq!(names(folder.path()), ["a"]);
    }

    /// A link is replaced by what went on from the file that it led to.
    #[tokio::test]
    async fn what_begins_as_a_secret_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, b"one").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("secret", folder.path().join("a")).unwrap();
        let mut landing =
            Landing::resumed(open(folder.path()), "a".as_ref(), old(folder.path()), 3, &|| true)
                .unwrap();
        landing.write(b" two").await.unwrap();
        landing.install(None).await.unwrap();
        let metadata = fs::symlink_metadata(folder.path().join("a")).unwrap();
        assert_eq!((metadata.is_file(), metadata.mode() & 0o777), (true, 0o600));
        assert_eq!(fs::read(&secret).unwrap(), b"one");
    }
}

//! A user's files: everything below one root, and nothing else.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Statx, StatxFlags, fchmod, futimens, makedev, renameat,
    statx, unlinkat,
};
use rustix::io::Errno;
use transfer::{Place, RelPath};

use crate::entry::{Entry, Facts, Kind, ls_line};
use crate::hash::Algorithm;
use crate::landing::{Landing, Wanted, forget, forget_part, modified_at, open_partial, partial};
use crate::names::{is_kept, is_partial};
use crate::session::{Failure, Form};

/// Names in one listing, at most.
const ENTRIES_MAX: usize = 1_000_000;

/// Names that STOU tries.
const UNIQUE_TRIES: u32 = 10_000;

/// Bytes read at a time for a checksum.
const HASH_PIECE: usize = 256 << 10;

/// Files are opened so: a pipe must not make anybody wait.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK);

/// A root and what is below it. Every call may wait for the disk.
#[derive(Debug)]
pub struct Store {
    place: Place,
}

impl Store {
    /// Everything below `root`, a directory.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self { place: Place::rooted(root)? })
    }

    /// The directory that holds what a path names, and the name; the root has none.
    fn parent<'a>(&self, path: &'a RelPath) -> Result<(OwnedFd, &'a OsStr), Failure> {
        let (parent, name) = path.split().ok_or(Failure::Denied)?;
        let parent = self.place.directory(Path::new(OsStr::from_bytes(parent)));
        Ok((parent.map_err(|error| failure(&error))?, name))
    }

    /// What stands at a path. A file that is not there, but of which a part is kept, is shown with
    /// the part's size: that is where a client can resume.
    pub fn inspect(&self, path: &RelPath) -> Result<Entry, Failure> {
        match self.place.open(path.as_path(), OFlags::PATH) {
            Ok(open) => {
                let stat = stat(&open, c"".to_bytes(), AtFlags::EMPTY_PATH)?;
                Ok(entry(path.as_bytes(), &stat))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (parent, name) = self.parent(path)?;
                let kept = partial(parent, name).map_err(|error| failure(&error))?;
                let (size, _) = kept.ok_or(Failure::NotFound)?;
                let name = path.as_bytes().to_vec();
                Ok(Entry { name, kind: Kind::File, size, modified: None, mode: None, unique: None })
            }
            Err(error) => Err(failure(&error)),
        }
    }

    pub fn make_directory(&self, path: &RelPath) -> Result<(), Failure> {
        if path.as_bytes().is_empty() {
            return Err(Failure::Exists);
        }
        self.place.make_directory(path.as_path()).map(drop).map_err(|error| failure(&error))
    }

    pub fn remove(&self, path: &RelPath, directory: bool) -> Result<(), Failure> {
        let (parent, name) = self.parent(path)?;
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match (unlinkat(&parent, name, flags), directory) {
            (Ok(()), false) => {
                // Else it would take the file's place; one that a transfer goes on in does so anyway.
                let _ = forget(parent, name);
                Ok(())
            }
            (Ok(()), true) => Ok(()),
            (Err(Errno::NOENT), false) => remove_kept(&parent, name),
            (Err(Errno::NOTEMPTY), true) => {
                self.remove_all_kept(path)?;
                unlinkat(parent, name, flags).map_err(|error| failure(&error.into()))
            }
            (Err(Errno::ISDIR), _) => Err(Failure::NotFile),
            (Err(error), _) => Err(failure(&error.into())),
        }
    }

    /// Removes the kept parts in a directory where nothing else is: nobody sees what is in its way.
    fn remove_all_kept(&self, path: &RelPath) -> Result<(), Failure> {
        let directory = self.place.directory(path.as_path()).map_err(|error| failure(&error))?;
        let mut parts = Vec::new();
        for found in Dir::read_from(&directory).map_err(|error| failure(&error.into()))? {
            let found = found.map_err(|error| failure(&error.into()))?;
            match found.file_name().to_bytes() {
                b"." | b".." => {}
                name if is_kept(name) && parts.len() < ENTRIES_MAX => parts.push(name.to_vec()),
                _ => return Err(Failure::NotEmpty),
            }
        }
        for part in parts {
            if !forget_part(&directory, OsStr::from_bytes(&part))
                .map_err(|error| failure(&error))?
            {
                return Err(Failure::Busy);
            }
        }
        Ok(())
    }

    pub fn rename(&self, from: &RelPath, to: &RelPath) -> Result<(), Failure> {
        let ((old_parent, old), (new_parent, new)) = (self.parent(from)?, self.parent(to)?);
        renameat(&old_parent, old, &new_parent, new).map_err(|error| failure(&error.into()))?;
        // Else what was kept of either would begin the next file of that name.
        let _ = forget(old_parent, old);
        let _ = forget(new_parent, new);
        Ok(())
    }

    pub fn set_modified(&self, path: &RelPath, seconds: i64) -> Result<(), Failure> {
        let file = self.place.open(path.as_path(), FILE).map_err(|error| failure(&error))?;
        futimens(file, &modified_at(seconds)).map_err(|error| failure(&error.into()))
    }

    pub fn set_mode(&self, path: &RelPath, mode: u32) -> Result<(), Failure> {
        let file = self.place.open(path.as_path(), FILE).map_err(|error| failure(&error))?;
        fchmod(file, Mode::from_raw_mode(mode)).map_err(|error| failure(&error.into()))
    }

    /// A file from some byte on, and how many bytes follow.
    pub fn read(&self, path: &RelPath, offset: u64) -> Result<(File, u64), Failure> {
        let open = || {
            let mut file = File::from(self.place.open(path.as_path(), FILE)?);
            let metadata = file.metadata()?;
            file.seek(io::SeekFrom::Start(offset))?;
            Ok((file, metadata))
        };
        let (file, metadata) = open().map_err(|error| failure(&error))?;
        if !metadata.is_file() {
            return Err(Failure::NotFile);
        }
        let left = metadata.len().checked_sub(offset).ok_or(Failure::BadRestart)?;
        Ok((file, left))
    }

    fn read_partial(&self, path: &RelPath, offset: u64) -> Result<(File, u64), Failure> {
        let (parent, name) = self.parent(path)?;
        let open = || {
            let mut file = open_partial(parent, name)?;
            file.seek(io::SeekFrom::Start(offset))?;
            let size = file.metadata()?.len();
            Ok((file, size))
        };
        let (file, size) = open().map_err(|error| failure(&error))?;
        Ok((file, size.checked_sub(offset).ok_or(Failure::BadRestart)?))
    }

    /// A checksum from one byte to before another, and where it ended; given up once nobody wants it.
    pub fn hash(
        &self,
        path: &RelPath,
        algorithm: Algorithm,
        (first, end): (u64, Option<u64>),
        is_wanted: impl Fn() -> bool,
    ) -> Result<(String, u64), Failure> {
        let (file, left) = match self.read(path, first) {
            // Who resumes may ask whether the kept part is what it thinks.
            Err(Failure::NotFound) => self.read_partial(path, first)?,
            read => read?,
        };
        let end = end.unwrap_or(first + left).min(first + left);
        let mut file = file.take(end.saturating_sub(first));
        let mut hasher = algorithm.hasher();
        let mut piece = vec![0; HASH_PIECE];
        while is_wanted() {
            match file.read(&mut piece).map_err(|error| failure(&error))? {
                0 => return Ok((hasher.finish(), end)),
                read => hasher.update(&piece[..read]),
            }
        }
        Err(Failure::Cut)
    }

    /// A place for a file that arrives, which may have to begin with much that is there: given up once nobody wants it.
    pub fn land(&self, path: &RelPath, from: From, wanted: Wanted<'_>) -> Result<Landing, Failure> {
        let (parent, name) = self.parent(path)?;
        // A directory of that name would be noticed only at the end.
        if self.inspect(path).is_ok_and(|entry| entry.kind == Kind::Directory) {
            return Err(Failure::NotFile);
        }
        let landing = match from {
            From::Byte(0) => Landing::fresh(parent, name),
            From::Byte(offset) => Landing::resumed(parent, name, self.old(path)?, offset, wanted),
            From::End => Landing::appended(parent, name, self.old(path)?, wanted),
            From::Nothing => Landing::first(parent, name),
        };
        landing.map_err(|error| failure(&error))
    }

    /// The file that is there, or that a link there leads to.
    fn old(&self, path: &RelPath) -> Result<Option<File>, Failure> {
        match self.read(path, 0) {
            Ok((old, _)) => Ok(Some(old)),
            Err(Failure::NotFound) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// A place for a file that arrives under a path like this one that nothing has, and the path.
    pub fn land_unique(&self, path: &RelPath) -> Result<(Landing, RelPath), Failure> {
        for number in 0..UNIQUE_TRIES {
            let mut bytes = path.as_bytes().to_vec();
            if number > 0 {
                bytes.extend(format!(".{number}").bytes());
            }
            let candidate = RelPath::new(bytes).map_err(|_| Failure::BadName)?;
            match self.inspect(&candidate) {
                Err(Failure::NotFound) => {}
                Ok(_) => continue,
                Err(failure) => return Err(failure),
            }
            match self.land(&candidate, From::Nothing, &|| true) {
                // Somebody was faster.
                Err(Failure::Busy) => {}
                landing => return Ok((landing?, candidate)),
            }
        }
        Err(Failure::Exists)
    }

    /// What a directory holds, by name, and of nothing else (RFC 3659, section 7.2.1).
    pub fn list_directory(&self, path: &RelPath) -> Result<Vec<Entry>, Failure> {
        if self.inspect(path)?.kind != Kind::Directory {
            return Err(Failure::NotListable);
        }
        let directory = self.place.directory(path.as_path()).map_err(|error| failure(&error))?;
        self.entries(directory, path, |_| true)
    }

    /// What a directory holds, by name, and that it was one; for a path with `*`, `?` or `[` what
    /// matches, and for a file the file.
    pub fn list(&self, path: &RelPath) -> Result<(Vec<Entry>, bool), Failure> {
        let found = self.inspect(path);
        let pattern = path.split().map(|(_, name)| name.to_string_lossy().into_owned());
        let pattern = pattern.filter(|name| name.contains(['*', '?', '[']));
        match (found, pattern) {
            (Ok(entry), _) if entry.kind == Kind::Directory => {
                let directory = self.place.directory(path.as_path());
                let directory = directory.map_err(|error| failure(&error))?;
                Ok((self.entries(directory, path, |_| true)?, true))
            }
            (Ok(mut entry), _) => {
                entry.name =
                    path.split().map_or_else(Vec::new, |(_, name)| name.as_bytes().to_vec());
                Ok((vec![entry], false))
            }
            (Err(_), Some(pattern)) => {
                let pattern = glob::Pattern::new(&pattern).map_err(|_| Failure::BadName)?;
                let options = glob::MatchOptions {
                    require_literal_leading_dot: true,
                    ..glob::MatchOptions::new()
                };
                let (directory, _) = self.parent(path)?;
                let parent = path.split().map_or(&b""[..], |(parent, _)| parent);
                let parent = RelPath::new(parent.to_vec()).map_err(|_| Failure::BadName)?;
                let matches =
                    |name: &[u8]| pattern.matches_with(&String::from_utf8_lossy(name), options);
                Ok((self.entries(directory, &parent, matches)?, false))
            }
            (Err(failure), None) => Err(failure),
        }
    }

    fn entries(
        &self,
        directory: OwnedFd,
        path: &RelPath,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Entry>, Failure> {
        let read = Dir::read_from(&directory).map_err(|error| failure(&error.into()))?;
        let mut entries = Vec::new();
        for found in read {
            let found = found.map_err(|error| failure(&error.into()))?;
            let name = found.file_name().to_bytes();
            // A line end in a name would forge a line of the listing.
            let unsaid = name.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
            if matches!(name, b"." | b"..") || is_partial(name) || unsaid || !wanted(name) {
                continue;
            }
            // Gone meanwhile, or not for this user's eyes: not there.
            let Ok(stat) = stat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let mut entry = entry(name, &stat);
            if entry.kind == Kind::Link {
                self.follow(path, &mut entry);
            }
            entries.push(entry);
            if entries.len() == ENTRIES_MAX {
                break;
            }
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// A link to a file below the root is shown as that file. One to a directory stays a link, so
    /// that who mirrors does not walk in circles.
    fn follow(&self, directory: &RelPath, entry: &mut Entry) {
        let target = directory.join(&entry.name).ok().and_then(|path| self.inspect(&path).ok());
        if let Some(target) = target.filter(|target| target.kind == Kind::File) {
            *entry = Entry { name: std::mem::take(&mut entry.name), ..target };
        }
    }
}

/// Removes what was kept of a file that is not there.
fn remove_kept(parent: &OwnedFd, name: &OsStr) -> Result<(), Failure> {
    let is_there = partial(parent, name).map_err(|error| failure(&error))?.is_some();
    match forget(parent, name).map_err(|error| failure(&error))? {
        true => Ok(()),
        false if is_there => Err(Failure::Busy),
        false => Err(Failure::NotFound),
    }
}

/// Where a file that arrives begins.
#[derive(Clone, Copy, Debug)]
pub enum From {
    /// At this byte.
    Byte(u64),
    /// Behind what is there.
    End,
    /// At its first byte, where nothing is there.
    Nothing,
}

/// Writes a listing.
pub fn write_list(
    entries: &[Entry],
    form: Form,
    above: &[u8],
    may_write: bool,
    now: i64,
) -> Vec<u8> {
    let mut text = Vec::new();
    for entry in entries {
        match form {
            Form::Long => text.extend(ls_line(entry, now).bytes()),
            Form::Names => text.extend(above),
            Form::Facts(facts) => text.extend(Facts::of(facts, entry, may_write).bytes()),
        }
        text.extend(&entry.name);
        text.extend(b"\r\n");
    }
    text
}

fn stat(at: impl AsFd, name: &[u8], flags: AtFlags) -> Result<Statx, Failure> {
    statx(at, OsStr::from_bytes(name), flags, StatxFlags::BASIC_STATS)
        .map_err(|error| failure(&error.into()))
}

fn entry(name: &[u8], stat: &Statx) -> Entry {
    let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    };
    Entry {
        name: name.to_vec(),
        kind,
        size: stat.stx_size,
        modified: Some(stat.stx_mtime.tv_sec),
        mode: Some(u32::from(stat.stx_mode) & 0o7777),
        unique: Some((makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)),
    }
}

/// What an error of the system means to a client.
pub fn failure(error: &io::Error) -> Failure {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => Failure::NotFound,
        Some(Errno::EXIST) => Failure::Exists,
        Some(Errno::NOTEMPTY) => Failure::NotEmpty,
        Some(Errno::NOTDIR) => Failure::NotDirectory,
        Some(Errno::ISDIR) => Failure::NotFile,
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Failure::NoSpace,
        Some(Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ) => Failure::BadName,
        Some(Errno::IO | Errno::MFILE | Errno::NFILE) => Failure::Disk,
        None if error.kind() == io::ErrorKind::InvalidInput => Failure::BadRestart,
        None if error.kind() == io::ErrorKind::NotFound => Failure::NotFound,
        None if error.kind() == io::ErrorKind::ResourceBusy => Failure::Busy,
        None if error.kind() == io::ErrorKind::Interrupted => Failure::Cut,
        _ => Failure::Denied,
    }
}

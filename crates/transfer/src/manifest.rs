//! The BLAKE3 hashes of a transfer's files, to keep: in the lines that `b3sum` writes, and that `b3sum
//! --check` reads.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FileType, Mode, OFlags, fsync, openat};
use rustix::io::Errno;

use crate::meta::Meta;
use crate::place::Place;
use crate::relpath::RelPath;
use crate::temp::Names;

/// Bytes of memory for the names and hashes of one manifest: some five million files.
const MANIFEST_MAX: usize = 1 << 30;

/// What each file takes besides its name.
const OVERHEAD: usize = 120;

type Hash = [u8; blake3::OUT_LEN];

/// The hashes of files, by the names that the sender has for them; clones share them. One that goes
/// through several sittings of a copy knows what each of them moved.
#[derive(Clone, Debug, Default)]
pub struct Manifest(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    /// `None` is still to be read from the disk here.
    hashes: BTreeMap<Vec<u8>, Option<Hash>>,
    bytes: usize,
}

impl Files {
    fn entry(&mut self, path: &RelPath) -> &mut Option<Hash> {
        let path = path.as_bytes();
        if !self.hashes.contains_key(path) && self.bytes <= MANIFEST_MAX {
            self.bytes += path.len() + OVERHEAD;
        }
        self.hashes.entry(path.to_vec()).or_default()
    }

    fn is_full(&self) -> bool {
        self.bytes > MANIFEST_MAX
    }
}

impl Manifest {
    /// Where a manifest can be written: in a directory that is there, and over a regular file at most.
    ///
    /// # Errors
    /// What is wrong with the place.
    pub fn check(path: &Path) -> io::Result<()> {
        let (directory, name) = Place::Local.parent(path)?;
        match Meta::at(&directory, name) {
            Ok(there) if there.kind != FileType::RegularFile => {
                Err(io::Error::other("what stands there is no regular file: name another one"))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A file's hash is known.
    pub(crate) fn add(&self, path: &RelPath, hash: Hash) {
        let mut files = self.lock();
        if !files.is_full() {
            *files.entry(path) = Some(hash);
        }
    }

    /// One more name of a file that came before.
    pub(crate) fn add_name(&self, path: &RelPath, of: &RelPath) {
        let hash = self.lock().hashes.get(of.as_bytes()).copied();
        match hash {
            Some(Some(hash)) => self.add(path, hash),
            Some(None) => self.owe(path),
            None => {}
        }
    }

    /// A file did not move, and its hash may not be known yet.
    pub(crate) fn owe(&self, path: &RelPath) {
        let mut files = self.lock();
        if !files.is_full() {
            files.entry(path);
        }
    }

    /// A file cannot be read: what comes after need not try again.
    pub(crate) fn forget(&self, path: &RelPath) {
        let mut files = self.lock();
        // A full one stays full: it has lost files already.
        if !files.is_full() && files.hashes.remove(path.as_bytes()).is_some() {
            files.bytes -= path.as_bytes().len() + OVERHEAD;
        }
    }

    /// The next file, behind one or from the beginning, whose hash is still to be read.
    pub(crate) fn owed(&self, behind: Option<&RelPath>) -> Option<RelPath> {
        let files = self.lock();
        let begin = behind.map_or(Bound::Unbounded, |path| Bound::Excluded(path.as_bytes()));
        let mut behind = files.hashes.range::<[u8], _>((begin, Bound::Unbounded));
        let (path, _) = behind.find(|(_, hash)| hash.is_none())?;
        RelPath::new(path.clone()).ok()
    }

    /// Whether a file's hash is known.
    pub(crate) fn knows(&self, path: &RelPath) -> bool {
        self.lock().hashes.get(path.as_bytes()).is_some_and(Option::is_some)
    }

    /// How many names hold bytes that are no characters. `b3sum` reads no others, so that these stand
    /// with U+FFFD for such bytes, as it writes them itself.
    pub fn bent(&self) -> usize {
        self.lock().hashes.keys().filter(|path| str::from_utf8(path).is_err()).count()
    }

    /// Writes all lines, sorted by name, to a file that is there with all of them or not at all.
    ///
    /// # Errors
    /// What the file system says; and when there were more files than memory is set aside for.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let files = self.lock();
        if files.is_full() {
            return Err(io::Error::other(
                "there are too many files for one manifest: copy in parts",
            ));
        }
        Self::check(path)?;
        let (directory, name) = Place::Local.parent(path)?;
        let directory = Arc::new(directory);
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let (file, mut temp) = Names::new()?.create(&directory, name, |at, temporary| {
            openat(at, temporary, new, Mode::from_raw_mode(0o666))
        })?;
        let mut lines = BufWriter::new(File::from(file));
        for (path, hash) in &files.hashes {
            if let Some(hash) = hash {
                lines.write_all(line(path, hash).as_bytes())?;
            }
        }
        lines.into_inner()?.sync_all()?;
        temp.rename(name)?;
        // Some file systems cannot sync a directory, and need not.
        let _ = fsync(&directory);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As `b3sum` has it: where a name has to be escaped, the line begins with a backslash.
fn line(path: &[u8], hash: &Hash) -> String {
    let name = String::from_utf8_lossy(path);
    let escaped = name.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
    let (mark, name) = match escaped == name {
        true => ("", name),
        false => ("\\", Cow::Owned(escaped)),
    };
    format!("{mark}{}  {name}\n", blake3::Hash::from_bytes(*hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Progress, ServeOptions, get, serve};

    fn path(name: &[u8]) -> RelPath {
        RelPath::new(name.to_vec()).unwrap()
    }

    #[test]
    fn lines_are_those_of_b3sum() {
        let hash = *blake3::hash(b"").as_bytes();
        let hex = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        for (name, shown, mark) in [
            (&b"a b"[..], "a b", ""),
            (b"new\nline\r", "new\\nline\\r", "\\"),
            (b"back\\slash", "back\\\\slash", "\\"),
            (b"\xff", "\u{fffd}", ""),
        ] {
            assert_eq!(line(name, &hash), format!("{mark}{hex}  {shown}\n"));
        }
    }

    #[tokio::test]
    async fn what_one_request_cannot_read_is_no_matter_of_the_next() {
        let [source, root] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let manifest = Manifest::default();
        // It stood there when it was asked about, and is gone.
        manifest.owe(&path(b"a/gone"));
        let options = Options { manifest: Some(manifest.clone()), ..Options::default() };
        for name in ["b", "a", "c"] {
            std::fs::create_dir(source.path().join(name)).unwrap();
            std::fs::write(source.path().join(name).join("file"), name).unwrap();
            let (allowed, progress) = <(ServeOptions, Progress)>::default();
            let (near, far) = tokio::io::duplex(10_000);
            let getting = get(near, Path::new(name), root.path(), &options, &progress);
            let (done, _) = tokio::join!(getting, serve(far, source.path(), &allowed));
            assert_eq!(done.unwrap().is_partial(), name == "a", "{name}");
        }
        assert!(manifest.owed(None).is_none());
        assert_eq!(manifest.lock().hashes.len(), 3);
    }

    #[test]
    fn it_is_written_whole_and_sorted_over_a_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = Manifest::default();
        manifest.owe(&path(b"owed"));
        for name in [&b"b"[..], b"a", b"\xff"] {
            manifest.add(&path(name), *blake3::hash(name).as_bytes());
        }
        manifest.add_name(&path(b"c"), &path(b"a"));
        manifest.add_name(&path(b"d"), &path(b"unknown"));
        let owed = path(b"owed");
        assert_eq!((manifest.owed(None), manifest.bent()), (Some(owed.clone()), 1));
        assert_eq!(manifest.owed(Some(&owed)), None);
        let file = folder.path().join("list");
        std::fs::write(&file, "old").unwrap();
        manifest.write(&file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let names: Vec<_> = text.lines().map(|line| &line[66..]).collect();
        assert_eq!(names, ["a", "b", "c", "\u{fffd}"]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        manifest.write(folder.path()).unwrap_err();
        manifest.write(&folder.path().join("no/list")).unwrap_err();
        assert!(Manifest::check(Path::new("/dev/null")).is_err());
    }
}

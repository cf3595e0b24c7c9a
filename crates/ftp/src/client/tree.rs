//! Whole trees. A server's names are parsed before anything is done with them: none leads out of the
//! folder that the user chose.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{DirEntry, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;
use transfer::{Counts, Note, NoteKind, Progress, RelPath, Tree};

use super::files::LastKept;
use super::{Client, ClientError, Found};
use crate::data::Moved;
use crate::entry::{Entry, Kind};
use crate::names::is_partial;

/// A smaller file is put anew rather than asked for.
const RESUME_MIN: u64 = 1 << 20;

/// Why what has such a name is left alone.
const NOT_WHOLE: &str = "what was kept of a file that is not whole, or of a copy that is not done";

/// What a copy did: installed files, and what was left out.
#[derive(Debug, Default)]
pub struct Copied {
    /// What is whole at its destination.
    pub counts: Counts,
    /// What is not, and why.
    pub notes: transfer::Notes,
    /// The files that are whole, by the paths they are at the source: they are not copied again.
    whole: HashSet<Vec<u8>>,
    /// The file that is put where there was none before.
    begun: Option<Vec<u8>>,
    /// What is gone on with after a loss.
    kept: LastKept,
}

impl Copied {
    /// Begins again after a loss, with what is whole left out.
    pub fn begin_again(&mut self, moved: &Moved) {
        self.counts.directories = 0;
        self.notes = transfer::Notes::default();
        moved.fall_back_to(self.counts.bytes);
    }

    fn note(&mut self, kind: NoteKind, path: &[u8], reason: &str) {
        self.notes.push(Note::new(kind, path, reason));
    }

    fn unread(&mut self, here: &Path, error: &io::Error) {
        self.note(NoteKind::Failed, here.as_os_str().as_bytes(), &error.to_string());
    }

    /// What is in a directory here, and the paths that it gets there; a note where it cannot be read to
    /// its end.
    fn listed(
        &mut self,
        here: &Path,
        there: &[u8],
        entries: impl Iterator<Item = io::Result<DirEntry>>,
    ) -> Vec<(PathBuf, Vec<u8>)> {
        let mut paths = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) if is_partial(entry.file_name().as_bytes()) => {
                    let path = entry.path();
                    self.note(NoteKind::Skipped, path.as_os_str().as_bytes(), NOT_WHOLE);
                }
                Ok(entry) => {
                    paths.push((entry.path(), joined(there, entry.file_name().as_bytes())));
                }
                Err(error) => self.unread(here, &error),
            }
        }
        paths
    }

    /// One file more, or a note; an error when nothing more can come over this connection.
    fn count(
        &mut self,
        path: &[u8],
        done: Result<(), ClientError>,
        bytes: u64,
        progress: &Progress,
    ) -> Result<(), ClientError> {
        match done {
            Ok(()) => {
                self.whole.insert(path.to_vec());
                self.counts.files += 1;
                self.counts.bytes += bytes;
                progress.set_files(self.counts.files);
                Ok(())
            }
            Err(error) if error.is_refusal() && !error.is_loss() => {
                self.note(NoteKind::Failed, path, &error.to_string());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// A path there, of a directory and a name in it.
pub(super) fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        directory if directory.ends_with(b"/") => [directory, name].concat(),
        directory => [directory, b"/", name].concat(),
    }
}

impl Client {
    /// Gets a file, or a directory with all that is in it, and gives it this name in a directory here.
    /// Without a name, what a directory holds goes right there.
    ///
    /// # Errors
    /// When the connection breaks; what a server refuses is only noted.
    pub async fn get_tree(
        &mut self,
        path: &[u8],
        directory: OwnedFd,
        name: Option<&RelPath>,
        (progress, moved): (&Progress, &Moved),
        copied: &mut Copied,
    ) -> Result<(), ClientError> {
        let found = match self.find(path).await {
            Ok(found) => found,
            Err(error) => return copied.count(path, Err(error), 0, progress),
        };
        match (found, name.and_then(RelPath::split)) {
            (Found::File(..), _) if copied.whole.contains(path) => Ok(()),
            (Found::File(..), Some((_, name))) => {
                progress.set_current(path, None);
                let before = moved.bytes();
                let place = (directory, name);
                let got = self.get_on(path, place, false, &mut copied.kept, moved).await;
                copied.count(path, got, moved.bytes() - before, progress)
            }
            (Found::File(..), None) => {
                copied.note(
                    NoteKind::Failed,
                    path,
                    "a file needs a name: name it, not its directory",
                );
                Ok(())
            }
            (Found::Directory, _) => {
                let below = name.cloned().unwrap_or_default();
                let mut tree = Tree::new(directory);
                if let Err(error) = make_directory(&mut tree, &below) {
                    copied.note(NoteKind::Failed, path, &error.to_string());
                    return Ok(());
                }
                copied.counts.directories += 1;
                self.get_below(path, below, &mut tree, (progress, moved), copied).await
            }
        }
    }

    async fn get_below(
        &mut self,
        path: &[u8],
        below: RelPath,
        tree: &mut Tree,
        (progress, moved): (&Progress, &Moved),
        copied: &mut Copied,
    ) -> Result<(), ClientError> {
        let mut ahead = vec![(path.to_vec(), below)];
        while let Some((there, here)) = ahead.pop() {
            let listing = match self.list(&there).await {
                Ok(listing) => listing,
                Err(error) => {
                    copied.count(&there, Err(error), 0, progress)?;
                    continue;
                }
            };
            listing.notes(&there).for_each(|note| copied.notes.push(note));
            for entry in listing.entries {
                let path = joined(&there, &entry.name);
                if is_partial(&entry.name) {
                    copied.note(NoteKind::Skipped, &path, NOT_WHOLE);
                    continue;
                }
                let Some(here) = landing_path(&here, &entry) else {
                    let reason = "a name that leads elsewhere: not taken";
                    copied.note(NoteKind::Failed, &path, reason);
                    continue;
                };
                match entry.kind {
                    Kind::Directory => match make_directory(tree, &here) {
                        Ok(()) => {
                            copied.counts.directories += 1;
                            ahead.push((path, here));
                        }
                        Err(error) => copied.note(NoteKind::Failed, &path, &error.to_string()),
                    },
                    Kind::File | Kind::Link if copied.whole.contains(&path) => {}
                    Kind::Link if self.is_link_to_directory(&path).await? => {
                        let reason = "a link to a directory: not followed";
                        copied.note(NoteKind::Skipped, &path, reason);
                    }
                    Kind::File | Kind::Link => {
                        progress.set_current(&path, None);
                        let before = moved.bytes();
                        let kept = &mut copied.kept;
                        let got = self.get_one(&path, &here, tree, kept, moved).await;
                        copied.count(&path, got, moved.bytes() - before, progress)?;
                    }
                    Kind::Other => copied.note(NoteKind::Skipped, &path, "no plain file"),
                }
            }
        }
        Ok(())
    }

    /// Whether what a listing shows as a link leads to a directory.
    async fn is_link_to_directory(&mut self, path: &[u8]) -> Result<bool, ClientError> {
        match self.find(path).await {
            Ok(found) => Ok(found == Found::Directory),
            // Getting it will tell why.
            Err(error) if error.is_refusal() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn get_one(
        &mut self,
        path: &[u8],
        here: &RelPath,
        tree: &mut Tree,
        kept: &mut LastKept,
        moved: &Moved,
    ) -> Result<(), ClientError> {
        let (parent, name) = here.split().ok_or(ClientError::Name)?;
        let directory = tree.directory(parent).and_then(|open| open.as_fd().try_clone_to_owned());
        let directory = directory.map_err(ClientError::Here)?;
        self.get_on(path, (directory, name), false, kept, moved).await
    }

    /// Puts what the server does not have of a file.
    async fn put_rest(
        &mut self,
        file: File,
        path: &[u8],
        moved: &Moved,
        begun: &mut Option<Vec<u8>>,
    ) -> Result<(), ClientError> {
        let mut offset = self.resume_point(&file, path).await?;
        let size = file.metadata().map_err(ClientError::Here)?.len();
        let is_judged = self.knows("XSHA256") || !self.knows("SIZE") || self.is_ascii();
        if is_judged || size < RESUME_MIN {
            return self.put(file, path, offset, moved).await;
        }
        // Without checksums, what stands there is of this file only where nothing stood before it.
        let there = self.size(path).await?;
        if begun.as_deref() == Some(path) {
            offset = there.filter(|&there| there <= size).unwrap_or(0);
        } else {
            *begun = there.is_none().then(|| path.to_vec());
        }
        if offset > 0 {
            let (rest, before) = (file.try_clone().map_err(ClientError::Here)?, moved.bytes());
            match self.put(rest, path, offset, moved).await {
                Ok(()) => {
                    if self.size(path).await? == Some(size) {
                        return Ok(());
                    }
                }
                Err(error) if error.is_loss() || !error.is_refusal() => return Err(error),
                Err(_) => {}
            }
            // It does not go on where it was told to.
            moved.fall_back_to(before);
        }
        self.put(file, path, 0, moved).await
    }

    /// Puts a file, or a directory with all that is in it, to this path there.
    ///
    /// # Errors
    /// When the connection breaks; what cannot be read or is refused is only noted.
    pub async fn put_tree(
        &mut self,
        local: &Path,
        path: &[u8],
        (progress, moved): (&Progress, &Moved),
        copied: &mut Copied,
    ) -> Result<(), ClientError> {
        let mut ahead = vec![(local.to_owned(), path.to_vec())];
        while let Some((here, there)) = ahead.pop() {
            // What the user named is followed where it is a link.
            let metadata = if here == local { here.metadata() } else { here.symlink_metadata() };
            let kind = match metadata {
                Ok(metadata) => metadata.file_type(),
                Err(error) => {
                    copied.unread(&here, &error);
                    continue;
                }
            };
            if kind.is_dir() {
                // Where it is there already, the files will tell.
                if !there.is_empty() {
                    self.ask_bytes(&super::with_path("MKD", &there)).await?;
                }
                copied.counts.directories += 1;
                match std::fs::read_dir(&here) {
                    Ok(entries) => ahead.extend(copied.listed(&here, &there, entries)),
                    Err(error) => copied.unread(&here, &error),
                }
            } else if kind.is_file() {
                let source = here.as_os_str().as_bytes();
                if copied.whole.contains(source) {
                    continue;
                }
                progress.set_current(source, None);
                let before = moved.bytes();
                let put = match File::open(&here) {
                    Ok(file) => self.put_rest(file, &there, moved, &mut copied.begun).await,
                    Err(error) => Err(ClientError::Here(error)),
                };
                copied.count(source, put, moved.bytes() - before, progress)?;
            } else {
                copied.note(NoteKind::Skipped, here.as_os_str().as_bytes(), "no plain file");
            }
        }
        Ok(())
    }
}

/// Where an entry goes, unless its name is none.
fn landing_path(directory: &RelPath, entry: &Entry) -> Option<RelPath> {
    let name = RelPath::new(entry.name.clone()).ok()?;
    let is_one = !name.as_bytes().is_empty() && !name.as_bytes().contains(&b'/');
    directory.join(name.as_bytes()).ok().filter(|_| is_one)
}

fn make_directory(tree: &mut Tree, path: &RelPath) -> io::Result<()> {
    let Some((parent, name)) = path.split() else { return Ok(()) };
    let parent = tree.directory(parent)?;
    match mkdirat(&parent, OsStr::new(name), Mode::from_raw_mode(0o777)) {
        Ok(()) => Ok(()),
        // A link in place of a directory is met when it is opened, and not followed.
        Err(Errno::EXIST) => tree.directory(path.as_bytes()).map(drop),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_not_taken() {
        let directory = RelPath::new(b"a".to_vec()).unwrap();
        let path = |name: &str| {
            let entry = Entry {
                name: name.into(),
                kind: Kind::File,
                size: 0,
                modified: None,
                mode: None,
                unique: None,
            };
            landing_path(&directory, &entry).map(|path| path.as_bytes().to_vec())
        };
        for bad in ["..", ".", "", "../b", "/etc/passwd", "b/c", "b/../../c", "b\0"] {
            assert_eq!(path(bad), None, "{bad}");
        }
        assert_eq!(path("b..c"), Some(b"a/b..c".to_vec()));
    }

    /// As of a network file system that fails halfway.
    #[test]
    fn a_directory_that_is_not_read_to_its_end_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        let cut = std::iter::once(Err(io::ErrorKind::StaleNetworkFileHandle.into()));
        let entries = std::fs::read_dir(folder.path()).unwrap().chain(cut);
        let mut copied = Copied::default();
        let listed = copied.listed(folder.path(), b"there", entries);
        assert_eq!(listed, [(folder.path().join("a"), b"there/a".to_vec())]);
        assert_eq!(copied.notes.failed(), 1);
    }

    #[test]
    fn a_link_in_place_of_a_directory_is_not_followed() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        let mut tree = Tree::new(File::open(folder.path()).unwrap().into());
        let path = |text: &str| RelPath::new(text.into()).unwrap();
        assert!(make_directory(&mut tree, &path("link")).is_err());
        assert!(make_directory(&mut tree, &path("link/below")).is_err());
        make_directory(&mut tree, &path("real")).unwrap();
        make_directory(&mut tree, &path("real/below")).unwrap();
    }

    #[test]
    fn what_is_not_whole_is_not_sent_along() {
        let folder = tempfile::tempdir().unwrap();
        let journal = format!(".longhaul-{:032x}.journal", 7);
        for name in ["whole", ".x.longhaul.part", &journal] {
            File::create(folder.path().join(name)).unwrap();
        }
        let mut copied = Copied::default();
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let listed = copied.listed(folder.path(), b"there", entries);
        assert_eq!(listed, [(folder.path().join("whole"), b"there/whole".to_vec())]);
        assert_eq!((copied.notes.skipped(), copied.notes.failed()), (2, 0));
    }
}

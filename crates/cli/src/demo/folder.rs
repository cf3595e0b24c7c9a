//! The temporary folder of a demo, in memory where that is possible.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tempfile::TempDir;
use units::Bytes;

/// A file system in memory, so that no disk limits the demo.
const MEMORY: &str = "/dev/shm";
/// Room beside the trees.
const SPARE: Bytes = Bytes::mib(64);

const PREFIX: &str = "longhaul-demo-";
/// Locked for as long as the demo runs. A folder with this file unlocked belongs to nobody.
const LOCK: &str = "lock";

/// A folder that vanishes with the value. That of a killed demo vanishes when the next one starts.
pub struct Folder {
    folder: TempDir,
    _lock: File,
}

impl Folder {
    /// Makes one with room for `size`.
    pub fn with_room(size: Bytes) -> anyhow::Result<Self> {
        let needed = size + SPARE;
        let memory = Path::new(MEMORY);
        let disk = std::env::temp_dir();
        for place in [memory, &disk] {
            remove_stale(place);
        }
        if has_room(memory, needed)
            && let Ok(folder) = Self::make(memory)
        {
            return Ok(folder);
        }
        ensure!(
            has_room(&disk, needed),
            "{needed} are needed in {MEMORY} or {}: free some space, set TMPDIR, or give a smaller \
             --size",
            disk.display()
        );
        Self::make(&disk).with_context(|| format!("cannot write to {}", disk.display()))
    }

    fn make(place: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
        let lock = File::create(folder.path().join(LOCK))?;
        lock.lock()?;
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Lets it stay.
    pub fn keep(self) -> io::Result<PathBuf> {
        fs::remove_file(self.folder.path().join(LOCK))?;
        Ok(self.folder.keep())
    }
}

fn has_room(place: &Path, needed: Bytes) -> bool {
    rustix::fs::statvfs(place).is_ok_and(|fs| fs.f_bavail * fs.f_frsize >= needed.0)
}

/// Removes what killed demos have left, as far as this user may.
fn remove_stale(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && is_stale(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_stale(folder: &Path) -> bool {
    let lock = File::open(folder.join(LOCK));
    // An error means that it is somebody else's, or a kept one.
    lock.is_ok_and(|lock| !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_is_stale() {
        let place = tempfile::tempdir().unwrap();
        let held = Folder::make(place.path()).unwrap();
        let left = place.path().join("longhaul-demo-left");
        let kept = Folder::make(place.path()).unwrap().keep().unwrap();
        let other = place.path().join("other");
        for folder in [&left, &other] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join(LOCK), "").unwrap();
        }
        remove_stale(place.path());
        assert!(!left.exists());
        assert!(held.path().exists() && kept.exists() && other.exists());
    }
}

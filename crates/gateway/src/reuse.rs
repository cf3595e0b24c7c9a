//! Whether the kernel lets connections follow ones that ended seconds ago between the same addresses
//! and ports: a client that uses a port again after its own second or two must be able to.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Its name, below `/proc/sys`.
pub(crate) const NAME: &str = "net/ipv4/tcp_tw_reuse";
/// They may, after a second.
const OURS: &str = "1";

/// It does, until this is dropped.
pub(crate) struct Reuse {
    setting: PathBuf,
    /// Holds `before` while the setting is ours, for the next gateway if this one is killed.
    kept: PathBuf,
    before: String,
}

impl Reuse {
    /// None where it cannot be known: such a client waits for a minute.
    pub(crate) fn allow() -> Option<Self> {
        Self::set(setting(), kept()?)
    }

    fn set(setting: PathBuf, kept: PathBuf) -> Option<Self> {
        let before = match read(&setting, &kept) {
            Some(before) => before,
            None => {
                let before = fs::read_to_string(&setting).ok()?;
                // Where it cannot be kept, only a gateway that is killed forgets it.
                let _ = fs::write(&kept, &before);
                before
            }
        };
        let _ = fs::write(&setting, OURS);
        Some(Self { setting, kept, before })
    }
}

fn setting() -> PathBuf {
    Path::new("/proc/sys").join(NAME)
}

/// Where it is kept what the setting was. Each network namespace has its own.
fn kept() -> Option<PathBuf> {
    let namespace = fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
    Some(format!("/run/longhaul-gateway-{namespace}.tcp_tw_reuse").into())
}

/// What was kept, while the setting is ours: else somebody has set it since, or the file is of another
/// namespace, whose number this one has now.
fn read(setting: &Path, kept: &Path) -> Option<String> {
    let is_ours = fs::read_to_string(setting).is_ok_and(|value| value.trim() == OURS);
    let value = is_ours.then(|| fs::read_to_string(kept).ok()).flatten();
    value.filter(|value| !value.is_empty())
}

/// What the setting was before a gateway that runs here, or was killed.
pub(crate) fn before() -> Option<String> {
    read(&setting(), &kept()?)
}

/// What the setting was is put back, or noted elsewhere: no later gateway is to put it back.
pub(crate) fn forget() {
    let _ = kept().map(fs::remove_file);
}

impl Drop for Reuse {
    fn drop(&mut self) {
        let _ = fs::write(&self.setting, &self.before);
        let _ = fs::remove_file(&self.kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_gateway_found_is_put_back_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let [setting, kept] = ["setting", "kept"].map(|name| folder.path().join(name));
        let set = || Reuse::set(setting.clone(), kept.clone()).unwrap();
        fs::write(&setting, "2\n").unwrap();
        std::mem::forget(set());
        assert_eq!(fs::read_to_string(&setting).unwrap(), "1");
        drop(set());
        assert_eq!(fs::read_to_string(&setting).unwrap(), "2\n");
        fs::write(&setting, "0\n").unwrap();
        drop(set());
        assert_eq!((fs::read_to_string(&setting).unwrap(), kept.exists()), ("0\n".into(), false));
        // Somebody has set it since.
        std::mem::forget(set());
        fs::write(&setting, "2\n").unwrap();
        drop(set());
        assert_eq!(fs::read_to_string(&setting).unwrap(), "2\n");
    }
}

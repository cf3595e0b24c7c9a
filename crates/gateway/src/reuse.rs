//! Whether the kernel lets connections follow ones that ended seconds ago between the same addresses
//! and ports: a client that uses a port again after its own second or two must be able to.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

const SETTING: &str = "/proc/sys/net/ipv4/tcp_tw_reuse";

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
        // Each network namespace has its own setting.
        let namespace = fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
        let kept = format!("/run/longhaul-gateway-{namespace}.tcp_tw_reuse");
        Self::set(SETTING.into(), kept.into())
    }

    fn set(setting: PathBuf, kept: PathBuf) -> Option<Self> {
        let earlier = fs::read_to_string(&kept).ok().filter(|value| !value.is_empty());
        let before = match earlier {
            Some(before) => before,
            None => {
                let before = fs::read_to_string(&setting).ok()?;
                // Where it cannot be kept, only a gateway that is killed forgets it.
                let _ = fs::write(&kept, &before);
                before
            }
        };
        let _ = fs::write(&setting, "1");
        Some(Self { setting, kept, before })
    }
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
    }
}

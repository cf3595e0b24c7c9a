//! Names under `/run/netns`, by which `ip netns exec` finds a lab's hosts.
//!
//! A lab needs no names: its namespaces live by open descriptors and vanish with the process,
//! however it ends. A name is a bind mount and outlives its maker, so each carries the maker's
//! process number, and whoever comes next removes those whose maker is gone.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::Host;

const FOLDER: &str = "/run/netns";
const PREFIX: &str = "longhaul-";

/// Labs this process has named.
static LABS: AtomicU32 = AtomicU32::new(0);

/// The names of one lab, removed on drop.
pub(crate) struct Names {
    /// The start of each, which the host's own follows.
    lab: String,
    names: Vec<String>,
}

impl Names {
    /// Names the namespaces of hosts `longhaul-PID-near`, `longhaul-PID-far` and so on; a
    /// process's further labs are called `longhaul-PID.1-near` and so on.
    pub(crate) fn create<'a>(
        hosts: impl Iterator<Item = (String, BorrowedFd<'a>)>,
    ) -> io::Result<Self> {
        fs::create_dir_all(FOLDER)?;
        let lab = match LABS.fetch_add(1, Ordering::Relaxed) {
            0 => process::id().to_string(),
            n => format!("{}.{n}", process::id()),
        };
        let mut names = Self { lab: format!("{PREFIX}{lab}-"), names: Vec::new() };
        for (host, namespace) in hosts {
            let name = names.of(&host);
            let path = Path::new(FOLDER).join(&name);
            // A name of our own number that this process did not make is of an earlier process.
            remove(&path);
            File::create_new(&path)?;
            // Noted first, so that what is half made is removed as well.
            names.names.push(name);
            mount_bind(format!("/proc/self/fd/{}", namespace.as_raw_fd()), &path)?;
        }
        Ok(names)
    }

    pub(crate) fn of(&self, host: &str) -> String {
        format!("{}{host}", self.lab)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| remove(&Path::new(FOLDER).join(name)));
    }
}

/// Removes the names of labs whose process is gone, and returns them. A number that was given to
/// another process since delays this until that one ends.
pub(crate) fn remove_stale() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(FOLDER) else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let stale: Vec<_> = paths.filter(|path| maker(path).is_some_and(|pid| !alive(pid))).collect();
    stale.iter().for_each(|path| remove(path));
    stale
}

/// The process that made a name, if it is one of ours.
fn maker(path: &Path) -> Option<u32> {
    let rest = path.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    let (lab, host) = rest.split_once('-')?;
    let pid = lab.split_once('.').map_or(lab, |(pid, _)| pid);
    let side = host.trim_end_matches(|c: char| c.is_ascii_digit());
    Host::BOTH.iter().any(|known| known.to_string() == side).then(|| pid.parse().ok()).flatten()
}

fn alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Nothing can be done about a name that cannot be removed; the next start tries again.
fn remove(path: &Path) {
    let _ = unmount(path, UnmountFlags::DETACH);
    let _ = fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_recognised() {
        let maker = |name: &str| maker(&Path::new(FOLDER).join(name));
        assert_eq!(maker("longhaul-12-near"), Some(12));
        assert_eq!(maker("longhaul-12.3-far"), Some(12));
        assert_eq!(maker("longhaul-12-near2"), Some(12));
        assert_eq!(maker("longhaul-12-near2x"), None);
        assert_eq!(maker("longhaul-12-middle"), None);
        assert_eq!(maker("longhaul-test-near"), None);
        assert_eq!(maker("vpn-12-near"), None);
    }
}

//! What it takes to make namespaces: root, or a user namespace of one's own.

use std::fs::{self, OpenOptions};

use rustix::process::{getgid, getuid};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities, unshare_unsafe};

use crate::error::{Attempt, LabError};

/// By what right labs can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The process had the capabilities already.
    Root,
    /// The process moved into a user namespace in which it is root and in which its files keep
    /// their owner.
    UserNamespace,
}

/// Makes the process able to start labs: does nothing for root, and moves an ordinary user's
/// process into a user namespace. Call it first thing in `main`, before any thread exists: the
/// kernel moves only processes of one thread.
///
/// # Errors
/// [`LabError::NotPermitted`] when user namespaces or TUN are not allowed here; the process is
/// then as it was.
pub fn init() -> Result<Privilege, LabError> {
    if privileged() {
        return Ok(Privilege::Root);
    }
    // In vain without TUN, so ask first: there is no way back out of a user namespace.
    OpenOptions::new().read(true).write(true).open("/dev/net/tun").attempt("open /dev/net/tun")?;
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    // SAFETY: the flags do not include FILES, the one whose effects could break I/O safety.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }
        .attempt("make a user namespace (from a process of one thread)")?;
    // The kernel lets an ordinary user map its group only after giving up setgroups().
    fs::write("/proc/self/setgroups", "deny").attempt("give up setgroups")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).attempt("map the user")?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).attempt("map the group")?;
    Ok(Privilege::UserNamespace)
}

/// Whether this thread may make network namespaces and devices.
fn privileged() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

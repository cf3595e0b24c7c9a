//! What a file has besides its name and bytes: permissions, time, owner, extended attributes.

use std::os::fd::AsFd;

use rustix::fs::{Gid, Mode, Uid, XattrFlags, fchmod, fchown, fgetxattr, flistxattr};
use rustix::fs::{fsetxattr, futimens};
use rustix::io::{Errno, Result};
use serde::{Deserialize, Serialize};

use crate::meta::{Meta, Modified};
use crate::relpath::RawBytes;

/// The most bytes of extended attributes that a file takes along: they travel in one message.
pub(crate) const EXTENDED_MAX: usize = 8 << 10;

/// Those of users; the others mean nothing on another host, or are not for everybody to set.
const OF_USERS: &[u8] = b"user.";

/// Permissions a file takes over: not set-user-ID and set-group-ID, for it has a new owner.
pub(crate) const FILE_MODE: u32 = 0o777;

/// As they travel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u32,
    /// Its time of modification.
    pub modified: Modified,
    /// The numbers of its user and group, when they are to be kept.
    pub owner: Option<(u32, u32)>,
    /// Names and values of its extended attributes.
    pub extended: Vec<(RawBytes, RawBytes)>,
}

impl Attributes {
    /// Those that every file has; `owned` when its owner is to be kept.
    pub(crate) fn plain(meta: &Meta, owned: bool) -> Self {
        let Meta { mode, modified, owner, .. } = *meta;
        Self { mode, modified, owner: owned.then_some(owner), extended: Vec::new() }
    }

    /// Sets them, permissions within `mask`; false when not all of the extended ones can be kept there.
    /// A user who may not give files away keeps them.
    pub(crate) fn set_on(&self, file: impl AsFd, mask: u32) -> Result<bool> {
        let owned = self.owner.map_or(Ok(()), |owner| give(&file, owner));
        let set = |(name, value): &(RawBytes, RawBytes)| {
            let is_ours = name.0.starts_with(OF_USERS);
            is_ours && fsetxattr(&file, &name.0[..], &value.0, XattrFlags::empty()).is_ok()
        };
        let all = self.extended.iter().filter(|extended| !set(extended)).count() == 0;
        // Each of them, whatever becomes of the others.
        let permitted = fchmod(&file, Mode::from_raw_mode(self.mode & mask));
        let dated = futimens(&file, &self.modified.timestamps());
        owned.and(permitted).and(dated).map(|()| all)
    }

    /// Without the extended ones that are not set here, or are more than any sender takes along.
    pub(crate) fn trimmed(mut self) -> Self {
        let mut room = EXTENDED_MAX;
        self.extended.retain(|(name, value)| {
            let left = room.checked_sub(name.0.len() + value.0.len());
            let left = left.filter(|_| name.0.starts_with(OF_USERS));
            room = left.unwrap_or(room);
            left.is_some()
        });
        self
    }

    /// Whether there can be such: one number stands for no user and no group.
    pub(crate) fn can_be(&self) -> bool {
        self.owner.is_none_or(|(user, group)| user != u32::MAX && group != u32::MAX)
    }
}

/// Sets user and group, or the group alone; who may set neither, or not there, keeps them.
fn give(file: impl AsFd, (user, group): (u32, u32)) -> Result<()> {
    let group = Some(Gid::from_raw(group));
    match fchown(&file, Some(Uid::from_raw(user)), group) {
        // A name space of users that knows no such number says that it is invalid.
        Err(Errno::PERM | Errno::INVAL) => match fchown(&file, None, group) {
            Err(Errno::PERM | Errno::INVAL) => Ok(()),
            done => done,
        },
        done => done,
    }
}

/// The extended attributes of an open file or directory, or why they cannot be taken along.
pub(crate) fn extended(file: impl AsFd) -> std::result::Result<Vec<(RawBytes, RawBytes)>, String> {
    let mut names = [0; EXTENDED_MAX];
    let listed = match flistxattr(&file, &mut names) {
        Ok(length) => &names[..length],
        Err(Errno::NOTSUP) => &[],
        Err(error) => return Err(left_out(error)),
    };
    let mut all = Vec::new();
    let mut room = EXTENDED_MAX;
    for name in listed.split(|&byte| byte == 0).filter(|name| name.starts_with(OF_USERS)) {
        let mut value = vec![0; room];
        match fgetxattr(&file, name, &mut value) {
            Ok(length) => value.truncate(length),
            // It was removed meanwhile.
            Err(Errno::NODATA) => continue,
            Err(error) => return Err(left_out(error)),
        }
        let taken = name.len() + value.len();
        room = room.checked_sub(taken).ok_or_else(|| left_out(Errno::RANGE))?;
        all.push((RawBytes(name.to_vec()), RawBytes(value)));
    }
    Ok(all)
}

fn left_out(error: Errno) -> String {
    match error {
        Errno::RANGE => {
            format!(
                "copied without its extended attributes: more than {EXTENDED_MAX} bytes of them"
            )
        }
        error => format!("copied without its extended attributes: {error}"),
    }
}

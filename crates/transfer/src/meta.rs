//! What is known of a file besides its bytes.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, Timespec, Timestamps, UTIME_OMIT, statx};
use rustix::io::Result;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::relpath::RelPath;

/// A time of modification since 1970, as file systems keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modified {
    /// Whole seconds.
    pub seconds: i64,
    /// And nanoseconds; what is 1,000,000,000 or more is refused by the kernel.
    pub nanos: u32,
}

impl Modified {
    /// Sets the time of modification and leaves that of access alone.
    pub(crate) fn timestamps(self) -> Timestamps {
        Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: self.seconds, tv_nsec: self.nanos.into() },
        }
    }
}

/// To so many nanoseconds some file systems cut times: NTFS and SMB, UDF, exFAT, ext4 with small inodes. Not to FAT's
/// two seconds: times of whole seconds are common, and a file that changed from one to the next would pass for equal.
const GRAINS: [u32; 4] = [100, 1_000, 10_000_000, 1_000_000_000];

impl Modified {
    /// What becomes of it on one file system or another, itself first.
    pub(crate) fn as_kept(self) -> impl Iterator<Item = Self> {
        let mut last = None;
        let all = std::iter::once(self).chain(GRAINS.map(|grain| self.cut(grain)));
        all.filter(move |&time| last.replace(time) != Some(time))
    }

    fn cut(self, grain: u32) -> Self {
        Self { nanos: self.nanos - self.nanos % grain, ..self }
    }
}

/// Names one state of one source file at one path.
pub type Tag = [u8; 16];

/// Names the same file where the receiver has copied some of it from another version: it may be another one
/// then, and whoever goes on from there sees to that first.
pub(crate) fn of_copies(tag: &Tag) -> Tag {
    tag.map(|byte| !byte)
}

/// Names a file of this host, whatever its names.
pub(crate) type Shared = ((u32, u32), u64);

/// A file's kind, permissions, size and times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub kind: FileType,
    pub mode: u32,
    pub size: u64,
    pub modified: Modified,
    pub inode: u64,
    /// User and group.
    pub owner: (u32, u32),
    device: (u32, u32),
    links: u32,
    /// Pieces of 512 bytes on the disk.
    blocks: u64,
    /// When anything about it changed, which nobody can set at will.
    changed: Modified,
}

impl Meta {
    /// The same as long as nobody touches the file.
    pub fn tag(&self, path: &RelPath) -> Tag {
        let mut hasher = blake3::Hasher::new();
        for time in [self.modified, self.changed] {
            hasher.update(&time.seconds.to_le_bytes()).update(&time.nanos.to_le_bytes());
        }
        for number in [self.size, self.inode] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(path.as_bytes());
        *hasher.finalize().as_bytes().first_chunk().expect("a hash is longer than a tag")
    }

    /// Whether the same bytes and permissions are to be expected; links to it may come and go.
    pub fn is_as(&self, other: &Self) -> bool {
        (self.kind, self.mode, self.size, self.modified)
            == (other.kind, other.mode, other.size, other.modified)
    }

    /// The same for two that are as [`Self::is_as`] asks, and for others once in 2^64 times.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.kind.as_raw_mode(), self.mode, self.size).hash(&mut hasher);
        (self.modified.seconds, self.modified.nanos).hash(&mut hasher);
        hasher.finish()
    }

    /// Whether it is a regular file that belongs to this user, under no other name.
    pub fn is_ours_alone(&self) -> bool {
        (self.kind, self.owner.0, self.links) == (FileType::RegularFile, geteuid().as_raw(), 1)
    }

    /// The same for all names of a file, as long as it stands.
    pub fn identity(&self) -> Shared {
        (self.device, self.inode)
    }

    /// The same, where it has several.
    pub fn shared(&self) -> Option<Shared> {
        (self.links > 1).then_some(self.identity())
    }

    /// Whether there may be holes in it.
    pub fn is_sparse(&self) -> bool {
        self.blocks.saturating_mul(512) < self.size
    }

    /// The room that it takes, at the least, shared by its names. What has holes may have reserved
    /// blocks in which nothing stands, and those are holes as well.
    pub fn least(&self) -> u64 {
        if self.is_sparse() { 0 } else { self.size / u64::from(self.links.max(1)) }
    }

    pub fn of(file: impl AsFd) -> Result<Self> {
        Ok(statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?.into())
    }

    /// Of a name in a directory; a symbolic link is not followed.
    pub fn at(directory: impl AsFd, name: &OsStr) -> Result<Self> {
        Ok(statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?.into())
    }
}

impl From<Statx> for Meta {
    fn from(stat: Statx) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.stx_mode.into()),
            mode: u32::from(stat.stx_mode) & 0o7777,
            size: stat.stx_size,
            modified: Modified { seconds: stat.stx_mtime.tv_sec, nanos: stat.stx_mtime.tv_nsec },
            inode: stat.stx_ino,
            owner: (stat.stx_uid, stat.stx_gid),
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            links: stat.stx_nlink,
            blocks: stat.stx_blocks,
            changed: Modified { seconds: stat.stx_ctime.tv_sec, nanos: stat.stx_ctime.tv_nsec },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_known_as_any_file_system_keeps_it() {
        let kept = |seconds, nanos| {
            let all = Modified { seconds, nanos }.as_kept();
            Vec::from_iter(all.map(|time| (time.seconds, time.nanos)))
        };
        let odd = [123_456_789, 123_456_700, 123_456_000, 120_000_000, 0].map(|nanos| (7, nanos));
        assert_eq!(kept(7, 123_456_789), odd);
        assert_eq!(kept(-1, 500_000_000), [(-1, 500_000_000), (-1, 0)]);
        assert_eq!(kept(7, 0), [(7, 0)], "a second is another time");
        assert_eq!(kept(i64::MIN, 1).len(), 2);
    }
}

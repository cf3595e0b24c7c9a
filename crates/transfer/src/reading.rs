//! Where the bytes of a source file are, and where it has none.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::meta::Meta;
use crate::wire::HOLE_MAX;

/// How often it is asked whether a stream that gives or takes nothing is still wanted.
const GLANCE: Duration = Duration::from_millis(200);

/// What comes next in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// So many bytes, or fewer.
    Bytes(u64),
    /// So many zeros that are not on the disk.
    Hole(u64),
}

/// A file's layout, as far as it was looked at.
pub(crate) struct Layout {
    size: u64,
    /// Where the bytes end that are known of.
    bytes_until: u64,
}

impl Layout {
    pub fn of(meta: &Meta) -> Self {
        Self { size: meta.size, bytes_until: if meta.is_sparse() { 0 } else { meta.size } }
    }

    /// What comes at `offset`, which is before the end.
    pub fn next(&mut self, file: &OwnedFd, offset: u64) -> Next {
        if offset >= self.bytes_until {
            let bytes = match seek(file, SeekFrom::Data(offset)) {
                Ok(bytes) => bytes.min(self.size),
                Err(Errno::NXIO) => self.size,
                // A file system that knows nothing of holes.
                Err(_) => offset,
            };
            if bytes > offset {
                return Next::Hole((bytes - offset).min(HOLE_MAX));
            }
            let hole = seek(file, SeekFrom::Hole(offset)).unwrap_or(self.size);
            self.bytes_until = hole.clamp(offset + 1, self.size);
        }
        Next::Bytes(self.bytes_until - offset)
    }
}

/// Waits until a stream has bytes or has ended; whether it has, after a while.
pub(crate) fn is_ready(stream: &OwnedFd, patient: bool) -> Result<bool, Errno> {
    polled(stream, PollFlags::IN, if patient { GLANCE } else { Duration::ZERO })
}

/// Waits until a stream takes bytes or nobody reads it any more; whether that is so, after a while.
pub(crate) fn takes(stream: impl AsFd) -> Result<bool, Errno> {
    polled(stream, PollFlags::OUT, GLANCE)
}

fn polled(stream: impl AsFd, what: PollFlags, wait: Duration) -> Result<bool, Errno> {
    let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
    match poll(&mut [PollFd::new(&stream, what)], Some(&wait)) {
        Err(Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_are_found_and_cover_all_that_is_not_bytes() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 * HOLE_MAX).unwrap();
        file.write_all_at(b"bytes", 1 << 20).unwrap();
        let file = OwnedFd::from(file);
        let mut layout = Layout::of(&Meta::of(&file).unwrap());
        let (mut offset, mut bytes) = (0, 0);
        while offset < 3 * HOLE_MAX {
            match layout.next(&file, offset) {
                Next::Bytes(length) => (offset, bytes) = (offset + length, bytes + length),
                Next::Hole(length) => offset += length,
            }
        }
        assert_eq!(offset, 3 * HOLE_MAX);
        assert!((5..1 << 20).contains(&bytes), "{bytes}");
    }
}

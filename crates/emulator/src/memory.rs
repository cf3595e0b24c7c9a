//! Memory for packets, apart from the heap.
//!
//! It is there from the beginning, for page faults would delay packets. It is given back when it is dropped. And it
//! is left out when this process starts another: to copy its page tables takes milliseconds, in which no thread
//! of ours may touch memory for the first time, and afterwards each write to a page that both have is a fault.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::slice;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes that are zero at first.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

impl Memory {
    /// So many, at least one.
    ///
    /// # Errors
    /// The kernel has no such memory for this process.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: the kernel chooses where; nothing else knows the mapping.
        let start = unsafe { mmap_anonymous(null_mut(), len, access, flags) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = Self { start, len };
        // SAFETY: it is the mapping made above. A process that is begun has no use for it: it executes
        // another program, and touches nothing of ours until then.
        unsafe { madvise(memory.start.as_ptr().cast(), len, Advice::LinuxDontFork) }?;
        Ok(memory)
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped, initialised by the kernel, and ours alone until this is dropped.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed for writing.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it any more. Should the kernel refuse, it stays mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: it is plain bytes that this owns.
unsafe impl Send for Memory {}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// What the kernel says of the mapping that begins there, if there is one.
    fn flags(start: usize) -> Option<String> {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&format!("{start:x}-")));
        lines.find(|line| line.starts_with("VmFlags:")).map(str::to_owned)
    }

    #[test]
    fn more_than_there_is_is_refused() {
        assert!(Memory::new(1 << 60).is_err());
    }

    #[test]
    fn it_is_there_is_not_copied_and_goes() {
        let mut memory = Memory::new(3 << 20).unwrap();
        assert!(memory.len() == 3 << 20 && memory.iter().all(|&byte| byte == 0));
        memory[12_345] = 7;
        assert_eq!(memory[12_345], 7);
        let start = memory.as_ptr() as usize;
        // "Do not copy on fork." Another mapping beside it may be one with it to the kernel.
        if let Some(flags) = flags(start) {
            assert!(flags.split(' ').any(|flag| flag == "dc"), "{flags}");
        }
        drop(memory);
        let flags = flags(start).unwrap_or_default();
        assert!(!flags.split(' ').any(|flag| flag == "dc"), "{flags}");
    }
}

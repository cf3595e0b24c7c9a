//! A thread that the processor is given to soon.

use std::io;
use std::mem;
use std::time::Duration;

/// The kernel's shortest (Linux 6.12; older ones take no notice).
const SLICE: Duration = Duration::from_micros(100);

/// Asks for short turns of the processor for the calling thread: who takes less at a time comes sooner to
/// its turn (EEVDF, sched(7)), and a batch of datagrams that is late leaves the link idle.
pub(super) fn shorten() -> io::Result<()> {
    // SAFETY: all zeros is a valid set of attributes.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    attributes.size = mem::size_of::<libc::sched_attr>() as u32;
    // Whoever runs in real time, or only when nobody else does, was told to.
    attributes.sched_flags = libc::SCHED_FLAG_KEEP_POLICY as u64;
    // Asked for again, or it would be reset.
    attributes.sched_nice = rustix::process::getpriority_process(None)?;
    attributes.sched_runtime = SLICE.as_nanos() as u64;
    let (myself, flags) = (0, 0);
    // SAFETY: the attributes are as long as they state, and outlive the call.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setattr, myself, &raw const attributes, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

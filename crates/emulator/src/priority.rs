//! Makes a thread run as soon as it wakes.

use std::io;

use libc::{c_long, c_uint};

/// The shortest time slice the kernel grants. A thread that asks for less at a time than the one
/// running may interrupt it (EEVDF, Linux 6.12); otherwise it waits up to 3 ms for its turn.
const SLICE_NANOS: u64 = 100_000;

/// Asks for the best the calling thread may have: real time at the lowest priority, which comes
/// before everything that is not real time; else, for users without that right, short slices.
/// Without either lateness is larger, and reported.
///
/// The thread sleeps whenever nothing is due and never spins, so that the kernel's guard against
/// real-time threads that take a whole core (50 ms of pause a second) has no reason to act.
pub(crate) fn raise() {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut attributes: libc::sched_attr = unsafe { core::mem::zeroed() };
    attributes.size = size_of_val(&attributes) as u32;
    attributes.sched_policy = libc::SCHED_FIFO as u32;
    attributes.sched_priority = 1;
    if set(&attributes).is_err() {
        attributes.sched_policy = libc::SCHED_OTHER as u32;
        attributes.sched_priority = 0;
        attributes.sched_runtime = SLICE_NANOS;
        let _ = set(&attributes);
    }
}

fn set(attributes: &libc::sched_attr) -> io::Result<()> {
    let (this_thread, no_flags): (c_long, c_uint) = (0, 0);
    // SAFETY: the kernel reads `size` bytes of the structure, which is that long.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const *attributes, no_flags)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

//! Network namespaces held by a descriptor.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::{panic, thread};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// A network namespace. It exists as long as a clone of this, or a process or socket in it.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<File>);

impl Namespace {
    /// Makes a namespace with nothing in it but a loopback device that is down.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        Self::create(|namespace| namespace)
    }

    /// Makes a namespace and runs `f` in it, on a thread of its own.
    pub(crate) fn create<R: Send>(f: impl FnOnce(Self) -> R + Send) -> io::Result<R> {
        on_own_thread(|| {
            // SAFETY: the flags do not include FILES, the one that could break I/O safety.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Ok(f(Self(Arc::new(File::open("/proc/thread-self/ns/net")?))))
        })
    }

    /// Moves the calling thread into the namespace, for good. Sockets it opens from now on are
    /// there; sockets it has stay where they are. Meant for the start of a thread, as in a
    /// runtime's `on_thread_start`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `f` in the namespace, on a thread of its own, and returns what it returns.
    ///
    /// # Errors
    /// The kernel's, on entering.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> io::Result<R> {
        on_own_thread(|| self.enter().map(|()| f()))
    }

    /// Makes a command run in the namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let namespace = self.clone();
        // SAFETY: between fork and exec only setns() is called, a plain system call.
        unsafe { command.pre_exec(move || namespace.enter()) };
        command
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes a command end with the thread that starts it: the kernel kills it when that thread ends,
/// however it does, `kill -9` of its process included. For a thread that lives as long as the
/// command should, such as the main one.
pub fn end_with_this_thread(command: &mut Command) {
    let parent = getpid();
    let bind = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Gone before the call above: then nobody would send the signal any more.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec only prctl() and getppid() are called, plain system calls.
    unsafe { command.pre_exec(bind) };
}

fn on_own_thread<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(f).join().unwrap_or_else(|cause| panic::resume_unwind(cause)))
}

//! Ctrl-C, SIGTERM and SIGHUP, and children that are ended by them.

use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};

/// How long threads may take to leave their files in order.
pub const GRACE: Duration = Duration::from_secs(10);

/// How long a child may take to end after it was told to.
const CHILD_GRACE: Duration = Duration::from_secs(5);

/// Waits for Ctrl-C, SIGTERM, and SIGHUP, which comes when a terminal or ssh session closes.
pub struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
}

impl Signals {
    /// From now on none of them ends the process by itself. Needs a runtime.
    pub fn catch() -> anyhow::Result<Self> {
        let catch = |kind| unix::signal(kind).context("cannot catch signals");
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
        })
    }

    /// The next of them.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}

/// The exit code by which shells tell that `signal` ended a process.
pub fn code(signal: Signal) -> u8 {
    128 + signal.as_raw() as u8
}

/// The exit code of a child, as a shell would tell it.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// A command with its descendants, ended together.
pub struct Group {
    child: Child,
    /// Unless it shares ours, in the foreground of a terminal.
    group: Option<Pid>,
}

impl Group {
    /// Starts a command. At a terminal it may stay in the `foreground`, where Ctrl-C reaches it
    /// from the terminal and it may read; otherwise it gets a process group of its own.
    pub fn spawn(mut command: Command, foreground: bool) -> std::io::Result<Self> {
        let own_group = !(foreground && std::io::stdin().is_terminal());
        if own_group {
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
        }
        let child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let group = pid(&child).filter(|_| own_group);
        Ok(Self { child, group })
    }

    /// Whether the terminal itself passes Ctrl-C on to it.
    pub fn in_foreground(&self) -> bool {
        self.group.is_none()
    }

    /// Its process group, unless it shares ours.
    pub fn id(&self) -> Option<Pid> {
        self.group
    }

    /// The child, to take its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for its end.
    pub async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Tells all of it to end by `signal`, waits, and kills what is left after a grace.
    pub async fn end(mut self, signal: Signal) -> std::io::Result<ExitStatus> {
        // Both fail only when nothing is left to end.
        let _ = match (self.group, pid(&self.child)) {
            (Some(group), _) => kill_process_group(group, signal),
            (None, Some(child)) => kill_process(child, signal),
            (None, None) => Ok(()),
        };
        match tokio::time::timeout(CHILD_GRACE, self.child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                self.child.start_kill()?;
                self.child.wait().await
            }
        }
    }
}

impl Drop for Group {
    /// What the command left behind goes with it.
    fn drop(&mut self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| Pid::from_raw(id as i32))
}

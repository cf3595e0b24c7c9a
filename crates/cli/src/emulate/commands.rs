//! The commands that run in a lab.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};
use emulator::{Host, Lab, Machine, end_with_this_thread};
use rustix::process::Signal;

use super::control::VARIABLE;
use crate::FAILED;
use crate::args::{Emulate, RunOn};
use crate::signals::{self, Group, Signals};

/// As shells say it: the command was not found, or may not be run.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// What every command finds around it.
pub struct Surroundings<'a> {
    pub lab: &'a Lab,
    /// The control socket.
    pub control: Option<&'a Path>,
}

impl Surroundings<'_> {
    /// Runs CMD to its end, or holds the lab open without one, and beside it the other commands.
    /// Gives the exit code.
    pub async fn run(&self, options: &Emulate, signals: &mut Signals) -> anyhow::Result<u8> {
        let far = options.far.iter().map(|script| (Host::Far, 0, script));
        let others =
            options.run.iter().map(|RunOn { side, number, script }| (*side, *number, script));
        let mut guardian = Guardian::start(self.machines()).context("cannot start sh")?;
        let mut groups = Vec::new();
        for (side, number, script) in far.chain(others) {
            let machine = self.lab.machines(side).get(number);
            let machine = machine
                .with_context(|| format!("there is no host {side}{}; see --hosts", number + 1))?;
            let group = Group::spawn(self.shell(machine, script), false);
            let group = group.with_context(|| format!("cannot start '{script}'"))?;
            guardian.watch(&group)?;
            groups.push((script, group));
        }
        let code = match options.command.split_first() {
            Some((program, arguments)) => {
                let mut command = self.lab.command(Host::Near, program);
                command.args(arguments);
                near(signals, &mut guardian, self.furnish(command)).await
            }
            None => self.hold_open(signals).await,
        };
        for (script, mut group) in groups {
            if let Some(status) = group.child().try_wait()?.filter(|status| !status.success()) {
                tell!("longhaul: '{script}' had failed by then: {status}");
            }
            group.end(Signal::TERM).await?;
        }
        code
    }

    fn machines(&self) -> impl Iterator<Item = &Machine> {
        Host::BOTH.iter().flat_map(|&side| self.lab.machines(side))
    }

    fn shell(&self, machine: &Machine, script: &str) -> Command {
        let mut command = machine.command("sh");
        command.args(["-c", script]);
        // Its output must not mix with what CMD writes for another program.
        command.stdin(Stdio::null());
        if let Ok(stderr) = rustix::io::dup(std::io::stderr()) {
            command.stdout(stderr);
        }
        self.furnish(command)
    }

    /// The addresses for whatever runs in the lab, which ends with this thread: the main one.
    fn furnish(&self, mut command: Command) -> Command {
        for (side, name) in [(Host::Near, "LONGHAUL_NEAR"), (Host::Far, "LONGHAUL_FAR")] {
            for (machine, number) in self.lab.machines(side).iter().zip(1..) {
                let which = if number == 1 { String::new() } else { format!("_{number}") };
                command.env(format!("{name}{which}"), machine.address().to_string());
                command.env(format!("{name}6{which}"), machine.address6().to_string());
            }
        }
        if let Some(control) = self.control {
            command.env(VARIABLE, control);
        }
        end_with_this_thread(&mut command);
        command
    }

    /// Holds the lab open until a signal.
    async fn hold_open(&self, signals: &mut Signals) -> anyhow::Result<u8> {
        tell!("The lab is open; Ctrl-C ends it. From another shell:\n");
        for machine in self.machines() {
            tell!(
                "  {:<5} {}  {}\n        {} CMD",
                machine.name(),
                machine.address(),
                machine.address6(),
                self.lab.shell_prefix_of(machine)
            );
        }
        if let Some(name) = self.control.and_then(Path::file_stem) {
            let name = name.to_string_lossy();
            tell!("\n  path  longhaul emulate set {name} rate=10mbit loss=2% rtt=300ms ...");
        }
        tell!();
        signals.next().await;
        Ok(0)
    }
}

/// Whether the hosts that commands are meant for will be there.
pub fn check(options: &Emulate, near: u64, far: u64) -> anyhow::Result<()> {
    for RunOn { side, number, .. } in &options.run {
        let hosts = if *side == Host::Near { near } else { far };
        ensure!(
            (*number as u64) < hosts,
            "--run: there is no host {side}{}, for the {side} side has {hosts}; see --hosts",
            number + 1
        );
    }
    Ok(())
}

/// Runs a command to its end, or to ours.
async fn near(
    signals: &mut Signals,
    guardian: &mut Guardian,
    command: Command,
) -> anyhow::Result<u8> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut group = match Group::spawn(command, true) {
        Ok(group) => group,
        Err(error) => {
            tell!("longhaul: cannot run '{name}': {error}");
            return Ok(match error.kind() {
                ErrorKind::NotFound => NOT_FOUND,
                ErrorKind::PermissionDenied => NOT_EXECUTABLE,
                _ => FAILED,
            });
        }
    };
    guardian.watch(&group)?;
    let status = loop {
        tokio::select! {
            status = group.wait() => break status?,
            signal = signals.next() => match signal {
                // The terminal has told the command, which may be a shell and stay.
                Signal::INT if group.in_foreground() => {}
                _ => break group.end(signal).await?,
            },
        }
    };
    Ok(signals::exit_code(status))
}

/// A shell that ends what runs in the lab, at its end, and outlives us just long enough for that when we are
/// killed: the kernel ends a command with its parent, but not the command's own children.
struct Guardian(Child);

impl Guardian {
    /// Reads process groups, and the numbers of network namespaces, until its input ends, which it does when we
    /// do. Then it kills the groups, unless they have ended in order, and whoever is in the namespaces, until
    /// none is found or they will not die.
    const SCRIPT: &str = r#"
        while read -r name; do
            case $name in
                net:*) nets="$nets ${name#net:} " ;;
                ended) groups= ;;
                *) groups="$groups -$name" ;;
            esac
        done
        kill -KILL $groups
        for round in 1 2 3 4 5; do
            found=$(stat -L -c '%i %n' /proc/[0-9]*/ns/net | while read -r net path; do
                path=${path#/proc/}
                case $nets in *" $net "*) echo "${path%%/*}" ;; esac
            done)
            [ "$found" ] || break
            kill -KILL $found
        done"#;

    /// It ends what runs on these hosts.
    fn start<'a>(hosts: impl Iterator<Item = &'a Machine>) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", Self::SCRIPT]).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut guardian = shell.spawn().map(Self)?;
        for host in hosts {
            let inode = rustix::fs::fstat(host.namespace().as_fd())?.st_ino;
            guardian.tell(format_args!("net:{inode}"))?;
        }
        Ok(guardian)
    }

    fn watch(&mut self, group: &Group) -> io::Result<()> {
        group.id().map_or(Ok(()), |group| self.tell(group.as_raw_nonzero()))
    }

    fn tell(&mut self, name: impl Display) -> io::Result<()> {
        self.0.stdin.as_mut().map_or(Ok(()), |shell| writeln!(shell, "{name}"))
    }
}

impl Drop for Guardian {
    /// The groups have ended in order, and their numbers may be others' now. What has left them has not.
    fn drop(&mut self) {
        if self.tell("ended").is_err() {
            let _ = self.0.kill();
        }
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

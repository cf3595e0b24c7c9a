//! Rows across the emulator: each run has a lab of its own, and real programs in it.
//!
//! `fetch` is a file that `longhaul cp` fetches, `hosts` two networks with a path between them,
//! `programs` what their hosts run, `machine` how many of them there are at a time, and `leftovers` sees
//! that nothing stays when this is interrupted.

mod fetch;
mod hosts;
mod leftovers;
mod machine;
mod programs;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use emulator::{Lab, LabOptions, end_with_this_thread};
use path::PathConfig;
use rustix::process::{Pid, Signal, kill_process};
use sim::papers::{Crossed, Crossing, Load, Row};
use units::{Bytes, Rate};

use crate::demo::Folder;
use crate::keys;
use leftovers::Leftovers;
use machine::Machine;

/// What is fetched for as long as it is measured; few paths carry it whole.
const LARGE: (&str, Bytes) = ("large", Bytes::mib(256));
/// What is fetched whole.
const SMALL: (&str, Bytes) = ("small", Bytes::mib(16));
/// For what is served, and what arrives of all runs at a time.
const ROOM: Bytes = Bytes::mib(2560);
/// A look (`--quick`) counts for this part of the time.
const LOOK: u32 = 4;

/// Where rows are run.
pub struct Bench {
    folder: Folder,
    _leftovers: Leftovers,
    program: PathBuf,
    machine: Machine,
    quick: bool,
    /// So many runs at a time, whatever they take.
    jobs: Option<usize>,
}

impl Bench {
    /// Gets the right to make labs, and what they need; else says why there can be none. To be called
    /// before any thread exists.
    pub fn open(quick: bool, jobs: Option<usize>) -> Result<Self, String> {
        Self::try_open(quick, jobs).map_err(|error| crate::sentence(&error))
    }

    fn try_open(quick: bool, jobs: Option<usize>) -> anyhow::Result<Self> {
        emulator::init()?;
        let path = PathConfig::new(Rate::from_bits_per_sec(1_000_000), Duration::ZERO);
        Lab::start(&path, &nameless())?;
        let folder = Folder::with_room(ROOM)?;
        let leftovers = Leftovers::of(folder.path()).context("cannot start sh")?;
        let program = std::env::current_exe()?;
        let machine = Machine::default();
        let bench = Self { folder, _leftovers: leftovers, program, machine, quick, jobs };
        keys::write_shared(&bench.key())?;
        // Servers that are nobody read in it.
        fs::set_permissions(bench.folder.path(), fs::Permissions::from_mode(0o755))?;
        fs::create_dir(bench.served())?;
        for (name, size) in [LARGE, SMALL] {
            let mut random = File::open("/dev/urandom")?.take(size.0);
            io::copy(&mut random, &mut File::create(bench.served().join(name))?)?;
        }
        Ok(bench)
    }

    /// Whether a row has all that it needs; else what it lacks.
    pub fn check(&self, row: &Row) -> Result<(), String> {
        let missing = row.programs().into_iter().find(|program| !is_there(program));
        missing.map_or(Ok(()), |program| Err(format!("{program} is not installed")))
    }

    /// Carries out a run when there is room for it; once more if the emulator did not keep up, whatever
    /// it has shown.
    pub fn cross(&self, crossing: &Crossing, seed: u64) -> Result<Crossed, String> {
        let _part = self.machine.part(self.jobs.unwrap_or(crossing.together));
        let cross = || match &crossing.load {
            Load::Fetch(fetch) => fetch::run(self, crossing, fetch, seed),
            Load::Pair(pair) => programs::run(self, crossing, pair, seed),
        };
        let again = |first: Crossed| if first.fault.is_some() { cross() } else { Ok(first) };
        cross().and_then(again).map_err(|error| crate::sentence(&error))
    }

    /// The lab of a run.
    fn lab(&self, crossing: &Crossing, congestion: &str, seed: u64) -> anyhow::Result<Lab> {
        let options = LabOptions {
            congestion_control: congestion.to_owned(),
            mtu: crossing.mtu,
            ..nameless()
        };
        Ok(Lab::start(&crossing.path.clone().with_seed(seed), &options)?)
    }

    /// How long a run is counted.
    fn counted(&self, crossing: &Crossing) -> Duration {
        crossing.counted / self.part()
    }

    /// By what times and sizes are divided.
    fn part(&self) -> u32 {
        if self.quick { LOOK } else { 1 }
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    fn served(&self) -> PathBuf {
        self.folder.path().join("served")
    }
}

/// What labs are like: names under `/run/netns` would stay when a signal ends us.
fn nameless() -> LabOptions {
    LabOptions { named: false, ..LabOptions::default() }
}

/// Why a lab's run does not count, if so.
fn fault(lab: &Lab) -> Option<String> {
    lab.verdict().faults.first().map(ToString::to_string)
}

/// Where administration programs are, which an ordinary user's search path leaves out.
const ADMIN: [&str; 2] = ["/usr/sbin", "/sbin"];

fn search_path() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.into_iter().chain(ADMIN.map(PathBuf::from))
}

fn is_there(program: &str) -> bool {
    search_path().any(|folder| folder.join(program).is_file())
}

/// A command that finds administration programs, and ends with the thread that starts it.
fn bound(mut command: Command) -> Command {
    if let Ok(path) = std::env::join_paths(search_path()) {
        command.env("PATH", path);
    }
    end_with_this_thread(&mut command);
    command
}

/// Runs a command to its end.
fn succeed(command: Command) -> anyhow::Result<Vec<u8>> {
    let mut command = bound(command);
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    // iperf3 tells its errors where its figures would stand.
    let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
    let said = String::from_utf8_lossy(said);
    ensure!(output.status.success(), "{command:?} failed ({}): {}", output.status, said.trim());
    Ok(output.stdout)
}

/// Runs `ip` somewhere with words that spaces part.
fn ip(mut command: Command, words: &str) -> anyhow::Result<()> {
    command.args(words.split(' '));
    succeed(command).map(drop)
}

/// Sets one of the kernel's settings of the calling thread's network.
fn set(file: &str, value: &str) -> anyhow::Result<()> {
    let file = Path::new("/proc/sys/net").join(file);
    fs::write(&file, value).with_context(|| format!("cannot set {}", file.display()))
}

/// A program that runs until this is dropped.
struct Running {
    child: Child,
    /// What it says of errors: of no interest unless it fails.
    said: File,
}

impl Running {
    fn start(command: Command) -> anyhow::Result<Self> {
        let mut command = bound(command);
        let said = tempfile::tempfile()?;
        command.stderr(said.try_clone()?);
        let child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        Ok(Self { child, said })
    }

    /// Whether it still runs; else an error.
    fn check(&mut self) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "it has ended ({}): {}", ended.unwrap_or_default(), self.said());
        Ok(())
    }

    /// That it has done what it was to do; else an error.
    fn ended_well(&mut self) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(
            ended.is_some_and(|ended| ended.success()),
            "it has not ended well: {}",
            self.said()
        );
        Ok(())
    }

    /// The last of it, without moving where the program writes.
    fn said(&self) -> String {
        let mut bytes = vec![0; 4096];
        let length = self.said.metadata().map_or(0, |meta| meta.len());
        let from = length.saturating_sub(bytes.len() as u64);
        let read = self.said.read_at(&mut bytes, from).unwrap_or_default();
        String::from_utf8_lossy(&bytes[..read]).trim().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A gateway puts back what it has changed.
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_found_out() {
        assert!(is_there("sh") && !is_there("no-such-program"));
    }

    #[test]
    fn what_ended_early_tells_what_it_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo alas >&2; exit 3"]);
        let mut running = Running::start(command).unwrap();
        running.child.wait().unwrap();
        let error = running.check().unwrap_err().to_string();
        assert!(error.contains("alas") && error.contains('3'), "{error}");
    }

    #[test]
    fn what_fails_tells_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo alas >&2; exit 3"]);
        let error = succeed(command).unwrap_err().to_string();
        assert!(error.contains("alas") && error.contains('3'), "{error}");
    }
}

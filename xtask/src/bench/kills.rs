//! A copy or a sync, put or fetched, killed at random moments, and gone on with until all is there: what stands
//! under a final name is right at every moment, in the end everything is, and little is sent twice. Of one
//! large file the journal claims parts, and of many that are none only what stands there.
//!
//! Each copy has a network of its own, whose loopback counts what is sent, packets that carry no data and
//! all; a copy that nobody kills tells how much that has to be.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::lab::Bed;
use super::verdict;
use crate::command;

/// How much to kill.
#[derive(clap::Args)]
pub struct Args {
    /// Kills.
    #[arg(long, default_value_t = 500)]
    runs: u64,
    /// Size of the large file in MiB, beside which there are 300 small ones; and of so many of one MiB.
    #[arg(long, default_value_t = 160)]
    size: u64,
    /// Copies at a time.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Power cuts, of a receiver whose disk forgets what it was not told to keep.
    #[arg(long, default_value_t = 50)]
    cuts: u64,
    /// Fixes when is killed, and who.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The longest that a sitting lasts before somebody is killed, in milliseconds.
const LONGEST: u64 = 1500;
/// The longest that others live on, in milliseconds.
const LINGER: u64 = 300;
/// How long a server may take to clear up.
const CLEARING: Duration = Duration::from_secs(10);
/// Kills of one copy, at most.
const KILLS: u64 = 3;
/// What a kill may make go twice.
const TWICE: u64 = 64 << 20;

/// Who is killed, or cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Sender,
    Receiver,
    Both,
    Ssh,
}

const VICTIMS: [Victim; 4] = [Victim::Sender, Victim::Receiver, Victim::Both, Victim::Ssh];

/// How a copy is asked for.
#[derive(Clone, Copy, Debug)]
struct Kind {
    by_ssh: bool,
    /// The far side sends.
    fetches: bool,
    syncs: bool,
    /// Of files of one MiB.
    many: bool,
}

impl Kind {
    const COUNT: usize = 16;

    fn of(number: usize) -> Self {
        let bit = |bit: usize| number >> bit & 1 == 1;
        Self { by_ssh: bit(0), fetches: bit(1), syncs: bit(2), many: bit(3) }
    }

    /// What is copied, of the source.
    fn tree(self) -> &'static str {
        if self.many { "many" } else { "tree" }
    }

    /// Whether this side's process is meant, and whether the far side's is.
    fn meant(self, victim: Victim) -> (bool, bool) {
        match (victim, self.fetches) {
            (Victim::Both, _) => (true, true),
            (Victim::Sender, false) | (Victim::Receiver, true) => (true, false),
            (Victim::Sender, true) | (Victim::Receiver, false) => (false, true),
            (Victim::Ssh, _) => (false, false),
        }
    }
}

/// What came of some copies.
#[derive(Default)]
struct Tally {
    /// By victim.
    kills: [u64; VICTIMS.len()],
    copies: u64,
    wrong: u64,
    /// Bytes sent twice, and the most of them for each kill of one copy.
    twice: u64,
    most: u64,
}

/// What one copy took.
#[derive(Default)]
struct Copied {
    sent: u64,
    /// Of each sitting that somebody was killed in: who, and MiB sent by then.
    sittings: Vec<(Victim, u64)>,
}

/// Prints what came of it; false when a file was wrong, or too much was sent twice.
pub fn run(args: &Args) -> Result<bool> {
    let bed = Bed::new()?;
    for name in ["tree", "many"] {
        fs::create_dir(bed.source().join(name))?;
    }
    bed.fill("tree/large", args.size << 20)?;
    for number in 0..300 {
        bed.fill(&format!("tree/{number}"), number * 997)?;
    }
    for number in 0..args.size {
        bed.fill(&format!("many/{number}"), 1 << 20)?;
    }
    let share = args.runs.div_ceil(args.jobs.max(1));
    let done: Vec<Result<Tally>> = thread::scope(|scope| {
        let work = |job| {
            let bed = &bed;
            scope.spawn(move || Job::new(bed, job, args.seed)?.run(share))
        };
        let jobs: Vec<_> = (0..args.jobs.max(1)).map(work).collect();
        jobs.into_iter().map(|job| job.join().expect("does not panic")).collect()
    });
    let mut all = Tally::default();
    for tally in done {
        let tally = tally?;
        all.kills.iter_mut().zip(tally.kills).for_each(|(sum, part)| *sum += part);
        all.copies += tally.copies;
        all.wrong += tally.wrong;
        all.twice += tally.twice;
        all.most = all.most.max(tally.most);
    }
    let kills: u64 = all.kills.iter().sum();
    let named = VICTIMS.iter().zip(all.kills).map(|(who, kills)| format!("{who:?} {kills}"));
    println!("{kills} kills ({}), {} copies whole", Vec::from_iter(named).join(", "), all.copies);
    let right = all.wrong == 0;
    println!("files wrong: {} ({})", all.wrong, verdict(right));
    let (mean, little) = (all.twice / kills.max(1), all.most <= TWICE);
    let (mean, most) = (mean >> 20, all.most >> 20);
    println!("sent twice for each kill: {mean} MiB, at most {most} MiB ({})", verdict(little));
    Ok(power(args.cuts)? && right && little)
}

/// The transfer's own test of a disk that forgets, with more cuts.
fn power(cuts: u64) -> Result<bool> {
    if cuts == 0 {
        return Ok(true);
    }
    let mut test = command::cargo(&["test", "--quiet", "--package", "longhaul-transfer"]);
    test.args(["--test", "power"]).env("LONGHAUL_POWER_CUTS", cuts.to_string());
    let passed = test.stdout(Stdio::null()).status()?.success();
    println!("{cuts} power cuts, and nothing lost that the journal claims: {}", verdict(passed));
    Ok(passed)
}

/// A network namespace with nothing but its loopback; gone when dropped.
struct Net(Child);

impl Net {
    fn new() -> Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-ec", "ip link set lo up; echo ready; exec sleep infinity"]);
        let child = command.stdout(Stdio::piped()).spawn().context("cannot start unshare")?;
        let mut net = Self(child);
        let mut line = String::new();
        let stdout = net.0.stdout.take().context("no pipe")?;
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line.trim() == "ready", "only root can make networks of its own for this");
        Ok(net)
    }

    /// A program inside.
    fn inside(&self, program: &Path) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/proc/{}/ns/net", self.0.id())).arg(program);
        inside.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        inside
    }

    /// Bytes sent in it.
    fn sent(&self) -> Result<u64> {
        let table = fs::read_to_string(format!("/proc/{}/net/dev", self.0.id()))?;
        let line = table.lines().find_map(|line| line.trim().strip_prefix("lo:"));
        // Eight figures of what was received stand before.
        let bytes = line.and_then(|line| line.split_whitespace().nth(8)?.parse().ok());
        bytes.context("the loopback has no count")
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Copies one after another, in a folder and network of their own.
struct Job<'a> {
    bed: &'a Bed,
    net: Net,
    folder: PathBuf,
    server: Option<Child>,
    dice: u64,
}

impl<'a> Job<'a> {
    fn new(bed: &'a Bed, number: u64, seed: u64) -> Result<Self> {
        let folder = bed.folder().join(format!("job-{number}"));
        fs::create_dir(&folder)?;
        let shown = folder.display();
        let binary = bed.binary().display();
        let write = |name: &str, text: String| fs::write(folder.join(name), text);
        // Stands for ssh: the far side runs here, behind pipes that can be cut.
        write("pipes", format!("echo $$ >{shown}/ssh.pid; shift; cat | sh -c \"$*\" | cat\n"))?;
        write("far", format!("#!/bin/sh\necho $$ >{shown}/far.pid; exec {binary} \"$@\"\n"))?;
        command::run(Command::new("chmod").arg("+x").arg(folder.join("far")))?;
        let dice = seed.wrapping_mul(1000).wrapping_add(number);
        Ok(Self { bed, net: Net::new()?, folder, server: None, dice })
    }

    fn run(mut self, kills: u64) -> Result<Tally> {
        // Each kind is measured once unhurt.
        let mut needed = [None; Kind::COUNT];
        let mut tally = Tally::default();
        while tally.kills.iter().sum::<u64>() < kills {
            let number = self.dice(Kind::COUNT as u64) as usize;
            let kind = Kind::of(number);
            let needed = match needed[number] {
                Some(needed) => needed,
                None => *needed[number].insert(self.copy(kind, 0, &mut Tally::default())?.sent),
            };
            let before: u64 = tally.kills.iter().sum();
            let most = (1 + self.dice(KILLS)).min(kills - before);
            let copied = self.copy(kind, most, &mut tally)?;
            let killed = copied.sittings.len() as u64;
            let twice = copied.sent.saturating_sub(needed);
            tally.twice += twice;
            if twice / killed.max(1) > TWICE {
                let sittings = &copied.sittings;
                eprintln!("{} MiB twice in {kind:?}, by MiB: {sittings:?}", twice >> 20);
            }
            tally.most = tally.most.max(twice / killed.max(1));
            tally.copies += 1;
        }
        Ok(tally)
    }

    /// One copy, killed so often at most and gone on with until it is whole.
    fn copy(&mut self, kind: Kind, mut kills: u64, tally: &mut Tally) -> Result<Copied> {
        let destination = self.folder.join("destination");
        match fs::remove_dir_all(&destination) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error)?,
            _ => fs::create_dir(&destination)?,
        }
        let before = self.net.sent()?;
        let mut copied = Copied::default();
        loop {
            let (killed, is_whole) = self.sitting(kind, kills > 0)?;
            let wrong = self.wrong(kind, &destination, is_whole)?;
            let sent = self.net.sent()? - before;
            let sitting = sent - copied.sent;
            copied.sent = sent;
            copied.sittings.extend(killed.map(|victim| (victim, sitting >> 20)));
            if wrong > 0 {
                eprintln!("{wrong} wrong in {kind:?}, by MiB: {:?}", copied.sittings);
                tally.wrong += wrong;
            }
            if let Some(victim) = killed {
                tally.kills[victim as usize] += 1;
                kills -= 1;
            }
            if is_whole {
                return Ok(copied);
            }
        }
    }

    /// Who was killed, and whether the copy came to its end all the same: who lives on needs no ssh any more, or
    /// nobody at all.
    fn sitting(&mut self, kind: Kind, kills: bool) -> Result<(Option<Victim>, bool)> {
        let Kind { by_ssh, fetches, syncs, .. } = kind;
        if !by_ssh && self.server.is_none() {
            let mut serve = self.net.inside(self.bed.binary());
            serve.args(["serve", "-q", "--no-remember", "--root"]).arg(self.bed.folder());
            self.server = Some(serve.arg("--key").arg(self.bed.key()).spawn()?);
            // It gets a moment to listen.
            sleep(Duration::from_millis(100));
        }
        let mut copy = self.net.inside(self.bed.binary());
        copy.arg(if syncs { "sync" } else { "cp" });
        copy.args(["--no-remember", "--rate-limit", "1gbit"]);
        let far = if by_ssh {
            copy.arg("-e").arg(format!("sh {}/pipes", self.folder.display()));
            copy.arg("--remote-path").arg(self.folder.join("far"));
            format!("127.0.0.1:{}", self.bed.folder().display())
        } else {
            copy.arg("--key").arg(self.bed.key());
            "lh://127.0.0.1".to_owned()
        };
        let all = format!("source/{}{}", kind.tree(), if syncs { "" } else { "/." });
        let destination = self.folder.join("destination");
        let below = destination.strip_prefix(self.bed.folder())?.display();
        match fetches {
            true => copy.arg(format!("{far}/{all}")).arg(&destination),
            false => copy.arg(self.bed.folder().join(&all)).arg(format!("{far}/{below}")),
        };
        let said = self.folder.join("said");
        let mut copy = copy.stderr(File::create(&said)?).spawn()?;
        let mut left = if kills { 20 + self.dice(LONGEST) } else { u64::MAX };
        while left > 0 {
            if let Some(status) = copy.try_wait()? {
                ensure!(status.success(), "a copy failed: {}", fs::read_to_string(said)?);
                return Ok((None, true));
            }
            sleep(Duration::from_millis(5));
            left = left.saturating_sub(5);
        }
        let victims = if by_ssh { VICTIMS.len() } else { VICTIMS.len() - 1 };
        let victim = VICTIMS[self.dice(victims as u64) as usize];
        self.kill(victim, kind, &mut copy);
        sleep(Duration::from_millis(self.dice(LINGER)));
        let is_whole = copy.try_wait()?.is_some_and(|status| status.success());
        end(&mut copy);
        Ok((Some(victim), is_whole))
    }

    fn kill(&mut self, victim: Victim, kind: Kind, copy: &mut Child) {
        let (near, far) = kind.meant(victim);
        if near {
            end(copy);
        }
        if victim == Victim::Ssh {
            self.kill_noted("ssh.pid", "cat");
        } else if far && kind.by_ssh {
            self.kill_noted("far.pid", "");
        } else if far {
            self.server.take().iter_mut().for_each(end);
        }
    }

    /// Kills a process that has written its number down, and those children of it that are so called.
    fn kill_noted(&self, file: &str, children: &str) {
        // Before it has, there is nobody to kill.
        let Ok(number) = fs::read_to_string(self.folder.join(file)) else { return };
        let number = number.trim();
        let below = fs::read_to_string(format!("/proc/{number}/task/{number}/children"));
        let below = below.unwrap_or_default();
        let is_meant = |child: &&str| {
            fs::read_to_string(format!("/proc/{child}/comm"))
                .is_ok_and(|name| name.trim() == children)
        };
        let all = below.split_whitespace().filter(is_meant).chain([number]);
        for pid in all.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            // One that has ended needs no killing.
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = fs::remove_file(self.folder.join(file));
    }

    /// How many files stand there that should not, or otherwise; when it is whole, also how many do not.
    fn wrong(&self, kind: Kind, destination: &Path, is_whole: bool) -> Result<u64> {
        let source = self.bed.source().join(kind.tree());
        let is_left = |name: &std::ffi::OsStr| name.to_string_lossy().contains(".longhaul-");
        // The server clears up when its client has gone.
        for _ in 0..CLEARING.as_millis() / 50 {
            let mut names = fs::read_dir(destination)?.flatten().map(|entry| entry.file_name());
            if !is_whole || !names.any(|name| is_left(&name)) {
                break;
            }
            sleep(Duration::from_millis(50));
        }
        let (mut right, mut wrong) = (0, 0);
        for entry in fs::read_dir(destination)? {
            let entry = entry?;
            let name = entry.file_name();
            if is_whole || !is_left(&name) {
                let sent = source.join(&name);
                if sent.is_file() && is_same(&sent, &entry.path())? {
                    right += 1;
                } else {
                    eprintln!("wrong: {}, of {} bytes", name.display(), entry.metadata()?.len());
                    wrong += 1;
                }
            }
        }
        let sent = fs::read_dir(source)?.count() as u64;
        Ok(wrong + if is_whole { sent.saturating_sub(right) } else { 0 })
    }

    fn dice(&mut self, below: u64) -> u64 {
        random(&mut self.dice) % below
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.server.iter_mut().for_each(end);
    }
}

fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let mut files = [File::open(one)?, File::open(other)?];
    let mut pieces = [(); 2].map(|()| vec![0; 1 << 20]);
    if files[0].metadata()?.len() != files[1].metadata()?.len() {
        return Ok(false);
    }
    loop {
        let read = files[0].read(&mut pieces[0])?;
        if read == 0 {
            return Ok(true);
        }
        files[1].read_exact(&mut pieces[1][..read])?;
        if pieces[0][..read] != pieces[1][..read] {
            return Ok(false);
        }
    }
}

/// Kills a child, if it lives.
fn end(child: &mut Child) {
    // One that has ended needs neither.
    let _ = child.kill();
    let _ = child.wait();
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

//! Trees of very many files, and of very many levels: the most memory that either side takes.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::lab::Bed;
use super::verdict;

/// How much to copy.
#[derive(clap::Args)]
pub struct Args {
    /// Files of the wide tree: half of them in one directory, the others in a thousand.
    #[arg(long, default_value_t = 1_000_000)]
    files: u64,
    /// Levels of the deep one.
    #[arg(long, default_value_t = 1000)]
    levels: u64,
    /// The most memory that each side may take, in MiB.
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

/// Directories of the half that is not in one.
const DIRECTORIES: u64 = 1000;

/// Prints a row for each tree and command; false when a side took too much.
pub fn run(args: &Args) -> Result<bool> {
    let bed = Bed::new()?;
    let wide = bed.source().join("wide");
    for number in 0..args.files {
        let name = match number % 2 {
            0 => format!("flat/a name of usual length {number}"),
            _ => format!("{}/another {number}", number / 2 % DIRECTORIES),
        };
        let path = wide.join(name);
        if number < 2 * DIRECTORIES + 2 {
            fs::create_dir_all(path.parent().context("it has a parent")?)?;
        }
        fs::write(path, number.to_string())?;
    }
    let mut deep = bed.source().join("deep");
    for level in 0..args.levels {
        deep.push("d");
        fs::create_dir_all(&deep)?;
        fs::write(deep.join("f"), level.to_string())?;
    }
    println!("| tree | command | seconds | sender, MiB | receiver, MiB |");
    println!("|---|---|---|---|---|");
    let mut reached = true;
    for tree in ["wide", "deep"] {
        // The second time nothing is to be done but to compare.
        for command in [&["cp"][..], &["sync", "--delete"], &["sync", "--checksum", "--delete"]] {
            let measured = measure(&bed, tree, command)?;
            let [sender, receiver] = measured.peaks.map(|peak| peak >> 20);
            let passed = sender.max(receiver) < args.limit;
            reached &= passed;
            println!(
                "| {tree} | {} | {:.0} | {sender} | {receiver} ({}) |",
                command.join(" "),
                measured.time.as_secs_f64(),
                verdict(passed)
            );
        }
    }
    Ok(reached)
}

struct Measured {
    time: Duration,
    /// Bytes in memory, at most: at the sender, and at the receiver.
    peaks: [u64; 2],
}

fn measure(bed: &Bed, tree: &str, command: &[&str]) -> Result<Measured> {
    fs::create_dir_all(bed.destination())?;
    let address = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let mut serve = Command::new(bed.binary());
    serve.args(["serve", "-q", "--no-remember", "--listen", &address, "--root"]);
    serve.arg(bed.destination()).arg("--key").arg(bed.key());
    let mut server = Killed(serve.spawn()?);
    // It gets a moment to listen.
    sleep(Duration::from_millis(200));
    let (from, to) = (bed.source().join(tree), format!("lh://{address}/{tree}"));
    let mut copy = Command::new(bed.binary());
    copy.args(command).args(["--quiet", "--no-remember", "--key"]).arg(bed.key());
    let mut copy = Killed(copy.arg(contents(&from)).arg(to).stdin(Stdio::null()).spawn()?);
    let start = now();
    let mut peaks = [0; 2];
    loop {
        for (peak, process) in peaks.iter_mut().zip([&copy, &server]) {
            *peak = process.peak().unwrap_or(0).max(*peak);
        }
        if let Some(status) = copy.0.try_wait()? {
            ensure!(status.success(), "`{}` of {tree} failed", command.join(" "));
            break;
        }
        ensure!(server.0.try_wait()?.is_none(), "the server has ended");
        sleep(Duration::from_millis(50));
    }
    Ok(Measured { time: start.elapsed(), peaks })
}

/// What is in a directory, so that it arrives under the name that is asked for.
fn contents(directory: &Path) -> PathBuf {
    directory.join(".")
}

#[allow(clippy::disallowed_methods, reason = "it is the time of a whole command")]
fn now() -> Instant {
    Instant::now()
}

/// A process that does not outlive the measurement.
pub(super) struct Killed(pub(super) Child);

impl Killed {
    /// The most memory that it has had, in bytes.
    pub(super) fn peak(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

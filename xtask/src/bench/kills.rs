//! Either side, or both, killed at random moments of a copy, which goes on each time: what stands under
//! a final name is right at every moment, and in the end everything is.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::lab::Bed;

/// How much to kill.
#[derive(clap::Args)]
pub struct Args {
    /// Kills.
    #[arg(long, default_value_t = 500)]
    runs: u64,
    /// Size of the large file in MiB; there are 300 small ones beside it.
    #[arg(long, default_value_t = 256)]
    size: u64,
    /// Fixes when is killed, and who.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The longest that a sitting lasts, in milliseconds.
const LONGEST: u64 = 1500;

/// What a kill may make go twice.
const TWICE: u64 = 64 << 20;

/// Prints what came of it; false when a file was wrong, or too much was sent twice.
pub fn run(args: &Args) -> Result<bool> {
    let bed = Bed::new()?;
    fs::create_dir(bed.source().join("tree"))?;
    bed.fill("tree/large", args.size << 20)?;
    for number in 0..300 {
        bed.fill(&format!("tree/{number}"), number * 997)?;
    }
    let sent = contents(&bed.source().join("tree"))?;
    let address = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let mut dice = args.seed;
    let (mut kills, mut whole, mut wrong, mut worst) = (0, 0, 0, 0);
    while kills < args.runs {
        clear(&bed.destination())?;
        // What arrived before each kill, and had to come again.
        let mut before = 0;
        loop {
            let killed = sitting(&bed, &address, &mut dice, kills < args.runs)?;
            let arrived = contents(&bed.destination())?;
            wrong += arrived
                .iter()
                .filter(|(name, bytes)| {
                    let name = Path::new(name.file_name().unwrap_or_default());
                    !name.to_string_lossy().contains(".longhaul-") && sent.get(name) != Some(bytes)
                })
                .count();
            match killed {
                Ending::Killed { moved } => {
                    kills += 1;
                    before = before.max(moved);
                }
                Ending::Whole { kept } => {
                    worst = worst.max(before.saturating_sub(kept));
                    whole += 1;
                    wrong += usize::from(arrived.len() != sent.len());
                    break;
                }
            }
        }
    }
    println!(
        "{kills} kills, {whole} copies whole, {wrong} files wrong, at most {} MiB lost by a kill",
        worst >> 20
    );
    Ok(wrong == 0 && worst <= TWICE)
}

/// How a sitting ended.
enum Ending {
    /// It had so many bytes at the receiver.
    Killed { moved: u64 },
    /// So many bytes were there from before.
    Whole { kept: u64 },
}

fn sitting(bed: &Bed, address: &str, dice: &mut u64, kills: bool) -> Result<Ending> {
    let mut server = Command::new(bed.binary());
    server.args(["serve", "-q", "--no-remember", "--listen", address, "--root"]);
    server.arg(bed.destination()).arg("--key").arg(bed.key()).stdout(Stdio::null());
    let mut server = server.stderr(Stdio::null()).spawn()?;
    let said = bed.folder().join("said");
    let mut copy = Command::new(bed.binary());
    copy.args(["cp", "--json", "--no-remember", "--rate-limit", "1gbit", "--key"]).arg(bed.key());
    copy.arg(bed.source().join("tree/.")).arg(format!("lh://{address}/"));
    // The server gets a moment to listen.
    sleep(Duration::from_millis(100));
    let mut copy = copy.stdout(fs::File::create(&said)?).stderr(Stdio::null()).spawn()?;
    let mut left = if kills { 100 + random(dice) % LONGEST } else { u64::MAX };
    let mut done = None;
    while left > 0 && done.is_none() {
        sleep(Duration::from_millis(10));
        left = left.saturating_sub(10);
        done = copy.try_wait()?;
    }
    if done.is_none() {
        match random(dice) % 3 {
            0 => kill(&mut copy)?,
            1 => kill(&mut server)?,
            _ => {}
        }
    }
    // And what is left of both.
    kill(&mut copy)?;
    kill(&mut server)?;
    let text = fs::read_to_string(&said)?;
    let last: Option<Value> = text.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    let figure = |name: &str| last.as_ref().and_then(|last| last[name].as_u64());
    match done {
        Some(status) => {
            ensure!(status.success(), "a copy failed: {text}");
            Ok(Ending::Whole { kept: figure("kept_bytes").context("no figure")? })
        }
        None => Ok(Ending::Killed { moved: figure("bytes").unwrap_or(0) }),
    }
}

fn kill(child: &mut Child) -> Result<()> {
    // One that has ended needs none.
    let _ = child.kill();
    child.wait()?;
    Ok(())
}

fn clear(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error)?,
        _ => Ok(fs::create_dir(folder)?),
    }
}

/// The files of a folder that has no others in it, by name.
fn contents(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    fs::read_dir(folder)?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().into(), fs::read(entry.path())?))
        })
        .collect()
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

//! Without a path: a large file between RAM disks beside `cp` and `b3sum`, and what a `sync` sends of a
//! file that has changed a little and of a tree that has not.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::Command;

use anyhow::{Context, Result};

use super::lab::Bed;
use super::{spread, verdict};
use crate::command;

/// How much to copy.
#[derive(clap::Args)]
pub struct Args {
    /// Size of the large file in MiB.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..))]
    size: u64,
    /// Runs that count, of each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Files of 4 KiB in the tree.
    #[arg(long, default_value_t = 100_000)]
    files: u64,
}

/// So many times as fast as `cp` and `b3sum`, one after the other, at least, by UDP.
const SPEED: f64 = 0.4;
/// Of a file of which a hundredth has changed, at most this part is sent ...
const CHANGED: f64 = 0.03;
/// ... in both directions together; and of a tree that is the same so many bytes.
const UNCHANGED: u64 = 5_000_000;
/// Seconds between copies. A virtual machine may give freed memory back to its host within two, and what was given
/// back is slow to touch again: so everyone finds the same.
const REST: u64 = 6;
/// The size of what changes in one place.
const PLACE: u64 = 64 << 10;

/// Prints all figures; false when a goal is missed.
pub fn run(args: &Args) -> Result<bool> {
    let bed = Bed::new()?;
    bed.fill("file", args.size << 20)?;
    Ok(speed(&bed, args.runs)? & changed(&bed, args.size << 20)? & unchanged(&bed, args.files)?)
}

fn speed(bed: &Bed, runs: u64) -> Result<bool> {
    let ways = ["udp", "tcp"];
    let copies = ways.map(|way| format!("took copy --transport {way} $FROM/file lh://127.0.0.1/"));
    let round = copies.join("\n") + "\ntook sh -c 'cp $FROM/file $TO/file && b3sum $FROM/file'\n";
    // Memory that a virtual machine has never touched is slow: the first round does not count.
    let told = inside(bed, &round.repeat(runs as usize + 1))?;
    let times: Vec<f64> = told.lines().map(str::parse).collect::<Result<_, _>>()?;
    let of = |way: usize| {
        let times: Vec<f64> = times.chunks(3).skip(1).map(|round| round[way] / 1e9).collect();
        spread(&times)
    };
    let (wanted, ..) = of(2);
    println!("| who | seconds, median | least .. most | times as fast as cp and b3sum |");
    println!("|---|---|---|---|");
    let mut reached = true;
    for (way, name) in ways.iter().chain(&["cp and b3sum"]).enumerate() {
        let (median, least, most) = of(way);
        let judged = match way {
            0 => {
                reached = wanted / median >= SPEED;
                format!(" ({} {SPEED})", verdict(reached))
            }
            _ => String::new(),
        };
        println!(
            "| {name} | {median:.2} | {least:.2} .. {most:.2} | {:.2}{judged} |",
            wanted / median
        );
    }
    Ok(reached)
}

fn changed(bed: &Bed, size: u64) -> Result<bool> {
    let sync = "sent sync $FROM/file lh://127.0.0.1/";
    inside(bed, sync)?;
    let file = OpenOptions::new().write(true).open(bed.source().join("file"))?;
    let places = (size / 100 / PLACE).max(1);
    let (mut random, mut bytes) = (File::open("/dev/urandom")?, [0; PLACE as usize]);
    for place in 0..places {
        random.read_exact(&mut bytes)?;
        file.write_all_at(&bytes, size / places * place)?;
    }
    let sent = inside(bed, sync)?.trim().parse::<u64>()? as f64 / size as f64;
    let reached = sent <= CHANGED;
    let judged = verdict(reached);
    println!(
        "1% changed in {places} places: {:.2}% sent ({judged} {:.0}%)",
        sent * 100.0,
        CHANGED * 100.0
    );
    Ok(reached)
}

fn unchanged(bed: &Bed, files: u64) -> Result<bool> {
    for number in 0..files {
        let folder = format!("tree/{}", number / 1000);
        std::fs::create_dir_all(bed.source().join(&folder))?;
        bed.fill(&format!("{folder}/{number}"), 4096)?;
    }
    let told = inside(bed, &"sent sync $FROM/tree lh://127.0.0.1/\n".repeat(2))?;
    let again = told.lines().nth(1).context("a figure is missing")?.parse::<u64>()?;
    let reached = again <= UNCHANGED;
    println!("{files} files again: {again} bytes sent ({} {UNCHANGED})", verdict(reached));
    Ok(reached)
}

/// Runs a shell script in a network of its own, with a server: `copy` and `sync` use it, `took` tells the
/// nanoseconds of a command and forgets what it wrote, `sent` the bytes sent meanwhile.
fn inside(bed: &Bed, script: &str) -> Result<String> {
    let [binary, key] = [bed.binary().display(), bed.key().display()].map(|path| path.to_string());
    let [from, to] = [bed.source(), bed.destination()].map(|path| path.display().to_string());
    let whole = format!(
        "export FROM={from} TO={to}; mkdir -p $TO; ip link set lo up
         {binary} serve -q --no-remember --key {key} --root $TO & server=$!
         trap 'kill $server' EXIT
         sleep 0.5
         copy() {{ {binary} cp -q --no-remember --key {key} \"$@\"; }}
         sync() {{ {binary} sync -q --no-remember --key {key} \"$@\"; }}
         took() {{ start=$(date +%s%N); \"$@\" >&2; echo $(($(date +%s%N) - start)); rm -rf $TO/file; sleep {REST}; }}
         bytes() {{ awk '/lo:/ {{ print $10 }}' /proc/net/dev; }}
         sent() {{ start=$(bytes); \"$@\" >&2; echo $(($(bytes) - start)); }}
         {script}"
    );
    command::output(Command::new("unshare").args(["--net", "sh", "-ec", &whole]))
}

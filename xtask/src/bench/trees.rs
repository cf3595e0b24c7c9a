//! A tree with files of all sizes, copied many times: every copy must be identical, as programs
//! that know nothing of ours see it.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use anyhow::{Result, ensure};

use super::lab::Bed;

/// Sizes around every border that matters: nothing, a packet, a chunk, a window.
const SIZES: [u64; 12] =
    [0, 1, 1443, 1444, 1445, 65_535, 65_536, 65_537, 1 << 20, (1 << 20) + 1, 9_999_999, 32 << 20];

/// How much to copy.
#[derive(clap::Args)]
pub struct Args {
    /// Copies at each loss.
    #[arg(long, default_value_t = 20)]
    runs: u64,
    /// Size of the largest file in MiB.
    #[arg(long, default_value_t = 1024)]
    largest: u64,
    /// Losses in percent.
    #[arg(long, value_delimiter = ',', default_value = "0,1,5")]
    loss: Vec<f64>,
}

/// Prints a row for each loss; false when a copy differed.
pub fn run(args: &Args) -> Result<bool> {
    let bed = Bed::new()?;
    make_tree(&bed, args.largest << 20)?;
    let wanted = fingerprint(&bed.source().join("tree"))?;
    println!("a tree of {} entries, the largest file {} MiB", wanted.lines().count(), args.largest);
    let mut same = true;
    for &loss in &args.loss {
        let mut identical = 0;
        for seed in 1..=args.runs {
            bed.copy("tree", loss, seed)?;
            let got = fingerprint(&bed.destination().join("tree"))?;
            identical += u64::from(got == wanted);
        }
        println!("loss {loss}%: {identical} of {} copies identical", args.runs);
        same &= identical == args.runs;
    }
    Ok(same)
}

fn make_tree(bed: &Bed, largest: u64) -> Result<()> {
    let tree = bed.source().join("tree");
    fs::create_dir_all(tree.join("a/b/c/empty"))?;
    fs::create_dir_all(tree.join("many"))?;
    bed.fill("tree/largest", largest)?;
    for size in SIZES {
        bed.fill(&format!("tree/a/b/{size}"), size)?;
    }
    for number in 0..500 {
        bed.fill(&format!("tree/many/näme {number}"), number * 37)?;
    }
    symlink("../largest", tree.join("a/link"))?;
    symlink("nowhere", tree.join("a/dangling"))?;
    Ok(())
}

/// Hashes by `sha256sum`, and kinds, modes, times and link targets by `find`.
fn fingerprint(tree: &Path) -> Result<String> {
    let script = "find . -type f -print0 | sort -z | xargs -0 sha256sum && \
                  find . -printf '%p %y %m %T@ %l\\n' | sort";
    let output = Command::new("sh").args(["-ec", script]).current_dir(tree).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).map_err(io::Error::other).map_err(Into::into)
}

//! `cargo xtask fuzz`: LLVM's libFuzzer over the targets of `fuzz`, on the stable compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::command::{cargo, run as run_command};

/// What lets libFuzzer see which code an input reached: all of it is stable, unlike `-Zsanitizer`,
/// which code without `unsafe` does not need.
const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";

/// Everything that fuzzing makes lies below.
const FOLDER: &str = "target/fuzz";
/// Longer inputs find nothing more here, and slowly.
const MAX_INPUT: usize = 4096;
/// An input may not take longer, in seconds, nor more memory, in MiB.
const SLOWEST: u32 = 10;
const MOST_MEMORY: u32 = 1024;

/// The choices of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub struct Args {
    /// Minutes for each target.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The targets; all of them when none is named.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// Runs the targets in turn, and says of each what it came to. False: one broke.
pub fn run(args: &Args) -> Result<bool> {
    let fuzzer = build().context("cannot build the fuzzer (it wants a C++ compiler)")?;
    let all = seeds()?;
    for name in &args.targets {
        ensure!(all.contains(name), "no target '{name}'; there are {}", all.join(", "));
    }
    let chosen = if args.targets.is_empty() { &all } else { &args.targets };
    let mut broken = Vec::new();
    for target in chosen {
        if !fuzz(&fuzzer, target, args.minutes)? {
            broken.push(target.as_str());
        }
    }
    println!("\n{} targets fuzzed, {} broken {}", chosen.len(), broken.len(), broken.join(" "));
    Ok(broken.is_empty())
}

/// The instrumented binary. A triple keeps the flags from build scripts and macros.
fn build() -> Result<PathBuf> {
    let host = String::from_utf8(Command::new("rustc").arg("-vV").output()?.stdout)?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not name its host")?;
    let mut command = cargo(&["build", "--release", "--package", "longhaul-fuzz"]);
    command.args(["--bin", "fuzz", "--features", "libfuzzer"]);
    command.args(["--target", host, "--target-dir", FOLDER]);
    command.env("RUSTFLAGS", INSTRUMENTATION).env("CARGO_PROFILE_RELEASE_LTO", "off");
    run_command(&mut command)?;
    Ok([FOLDER, host, "release", "fuzz"].iter().collect())
}

/// Writes the first inputs of every target; their names.
fn seeds() -> Result<Vec<String>> {
    let mut command = cargo(&["run", "--quiet", "--package", "longhaul-fuzz", "--bin", "seeds"]);
    let output = command.arg(Path::new(FOLDER).join("seeds")).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

/// One target for so many minutes; whether it held. What it learned stays for the next run.
fn fuzz(fuzzer: &Path, target: &str, minutes: f64) -> Result<bool> {
    println!("\n==> {target}");
    let folder = |kind: &str| Path::new(FOLDER).join(kind).join(target);
    let (corpus, crashes) = (folder("corpus"), folder("crashes"));
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&crashes)?;
    let mut command = Command::new(fuzzer);
    command.arg(&corpus).arg(folder("seeds")).env("LONGHAUL_FUZZ_TARGET", target);
    command.arg(format!("-artifact_prefix={}/", crashes.display()));
    command.arg(format!("-max_total_time={}", (minutes * 60.0).ceil() as u64));
    command.arg(format!("-max_len={MAX_INPUT}")).arg(format!("-timeout={SLOWEST}"));
    command.arg(format!("-rss_limit_mb={MOST_MEMORY}"));
    command.args(["-print_final_stats=1", "-verbosity=0"]);
    let held = command.status()?.success();
    if !held {
        println!(
            "{target} broke. When it is mended, keep the input in fuzz/regressions/{target}/; it is in {}",
            crashes.display()
        );
    }
    Ok(held)
}

//! `cargo xtask swarm`: random runs of the transport in virtual time, and bugs planted to show
//! that they would be found.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::command::{cargo, run as run_command};

/// Bugs to be planted, one a file.
const MUTANTS: &str = "xtask/mutants";
/// Each is to be found within so many seeds.
const MUTANT_SEEDS: u64 = 1000;
/// The copy of the sources in which they are planted, and what is built from it.
const COPY: &str = "target/mutants/source";
const COPY_BUILT: &str = "target/mutants/built";

/// The choices of `cargo xtask swarm`.
#[derive(clap::Args)]
pub struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// This seed alone.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Leave these parts of the plans out, as a failure's last lines name them.
    #[arg(long, value_name = "PART,...", default_value = "")]
    without: String,
    /// Plant each bug of xtask/mutants in turn and find it.
    #[arg(long, conflicts_with_all = ["seeds", "from", "seed", "without"])]
    mutants: bool,
}

/// Runs the seeds, or the mutants. False: something did not hold, or was not found.
pub fn run(args: &Args) -> Result<bool> {
    if args.mutants {
        return mutants();
    }
    let mut swarm = built(None)?;
    let (from, seeds) = args.seed.map_or((args.from, args.seeds), |seed| (seed, 1));
    let start = now();
    swarm.args([from.to_string(), seeds.to_string(), "10".into(), args.without.clone()]);
    let held = swarm.status()?.success();
    let seconds = start.elapsed().as_secs_f64();
    println!("{seconds:.1} s, {:.0} seeds/s", seeds as f64 / seconds);
    Ok(held)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the swarm's own speed is measured, not the protocol"
)]
fn now() -> Instant {
    Instant::now()
}

/// The command that runs the swarm, built from these sources or, without a root, from our own.
fn built(root: Option<&Path>) -> Result<Command> {
    let command = |task: &str| {
        let mut command = cargo(&[task, "--quiet", "--release", "--package", "longhaul-sim"]);
        command.args(["--bin", "swarm"]);
        if let Some(root) = root {
            command.arg("--manifest-path").arg(root.join("Cargo.toml"));
            command.args(["--target-dir", COPY_BUILT]);
            // Built often, and run for seconds.
            command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_DEBUG", "0");
            command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        }
        command
    };
    run_command(&mut command("build"))?;
    let mut swarm = command("run");
    swarm.arg("--");
    Ok(swarm)
}

/// Plants every bug in turn and prints how many seeds it took to find it. Seeds that fail without
/// any do not count.
fn mutants() -> Result<bool> {
    let mut patches: Vec<_> =
        std::fs::read_dir(MUTANTS)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    patches.sort();
    copy_sources()?;
    let applies = |patch: &PathBuf| plant(patch, &["--dry-run"]).is_ok();
    let (whole, stale): (Vec<_>, Vec<_>) = patches.iter().partition(|patch| applies(patch));
    println!("{} of {} patches apply", whole.len(), patches.len());
    stale.iter().for_each(|patch| println!("{} does not apply: mend it", patch.display()));
    let known = failures(built(Some(Path::new(COPY)))?, u64::MAX)?;
    println!("{:<28}{:>12}  what was seen", "planted", "seeds");
    let mut found = 0;
    for patch in whole {
        plant(patch, &[])?;
        let failures = failures(built(Some(Path::new(COPY)))?, known.len() as u64 + 1)?;
        plant(patch, &["--reverse"])?;
        let first = failures.iter().find(|(seed, _)| known.iter().all(|(other, _)| other != seed));
        let name = patch.file_stem().unwrap_or_default().to_string_lossy();
        match first {
            Some((seed, seen)) => {
                found += 1;
                println!("{name:<28}{:>12}  {seen}", seed + 1);
            }
            None => println!("{name:<28}{:>12}", "NOT FOUND"),
        }
    }
    println!("{found} of {} found within {MUTANT_SEEDS} seeds", patches.len());
    Ok(found == patches.len())
}

/// Copies the sources afresh, with their times: what has not changed is not built again.
fn copy_sources() -> Result<()> {
    let copy = Path::new(COPY);
    if copy.exists() {
        std::fs::remove_dir_all(copy)?;
    }
    std::fs::create_dir_all(copy)?;
    let mut copying = Command::new("cp");
    copying.args(["--recursive", "--preserve=timestamps"]);
    copying.args(["Cargo.toml", "Cargo.lock", "crates", "fuzz", "xtask", "scenarios"]);
    run_command(copying.arg(copy))
}

/// Applies a patch to the copy, or what else is asked.
fn plant(patch: &Path, how: &[&str]) -> Result<()> {
    let mut planting = Command::new("patch");
    planting.args(["--quiet", "--batch", "--no-backup-if-mismatch", "--strip=1"]).args(how);
    planting.args(["--directory", COPY, "--input"]).arg(std::path::absolute(patch)?);
    let output = planting.output().context("cannot run patch: install it")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{} does not apply: {said}", patch.display());
    Ok(())
}

/// The seeds that fail, up to so many, with the first words of what was seen.
fn failures(mut swarm: Command, most: u64) -> Result<Vec<(u64, String)>> {
    swarm.args(["0".into(), MUTANT_SEEDS.to_string(), most.to_string()]);
    let output = swarm.stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    ensure!(output.status.code().is_some_and(|code| code < 2), "the swarm broke off");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = text.lines().filter_map(|line| line.strip_prefix("FAILED: seed "));
    let mut failures: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .filter_map(|(seed, seen)| Some((seed.parse().ok()?, seen.chars().take(60).collect())))
        .collect();
    failures.sort();
    Ok(failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that does not would be found out of date only when the mutants are run.
    #[test]
    fn every_mutant_applies_to_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let patches = std::fs::read_dir(root.join(MUTANTS)).expect("the mutants");
        let mut count = 0;
        for patch in patches.map(|entry| entry.expect("a patch").path()) {
            let check = ["apply", "--check"];
            let output = Command::new("git").current_dir(root).args(check).arg(&patch).output();
            let output = output.expect("git");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {said}", patch.display());
            count += 1;
        }
        assert!(count >= 10, "{count} mutants");
    }
}

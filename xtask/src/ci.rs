//! `cargo xtask ci`: every check in turn, up to the first that fails.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::command::{cargo, run as run_command};
use crate::{test, tidy};

/// The choices of `cargo xtask ci`.
#[derive(clap::Args)]
pub struct Args {
    /// Leave this step out (may be repeated).
    #[arg(long, value_enum, value_name = "STEP")]
    skip: Vec<Step>,
}

/// One check. They run in this order: the quick ones first.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    Fmt,
    Tidy,
    Clippy,
    Test,
    Doc,
    Deny,
}

impl Step {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn run(self) -> Result<()> {
        match self {
            Self::Fmt => run_command(&mut cargo(&["fmt", "--all", "--check"]))
                .context("the layout differs: run `cargo fmt --all`"),
            Self::Tidy => tidy::run(),
            Self::Clippy => run_command(
                cargo(&["clippy", "--workspace", "--all-targets"]).args(["--", "-D", "warnings"]),
            ),
            Self::Test => {
                ensure!(test::run(&test::Args::default())?, "not every test passed");
                Ok(())
            }
            Self::Doc => run_command(
                cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
            ),
            Self::Deny => deny(),
        }
    }
}

/// Runs the steps and prints what each took.
pub fn run(args: &Args) -> Result<()> {
    let mut rows = Vec::new();
    let mut outcome = Ok(());
    for &step in Step::value_variants() {
        if args.skip.contains(&step) {
            rows.push((step, "left out", Duration::ZERO));
            continue;
        }
        eprintln!("\n==> {}", step.name());
        let (result, took) = timed(|| step.run());
        rows.push((step, if result.is_ok() { "ok" } else { "FAILED" }, took));
        if result.is_err() {
            outcome = result.with_context(|| format!("step `{}` failed", step.name()));
            break;
        }
    }
    println!("\n{:<8}{:<10}{:>9}", "step", "result", "seconds");
    for (step, result, took) in &rows {
        println!("{:<8}{result:<10}{:>9.1}", step.name(), took.as_secs_f64());
    }
    let total: Duration = rows.iter().map(|(_, _, took)| *took).sum();
    println!("{:<18}{:>9.1}", "in all", total.as_secs_f64());
    outcome
}

#[expect(clippy::disallowed_methods, reason = "a build step is timed, not the protocol")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// Licences, bans and sources. Advisories need the network and change without a commit, so the
/// public workflow asks for them by themselves.
fn deny() -> Result<()> {
    if !cargo(&["deny", "--version"]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("cargo-deny is not installed: running `cargo install --locked cargo-deny`");
        run_command(&mut cargo(&["install", "--locked", "cargo-deny"]))?;
    }
    run_command(&mut cargo(&["deny", "check", "licenses", "bans", "sources"]))
}

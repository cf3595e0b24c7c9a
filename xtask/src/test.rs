//! `cargo xtask test`: every test of the workspace, and one line that sums them up.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use anyhow::{Context, Result};

use crate::{command::cargo, tools};

/// So many tests that fail are tried again, by themselves: the machine may have been too busy for them.
/// More are not bad luck.
const MAX_UNSTABLE: usize = 3;
/// Names the file to which a test that cannot run here appends one line, `name: reason`.
const SKIP_LOG: &str = "LONGHAUL_SKIP_LOG";

/// The choices of `cargo xtask test`.
#[derive(clap::Args, Default)]
pub struct Args {
    /// What `cargo test` is given in place of `--workspace`, such as `-p longhaul-net`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    cargo_test: Vec<String>,
}

/// Runs the tests, passing their output through; true when none failed.
pub fn run(args: &Args) -> Result<bool> {
    let missing = tools::provide();
    let workspace = ["--workspace".to_owned()];
    let chosen = if args.cargo_test.is_empty() { &workspace } else { args.cargo_test.as_slice() };
    let mut tally = cargo_test(chosen)?;
    let has_filter = chosen.iter().any(|argument| argument == "--");
    if (1..=MAX_UNSTABLE).contains(&tally.failures.len()) && !has_filter {
        for name in tally.failures.clone() {
            println!("once more: {name}");
            let filter = ["--", "--exact", &name].map(str::to_owned);
            let again = cargo_test(&[chosen, &filter].concat())?;
            tally.tried_again(&name, &again);
        }
    }
    for tool in missing {
        println!("NOT INSTALLED: {} (package {}), {}", tool.program, tool.package, tool.wanted_by);
    }
    print!("{tally}");
    Ok(tally.failed == 0)
}

/// Runs `cargo test` with these arguments, passing its output through.
fn cargo_test(arguments: &[String]) -> Result<Tally> {
    let skip_log = tempfile::NamedTempFile::new().context("cannot make the list of skips")?;
    let mut command = cargo(&["test", "--no-fail-fast"]);
    command.args(arguments);
    command.env(tools::UNPACKED, tools::unpacked());
    command.env(SKIP_LOG, skip_log.path()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start `cargo test`")?;

    let mut tally = Tally::default();
    let output = child.stdout.take().context("`cargo test` has no output")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        writeln!(std::io::stdout(), "{line}")?;
        tally.read(&line);
    }
    tally.skipped_by_themselves(&std::fs::read_to_string(skip_log.path())?);
    tally.finish(child.wait()?.success());
    Ok(tally)
}

/// The sum over all test binaries.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Test programs that have begun, less those that told how they ended.
    unfinished: usize,
    /// The names of the tests that passed, and of those that failed.
    passes: Vec<String>,
    failures: Vec<String>,
    /// What to tell about single tests, in order.
    remarks: Vec<String>,
}

impl Tally {
    /// Takes in one line of `cargo test`.
    fn read(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.unfinished = self.unfinished.saturating_sub(1);
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            self.skipped += count(counts, "ignored");
        } else if line.starts_with("running ")
            && (line.ends_with(" tests") || line.ends_with(" test"))
        {
            self.unfinished += 1;
        } else if let Some((name, verdict)) =
            line.strip_prefix("test ").and_then(|test| test.split_once(" ... "))
        {
            match verdict.split_once(", ").unwrap_or((verdict, "no reason given")) {
                ("ok", _) => self.passes.push(name.trim_end().to_owned()),
                ("FAILED", _) => self.failures.push(name.trim_end().to_owned()),
                ("ignored", reason) => self.remarks.push(format!("SKIPPED: {name}: {reason}")),
                _ => {}
            }
        }
    }

    /// Takes in what tests wrote to the [`SKIP_LOG`]; the harness counted them as passed.
    fn skipped_by_themselves(&mut self, log: &str) {
        for line in log.lines() {
            self.remarks.push(format!("SKIPPED: {line}"));
            self.passed = self.passed.saturating_sub(1);
            self.skipped += 1;
        }
    }

    /// What came of running one of the failures by itself. If it passes now it is told of and counts as
    /// passed: a defect, in the test or in what it tests, but none that holds everything else up.
    fn tried_again(&mut self, name: &str, again: &Self) {
        if again.failed == 0 && again.passes.iter().any(|it| it == name) {
            self.failures.retain(|it| it != name);
            self.remarks.push(format!("UNSTABLE: {name} failed, and passed by itself: mend it"));
            self.failed -= 1;
            self.passed += 1;
        }
    }

    /// A build that broke or a test binary that was killed prints no result: that is a failure too.
    fn finish(&mut self, success: bool) {
        if !success && (self.failed == 0 || self.unfinished > 0) {
            self.remarks.push("FAILED: `cargo test` broke off, see above".to_owned());
            self.failed += 1;
        }
    }
}

/// Ends with the line that other programs look for.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.failures {
            writeln!(f, "FAILED: {name}")?;
        }
        for remark in &self.remarks {
            writeln!(f, "{remark}")?;
        }
        writeln!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The number before `label` in `ok. 3 passed; 0 failed; ...`.
fn count(counts: &str, label: &str) -> usize {
    let mut words = counts.split([' ', ';']).filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        if words.peek() == Some(&label) {
            return word.parse().unwrap_or(0);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str, skip_log: &str, success: bool) -> String {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read(line));
        tally.skipped_by_themselves(skip_log);
        tally.finish(success);
        tally.to_string()
    }

    #[test]
    fn sums_over_binaries_and_names_what_did_not_pass() {
        let output = "\
running 4 tests
test a::one ... ok
test a::two ... FAILED
test a::three ... ignored, needs a satellite
test a::four ... ok
test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 1.25s";
        assert_eq!(
            tally(output, "", false),
            "FAILED: a::two\nSKIPPED: a::three: needs a satellite\n42 passed, 1 failed, 1 skipped\n"
        );
    }

    #[test]
    fn a_test_that_skips_itself_did_not_pass() {
        let output = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured";
        assert_eq!(
            tally(output, "lab: no namespaces\n", true),
            "SKIPPED: lab: no namespaces\n1 passed, 0 failed, 1 skipped\n"
        );
    }

    #[test]
    fn what_passes_by_itself_is_unstable_and_what_does_not_has_failed() {
        let read = |output: &str| {
            let mut tally = Tally::default();
            output.lines().for_each(|line| tally.read(line));
            tally
        };
        let mut first = read(
            "test a   ... FAILED\ntest b ... FAILED\ntest result: FAILED. 5 passed; 2 failed; 0 ignored",
        );
        first.tried_again(
            "a",
            &read("test a ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored"),
        );
        first.tried_again("b", &read("test result: ok. 0 passed; 0 failed; 0 ignored"));
        let unstable = "UNSTABLE: a failed, and passed by itself: mend it";
        let expected = format!("FAILED: b\n{unstable}\n6 passed, 1 failed, 0 skipped\n");
        assert_eq!(first.to_string(), expected);
        first.tried_again("b", &read("error: could not compile"));
        assert_eq!(first.failed, 1);
    }

    #[test]
    fn a_run_without_results_is_a_failure() {
        assert!(tally("", "", false).ends_with("0 passed, 1 failed, 0 skipped\n"));
        let killed = "running 2 tests\ntest a ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 \
                      ignored\nrunning 7 tests\ntest b ... ok";
        assert!(tally(killed, "", false).ends_with("1 passed, 2 failed, 0 skipped\n"));
    }
}

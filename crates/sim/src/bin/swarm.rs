//! Runs seeds of the swarm on all cores: `cargo xtask swarm` builds and starts it.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use sim::swarm::{self, Outcome, Part, Plan};

/// `swarm FIRST COUNT FAILURES [PART,...]`: seeds from FIRST on, up to so many failures, without
/// these parts of the plans.
struct Args {
    first: u64,
    count: u64,
    failures: usize,
    without: Vec<Part>,
}

fn main() -> ExitCode {
    let args = match read_args() {
        Ok(args) => args,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    // A panic in a run is a result, which is printed with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let tally = run(&args);
    tally.print(&args);
    if tally.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read_args() -> Result<Args, String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| {
        let word = words.get(at).ok_or("swarm FIRST COUNT FAILURES [PART,...]")?;
        word.parse::<u64>().map_err(|error| format!("'{word}': {error}"))
    };
    let parts = words.get(3).map_or("", String::as_str);
    let without = parts.split(',').filter(|part| !part.is_empty()).map(str::parse);
    let without = without.collect::<Result<_, _>>()?;
    Ok(Args { first: number(0)?, count: number(1)?, failures: number(2)? as usize, without })
}

fn run(args: &Args) -> Tally {
    let next = AtomicU64::new(args.first);
    let end = args.first + args.count;
    let stop = Mutex::new(false);
    let (sender, receiver) = mpsc::channel();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || stop.lock().is_ok_and(|stop| *stop) {
                        return;
                    }
                    let plan = Plan::draw(seed).without(&args.without);
                    let result = swarm::show(&plan);
                    if sender.send((seed, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut tally = Tally::default();
        for (seed, result) in receiver {
            tally.add(seed, result);
            if tally.failed.len() >= args.failures
                && let Ok(mut stop) = stop.lock()
            {
                *stop = true;
            }
        }
        tally
    })
}

/// What all runs came to.
#[derive(Default)]
struct Tally {
    done: u64,
    failed: Vec<(u64, String)>,
    moved: u64,
    percents: Vec<(u64, u64)>,
}

impl Tally {
    fn add(&mut self, seed: u64, result: Result<Outcome, String>) {
        self.done += 1;
        match result {
            Ok(outcome) => {
                self.moved += outcome.moved;
                self.percents.push((outcome.percent_of_ideal, seed));
            }
            Err(error) => {
                eprintln!("FAILED: seed {seed}: {error}");
                self.failed.push((seed, error));
            }
        }
    }

    fn print(&self, args: &Args) {
        let mut failed = self.failed.clone();
        failed.sort();
        if let Some((seed, _)) = failed.first() {
            let plan = Plan::draw(*seed).without(&args.without);
            let needless = swarm::needless(&plan);
            let parts: Vec<_> = needless.iter().map(ToString::to_string).collect();
            println!("shortened: --seed {seed} --without {}", parts.join(","));
            println!("{:?}", plan.without(&needless));
        }
        let mut percents = self.percents.clone();
        percents.sort_unstable();
        if let Some(&(most, seed)) = percents.last() {
            let at = |share: usize| percents[(percents.len() - 1) * share / 1000].0 as f64 / 100.0;
            println!(
                "time as a multiple of the ideal: {:.2} median, {:.2} p99, {:.2} p99.9, {:.2} at \
                 most (seed {seed})",
                at(500),
                at(990),
                at(999),
                most as f64 / 100.0
            );
        }
        println!(
            "{} seeds from {}, {} failed, {} MiB moved, {} MiB of memory at most",
            self.done,
            args.first,
            failed.len(),
            self.moved >> 20,
            peak_memory() >> 10
        );
    }
}

/// KiB of this process at most (Linux), 0 where that is not told.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

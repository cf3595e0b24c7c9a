//! Congestion control in virtual time: `cargo xtask bench virtual` builds and starts it.
//!
//! `cases` are what is run and what it must reach, `run` runs one of them.
#![forbid(unsafe_code)]

mod cases;
mod run;

use core::time::Duration;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use cases::{Case, Figure, PARTS};

/// `virtual SEEDS MBIT FIRST TRACE WORD...`: so many seeds from FIRST on of the cases whose part
/// or name holds one of the words, the grid at MBIT Mbit/s; TRACE milliseconds between lines of
/// what the senders think, 0 for none.
struct Args {
    seeds: u64,
    rate: u64,
    first: u64,
    trace: Option<Duration>,
    words: Vec<String>,
}

fn main() -> ExitCode {
    let args = match read_args() {
        Ok(args) => args,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let wanted = |case: &Case| {
        let has = |word: &String| case.part == *word || case.name.contains(word.as_str());
        args.words.is_empty() || args.words.iter().any(has)
    };
    let cases: Vec<Case> = cases::all(args.rate).into_iter().filter(wanted).collect();
    if cases.is_empty() {
        eprintln!("error: no part and no case is called so; the parts are {}", PARTS.join(", "));
        return ExitCode::from(2);
    }
    if print(&cases, &run_all(&args, &cases)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read_args() -> Result<Args, String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| {
        let word = words.get(at).ok_or("virtual SEEDS MBIT FIRST TRACE WORD...")?;
        word.parse::<u64>().map_err(|error| format!("'{word}': {error}"))
    };
    let trace = number(3)?;
    Ok(Args {
        seeds: number(0)?,
        rate: number(1)?,
        first: number(2)?,
        trace: (trace > 0).then(|| Duration::from_millis(trace)),
        words: words[4..].to_vec(),
    })
}

/// The figures of each run, by case and seed, on all cores.
fn run_all(args: &Args, cases: &[Case]) -> Vec<Vec<Vec<f64>>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![vec![Vec::new(); args.seeds as usize]; cases.len()]);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let cores = if args.trace.is_some() { 1 } else { cores };
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let (case, seed) = (job / args.seeds as usize, job % args.seeds as usize);
                    let Some(one) = cases.get(case) else { return };
                    if args.trace.is_some() {
                        eprintln!("{}, seed {}", one.name, args.first + seed as u64);
                    }
                    let seen = (one.setup)(args.first + seed as u64).run(args.trace);
                    let figures = (one.judge)(&seen);
                    done.lock().unwrap_or_else(PoisonError::into_inner)[case][seed] = figures;
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A table for each part: of every figure the median and the worst; false when a worst misses.
fn print(cases: &[Case], figures: &[Vec<Vec<f64>>]) -> bool {
    let mut reached = true;
    for part in PARTS {
        let of_part = || cases.iter().zip(figures).filter(|(case, _)| case.part == *part);
        if let Some((first, _)) = of_part().next() {
            println!("\n{part}: median (worst)");
            let names: Vec<String> = first.figures.iter().map(goal).collect();
            println!("{:<34}{}", "", names.join(""));
        }
        for (case, seeds) in of_part() {
            print!("{:<34}", case.name);
            for (at, figure) in case.figures.iter().enumerate() {
                let of: Vec<f64> = seeds.iter().map(|figures| figures[at]).collect();
                let (median, worst) = summary(figure, of);
                let good = (figure.least..=figure.most).contains(&worst);
                reached &= good;
                let mark = if good { ' ' } else { '!' };
                print!("{:>18}", format!("{} ({}){mark}", short(median), short(worst)));
            }
            println!();
        }
    }
    reached
}

fn goal(figure: &Figure) -> String {
    let name = match (figure.least.is_finite(), figure.most.is_finite()) {
        (true, true) => format!("{} {}..{}", figure.name, figure.least, figure.most),
        (true, false) => format!("{} >{}", figure.name, figure.least),
        (false, true) => format!("{} <{}", figure.name, figure.most),
        (false, false) => figure.name.to_owned(),
    };
    format!("{name:>18}")
}

fn short(figure: f64) -> String {
    if figure.abs() < 10.0 { format!("{figure:.3}") } else { format!("{figure:.1}") }
}

/// The median, and what lies farthest from the goal.
fn summary(figure: &Figure, mut of: Vec<f64>) -> (f64, f64) {
    of.sort_by(f64::total_cmp);
    let (least, most) = (of[0], of[of.len() - 1]);
    let worst = match (figure.least.is_finite(), figure.most.is_finite()) {
        (true, true) if most - figure.most > figure.least - least => most,
        (true, _) => least,
        (false, _) => most,
    };
    (of[of.len() / 2], worst)
}

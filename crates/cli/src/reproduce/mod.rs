//! `longhaul reproduce`: the papers' experiments, judged.
//!
//! `sim::papers` has the rows and judges them. Here they are run and told: simulated ones at once, the
//! others by `emulated`, across labs with real programs. `page` writes the report.

mod emulated;
mod page;

use std::cmp::Reverse;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;
use sim::papers::{self, Crossing, Judgement, Row};

use crate::args::{Half, Reproduce, usage};
use crate::progress::emit;
use emulated::Bench;

/// Rows that run side by side: those that are simulated on few cores have runs of very different lengths,
/// and the last runs of one across the emulator leave room for the next row's.
const SIDE_BY_SIDE: usize = 2;
/// Of a look (`--quick`), of which each row has few runs.
const LOOKS_SIDE_BY_SIDE: usize = 3;

/// `longhaul reproduce`.
pub fn run(options: &Reproduce) -> anyhow::Result<ExitCode> {
    let start = net::clock::now();
    let rows: Vec<&Row> = papers::rows().filter(|row| is_wanted(row, options)).collect();
    if let Some(id) = options.ids.iter().find(|id| !rows.iter().any(|row| row.id.starts_with(*id)))
    {
        let why = match papers::rows().any(|row| row.id.starts_with(id)) {
            true => format!("{id} has no such half: leave --only out"),
            false => format!("no row is called {id}; longhaul reproduce --list shows them"),
        };
        usage("reproduce", &why);
    }
    if options.list {
        let half = |row: &Row| if row.is_emulated() { "emulated" } else { "simulated" };
        rows.iter().for_each(|row| say!("{:16} {:9}  {}", row.id, half(row), row.experiment));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(folder) = &options.report {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    // Before any thread: only a process of one thread can enter a user namespace.
    let jobs = options.jobs.map(usize::from);
    let bench = rows.iter().any(|row| row.is_emulated()).then(|| Bench::open(options.quick, jobs));
    let (mut emulated, simulated): (Vec<_>, Vec<_>) =
        rows.iter().copied().partition(|row| row.is_emulated());
    // Those of the lightest runs first: they share what heavy ones need alone.
    emulated.sort_by_key(|row| Reverse(row.together()));
    let workers = match jobs {
        Some(_) => 1,
        None if options.quick => LOOKS_SIDE_BY_SIDE,
        None => SIDE_BY_SIDE,
    };
    // Simulations leave a large heap, and to start a program out of it takes longer than a lab may pause.
    let mut done = run_all(&emulated, workers, options, bench.as_ref());
    done.extend(run_all(&simulated, workers, options, None));
    done.sort_by_key(|one| rows.iter().position(|&row| std::ptr::eq(row, one.row)));
    if let Some(folder) = &options.report {
        page::write(folder, &done)?;
    }
    let minutes = net::clock::now().since(start).as_secs_f64() / 60.0;
    let code = close(&done);
    tell!("longhaul: all of that took {minutes:.1} minutes");
    Ok(code)
}

fn is_wanted(row: &Row, options: &Reproduce) -> bool {
    let half = if row.is_emulated() { Half::Emulated } else { Half::Simulated };
    let named = |id: &String| row.id.starts_with(id.as_str());
    options.only.is_none_or(|only| only == half)
        && (options.ids.is_empty() || options.ids.iter().any(named))
}

/// Runs rows, so many at a time, and tells of each when it is done.
fn run_all(
    rows: &[&'static Row],
    workers: usize,
    options: &Reproduce,
    bench: Option<&Result<Bench, String>>,
) -> Vec<Done> {
    let runs: usize = rows.iter().map(|row| row.runs() * seeds(row, options) as usize).sum();
    let bar = bar(runs as u64);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(&row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            bar.set_message(row.id);
            let one = Done::of(row, options, bench, &bar);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            bar.suspend(|| if options.json { emit(&one.object()) } else { one.show() });
            done.push(one);
        }
    };
    thread::scope(|scope| {
        for _ in 0..workers.min(rows.len()) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Shows how many of so many runs have ended.
fn bar(runs: u64) -> ProgressBar {
    let style = "{msg} {bar:30} {pos} of {len} runs, {eta} left";
    let style = ProgressStyle::with_template(style).expect("a valid template");
    ProgressBar::new(runs).with_style(style)
}

fn seeds(row: &Row, options: &Reproduce) -> u32 {
    if options.quick { 1 } else { options.seeds.unwrap_or(row.seeds) }
}

/// Says what is missing. The exit code, which is good only when all that was asked for is reproduced: of a
/// row that was not run nothing is known either.
fn close(done: &[Done]) -> ExitCode {
    for (words, verdict) in [
        (
            "NOT RUN, for what is told above (--only simulated leaves out what needs labs)",
            Verdict::NotRun,
        ),
        ("BROKE, for what is told above", Verdict::Broke),
        ("UNFAITHFUL, for what is told above", Verdict::Unfaithful),
        ("not reproduced", Verdict::Missed),
    ] {
        let rows = done.iter().filter(|one| one.verdict == verdict);
        let names: Vec<_> = rows.map(Done::name).collect();
        if !names.is_empty() {
            tell!("longhaul: {words}: {}", names.join(", "));
        }
    }
    let all = done.iter().all(|one| one.verdict == Verdict::Reproduced);
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A row, and what came of it.
struct Done {
    row: &'static Row,
    seeds: u32,
    took: Duration,
    verdict: Verdict,
    /// Of a row that was not run to its end: nothing but the reason.
    judgement: Judgement,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Reproduced,
    Missed,
    /// The emulator did not do what it was asked to: nothing is known of the row.
    Unfaithful,
    /// A run of it failed: nothing is known of the row.
    Broke,
    /// This machine lacks something that it needs.
    NotRun,
}

impl Done {
    /// Runs a row with all seeds.
    fn of(
        row: &'static Row,
        options: &Reproduce,
        bench: Option<&Result<Bench, String>>,
        bar: &ProgressBar,
    ) -> Self {
        let seeds = seeds(row, options);
        let start = net::clock::now();
        let bench = match bench {
            None => Ok(None),
            Some(Ok(bench)) => bench.check(row).map(|()| Some(bench)),
            Some(Err(reason)) => Err(reason.clone()),
        };
        let judged = bench.map_err(|reason| (Verdict::NotRun, reason)).and_then(|bench| {
            let cross = |crossing: &Crossing, seed: u64| match bench {
                Some(bench) => bench.cross(crossing, seed),
                None => Err("there is nothing to cross".to_owned()),
            };
            let jobs = options.jobs.map(usize::from);
            let judged = row.reproduce(seeds, jobs, cross, || bar.inc(1));
            judged.map_err(|reason| (Verdict::Broke, reason))
        });
        let (verdict, judgement) = match judged {
            Ok(judgement) if judgement.unfaithful.is_some() => (Verdict::Unfaithful, judgement),
            Ok(judgement) if judgement.passed => (Verdict::Reproduced, judgement),
            Ok(judgement) => (Verdict::Missed, judgement),
            Err((verdict, reason)) => {
                (verdict, Judgement { reasons: vec![reason], ..Judgement::default() })
            }
        };
        Self { row, seeds, took: net::clock::now().since(start), verdict, judgement }
    }

    /// What both halves of a row of the papers' table are told apart by.
    fn name(&self) -> String {
        let half = if self.row.is_emulated() { " emulated" } else { "" };
        format!("{}{half}", self.row.id)
    }

    /// The verdict, and on what part of the experiment if not on all of it.
    fn words(&self) -> String {
        let only = self.judgement.only.map(|part| format!(", {part} only"));
        format!("{}{}", self.verdict.words(), only.unwrap_or_default())
    }

    /// What figures are, of how many seeds.
    fn kind(&self) -> String {
        match self.seeds {
            1 => "with one seed".to_owned(),
            seeds if self.judgement.deterministic => {
                format!("deterministic: the same with each of {seeds} seeds")
            }
            seeds => format!("medians of {seeds} seeds (the least .. the most)"),
        }
    }

    fn show(&self) {
        let Self { row, judgement, .. } = self;
        say!("{}: {} ({:.0} s)", self.name(), self.words(), self.took.as_secs_f64());
        say!("  experiment  {}", row.experiment);
        say!("  paper       {}", row.paper);
        say!("  criterion   {}", row.criterion);
        row.assumptions.iter().for_each(|assumption| say!("  assumed     {assumption}"));
        if !judgement.figures.is_empty() {
            say!("  figures     {}", self.kind());
        }
        judgement.figures.iter().for_each(|figure| say!("  ours        {figure}"));
        self.reasons().for_each(|reason| say!("  why         {reason}"));
        say!("");
    }

    /// Why the verdict is not better.
    fn reasons(&self) -> impl Iterator<Item = &String> {
        self.judgement.unfaithful.iter().chain(&self.judgement.reasons)
    }

    fn object(&self) -> serde_json::Value {
        let reasons: Vec<&str> = self.reasons().map(String::as_str).collect();
        let Self { row, verdict, judgement, .. } = self;
        json!({
            "event": "row",
            "id": row.id,
            "emulated": row.is_emulated(),
            "experiment": row.experiment,
            "paper": row.paper,
            "criterion": row.criterion,
            "assumptions": row.assumptions,
            "figures": judgement.figures,
            "verdict": verdict,
            "run": *verdict != Verdict::NotRun,
            "reproduced": *verdict == Verdict::Reproduced,
            "only": judgement.only,
            "deterministic": judgement.deterministic,
            "reason": (!reasons.is_empty()).then(|| reasons.join(" ")),
            "seeds": self.seeds,
            "seconds": self.took.as_secs_f64(),
        })
    }
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Missed => "NOT REPRODUCED",
            Self::Unfaithful => "UNFAITHFUL",
            Self::Broke => "BROKE",
            Self::NotRun => "NOT RUN",
        }
    }
}

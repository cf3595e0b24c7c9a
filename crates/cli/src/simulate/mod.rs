//! `longhaul simulate`: a scenario in virtual time.

mod diagrams;
mod summary;
mod sweep;

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use maud::html;
use path::MAX_HELD;
use serde_json::json;
use sim::{Outcome, Sample, Study};

use crate::args::Simulate;
use crate::progress::emit;
use crate::report;
use crate::scenario::Source;
use summary::Summary;
use sweep::Point;

/// Samples that are kept in memory until all has run, 80 bytes each.
const MAX_SAMPLES: u128 = 10_000_000;

/// `longhaul simulate`.
pub fn run(options: &Simulate) -> anyhow::Result<ExitCode> {
    let source = Source::find(&options.scenario)?;
    let points = sweep::points(&options.set)?;
    let mut studies = Vec::new();
    for point in &points {
        let study = point.study(&source)?;
        let study = measured(study, options)?;
        studies.extend((0..options.seeds).map(|offset| {
            let mut study = study.clone();
            study.path.seed = study.path.seed.wrapping_add(u64::from(offset));
            study
        }));
    }
    check_samples(&studies)?;
    let outcomes = run_all(&studies, options.jobs);
    let beyond = outcomes.iter().position(|run| run.outside_model > 0);
    if let Some(run) = beyond {
        bail!(
            "{}a link held {MAX_HELD} packets, and no model of one holds more: what came then is missing, and no \
             figure says anything. Take a lower rate, a shorter way or queue, or a larger mtu",
            points[run / options.seeds as usize].prefix()
        );
    }
    if let Some(file) = &options.trace {
        trace(file, &points, options.seeds, &outcomes)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let mut sections = Vec::new();
    for (point, runs) in points.iter().zip(outcomes.chunks(options.seeds as usize)) {
        let summary = Summary::of(runs);
        if options.report.is_some() {
            sections.push(diagrams::section(&point.to_string(), &summary.to_string(), &runs[0])?);
        }
        if options.json {
            for run in runs {
                emit(&json!({ "event": "run", "set": point.object(), "run": run }));
            }
            emit(&json!({ "event": "summary", "set": point.object(), "summary": summary }));
        } else {
            say!("{}{summary}", point.heading());
        }
    }
    if let Some(file) = &options.report {
        let body = html! { p { (studies[0].about) } @for section in sections { (section) } };
        report::write(file, &options.scenario.display().to_string(), &body)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs studies on so many cores, or all, and shows how much simulated time has passed in all of them.
fn run_all(studies: &[Study], jobs: Option<u16>) -> Vec<Outcome> {
    let all: u128 = studies.iter().map(|study| study.duration.as_millis()).sum();
    let style = "{bar:30} {percent} % of what is simulated, {eta} left";
    let style = ProgressStyle::with_template(style).expect("a valid template");
    let bar = ProgressBar::new(all as u64).with_style(style);
    let passed = |time: Duration| bar.inc(time.as_millis() as u64);
    let outcomes = sim::run_all(studies, jobs.map(usize::from), passed);
    bar.finish_and_clear();
    outcomes
}

/// The study with the options for its time.
fn measured(mut study: Study, options: &Simulate) -> anyhow::Result<Study> {
    study.duration = options.duration.unwrap_or(study.duration);
    study.measure_from = options.from;
    let traced = options.trace.is_some() || options.report.is_some();
    study.trace = traced.then_some(options.trace_interval);
    if study.measure_from >= study.duration {
        bail!("nothing is left to measure: a run ends after {:?}", study.duration);
    }
    Ok(study)
}

fn check_samples(studies: &[Study]) -> anyhow::Result<()> {
    let of = |study: &Study| {
        let samples = study.trace.map_or(0, |step| study.duration.as_nanos() / step.as_nanos());
        samples * study.flows.len() as u128
    };
    if studies.iter().map(of).sum::<u128>() > MAX_SAMPLES {
        bail!("this would note {MAX_SAMPLES} samples and more; give a longer --trace-interval");
    }
    Ok(())
}

/// Writes all samples, each behind what was set and the seed.
fn trace(file: &Path, points: &[Point], seeds: u32, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let mut csv = csv::WriterBuilder::new().has_headers(false).from_writer(File::create(file)?);
    csv.write_record(TRACE_HEADER)?;
    for (point, runs) in points.iter().zip(outcomes.chunks(seeds as usize)) {
        let set = point.to_string();
        for run in runs {
            for sample in &run.samples {
                let Sample { seconds, goodput_bps, rtt, window_bytes, rate_bps, .. } = *sample;
                let Sample { connections, queue_packets, drops, .. } = *sample;
                let flow = &run.flows[sample.flow].name;
                let own = (goodput_bps, rtt, window_bytes, rate_bps, connections);
                csv.serialize((&set, run.seed, seconds, flow, own, queue_packets, drops))?;
            }
        }
    }
    Ok(csv.flush()?)
}

/// The columns: what was set, the seed, and those of [`sim::Sample`].
const TRACE_HEADER: [&str; 11] = [
    "set",
    "seed",
    "seconds",
    "flow",
    "goodput_bps",
    "rtt_seconds",
    "window_bytes",
    "rate_bps",
    "connections",
    "queue_packets",
    "drops",
];

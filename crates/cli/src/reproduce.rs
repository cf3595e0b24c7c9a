//! `longhaul reproduce`: the papers' experiments, judged.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::json;
use sim::Study;
use sim::papers::{self, Judgement, Row, Seen};

use crate::args::Reproduce;
use crate::progress::emit;
use crate::simulate::run_all;

/// `longhaul reproduce`.
pub fn run(options: &Reproduce) -> anyhow::Result<ExitCode> {
    let rows: Vec<&Row> = papers::rows().filter(|row| is_wanted(row, &options.ids)).collect();
    if let Some(id) = options.ids.iter().find(|id| !rows.iter().any(|row| row.id.starts_with(*id)))
    {
        bail!("no row is called {id}; longhaul reproduce --list shows them");
    }
    if options.list {
        rows.iter().for_each(|row| say!("{:16} {}", row.id, row.experiment));
        return Ok(ExitCode::SUCCESS);
    }
    let mut failed = Vec::new();
    for row in rows {
        let judgement = reproduce(row, options);
        if options.json {
            emit(&object(row, &judgement));
        } else {
            show(row, &judgement);
        }
        if !judgement.passed {
            failed.push(row.id);
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    tell!("longhaul: not reproduced: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn is_wanted(row: &Row, ids: &[String]) -> bool {
    ids.is_empty() || ids.iter().any(|id| row.id.starts_with(id.as_str()))
}

/// Runs a row with all seeds.
fn reproduce(row: &Row, options: &Reproduce) -> Judgement {
    let studies = (row.studies)();
    let with = |seed: u32| {
        let seeded = |study: &Study| {
            let mut study = study.clone();
            study.path.seed = u64::from(seed);
            study
        };
        studies.iter().map(seeded).collect::<Vec<_>>()
    };
    let all: Vec<Study> = (1..=options.seeds).flat_map(with).collect();
    (row.judge)(&Seen::new(run_all(&all, options.jobs), studies.len()))
}

fn verdict(judgement: &Judgement) -> &'static str {
    if judgement.passed { "reproduced" } else { "NOT REPRODUCED" }
}

fn show(row: &Row, judgement: &Judgement) {
    say!("{}: {}", row.id, verdict(judgement));
    say!("  experiment  {}", row.experiment);
    say!("  paper       {}", row.paper);
    say!("  criterion   {}", row.criterion);
    row.assumptions.iter().for_each(|assumption| say!("  assumed     {assumption}"));
    judgement.figures.iter().for_each(|figure| say!("  ours        {figure}"));
    judgement.reason.iter().for_each(|reason| say!("  why         {reason}"));
    say!("");
}

fn object(row: &Row, judgement: &Judgement) -> serde_json::Value {
    json!({
        "event": "row",
        "id": row.id,
        "experiment": row.experiment,
        "paper": row.paper,
        "criterion": row.criterion,
        "assumptions": row.assumptions,
        "figures": judgement.figures,
        "reproduced": judgement.passed,
        "reason": judgement.reason,
    })
}

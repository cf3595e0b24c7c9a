//! `longhaul reproduce`: the papers' experiments, judged.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use maud::{Markup, html};
use serde_json::json;
use sim::papers::{self, Judgement, Row};

use crate::args::Reproduce;
use crate::progress::emit;
use crate::report;
use crate::simulate::bar;

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
    if let Some(folder) = &options.report {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut judged = Vec::new();
    for row in rows {
        let judgement = reproduce(row, options);
        if options.json {
            emit(&object(row, &judgement));
        } else {
            show(row, &judgement);
        }
        judged.push((row, judgement));
    }
    if let Some(folder) = &options.report {
        write(folder, options, &judged)?;
    }
    let failed = judged.iter().filter(|(_, judgement)| !judgement.passed);
    let failed: Vec<_> = failed.map(|(row, _)| row.id).collect();
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
    let seeds = seeds(row, options);
    let bar = bar((row.runs() * seeds as usize) as u64, row.id);
    let judgement = row.reproduce(seeds, options.jobs.map(usize::from), || bar.inc(1));
    bar.finish_and_clear();
    judgement
}

fn seeds(row: &Row, options: &Reproduce) -> u32 {
    if options.quick { 1 } else { options.seeds.unwrap_or(row.seeds) }
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

/// Writes the page.
fn write(folder: &Path, options: &Reproduce, judged: &[(&Row, Judgement)]) -> anyhow::Result<()> {
    let sections = judged.iter().map(|(row, judgement)| section(row, judgement, options));
    let sections = sections.collect::<anyhow::Result<Vec<_>>>()?;
    let body = html! {
        p {
            "The experiments of five papers, repeated in Longhaul's simulator and judged by criteria that \
             were set beforehand. Where a paper leaves a parameter open, what was chosen stands among the \
             assumptions. The papers' own figures are told in the words of their text."
        }
        table {
            @for (row, judgement) in judged {
                tr {
                    td { a href={ "#" (row.id) } { (row.id) } }
                    td { (verdict_of(judgement)) }
                    td { (row.experiment) }
                }
            }
        }
        @for section in sections { (section) }
    };
    report::write(&folder.join("index.html"), "The papers, reproduced", &body)
}

fn verdict_of(judgement: &Judgement) -> Markup {
    html! { span class=(if judgement.passed { "good" } else { "bad" }) { (verdict(judgement)) } }
}

fn section(row: &Row, judgement: &Judgement, options: &Reproduce) -> anyhow::Result<Markup> {
    let charts = report::charts(&judgement.plots)?;
    let seeds = seeds(row, options);
    Ok(html! {
        h2 id=(row.id) { (row.id) ": " (verdict_of(judgement)) }
        p { (row.experiment) }
        dl {
            dt { "The paper" } dd { (row.paper) }
            dt { "Criterion" } dd { (row.criterion) }
            @if !row.assumptions.is_empty() {
                dt { "Assumed" } dd { ul { @for line in row.assumptions { li { (line) } } } }
            }
            dt { "Ours, medians of " (seeds) " seed" @if seeds > 1 { "s" } }
            dd { pre { @for line in &judgement.figures { (line) "\n" } } }
            @if let Some(reason) = judgement.reason { dt { "Why" } dd { (reason) } }
        }
        (charts)
        p { "Again: " code { "longhaul reproduce " (row.id) } }
    })
}

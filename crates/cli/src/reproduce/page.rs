//! The report: one page with every row.

use std::path::Path;

use maud::{Markup, html};

use super::{Done, Verdict};
use crate::report;

/// Writes it to `index.html` in a folder.
pub fn write(folder: &Path, done: &[Done]) -> anyhow::Result<()> {
    let sections = done.iter().map(section).collect::<anyhow::Result<Vec<_>>>()?;
    let body = html! {
        p {
            "The experiments of five papers, repeated in Longhaul's simulator, and across its emulator with real \
             programs, judged by criteria that were set beforehand. Where a paper leaves a parameter open, what was \
             chosen stands among the assumptions. The papers' own figures are told in the words of their text."
        }
        table {
            @for one in done {
                tr {
                    td { a href={ "#" (anchor(one)) } { (one.name()) } }
                    td { (verdict(one)) }
                    td { (one.row.experiment) }
                }
            }
        }
        @for section in sections { (section) }
    };
    report::write(&folder.join("index.html"), "The papers, reproduced", &body)
}

fn anchor(one: &Done) -> String {
    one.name().replace(' ', "-")
}

fn verdict(one: &Done) -> Markup {
    let class = if one.verdict == Verdict::Reproduced { "good" } else { "bad" };
    html! { span class=(class) { (one.words()) } }
}

fn section(one: &Done) -> anyhow::Result<Markup> {
    let Done { row, took, judgement, .. } = one;
    let charts = report::charts(&judgement.plots)?;
    let only = if row.is_emulated() { "emulated" } else { "simulated" };
    Ok(html! {
        h2 id=(anchor(one)) { (one.name()) ": " (verdict(one)) }
        p { (row.experiment) }
        dl {
            dt { "The paper" } dd { (row.paper) }
            dt { "Criterion" } dd { (row.criterion) }
            @if !row.assumptions.is_empty() {
                dt { "Assumed" } dd { ul { @for line in row.assumptions { li { (line) } } } }
            }
            @if !judgement.figures.is_empty() {
                dt { "Ours, " (one.kind()) }
                dd { pre { @for line in &judgement.figures { (line) "\n" } } }
            }
            @if one.reasons().next().is_some() {
                dt { "Why" } dd { @for reason in one.reasons() { p { (reason) } } }
            }
        }
        (charts)
        p {
            "It took " (format!("{:.0} s", took.as_secs_f64())) ". Again: "
            code { "longhaul reproduce " (row.id) " --only " (only) }
        }
    })
}

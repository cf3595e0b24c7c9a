//! HTML pages that need nothing but themselves: what `simulate` and `reproduce` have found.

mod chart;

use std::path::Path;

use anyhow::Context;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sim::papers::Plot;

const STYLE: &str = "\
body { font: 15px/1.45 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
h1, h2 { line-height: 1.2 } h2 { margin-top: 2em; border-top: 1px solid #ccc; padding-top: 1em }
table { border-collapse: collapse } td, th { padding: .15em .8em .15em 0; text-align: left; vertical-align: top }
dt { font-weight: bold; margin-top: .6em } dd { margin: 0 }
pre { background: #f5f5f5; padding: .6em; overflow-x: auto }
.good { color: #06702e } .bad { color: #b00020; font-weight: bold }
svg { max-width: 100%; height: auto }";

/// Writes a page.
pub fn write(file: &Path, title: &str, body: &Markup) -> anyhow::Result<()> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { h1 { (title) } (body) }
        }
    };
    std::fs::write(file, page.into_string())
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Diagrams, one below the other.
pub fn charts(plots: &[Plot]) -> anyhow::Result<Markup> {
    let charts = plots.iter().map(chart::svg).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(html! { @for chart in charts { p { (PreEscaped(chart)) } } })
}

//! What flows did over time, as diagrams.

use maud::{Markup, html};
use sim::papers::Plot;
use sim::{Outcome, Sample};

use crate::report;

/// Flows that are drawn; of more, the first.
const DRAWN: usize = 8;

/// One combination of values: its summary, and its first run.
pub fn section(set: &str, summary: &str, run: &Outcome) -> anyhow::Result<Markup> {
    let charts = report::charts(&[
        by_flow(run, "Goodput", "Mbit/s", |sample| Some(sample.goodput_bps / 1e6)),
        by_flow(run, "Round-trip time", "ms", |sample| sample.rtt.map(|rtt| rtt * 1e3)),
        by_flow(run, "Congestion window", "KB", |sample| Some(sample.window_bytes as f64 / 1e3)),
        queue(run),
    ])?;
    Ok(html! {
        @if !set.is_empty() { h2 { (set) } }
        pre { (summary) }
        p { "Over time, with seed " (run.seed) ":" }
        (charts)
    })
}

fn by_flow(
    run: &Outcome,
    title: &str,
    unit: &'static str,
    figure: fn(&Sample) -> Option<f64>,
) -> Plot {
    let flows = run.flows.iter().take(DRAWN).enumerate();
    flows.fold(Plot::new(title, "time, s", unit), |plot, (index, flow)| {
        let own = run.samples.iter().filter(|sample| sample.flow == index);
        let points = own.filter_map(|sample| figure(sample).map(|y| (sample.seconds, y)));
        plot.curve(&*flow.name, points)
    })
}

fn queue(run: &Outcome) -> Plot {
    let own = run.samples.iter().filter(|sample| sample.flow == 0);
    let points = own.map(|sample| (sample.seconds, sample.queue_packets as f64));
    let title = format!("Bottleneck's queue, {}", run.queue.link);
    Plot::new(&title, "time, s", "packets").curve("waiting", points)
}

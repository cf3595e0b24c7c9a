//! What flows did over time, as diagrams.

use maud::{Markup, html};
use sim::papers::Plot;
use sim::{Outcome, Sample};

use crate::report;

/// Flows that are drawn; of more, the first.
const DRAWN: usize = 8;

/// One combination of values: its summary, and its first run.
pub fn section(set: &str, summary: &str, run: &Outcome) -> anyhow::Result<Markup> {
    let mut plots = vec![
        by_flow(run, "Goodput", "Mbit/s", |sample| Some(sample.goodput_bps / 1e6)),
        by_flow(run, "Round-trip time", "ms", |sample| sample.rtt.map(|rtt| rtt * 1e3)),
        by_flow(run, "Congestion window", "KB", |sample| Some(sample.window_bytes as f64 / 1e3)),
    ];
    if run.samples.iter().any(|sample| sample.rate_bps.is_some()) {
        let rate = |sample: &Sample| sample.rate_bps.map(|rate| rate as f64 / 1e6);
        plots.push(by_flow(run, "Rate at which it may send", "Mbit/s", rate));
    }
    if run.samples.iter().any(|sample| sample.connections.is_some()) {
        let count = |sample: &Sample| sample.connections.map(f64::from);
        plots.push(by_flow(run, "TCP connections", "connections", count));
    }
    plots.push(queues(run));
    plots.push(by_flow(run, "Dropped so far", "packets", |sample| Some(sample.drops as f64)));
    let charts = report::charts(&plots)?;
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

/// The queues that flows meet, each once.
fn queues(run: &Outcome) -> Plot {
    let title = "Queue of the busiest link on its way";
    let mut plot = by_flow(run, title, "packets", |sample| Some(sample.queue_packets as f64));
    let mut known = Vec::new();
    plot.curves.retain(|(_, points)| {
        let heights: Vec<_> = points.iter().map(|(_, packets)| packets.median).collect();
        let new = !known.contains(&heights);
        known.push(heights);
        new
    });
    plot
}

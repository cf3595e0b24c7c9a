//! What runs with several seeds have shown together.

use core::fmt;

use serde::Serialize;
use sim::{FlowReport, Outcome};

/// A mean, and half of its 95% confidence interval when there is more than one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    mean: f64,
    half: Option<f64>,
}

impl Estimate {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let half = (n > 1.0).then(|| student(values.len() - 1) * (squares / (n - 1.0) / n).sqrt());
        Self { mean, half }
    }

    fn text(&self, scale: f64, digits: usize) -> String {
        if self.mean.is_nan() {
            return "-".to_owned();
        }
        let half = self.half.map(|half| format!(" ±{:.digits$}", half * scale));
        format!("{:.digits$}{}", self.mean * scale, half.unwrap_or_default())
    }
}

/// The 97.5% point of Student's distribution; beyond the table by the first terms of Cornish and Fisher's expansion about
/// that of the normal one (Abramowitz and Stegun, 26.7.5).
fn student(freedom: usize) -> f64 {
    const POINTS: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    const NORMAL: f64 = 1.959_964;
    let beyond = || {
        let (n, z) = (freedom as f64, NORMAL);
        let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n);
        z + (z.powi(3) + z) / (4.0 * n) + second
    };
    POINTS.get(freedom - 1).copied().unwrap_or_else(beyond)
}

/// The flows of one `[[flow]]` table.
#[derive(Debug, Serialize)]
struct Group {
    name: String,
    protocol: String,
    count: usize,
    /// Of all of them together.
    goodput_bps: Estimate,
    /// Jain's index among them.
    fairness: Estimate,
    rtt_seconds: Estimate,
    /// Of data packets.
    lost_share: Estimate,
    again_share: Estimate,
    timeouts: Estimate,
    /// When all was done, in seconds.
    finished: Option<Estimate>,
    /// Mean time of a document.
    document_seconds: Option<Estimate>,
}

/// All runs of one combination of values.
#[derive(Debug, Serialize)]
pub struct Summary {
    runs: usize,
    groups: Vec<Group>,
    /// The busiest link, or with some seeds the one and with some the other.
    bottleneck: String,
    utilisation: Estimate,
    queue_packets: Estimate,
    drop_share: Estimate,
}

/// Each of them once, in the order of their names.
fn bottlenecks(runs: &[Outcome]) -> String {
    let mut links: Vec<&str> = runs.iter().map(|run| run.queue.link.as_str()).collect();
    links.sort_unstable();
    links.dedup();
    links.join(" or ")
}

/// The name of flows of one table: without its number, if there are several.
fn group_name<'a>(flows: &[&'a FlowReport]) -> &'a str {
    match flows {
        [flow] => &flow.name,
        flows => flows[0].name.rsplit_once('.').map_or(&flows[0].name, |(name, _)| name),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// From 1 over their number, one has all, to 1, all have the same.
fn jain(flows: &[&FlowReport]) -> f64 {
    let sum: f64 = flows.iter().map(|flow| flow.goodput_bps).sum();
    let squares: f64 = flows.iter().map(|flow| flow.goodput_bps.powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (flows.len() as f64 * squares) }
}

impl Group {
    /// The flows of one table in each run.
    fn of(runs: &[Vec<&FlowReport>]) -> Self {
        let each =
            |of: &dyn Fn(&[&FlowReport]) -> f64| Estimate::of(runs.iter().map(|run| of(run)));
        let sum = |run: &[&FlowReport], of: fn(&FlowReport) -> u64| run.iter().map(|f| of(f)).sum();
        let mean = |run: &[&FlowReport], of: fn(&FlowReport) -> Option<f64>| {
            let known: Vec<f64> = run.iter().filter_map(|flow| of(flow)).collect();
            known.iter().sum::<f64>() / known.len() as f64
        };
        let first = runs[0][0];
        let all_finished = runs.iter().flatten().all(|flow| flow.finished.is_some());
        let finished =
            |run: &[&FlowReport]| run.iter().filter_map(|flow| flow.finished).fold(0.0, f64::max);
        let documents = |run: &[&FlowReport]| {
            let count: u64 = run.iter().map(|flow| flow.documents.count).sum();
            run.iter().map(|flow| flow.documents.total_seconds).sum::<f64>() / count as f64
        };
        let many = runs.iter().flatten().any(|flow| flow.documents.count > 1);
        Self {
            name: group_name(&runs[0]).to_owned(),
            protocol: first.protocol.clone(),
            count: runs[0].len(),
            goodput_bps: each(&|run| run.iter().map(|flow| flow.goodput_bps).sum()),
            fairness: each(&jain),
            rtt_seconds: each(&|run| mean(run, |flow| flow.rtt_mean)),
            lost_share: each(&|run| {
                share(sum(run, |f| f.queue_drops + f.line_losses), sum(run, |f| f.sent))
            }),
            again_share: each(&|run| share(sum(run, |f| f.retransmitted), sum(run, |f| f.sent))),
            timeouts: each(&|run| sum(run, |f| f.timeouts) as f64),
            finished: all_finished.then(|| each(&finished)),
            document_seconds: many.then(|| each(&documents)),
        }
    }
}

impl Summary {
    pub fn of<'a>(runs: &'a [Outcome]) -> Self {
        let mut tables: Vec<usize> = runs[0].flows.iter().map(|flow| flow.table).collect();
        tables.dedup();
        let groups = tables.into_iter().map(|table| {
            let of = |run: &'a Outcome| run.flows.iter().filter(|it| it.table == table).collect();
            Group::of(&runs.iter().map(of).collect::<Vec<Vec<&FlowReport>>>())
        });
        let each = |of: fn(&Outcome) -> f64| Estimate::of(runs.iter().map(of));
        Self {
            runs: runs.len(),
            groups: groups.collect(),
            bottleneck: bottlenecks(runs),
            utilisation: each(|run| run.queue.utilisation),
            queue_packets: each(|run| run.queue.mean_packets),
            drop_share: each(|run| share(run.queue.dropped, run.queue.offered)),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![
            [
                "flows",
                "protocol",
                "goodput Mbit/s",
                "fairness",
                "RTT ms",
                "lost %",
                "again %",
                "time-outs",
                "done s",
                "document s",
            ]
            .map(str::to_owned),
        ];
        for group in &self.groups {
            let many = if group.count == 1 { String::new() } else { format!(" x {}", group.count) };
            let or_none = |estimate: Option<Estimate>| {
                estimate.map_or_else(|| "-".to_owned(), |estimate| estimate.text(1.0, 3))
            };
            rows.push([
                format!("{}{many}", group.name),
                group.protocol.clone(),
                group.goodput_bps.text(1e-6, 3),
                group.fairness.text(1.0, 3),
                group.rtt_seconds.text(1e3, 1),
                group.lost_share.text(100.0, 3),
                group.again_share.text(100.0, 3),
                group.timeouts.text(1.0, 1),
                or_none(group.finished),
                or_none(group.document_seconds),
            ]);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..rows[0].len()).filter_map(width).collect();
        for row in &rows {
            for (cell, &width) in row.iter().zip(&widths) {
                write!(f, "{cell:width$}  ")?;
            }
            writeln!(f)?;
        }
        write!(
            f,
            "bottleneck: {}, {} % used, {} packets waiting, {} % dropped; {} run{}",
            self.bottleneck,
            self.utilisation.text(100.0, 2),
            self.queue_packets.text(1.0, 1),
            self.drop_share.text(100.0, 3),
            self.runs,
            if self.runs == 1 { "" } else { "s" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a name looks like says nothing.
    #[test]
    fn flows_of_one_table_are_told_of_together() {
        let flow = |name: &str, count: u32| {
            format!("[[flow]]\nname = \"{name}\"\ncount = {count}\ntransport = \"tcp\"\n")
        };
        let flows = [flow("cubic-0.5", 1), flow("cubic-0.7", 3), flow("cubic-0.5", 1)].concat();
        let text =
            format!("about = \"\"\nduration = \"1s\"\nboth = {{ rate = \"1mbit\" }}\n{flows}");
        let study: sim::Study = text.parse().expect("a scenario");
        let summary = Summary::of(&[study.run()]);
        let found: Vec<_> = summary.groups.iter().map(|it| (it.name.as_str(), it.count)).collect();
        assert_eq!(found, [("cubic-0.5", 1), ("cubic-0.7", 3), ("cubic-0.5", 1)]);
    }

    #[test]
    fn students_points_go_on_beyond_the_table() {
        // Of 31, 60 and 1000 degrees of freedom.
        for (freedom, point) in [(31, 2.040), (60, 2.000), (1000, 1.962)] {
            assert!((student(freedom) - point).abs() < 1.5e-3, "{freedom}: {}", student(freedom));
        }
    }

    #[test]
    fn an_estimate_has_students_interval() {
        let estimate = Estimate::of([1.0, 2.0, 3.0].into_iter());
        assert_eq!(estimate.mean, 2.0);
        // s = 1, so t / sqrt(3).
        assert!((estimate.half.unwrap() - 4.303 / 3f64.sqrt()).abs() < 1e-9);
        assert_eq!(Estimate::of([5.0].into_iter()), Estimate { mean: 5.0, half: None });
    }
}

//! The papers' experiments: what each found, the runs that repeat it, and by what it is judged.
//!
//! One file a paper. A [`Row`] passes on its criterion with the median of several seeds; what the
//! paper leaves open stands among its assumptions.

mod gateway;
mod mftp;
mod udtg;
mod xftp;

use core::time::Duration;

use path::{HostGroup, LinkConfig, PathConfig, Preset, Scenario};

use crate::study::{FlowConfig, Outcome, Protocol, Study};
use crate::tcp::{Config, Source};

/// An experiment of a paper.
pub struct Row {
    /// Its name, which begins with the paper's.
    pub id: &'static str,
    /// What is done.
    pub experiment: &'static str,
    /// What the paper found.
    pub paper: &'static str,
    /// When it counts as reproduced.
    pub criterion: &'static str,
    /// What the paper does not tell.
    pub assumptions: &'static [&'static str],
    /// What to run, with the same seed.
    pub studies: fn() -> Vec<Study>,
    /// What the runs mean.
    pub judge: fn(&Seen) -> Judgement,
}

/// Every row that can be run.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    [mftp::ROWS, gateway::ROWS, xftp::ROWS, udtg::ROWS].into_iter().flatten()
}

/// What the runs of a row have shown: for each study the outcomes with all seeds.
pub struct Seen(Vec<Vec<Outcome>>);

impl Seen {
    /// From the outcomes seed by seed, in each of them study by study.
    pub fn new(outcomes: Vec<Outcome>, studies: usize) -> Self {
        let mut seen: Vec<Vec<Outcome>> = (0..studies).map(|_| Vec::new()).collect();
        for (index, outcome) in outcomes.into_iter().enumerate() {
            seen[index % studies].push(outcome);
        }
        Self(seen)
    }

    /// A figure of one study: the median of all seeds, the least and the most.
    fn spread(&self, study: usize, figure: impl Fn(&Outcome) -> f64) -> Spread {
        let mut figures: Vec<f64> = self.0[study].iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        Spread {
            median: figures[figures.len() / 2],
            least: figures[0],
            most: figures[figures.len() - 1],
        }
    }

    /// The medians of a figure of studies one after the other.
    fn medians(
        &self,
        studies: core::ops::Range<usize>,
        figure: impl Fn(&Outcome) -> f64,
    ) -> Vec<f64> {
        studies.map(|study| self.spread(study, &figure).median).collect()
    }
}

/// A figure with all seeds.
#[derive(Clone, Copy, Debug)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

/// Whether a row is reproduced.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// By all of its criterion.
    pub passed: bool,
    /// Our figures, a line each.
    pub figures: Vec<String>,
    /// Of what was not reproduced: why.
    pub reason: Option<&'static str>,
}

impl Judgement {
    /// One that nothing has spoken against yet.
    fn new() -> Self {
        Self { passed: true, ..Self::default() }
    }

    /// Shows a figure, and whether it is as the criterion asks.
    fn ask(&mut self, holds: bool, figure: String) {
        self.passed &= holds;
        self.figures.push(format!("{figure}{}", if holds { "" } else { "  <- MISSED" }));
    }

    /// Asks that a figure lies within a share of what is expected.
    fn near(&mut self, what: &str, found: Spread, expected: f64, share: f64) {
        let off = found.median / expected - 1.0;
        let Spread { median, least, most } = found;
        self.ask(
            off.abs() <= share,
            format!(
                "{what}: {median:.4} ({least:.4} .. {most:.4}), expected {expected:.4}: {:+.1} %",
                100.0 * off
            ),
        );
    }

    /// Why it may have missed, told only then.
    fn because(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason).filter(|_| !self.passed);
        self
    }
}

/// One of the presets.
fn scenario(name: &str) -> Scenario {
    let preset = Preset::find(name).expect("a preset");
    preset.scenario().expect("presets are read by a test")
}

/// Its path.
fn preset(name: &str) -> PathConfig {
    scenario(name).path
}

/// Both directions changed alike.
fn both(mut path: PathConfig, change: impl Fn(&mut LinkConfig)) -> PathConfig {
    change(&mut path.forward);
    change(&mut path.back);
    path
}

/// With another round-trip time.
fn with_rtt(path: PathConfig, rtt: Duration) -> PathConfig {
    both(path, |link| link.delay = rtt / 2)
}

/// TCP flows that are alike.
fn tcp(name: &str, count: usize, config: Config, source: Source) -> Vec<FlowConfig> {
    alike(name, count, Protocol::Tcp(config), source)
}

fn alike(name: &str, count: usize, protocol: Protocol, source: Source) -> Vec<FlowConfig> {
    let flow = |index| FlowConfig {
        name: format!("{name}.{}", index + 1),
        protocol,
        source,
        start: Duration::ZERO,
        stop: None,
        from_far: false,
        near: 0,
        far: 0,
    };
    (0..count).map(flow).collect()
}

/// Flows over a path between one host on each side, for so long.
fn study(path: PathConfig, flows: Vec<FlowConfig>, duration: Duration) -> Study {
    let hosts = || vec![HostGroup::default()];
    Study {
        about: String::new(),
        path,
        near: hosts(),
        far: hosts(),
        flows,
        duration,
        measure_from: Duration::ZERO,
        trace: None,
    }
}

/// When all flows together have delivered so many bytes, from samples, in seconds; the end of the
/// run if they have not. Paper 1 and 3 assign a file's blocks to whichever connection takes them,
/// so that it is whole when the sum is.
fn time_for(outcome: &Outcome, bytes: f64) -> f64 {
    let (mut sum, mut last) = (0.0, 0.0);
    let mut step = 0.0;
    for sample in &outcome.samples {
        if sample.seconds > last {
            step = sample.seconds - last;
            last = sample.seconds;
        }
        let gained = sample.goodput_bps * step / 8.0;
        if sum + gained >= bytes {
            return last - step * (1.0 - (bytes - sum) / gained.max(1.0));
        }
        sum += gained;
    }
    last
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_of_a_kind_and_every_path_is_possible() {
        let mut ids: Vec<_> = rows().map(|row| row.id).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
        for study in rows().flat_map(|row| (row.studies)()) {
            assert!(study.path.links::<()>().is_ok() && !study.flows.is_empty());
        }
    }

    #[test]
    fn quick_rows_pass() {
        for row in rows().filter(|row| ["mftp-eq1", "gw-eq1", "xftp-slowstart"].contains(&row.id)) {
            let studies = (row.studies)();
            let outcomes = studies.iter().map(Study::run).collect();
            let judgement = (row.judge)(&Seen::new(outcomes, studies.len()));
            assert!(judgement.passed, "{}: {judgement:?}", row.id);
        }
    }
}

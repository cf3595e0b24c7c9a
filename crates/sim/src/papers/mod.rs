//! The papers' experiments: what each found, the runs that repeat it, and by what it is judged.
//!
//! One file a paper. A [`Row`] passes on its criterion with the median of several seeds; what the
//! paper leaves open stands among its assumptions.

mod gateway;
mod judge;
mod mftp;
mod mftp_blocks;
mod mftp_errors;
mod state;
mod udtg;
mod xftp;

use core::time::Duration;

use path::{HostGroup, LinkConfig, PathConfig, Preset, Scenario};

use crate::exchange::{Exchange, Exchanged};
use crate::study::{
    Blocks, Carried, FAR, FlowConfig, NEAR, Outcome, Protocol, Stand, Striped, Study, side_by_side,
};
use crate::tcp::{Config, Source};
use judge::Seen;
pub use judge::{Judgement, Plot};

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
    /// With how many seeds that is judged.
    pub seeds: u32,
    /// What to run, and what that means.
    work: Work,
}

/// Seeds of a row of which nothing else is asked.
const SEEDS: u32 = 5;

/// Every row that can be run.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    let papers = [
        mftp::ROWS,
        mftp_errors::ROWS,
        mftp_blocks::ROWS,
        gateway::ROWS,
        xftp::ROWS,
        udtg::ROWS,
        state::ROWS,
    ];
    papers.into_iter().flatten()
}

/// The kinds of runs there are.
enum Work {
    /// Flows over a path.
    Studies(Runs<Study>),
    /// A file over several connections.
    Files(Runs<Blocks>),
    /// Connections whose number is controlled.
    Stripes(Runs<Striped>),
    /// Paper 5's model.
    Exchanges(Runs<Exchange>),
}

/// Runs that are made with the same seed, and what they mean.
struct Runs<R: Run> {
    make: fn() -> Vec<R>,
    judge: fn(&Seen<R::Shown>) -> Judgement,
}

const fn studies(make: fn() -> Vec<Study>, judge: fn(&Seen<Outcome>) -> Judgement) -> Work {
    Work::Studies(Runs { make, judge })
}

const fn files(make: fn() -> Vec<Blocks>, judge: fn(&Seen<Carried>) -> Judgement) -> Work {
    Work::Files(Runs { make, judge })
}

const fn exchanges(make: fn() -> Vec<Exchange>, judge: fn(&Seen<Exchanged>) -> Judgement) -> Work {
    Work::Exchanges(Runs { make, judge })
}

/// Something that is fixed by itself and a seed.
trait Run: Sync {
    type Shown: Send;
    fn show(&self, seed: u64) -> Self::Shown;
}

impl Run for Study {
    type Shown = Outcome;
    fn show(&self, seed: u64) -> Outcome {
        let mut study = self.clone();
        study.path.seed = seed;
        study.run()
    }
}

impl Run for Blocks {
    type Shown = Carried;
    fn show(&self, seed: u64) -> Carried {
        self.run(seed)
    }
}

impl Run for Striped {
    type Shown = Vec<Stand>;
    fn show(&self, seed: u64) -> Vec<Stand> {
        let path = self.path.clone().with_seed(seed);
        Self { path, ..self.clone() }.run()
    }
}

impl Run for Exchange {
    type Shown = Exchanged;
    fn show(&self, seed: u64) -> Exchanged {
        self.run(seed)
    }
}

impl<R: Run> Runs<R> {
    fn judged(&self, seeds: u32, cores: Option<usize>, done: impl Fn() + Sync) -> Judgement {
        let runs = (self.make)();
        let with = |seed: u32| runs.iter().map(move |run| (run, u64::from(seed)));
        let all: Vec<(&R, u64)> = (1..=seeds).flat_map(with).collect();
        let shown = side_by_side(&all, cores, |(run, seed)| {
            let shown = run.show(*seed);
            done();
            shown
        });
        (self.judge)(&Seen::new(shown, runs.len()))
    }
}

impl Row {
    /// How many runs it has with each seed.
    pub fn runs(&self) -> usize {
        match &self.work {
            Work::Studies(runs) => (runs.make)().len(),
            Work::Files(runs) => (runs.make)().len(),
            Work::Stripes(runs) => (runs.make)().len(),
            Work::Exchanges(runs) => (runs.make)().len(),
        }
    }

    /// Runs it with the seeds from 1 on, on so many cores or all, and judges. `done` hears of each
    /// run that has ended.
    pub fn reproduce(&self, seeds: u32, cores: Option<usize>, done: impl Fn() + Sync) -> Judgement {
        match &self.work {
            Work::Studies(runs) => runs.judged(seeds, cores, done),
            Work::Files(runs) => runs.judged(seeds, cores, done),
            Work::Stripes(runs) => runs.judged(seeds, cores, done),
            Work::Exchanges(runs) => runs.judged(seeds, cores, done),
        }
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
        between: (NEAR, FAR),
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
        wires: Vec::new(),
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
        for row in rows() {
            let paths: Vec<_> = match &row.work {
                Work::Studies(runs) => (runs.make)().into_iter().map(|run| run.path).collect(),
                Work::Files(runs) => (runs.make)().into_iter().map(|run| run.path).collect(),
                Work::Stripes(runs) => (runs.make)().into_iter().map(|run| run.path).collect(),
                Work::Exchanges(_) => Vec::new(),
            };
            assert!(paths.iter().all(|path| path.links::<()>().is_ok()), "{}", row.id);
            assert!(row.runs() > 0 && row.seeds >= SEEDS, "{}", row.id);
        }
    }

    #[test]
    fn quick_rows_pass() {
        let quick = ["mftp-eq1", "gw-eq1", "xftp-slowstart", "mftp-assign"];
        for row in rows().filter(|row| quick.contains(&row.id)) {
            let judgement = row.reproduce(1, None, || {});
            assert!(judgement.passed, "{}: {judgement:?}", row.id);
        }
    }
}

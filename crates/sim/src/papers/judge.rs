//! What the runs of a row have shown, and by what they are judged.

use core::ops::Range;

/// What the runs of a row have shown: of each run, with all seeds.
pub(super) struct Seen<T>(Vec<Vec<T>>);

impl<T> Seen<T> {
    /// From what was shown seed by seed, with each of them run by run.
    pub(super) fn new(shown: Vec<T>, runs: usize) -> Self {
        let mut seen: Vec<Vec<T>> = (0..runs).map(|_| Vec::new()).collect();
        for (index, one) in shown.into_iter().enumerate() {
            seen[index % runs].push(one);
        }
        Self(seen)
    }

    /// What a run has shown with the first seed.
    pub(super) fn first(&self, run: usize) -> &T {
        &self.0[run][0]
    }

    /// A figure of one run: the median of all seeds, the least and the most.
    pub(super) fn spread(&self, run: usize, figure: impl Fn(&T) -> f64) -> Spread {
        let mut figures: Vec<f64> = self.0[run].iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        Spread {
            median: figures[figures.len() / 2],
            least: figures[0],
            most: figures[figures.len() - 1],
        }
    }

    /// The median of a figure of one run.
    pub(super) fn median(&self, run: usize, figure: impl Fn(&T) -> f64) -> f64 {
        self.spread(run, figure).median
    }

    /// The medians of a figure of runs one after the other.
    pub(super) fn medians(&self, runs: Range<usize>, figure: impl Fn(&T) -> f64) -> Vec<f64> {
        runs.map(|run| self.median(run, &figure)).collect()
    }
}

/// A figure with all seeds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

/// A diagram as papers have them.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// What stands at the axis along which its curves go, and at the other.
    pub axes: (&'static str, &'static str),
    /// Whether the former is logarithmic.
    pub logarithmic: bool,
    /// Its curves, by their names.
    pub curves: Vec<(String, Vec<(f64, f64)>)>,
}

impl Plot {
    /// One without curves.
    pub fn new(title: &str, x: &'static str, y: &'static str) -> Self {
        Self { title: title.to_owned(), axes: (x, y), logarithmic: false, curves: Vec::new() }
    }

    /// With one more curve.
    pub fn curve(
        mut self,
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        self.curves.push((name.into(), points.into_iter().collect()));
        self
    }

    /// Along a logarithmic axis.
    pub fn logarithmic(self) -> Self {
        Self { logarithmic: true, ..self }
    }
}

/// Whether a row is reproduced.
#[derive(Clone, Debug, Default)]
pub struct Judgement {
    /// By all of its criterion.
    pub passed: bool,
    /// Our figures, a line each.
    pub figures: Vec<String>,
    /// The same as diagrams, where the paper has one.
    pub plots: Vec<Plot>,
    /// Of what was not reproduced: why.
    pub reason: Option<String>,
}

impl Judgement {
    /// One that nothing has spoken against yet.
    pub(super) fn new() -> Self {
        Self { passed: true, ..Self::default() }
    }

    /// Shows a figure that the criterion does not ask about.
    pub(super) fn tell(&mut self, figure: String) {
        self.figures.push(figure);
    }

    /// Shows a figure, and whether it is as the criterion asks.
    pub(super) fn ask(&mut self, holds: bool, figure: String) {
        self.passed &= holds;
        self.figures.push(format!("{figure}{}", if holds { "" } else { "  <- MISSED" }));
    }

    /// Asks that a figure lies within a share of what is expected.
    pub(super) fn near(&mut self, what: &str, found: Spread, expected: f64, share: f64) {
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

    /// Adds a diagram.
    pub(super) fn plot(&mut self, plot: Plot) {
        self.plots.push(plot);
    }

    /// Why it may have missed, told only then.
    pub(super) fn because(mut self, reason: &str) -> Self {
        self.reason = (!self.passed).then(|| reason.to_owned());
        self
    }
}

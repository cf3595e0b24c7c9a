//! What the runs of a row have shown, and by what they are judged.

use core::cell::Cell;
use core::fmt;
use core::ops::{Index, Range};

/// What the runs of a row have shown: of each run, with all seeds.
pub(super) struct Seen<T> {
    shown: Vec<Vec<T>>,
    /// Whether any figure asked for so far differed from seed to seed.
    varied: Cell<bool>,
}

impl<T> Seen<T> {
    /// From what was shown seed by seed, with each of them run by run.
    pub(super) fn new(shown: Vec<T>, runs: usize) -> Self {
        let mut seen: Vec<Vec<T>> = (0..runs).map(|_| Vec::new()).collect();
        for (index, one) in shown.into_iter().enumerate() {
            seen[index % runs].push(one);
        }
        Self { shown: seen, varied: Cell::new(false) }
    }

    /// What a run has shown with the first seed.
    pub(super) fn first(&self, run: usize) -> &T {
        &self.shown[run][0]
    }

    /// A figure of one run with all seeds.
    pub(super) fn spread(&self, run: usize, figure: impl Fn(&T) -> f64) -> Spread {
        let spread = Spread::of(self.shown[run].iter().map(figure).collect());
        self.varied.set(self.varied.get() || spread.least < spread.most);
        spread
    }

    /// A figure of runs one after the other.
    pub(super) fn spreads(&self, runs: Range<usize>, figure: impl Fn(&T) -> f64) -> Spreads {
        Spreads(runs.map(|run| self.spread(run, &figure)).collect())
    }

    /// Whether chance had a part in what was judged.
    pub(super) fn varied(&self) -> bool {
        self.varied.get()
    }
}

/// A figure with all seeds: the median, the least and the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Of an even number the mean of the two in the middle.
    pub median: f64,
    /// Of all seeds.
    pub least: f64,
    /// Of all seeds.
    pub most: f64,
}

impl Spread {
    fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let (count, last) = (figures.len(), figures.len() - 1);
        let median = (figures[last / 2] + figures[count / 2]) / 2.0;
        Self { median, least: figures[0], most: figures[last] }
    }

    /// In another unit.
    pub(super) fn times(self, factor: f64) -> Self {
        let Self { median, least, most } = self;
        Self { median: factor * median, least: factor * least, most: factor * most }
    }
}

/// One that is the same with every seed.
impl From<f64> for Spread {
    fn from(figure: f64) -> Self {
        Self { median: figure, least: figure, most: figure }
    }
}

/// The median, and from where to where it goes if anywhere.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let shown = |figure: f64| format!("{figure:.digits$}");
        let [median, least, most] = [self.median, self.least, self.most].map(shown);
        if least == most { f.write_str(&median) } else { write!(f, "{median} ({least} .. {most})") }
    }
}

/// A figure of several runs.
#[derive(Clone, Debug)]
pub(super) struct Spreads(pub(super) Vec<Spread>);

impl Spreads {
    /// The medians.
    pub(super) fn medians(&self) -> Vec<f64> {
        self.0.iter().map(|spread| spread.median).collect()
    }

    /// In another unit.
    pub(super) fn times(&self, factor: f64) -> Self {
        Self(self.0.iter().map(|spread| spread.times(factor)).collect())
    }
}

impl Index<usize> for Spreads {
    type Output = Spread;
    fn index(&self, run: usize) -> &Spread {
        &self.0[run]
    }
}

impl fmt::Display for Spreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, spread) in self.0.iter().enumerate() {
            f.write_str(if at > 0 { ", " } else { "" })?;
            spread.fmt(f)?;
        }
        Ok(())
    }
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
    /// Its curves, by their names: medians, with their spread.
    pub curves: Vec<(String, Vec<(f64, Spread)>)>,
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
        points: impl IntoIterator<Item = (f64, impl Into<Spread>)>,
    ) -> Self {
        let points = points.into_iter().map(|(x, y)| (x, y.into()));
        self.curves.push((name.into(), points.collect()));
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
    /// The part of the paper's experiment that this row is about, if not all of it.
    pub only: Option<&'static str>,
    /// Whether all seeds have shown the same.
    pub deterministic: bool,
    /// Why nothing that was seen counts: the emulator did not do what it was asked to.
    pub unfaithful: Option<String>,
    /// Our figures, a line each.
    pub figures: Vec<String>,
    /// The same as diagrams, where the paper has one.
    pub plots: Vec<Plot>,
    /// Of what was not reproduced: why, one for each that missed.
    pub reasons: Vec<String>,
}

/// What stands for a reason until it is told.
const UNKNOWN: &str = "no reason found yet";

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
    pub(super) fn ask(&mut self, holds: bool, figure: String) -> Asked<'_> {
        self.figures.push(format!("{figure}{}", if holds { "" } else { "  <- MISSED" }));
        if holds {
            return Asked(None);
        }
        self.passed = false;
        self.reasons.push(format!("{figure}: {UNKNOWN}"));
        Asked(Some(&mut self.reasons))
    }

    /// Asks that a figure lies within a share of what is expected.
    pub(super) fn near(
        &mut self,
        what: &str,
        found: Spread,
        expected: f64,
        share: f64,
    ) -> Asked<'_> {
        let off = found.median / expected - 1.0;
        self.ask(
            off.abs() <= share,
            format!("{what}: {found:.4}, expected {expected:.4}: {:+.1} %", 100.0 * off),
        )
    }

    /// Adds a diagram.
    pub(super) fn plot(&mut self, plot: Plot) {
        self.plots.push(plot);
    }
}

/// What was asked; of what was missed, with the reasons so far, the last of which is its own.
pub(super) struct Asked<'a>(Option<&'a mut Vec<String>>);

impl Asked<'_> {
    /// Why it was missed, in figures of the same runs; told once when others missed for the same.
    pub(super) fn because(self, reason: impl FnOnce() -> String) {
        if let Some(reasons) = self.0 {
            reasons.pop();
            let reason = reason();
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_shown_and_remembered() {
        let seen = Seen::new(vec![1.0, 7.0, 4.0, 7.0, 2.0, 7.0, 8.0, 7.0], 2);
        assert_eq!(format!("{:.1}", seen.spread(1, |x| *x)), "7.0");
        assert!(!seen.varied());
        // Of four the mean of the second and the third.
        assert_eq!(seen.spread(0, |x| *x), Spread { median: 3.0, least: 1.0, most: 8.0 });
        assert!(seen.varied());
        assert_eq!(format!("{:.0}", seen.spreads(0..2, |x| *x)), "3 (1 .. 8), 7");
        let odd = Seen::new(vec![5.0, 9.0, 1.0], 1);
        assert_eq!(odd.spread(0, |x| *x).median, 5.0);
    }

    #[test]
    fn a_miss_has_its_own_reason_or_says_that_none_is_known() {
        let mut judgement = Judgement::new();
        judgement.ask(true, "good".to_owned()).because(|| unreachable!("it holds"));
        assert!(judgement.passed && judgement.reasons.is_empty());
        judgement.ask(false, "a".to_owned());
        judgement.ask(false, "b".to_owned()).because(|| "too slow".to_owned());
        judgement.ask(false, "c".to_owned()).because(|| "too slow".to_owned());
        assert!(!judgement.passed);
        assert_eq!(judgement.reasons, ["a: no reason found yet", "too slow"]);
        assert!(judgement.figures[2].ends_with("MISSED"));
    }
}

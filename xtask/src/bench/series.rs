//! What had arrived when.

/// Seconds, and the bytes that had arrived by then.
pub type Series = Vec<(f64, f64)>;

/// Mbit/s between two moments.
pub fn rate(series: &[(f64, f64)], from: f64, to: f64) -> f64 {
    (at(series, to) - at(series, from)) * 8.0 / 1e6 / (to - from)
}

/// The bytes at a moment, by a straight line between the counts around it.
fn at(series: &[(f64, f64)], moment: f64) -> f64 {
    let after = series.partition_point(|point| point.0 < moment);
    let (earlier, later) = match (after.checked_sub(1).map(|i| series[i]), series.get(after)) {
        (Some(earlier), Some(&later)) => (earlier, later),
        (None, Some(&later)) => ((0.0, 0.0), later),
        (Some(last), None) => return last.1,
        (None, None) => return 0.0,
    };
    let share = (moment - earlier.0) / (later.0 - earlier.0).max(f64::EPSILON);
    earlier.1 + share * (later.1 - earlier.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_taken_between_counts() {
        let series = vec![(1.0, 1e6), (3.0, 3e6), (4.0, 5e6)];
        assert_eq!(at(&series, 0.5), 0.5e6);
        assert_eq!(at(&series, 2.0), 2e6);
        assert_eq!(at(&series, 9.0), 5e6);
        assert_eq!(rate(&series, 1.0, 4.0), 4.0 * 8.0 / 3.0);
    }
}

//! What ours must reach over a path: the goals by themselves, and beside the peers.

use super::crossing::Cell;
use super::record::Row;
use crate::bench::lab::payload_limit;
use crate::bench::spread;

/// What of the payload limit ours must reach in the second half, and (up to 200 ms) over the whole
/// run. With much loss the second half has a goal of its own.
const SECOND_HALF: f64 = 0.95;
const WHOLE: f64 = 0.86;
const MUCH_LOSS_SECOND_HALF: f64 = 0.90;
/// From this loss on, in percent, it is much.
const MUCH_LOSS: f64 = 5.0;
/// Above this round-trip time, in ms, starting up takes much of the run.
const LONG_RTT: u64 = 200;
/// Percent of the packets that the queue may drop.
const DROPS: f64 = 1.0;
/// MB that either side may use: so many bandwidth-delay products, and so much more.
const MEMORY: (f64, f64) = (3.0, 32.0);
/// Without loss this part of what the kernel's CUBIC has in the second half is enough.
const OF_CUBIC: f64 = 0.96;
const CUBIC: &str = "cubic";

/// What ours misses over a path, by its worst of so many runs; beside a peer, by that peer's median.
pub fn misses(cell: &Cell, ours: &[&Row], runs: u64, peers: &[(&str, Vec<&Row>)]) -> Vec<String> {
    let least = |of: fn(&Row) -> f64| ours.iter().map(|row| of(row)).fold(f64::INFINITY, f64::min);
    let most = |of: fn(&Row) -> f64| ours.iter().map(|row| of(row)).fold(0.0, f64::max);
    let (second, whole) = (least(|row| row.second_half_mbps), least(|row| row.whole_mbps));
    let limit = payload_limit(cell.loss_percent) / 1e6;
    let much = cell.loss_percent >= MUCH_LOSS;
    let mut misses = validity(ours, runs);
    let mut must = |holds: bool, what: String| {
        if !holds {
            misses.push(what);
        }
    };
    let goal = if much { MUCH_LOSS_SECOND_HALF } else { SECOND_HALF };
    must(second >= goal * limit, format!("second half below {:.0}", goal * limit));
    if !much && cell.rtt_ms <= LONG_RTT {
        must(whole >= WHOLE * limit, format!("whole run below {:.0}", WHOLE * limit));
    }
    must(most(|row| row.queue_drops_percent) < DROPS, format!("{DROPS}% dropped"));
    // Who was not measured has used too much.
    let used = most(|row| row.memory_mb.map_or(f64::INFINITY, |(near, far)| near.max(far)));
    let (times, more) = MEMORY;
    let allowed = times * 125.0 * cell.rtt_ms as f64 / 1e3 + more;
    must(used <= allowed, format!("more than {allowed:.0} MB"));
    // Who broke each time has no figures to be behind of.
    for (name, rows) in peers.iter().filter(|(_, rows)| !rows.is_empty()) {
        let theirs =
            |of: fn(&Row) -> f64| spread(&rows.iter().map(|row| of(row)).collect::<Vec<_>>()).0;
        let (half, all) = (theirs(|row| row.second_half_mbps), theirs(|row| row.whole_mbps));
        if cell.loss_percent > 0.0 {
            must(second > half, format!("behind {name} in the second half"));
            must(whole > all, format!("behind {name} over the whole run"));
        } else if *name == CUBIC {
            must(second >= OF_CUBIC * half, format!("far behind {name} in the second half"));
        }
    }
    misses
}

/// What makes the runs of anybody worth nothing.
pub fn validity(rows: &[&Row], runs: u64) -> Vec<String> {
    let mut misses = Vec::new();
    if (rows.len() as u64) < runs {
        misses.push(format!("{} of {runs} runs", rows.len()));
    }
    if rows.iter().any(|row| !row.faithful) {
        misses.push("emulator NOT faithful".to_owned());
    }
    if rows.iter().any(|row| row.second_half_mbps <= 0.0) {
        misses.push("nothing arrived".to_owned());
    }
    misses
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSSY: Cell = Cell { rtt_ms: 50, loss_percent: 1.0, seconds: 20 };
    const CLEAN: Cell = Cell { loss_percent: 0.0, ..LOSSY };

    /// A good run of ours without loss, and with 1%.
    fn row(cell: Cell, second_half_mbps: f64, whole_mbps: f64) -> Row {
        Row {
            peer: "ours".to_owned(),
            revision: String::new(),
            cell,
            seed: 1,
            second_half_mbps,
            whole_mbps,
            queue_drops_percent: 0.1,
            memory_mb: Some((20.0, 30.0)),
            faithful: true,
        }
    }

    #[test]
    fn the_worst_run_counts() {
        let (good, slow) = (row(LOSSY, 930.0, 900.0), row(LOSSY, 900.0, 900.0));
        assert!(misses(&LOSSY, &[&good, &good], 2, &[]).is_empty());
        assert_eq!(misses(&LOSSY, &[&good, &slow], 2, &[]), ["second half below 908"]);
        let late = row(LOSSY, 930.0, 800.0);
        assert_eq!(misses(&LOSSY, &[&late], 1, &[]), ["whole run below 822"]);
        let far = Cell { rtt_ms: 560, ..LOSSY };
        assert!(misses(&far, &[&late], 1, &[]).is_empty());
    }

    #[test]
    fn nobody_is_behind_a_peer_that_never_ran() {
        let (lossy, clean) = (row(LOSSY, 930.0, 900.0), row(CLEAN, 940.0, 920.0));
        assert!(misses(&LOSSY, &[&lossy], 1, &[("udt", vec![])]).is_empty());
        assert!(misses(&CLEAN, &[&clean], 1, &[(CUBIC, vec![])]).is_empty());
    }

    #[test]
    fn runs_that_show_nothing_are_missed() {
        let good = row(LOSSY, 930.0, 900.0);
        assert_eq!(misses(&LOSSY, &[&good], 2, &[]), ["1 of 2 runs"]);
        assert!(!misses(&LOSSY, &[], 1, &[]).is_empty());
        let late = Row { faithful: false, ..row(LOSSY, 930.0, 900.0) };
        assert_eq!(misses(&LOSSY, &[&late], 1, &[]), ["emulator NOT faithful"]);
        let never_begun = row(LOSSY, 0.0, 0.0);
        assert_eq!(validity(&[&never_begun], 1), ["nothing arrived"]);
        let unknown = Row { memory_mb: None, ..row(LOSSY, 930.0, 900.0) };
        assert_eq!(misses(&LOSSY, &[&unknown], 1, &[]), ["more than 51 MB"]);
        let greedy = Row { queue_drops_percent: 1.5, ..row(LOSSY, 930.0, 900.0) };
        assert_eq!(misses(&LOSSY, &[&greedy], 1, &[]), ["1% dropped"]);
    }

    #[test]
    fn with_loss_every_peer_is_behind() {
        let (good, bbr) = (row(LOSSY, 930.0, 900.0), row(LOSSY, 935.0, 800.0));
        let brutal = row(LOSSY, 800.0, 910.0);
        let peers = [("bbr", vec![&bbr]), ("brutal", vec![&brutal])];
        assert_eq!(
            misses(&LOSSY, &[&good], 1, &peers),
            ["behind bbr in the second half", "behind brutal over the whole run"]
        );
    }

    #[test]
    fn without_loss_only_cubic_is_a_measure() {
        let (good, cubic) = (row(CLEAN, 930.0, 900.0), row(CLEAN, 960.0, 955.0));
        let others = |cubic| [("cubic", vec![cubic]), ("bbr", vec![&good])];
        assert!(misses(&CLEAN, &[&good], 1, &others(&cubic)).is_empty());
        let faster = row(CLEAN, 970.0, 955.0);
        assert_eq!(
            misses(&CLEAN, &[&good], 1, &others(&faster)),
            ["far behind cubic in the second half"]
        );
    }
}

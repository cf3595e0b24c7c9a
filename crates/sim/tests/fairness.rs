//! Our transport's flows among themselves, over paths of their own to a bottleneck that they share.

use core::time::Duration;

use sim::Study;

/// Jain's index of two flows, over so many milliseconds and so many more.
fn index(rtt: u64, more: u64) -> f64 {
    let text = format!(
        "about = \"a test\"\nduration = \"60s\"\nrtt = \"{rtt}ms\"\n\
         both = {{ rate = \"50mbit\", queue = \"50ms\" }}\n\
         [[near]]\ndelay = \"0ms\"\n[[near]]\ndelay = \"{}ms\"\n[[flow]]\ncount = 2\n",
        more as f64 / 2.0
    );
    let mut study: Study = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    study.measure_from = Duration::from_secs(25);
    let outcome = study.run();
    assert!(outcome.queue.utilisation > 0.97, "{}", outcome.queue.utilisation);
    let rates: Vec<f64> = outcome.flows.iter().map(|flow| flow.goodput_bps).collect();
    let (sum, squares) = (rates.iter().sum::<f64>(), rates.iter().map(|it| it * it).sum::<f64>());
    sum * sum / (rates.len() as f64 * squares)
}

/// All see the same queue, and give by it over round trips of their own.
#[test]
fn flows_of_unlike_round_trips_have_equal_shares() {
    for (rtt, more) in [(10, 10), (10, 40), (10, 90), (5, 45), (30, 60)] {
        let index = index(rtt, more);
        assert!(index > 0.95, "{rtt} ms and {more} more: {index:.3}");
    }
}

#[test]
fn flows_over_short_paths_have_equal_shares() {
    for rtt in [3, 5, 10] {
        let index = index(rtt, 0);
        assert!(index > 0.97, "{rtt} ms: {index:.3}");
    }
}

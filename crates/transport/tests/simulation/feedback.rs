//! What reports cost, and that a narrow way back does not hold the data up.

use path::PathConfig;
use transport::cc::Algorithm;
use units::Rate;

use crate::dumbbell::{end, flow, line_rates, share};
use crate::{mbit, ms};

/// The rate in Mbit/s and the reports' share of the bytes received, both without the first 10 s.
fn run(path: &PathConfig, congestion: Algorithm) -> (f64, f64) {
    let mut world = share(path, &[flow(congestion, 0)]);
    world.run_until(ms(10_000), |_| false);
    let before = end(&mut world, 0, 1).stats();
    let rate = line_rates(&mut world, ms(30_000))[0];
    let after = end(&mut world, 0, 1).stats();
    let said = after.state_bytes.0 - before.state_bytes.0;
    (rate, said as f64 / (after.received.1.0 - before.received.1.0) as f64)
}

#[test]
fn a_hundredth_of_the_rate_on_the_way_back_does_not_slow_the_data() {
    for rtt in [10, 100] {
        let mut path = PathConfig::new(mbit(100), ms(rtt));
        path.back.rate = mbit(1);
        let (rate, share) = run(&path, Algorithm::Longhaul);
        assert!(rate > 98.0 && share < 0.01, "round trip {rtt} ms: {rate} Mbit/s, {share}");
    }
}

#[test]
fn reports_on_a_t1_stay_below_one_percent() {
    let path = PathConfig::new(Rate::from_bits_per_sec(1_536_000), ms(560));
    for congestion in [Algorithm::Longhaul, Algorithm::Cubic] {
        let (rate, share) = run(&path, congestion);
        assert!(share < 0.01, "{congestion:?}: {share} of the bytes received at {rate} Mbit/s");
    }
}

//! The product's count controllers over models of CUBIC and Reno.

use std::time::Duration;

use path::PathConfig;
use sim::tcp::{Config, Recovery};
use sim::{Stand, Striped};
use stripe::count::Policy;
use units::{Bytes, Rate};

const BOUNDED: Policy = Policy::RttBounded { alpha: Duration::ZERO, beta: Duration::ZERO };

fn path(mbit: u64, rtt: u64, loss: f64, queue: &str) -> PathConfig {
    PathConfig::new(Rate::from_bits_per_sec(mbit * 1_000_000), Duration::from_millis(rtt))
        .with_loss(loss)
        .with_queue(queue.parse().unwrap())
}

/// Mbit/s between two times.
fn mbps(stands: &[Stand], from: u64, to: u64) -> f64 {
    let at = |seconds| {
        let limit = Duration::from_secs(seconds);
        stands.iter().rfind(|stand| stand.at <= limit).unwrap()
    };
    let bytes = at(to).delivered - at(from).delivered;
    bytes.0 as f64 * 8e-6 / (to - from) as f64
}

fn run(path: &PathConfig, policy: Policy, seconds: u64) -> Vec<Stand> {
    let duration = Duration::from_secs(seconds);
    Striped { duration, ..Striped::new(path.clone(), policy) }.run()
}

#[test]
fn auto_is_as_good_as_the_best_count_under_random_loss() {
    for loss in [0.0, 0.0001, 0.001] {
        let path = path(300, 200, loss, "50ms");
        let late = |policy| mbps(&run(&path, policy, 20), 10, 20);
        let best = [1, 4, 16, 64, 256].map(|count| late(Policy::Fixed(count)));
        let best = best.into_iter().fold(0.0, f64::max);
        let auto = late(Policy::default());
        assert!(auto >= 0.95 * best, "loss {loss}: {auto:.0} Mbit/s, best {best:.0}");
    }
}

#[test]
fn auto_takes_all_it_may_when_even_they_do_not_fill_the_path() {
    let path = path(1000, 200, 0.01, "50ms");
    // 22 s until there are so many: a window that recovers without a needless time-out tells later that it
    // does not fill the path.
    let stands = run(&path, Policy::default(), 40);
    assert!(stands[250..].iter().all(|stand| stand.connections >= 500), "{stands:?}");
}

#[test]
fn auto_needs_few_where_nothing_is_lost() {
    let stands = run(&path(100, 20, 0.0, "50ms"), Policy::default(), 60);
    assert!(stands.iter().all(|stand| stand.connections <= 4), "{stands:?}");
    assert!(mbps(&stands, 10, 60) > 90.0);
}

/// Paper 3's satellite, with a queue of a second.
#[test]
fn the_satellite_is_filled_however_many_connections_are_allowed() {
    let mut path = path(1, 560, 0.0, "1s");
    for link in [&mut path.forward, &mut path.back] {
        link.rate = Rate::from_bits_per_sec(1_536_000);
    }
    let connection = Config::classic(Recovery::Reno, 512, 24 << 10);
    let limit = 1.536 * 512.0 / 552.0;
    for policy in [BOUNDED, Policy::default()] {
        let mut best = 0.0_f64;
        for most in [4, 8, 16, 32, 512] {
            let striped = Striped { connection, most, ..Striped::new(path.clone(), policy) };
            let rate = mbps(&striped.run(), 10, 60);
            assert!(rate >= 0.9 * limit, "{policy:?} with {most}: {rate:.3} of {limit:.3}");
            assert!(rate >= 0.95 * best, "{policy:?} falls to {rate:.3} with {most}");
            best = best.max(rate);
        }
    }
}

#[test]
fn equation_2_holds_and_picks_its_count() {
    let path = path(155, 200, 0.0, "100ms");
    let connection =
        Config { window: Bytes::kib(24), mss: Bytes(1460), timestamps: false, ..Config::default() };
    let run = |policy| {
        let striped = Striped { connection, ..Striped::new(path.clone(), policy) };
        mbps(&striped.run(), 10, 60)
    };
    for count in [1, 4, 16] {
        let ratio = run(Policy::Fixed(count)) / (f64::from(count) * 24_576.0 * 8e-6 / 0.2);
        assert!((ratio - 1.0).abs() < 0.1, "{count}: {ratio:.3} of equation 2");
    }
    let target = Rate::from_bits_per_sec(12_000_000);
    let found = run(Policy::Equation { target, first: 0, k: 0 });
    assert!((found / 12.0 - 1.0).abs() < 0.1, "{found:.2} Mbit/s of 12");
}

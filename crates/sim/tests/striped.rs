//! The product's count controllers over models of CUBIC and Reno.

use std::time::Duration;

use path::PathConfig;
use sim::tcp::{Config, Recovery, Source};
use sim::{Outcome, Protocol, Striping, Study};
use stripe::count::{MAX_CONNECTIONS, Policy};
use units::{Bytes, Rate};

const BOUNDED: Policy = Policy::RttBounded { alpha: Duration::ZERO, beta: Duration::ZERO };

fn path(mbit: u64, rtt: u64, loss: f64, queue: &str) -> PathConfig {
    PathConfig::new(Rate::from_bits_per_sec(mbit * 1_000_000), Duration::from_millis(rtt))
        .with_loss(loss)
        .with_queue(queue.parse().unwrap())
}

/// A striped stream for so many seconds, looked at each 100 ms.
fn run(path: &PathConfig, striping: Striping, seconds: u64) -> Outcome {
    study(path, striping, seconds).run()
}

fn study(path: &PathConfig, striping: Striping, seconds: u64) -> Study {
    let mut study: Study =
        "about = \"Striping\"\nboth = { rate = \"1mbit\" }\n".parse().expect("a scenario");
    study.path = path.clone();
    study.flows[0].protocol = Protocol::Striped(striping);
    study.duration = Duration::from_secs(seconds);
    study.trace = Some(Duration::from_millis(100));
    study
}

/// Mbit/s between two times.
fn mbps(outcome: &Outcome, from: u64, to: u64) -> f64 {
    let between = |at: f64| at > from as f64 + 0.01 && at < to as f64 + 0.01;
    let samples = outcome.samples.iter().filter(|sample| between(sample.seconds));
    samples.map(|sample| sample.goodput_bps * 0.1).sum::<f64>() * 1e-6 / (to - from) as f64
}

/// Connections at each look.
fn counts(outcome: &Outcome) -> Vec<u32> {
    outcome.samples.iter().map(|sample| sample.connections.expect("it is striped")).collect()
}

fn usual(policy: Policy) -> Striping {
    Striping::new(Config::default(), policy)
}

#[test]
fn auto_is_as_good_as_the_best_count_under_random_loss() {
    for loss in [0.0, 0.0001, 0.001] {
        let path = path(300, 200, loss, "50ms");
        let late = |policy| mbps(&run(&path, usual(policy), 20), 10, 20);
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
    let counts = counts(&run(&path, usual(Policy::default()), 40));
    assert!(counts[250..].iter().all(|count| *count >= 500), "{counts:?}");
}

#[test]
fn auto_needs_few_where_nothing_is_lost() {
    let outcome = run(&path(100, 20, 0.0, "50ms"), usual(Policy::default()), 60);
    assert!(counts(&outcome).iter().all(|count| *count <= 4), "{:?}", counts(&outcome));
    assert!(mbps(&outcome, 10, 60) > 90.0);
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
        for most in [4, 8, 16, 32, MAX_CONNECTIONS] {
            let rate = mbps(&run(&path, Striping { connection, policy, most }, 60), 10, 60);
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
    let run = |policy| mbps(&run(&path, Striping::new(connection, policy), 60), 10, 60);
    for count in [1, 4, 16] {
        let ratio = run(Policy::Fixed(count)) / (f64::from(count) * 24_576.0 * 8e-6 / 0.2);
        assert!((ratio - 1.0).abs() < 0.1, "{count}: {ratio:.3} of equation 2");
    }
    let target = Rate::from_bits_per_sec(12_000_000);
    let found = run(Policy::Equation { target, first: 0, k: 0 });
    assert!((found / 12.0 - 1.0).abs() < 0.1, "{found:.2} Mbit/s of 12");
}

#[test]
fn a_file_is_whole_though_connections_come_and_go() {
    let mut study = study(&path(20, 50, 0.001, "200ms"), usual(BOUNDED), 60);
    study.flows[0].source = Source::Fixed(Bytes(40_000_000));
    let outcome = study.run();
    assert!(outcome == study.run(), "it is not the same twice");
    let flow = &outcome.flows[0];
    assert_eq!(flow.delivered_bytes, 40_000_000);
    // 16.57 s at the link's rate.
    assert!(flow.finished.is_some_and(|end| (16.57..22.0).contains(&end)), "{flow:?}");
    assert_eq!(flow.documents.count, 1);
    assert_eq!(outcome.samples.last().and_then(|last| last.connections), Some(0), "all are closed");
    let counts = counts(&outcome);
    let rises = counts.windows(2).filter(|two| two[1] > two[0]).count();
    let falls = counts.windows(2).filter(|two| two[1] < two[0]).count();
    assert!(rises > 3 && falls > 3, "{counts:?}");
}

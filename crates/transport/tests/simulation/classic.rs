//! NewReno and CUBIC do in virtual time what TCP does.

use std::time::Duration;

use path::{Limit, PathConfig, QueueConfig};
use transport::cc::Algorithm;
use units::Bytes;

use crate::dumbbell::{end, flow, line_rates, share};
use crate::{mbit, ms};

/// The mean rate in packets a round trip, at random loss on a path that is never full.
fn response(algorithm: Algorithm, rtt: Duration, loss: f64) -> f64 {
    let path = PathConfig::new(mbit(1000), rtt).with_loss(loss).with_seed(9);
    let mut world = share(&path, &[flow(algorithm, 0)]);
    world.run_until(ms(20_000), |_| false);
    let rate = line_rates(&mut world, ms(200_000))[0];
    rate * 1e6 / 8.0 / 1500.0 * rtt.as_secs_f64()
}

#[test]
fn random_loss_limits_them_as_it_limits_tcp() {
    for loss in [0.001f64, 0.01] {
        let rtt = ms(100);
        // Mathis et al. 1997 with an acknowledgement for each packet; RFC 9438, section 5.2.
        let reno = (1.5 / loss).sqrt();
        let cubic = 1.054 * (rtt.as_secs_f64() / loss).powf(0.75);
        for (algorithm, theory) in [(Algorithm::NewReno, reno), (Algorithm::Cubic, cubic.max(reno))]
        {
            let window = response(algorithm, rtt, loss);
            let share = window / theory;
            assert!((1.0 / 1.5..1.5).contains(&share), "{algorithm:?} {loss}: {share:.2}");
        }
    }
}

/// A drop-tail queue of `bdps` bandwidth-delay products at 20 Mbit/s, 100 ms: the least window
/// of the flow as a share of its largest, and its share of the link, once the start is over.
fn sawtooth(algorithm: Algorithm, bdps: u64) -> (f64, f64) {
    let (rate, rtt) = (mbit(20), ms(100));
    let queue = QueueConfig::DropTail(Limit::Bytes(Bytes(rate.bytes_in(rtt).0 * bdps / 4)));
    let path = PathConfig::new(rate, rtt).with_queue(queue);
    let mut world = share(&path, &[flow(algorithm, 0)]);
    world.run_until(ms(60_000), |_| false);
    let (mut windows, mut sum) = (Vec::new(), 0.0);
    for _ in 0..2000 {
        sum += line_rates(&mut world, ms(50))[0] / 20.0;
        windows.push(end(&mut world, 0, 0).stats().window.0);
    }
    let (least, most) = (windows.iter().min().unwrap(), windows.iter().max().unwrap());
    (*least as f64 / *most as f64, sum / 2000.0)
}

#[test]
fn they_draw_tcps_sawtooth_against_a_drop_tail_queue() {
    for (algorithm, beta) in [(Algorithm::NewReno, 0.5), (Algorithm::Cubic, 0.7)] {
        let (teeth, used) = sawtooth(algorithm, 4);
        assert!((teeth / beta - 1.0).abs() < 0.05, "{algorithm:?}: {teeth}");
        assert!(used > 0.97, "{algorithm:?}: {used}");
    }
    // Half of a window that exceeds the path by a quarter leaves the link idle: the mean of a
    // line from 0.625 to 1, then 1, gives 0.89; reports that settle nine packets at a time leave
    // gaps.
    let (_, used) = sawtooth(Algorithm::NewReno, 1);
    assert!((0.8..0.95).contains(&used), "{used}");
}

#[test]
fn two_flows_of_a_kind_share_a_link() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let path = PathConfig::new(mbit(20), ms(50)).with_seed(2);
        let mut world = share(&path, &[flow(algorithm, 0), flow(algorithm, 5000)]);
        world.run_until(ms(40_000), |_| false);
        let rates = line_rates(&mut world, ms(100_000));
        assert!(rates.iter().all(|rate| (0.35..0.65).contains(&(rate / 20.0))), "{rates:?}");
    }
}

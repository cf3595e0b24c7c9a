//! Paper 3's congestion avoidance above TCP (section 3.3).

use core::time::Duration;

use units::Instant;

use super::{Controller, Sample};

/// Alpha and beta as parts of the base round-trip time, when they are not given: a quarter of it in
/// the queue keeps the link busy while connections recover; as much again as the base is the queue
/// of a long path, which is about to overflow.
const ALPHA: f64 = 1.25;
const BETA: f64 = 2.0;
/// Where the round-trip time is small, what hosts add to it must not count as a queue.
const LEAST: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(15)];

/// Round trips from one addition to the next: a connection takes some to open its window, and who looks earlier
/// adds more than there is room for.
const PATIENCE: u32 = 3;

/// Halves the count when the round-trip time exceeds beta, adds one when it is below alpha, and then
/// waits until that has had its effect.
#[derive(Debug)]
pub struct RttBounded {
    alpha: Duration,
    beta: Duration,
    next: Instant,
    count: Option<usize>,
}

impl RttBounded {
    /// With these bounds; either may be zero for the default.
    pub const fn new(alpha: Duration, beta: Duration) -> Self {
        Self { alpha, beta, next: Instant::ZERO, count: None }
    }
}

impl Controller for RttBounded {
    fn connections(&mut self, sample: &Sample) -> usize {
        let bound = |given: Duration, factor, least| match given.is_zero() {
            true => sample.base_rtt.mul_f64(factor).max(sample.base_rtt + least),
            false => given,
        };
        let [alpha, beta] = [bound(self.alpha, ALPHA, LEAST[0]), bound(self.beta, BETA, LEAST[1])];
        let count = self.count.get_or_insert(sample.connections.max(1));
        // Round trips of those that rest tell of the time before.
        if sample.now < self.next || sample.idle {
            return *count;
        }
        if sample.rtt > beta && *count > 1 {
            *count = (*count / 2).max(1);
            // The queue drains, and only then tells something about what is left.
            self.next = sample.now + sample.rtt * 2;
        } else if sample.rtt < alpha && sample.connections >= *count {
            *count += 1;
            self.next = sample.now + sample.rtt * PATIENCE;
        }
        *count
    }
}

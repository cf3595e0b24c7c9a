//! What round trips tell of the path: its length without a queue, and the queue.

use core::time::Duration;
use std::collections::VecDeque;

use units::{Bytes, Instant};

/// What a line adds to a datagram, in bytes: IP, UDP and Ethernet.
const FRAMING: u64 = 48;
/// How long a report of a short queue is believed against longer ones, so that a late wake-up is
/// not taken for a queue.
const QUEUE_MEMORY: Duration = Duration::from_millis(10);
/// For how long the longest queue, and the shortest round trip, of a time are remembered.
const LONG_MEMORY: Duration = Duration::from_secs(10);

/// A path is not taken for slower than this, in bits a second.
const SLOWEST: f64 = 64_000.0;
/// Less of a queue is hidden by the lateness of threads. So much is aimed at where it has been seen: a
/// shallow buffer would drop it.
const AUDIBLE: Duration = Duration::from_millis(3);
/// Threads sleep for longer at times, and the link runs dry. So much is kept where it has been seen.
const LATENESS: Duration = Duration::from_millis(5);
/// What a round with marks leaves of the target queue, what one without gives back, and the least.
const FEWER: f64 = 0.7;
const MORE: f64 = 1.05;
const LEAST_PATIENCE: f64 = 0.1;

/// The round-trip time without a queue, and the queue above it.
#[derive(Debug)]
pub(super) struct Path {
    /// The least round-trip time ever seen, unless it was found to have become longer.
    pub(super) base: Duration,
    /// The latest round-trip time.
    last: Duration,
    /// The queue: the round-trip time above the base.
    pub(super) queue: Duration,
    /// The time that a packet takes.
    packet: Duration,
    recent: VecDeque<(Instant, Duration)>,
    /// The longest queue and the shortest round trip of this and of the last half of
    /// [`LONG_MEMORY`].
    halves: [(Duration, Duration); 2],
    half_ends: Instant,
    part: f64,
    /// What marks of congestion have left of the target queue.
    patience: f64,
}

impl Path {
    /// `part` is how much of a usual target queue is kept.
    pub(super) fn new(rtt: Duration, part: f64) -> Self {
        Self {
            base: rtt,
            last: rtt,
            queue: Duration::ZERO,
            packet: Duration::ZERO,
            recent: VecDeque::new(),
            halves: [(Duration::ZERO, rtt); 2],
            half_ends: Instant::ZERO,
            part,
            patience: 1.0,
        }
    }

    /// A round trip took `rtt`; the link carries full datagrams of `size` at `rate`, in bits a second.
    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration, size: Bytes, rate: f64) {
        // A clock that jumps makes one round trip too short: it takes two to believe it.
        self.base = self.base.min(rtt.max(self.last));
        self.last = rtt;
        // The shortest round trips were those of short packets.
        let bits = (size.0 + FRAMING) as f64 * 8.0;
        self.packet = Duration::from_secs_f64(bits / rate.max(SLOWEST));
        self.recent.push_back((now, rtt.saturating_sub(self.base + self.packet)));
        while self.recent.front().is_some_and(|&(at, _)| at + QUEUE_MEMORY < now) {
            self.recent.pop_front();
        }
        self.queue = self.recent.iter().map(|&(_, queue)| queue).min().unwrap_or_default();
        if now >= self.half_ends {
            self.halves = [(Duration::ZERO, rtt), self.halves[0]];
            self.half_ends = now + LONG_MEMORY / 2;
        }
        let (longest, shortest) = &mut self.halves[0];
        *longest = self.queue.max(*longest);
        *shortest = rtt.min(*shortest);
    }

    /// The longest queue of the last 5 to 10 s.
    pub(super) fn longest_queue(&self) -> Duration {
        self.halves[0].0.max(self.halves[1].0)
    }

    /// The shortest round trip of the last 5 to 10 s.
    pub(super) fn shortest(&self) -> Duration {
        self.halves[0].1.min(self.halves[1].1)
    }

    /// A round trip, with the queue as it is.
    pub(super) fn rtt(&self) -> Duration {
        self.base + self.queue
    }

    /// A round ended in which packets came with a mark of congestion, or none did: a router says
    /// that the queue which is kept is too long for it.
    pub(super) fn on_marks(&mut self, marked: bool) {
        let factor = if marked { FEWER } else { MORE };
        self.patience = (self.patience * factor).clamp(LEAST_PATIENCE, 1.0);
    }

    /// What was thought to be a queue is the way itself.
    pub(super) fn becomes_longer(&mut self, by: Duration) {
        self.base += by;
        self.queue = Duration::ZERO;
        self.recent.clear();
    }

    /// The queue by which others are judged: a few milliseconds, less on short paths.
    pub(super) fn target(&self) -> Duration {
        self.as_seen(AUDIBLE)
    }

    /// The queue that the pace keeps. All see the same queue, and so want the same.
    pub(super) fn kept(&self) -> Duration {
        self.as_seen(LATENESS)
    }

    /// A part of the round trip, or as long as a queue has been seen, up to `most`, if that is longer.
    fn as_seen(&self, most: Duration) -> Duration {
        let seen = self.longest_queue().min(most);
        let target = (self.base / 32).clamp(Duration::from_millis(1), Duration::from_millis(6));
        (target.max(seen) + self.packet).mul_f64(self.part * self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn no_longer_queue_is_kept_than_has_been_seen_and_others_are_judged_by_less() {
        for (seen, judged, kept) in [(0, 1, 1), (2, 2, 2), (4, 3, 4), (20, 3, 5)] {
            let mut path = Path::new(ms(10), 1.0);
            for round in 1..=10 {
                let rtt = ms(10 + if round > 2 { seen } else { 0 });
                path.on_rtt(Instant::ZERO + ms(20) * round, rtt, Bytes(1472), 1e9);
            }
            let is_about = |queue: Duration, millis: u64| {
                assert!(queue.abs_diff(ms(millis)) < ms(1) / 20, "{seen} ms seen: {queue:?}");
            };
            is_about(path.target(), judged);
            is_about(path.kept(), kept);
        }
    }
}

//! What round trips tell of the path: its length without a queue, and the queue.

use core::time::Duration;
use std::collections::VecDeque;

use units::{Bytes, Instant};

use super::noise::Noise;

/// What a line adds to a datagram, in bytes: IP, UDP and Ethernet.
const FRAMING: u64 = 48;
/// How long a report of a short queue is believed against longer ones, so that a late wake-up is
/// not taken for a queue.
const QUEUE_MEMORY: Duration = Duration::from_millis(10);
/// More noise than this, or than half of a round trip, is none that could be told from a queue.
const MOST_NOISE: Duration = Duration::from_millis(20);
/// On a noisy path a report of a short queue is believed for so many times the noise.
const NOISE_MEMORY: u32 = 8;
/// So many times the noise is not taken for a queue.
const NOISE: u32 = 3;
/// This part of what round trips have been longer by for [`LONG_MEMORY`] is kept besides: a noisy path is longer under load.
/// Were it all of it, flows that share a path would keep an ever longer queue between them.
const UNDER_LOAD: f64 = 0.7;
/// So many times the noise are kept for that at most: somebody may keep a queue besides.
const MOST_UNDER_LOAD: u32 = 12;
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
    noise: Noise,
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
            noise: Noise::default(),
        }
    }

    /// A round trip took `rtt`; the link carries full datagrams of `size` at `rate`, in bits a second.
    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration, size: Bytes, rate: f64) {
        // A clock that jumps makes one round trip too short: it takes two to believe it.
        self.base = self.base.min(rtt.max(self.last));
        self.last = rtt;
        self.noise.on_rtt(rtt);
        // The shortest round trips were those of short packets.
        let bits = (size.0 + FRAMING) as f64 * 8.0;
        self.packet = Duration::from_secs_f64(bits / rate.max(SLOWEST));
        let queue = rtt.saturating_sub(self.base + self.packet);
        // What is longer and older is never the shortest again.
        while self.recent.back().is_some_and(|&(_, longer)| longer >= queue) {
            self.recent.pop_back();
        }
        self.recent.push_back((now, queue));
        let memory = QUEUE_MEMORY.max(self.noise() * NOISE_MEMORY);
        while self.recent.front().is_some_and(|&(at, _)| at + memory < now) {
            self.recent.pop_front();
        }
        self.queue = self.recent.front().map(|&(_, queue)| queue).unwrap_or_default();
        if now >= self.half_ends {
            self.halves = [(Duration::ZERO, rtt), self.halves[0]];
            self.half_ends = now + LONG_MEMORY / 2;
        }
        let (longest, shortest) = &mut self.halves[0];
        *longest = self.queue.max(*longest);
        *shortest = rtt.min(*shortest);
    }

    /// Whether the queue has only grown in the last 32 to 63 reports, as far as noise lets it be seen.
    pub(super) fn only_grows(&self) -> bool {
        self.noise.leaps() < self.queue / 2
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
        self.steady_target() + self.allowance()
    }

    /// The same but for noise.
    pub(super) fn steady_target(&self) -> Duration {
        self.as_seen(AUDIBLE)
    }

    /// The queue that the pace keeps. All see the same queue, and so want the same, but for noise.
    pub(super) fn kept(&self) -> Duration {
        let longer = self.shortest().saturating_sub(self.base).mul_f64(UNDER_LOAD);
        let under_load = longer.min(self.noise() * MOST_UNDER_LOAD);
        self.as_seen(LATENESS) + self.allowance() + under_load
    }

    /// So much of what looks like a queue is put down to noise.
    pub(super) fn allowance(&self) -> Duration {
        self.noise() * NOISE
    }

    /// Who yields to everything bears no queue for noise either.
    fn noise(&self) -> Duration {
        let noise = self.noise.level().min(self.base / 2).min(MOST_NOISE);
        if self.part < 1.0 { Duration::ZERO } else { noise }
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

    /// The latest of round trips that take 50 ms, what is queued, and so much more, one after the other.
    fn noisy(queue: u64, noise: [u64; 3]) -> Path {
        let mut path = Path::new(ms(50), 1.0);
        path.on_rtt(Instant::ZERO, ms(50), Bytes(1472), 1e9);
        for (at, noise) in (0..1500).zip(noise.iter().cycle()) {
            let now = Instant::ZERO + ms(10) * at;
            path.on_rtt(now, ms(50 + queue + noise), Bytes(1472), 1e9);
        }
        path
    }

    #[test]
    fn noise_is_no_queue() {
        assert_eq!(noisy(0, [0, 0, 0]).allowance(), Duration::ZERO);
        // Of each three, one turns by 9 ms, and one by 3.
        let path = noisy(0, [0, 12, 3]);
        assert!(path.allowance() > ms(25) && path.allowance() < ms(30), "{:?}", path.allowance());
        assert_eq!(path.queue, Duration::ZERO, "the shortest of several reports counts");
        assert_eq!(path.target(), path.steady_target() + path.allowance());
        assert_eq!(path.kept(), path.as_seen(LATENESS) + path.allowance());
        // However much somebody makes.
        assert!(noisy(0, [0, 9000, 0]).allowance() <= MOST_NOISE * NOISE);
    }

    #[test]
    fn a_noisy_path_is_longer_under_load() {
        let kept = |queue, noise| {
            let path = noisy(queue, noise);
            path.kept() - path.as_seen(LATENESS) - path.allowance()
        };
        assert_eq!(kept(0, [0, 4, 2]), Duration::ZERO);
        assert!(kept(10, [0, 4, 2]).abs_diff(ms(7)) < ms(1) / 10);
        assert!(kept(400, [0, 4, 2]) < ms(50), "a long queue is somebody's");
        assert_eq!(kept(10, [0, 0, 0]), Duration::ZERO);
    }

    #[test]
    fn who_yields_bears_no_noise() {
        let mut path = Path::new(ms(50), 0.3);
        for at in 0..300 {
            path.on_rtt(
                Instant::ZERO + ms(10) * at,
                ms(50 + 12 * (u64::from(at) % 2)),
                Bytes(1472),
                1e9,
            );
        }
        assert_eq!(path.allowance(), Duration::ZERO);
    }
}

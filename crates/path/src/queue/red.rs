//! Random early detection: S. Floyd and V. Jacobson, "Random early detection gateways for
//! congestion avoidance", IEEE/ACM Transactions on Networking 1(4), 1993, figure 2.

use core::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use units::Rate;

use super::Verdict;
use super::config::{RedConfig, Thresholds};

/// The drop probability by queue length, before drops are spaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Curve {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) max_p: f64,
    pub(crate) gentle: bool,
}

impl Curve {
    /// The paper's p_b at this queue length; 1 where everything is dropped.
    pub(crate) fn probability(&self, queue: f64) -> f64 {
        let Self { min, max, max_p, gentle } = *self;
        if queue < min {
            0.0
        } else if queue < max {
            max_p * (queue - min) / (max - min)
        } else if gentle && queue < 2.0 * max {
            max_p + (1.0 - max_p) * (queue - max) / max
        } else {
            1.0
        }
    }
}

/// RED's state.
pub(crate) struct Red {
    curve: Curve,
    in_packets: bool,
    /// Of a new length in the average; `None` for RED-i, which does not average.
    weight: Option<f64>,
    ecn: bool,
    /// As in [`RedConfig::wait`].
    wait: bool,
    /// Seconds that a typical packet takes, by which idle time is counted.
    packet_time: f64,
    /// The average queue, in packets or bytes as the thresholds are.
    average: f64,
    /// Packets since the last drop or mark; `None` below the lower threshold.
    count: Option<u64>,
    rng: Pcg64Mcg,
}

/// The queue as an arriving packet finds it.
#[derive(Clone, Copy)]
pub(crate) struct Sight {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    /// How long nothing has waited or been sent, when that is so.
    pub(crate) idle: Option<Duration>,
}

impl Red {
    pub(crate) fn new(
        config: &RedConfig,
        instantaneous: bool,
        thresholds: &Thresholds,
        rate: Rate,
        rng: Pcg64Mcg,
    ) -> Self {
        let Thresholds { min, max, in_packets, .. } = *thresholds;
        let RedConfig { max_p, gentle, weight, ecn, wait, mean_packet, .. } = *config;
        Self {
            curve: Curve { min, max, max_p, gentle },
            in_packets,
            weight: (!instantaneous).then_some(weight),
            ecn,
            wait,
            packet_time: rate.time_for(mean_packet).as_secs_f64(),
            average: 0.0,
            count: None,
            rng,
        }
    }

    /// Decides about an arriving packet.
    #[inline(always)]
    pub(crate) fn arrival(&mut self, sight: Sight, ecn_capable: bool) -> Verdict {
        self.decide(sight, ecn_capable, |rng| rng.random())
    }

    /// The same with a number in [0, 1) from `draw`, if one is needed.
    #[inline(always)]
    fn decide(
        &mut self,
        sight: Sight,
        ecn_capable: bool,
        draw: impl FnOnce(&mut Pcg64Mcg) -> f64,
    ) -> Verdict {
        self.observe(sight);
        let base = self.curve.probability(self.average);
        if base == 0.0 {
            self.count = None;
            return Verdict::Pass;
        }
        self.decide_by_chance(base, ecn_capable, draw)
    }

    /// The same where the average is beyond the lower threshold.
    #[inline(never)]
    fn decide_by_chance(
        &mut self,
        base: f64,
        ecn_capable: bool,
        draw: impl FnOnce(&mut Pcg64Mcg) -> f64,
    ) -> Verdict {
        if base < 1.0 {
            // Drops spaced evenly: with p_b alone they come in bunches. Counted as in the paper,
            // from 0 for the first packet in the region and from 1 behind a drop.
            let count = self.count.map_or(0, |count| count + 1);
            let strikes = self.spaced(base, count).is_none_or(|p| draw(&mut self.rng) < p);
            if !strikes {
                self.count = Some(count);
                return Verdict::Pass;
            }
        }
        self.count = Some(0);
        // Above the upper threshold marks have not helped (RFC 3168, section 7).
        let mark = self.ecn && ecn_capable && self.average < self.curve.max;
        if mark { Verdict::Mark } else { Verdict::Drop }
    }

    /// The paper's p_a, or with `wait` what ns-2 has for it, behind `count` packets that passed; `None` where it is certain.
    fn spaced(&self, base: f64, count: u64) -> Option<f64> {
        let due = count as f64 * base;
        let spaced = match self.wait {
            false => base / (1.0 - due),
            true if due < 1.0 => 0.0,
            true => base / (2.0 - due),
        };
        Some(spaced).filter(|spaced| (0.0..1.0).contains(spaced))
    }

    /// Takes the queue's length into the average.
    fn observe(&mut self, sight: Sight) {
        let length = if self.in_packets { sight.packets } else { sight.bytes };
        // It is far below 2^63, and signed numbers are converted in one step.
        let queue = length as i64 as f64;
        match (self.weight, sight.idle) {
            (None, _) => self.average = queue,
            // As if so many small steps had found the queue empty.
            (Some(weight), Some(idle)) => {
                let steps = idle.as_secs_f64() / self.packet_time;
                self.average *= (1.0 - weight).powf(steps);
            }
            (Some(weight), None) => self.average += weight * (queue - self.average),
        }
    }

    /// The queue was full, whatever the average said.
    pub(crate) fn overflowed(&mut self) {
        self.count = Some(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limit;
    use crate::random::statistics::{assert_binomial, assert_mean};
    use crate::random::{Stream, stream};

    const RATE: Rate = Rate::from_bits_per_sec(12_000_000);

    fn red(config: RedConfig, instantaneous: bool) -> Red {
        let config =
            RedConfig { min: Some(Limit::Packets(100)), max: Some(Limit::Packets(200)), ..config };
        let thresholds = config.thresholds(RATE, Duration::ZERO);
        Red::new(&config, instantaneous, &thresholds, RATE, stream(3, Stream::Queue))
    }

    fn packets(packets: u64) -> Sight {
        Sight { bytes: 1500 * packets, packets, idle: None }
    }

    /// The paper's formula, written a second time, and what ns-2 calls gentle.
    fn formula(queue: f64, gentle: bool) -> f64 {
        match queue {
            q if q < 100.0 => 0.0,
            q if q < 200.0 => 0.1 * (q - 100.0) / 100.0,
            q if gentle && q < 400.0 => 0.1 + 0.9 * (q - 200.0) / 200.0,
            _ => 1.0,
        }
    }

    /// 10^5 first packets in the region at each length: their drops are binomial with p_b.
    #[test]
    fn curve_of_the_first_packet_is_the_formula() {
        let n = 100_000;
        for instantaneous in [false, true] {
            for gentle in [false, true] {
                let config = RedConfig { gentle, weight: 1.0, ..RedConfig::default() };
                let mut red = red(config, instantaneous);
                for queue in [0, 99, 100, 101, 125, 150, 199, 200, 250, 300, 399, 400, 1000] {
                    let drops = (0..n).filter(|_| {
                        red.count = None;
                        red.arrival(packets(queue), false) == Verdict::Drop
                    });
                    assert_binomial(drops.count() as u64, n, formula(queue as f64, gentle));
                }
            }
        }
    }

    /// At a constant queue the gaps between drops are uniform on 1..=1/p_b - 1 (section VII of
    /// the paper with the counting of its figure 2): mean 1/(2 p_b), and chi-squared below the
    /// 99.9% point.
    #[test]
    fn drops_are_spaced_evenly() {
        for (queue, gaps) in [(150, 19u32), (120, 49)] {
            let mut red = red(RedConfig::default(), true);
            let mut seen = vec![0u64; gaps as usize + 1];
            let (mut gap, n) = (0, 200_000);
            let mut drops = 0;
            while drops < n {
                gap += 1;
                if red.arrival(packets(queue), false) == Verdict::Drop {
                    // The first gap starts at the region's edge, not at a drop.
                    if drops > 0 {
                        seen[gap] += 1;
                    }
                    drops += 1;
                    gap = 0;
                }
            }
            let n = n - 1;
            let expected = n as f64 / f64::from(gaps);
            let chi: f64 =
                seen[1..].iter().map(|&s| (s as f64 - expected).powi(2) / expected).sum();
            // Wilson and Hilferty's approximation of the 99.9% point.
            let free = f64::from(gaps - 1);
            let limit =
                free * (1.0 - 2.0 / (9.0 * free) + 3.0902 * (2.0 / (9.0 * free)).sqrt()).powi(3);
            assert!(chi < limit, "chi-squared {chi} of {free}, limit {limit}");
            let sum: f64 = seen.iter().enumerate().map(|(gap, &s)| gap as f64 * s as f64).sum();
            let sigma = ((f64::from(gaps).powi(2) - 1.0) / 12.0).sqrt();
            assert_mean(sum / n as f64, f64::from(gaps + 1) / 2.0, sigma, n);
        }
    }

    #[test]
    fn average_follows_its_closed_form() {
        let mut red = red(RedConfig::default(), false);
        for n in 1..=3000 {
            red.arrival(packets(90), false);
            // A step of height 90 through the low-pass filter.
            let expected = 90.0 * (1.0 - (1.0 - 0.002_f64).powi(n));
            assert!((red.average - expected).abs() < 1e-9, "{} {expected}", red.average);
        }
        // A second of nothing is a thousand packets of 1500 bytes at 12 Mbit/s.
        let before = red.average;
        let idle = Some(Duration::from_secs(1));
        red.arrival(Sight { bytes: 0, packets: 0, idle }, false);
        let expected = before * 0.998_f64.powi(1000);
        assert!((red.average - expected).abs() < 1e-9, "{} {expected}", red.average);
    }

    /// What came to ns-2's RED in `red.tcl`, and what that drew: the same packets are dropped, and the average
    /// is the same to the digits that it tells. With no draw it passes the first above the threshold.
    /// How many were dropped early, and how many for a full queue.
    fn drops_the_same_as_ns_2(arrivals: &str, wait: bool) -> (u64, u64) {
        let config = RedConfig {
            min: Some(Limit::Packets(20)),
            max: Some(Limit::Packets(60)),
            gentle: true,
            wait,
            ..RedConfig::default()
        };
        let rate = Rate::from_bits_per_sec(10_000_000);
        let thresholds = config.thresholds(rate, Duration::ZERO);
        let mut red = Red::new(&config, false, &thresholds, rate, stream(1, Stream::Queue));
        let (mut early, mut full) = (0, 0);
        for (number, line) in arrivals.lines().enumerate() {
            let fields: Vec<_> = line.split(',').collect();
            let [waiting, idle, average, draw, dropped] = fields[..] else { panic!("{line}") };
            let waiting: u64 = waiting.parse().unwrap();
            let idle = Some(idle.parse().unwrap()).filter(|idle| *idle > 0.0);
            let sight = Sight { idle: idle.map(Duration::from_secs_f64), ..packets(waiting) };
            let verdict = red.decide(sight, false, |_| draw.parse().unwrap_or(1.0));
            let overflows = waiting >= 100;
            if overflows {
                red.overflowed();
            }
            let drops = verdict == Verdict::Drop || overflows;
            assert_eq!(drops, dropped == "1", "packet {number}: {line}");
            let average: f64 = average.parse().unwrap();
            assert!((red.average - average).abs() < 1e-3, "packet {number}: {}", red.average);
            early += u64::from(drops && !overflows);
            full += u64::from(overflows);
        }
        (early, full)
    }

    #[test]
    fn of_what_came_to_ns_2_it_drops_the_same() {
        let (early, full) = drops_the_same_as_ns_2(include_str!("../../tests/data/red.csv"), false);
        assert!(early > 200 && full > 20, "{early} {full}");
    }

    #[test]
    fn of_what_came_to_ns_2_it_drops_the_same_when_it_waits() {
        let (early, full) =
            drops_the_same_as_ns_2(include_str!("../../tests/data/red-wait.csv"), true);
        assert!(early > 100 && full > 20, "{early} {full}");
    }

    #[test]
    fn instantaneous_forgets_at_once() {
        let mut red = red(RedConfig::default(), true);
        assert_eq!(red.arrival(packets(1000), false), Verdict::Drop);
        assert!((0..1000).all(|_| red.arrival(packets(99), false) == Verdict::Pass));
    }

    #[test]
    fn marks_only_the_capable_and_only_below_the_upper_threshold() {
        let mut red = red(RedConfig { ecn: true, ..RedConfig::default() }, true);
        let mut saw = |queue, capable| {
            let mut kinds = [0; 3];
            (0..1000).for_each(|_| kinds[red.arrival(packets(queue), capable) as usize] += 1);
            kinds
        };
        let [pass, mark, drop] = saw(150, true);
        assert!(pass > 0 && mark > 0 && drop == 0);
        let [_, mark, drop] = saw(150, false);
        assert!(mark == 0 && drop > 0);
        let [_, mark, drop] = saw(300, true);
        assert!(mark == 0 && drop > 0);
    }
}

//! Trains of packets: how far apart packets arrive that were sent in one go tells the rate of the
//! narrowest link (packet pair, as UDT has it, drawn out so that coarse clocks do).

use std::collections::VecDeque;

use units::{Instant, Rate};

/// Packets that a train must have, or bytes that it must bring: few jumbo frames do.
pub(crate) const MIN_PACKETS: u32 = 8;
pub(crate) const MIN_BYTES: u64 = 32_000;
/// Different arrival times that it must have: what one interrupt brought says nothing.
const MIN_TIMES: u32 = 3;
/// Trains that are remembered.
const SAMPLES: usize = 8;
/// Trains that must agree before anything is said.
const MIN_SAMPLES: usize = 3;
/// Agreement: the standard error of what they tell together, as a share of it.
const MAX_ERROR: f64 = 0.15;

/// Watches packets arrive.
#[derive(Debug, Default)]
pub(crate) struct Trains {
    current: Option<Train>,
    /// What the latest trains told: bits, and the seconds in which they arrived.
    samples: VecDeque<(f64, f64)>,
}

/// Packets that arrived at one time, brought by one interrupt, were due at any time since the
/// interrupt before. So those at the first time say nothing, and those at the last too little: nothing
/// followed them that would have filled their time.
#[derive(Debug)]
struct Train {
    /// The number that continues it.
    next: u64,
    first_at: Instant,
    last_at: Instant,
    packets: u32,
    times: u32,
    /// Bytes that arrived later than the first packet.
    bytes: u64,
    /// The last time but one, and `bytes` of up to then.
    settled: (Instant, u64),
}

impl Trains {
    /// A packet arrived; `follows` tells that it was sent in one go with the number before.
    pub(crate) fn on_packet(&mut self, at: Instant, number: u64, follows: bool, bytes: u64) {
        match &mut self.current {
            Some(train) if follows && train.next == number && at >= train.last_at => {
                train.next += 1;
                train.packets += 1;
                if at > train.last_at {
                    train.settled = (train.last_at, train.bytes);
                    train.times += 1;
                }
                if at > train.first_at {
                    train.bytes += bytes;
                }
                train.last_at = at;
            }
            _ => {
                self.end();
                self.current = Some(Train {
                    next: number + 1,
                    first_at: at,
                    last_at: at,
                    packets: 1,
                    times: 1,
                    bytes: 0,
                    settled: (at, 0),
                });
            }
        }
    }

    fn end(&mut self) {
        let Some(train) = self.current.take() else { return };
        let is_long = train.packets >= MIN_PACKETS || train.bytes >= MIN_BYTES;
        if !is_long || train.times < MIN_TIMES {
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        let (at, bytes) = train.settled;
        self.samples.push_back((bytes as f64 * 8.0, at.since(train.first_at).as_secs_f64()));
    }

    /// The capacity, if the latest trains agree on one: all that arrived in all of the time, but for
    /// the fastest and the slowest quarter.
    pub(crate) fn capacity(&mut self) -> Option<Rate> {
        self.end();
        if self.samples.len() < MIN_SAMPLES {
            return None;
        }
        let mut sorted: Vec<(f64, f64)> = self.samples.iter().copied().collect();
        sorted.sort_unstable_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
        let middle = &sorted[sorted.len() / 4..sorted.len() - sorted.len() / 4];
        let sum = |of: fn(&(f64, f64)) -> f64| middle.iter().map(of).sum::<f64>();
        let (bits, seconds) = (sum(|train| train.0), sum(|train| train.1));
        let rate = bits / seconds;
        let square = |train: &(f64, f64)| (train.1 - train.0 / rate).powi(2);
        let error = middle.iter().map(square).sum::<f64>().sqrt();
        (error <= seconds * MAX_ERROR).then(|| Rate::from_bits_per_sec(rate as u64))
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    /// Sends trains of `count` packets of `size` bytes over a link that takes `gaps` microseconds
    /// for each packet of a train. Interrupts come every `grain` microseconds.
    fn watch_coarsely(gaps: &[u64], (count, size): (u64, u64), grain: u64) -> Option<Rate> {
        let (mut trains, mut number, mut at) = (Trains::default(), 0, Instant::ZERO);
        for gap in gaps {
            at += Duration::from_micros(10_007);
            for place in 0..count {
                at += Duration::from_micros(*gap);
                let told = at.as_nanos().next_multiple_of(grain * 1000);
                trains.on_packet(Instant::from_nanos(told), number, place > 0, size);
                number += 1;
            }
        }
        trains.capacity()
    }

    fn watch(gaps: &[u64], count: u64) -> Option<Rate> {
        watch_coarsely(gaps, (count, 1500), 1)
    }

    #[test]
    fn coarse_interrupts_do_not_hide_the_rate() {
        let told = watch_coarsely(&[12; 4], (16, 1500), 50).unwrap().as_bits_per_sec();
        assert!((900_000_000..1_100_000_000).contains(&told), "{told}");
    }

    #[test]
    fn spacing_tells_the_rate_once_trains_agree() {
        assert_eq!(watch(&[12, 12, 12], 32), Some(Rate::from_bits_per_sec(1_000_000_000)));
        assert_eq!(watch(&[12, 12], 32), None, "too few");
        assert_eq!(watch(&[12, 12, 12], 7), None, "too short");
        let jumbo = watch_coarsely(&[2400; 3], (5, 9000), 1);
        assert_eq!(jumbo, Some(Rate::from_bits_per_sec(30_000_000)));
        assert_eq!(watch(&[12, 40, 90, 5], 32), None, "no agreement");
        assert_eq!(watch(&[0, 0, 0], 32), None, "all at once");
    }

    #[test]
    fn a_hole_or_a_late_packet_ends_a_train() {
        let mut trains = Trains::default();
        for number in [0, 1, 2, 4, 5, 3, 6] {
            trains.on_packet(Instant::from_nanos(number * 1000), number, number > 0, 1500);
        }
        assert_eq!(trains.capacity(), None);
        assert!(trains.samples.is_empty());
    }
}

//! Trains of packets: how far apart packets arrive that were sent in one go tells the rate of the
//! narrowest link (packet pair, as UDT has it, drawn out so that coarse clocks do).

use std::collections::VecDeque;

use units::{Instant, Rate};

/// Packets that a train must have.
const MIN_PACKETS: u32 = 8;
/// Different arrival times that it must have: what one interrupt brought says nothing.
const MIN_TIMES: u32 = 3;
/// Trains whose rates are remembered.
const SAMPLES: usize = 8;
/// Trains that must agree before anything is said.
const MIN_SAMPLES: usize = 3;
/// Agreement: the middle half of the rates lies within this factor.
const AGREEMENT: u64 = 130;

/// Watches packets arrive.
#[derive(Debug, Default)]
pub(crate) struct Trains {
    current: Option<Train>,
    /// Rates of the latest trains in bits a second.
    rates: VecDeque<u64>,
}

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
}

impl Trains {
    /// A packet arrived; `follows` tells that it was sent in one go with the number before.
    pub(crate) fn on_packet(&mut self, at: Instant, number: u64, follows: bool, bytes: u64) {
        match &mut self.current {
            Some(train) if follows && train.next == number && at >= train.last_at => {
                train.next += 1;
                train.packets += 1;
                if at > train.first_at {
                    train.bytes += bytes;
                }
                train.times += u32::from(at > train.last_at);
                train.last_at = at;
            }
            _ => {
                self.end();
                let next = number + 1;
                let train =
                    Train { next, first_at: at, last_at: at, packets: 1, times: 1, bytes: 0 };
                self.current = Some(train);
            }
        }
    }

    fn end(&mut self) {
        let Some(train) = self.current.take() else { return };
        let elapsed = train.last_at.since(train.first_at);
        if train.packets < MIN_PACKETS || train.times < MIN_TIMES {
            return;
        }
        if let Some(rate) = Rate::of(units::Bytes(train.bytes), elapsed) {
            if self.rates.len() == SAMPLES {
                self.rates.pop_front();
            }
            self.rates.push_back(rate.as_bits_per_sec());
        }
    }

    /// The capacity, if the latest trains agree on one.
    pub(crate) fn capacity(&mut self) -> Option<Rate> {
        self.end();
        if self.rates.len() < MIN_SAMPLES {
            return None;
        }
        let mut sorted: Vec<u64> = self.rates.iter().copied().collect();
        sorted.sort_unstable();
        let (low, high) = (sorted[sorted.len() / 4], sorted[(sorted.len() * 3).div_ceil(4) - 1]);
        let agree = u128::from(high) * 100 <= u128::from(low) * u128::from(AGREEMENT);
        agree.then(|| Rate::from_bits_per_sec(sorted[sorted.len() / 2]))
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    /// Sends trains of `count` packets of 1500 bytes over a link that takes `gaps` microseconds
    /// for each packet of a train.
    fn watch(gaps: &[u64], count: u64) -> Option<Rate> {
        let (mut trains, mut number, mut at) = (Trains::default(), 0, Instant::ZERO);
        for gap in gaps {
            at += Duration::from_millis(10);
            for place in 0..count {
                at += Duration::from_micros(*gap);
                trains.on_packet(at, number, place > 0, 1500);
                number += 1;
            }
        }
        trains.capacity()
    }

    #[test]
    fn spacing_tells_the_rate_once_trains_agree() {
        assert_eq!(watch(&[12, 12, 12], 32), Some(Rate::from_bits_per_sec(1_000_000_000)));
        assert_eq!(watch(&[12, 12], 32), None, "too few");
        assert_eq!(watch(&[12, 12, 12], 7), None, "too short");
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
        assert!(trains.rates.is_empty());
    }
}

//! Packet pairs, as UDT has them: two packets sent in one go arrive as far apart as the narrowest
//! link, and what else passes it, puts them.

use std::collections::VecDeque;

use units::{Bytes, Instant, Rate};

/// Pairs whose rates are remembered; the median counts.
const SAMPLES: usize = 16;
/// Numbers that a pair begins anew in: one of so many packets.
const EVERY: u64 = 16;

/// Watches packets arrive.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// The last packet, if it may be the first of a pair: its number and arrival.
    first: Option<(u64, Instant)>,
    /// The next pair begins at this number or later.
    next: u64,
    /// Rates of the latest pairs in bits a second.
    rates: VecDeque<u64>,
}

impl Pairs {
    /// A packet arrived; `follows` tells that it was sent in one go with the number before.
    pub(crate) fn on_packet(&mut self, at: Instant, number: u64, follows: bool, bytes: u64) {
        if !follows {
            self.first = (number >= self.next).then_some((number, at));
            return;
        }
        let Some((first, arrived)) = self.first.take() else { return };
        let rate = Rate::of(Bytes(bytes), at.since(arrived));
        if let Some(rate) = rate.filter(|_| first + 1 == number) {
            if self.rates.len() == SAMPLES {
                self.rates.pop_front();
            }
            self.rates.push_back(rate.as_bits_per_sec());
            self.next = first + EVERY;
        }
    }

    /// The median of the latest pairs.
    pub(crate) fn capacity(&self) -> Option<Rate> {
        let mut sorted: Vec<u64> = self.rates.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().map(Rate::from_bits_per_sec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_gap_of_pairs_tells_the_rate() {
        let mut pairs = Pairs::default();
        for pair in 0..40u64 {
            // 1500 bytes in 12 us, of every third pair in three times as much.
            let gap = if pair % 3 == 0 { 36_000 } else { 12_000 };
            let (number, at) = (pair * 16, pair * 1_000_000);
            pairs.on_packet(Instant::from_nanos(at), number, false, 1500);
            pairs.on_packet(Instant::from_nanos(at + gap), number + 1, true, 1500);
            pairs.on_packet(Instant::from_nanos(at + gap + 1), number + 2, true, 1500);
        }
        assert_eq!(pairs.capacity(), Some(Rate::from_bits_per_sec(1_000_000_000)));
        assert_eq!(pairs.rates.len(), SAMPLES);
    }

    #[test]
    fn a_pair_that_lost_its_first_or_came_at_once_says_nothing() {
        let mut pairs = Pairs::default();
        for (number, follows) in [(1, true), (16, false), (17, true), (32, false), (34, true)] {
            pairs.on_packet(Instant::from_nanos(1), number, follows, 1500);
        }
        assert_eq!(pairs.capacity(), None);
    }
}

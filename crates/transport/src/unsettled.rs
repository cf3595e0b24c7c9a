//! Which numbers are not settled: a bit for each, so that a report that covers a million of them is walked in
//! thousands of steps.

use core::ops::Range;
use std::collections::VecDeque;

/// Numbers in a word.
const WORD: u64 = u64::BITS as u64;

/// A set of numbers that are near each other.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// The first word holds the numbers from so many times [`WORD`] on.
    first: u64,
    words: VecDeque<u64>,
}

impl Unsettled {
    /// Adds a number, none of those that were [forgotten](Self::forget_below).
    pub(crate) fn insert(&mut self, number: u64) {
        if self.words.is_empty() {
            self.first = number / WORD;
        }
        let place = (number / WORD - self.first) as usize;
        if place >= self.words.len() {
            self.words.resize(place + 1, 0);
        }
        self.words[place] |= 1 << (number % WORD);
    }

    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(word) = self.word_mut(number / WORD) {
            *word &= !(1 << (number % WORD));
        }
    }

    fn word_mut(&mut self, at: u64) -> Option<&mut u64> {
        self.words.get_mut(usize::try_from(at.checked_sub(self.first)?).ok()?)
    }

    /// The first of these numbers that is in the set.
    pub(crate) fn next(&self, numbers: Range<u64>) -> Option<u64> {
        let start = numbers.start.max(self.first * WORD);
        let end = numbers.end.min((self.first + self.words.len() as u64) * WORD);
        let mut at = start;
        while at < end {
            let word = self.words[(at / WORD - self.first) as usize] >> (at % WORD);
            if word != 0 {
                let found = at + u64::from(word.trailing_zeros());
                return (found < end).then_some(found);
            }
            at = (at / WORD + 1) * WORD;
        }
        None
    }

    /// Smaller numbers are in the set no more, and will not be.
    pub(crate) fn forget_below(&mut self, number: u64) {
        while self.first < number / WORD && self.words.pop_front().is_some() {
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_set_of_what_was_added_and_not_taken_away(
            first in 0u64..1000,
            steps in prop::collection::vec((0u8..4, 0u64..300, 0u64..300), 1..200),
        ) {
            let (mut bits, mut set) = (Unsettled::default(), BTreeSet::new());
            let (mut lower, mut upper) = (first, first);
            for (what, one, other) in steps {
                let within = |offset: u64| lower + offset.min(upper - lower);
                match what {
                    0 | 1 => {
                        // Some are skipped.
                        upper += one % 3;
                        bits.insert(upper);
                        set.insert(upper);
                        upper += 1;
                    }
                    2 => {
                        bits.remove(within(one));
                        set.remove(&within(one));
                    }
                    _ => {
                        lower = within(one / 8);
                        bits.forget_below(lower);
                        set = set.split_off(&lower);
                    }
                }
                let range = lower + one..lower + one + other;
                prop_assert_eq!(bits.next(range.clone()), set.range(range).next().copied());
                prop_assert!(bits.words.len() as u64 <= (upper - lower) / WORD + 2);
            }
        }
    }
}

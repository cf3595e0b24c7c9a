//! What was sent again and is lost again, told by what arrived that was sent later (RFC 8985): by segments, not by time, and
//! without its probes of the tail.

use std::collections::VecDeque;

use units::Instant;

/// What was sent so many segments earlier than something that has arrived is lost.
const EARLIER: u64 = 3;

/// Numbers the segments as they are sent, from 1 on.
#[derive(Clone, Debug, Default)]
pub(super) struct Rack {
    sent: u64,
    /// The latest of those that have arrived.
    arrived: u64,
    /// What was sent again, in order.
    again: VecDeque<Again>,
}

#[derive(Clone, Copy, Debug)]
struct Again {
    number: u64,
    /// Its place in the connection, and when it was sent.
    place: u64,
    at: Instant,
}

impl Rack {
    /// New data is sent.
    pub(super) fn on_sent(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    /// The segment in this place is sent again.
    pub(super) fn on_resent(&mut self, now: Instant, place: u64) -> u64 {
        let number = self.on_sent();
        self.again.push_back(Again { number, place, at: now });
        number
    }

    /// The segment with this number arrived, as is known from an answer to what was sent at that moment. What had been sent
    /// again only after that came the first time, late.
    pub(super) fn on_arrival(&mut self, number: u64, answered: Instant) {
        let again = self.again.binary_search_by_key(&number, |again| again.number);
        if again.is_ok_and(|at| self.again[at].at > answered) {
            return;
        }
        self.arrived = self.arrived.max(number);
    }

    /// The place of what was sent again and has been judged: lost, unless it arrived.
    pub(super) fn next_judged(&mut self) -> Option<u64> {
        let arrived = self.arrived;
        self.again.pop_front_if(|again| again.number + EARLIER <= arrived).map(|again| again.place)
    }

    /// Everything counts as lost.
    pub(super) fn forget(&mut self) {
        self.again.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_original_says_nothing_of_its_copy() {
        let at = Instant::from_nanos;
        let mut rack = Rack::default();
        (0..10).for_each(|_| _ = rack.on_sent());
        let first = rack.on_resent(at(100), 1);
        (0..3).for_each(|_| _ = rack.on_sent());
        let second = rack.on_resent(at(200), 2);
        assert_eq!((first, second), (11, 15));
        rack.on_arrival(second, at(90));
        assert_eq!(rack.next_judged(), None);
        rack.on_arrival(second, at(200));
        assert_eq!((rack.next_judged(), rack.next_judged()), (Some(1), None));
    }
}

//! Puts packets on the line one after another.

use units::{Bytes, Instant, Rate};

use crate::trace::{Player, RateTrace};

/// The sender at the head of the line, at an exact rate or by a recording.
pub(crate) enum Transmitter {
    Steady(Steady),
    Recorded(Player),
}

impl Transmitter {
    pub(crate) fn new(rate: Rate, trace: Option<&RateTrace>) -> Self {
        match trace {
            Some(trace) => Self::Recorded(Player::new(trace.clone(), Instant::ZERO)),
            None => Self::Steady(Steady::new(rate, Instant::ZERO)),
        }
    }

    /// Sends at another rate, or by another recording that begins at `now`. A packet that is
    /// being sent is finished as it was begun.
    pub(crate) fn change(&mut self, now: Instant, rate: Rate, trace: Option<&RateTrace>) {
        let free_at = self.ready(now);
        *self = match trace {
            Some(trace) => Self::Recorded(Player::new(trace.clone(), now)),
            None => Self::Steady(Steady::new(
                rate,
                if matches!(self, Self::Steady(_)) { free_at } else { now },
            )),
        };
    }

    /// When a packet that waits since `from` can begin to leave.
    pub(crate) fn ready(&mut self, from: Instant) -> Instant {
        match self {
            Self::Steady(steady) => steady.free_at.max(from),
            Self::Recorded(player) => player.ready(from),
        }
    }

    /// Begins a packet at `start`, which [`ready`](Self::ready) returned; returns when its last
    /// bit is out.
    pub(crate) fn send(&mut self, start: Instant, size: Bytes) -> Instant {
        match self {
            Self::Steady(steady) => steady.send(start, size),
            Self::Recorded(player) => player.send(size),
        }
    }
}

/// An exact rate.
pub(crate) struct Steady {
    rate: Rate,
    free_at: Instant,
    /// What the last packet took beyond whole nanoseconds, in units of 1/rate ns; carried to the
    /// next one, so that rounding does not change the rate.
    carry: u64,
    /// The last packet, for the next mostly takes as long.
    last: Work,
}

/// How long a packet of a size takes: whole nanoseconds, and what is left in units of 1/rate ns, which lacks so many of one more.
#[derive(Clone, Copy)]
struct Work {
    size: Bytes,
    nanos: u64,
    rest: u64,
    missing: u64,
}

impl Work {
    fn new(size: Bytes, rate: Rate) -> Self {
        let bits = u128::from(size.0) * 8 * 1_000_000_000;
        let rate = u128::from(rate.as_bits_per_sec());
        let nanos = u64::try_from(bits / rate).unwrap_or(u64::MAX);
        let rest = bits % rate;
        Self { size, nanos, rest: rest as u64, missing: (rate - rest) as u64 }
    }
}

impl Steady {
    pub(crate) fn new(rate: Rate, free_at: Instant) -> Self {
        Self { rate, free_at, carry: 0, last: Work::new(Bytes::ZERO, rate) }
    }

    /// When the last packet's last bit is out.
    pub(crate) fn free_at(&self) -> Instant {
        self.free_at
    }

    /// See [`Transmitter::send`].
    #[inline(always)]
    pub(crate) fn send(&mut self, start: Instant, size: Bytes) -> Instant {
        if start > self.free_at {
            self.carry = 0;
        }
        if size != self.last.size {
            self.last = Work::new(size, self.rate);
        }
        let Work { mut nanos, rest, missing, .. } = self.last;
        if self.carry >= missing {
            self.carry -= missing;
            nanos = nanos.saturating_add(1);
        } else {
            self.carry += rest;
        }
        self.free_at = Instant::from_nanos(start.as_nanos().saturating_add(nanos));
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As a division of all that was sent since the transmitter was last free, in 128 bits.
        #[test]
        fn packets_of_all_sizes_take_their_time(
            rate in 1u64..=u64::MAX,
            packets in prop::collection::vec((0u64..3, prop::sample::select(vec![0u64, 40, 1500, 9000])), 1..100),
        ) {
            let mut steady = Steady::new(Rate::from_bits_per_sec(rate), Instant::ZERO);
            let (mut since, mut bits) = (Instant::ZERO, 0u128);
            for (gap, size) in packets {
                let start = Instant::from_nanos(steady.free_at.as_nanos().saturating_add(gap));
                if start > steady.free_at {
                    (since, bits) = (start, 0);
                }
                bits += u128::from(size) * 8 * 1_000_000_000;
                let nanos = u64::try_from(bits / u128::from(rate)).unwrap_or(u64::MAX);
                let free_at = Instant::from_nanos(since.as_nanos().saturating_add(nanos));
                prop_assert_eq!(steady.send(start, Bytes(size)), free_at);
            }
        }
    }
}

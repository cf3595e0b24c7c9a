//! Puts packets on the line one after another.

use core::time::Duration;

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
    carry: u128,
}

impl Steady {
    fn new(rate: Rate, free_at: Instant) -> Self {
        Self { rate, free_at, carry: 0 }
    }

    fn send(&mut self, start: Instant, size: Bytes) -> Instant {
        if start > self.free_at {
            self.carry = 0;
        }
        let rate = u128::from(self.rate.as_bits_per_sec());
        let work = u128::from(size.0) * 8 * 1_000_000_000 + self.carry;
        self.carry = work % rate;
        let nanos = u64::try_from(work / rate).unwrap_or(u64::MAX);
        self.free_at = start + Duration::from_nanos(nanos);
        self.free_at
    }
}

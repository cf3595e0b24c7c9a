//! What the kernel is told of a sender's connections again and again: what may wait unsent in it, and how
//! fast each may send, if they are of BBR or their rate was asked for.

use std::os::fd::AsFd;

use stripe::count::{Hold, Law, Pace, Policy, Sample, TICK};
use units::Rate;

use super::info::sending;
use super::options::{limit_rate, limit_unsent};

/// What may wait unsent for one connection, at least,
const UNSENT: u64 = 8 << 10;
/// and at most,
const UNSENT_MOST: u64 = 128 << 10;
/// of BBR.
const UNSENT_MOST_BBR: u64 = 4 << 20;

/// What holds a sender's connections back.
#[derive(Debug)]
pub(super) struct Pacing {
    /// Those of BBR; but the bounds of paper 3 go by the queue that a pace would end.
    pace: Option<Pace>,
    /// Those of a stream whose rate was asked for.
    hold: Option<Hold>,
    /// What each may send by both.
    rate: Option<Rate>,
}

impl Pacing {
    pub fn new(policy: Policy) -> Self {
        let pace = (!matches!(policy, Policy::RttBounded { .. })).then(Pace::default);
        let hold = match policy {
            Policy::Equation { target, .. } => Some(Hold::new(target)),
            _ => None,
        };
        Self { pace, hold, rate: None }
    }

    /// Tells the kernel, and notes in the sample whether a pace is what holds them back. Of each that is
    /// not of BBR about `share` may wait; `None` leaves it as it is.
    pub fn apply<S: AsFd>(&mut self, sample: &mut Sample, share: Option<u64>, sockets: &[S]) {
        let is_bbr = sample.law == Law::Bbr;
        for socket in sockets {
            let share = share.map(|share| share.clamp(UNSENT, UNSENT_MOST) as u32);
            if let Some(most) = if is_bbr { Some(unsent(sending(socket))) } else { share } {
                limit_unsent(socket, most);
            }
        }
        let pace = self.pace.as_mut().filter(|_| is_bbr);
        let hold = self.hold.as_mut().map(|hold| hold.limit(sample));
        if pace.is_none() && hold.is_none() {
            return;
        }
        let path = pace.and_then(|pace| {
            let rate = pace.limit(sample);
            sample.paced = pace.is_limited();
            rate
        });
        self.rate = [path, hold].into_iter().flatten().min();
        sockets.iter().for_each(|socket| limit_rate(socket, self.rate));
    }

    /// Tells the kernel of those as well that have come since.
    pub fn extend<S: AsFd>(&self, sockets: &[S]) {
        if self.rate.is_some() {
            sockets.iter().for_each(|socket| limit_rate(socket, self.rate));
        }
    }
}

/// Of one of BBR that sends so many bytes a second, and has carried so many: what it may send until the
/// next time, but no more than it has carried, for little is to go over all of them. One that runs dry
/// now and then is taken for one with nothing more to send: it never leaves the start-up, in which it
/// sends almost three times as much as arrives.
fn unsent([rate, carried]: [u64; 2]) -> u32 {
    let bytes = (u128::from(rate) * TICK.as_millis() / 1000).min(carried.into());
    u64::try_from(bytes).unwrap_or(u64::MAX).clamp(UNSENT, UNSENT_MOST_BBR) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_waits_as_goes_until_the_next_time() {
        let of_mbps = |rate: u64| unsent([rate * 1_000_000 / 8, 1 << 30]);
        assert_eq!([0, 1, 100, 1000].map(of_mbps), [8 << 10, 12_500, 1_250_000, 4 << 20]);
        assert_eq!([1, 100_000].map(|carried| unsent([u64::MAX, carried])), [8 << 10, 100_000]);
    }
}

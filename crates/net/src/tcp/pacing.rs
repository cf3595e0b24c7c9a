//! What a sender's connections of BBR need: a [`Pace`], and never to run dry.

use std::os::fd::AsFd;

use socket2::SockRef;
use stripe::count::{Pace, Policy, Sample, TICK};

use super::info::sending;
use super::options::limit_rate;

/// What may wait unsent in the kernel for one connection, at least and at most.
const UNSENT: [u32; 2] = [8 << 10, 4 << 20];

/// Limits what each of a sender's connections sends, if they need that, and notes in the sample whether
/// that is what holds them back. The bounds of paper 3 go by the queue that would be missing.
pub(super) fn apply<S: AsFd>(pace: &mut Pace, policy: Policy, sample: &mut Sample, sockets: &[S]) {
    sockets.iter().for_each(limit_unsent);
    if matches!(policy, Policy::RttBounded { .. }) {
        return;
    }
    let rate = pace.limit(sample);
    sample.paced = pace.is_limited();
    sockets.iter().for_each(|socket| limit_rate(socket, rate));
}

/// Lets so much wait as a connection may send until the next time, but no more than it has carried: little
/// is to go over all of them. One that runs dry now and then is taken for one with nothing more to send:
/// it never leaves BBR's start-up, in which it sends almost three times as much as arrives.
fn limit_unsent(socket: &impl AsFd) {
    // Without it all goes as well, but what waits can no longer go to a faster connection.
    let _ = SockRef::from(socket).set_tcp_notsent_lowat(unsent(sending(socket)));
}

/// Of one that sends so many bytes a second, and has carried so many.
fn unsent([rate, carried]: [u64; 2]) -> u32 {
    let bytes = (u128::from(rate) * TICK.as_millis() / 1000).min(carried.into());
    u32::try_from(bytes).unwrap_or(u32::MAX).clamp(UNSENT[0], UNSENT[1])
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

//! Whose hello is worth a handshake. A stranger's costs one hash, keeps no state, and cannot keep
//! others out.
//!
//! While there is little to do, a hello is believed at once. Under a flood its sender first has to
//! prove that it is where it says, by a cookie: then one address cannot pretend to be many.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::HashSet;

use units::Instant;

use crate::crypto::{Token, Tokens, same};

/// Connections of which the initiator has not yet proved that it is there, at most.
pub const MAX_HALF_OPEN: usize = 256;
/// So many of them may have come without a cookie.
const MAX_UNPROVEN: usize = MAX_HALF_OPEN / 2;
/// A responder gives up an initiator from which nothing more comes for so long.
pub const HALF_OPEN_TIME: Duration = Duration::from_secs(10);
/// Handshakes a second without a cookie. One takes about 0.2 ms of the driver's time, so that a
/// flood costs a few percent of a core.
const UNPROVEN: Budget = Budget { each_second: 100.0, at_once: 64.0 };
/// Handshakes a second with a cookie.
const PROVEN: Budget = Budget { each_second: 200.0, at_once: 64.0 };
/// Answers a second to packets of connections that this end does not know.
const RESETS: Budget = Budget { each_second: 200.0, at_once: 50.0 };
/// A cookie is taken for this time, and for as long again.
const COOKIE_TIME: Duration = Duration::from_secs(16);

/// How often something may be done.
#[derive(Clone, Copy, Debug)]
struct Budget {
    each_second: f64,
    at_once: f64,
}

#[derive(Debug)]
struct Bucket {
    budget: Budget,
    left: f64,
    at: Instant,
}

impl Bucket {
    fn new(budget: Budget) -> Self {
        Self { budget, left: budget.at_once, at: Instant::ZERO }
    }

    fn take(&mut self, now: Instant) -> bool {
        let fresh = now.since(self.at).as_secs_f64() * self.budget.each_second;
        self.left = (self.left + fresh).min(self.budget.at_once);
        self.at = self.at.max(now);
        let enough = self.left >= 1.0;
        self.left -= f64::from(enough);
        enough
    }
}

/// What to do with a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    /// Ask for it again, with this cookie.
    Retry(Token),
    /// There is no room.
    Busy,
    /// The time for handshakes is used up; the initiator repeats its hello by itself.
    Ignore,
}

/// Decides, and keeps count.
#[derive(Debug)]
pub(crate) struct Admission {
    cookies: Tokens,
    half_open: HashSet<u32>,
    unproven: Bucket,
    proven: Bucket,
    resets: Bucket,
}

impl Admission {
    /// `secret` must be fresh randomness.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self {
            cookies: Tokens::new(secret),
            half_open: HashSet::new(),
            unproven: Bucket::new(UNPROVEN),
            proven: Bucket::new(PROVEN),
            resets: Bucket::new(RESETS),
        }
    }

    /// What to do with a hello that begins with `echo` and brought `cookie`.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        from: SocketAddr,
        echo: &[u8],
        cookie: &Token,
    ) -> Verdict {
        let period = now.as_nanos() / COOKIE_TIME.as_nanos() as u64;
        let [made, before] = [0, 1].map(|ago| self.cookie(period.saturating_sub(ago), from, echo));
        let proven = same(&made, cookie) || same(&before, cookie);
        if proven {
            if self.half_open.len() >= MAX_HALF_OPEN {
                Verdict::Busy
            } else if self.proven.take(now) {
                Verdict::Accept
            } else {
                Verdict::Ignore
            }
        } else if self.half_open.len() < MAX_UNPROVEN && self.unproven.take(now) {
            Verdict::Accept
        } else {
            Verdict::Retry(made)
        }
    }

    fn cookie(&self, period: u64, from: SocketAddr, echo: &[u8]) -> Token {
        let ip = match from.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let (period, port) = (period.to_be_bytes(), from.port().to_be_bytes());
        self.cookies.token(&[&period, &ip.octets(), &port, echo])
    }

    /// A connection began whose initiator has yet to prove that it is there.
    pub(crate) fn begin(&mut self, number: u32) {
        self.half_open.insert(number);
    }

    /// It has, or it has ended.
    pub(crate) fn end(&mut self, number: u32) {
        self.half_open.remove(&number);
    }

    /// Whether a packet of an unknown connection may be answered now.
    pub(crate) fn may_reset(&mut self, now: Instant) -> bool {
        self.resets.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000_000);
    const NONE: Token = [0; crate::crypto::TOKEN_LEN];

    fn from(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    fn flooded() -> Admission {
        let mut admission = Admission::new(&[1; 32]);
        for number in 0..100_000 {
            if admission.judge(NOW, from(number as u16), &[2; 32], &NONE) == Verdict::Accept {
                admission.begin(number);
            }
        }
        assert_eq!(admission.half_open.len(), UNPROVEN.at_once as usize);
        admission
    }

    #[test]
    fn under_a_flood_only_those_with_their_own_fresh_cookie_get_a_handshake() {
        let mut admission = flooded();
        let Verdict::Retry(cookie) = admission.judge(NOW, from(1), &[3; 32], &NONE) else {
            panic!("no cookie asked for");
        };
        let mut judge = |now, port, echo| admission.judge(now, from(port), echo, &cookie);
        assert_eq!(judge(NOW, 1, &[3; 32]), Verdict::Accept);
        assert_eq!(judge(NOW + COOKIE_TIME, 1, &[3; 32]), Verdict::Accept);
        assert!(matches!(judge(NOW, 2, &[3; 32]), Verdict::Retry(_)), "another address");
        assert!(matches!(judge(NOW, 1, &[4; 32]), Verdict::Retry(_)), "another hello");
        let mut other = flooded();
        let late = other.judge(NOW + COOKIE_TIME * 2, from(1), &[3; 32], &cookie);
        assert_ne!(late, Verdict::Busy);
        assert!(!other.half_open.contains(&100_001));
    }

    #[test]
    fn what_is_half_open_is_bounded_even_with_cookies() {
        let mut admission = flooded();
        let (mut now, mut number) = (NOW, 200_000);
        let mut busy = false;
        while !busy {
            now += Duration::from_millis(10);
            number += 1;
            let echo = [number as u8; 32];
            let cookie =
                admission.cookie(now.as_nanos() / COOKIE_TIME.as_nanos() as u64, from(1), &echo);
            match admission.judge(now, from(1), &echo, &cookie) {
                Verdict::Accept => admission.begin(number),
                Verdict::Busy => busy = true,
                Verdict::Retry(_) => panic!("a good cookie"),
                Verdict::Ignore => {}
            }
            assert!(admission.half_open.len() <= MAX_HALF_OPEN);
        }
        assert_eq!(admission.half_open.len(), MAX_HALF_OPEN);
        admission.end(number - 1);
        assert_eq!(admission.half_open.len(), MAX_HALF_OPEN - 1);
    }
}

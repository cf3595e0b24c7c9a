//! Whose hello is worth a handshake. A stranger's costs one hash, keeps no state, and cannot keep
//! others out.
//!
//! While there is little to do, a hello is believed at once. Under a flood its sender first has to
//! prove that it is where it says, by a cookie: then one address cannot pretend to be many.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

use crate::crypto::{Token, Tokens, octets, same};

/// Connections of which the initiator has not yet proved that it is there, at most.
pub const MAX_HALF_OPEN: usize = 256;
/// So many of them may have come without a cookie.
const MAX_UNPROVEN: usize = MAX_HALF_OPEN / 2;
/// A responder gives up an initiator that has not proved itself for so long: twice what an initiator
/// tries, for its proof may be lost many times.
pub const HALF_OPEN_TIME: Duration = Duration::from_secs(20);
/// Handshakes a second without a cookie. One takes about 0.2 ms of the driver's time, so that a
/// flood costs a few percent of a core.
const UNPROVEN: Budget = Budget { each_second: 100.0, at_once: 64.0 };
/// Handshakes a second with a cookie.
const PROVEN: Budget = Budget { each_second: 200.0, at_once: 64.0 };
/// Of these, for the addresses that share a place in the table below: in [`HALF_OPEN_TIME`] too few
/// to push out what others have half open.
const SOURCE: Budget = Budget { each_second: 10.0, at_once: 16.0 };
/// Places for addresses. A stranger cannot know with whom it shares one.
const SOURCES: usize = 256;
/// What one site is given of IPv6 at least, in bytes.
const SITE: usize = 7;
/// Answers a second to packets of connections that this end does not know.
const RESETS: Budget = Budget { each_second: 200.0, at_once: 50.0 };
/// Echoes returned a second. They are no larger than what asked for them, but may go to somebody who did
/// not.
const ECHOES: Budget = Budget { each_second: 10_000.0, at_once: 1_000.0 };
/// A cookie is taken for this time, and for as long again.
const COOKIE_TIME: Duration = Duration::from_secs(16);

/// How often something may be done.
#[derive(Clone, Copy, Debug)]
struct Budget {
    each_second: f64,
    at_once: f64,
}

#[derive(Clone, Debug)]
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
    /// The time for handshakes is used up; the initiator repeats its hello by itself.
    Ignore,
}

/// Decides, and keeps count.
#[derive(Debug)]
pub(crate) struct Admission {
    cookies: Tokens,
    /// The oldest first.
    half_open: VecDeque<u32>,
    unproven: Bucket,
    proven: Bucket,
    /// By a hash of the address.
    sources: Vec<Bucket>,
    resets: Bucket,
    echoes: Bucket,
}

impl Admission {
    /// `secret` must be fresh randomness.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self {
            cookies: Tokens::new(secret),
            half_open: VecDeque::new(),
            unproven: Bucket::new(UNPROVEN),
            proven: Bucket::new(PROVEN),
            sources: vec![Bucket::new(SOURCE); SOURCES],
            resets: Bucket::new(RESETS),
            echoes: Bucket::new(ECHOES),
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
            let place = self.place(from.ip());
            if self.sources[place].take(now) && self.proven.take(now) {
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
        let (period, port) = (period.to_be_bytes(), from.port().to_be_bytes());
        self.cookies.token(&[&period, &octets(from.ip()), &port, echo])
    }

    /// The bucket of an address, or of the IPv6 site that it belongs to.
    fn place(&self, ip: IpAddr) -> usize {
        let token = match ip.to_canonical() {
            IpAddr::V4(ip) => self.cookies.token(&[b"source", &ip.octets()]),
            IpAddr::V6(ip) => self.cookies.token(&[b"source", &ip.octets()[..SITE]]),
        };
        usize::from(u16::from_be_bytes([token[0], token[1]])) % SOURCES
    }

    /// A connection began whose initiator has yet to prove that it is there. Where there is no
    /// room for it, gives the one to be forgotten instead: the oldest has had the most time.
    pub(crate) fn begin(&mut self, number: u32) -> Option<u32> {
        let full = self.half_open.len() >= MAX_HALF_OPEN;
        let oldest = if full { self.half_open.pop_front() } else { None };
        self.half_open.push_back(number);
        oldest
    }

    /// It has, or it has ended.
    pub(crate) fn end(&mut self, number: u32) {
        self.half_open.retain(|&other| other != number);
    }

    /// Whether a packet of an unknown connection may be answered now.
    pub(crate) fn may_reset(&mut self, now: Instant) -> bool {
        self.resets.take(now)
    }

    /// Whether an echo may be returned now.
    pub(crate) fn may_echo(&mut self, now: Instant) -> bool {
        self.echoes.take(now)
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
        let late = NOW + COOKIE_TIME * 2;
        while other.unproven.take(late) {}
        let late = other.judge(late, from(1), &[3; 32], &cookie);
        assert!(matches!(late, Verdict::Retry(_)), "an old cookie");
    }

    /// What becomes of a hello with its own fresh cookie.
    fn judge_proven(admission: &mut Admission, now: Instant, from: SocketAddr) -> Verdict {
        let period = now.as_nanos() / COOKIE_TIME.as_nanos() as u64;
        let cookie = admission.cookie(period, from, &[3; 32]);
        admission.judge(now, from, &[3; 32], &cookie)
    }

    fn source(address: u32) -> SocketAddr {
        (core::net::Ipv4Addr::from_bits(address), 1).into()
    }

    #[test]
    fn what_is_half_open_is_bounded_and_the_oldest_makes_room() {
        let mut admission = flooded();
        let (mut now, mut number) = (NOW, 200_000);
        let mut gone = Vec::new();
        while gone.len() < 100 {
            now += Duration::from_millis(10);
            number += 1;
            match judge_proven(&mut admission, now, source(number)) {
                Verdict::Accept => gone.extend(admission.begin(number)),
                Verdict::Retry(_) => panic!("a good cookie"),
                Verdict::Ignore => {}
            }
            assert!(admission.half_open.len() <= MAX_HALF_OPEN);
        }
        assert_eq!(gone[..3], [0, 1, 2], "in the order in which they came");
        assert!(gone[64] > 200_000 && admission.half_open.back() == Some(&number));
        admission.end(number);
        assert_eq!(admission.half_open.len(), MAX_HALF_OPEN - 1);
        assert_eq!(admission.begin(1), None);
    }

    #[test]
    fn one_address_or_site_with_cookies_does_not_keep_others_out() {
        let sites = [
            |n: u32| SocketAddr::from(([192, 0, 2, 1], n as u16)),
            |n: u32| ([0x2001, 0xdb8, 0, n as u16 & 0xff, 0, 0, n as u16, 1], 9).into(),
        ];
        for attacker in sites {
            let mut admission = flooded();
            let (mut accepted, mut others) = (0, 0);
            for millisecond in 0..10_000 {
                let now = NOW + Duration::from_millis(millisecond.into());
                let verdict = judge_proven(&mut admission, now, attacker(millisecond));
                accepted += u32::from(verdict == Verdict::Accept);
                if millisecond % 100 == 50 {
                    let verdict = judge_proven(&mut admission, now, source(millisecond));
                    others += u32::from(verdict == Verdict::Accept);
                }
            }
            let most = SOURCE.at_once + 10.0 * SOURCE.each_second;
            assert!((most - 2.0..=most).contains(&f64::from(accepted)), "{accepted}");
            // One in 256 shares the attacker's place.
            assert!(others >= 97, "{others} of 100");
        }
    }
}

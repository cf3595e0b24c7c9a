//! Who has how many sessions, and who guesses passwords.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use units::Instant;

/// Addresses whose wrong passwords are remembered; beyond, those that failed longest ago go.
const ADDRESSES_MAX: usize = 10_000;

/// The answer to a first wrong password comes so much later, and twice as late with each further one,
const FIRST_DELAY: Duration = Duration::from_millis(250);

/// up to this.
const LAST_DELAY: Duration = Duration::from_secs(16);

/// A wrong password is forgotten after this time.
const MEMORY: Duration = Duration::from_secs(900);

/// The most sessions at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of everybody.
    pub sessions: usize,
    /// From one address; all of an IPv6 host's /64 are one.
    pub per_address: usize,
    /// Of one named user.
    pub per_user: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sessions: 512, per_address: 128, per_user: 128 }
    }
}

/// Counts sessions and wrong passwords.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    limits: Limits,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    sessions: usize,
    held: HashMap<Who, usize>,
    wrong: HashMap<IpAddr, (u32, Instant)>,
    /// Passwords that are checked or wait for it, one at a time of each address.
    turns: HashMap<IpAddr, Arc<tokio::sync::Mutex<()>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Address(IpAddr),
    User(String),
}

/// A place that is given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    guard: Guard,
    who: Who,
}

impl Guard {
    /// Keeps to these limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a session from this address.
    pub fn admit(&self, address: IpAddr) -> Option<Place> {
        self.take(Who::Address(network(address)), self.limits.per_address)
    }

    /// A place for a named user who has logged in.
    pub fn admit_user(&self, name: &str) -> Option<Place> {
        self.take(Who::User(name.to_owned()), self.limits.per_user)
    }

    fn take(&self, who: Who, most: usize) -> Option<Place> {
        let mut counts = self.counts();
        let is_session = matches!(who, Who::Address(_));
        let held = counts.held.get(&who).copied().unwrap_or(0);
        if held >= most || is_session && counts.sessions >= self.limits.sessions {
            return None;
        }
        counts.sessions += usize::from(is_session);
        counts.held.insert(who.clone(), held + 1);
        Some(Place { guard: self.clone(), who })
    }

    /// What has to be held while a password from this address is checked; none where others hold it for too
    /// long.
    pub async fn turn(&self, address: IpAddr, patience: Duration) -> Option<OwnedMutexGuard<()>> {
        let turn = {
            let mut counts = self.counts();
            // Those that somebody holds or waits for stay: no more than there are sessions.
            counts.turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            counts.turns.entry(network(address)).or_default().clone()
        };
        tokio::time::timeout(patience, turn.lock_owned()).await.ok()
    }

    /// How long the answer to this address' next password has to wait.
    pub fn delay(&self, address: IpAddr, now: Instant) -> Duration {
        match self.counts().wrong.get(&network(address)) {
            Some(&(times, last)) if now.since(last) < MEMORY => {
                FIRST_DELAY.saturating_mul(1 << times.saturating_sub(1).min(16)).min(LAST_DELAY)
            }
            _ => Duration::ZERO,
        }
    }

    /// Notes a wrong password.
    pub fn wrong(&self, address: IpAddr, now: Instant) {
        let mut counts = self.counts();
        let address = network(address);
        if counts.wrong.len() >= ADDRESSES_MAX && !counts.wrong.contains_key(&address) {
            counts.wrong.retain(|_, (_, last)| now.since(*last) < MEMORY);
            let oldest = counts.wrong.iter().min_by_key(|(_, (_, last))| *last);
            if let Some(oldest) = oldest.map(|(&address, _)| address)
                && counts.wrong.len() >= ADDRESSES_MAX
            {
                counts.wrong.remove(&oldest);
            }
        }
        let (times, last) = counts.wrong.entry(address).or_insert((0, now));
        *times = times.saturating_add(1);
        *last = now;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.guard.counts();
        if matches!(self.who, Who::Address(_)) {
            counts.sessions -= 1;
        }
        if let Some(held) = counts.held.get_mut(&self.who) {
            *held -= 1;
            if *held == 0 {
                counts.held.remove(&self.who);
            }
        }
    }
}

/// What counts as one host: one of IPv6 has a whole /64 to come from.
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => {
            std::net::Ipv6Addr::from_bits(six.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn guessing_gets_slower_and_is_forgotten() {
        let guard = Guard::default();
        let (guesser, other) = ("fd77::1:0:0:1".parse().unwrap(), "fd77:0:0:1::1".parse().unwrap());
        assert_eq!(guard.delay(guesser, at(0)), Duration::ZERO);
        let mut delays = Vec::new();
        for second in 0..40 {
            guard.wrong(guesser, at(second));
            delays.push(guard.delay(guesser, at(second)));
        }
        assert_eq!(delays[..3], [250, 500, 1000].map(Duration::from_millis));
        assert_eq!(delays[39], LAST_DELAY);
        assert_eq!(guard.delay("fd77::9".parse().unwrap(), at(40)), LAST_DELAY, "the same network");
        assert_eq!(guard.delay(other, at(40)), Duration::ZERO);
        assert_eq!(guard.delay(guesser, at(40 + 900)), Duration::ZERO);
    }

    #[test]
    fn the_table_of_guessers_is_bounded() {
        let guard = Guard::default();
        for address in 0..ADDRESSES_MAX as u32 + 10 {
            guard
                .wrong(std::net::Ipv4Addr::from_bits(address).into(), at(u64::from(address) / 100));
        }
        assert_eq!(guard.counts().wrong.len(), ADDRESSES_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn one_password_of_an_address_is_checked_at_a_time() {
        let guard = Guard::default();
        let [one, same, other] =
            ["fd77::1", "fd77::2", "fd77:0:0:1::1"].map(|address| address.parse().unwrap());
        let turn = |address| guard.turn(address, Duration::from_secs(60));
        let held = turn(one).await.unwrap();
        assert!(turn(same).await.is_none(), "it is not waited for without end");
        assert!(turn(other).await.is_some());
        assert!(turn(one).await.is_none(), "asking anew does not help");
        let (_held, ()) = tokio::join!(turn(same), async { drop(held) });
        assert_eq!(guard.counts().turns.len(), 1, "the others are forgotten");
    }

    #[test]
    fn places_are_counted_and_given_back() {
        let guard = Guard::new(Limits { sessions: 3, per_address: 2, per_user: 1 });
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        let first = guard.admit(one).unwrap();
        let _second = guard.admit(one).unwrap();
        assert!(guard.admit(one).is_none());
        let _third = guard.admit(two).unwrap();
        assert!(guard.admit(two).is_none(), "three in all");
        drop(first);
        let _again = guard.admit(one).unwrap();
        let six = ["fd77::1", "fd77::1:2:3:4", "fd77::9"].map(|address| address.parse().unwrap());
        let guard6 = Guard::new(Limits { sessions: 9, per_address: 2, per_user: 1 });
        let _places = six[..2].iter().map(|&six| guard6.admit(six).unwrap()).collect::<Vec<_>>();
        assert!(guard6.admit(six[2]).is_none(), "one host has them all");
        let user = guard.admit_user("ann").unwrap();
        assert!(guard.admit_user("ann").is_none());
        drop(user);
        assert!(guard.admit_user("ann").is_some());
    }
}

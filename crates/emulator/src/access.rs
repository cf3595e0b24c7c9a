//! The hosts' own links to the path, in one direction on one side.

use core::time::Duration;

use path::{DropCause, Exit, HostGroup, Link, PathError};
use units::{Bytes, Instant};

/// A link for each host that has one.
pub(crate) struct Access<T> {
    links: Vec<Option<Link<T>>>,
    /// Whether any host has one.
    any: bool,
}

impl<T> Access<T> {
    /// The links of `hosts` at the end of a path of this round-trip time.
    pub(crate) fn new(hosts: &[HostGroup], rtt: Duration, seed: u64) -> Result<Self, PathError> {
        let links = path::Scenario::hosts(hosts).zip(1u64..).map(|(host, number)| {
            host.link().map(|link| link.link(rtt, seed ^ number << 32)).transpose()
        });
        let links = links.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { any: links.iter().any(Option::is_some), links })
    }

    /// Whether no host has one.
    pub(crate) fn is_empty(&self) -> bool {
        !self.any
    }

    /// The link of a host.
    pub(crate) fn of(&mut self, host: usize) -> Option<&mut Link<T>> {
        self.links.get_mut(host)?.as_mut()
    }

    /// When the next packet leaves one of them.
    pub(crate) fn next_exit(&self) -> Option<Instant> {
        self.links.iter().flatten().filter_map(Link::next_exit).min()
    }

    /// The next packet that left one of them by `now`: the first of all, and of those at the
    /// same time that of the first host.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Exit<T>> {
        if !self.any {
            return None;
        }
        loop {
            let busy = self.links.iter_mut().flatten();
            let (due, link) = busy
                .filter_map(|link| link.next_exit().map(|due| (due, link)))
                .min_by_key(|&(due, _)| due)?;
            if due > now {
                return None;
            }
            // A look too early puts the next packet on its line, and is made no second time.
            if let Some(exit) = link.poll(due) {
                return Some(exit);
            }
        }
    }

    /// Packets that they dropped.
    pub(crate) fn dropped(&self) -> u64 {
        let drops = |link: &Link<T>| {
            DropCause::ALL.iter().map(|&cause| link.counters().dropped(cause).packets).sum::<u64>()
        };
        self.links.iter().flatten().map(drops).sum()
    }

    /// What they hold at once: all of it, but no more than the path lets through in their longest
    /// delay, four times over for senders that overshoot.
    pub(crate) fn most_held(hosts: &[HostGroup], rtt: Duration, path: units::Rate) -> Bytes {
        let links = || path::Scenario::hosts(hosts).filter_map(HostGroup::link);
        let all: Bytes = links().map(|link| link.most_held(rtt, MAX_PACKET)).sum();
        let longest = links().map(|link| link.delay).max().unwrap_or_default();
        all.min(Bytes(path.bytes_in(longest).0.saturating_mul(4)) + ACCESS_SLACK)
    }
}

/// The largest packet.
const MAX_PACKET: Bytes = Bytes(65_535);

/// What the queues of the hosts' own links may hold beside.
const ACCESS_SLACK: Bytes = Bytes::mib(64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_all_hosts_leave_in_the_order_of_time() {
        let hosts = ["count=2 delay=3ms", "delay=1ms rate=1mbit", "count=1"];
        let hosts = hosts.map(|text| text.parse::<HostGroup>().unwrap());
        let mut access = Access::new(&hosts, Duration::from_millis(10), 1).unwrap();
        assert!(!access.is_empty() && access.of(3).is_none() && access.of(4).is_none());
        for (host, name) in [(1, "c"), (0, "b"), (2, "a"), (2, "d")] {
            let link = access.of(host).expect("it has a link");
            link.send(Instant::ZERO, Bytes(125), name).expect("there is room");
        }
        let at = |micros| Instant::ZERO + Duration::from_micros(micros);
        assert_eq!(access.next_exit(), Some(at(2000)));
        assert!(access.poll(at(1999)).is_none());
        let mut left = Vec::new();
        while let Some(exit) = access.poll(at(10_000)) {
            left.push((exit.item, exit.due.as_nanos()));
        }
        // 125 bytes take 1 ms at 1 Mbit/s, 100 ns at 10 Gbit/s.
        let expected = [("a", 2_000_000), ("d", 3_000_000), ("b", 3_000_100), ("c", 3_000_100)];
        assert_eq!(left, expected);
        assert_eq!((access.next_exit(), access.dropped()), (None, 0));
    }
}

//! Controlled delay (RFC 8289): the pseudocode of its section 5, a packet a call.

use core::time::Duration;

use units::{Bytes, Instant};

use super::Verdict;
use super::config::CodelConfig;

/// A restart within this many intervals of the last drop takes up the old rate of drops
/// (RFC 8289, section 5.4).
const REMEMBERED: u64 = 16;

/// `CoDel`'s state.
pub(crate) struct Codel {
    target: Duration,
    interval: Duration,
    ecn: bool,
    /// When a wait that stays above the target becomes too long; `None` while it is below.
    first_above: Option<Instant>,
    drop_next: Instant,
    count: u64,
    last_count: u64,
    dropping: bool,
    /// What the pseudocode does with the packet behind one that it dropped.
    after: After,
    max_packet: Bytes,
}

/// The place in the pseudocode where the head of the queue is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// On entry.
    Packet,
    /// Behind the drop that starts the dropping state: passes in any case.
    FirstDrop,
    /// In the loop of drops.
    Drop,
}

impl Codel {
    pub(crate) fn new(config: &CodelConfig) -> Self {
        Self {
            target: config.target,
            interval: config.interval,
            ecn: config.ecn,
            first_above: None,
            drop_next: Instant::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
            after: After::Packet,
            max_packet: Bytes::ZERO,
        }
    }

    /// Decides about the packet of `size` just taken from the head, which arrived at `arrived`
    /// and leaves `backlog` behind. After a drop the next packet must follow at the same `now`.
    pub(crate) fn departure(
        &mut self,
        now: Instant,
        arrived: Instant,
        size: Bytes,
        backlog: Bytes,
        ecn_capable: bool,
    ) -> Verdict {
        self.max_packet = self.max_packet.max(size);
        let too_long = self.too_long(now, arrived, backlog);
        match core::mem::replace(&mut self.after, After::Packet) {
            After::FirstDrop => return Verdict::Pass,
            After::Drop if too_long => self.drop_next = self.control_law(self.drop_next),
            After::Drop | After::Packet => {}
        }
        if self.dropping {
            self.dropping = too_long;
            if !too_long || now < self.drop_next {
                return Verdict::Pass;
            }
            self.count += 1;
            let verdict = self.strike(ecn_capable, After::Drop);
            if verdict == Verdict::Mark {
                self.drop_next = self.control_law(self.drop_next);
            }
            return verdict;
        }
        if !too_long {
            return Verdict::Pass;
        }
        self.start_dropping(now);
        self.strike(ecn_capable, After::FirstDrop)
    }

    /// The RFC's `ok_to_drop`: the wait has been above the target for an interval.
    fn too_long(&mut self, now: Instant, arrived: Instant, backlog: Bytes) -> bool {
        if now.since(arrived) < self.target || backlog <= self.max_packet {
            self.first_above = None;
            return false;
        }
        let first_above = *self.first_above.get_or_insert(now + self.interval);
        now >= first_above
    }

    fn start_dropping(&mut self, now: Instant) {
        self.dropping = true;
        let fresh = self.count.saturating_sub(self.last_count);
        let recent = now.since(self.drop_next).as_nanos()
            < u128::from(REMEMBERED) * self.interval.as_nanos();
        self.count = if fresh > 1 && recent { fresh } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.control_law(now);
    }

    fn strike(&mut self, ecn_capable: bool, after: After) -> Verdict {
        if self.ecn && ecn_capable {
            return Verdict::Mark;
        }
        self.after = after;
        Verdict::Drop
    }

    fn control_law(&self, from: Instant) -> Instant {
        from + self.interval.div_f64((self.count as f64).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A standing queue whose packets have all waited 50 ms, served one a millisecond.
    fn strikes(codel: &mut Codel, from: Instant, millis: u32, capable: bool) -> Vec<f64> {
        let mut times = Vec::new();
        for i in 0..millis {
            let now = from + MS * i;
            loop {
                let arrived = now - 50 * MS;
                let verdict = codel.departure(now, arrived, Bytes(1500), Bytes(150_000), capable);
                if verdict != Verdict::Pass {
                    times.push(now.since(from).as_secs_f64() * 1e3);
                }
                if verdict != Verdict::Drop {
                    break;
                }
            }
        }
        times
    }

    /// The first drop an interval after the wait exceeds the target, the next ones at
    /// 100 ms / sqrt(1), / sqrt(2), ... behind each other, to the millisecond of the service.
    #[test]
    fn drops_follow_the_control_law() {
        for capable in [false, true] {
            let config = CodelConfig { ecn: capable, ..CodelConfig::default() };
            let mut codel = Codel::new(&config);
            let start = Instant::from_nanos(1_000_000_000);
            let times = strikes(&mut codel, start, 3000, capable);
            let mut expected = 100.0;
            for (i, &time) in times.iter().enumerate() {
                assert!((0.0..=1.0 + 1e-6).contains(&(time - expected)), "{i}: {time} {expected}");
                expected += 100.0 / ((i + 1) as f64).sqrt();
            }
            // Sum over 1/sqrt(i) is about 2 sqrt(n) - 1.46: 29 intervals make n = 232.
            assert!((230..=235).contains(&times.len()), "{}", times.len());
        }
    }

    #[test]
    fn a_short_excursion_costs_nothing() {
        let mut codel = Codel::new(&CodelConfig::default());
        let mut now = Instant::from_nanos(1_000_000_000);
        for _ in 0..50 {
            assert!(strikes(&mut codel, now, 99, false).is_empty());
            now += 99 * MS;
            let verdict = codel.departure(now, now - 4 * MS, Bytes(1500), Bytes(9000), false);
            assert!(verdict == Verdict::Pass);
            now += MS;
        }
    }

    #[test]
    fn the_last_packet_is_never_dropped() {
        let mut codel = Codel::new(&CodelConfig::default());
        for i in 0..10_000u32 {
            let now = Instant::from_nanos(1_000_000_000) + MS * i;
            let verdict = codel.departure(now, now - 900 * MS, Bytes(1500), Bytes(1500), false);
            assert!(verdict == Verdict::Pass);
        }
    }

    #[test]
    fn a_soon_restart_takes_up_the_old_rate() {
        let mut codel = Codel::new(&CodelConfig::default());
        let start = Instant::from_nanos(1_000_000_000);
        let first = strikes(&mut codel, start, 2000, false).len();
        let pause = start + 2000 * MS;
        assert!(codel.departure(pause, pause, Bytes(1500), Bytes(9000), false) == Verdict::Pass);
        let again = strikes(&mut codel, pause + MS, 2000, false).len();
        assert!(again > first, "{again} after {first}");
    }
}

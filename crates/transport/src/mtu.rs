//! Path MTU discovery by probing (RFC 8899's idea): a padded ping that arrives proves its size.

use core::time::Duration;

use units::Instant;

/// The size every path is taken to carry: IPv6's minimum less headers, as QUIC does.
pub(crate) const BASE_SIZE: u16 = 1200;
/// Sizes tried, largest first: jumbo frames, then Ethernet under IPv4 and IPv6, then common
/// tunnels.
const CANDIDATES: [u16; 5] = [8952, 1472, 1452, 1412, 1372];
/// Times each size is tried in a row: random loss must not cost the path its size.
const TRIES: u8 = 3;
/// Afterwards each larger one is tried once in so long: what has lost them all may have ended, and a path
/// may become wider (RFC 8899, PMTU_RAISE_TIMER).
const RAISE: Duration = Duration::from_secs(600);
/// So many large packets lost in a row are a black hole: at 50% loss one chance in a million.
const BLACK_HOLE: u32 = 20;
/// Between two of the first rounds of probes.
const ROUND: Duration = Duration::from_millis(500);

/// The search for the largest datagram that the path carries.
#[derive(Debug)]
pub(crate) struct MtuSearch {
    size: u16,
    tries: u8,
    /// When the latest large packet was sent that arrived.
    arrived: Instant,
    /// Large packets lost that were sent after it.
    lost_in_a_row: u32,
    /// The next candidate of this round.
    candidate: usize,
    next_round: Instant,
}

impl MtuSearch {
    pub(crate) fn new() -> Self {
        Self {
            size: BASE_SIZE,
            tries: 0,
            arrived: Instant::ZERO,
            lost_in_a_row: 0,
            candidate: 0,
            next_round: Instant::ZERO,
        }
    }

    /// The largest size known to arrive.
    pub(crate) fn size(&self) -> usize {
        usize::from(self.size)
    }

    /// When the next probe is due; `None` when nothing larger is left to try.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.size < CANDIDATES[0]).then_some(self.next_round)
    }

    /// The size of the probe to send now, if one is due.
    pub(crate) fn take(&mut self, now: Instant, rtt: Duration) -> Option<usize> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        let size = CANDIDATES[self.candidate];
        self.candidate += 1;
        if CANDIDATES.get(self.candidate).is_none_or(|&next| next <= self.size) {
            self.candidate = 0;
            self.tries = (self.tries + 1).min(TRIES);
            self.next_round = now + if self.tries < TRIES { ROUND.max(rtt * 2) } else { RAISE };
        }
        (size > self.size).then_some(usize::from(size))
    }

    /// A report settled data packets, given by size and time of sending, as arrived and as lost.
    /// When large ones are lost that were sent after all that arrived, and many of them, the path
    /// has become narrower: back to the size that every path carries, and search anew.
    pub(crate) fn on_settled(
        &mut self,
        acked: impl Iterator<Item = (u32, Instant)>,
        lost: impl Iterator<Item = (u32, Instant)>,
    ) {
        let large = |&(size, _): &(u32, Instant)| size > u32::from(BASE_SIZE);
        if let Some(latest) = acked.filter(large).map(|(_, at)| at).max() {
            self.lost_in_a_row = 0;
            self.arrived = self.arrived.max(latest);
        }
        self.lost_in_a_row +=
            lost.filter(large).filter(|&(_, at)| at > self.arrived).count() as u32;
        if self.lost_in_a_row >= BLACK_HOLE {
            *self = Self::new();
        }
    }

    /// A probe of `size` bytes arrived.
    pub(crate) fn on_acked(&mut self, size: u32) {
        self.size = self.size.max(u16::try_from(size).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does until `end` what is due over a path that carries `widest`, and loses so many probes first;
    /// gives how many there were.
    fn search(search: &mut MtuSearch, widest: usize, lost: u32, end: Duration) -> u32 {
        let mut probes = 0;
        while let Some(due) = search.due().filter(|&due| due < Instant::ZERO + end) {
            if let Some(size) = search.take(due, Duration::from_millis(10)) {
                probes += 1;
                if probes > lost && size <= widest {
                    search.on_acked(size as u32);
                }
            }
        }
        probes
    }

    #[test]
    fn finds_the_size_in_spite_of_loss() {
        let mut found = MtuSearch::new();
        // The first round is lost entirely.
        assert!(search(&mut found, 1472, 5, RAISE) <= 15);
        assert_eq!(found.size(), 1472);
    }

    #[test]
    fn looks_again_now_and_then_whether_the_path_has_become_wider() {
        let mut found = MtuSearch::new();
        assert_eq!(search(&mut found, 1300, 0, RAISE), 15);
        assert_eq!((search(&mut found, 1300, 0, RAISE * 4), found.size()), (15, 1200));
        search(&mut found, 1472, 0, RAISE * 5);
        assert_eq!(found.size(), 1472);
        search(&mut found, 8952, 0, RAISE * 6);
        assert_eq!((found.size(), found.due()), (8952, None));
    }
}

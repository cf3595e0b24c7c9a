//! Path MTU discovery by probing (RFC 8899's idea): a padded ping that arrives proves its size.

use core::time::Duration;

use units::Instant;

/// The size every path is taken to carry: IPv6's minimum less headers, as QUIC does.
pub(crate) const BASE_SIZE: u16 = 1200;
/// Sizes tried, largest first: jumbo frames, then Ethernet under IPv4 and IPv6, then common
/// tunnels.
const CANDIDATES: [u16; 5] = [8952, 1472, 1452, 1412, 1372];
/// Times each size is tried: random loss must not cost the path its size.
const TRIES: u8 = 3;
/// So many large packets lost in a row are a black hole: at 50% loss one chance in a million.
const BLACK_HOLE: u32 = 20;
/// Between two rounds of probes.
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

    /// When the next probe is due; `None` when the search is over.
    pub(crate) fn due(&self) -> Option<Instant> {
        let worth_it = self.size < CANDIDATES[0] && self.tries < TRIES;
        worth_it.then_some(self.next_round)
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
            self.tries += 1;
            self.next_round = now + ROUND.max(rtt * 2);
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

    #[test]
    fn finds_the_size_in_spite_of_loss_and_stops() {
        let mut search = MtuSearch::new();
        let (mut now, mut probes) = (Instant::ZERO, 0);
        while let Some(due) = search.due() {
            now = now.max(due);
            if let Some(size) = search.take(now, Duration::from_millis(10)) {
                probes += 1;
                // The first round is lost entirely.
                if probes > 5 && size <= 1472 {
                    search.on_acked(size as u32);
                }
            }
        }
        assert_eq!(search.size(), 1472);
        assert!(probes <= 15);
    }
}

//! How much the path in use loses of late.

/// A path loses, as far as little data is concerned, of which more than one packet in so many is lost.
const LOSSY: u64 = 1000;
/// It loses much of which more than one packet in so many is lost.
const LOSES_MUCH: u64 = 16;
/// Packets that are remembered, and as many before them: what a start has overrun is forgotten.
const REMEMBERED: u64 = 4 * LOSSY;

/// Packets settled, and how many of them were lost: of the latest, and of [`REMEMBERED`] before.
#[derive(Debug, Default)]
pub(super) struct Losses([(u64, u64); 2]);

impl Losses {
    pub(super) fn on_settled(&mut self, arrived: u64, lost: u64) {
        let [(settled, of_these), _] = &mut self.0;
        *settled += arrived + lost;
        *of_these += lost;
        if *settled >= REMEMBERED {
            self.0 = [(0, 0), self.0[0]];
        }
    }

    /// Whether the path loses.
    pub(super) fn are_many(&self) -> bool {
        self.are_more_than_one_in(LOSSY)
    }

    /// Whether the path loses so much that three copies of what is lost twice cost more than the wait for another repair.
    pub(super) fn are_heavy(&self) -> bool {
        self.are_more_than_one_in(LOSES_MUCH)
    }

    fn are_more_than_one_in(&self, packets: u64) -> bool {
        let [latest, before] = self.0;
        (latest.1 + before.1) * packets > latest.0 + before.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_ago_does_not_count() {
        let mut losses = Losses::default();
        assert!(!losses.are_many());
        losses.on_settled(900, 1);
        assert!(losses.are_many());
        losses.on_settled(200, 0);
        assert!(!losses.are_many());
        losses.on_settled(100_000, 50_000);
        losses.on_settled(REMEMBERED - 1, 0);
        assert!(losses.are_many());
        losses.on_settled(1, 0);
        assert!(!losses.are_many());
    }

    #[test]
    fn one_in_sixteen_is_heavy() {
        let mut losses = Losses::default();
        losses.on_settled(1500, 100);
        assert!(!losses.are_heavy());
        losses.on_settled(0, 1);
        assert!(losses.are_heavy());
    }
}

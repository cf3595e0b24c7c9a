//! A share that fades under drains that are ours alone.
//!
//! BBR asks for a quarter more in one of eight rounds and for as much less in the next. The queue is long for a round and
//! short again before a drain of ours would show who fills it; but each drain leaves some of our share to him who does not
//! drain. Flows of our own kind drain together, and who has little of the link among them loses no more of it, look after
//! look, than they have to gain.

/// Rounds over which shares are averaged: two of BBR's cycles.
const LOOK: u32 = 16;
/// A share that falls below this part of what it was from one look to the next fades.
const FADES: f64 = 0.9;
/// Looks in a row in which it faded.
const LOOKS: u32 = 3;
/// Who has more than this part of the link may have to give others of our kind theirs.
const LITTLE: f64 = 0.25;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fading {
    /// Of this look: rounds, the sum of our shares in bits a second, and whether a long queue began to be drained.
    rounds: u32,
    shares: f64,
    drained: bool,
    /// The mean share of the look before.
    before: Option<f64>,
    /// Looks in a row in which our share faded.
    looks: u32,
}

impl Fading {
    /// A drain of a long queue began.
    pub(super) const fn on_drain(&mut self) {
        self.drained = true;
    }

    /// A round ended with such a share of such a link; true when what we drain is somebody else's.
    pub(super) fn on_round(&mut self, share: f64, link: f64) -> bool {
        self.rounds += 1;
        self.shares += share;
        if self.rounds < LOOK {
            return false;
        }
        let mean = self.shares / f64::from(self.rounds);
        let fades = self.before.is_some_and(|before| mean < before * FADES) && self.drained;
        let looks = if fades { self.looks + 1 } else { 0 };
        *self = Self { before: Some(mean), looks, ..Self::default() };
        looks >= LOOKS && mean < link * LITTLE
    }

    /// What is seen now has another reason.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many looks the queue is somebody else's, with such a share of the link in each, of which these begin
    /// a drain.
    fn told(share: impl Fn(i32) -> f64, drains: impl Fn(i32) -> bool) -> Option<i32> {
        let mut fading = Fading::default();
        (1..20).find(|&look| {
            if drains(look) {
                fading.on_drain();
            }
            (0..LOOK).any(|_| fading.on_round(share(look) * 100e6, 100e6))
        })
    }

    #[test]
    fn who_fades_while_he_drains_meets_somebody() {
        let fades = |look| 0.5 * 0.8_f64.powi(look);
        assert_eq!(told(fades, |_| true), Some(4), "the first look has none before it");
        assert_eq!(told(fades, |look| look != 3), Some(6), "nobody took what no drain gave");
        assert_eq!(told(|look| 0.5 * 0.95_f64.powi(look), |_| true), None, "slowly");
        assert_eq!(told(|look| 0.9 * 0.8_f64.powi(look), |_| true), Some(6), "he had much to give");
    }
}

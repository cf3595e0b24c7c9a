//! Rare events, each kind drawn from a stream of its own.
//!
//! With one generator for everything, a change of the jitter would move every loss. Here each
//! process has its own, so that runs that differ in one parameter differ in that alone.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The processes of one direction that draw random numbers.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    Loss,
    Cells,
    Bits,
    Corrupt,
    Place,
    Duplicate,
    Reorder,
    Jitter,
    Queue,
}

/// The generator of one process.
pub(crate) fn stream(seed: u64, stream: Stream) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed ^ (stream as u64).wrapping_mul(0xd134_2543_de82_ef95))
}

/// Independent events of a given probability among units (packets, cells or bits), drawn as the
/// geometric gap to the next one: a random number an event and a subtraction a packet.
pub(crate) struct Events {
    /// ln(1 - p): zero when nothing happens, minus infinity when everything does.
    ln_survival: f64,
    /// Units that pass before the next event.
    spare: u64,
    rng: Pcg64Mcg,
}

impl Events {
    pub(crate) fn new(probability: f64, rng: Pcg64Mcg) -> Self {
        let mut events = Self { ln_survival: (-probability).ln_1p(), spare: u64::MAX, rng };
        events.draw();
        events
    }

    fn draw(&mut self) {
        if self.ln_survival == 0.0 {
            self.spare = u64::MAX;
            return;
        }
        // In (0, 1], so that the logarithm is finite. A gap beyond 64 bits saturates.
        let uniform = 1.0 - self.rng.random::<f64>();
        self.spare = (uniform.ln() / self.ln_survival) as u64;
    }

    /// Lets `units` pass; returns the place among them of the first that the event meets.
    pub(crate) fn first_in(&mut self, units: u64) -> Option<u64> {
        if self.spare == u64::MAX {
            return None;
        }
        if self.spare >= units {
            self.spare -= units;
            return None;
        }
        let place = self.spare;
        // The process has no memory, so it may begin anew behind these units.
        self.draw();
        Some(place)
    }

    /// Whether the next unit meets the event.
    pub(crate) fn next(&mut self) -> bool {
        self.first_in(1).is_some()
    }
}

/// What tests say about counts.
#[cfg(test)]
pub(crate) mod statistics {
    /// The 99.9% point of the normal distribution, two-sided.
    pub(crate) const Z: f64 = 3.2905;

    /// Panics unless `count` of `n` lies inside the 99.9% interval of a binomial count of
    /// probability `p`.
    pub(crate) fn assert_binomial(count: u64, n: u64, p: f64) {
        let (count, n) = (count as f64, n as f64);
        let half = Z * (n * p * (1.0 - p)).sqrt();
        assert!((count - n * p).abs() <= half.max(3.0), "{count} of {n}, expected {}", n * p);
    }

    /// Panics unless the mean of `n` draws with standard deviation `sigma` lies inside the 99.9%
    /// interval around `expected`.
    pub(crate) fn assert_mean(mean: f64, expected: f64, sigma: f64, n: u64) {
        let half = Z * sigma / (n as f64).sqrt();
        assert!((mean - expected).abs() <= half, "mean {mean}, expected {expected} +- {half}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statistics::assert_binomial;

    #[test]
    fn places_are_uniform_and_hits_follow_the_closed_form() {
        let (n, units, p) = (1_000_000, 376, 1e-3);
        let mut events = Events::new(p, stream(5, Stream::Bits));
        let (mut hits, mut early) = (0, 0);
        for _ in 0..n {
            if let Some(place) = events.first_in(units) {
                assert!(place < units);
                hits += 1;
                early += u64::from(place < units / 2);
            }
        }
        let hit = |units: f64| 1.0 - (1.0 - p).powf(units);
        assert_binomial(hits, n, hit(376.0));
        assert_binomial(early, n, hit(188.0));
    }

    #[test]
    fn certain_and_impossible() {
        let mut always = Events::new(1.0, stream(1, Stream::Loss));
        assert!((0..1000).all(|_| always.next()));
        let mut never = Events::new(0.0, stream(1, Stream::Loss));
        assert!((0..1000).all(|_| !never.next()));
    }

    #[test]
    fn the_streams_of_a_seed_differ() {
        let kinds = [
            Stream::Loss,
            Stream::Cells,
            Stream::Bits,
            Stream::Corrupt,
            Stream::Place,
            Stream::Duplicate,
            Stream::Reorder,
            Stream::Jitter,
            Stream::Queue,
        ];
        let mut first: Vec<u64> = kinds.map(|kind| stream(1, kind).random()).into();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), kinds.len());
    }
}

//! Loss on the line.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Which packets the line loses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum LossConfig {
    /// None.
    #[default]
    None,
    /// Each with this probability (0 to 1), independent of all others.
    Bernoulli(f64),
}

/// Chooses the lost packets, one decision a packet.
pub(crate) enum Loss {
    None,
    Bernoulli(Bernoulli),
}

impl Loss {
    pub(crate) fn new(config: LossConfig, seed: u64) -> Self {
        match config {
            LossConfig::Bernoulli(p) if p > 0.0 => Self::Bernoulli(Bernoulli::new(p, seed)),
            LossConfig::Bernoulli(_) | LossConfig::None => Self::None,
        }
    }

    /// Whether the packet now on the line is lost.
    pub(crate) fn strikes(&mut self) -> bool {
        match self {
            Self::None => false,
            Self::Bernoulli(bernoulli) => bernoulli.strikes(),
        }
    }
}

/// Independent losses, drawn as the geometric gap to the next one: a random number a loss and a
/// decrement a packet.
pub(crate) struct Bernoulli {
    /// ln(1 - p); negative, or minus infinity at p = 1.
    ln_survival: f64,
    /// Packets that pass before the next is lost.
    spare: u64,
    rng: Pcg64Mcg,
}

impl Bernoulli {
    fn new(probability: f64, seed: u64) -> Self {
        let mut bernoulli = Self {
            ln_survival: (-probability).ln_1p(),
            spare: 0,
            rng: Pcg64Mcg::seed_from_u64(seed),
        };
        bernoulli.draw();
        bernoulli
    }

    fn draw(&mut self) {
        // In (0, 1], so that the logarithm is finite.
        let uniform = 1.0 - self.rng.random::<f64>();
        self.spare = (uniform.ln() / self.ln_survival) as u64;
    }

    fn strikes(&mut self) -> bool {
        if self.spare > 0 {
            self.spare -= 1;
            return false;
        }
        self.draw();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half the width of the 99.9% interval of a binomial count.
    fn interval(n: f64, p: f64) -> f64 {
        3.2905 * (n * p * (1.0 - p)).sqrt()
    }

    #[test]
    fn ratio_and_pairs_are_binomial() {
        let n = 1_000_000;
        for (seed, p) in [(1, 0.001), (2, 0.01), (3, 0.05), (4, 0.5)] {
            let mut loss = Loss::new(LossConfig::Bernoulli(p), seed);
            let fates: Vec<bool> = (0..n).map(|_| loss.strikes()).collect();
            let lost = fates.iter().filter(|&&f| f).count() as f64;
            let n = f64::from(n);
            assert!((lost - n * p).abs() <= interval(n, p), "{lost} at {p}");
            // Independence: two in a row (disjoint pairs, so that pairs are independent) are p^2.
            let pairs = fates.chunks_exact(2).filter(|c| c[0] && c[1]).count() as f64;
            let (n, p) = (n / 2.0, p * p);
            assert!((pairs - n * p).abs() <= interval(n, p).max(3.0), "{pairs}");
        }
    }

    #[test]
    fn certain_and_impossible() {
        let mut always = Loss::new(LossConfig::Bernoulli(1.0), 1);
        assert!((0..1000).all(|_| always.strikes()));
        let mut never = Loss::new(LossConfig::Bernoulli(0.0), 1);
        assert!((0..1000).all(|_| !never.strikes()));
    }
}

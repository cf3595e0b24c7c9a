//! The numbers from which others are drawn.

use rand_pcg::rand_core::Rng;

/// In (0, 1], so that the logarithm is finite.
pub(crate) fn uniform(random: &mut impl Rng) -> f64 {
    1.0 - (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

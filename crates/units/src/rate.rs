//! Rates in bits per second.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::parse::{ParseUnitError, quantity};
use crate::{Bytes, Instant};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The bits of an amount times the nanoseconds of a second: over a rate, what it takes in nanoseconds.
fn bit_nanos(amount: Bytes) -> u128 {
    u128::from(amount.0) * 8 * u128::from(NANOS_PER_SECOND)
}

/// A quotient. Mostly both numbers fit 64 bits, whose division takes a tenth of the time.
fn divide(dividend: u128, divisor: u128) -> u128 {
    match (u64::try_from(dividend), u64::try_from(divisor)) {
        (Ok(dividend), Ok(divisor)) => u128::from(dividend / divisor),
        _ => dividend / divisor,
    }
}

/// Bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Nothing moves.
    pub const ZERO: Self = Self(0);

    /// A rate of `bits` per second.
    pub const fn from_bits_per_sec(bits: u64) -> Self {
        Self(bits)
    }

    /// Bits per second.
    pub const fn as_bits_per_sec(self) -> u64 {
        self.0
    }

    /// The rate at which `amount` passes in `time`; `None` when no time passed.
    pub fn of(amount: Bytes, time: Duration) -> Option<Self> {
        let nanos = time.as_nanos();
        (nanos > 0).then(|| {
            let bits = divide(bit_nanos(amount), nanos);
            Self(u64::try_from(bits).unwrap_or(u64::MAX))
        })
    }

    /// How long `amount` takes at this rate, rounded up to a nanosecond;
    /// [`Duration::MAX`] at rate zero.
    pub fn time_for(self, amount: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let rate = u128::from(self.0);
        let nanos = divide(bit_nanos(amount) + (rate - 1), rate);
        u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
    }

    /// What passes in `time` at this rate, rounded down.
    pub fn bytes_in(self, time: Duration) -> Bytes {
        let bit_nanos = u128::from(self.0).saturating_mul(time.as_nanos());
        let bytes = divide(bit_nanos, u128::from(8 * NANOS_PER_SECOND));
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// This rate times `factor`, which must not be negative.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        debug_assert!(factor >= 0.0);
        Self((self.0 as f64 * factor) as u64)
    }

    /// When something of size `amount` that starts at `start` has passed.
    pub fn end_of(self, start: Instant, amount: Bytes) -> Instant {
        start + self.time_for(amount)
    }
}

/// Reads `10mbit`, `1.5gbit`, `64kbit`, `9600bit`; decimal prefixes.
impl FromStr for Rate {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let suffixes = [
            ("bit", 1.0),
            ("kbit", 1e3),
            ("mbit", 1e6),
            ("gbit", 1e9),
            ("tbit", 1e12),
            ("bit/s", 1.0),
            ("kbit/s", 1e3),
            ("mbit/s", 1e6),
            ("gbit/s", 1e9),
            ("tbit/s", 1e12),
        ];
        quantity(text, &suffixes, "10mbit or 1gbit").map(Self)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0 as f64;
        let (scaled, unit) = match self.0 {
            0..1_000 => (value, "bit/s"),
            1_000..1_000_000 => (value / 1e3, "kbit/s"),
            1_000_000..1_000_000_000 => (value / 1e6, "Mbit/s"),
            _ => (value / 1e9, "Gbit/s"),
        };
        let digits =
            if self.0 < 1_000 { 0 } else { 3 - scaled.log10().floor().clamp(0.0, 2.0) as usize };
        f.pad(&format!("{scaled:.digits$} {unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_shows() {
        assert_eq!("10mbit".parse(), Ok(Rate(10_000_000)));
        assert_eq!("1.5Gbit".parse(), Ok(Rate(1_500_000_000)));
        assert_eq!("7bit".parse(), Ok(Rate(7)));
        assert!("10".parse::<Rate>().is_err(), "a bare number has no unit");
        assert!("mbit".parse::<Rate>().is_err());
        assert!("10MB".parse::<Rate>().unwrap_err().to_string().contains("10mbit"));
        assert_eq!(Rate(965_432_100).to_string(), "965.4 Mbit/s");
        assert_eq!(Rate(1_000_000_000).to_string(), "1.000 Gbit/s");
        assert_eq!(Rate(999).to_string(), "999 bit/s");
    }

    #[test]
    fn time_and_amount_are_inverse() {
        let rate = Rate(1_000_000_000);
        assert_eq!(rate.time_for(Bytes(1500)), Duration::from_micros(12));
        assert_eq!(rate.bytes_in(Duration::from_micros(12)), Bytes(1500));
        assert_eq!(Rate::of(Bytes(1500), Duration::from_micros(12)), Some(rate));
        assert_eq!(Rate::of(Bytes(1), Duration::ZERO), None);
        assert_eq!(Rate::ZERO.time_for(Bytes(1)), Duration::MAX);
    }

    proptest::proptest! {
        #[test]
        fn time_for_is_long_enough_and_no_longer(bits in 1u64..400_000_000_000, bytes in 0u64..1 << 40) {
            let (rate, amount) = (Rate(bits), Bytes(bytes));
            let time = rate.time_for(amount);
            proptest::prop_assert!(rate.bytes_in(time) >= amount);
            let less = time.checked_sub(Duration::from_nanos(1));
            proptest::prop_assert!(less.is_none_or(|less| rate.bytes_in(less) < amount));
        }
    }
}

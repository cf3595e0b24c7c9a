//! How people name an [`Algorithm`].

use core::fmt;
use core::str::FromStr;

use units::Rate;

use super::Algorithm;

/// The names, and what they mean; `fixed:RATE` stands beside them.
const NAMES: &[(&str, Algorithm)] = &[
    ("longhaul", Algorithm::Longhaul),
    ("background", Algorithm::Background),
    ("cubic", Algorithm::Cubic),
    ("newreno", Algorithm::NewReno),
    ("udt", Algorithm::Udt),
    ("udt-g", Algorithm::UdtG),
];

/// No congestion control has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such congestion control; write {list} or fixed:RATE, as in fixed:100mbit", list = list())]
pub struct UnknownAlgorithm;

fn list() -> String {
    let names: Vec<&str> = NAMES.iter().map(|&(name, _)| name).collect();
    names.join(", ")
}

/// Reads a name, or `fixed:` and a rate.
impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rate = text.strip_prefix("fixed:").and_then(|rate| rate.parse::<Rate>().ok());
        let named = || NAMES.iter().find(|&&(name, _)| name == text).map(|&(_, named)| named);
        rate.map(Self::Fixed).or_else(named).ok_or(UnknownAlgorithm)
    }
}

/// So that it is read as the same again.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Fixed(rate) = self {
            return write!(f, "fixed:{}bit", rate.as_bits_per_sec());
        }
        let named = NAMES.iter().find(|(_, named)| named == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let fixed = Algorithm::Fixed(Rate::from_bits_per_sec(1_234_567));
        for algorithm in NAMES.iter().map(|&(_, named)| named).chain([fixed]) {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
    }

    #[test]
    fn names_are_read_and_an_unknown_one_is_answered_with_the_list() {
        assert_eq!("udt-g".parse(), Ok(Algorithm::UdtG));
        let rate = Rate::from_bits_per_sec(20_000_000);
        assert_eq!("fixed:20mbit".parse(), Ok(Algorithm::Fixed(rate)));
        for wrong in ["", "CUBIC", "fixed", "fixed:", "fixed:20"] {
            let message = wrong.parse::<Algorithm>().unwrap_err().to_string();
            assert!(
                message.contains("longhaul, background, cubic, newreno, udt, udt-g"),
                "{message}"
            );
        }
    }
}

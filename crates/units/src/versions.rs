//! What two releases that meet have in common.

use core::fmt;

/// Versions of a protocol, from the oldest to the newest that one side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions<N> {
    /// The oldest.
    pub oldest: N,
    /// The newest.
    pub newest: N,
}

impl<N: Ord + Copy> Versions<N> {
    /// The version that two sides use: the newest that both speak.
    pub fn common(self, other: Self) -> Option<N> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

impl<N: fmt::Display + PartialEq> fmt::Display for Versions<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "version {}", self.newest)
        } else {
            write!(f, "versions {} to {}", self.oldest, self.newest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_both_is_common() {
        let versions = |oldest: u8, newest| Versions { oldest, newest };
        let (few, many) = (versions(4, 5), versions(4, 9));
        assert_eq!((few.common(many), many.common(few)), (Some(5), Some(5)));
        assert_eq!(few.common(versions(6, 9)), None);
        assert_eq!(many.common(versions(9, 4)), None, "no range at all");
        assert_eq!(
            (few.to_string(), versions(3, 3).to_string()),
            ("versions 4 to 5".into(), "version 3".into())
        );
    }
}

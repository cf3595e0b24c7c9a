//! What is left out of a walk, by patterns as in a `.gitignore`.

use std::path::Path;
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::relpath::RelPath;

/// Bytes of patterns that fit into a request beside a path.
const PATTERNS_MAX: usize = 8 << 10;

/// Patterns, of which the last that fits decides; one with `!` in front takes what fits it in again.
/// They count from the source: one with a slash in it stands for a path there.
#[derive(Clone, Debug)]
pub(crate) struct Filter(Arc<Gitignore>);

/// Each brace within another takes a part of the stack of whoever reads the pattern, which may come from the network.
const MOST_BRACES: usize = 64;

impl Filter {
    /// `None` for no patterns.
    ///
    /// # Errors
    /// What is wrong with a pattern.
    pub fn new(patterns: &[String]) -> Result<Option<Self>, String> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let mut builder = GitignoreBuilder::new("");
        let wrong = |error: ignore::Error| format!("a pattern cannot be understood: {error}");
        for pattern in patterns {
            if pattern.bytes().filter(|byte| *byte == b'{').count() > MOST_BRACES {
                return Err(format!("a pattern has at most {MOST_BRACES} braces that open"));
            }
            builder.add_line(None, pattern).map_err(wrong)?;
        }
        Ok(Some(Self(builder.build().map_err(wrong)?.into())))
    }

    /// Whether what is at this path below the source is left out, its directories not being.
    pub fn excludes(&self, below: &RelPath, is_directory: bool) -> bool {
        let path: &Path = below.as_path();
        self.0.matched(path, is_directory).is_ignore()
    }
}

/// Whether so many patterns may stand in a request.
pub(crate) fn check_length(patterns: &[String]) -> Result<(), String> {
    let bytes: usize = patterns.iter().map(|pattern| pattern.len() + 2).sum();
    let fits = bytes <= PATTERNS_MAX;
    fits.then_some(()).ok_or_else(|| "too many patterns to be told to the far side".into())
}

/// Whether a pattern of [`crate::wire::Terms`] can be understood.
///
/// # Errors
/// What is wrong with it.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    Filter::new(&[pattern.to_owned()]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_do_not_nest_without_end() {
        let nested = |depth: usize| check_pattern(&("{".repeat(depth) + "a" + &"}".repeat(depth)));
        assert!(nested(64).is_ok());
        assert!(nested(8000).unwrap_err().contains("64 braces"));
    }

    #[test]
    fn patterns_are_those_of_gitignore() {
        let filter = ["*.o", "/build", "cache/", "!keep.o", "docs/*.pdf"].map(str::to_owned);
        let filter = Filter::new(&filter).unwrap().unwrap();
        let out = |path: &[u8], is_directory| {
            filter.excludes(&RelPath::new(path.to_vec()).unwrap(), is_directory)
        };
        assert!(out(b"a.o", false) && out(b"deep/a.o", false) && !out(b"deep/keep.o", false));
        assert!(out(b"build", true) && !out(b"deep/build", true));
        assert!(out(b"deep/cache", true) && !out(b"deep/cache", false));
        assert!(out(b"docs/x.pdf", false) && !out(b"docs/deep/x.pdf", false));
        assert!(out(b"\xff.o", false) && !out(b"\xff", false));
        assert!(Filter::new(&[]).unwrap().is_none());
        assert!(Filter::new(&["[z-a]".to_owned()]).is_err());
    }
}

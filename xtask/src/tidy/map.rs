//! The paths that ARCHITECTURE.md names must exist.

use super::Violation;

/// Top folders of the repository: what begins with one is a path.
const TOP: &[&str] = &[".cargo", ".ci", ".github", "crates", "docs", "fuzz", "scenarios", "xtask"];

/// Files that a newcomer is sent to.
const EXTENSIONS: &[&str] = &[".rs", ".toml", ".md"];

/// Checks the page; without it the house has no map.
pub fn check_file(page: &str) -> Vec<Violation> {
    match std::fs::read_to_string(page) {
        Ok(text) => check(page, &text, |path| std::path::Path::new(path).exists()),
        Err(error) => vec![Violation::new(page, 1, format!("cannot be read ({error}): write it"))],
    }
}

fn check(page: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Between backticks: every second piece.
        let named = line.split('`').skip(1).step_by(2);
        for path in named.filter(|span| is_path(span) && !exists(span)) {
            let message = format!("`{path}` does not exist: name it in full from the root");
            found.push(Violation::new(page, number + 1, message));
        }
    }
    found
}

/// Whether the text between backticks names a place in the repository.
fn is_path(span: &str) -> bool {
    let Some((first, _)) = span.split_once('/') else {
        return false;
    };
    let file = EXTENSIONS.iter().any(|extension| span.ends_with(extension));
    let elsewhere = first.is_empty() || first.contains([':', '~', '$']) || span.contains(' ');
    TOP.contains(&first) || file && !elsewhere
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Vec<String> {
        let exists = |path: &str| ["crates/net", "crates/net/src/clock.rs"].contains(&path);
        check("MAP.md", text, exists).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn places_that_have_gone_are_found() {
        let text = "See `crates/net` and\n`crates/gone/src`, `src/clock.rs`.";
        assert_eq!(
            missing(text),
            [
                "MAP.md:2: `crates/gone/src` does not exist: name it in full from the root",
                "MAP.md:2: `src/clock.rs` does not exist: name it in full from the root",
            ]
        );
    }

    #[test]
    fn shorthand_for_many_places_is_no_place() {
        assert_eq!(missing("`crates/{net,path}` `crates/*`").len(), 2);
    }

    #[test]
    fn other_words_in_code_are_left_alone() {
        let text = "`handle`, `and/or`, `~/.config/x.toml`, `/etc/x.toml`, `lh://host/a.toml`";
        assert_eq!(missing(text), [] as [&str; 0]);
        assert_eq!(missing("```\ncrates/gone `crates/gone`\n```\n`crates/net`"), [] as [&str; 0]);
    }
}

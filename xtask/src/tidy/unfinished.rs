//! Work that was left for later: finish it, or file an issue.

use super::Violation;
use super::source::Source;

/// Cut in two, so that this file does not find itself.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

const MACROS: &[&str] = &["todo", "unimplemented"];

pub fn check(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        for mark in words.filter(|word| MARKS.contains(word)) {
            let message = format!("{mark}: finish it, or file an issue and take the mark out");
            found.push(Violation::new(&source.path, number + 1, message));
        }
    }
    for name in MACROS {
        for at in source.find(&[name, "!"]) {
            let message = format!("{name}!: write the code, or leave the whole function out");
            found.push(Violation::new(&source.path, source.tokens[at].line, message));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let source = Source::new(path, text.to_owned()).unwrap();
        check(&source).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn marks_are_found_in_comments_of_every_kind_of_file() {
        let (later, broken) = (MARKS[0], MARKS[1]);
        assert_eq!(lines("a.rs", &format!("fn f() {{}}\n// {later}: more\n")), [2]);
        assert_eq!(lines("a.toml", &format!("a = 1 # {broken}(me)\n")), [1]);
        assert!(lines("a.rs", &format!("// {later}LIST is a file\n")).is_empty());
    }

    #[test]
    fn unfinished_functions_are_found_and_mere_mentions_are_not() {
        assert_eq!(
            lines("a.rs", "fn f() {\n    todo!()\n}\nfn g() { unimplemented!() }\n"),
            [2, 4]
        );
        assert!(lines("a.rs", "// no todo!() here\nfn todo() {}\n").is_empty());
    }
}

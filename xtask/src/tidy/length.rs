//! How long a file may be.

use super::Violation;
use super::source::Source;

/// Lines of a file, its `#[cfg(test)]` modules not counted.
const MOST_LINES: usize = 500;

/// Lines of a file that holds nothing but tests or benchmarks.
const MOST_TEST_LINES: usize = 1000;

pub fn check(source: &Source) -> Option<Violation> {
    if !source.path.ends_with(".rs") {
        return None;
    }
    let lines = source.text.lines().count() - test_lines(source);
    let most = if is_test_file(&source.path) { MOST_TEST_LINES } else { MOST_LINES };
    let message = || format!("{lines} lines, at most {most}: one subject a file, split it");
    (lines > most).then(|| Violation::new(&source.path, most + 1, message()))
}

fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

/// The lines taken by modules that only tests compile.
fn test_lines(source: &Source) -> usize {
    let attribute = ["#", "[", "cfg", "(", "test", ")", "]"];
    source
        .find(&attribute)
        .filter_map(|start| {
            let mut at = start;
            while source.has(at, &["#", "["]) {
                at = source.group(at + 1).end;
            }
            if source.has(at, &["pub"]) {
                at += 1;
            }
            if source.has(at, &["("]) {
                at = source.group(at).end;
            }
            // `mod name {`; a `mod name;` keeps its tests in a file of their own.
            let inline = source.has(at, &["mod"]) && source.has(at + 2, &["{"]);
            let end = source.group(at + 2).end - 1;
            inline.then(|| source.tokens[end].line - source.tokens[start].line + 1)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(path: &str, code: usize, test: usize) -> Option<String> {
        let tests = format!(
            "#[cfg(test)]\n#[expect(x)]\npub(crate) mod t {{\n{}}}\n",
            "fn t() {}\n".repeat(test)
        );
        let text = "fn f() {}\n".repeat(code) + &tests;
        check(&Source::new(path, text).unwrap()).map(|violation| violation.to_string())
    }

    #[test]
    fn test_modules_do_not_count() {
        assert_eq!(measured("src/a.rs", 500, 600), None);
        assert_eq!(
            measured("src/a.rs", 501, 0).unwrap(),
            "src/a.rs:501: 501 lines, at most 500: one subject a file, split it"
        );
    }

    #[test]
    fn files_of_tests_have_more_room() {
        assert_eq!(measured("tests/a.rs", 1000, 0), None);
        assert_eq!(measured("src/wire/tests.rs", 1000, 0), None);
        assert!(measured("benches/a.rs", 1001, 0).is_some());
    }

    #[test]
    fn a_test_module_in_another_file_takes_its_lines_there() {
        let source = Source::new("a.rs", "#[cfg(test)]\nmod t;\nfn f() {}\n".to_owned()).unwrap();
        assert_eq!(test_lines(&source), 0);
    }
}

//! Where clocks may be read and unsafe code may stand.

use super::Violation;
use super::source::Source;
use super::workspace::Package;

/// The files that may read a clock: everywhere else time is an argument. Clippy refuses the same
/// (`disallowed-methods`), but an `allow` would silence it, and it sees the standard library alone.
const CLOCKS: &[&str] = &["crates/net/src/clock.rs", "crates/emulator/src/clock.rs"];

/// The folders that may be unsafe: they speak to the kernel.
const UNSAFE: &[&str] = &["crates/net/", "crates/emulator/"];

/// The tasks are no part of the program.
const TASKS: &str = "xtask/";

/// Looks for clocks and unsafe code in one file.
pub fn check(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    if !CLOCKS.contains(&source.path.as_str()) && !source.path.starts_with(TASKS) {
        for clock in ["Instant", "SystemTime"] {
            let message = format!(
                "reads {clock}: take the time as an argument; only {} read a clock",
                CLOCKS.join(" and ")
            );
            let call = [clock, ":", ":", "now"];
            found.extend(source.find(&call).map(|at| violation(source, at, &message)));
        }
    }
    if !may_be_unsafe(&source.path) {
        let message = format!("unsafe code: it may stand only in {}", UNSAFE.join(" and "));
        found.extend(source.find(&["unsafe"]).map(|at| violation(source, at, &message)));
    }
    found
}

/// Every library and binary that may not be unsafe says so to the compiler.
pub fn check_roots(packages: &[Package], sources: &[Source]) -> Vec<Violation> {
    let targets = packages.iter().flat_map(|package| &package.targets);
    let roots = targets.filter(|target| {
        let shipped = target.kind.iter().any(|kind| kind.ends_with("lib") || kind == "bin");
        shipped && !may_be_unsafe(&target.src_path)
    });
    roots
        .filter_map(|root| sources.iter().find(|source| source.path == root.src_path))
        .filter_map(check_root)
        .collect()
}

fn check_root(source: &Source) -> Option<Violation> {
    let forbid = ["#", "!", "[", "forbid", "(", "unsafe_code", ")", "]"];
    let missing = source.find(&forbid).next().is_none();
    missing.then(|| Violation::new(&source.path, 1, "add `#![forbid(unsafe_code)]`"))
}

fn may_be_unsafe(path: &str) -> bool {
    UNSAFE.iter().any(|folder| path.starts_with(folder))
}

fn violation(source: &Source, at: usize, message: &str) -> Violation {
    Violation::new(&source.path, source.tokens[at].line, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: &str = "/// Not `Instant::now()`.\nfn f() {\n    std::time::Instant::now();\n}\n";
    const UNSAFE_CODE: &str =
        "// SAFETY: it is not.\nunsafe fn f() {}\nunsafe impl Send for A {}\n";

    fn source(path: &str, text: &str) -> Source {
        Source::new(path, text.to_owned()).unwrap()
    }

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&source(path, text)).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn clocks_are_read_in_one_file_only() {
        assert_eq!(lines("crates/net/src/driver.rs", CLOCK), [3]);
        assert_eq!(lines("crates/cli/tests/cp.rs", "use t::*;\nf(SystemTime::now);"), [2]);
        assert!(lines("crates/net/src/clock.rs", CLOCK).is_empty());
        assert!(lines("xtask/src/ci.rs", CLOCK).is_empty());
    }

    #[test]
    fn unsafe_code_stays_by_the_kernel() {
        assert_eq!(lines("crates/cli/tests/cp.rs", UNSAFE_CODE), [2, 3]);
        assert!(lines("crates/emulator/src/tun.rs", UNSAFE_CODE).is_empty());
        assert!(lines("crates/cli/src/main.rs", "#![forbid(unsafe_code)]").is_empty());
    }

    #[test]
    fn roots_forbid_unsafe_code() {
        assert!(check_root(&source("a.rs", "//! A.\n#![forbid(unsafe_code)]\n")).is_none());
        assert!(check_root(&source("a.rs", "// #![forbid(unsafe_code)]\n")).is_some());
    }
}

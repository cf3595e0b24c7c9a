//! Programs from the distribution that tests run as their counterparts.

use std::process::{Command, Stdio};

/// A program that some tests run.
pub struct Tool {
    /// Its file name on the search path.
    pub program: &'static str,
    /// The Debian package that holds it.
    pub package: &'static str,
    /// The tests that want it, and skip loudly without it.
    pub wanted_by: &'static str,
}

/// Every program that a test runs beside the project's own.
const TOOLS: &[Tool] = &[
    Tool {
        program: "sha256sum",
        package: "coreutils",
        wanted_by: "cli: compares what arrived, independently of our own hash",
    },
    Tool {
        program: "ip",
        package: "iproute2",
        wanted_by: "emulator, cli: enters hosts by name, sets a device down",
    },
    Tool { program: "tshark", package: "tshark", wanted_by: "emulator: reads captures" },
];

/// Installs what is missing where that is possible; returns what is missing still.
pub fn provide() -> Vec<&'static Tool> {
    let missing = missing();
    if missing.is_empty() {
        return missing;
    }
    let packages: Vec<_> = missing.iter().map(|tool| tool.package).collect();
    let shown = packages.join(" ");
    if !rustix::process::geteuid().is_root() || !on_path("apt-get") {
        eprintln!("the tests want `{shown}`; only root can install that, with apt-get");
        return missing;
    }
    eprintln!("installing what the tests want: {shown}");
    let install = [&["install", "--yes", "--no-install-recommends"], packages.as_slice()].concat();
    // The package lists of a fresh machine are empty or old: fetch them only when they have to be.
    if !(apt_get(&install) || apt_get(&["update"]) && apt_get(&install)) {
        eprintln!("apt-get could not install {shown}");
    }
    self::missing()
}

fn missing() -> Vec<&'static Tool> {
    TOOLS.iter().filter(|tool| !on_path(tool.program)).collect()
}

/// Also looks where administration programs are: an ordinary user's search path leaves that out.
fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let admin = ["/usr/sbin", "/sbin"].map(Into::into);
    std::env::split_paths(&path).chain(admin).any(|folder| folder.join(program).is_file())
}

fn apt_get(args: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    command.arg("--quiet=2").args(args).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_on_the_search_path() {
        assert!(on_path("sh"));
        assert!(!on_path("a-program-that-nobody-has"));
    }
}

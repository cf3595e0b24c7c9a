//! Programs from the distribution that tests run as their counterparts.

use std::path::PathBuf;
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

const fn client(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package, wanted_by: "cli: our FTP server serves it" }
}

const fn server(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package, wanted_by: "cli: our FTP client uses it" }
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
    Tool { program: "nft", package: "nftables", wanted_by: "gateway: its rules" },
    Tool {
        program: "iptables",
        package: "iptables",
        wanted_by: "gateway: its queue, on kernels whose nftables have none",
    },
    Tool { program: "chromium", package: "chromium", wanted_by: "gateway: opens its web page" },
    Tool { program: "tshark", package: "tshark", wanted_by: "emulator: reads captures" },
    Tool {
        program: "conntrack",
        package: "conntrack",
        wanted_by: "cli: a NAT that forgets a connection",
    },
    client("curl", "curl"),
    client("lftp", "lftp"),
    client("tnftp", "tnftp"),
    client("rclone", "rclone"),
    client("aria2c", "aria2"),
    client("python3", "python3"),
    Tool {
        program: "lowntfs-3g",
        package: "ntfs-3g",
        wanted_by: "transfer: names that a target cannot tell apart, or cannot hold",
    },
    Tool { program: "b3sum", package: "b3sum", wanted_by: "cli: checks our manifests" },
    Tool { program: "rsync", package: "rsync", wanted_by: "cli: a program through forward" },
    Tool { program: "iperf3", package: "iperf3", wanted_by: "cli: a command of the book" },
    Tool { program: "ssh", package: "openssh-client", wanted_by: "cli: cp over ssh" },
    Tool { program: "sshd", package: "libwrap0", wanted_by: "cli: cp over ssh" },
    Tool { program: "nft", package: "nftables", wanted_by: "cli: blocks UDP" },
    server("vsftpd", "libwrap0"),
    server("pure-ftpd", "libsodium23"),
    server("proftpd", "libhiredis0.14 libmemcached11 libmemcachedutil2 libpcre2-posix3"),
];

/// Debian lets one FTP server be installed at a time, and no ssh server is to start listening for a
/// test, so these packages are unpacked and run where they lie; of such a tool [`TOOLS`] names the
/// libraries.
const UNPACK: &[(&str, &[&str])] = &[
    ("sshd", &["openssh-server"]),
    ("vsftpd", &["vsftpd"]),
    ("pure-ftpd", &["pure-ftpd", "pure-ftpd-common"]),
    ("proftpd", &["proftpd-core", "proftpd-mod-crypto"]),
];

/// Where packages are unpacked that cannot be installed beside each other; tests find the place in
/// the variable of this name.
pub const UNPACKED: &str = "LONGHAUL_TOOLS";

/// The folder that [`UNPACKED`] names.
pub fn unpacked() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    std::path::absolute(target.join("tools")).unwrap_or_default()
}

/// Installs what is missing where that is possible; returns what is missing still.
pub fn provide() -> Vec<&'static Tool> {
    let missing = missing();
    if missing.is_empty() {
        return missing;
    }
    let packages: Vec<_> = missing.iter().flat_map(|tool| tool.package.split(' ')).collect();
    let shown = packages.join(" ");
    if !rustix::process::geteuid().is_root() || !on_path("apt-get") {
        eprintln!("the tests want `{shown}`; only root can install that, with apt-get");
        return missing;
    }
    if !install(&packages) {
        eprintln!("apt-get could not install {shown}");
    }
    let wanted =
        UNPACK.iter().filter(|(program, _)| missing.iter().any(|tool| tool.program == *program));
    let wanted: Vec<&str> = wanted.flat_map(|(_, packages)| *packages).copied().collect();
    if !wanted.is_empty() && !unpack(&wanted) {
        eprintln!("could not unpack {}", wanted.join(" "));
    }
    self::missing()
}

fn missing() -> Vec<&'static Tool> {
    TOOLS.iter().filter(|tool| !on_path(tool.program)).collect()
}

/// Whether a program is here; see [`find`].
pub fn on_path(program: &str) -> bool {
    find(program).is_some()
}

/// Where a program is. Also looks where administration programs are, which an ordinary user's search
/// path leaves out, and among the unpacked ones.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = unpacked();
    let admin = ["/usr/sbin".into(), "/sbin".into(), unpacked.join("usr/sbin")];
    let folders = std::env::split_paths(&path).chain(admin);
    folders.map(|folder| folder.join(program)).find(|place| place.is_file())
}

/// Fetches packages and unpacks them without installing them.
fn unpack(packages: &[&str]) -> bool {
    let folder = unpacked();
    // Fetching leaves the packages in the current folder.
    let script = "mkdir -p \"$0\" && cd \"$0\" && apt-get --quiet=2 download \"$@\" \
                  && for package in *.deb; do dpkg-deb --extract \"$package\" . || exit 1; done; rm -f ./*.deb";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(folder).args(packages).stdin(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Installs packages, where this is Debian and we are root; whether that went well.
pub fn install(packages: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() || !on_path("apt-get") {
        return false;
    }
    eprintln!("installing {}", packages.join(" "));
    let install = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    // The package lists of a fresh machine are empty or old: fetch them only when they have to be.
    apt_get(&install) || apt_get(&["update"]) && apt_get(&install)
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

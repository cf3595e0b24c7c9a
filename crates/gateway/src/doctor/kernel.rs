//! Programs that are needed, and the kernel's settings.

use std::path::Path;

use super::system::setting;
use super::{Check, Finding};
use crate::config::Config;

/// The least room for datagrams that wait in the trunk's socket.
const LEAST_BUFFER: u64 = 4 << 20;
/// The least number of files that a gateway with thousands of connections may have open.
const LEAST_FILES: u64 = 16_384;

/// The kernel's settings that a gateway wants, and why: below `/proc/sys`, `install` sets them.
pub(crate) const SETTINGS: &[(&str, &str, &str)] = &[
    ("net/ipv4/ip_forward", "1", "what is not taken must be forwarded"),
    ("net/ipv6/conf/all/forwarding", "1", "what is not taken must be forwarded"),
    ("net/ipv4/tcp_tw_reuse", "1", "clients use their ports again sooner than after a minute"),
    ("net/core/somaxconn", "4096", "connections of many clients arrive at once"),
];

pub(super) fn examine(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    let transparent = config.intercept.is_some() || config.deliver.from_client;
    if transparent {
        checks.push(Check { name: "rights", finding: rights() });
        checks.push(Check { name: "programs", finding: programs() });
        checks.push(Check { name: "forwarding, IPv4", finding: is_on("ipv4/ip_forward") });
        // A host without IPv6 has nothing to forward.
        if setting("ipv6/conf/all/forwarding").is_some() {
            let finding = is_on("ipv6/conf/all/forwarding");
            checks.push(Check { name: "forwarding, IPv6", finding });
        }
    }
    checks.push(Check { name: "socket buffers", finding: buffers() });
    checks.push(Check { name: "open files", finding: files() });
    checks
}

fn rights() -> Finding {
    let capable = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::NET_ADMIN));
    match capable {
        true => Finding::Fine("may administer the network".into()),
        false => Finding::fault(
            "may not administer the network",
            "run the gateway and this as root, or leave out [intercept] and set deliver.from_client = false",
        ),
    }
}

fn programs() -> Finding {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |program: &str| {
        let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
        folders.map(|folder| folder.join(program)).any(|file| Path::is_file(&file))
    };
    let missing: Vec<_> = [("nft", "nftables"), ("ip", "iproute2")]
        .into_iter()
        .filter(|(program, _)| !there(program))
        .map(|(_, package)| package)
        .collect();
    match &missing[..] {
        [] => Finding::Fine("nft and ip are there".into()),
        missing => {
            let packages = missing.join(" ");
            Finding::fault(format!("missing: {packages}"), format!("apt-get install {packages}"))
        }
    }
}

fn is_on(name: &str) -> Finding {
    match setting(name).as_deref() {
        Some("0") => Finding::fault(
            "off: what is not taken ends here, and so does everything when the gateway is down",
            format!("sysctl -w net.{}=1", name.replace('/', ".")),
        ),
        Some(_) => Finding::Fine("on".into()),
        None => Finding::Unknown(format!("/proc/sys/net/{name} cannot be read")),
    }
}

/// The gateway may exceed the limit if it is root in the first user namespace; the kernel does not
/// tell who may.
fn buffers() -> Finding {
    let limits = ["core/rmem_max", "core/wmem_max"].map(setting);
    let least = limits.iter().flatten().filter_map(|text| text.parse::<u64>().ok()).min();
    match least {
        None => Finding::Unknown("this network namespace does not tell the limits".into()),
        Some(least) if least < LEAST_BUFFER && !rustix::process::geteuid().is_root() => {
            Finding::fault(
                format!("at most {least} bytes: at a high rate datagrams are lost on this host"),
                "sysctl -w net.core.rmem_max=16777216 net.core.wmem_max=16777216",
            )
        }
        Some(least) => Finding::Fine(format!("up to {least} bytes, and more for root")),
    }
}

fn files() -> Finding {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    match most {
        Some(most) if most < LEAST_FILES => Finding::fault(
            format!("at most {most}: two for each connection are too few for many"),
            "raise the hard limit: LimitNOFILE=1048576 in the unit, or `ulimit -Hn` as root",
        ),
        most => Finding::Fine(most.map_or("no limit".into(), |most| format!("up to {most}"))),
    }
}

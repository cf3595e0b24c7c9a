//! Programs that are needed, and the kernel's settings.

use std::fs;
use std::path::Path;

use super::system::{dotted, output, setting};
use super::{Check, Finding};
use crate::config::Config;
use crate::rights::may_administer;

/// The least room for datagrams that wait in the trunk's socket.
const LEAST_BUFFER: u64 = 4 << 20;
/// The least number of files that a gateway with thousands of connections may have open.
const LEAST_FILES: u64 = 16_384;

const CLOCKS: &str = "/sys/devices/system/clocksource/clocksource0";
/// Those outside of the processor.
const SLOW_CLOCKS: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];

/// One of the kernel's settings, below `/proc/sys`, and its value.
pub(crate) type Setting = (String, &'static str);

/// The kernel's settings that a gateway wants, in the order in which `install` makes them.
pub(crate) fn settings(config: &Config) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut want = |name: &str, value| settings.push((name.to_owned(), value));
    // Clients use their ports again sooner than after a minute.
    want("net/ipv4/tcp_tw_reuse", "1");
    // Connections of many clients arrive at once.
    want("net/core/somaxconn", "4096");
    // What is not taken must be forwarded.
    if config.is_transparent() {
        want("net/ipv4/ip_forward", "1");
    }
    if config.passes_v6() {
        settings.extend(forwarding_v6());
    }
    settings
}

/// A host that begins to forward IPv6 drops the default routes that it learnt from routers, and
/// learns no more, but for interfaces where `accept_ra` is 2 (ip-sysctl). Those that learn now are
/// to go on; where it forwards already, it is as its owner wants it.
fn forwarding_v6() -> Vec<Setting> {
    let folders = fs::read_dir("/proc/sys/net/ipv6/conf").into_iter().flatten().flatten();
    let names = folders.filter_map(|folder| folder.file_name().into_string().ok());
    let learns = |name: &String| {
        let value = |what| setting(&format!("ipv6/conf/{name}/{what}"));
        match value("accept_ra").as_deref() {
            Some("1") => value("forwarding").as_deref() == Some("0"),
            accept => accept == Some("2"),
        }
    };
    let learning = names.filter(|name| !["all", "lo"].contains(&name.as_str())).filter(learns);
    let accept = learning.map(|name| (format!("net/ipv6/conf/{name}/accept_ra"), "2"));
    accept.chain([("net/ipv6/conf/all/forwarding".to_owned(), "1")]).collect()
}

pub(super) fn examine(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    if config.is_transparent() {
        checks.push(Check { name: "rights", finding: rights() });
        checks.push(Check { name: "programs", finding: programs() });
        let finding = is_on("ipv4/ip_forward", &[("net/ipv4/ip_forward".into(), "1")]);
        checks.push(Check { name: "forwarding, IPv4", finding });
        // A host without IPv6 has nothing to forward.
        if config.passes_v6() && setting("ipv6/conf/all/forwarding").is_some() {
            let finding = is_on("ipv6/conf/all/forwarding", &forwarding_v6());
            checks.push(Check { name: "forwarding, IPv6", finding });
        }
    }
    checks.push(Check { name: "socket buffers", finding: buffers() });
    checks.push(Check { name: "open files", finding: files() });
    checks.push(Check { name: "clock", finding: clock() });
    checks
}

fn rights() -> Finding {
    match may_administer() {
        true => Finding::Fine("may administer the network".into()),
        false => Finding::fault(
            "may not administer the network",
            "run the gateway and this as root, or leave out [intercept] and deliver.from_client = true",
        ),
    }
}

/// For a gateway that does without.
pub(super) fn less_rights() -> Finding {
    Finding::Unknown(
        "may not administer the network: a gateway of this user shows servers its own address; \
         if it is to run as root, run this as root"
            .into(),
    )
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

fn is_on(name: &str, mend: &[Setting]) -> Finding {
    match setting(name).as_deref() {
        Some("0") => Finding::fault(
            "off: what is not taken ends here, and so does everything when the gateway is down",
            mend.iter().fold("sysctl -w".to_owned(), |line, (name, value)| {
                format!("{line} {}={value}", dotted(name))
            }),
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

/// How the clock is read, and whether somebody sets it.
fn clock() -> Finding {
    let source = fs::read_to_string(format!("{CLOCKS}/current_clocksource")).unwrap_or_default();
    let set = output("timedatectl", "show --property=NTPSynchronized --value").ok();
    judge_clock(source.trim(), set.as_deref())
}

fn judge_clock(source: &str, set: Option<&str>) -> Finding {
    if SLOW_CLOCKS.contains(&source) {
        return Finding::fault(
            format!("{source}: each look at it takes as long as some packets"),
            format!("choose another of {CLOCKS}/available_clocksource, or boot with tsc=reliable"),
        );
    }
    match set {
        Some("no") => Finding::fault(
            "nobody sets it: the records of the two gateways will not agree",
            "timedatectl set-ntp true, or run another NTP client",
        ),
        Some("yes") => Finding::Fine(format!("{source}, set over the network")),
        _ => Finding::Fine(format!("{source}; who sets it cannot be told here")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_to_be_quick_and_set() {
        for (source, set, fault) in [
            ("tsc", Some("yes"), false),
            ("kvm-clock", None, false),
            ("tsc", Some("no"), true),
            ("hpet", Some("yes"), true),
        ] {
            assert_eq!(judge_clock(source, set).is_fault(), fault, "{source} {set:?}");
        }
    }
}

//! The kernel's rules by which connections come to a gateway (nftables), and the route that keeps
//! them there.
//!
//! A SYN of a connection to be taken is held in a queue until the far gateway has connected. It
//! then goes on under a mark, and so do its later packets, to this host, whoever they are
//! addressed to (TPROXY). Where nobody reads the queue or listens, packets pass as if there were
//! no rules: a gateway that dies opens the way.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Command, Output, Stdio};

use ipnet::IpNet;

use crate::config::{Intercept, Ports};
use crate::reuse::Reuse;

/// What a SYN's mark says.
pub(crate) mod mark {
    /// Held until the far gateway knows.
    pub(crate) const HELD: u32 = 0x4c48_0001;
    /// Taken: goes to the gateway's own socket.
    pub(crate) const TAKEN: u32 = 0x4c48_0002;
    /// Stays on this host, by a routing rule.
    pub(crate) const LOCAL: u32 = 0x4c48_0003;
    /// Passes as if there were no gateway.
    pub(crate) const PASSED: u32 = 0x4c48_0004;
    /// From a socket of ours at another's address.
    pub(crate) const OURS: u32 = 0x4c48_0005;
    /// Is answered by a reset.
    pub(crate) const REFUSED: u32 = 0x4c48_0010;
    /// Is answered by ICMP: no way to the host, no way to the network, forbidden.
    pub(crate) const NO_HOST: u32 = 0x4c48_0011;
    pub(crate) const NO_NETWORK: u32 = 0x4c48_0012;
    pub(crate) const FORBIDDEN: u32 = 0x4c48_0013;
}

/// The routing table, and the priority of the rule that leads there.
pub(crate) const TABLE: &str = "7273";

/// Rules and routes in force; gone when dropped.
pub(crate) struct Rules {
    compat: Option<u16>,
    _reuse: Option<Reuse>,
}

/// Why rules could not be put in force.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// A program is missing or cannot be run.
    #[error("cannot run {program}: {source}; install {package}, and run the gateway as root")]
    Missing {
        /// The program.
        program: &'static str,
        /// Debian's package of it.
        package: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A program failed.
    #[error("{command} failed: {said}")]
    Failed {
        /// The command.
        command: String,
        /// What it said.
        said: String,
    },
}

impl Rules {
    /// Puts them in force, in place of those that an earlier gateway left.
    pub(crate) fn apply(intercept: Option<&Intercept>) -> Result<Self, RulesError> {
        remove();
        let mut rules = Self { compat: None, _reuse: Reuse::allow() };
        let native = nft(&ruleset(intercept, true));
        if let (Err(RulesError::Failed { .. }), Some(intercept)) = (&native, intercept) {
            // A kernel without nftables' own queue may have the older one.
            nft(&ruleset(Some(intercept), false))?;
            rules.compat = Some(intercept.queue);
            for program in IPTABLES {
                run(program, "iptables", &compat_rule("-A", intercept.queue), None)?;
            }
        } else {
            native?;
        }
        for family in ["-4", "-6"] {
            rule(family, "add")?;
            route(family, "replace")?;
        }
        Ok(rules)
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        remove();
        for program in IPTABLES {
            if let Some(queue) = self.compat {
                let _ = run(program, "iptables", &compat_rule("-D", queue), None);
            }
        }
    }
}

/// Removes what is there; nothing there is nothing wrong.
pub(crate) fn remove() {
    let _ = nft("delete table inet longhaul\n");
    for family in ["-4", "-6"] {
        while rule(family, "del").is_ok() {}
        let _ = route(family, "del");
    }
}

/// The rule that leads to our table, and no other of its priority.
fn rule(family: &str, action: &str) -> Result<(), RulesError> {
    let mark = format!("{:#x}", mark::LOCAL);
    let rule = ["rule", action, "fwmark", &mark, "lookup", TABLE, "priority", TABLE];
    run("ip", "iproute2", &[&[family], &rule[..]].concat(), None)
}

/// The route by which packets stay here.
fn route(family: &str, action: &str) -> Result<(), RulesError> {
    let route = ["route", action, "local", "default", "dev", "lo", "table", TABLE];
    run("ip", "iproute2", &[&[family], &route[..]].concat(), None)
}

const IPTABLES: [&str; 2] = ["iptables", "ip6tables"];

fn compat_rule(action: &str, queue: u16) -> Vec<String> {
    let (mark, queue) = (format!("{:#x}", mark::HELD), queue.to_string());
    let words = ["-t", "raw", action, "PREROUTING", "-m", "mark", "--mark", &mark];
    let then = ["-j", "NFQUEUE", "--queue-num", &queue, "--queue-bypass"];
    [&words[..], &then].concat().into_iter().map(str::to_owned).collect()
}

fn nft(script: &str) -> Result<(), RulesError> {
    run("nft", "nftables", &["-f", "-"], Some(script))
}

fn run(
    program: &'static str,
    package: &'static str,
    arguments: &[impl AsRef<str>],
    input: Option<&str>,
) -> Result<(), RulesError> {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    let output = attempt(program, &arguments, input.unwrap_or_default());
    let output = output.map_err(|source| RulesError::Missing { program, package, source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(RulesError::Failed { command: format!("{program} {}", arguments.join(" ")), said })
}

fn attempt(program: &str, arguments: &[&str], input: &str) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // A program that does not read its input says why at its end.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    child.wait_with_output()
}

/// The rules as nftables reads them. Without `queue` the netfilter queue is left to a rule of
/// another kind, which acts on the same mark.
pub(crate) fn ruleset(intercept: Option<&Intercept>, queue: bool) -> String {
    let mut text = String::from("table inet longhaul {\n");
    if let Some(intercept) = intercept {
        let _ = write!(text, "{}{}", hold(intercept, queue), settle(intercept.port));
    }
    text + &keep() + "}\n"
}

/// Marks the SYNs to be taken, before the raw table of other rules, and queues them.
fn hold(intercept: &Intercept, queue: bool) -> String {
    let names: Vec<_> = intercept.interfaces.iter().map(|name| format!("{name:?}")).collect();
    let first = "meta l4proto tcp tcp flags & (fin|syn|rst|ack) == syn";
    let from = format!("    iifname {{ {} }} {first}", names.join(", "));
    let mut text = String::from("  chain hold {\n    type filter hook prerouting priority -310;\n");
    let _ = writeln!(text, "{from} fib daddr type {{ local, broadcast, multicast }} accept");
    for family in ["ip", "ip6"] {
        let (to, except) = (nets(family, &intercept.to), nets(family, &intercept.except));
        if to.is_empty() {
            continue;
        }
        if !except.is_empty() {
            let _ = writeln!(text, "{from} {family} daddr {{ {except} }} accept");
        }
        let to = format!("{from} {family} daddr {{ {to} }}");
        // The early ones too: only who reads the queue knows whether there is a trunk.
        let all = ports(&[&intercept.ports[..], &intercept.early].concat());
        let _ = writeln!(text, "{to} tcp dport {{ {all} }} meta mark set {:#x} accept", mark::HELD);
    }
    text += "  }\n";
    if queue {
        let _ = write!(
            text,
            "  chain wait {{\n    type filter hook prerouting priority -305;\n    \
             meta mark {:#x} queue num {} bypass\n  }}\n",
            mark::HELD,
            intercept.queue
        );
    }
    text
}

/// Answers what the far side refused, and turns what it took to the gateway.
fn settle(port: u16) -> String {
    let mut text =
        String::from("  chain settle {\n    type filter hook prerouting priority -155;\n");
    let reset = "meta l4proto tcp reject with tcp reset";
    let _ = writeln!(text, "    meta mark {:#x} {reset}", mark::REFUSED);
    for (mark, code) in [
        (mark::NO_HOST, "host-unreachable"),
        (mark::NO_NETWORK, "no-route"),
        (mark::FORBIDDEN, "admin-prohibited"),
    ] {
        let _ = writeln!(text, "    meta mark {mark:#x} reject with icmpx {code}");
    }
    text += "  }\n  chain divert {\n    type filter hook prerouting priority mangle;\n";
    for (family, protocol, address) in [("ip", "ipv4", "127.0.0.1"), ("ip6", "ipv6", "[::1]")] {
        let _ = writeln!(
            text,
            "    meta mark {:#x} meta nfproto {protocol} meta l4proto tcp tproxy {family} to \
             {address}:{port} meta mark set {:#x} accept",
            mark::TAKEN,
            mark::LOCAL
        );
    }
    text + "  }\n"
}

/// Packets of connections that this host holds at another's address stay here, and what routers
/// say of them; also this host itself, which is the last router before its neighbours.
fn keep() -> String {
    let (local, ours) = (mark::LOCAL, mark::OURS);
    let icmp = "meta l4proto { icmp, ipv6-icmp }";
    format!(
        "  chain keep {{\n    type filter hook prerouting priority -149;\n    \
         meta l4proto {{ tcp, icmp, ipv6-icmp }} socket transparent 1 meta mark set {local:#x}\n  \
         }}\n  chain own {{\n    type route hook output priority mangle;\n    \
         meta mark {ours:#x} meta l4proto tcp ct mark set {ours:#x}\n    \
         ct state related ct mark {ours:#x} {icmp} meta mark set {local:#x}\n  }}\n"
    )
}

/// Those of one family as a set, in which nftables wants no overlap.
fn nets(family: &str, nets: &[IpNet]) -> String {
    let wanted = |net: &IpNet| matches!(net, IpNet::V4(_)) == (family == "ip");
    let nets: Vec<_> = nets.iter().copied().filter(wanted).collect();
    let nets = IpNet::aggregate(&nets);
    nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn ports(ports: &[Ports]) -> String {
    let mut sorted = ports.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<Ports> = Vec::new();
    for ports in sorted {
        match merged.last_mut() {
            Some(last) if ports.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(ports.last);
            }
            _ => merged.push(ports),
        }
    }
    let all = merged.iter().map(|Ports { first, last }| format!("{first}-{last}"));
    all.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_do_not_overlap() {
        let spans = ["80", "443", "81-90", "85"].map(|text| text.parse().unwrap());
        assert_eq!(ports(&spans), "80-90, 443-443");
        let all = ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"].map(|net| net.parse().unwrap());
        assert_eq!(nets("ip", &all), "10.0.0.0/8");
        assert_eq!(nets("ip6", &all), "2001:db8::/32");
    }
}

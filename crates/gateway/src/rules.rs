//! The kernel's rules by which connections come to a gateway (nftables), and the route that keeps
//! them there.
//!
//! A SYN of a connection to be taken is held in a queue until the far gateway has connected. It
//! then goes on under a mark, and so do its later packets, to this host, whoever they are
//! addressed to (TPROXY). Where nobody reads the queue or listens, packets pass as if there were
//! no rules: a gateway that dies opens the way. `older` is the queue of kernels whose nftables have
//! none.

pub(crate) mod older;

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
        // Whatever fails, what is there by then goes with it.
        let rules = Self { _reuse: Reuse::allow() };
        let native = nft(&ruleset(intercept, true));
        if let (Err(RulesError::Failed { .. }), Some(intercept)) = (&native, intercept) {
            // A kernel without nftables' own queue may have the older one.
            nft(&ruleset(Some(intercept), false))?;
            older::add(intercept)?;
        } else {
            native?;
        }
        let families = if net::transparent::has_ipv6() { &["-4", "-6"][..] } else { &["-4"] };
        for family in families {
            rule(family, "add")?;
            route(family, "replace")?;
        }
        Ok(rules)
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        remove();
    }
}

/// Removes what is there; nothing there is nothing wrong.
pub(crate) fn remove() {
    let _ = nft("delete table inet longhaul\n");
    older::remove();
    for family in ["-4", "-6"] {
        while rule(family, "del").is_ok() {}
        let _ = route(family, "del");
    }
}

/// The rule that leads to our table, and no other of its priority.
fn rule(family: &str, action: &str) -> Result<(), RulesError> {
    let mark = format!("{:#x}", mark::LOCAL);
    let rule = ["rule", action, "fwmark", &mark, "lookup", TABLE, "priority", TABLE];
    run("ip", "iproute2", &[&[family], &rule[..]].concat(), None).map(drop)
}

/// The route by which packets stay here.
fn route(family: &str, action: &str) -> Result<(), RulesError> {
    let route = ["route", action, "local", "default", "dev", "lo", "table", TABLE];
    run("ip", "iproute2", &[&[family], &route[..]].concat(), None).map(drop)
}

fn nft(script: &str) -> Result<(), RulesError> {
    run("nft", "nftables", &["-f", "-"], Some(script)).map(drop)
}

/// Runs a program; what it writes.
fn run(
    program: &'static str,
    package: &'static str,
    arguments: &[impl AsRef<str>],
    input: Option<&str>,
) -> Result<String, RulesError> {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    let output = attempt(program, &arguments, input.unwrap_or_default());
    let output = output.map_err(|source| RulesError::Missing { program, package, source })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(&output.stderr);
    Err(RulesError::Failed { command: format!("{program} {}", arguments.join(" ")), said })
}

fn attempt(program: &str, arguments: &[&str], input: &str) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // A program that does not read its input says why at its end.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    child.wait_with_output()
}

/// The first packet of a connection.
const FIRST: &str = "meta l4proto tcp tcp flags & (fin|syn|rst|ack) == syn";
/// The families' names, and where each has its loopback address.
const FAMILIES: [(&str, &str, &str); 2] = [("ip", "ipv4", "127.0.0.1"), ("ip6", "ipv6", "[::1]")];

/// The rules as nftables reads them. Without `queue` the netfilter queue is left to a rule of
/// another kind, which acts on the same mark.
pub(crate) fn ruleset(intercept: Option<&Intercept>, queue: bool) -> String {
    let mut text = String::from("table inet longhaul {\n");
    if let Some(intercept) = intercept {
        text += &hold(intercept);
        if queue {
            text += &wait("wait", "prerouting", intercept.queue);
        }
        text += &settle("settle", "prerouting");
        text += &divert(intercept);
        if intercept.own {
            text += &hold_own(intercept);
            if queue {
                text += &wait("wait_own", "output", intercept.queue);
            }
            text += &settle("settle_own", "output");
        }
    }
    text + &keep() + &own(intercept.is_some_and(|intercept| intercept.own)) + "}\n"
}

/// A chain's beginning; its rules and a brace follow.
fn chain(name: &str, kind: &str, hook: &str, priority: &str) -> String {
    format!("  chain {name} {{\n    type {kind} hook {hook} priority {priority};\n")
}

/// Marks the SYNs of hosts that are to be taken, before the raw table of other rules. Those that
/// somebody has marked are somebody's, and those that stay on this side need no trunk.
fn hold(intercept: &Intercept) -> String {
    let mut text = chain("hold", "filter", "prerouting", "-310") + "    meta mark != 0 accept\n";
    let names = &intercept.interfaces;
    // Where networks are named, those are on the other side, also by the way that they came.
    let everywhere = intercept.to.iter().any(|net| net.prefix_len() == 0);
    for name in names {
        let ours: Vec<_> = names.iter().filter(|other| everywhere || *other != name).collect();
        if !ours.is_empty() {
            let (from, ours) = (quoted([name]), quoted(ours));
            let _ = writeln!(text, "    iifname {from} {FIRST} fib daddr oifname {ours} accept");
        }
    }
    if !names.is_empty() {
        text += &claim(&format!("    iifname {} {FIRST}", quoted(names)), intercept);
    }
    text + "  }\n"
}

/// The same of this host's own, when they are about to leave. The gateway marks those of its own.
fn hold_own(intercept: &Intercept) -> String {
    let mut text = chain("hold_own", "filter", "output", "-310") + "    meta mark != 0 accept\n";
    if !intercept.interfaces.is_empty() {
        let ours = quoted(&intercept.interfaces);
        let _ = writeln!(text, "    {FIRST} oifname {ours} accept");
    }
    text + &claim(&format!("    {FIRST}"), intercept) + "  }\n"
}

/// Which of the SYNs that lines beginning so speak of are to be taken.
fn claim(from: &str, intercept: &Intercept) -> String {
    let mut text = format!("{from} fib daddr type {{ local, broadcast, multicast }} accept\n");
    if !intercept.except_ports.is_empty() {
        let except = ports(&intercept.except_ports);
        let _ = writeln!(text, "{from} tcp dport {{ {except} }} accept");
    }
    for (family, ..) in FAMILIES {
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
    text
}

/// Queues what is still marked so after the raw table of other rules.
fn wait(name: &str, hook: &str, queue: u16) -> String {
    let held = mark::HELD;
    chain(name, "filter", hook, "-295")
        + &format!("    meta mark {held:#x} queue num {queue} bypass\n  }}\n")
}

/// Answers what the far side refused.
fn settle(name: &str, hook: &str) -> String {
    let mut text = chain(name, "filter", hook, "-155");
    let reset = "meta l4proto tcp reject with tcp reset";
    let _ = writeln!(text, "    meta mark {:#x} {reset}", mark::REFUSED);
    for (mark, code) in [
        (mark::NO_HOST, "host-unreachable"),
        (mark::NO_NETWORK, "no-route"),
        (mark::FORBIDDEN, "admin-prohibited"),
    ] {
        let _ = writeln!(text, "    meta mark {mark:#x} reject with icmpx {code}");
    }
    text + "  }\n"
}

/// Turns what the far side took to the gateway, before the mangle table of other rules may mark it otherwise. This host's
/// own comes back by the loopback interface.
fn divert(intercept: &Intercept) -> String {
    let mut text = chain("divert", "filter", "prerouting", "-151");
    let (taken, local, port) = (mark::TAKEN, mark::LOCAL, intercept.port);
    for (family, protocol, address) in FAMILIES {
        let to = format!("tproxy {family} to {address}:{port}");
        let _ = writeln!(
            text,
            "    meta mark {taken:#x} meta nfproto {protocol} meta l4proto tcp {to} \
             meta mark set {local:#x} accept"
        );
        if intercept.own {
            let _ = writeln!(
                text,
                "    iifname \"lo\" meta mark {local:#x} meta nfproto {protocol} {FIRST} {to} accept"
            );
        }
    }
    text + "  }\n"
}

/// Packets of connections that this host holds at another's address stay here, and what routers
/// say of them.
fn keep() -> String {
    let local = mark::LOCAL;
    let what = "meta l4proto { tcp, icmp, ipv6-icmp } socket transparent 1";
    chain("keep", "filter", "prerouting", "-149")
        + &format!("    {what} meta mark set {local:#x}\n  }}\n")
}

/// Also what this host itself says of them, which is the last router before its neighbours; and
/// packets of its own connections that the gateway has taken.
fn own(taken_too: bool) -> String {
    let (local, ours, taken) = (mark::LOCAL, mark::OURS, mark::TAKEN);
    let icmp = "meta l4proto { icmp, ipv6-icmp }";
    let mut text = chain("own", "route", "output", "mangle")
        + &format!(
            "    meta mark {ours:#x} meta l4proto tcp ct mark set {ours:#x}\n    \
             ct state related ct mark {ours:#x} {icmp} meta mark set {local:#x}\n"
        );
    if taken_too {
        // A connection that goes direct may follow one that was taken, from the same port.
        let _ =
            writeln!(text, "    meta mark != {taken:#x} ct mark {taken:#x} {FIRST} ct mark set 0");
        let _ = writeln!(text, "    meta mark {taken:#x} meta l4proto tcp ct mark set {taken:#x}");
        let original = "ct direction original meta l4proto tcp";
        let _ = writeln!(text, "    ct mark {taken:#x} {original} meta mark set {local:#x}");
    }
    text + "  }\n"
}

/// Interfaces' names as a set.
fn quoted<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| format!("{name:?}")).collect();
    format!("{{ {} }}", names.join(", "))
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

    fn rules(settings: &str) -> String {
        let intercept: Intercept = toml::from_str(settings).unwrap();
        ruleset(Some(&intercept), true)
    }

    #[test]
    fn what_stays_on_this_side_is_left_alone() {
        let stays = |settings: &str| {
            let text = rules(settings);
            let lines = text.lines().filter(|line| line.contains("oifname"));
            lines.map(|line| line.replace(FIRST, "SYN").trim().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            stays("interfaces = [\"a\", \"b\"]"),
            [
                "iifname { \"a\" } SYN fib daddr oifname { \"a\", \"b\" } accept",
                "iifname { \"b\" } SYN fib daddr oifname { \"a\", \"b\" } accept",
            ]
        );
        let named = "to = [\"10.0.0.0/8\"]\ninterfaces = ";
        assert_eq!(
            stays(&format!("{named}[\"a\", \"b\"]")),
            [
                "iifname { \"a\" } SYN fib daddr oifname { \"b\" } accept",
                "iifname { \"b\" } SYN fib daddr oifname { \"a\" } accept",
            ]
        );
        // Where one interface leads both to hosts and to the other side.
        assert!(stays(&format!("{named}[\"a\"]")).is_empty());
    }

    #[test]
    fn what_is_excepted_is_passed_before_anything_is_taken() {
        let text = rules("interfaces = [\"a\"]\nexcept_ports = [25, \"8443-8444\"]\nown = true");
        let except = "tcp dport { 25-25, 8443-8444 } accept";
        let chains: Vec<_> = text.split("  chain ").filter(|it| it.starts_with("hold")).collect();
        assert_eq!(chains.len(), 2);
        for chain in chains {
            let [marked, excepted, held] =
                ["meta mark != 0 accept", except, "0x4c480001"].map(|it| chain.find(it).unwrap());
            assert!(marked < excepted && excepted < held, "{chain}");
        }
    }

    #[test]
    fn sets_do_not_overlap() {
        let spans = ["80", "443", "81-90", "85"].map(|text| text.parse().unwrap());
        assert_eq!(ports(&spans), "80-90, 443-443");
        let all = ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"].map(|net| net.parse().unwrap());
        assert_eq!(nets("ip", &all), "10.0.0.0/8");
        assert_eq!(nets("ip6", &all), "2001:db8::/32");
    }
}

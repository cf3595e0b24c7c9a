//! The kernel's rules and routes, while a gateway runs, and what else might take its packets.

use std::collections::BTreeMap;
use std::fs;

use serde::Deserialize;

use super::system::{ip, output};
use super::{Check, Finding};
use crate::config::{Config, Intercept};
use crate::rules::{TABLE, older, ruleset};

const RESTART: &str =
    "stop the gateway and run it again: it puts its rules in force when it starts";

/// Where nftables has no queue, rules of iptables do what these chains would.
const QUEUES: [&str; 2] = ["wait", "wait_own"];

pub(super) fn examine(config: &Config, running: bool) -> Vec<Check> {
    if !config.is_transparent() {
        return Vec::new();
    }
    let mut checks = Vec::new();
    if running {
        checks.push(Check { name: "rules", finding: rules(config) });
        checks.push(Check { name: "route, IPv4", finding: kept_here("-4") });
        if net::transparent::has_ipv6() {
            checks.push(Check { name: "route, IPv6", finding: kept_here("-6") });
        }
    }
    if let Some(intercept) = &config.intercept {
        checks.push(Check { name: "queue", finding: queue(intercept, running) });
        checks.push(Check { name: "port", finding: port(intercept, running) });
    }
    checks
}

/// Whether each chain is there with as many rules as it was given.
fn rules(config: &Config) -> Finding {
    let listed = match output("nft", "list table inet longhaul") {
        Ok(listed) => listed,
        Err(said) => return Finding::fault(format!("they are gone: {said}"), RESTART),
    };
    let (wanted, found) = (chains(&ruleset(config.intercept.as_ref(), true)), chains(&listed));
    for (chain, count) in &wanted {
        let there = found.get(chain).copied().unwrap_or(0);
        if there < *count && !QUEUES.contains(&chain.as_str()) {
            let what = format!("chain {chain} of table inet longhaul has {there} rules of {count}");
            return Finding::fault(what, RESTART);
        }
    }
    let waits = found.get("wait").is_some_and(|rules| *rules > 0);
    let older = config.intercept.as_ref().filter(|_| !waits);
    match older.and_then(older::missing) {
        Some(rule) => Finding::fault(
            format!(
                "nothing leads to the queue, so all go direct: neither chain wait nor `{rule}`"
            ),
            RESTART,
        ),
        None => Finding::Fine(format!("all {} chains are in force", found.len())),
    }
}

/// How many rules each chain has.
fn chains(text: &str) -> BTreeMap<String, usize> {
    let mut chains = BTreeMap::new();
    let mut current = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("chain ") {
            current = Some(name.trim_end_matches([' ', '{']).to_owned());
            chains.entry(current.clone().unwrap_or_default()).or_insert(0);
        } else if line == "}" {
            current = None;
        } else if let Some(chain) = current.as_ref().filter(|_| !line.starts_with("type ")) {
            *chains.entry(chain.clone()).or_insert(0) += 1;
        }
    }
    chains
}

#[derive(Deserialize)]
struct Rule {
    table: Option<String>,
}

#[derive(Deserialize)]
struct Kept {
    #[serde(rename = "type")]
    kind: Option<String>,
    dst: Option<String>,
}

/// Whether packets with the mark stay on this host.
fn kept_here(family: &str) -> Finding {
    let rules = ip::<Rule>(&format!("{family} rule show priority {TABLE}"));
    let leads = |rule: &Rule| rule.table.as_deref() == Some(TABLE);
    let routes = ip::<Kept>(&format!("{family} route show table {TABLE}")).unwrap_or_default();
    let local = |route: &Kept| {
        route.kind.as_deref() == Some("local") && route.dst.as_deref() == Some("default")
    };
    match rules {
        Err(said) => Finding::Unknown(said),
        Ok(rules) if !rules.iter().any(leads) => {
            Finding::fault(format!("no rule leads to table {TABLE}: taken packets go on"), RESTART)
        }
        Ok(_) if !routes.iter().any(local) => Finding::fault(
            format!("table {TABLE} has no local route: taken packets go on"),
            RESTART,
        ),
        Ok(_) => Finding::Fine(format!("marked packets stay here by table {TABLE}")),
    }
}

/// Who reads the queue: `/proc/net/netfilter/nfnetlink_queue` begins each line with its number.
fn queue(intercept: &Intercept, running: bool) -> Finding {
    let number = intercept.queue.to_string();
    let text = fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue");
    let line = text.unwrap_or_default();
    let line = line.lines().find(|line| line.split_whitespace().next() == Some(&number));
    match (line, running) {
        (None, true) => {
            Finding::fault(format!("nobody reads queue {number}: all go direct"), RESTART)
        }
        (None, false) => Finding::Fine(format!("queue {number} is free")),
        (Some(_), true) => Finding::Fine(format!("queue {number} is read")),
        (Some(_), false) => Finding::fault(
            format!("another program reads queue {number}"),
            "end it, or choose another number for intercept.queue",
        ),
    }
}

/// Whether the port is free for a gateway that does not run yet.
fn port(intercept: &Intercept, running: bool) -> Finding {
    let port = intercept.port;
    if running {
        return Finding::Fine(format!("{port} is the gateway's"));
    }
    match std::net::TcpListener::bind(("127.0.0.1", port)) {
        Ok(_) => Finding::Fine(format!("{port} is free")),
        Err(error) => Finding::fault(
            format!("{port} cannot be used: {error}"),
            "end the program that listens there (`ss -ltnp`), or choose another for intercept.port",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_counted_by_chain() {
        let config = "interfaces = [\"lan0\"]";
        let intercept: Intercept = toml::from_str(config).unwrap();
        let counts = chains(&ruleset(Some(&intercept), true));
        let names: Vec<_> = counts.keys().map(String::as_str).collect();
        assert_eq!(names, ["divert", "hold", "keep", "own", "settle", "wait"]);
        assert_eq!((counts["hold"], counts["settle"], counts["keep"]), (5, 4, 1));
    }
}

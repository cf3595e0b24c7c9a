//! The older netfilter queue, for kernels whose nftables have none: rules of iptables that lead
//! packets there by their mark. What a gateway that was killed left of them is known by that mark.

use super::{RulesError, mark, run};
use crate::config::Intercept;

const PROGRAMS: [&str; 2] = ["iptables", "ip6tables"];
/// Where packets come by: those of hosts, and this host's own.
const HOSTS: &str = "PREROUTING";
const OWN: &str = "OUTPUT";
/// Seconds to wait while others change the rules.
const PATIENCE: &str = "5";

/// Leads what is held to the queue.
pub(super) fn add(intercept: &Intercept) -> Result<(), RulesError> {
    wanted(intercept).try_for_each(|(program, chain)| {
        iptables(program, &rule("-A", chain, intercept.queue)).map(drop)
    })
}

/// Removes all that lead there, whoever left them; nothing there is nothing wrong.
pub(super) fn remove() {
    for program in PROGRAMS {
        for chain in [HOSTS, OWN] {
            let listed = iptables(program, &["-S", chain].map(str::to_owned));
            for rule in ours(&listed.unwrap_or_default()) {
                let _ = iptables(program, &rule);
            }
        }
    }
}

/// The first that is not there, as one would write it.
pub(crate) fn missing(intercept: &Intercept) -> Option<String> {
    wanted(intercept).find_map(|(program, chain)| {
        let there = iptables(program, &rule("-C", chain, intercept.queue)).is_ok();
        let shown = || rule("-A", chain, intercept.queue).join(" ");
        (!there).then(|| format!("{program} -t raw {}", shown()))
    })
}

fn wanted(intercept: &Intercept) -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = intercept.own;
    let both = |program| [(program, HOSTS), (program, OWN)];
    PROGRAMS.into_iter().flat_map(both).filter(move |(_, chain)| own || *chain == HOSTS)
}

fn rule(action: &str, chain: &str, queue: u16) -> Vec<String> {
    let (mark, queue) = (format!("{:#x}", mark::HELD), queue.to_string());
    let words = [action, chain, "-m", "mark", "--mark", &mark];
    let then = ["-j", "NFQUEUE", "--queue-num", &queue, "--queue-bypass"];
    [&words[..], &then].concat().into_iter().map(str::to_owned).collect()
}

/// Of the rules that are listed, what deletes ours: once for each.
fn ours(listed: &str) -> Vec<Vec<String>> {
    let mark = format!("{:#x}", mark::HELD);
    let lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = lines.filter(|words| {
        let has = |pair: [&str; 2]| words.windows(2).any(|two| two == pair);
        words.first() == Some(&"-A") && has(["--mark", &mark]) && has(["-j", "NFQUEUE"])
    });
    let delete = |words: Vec<&str>| {
        let rest = words.into_iter().skip(1);
        ["-D"].into_iter().chain(rest).map(str::to_owned).collect()
    };
    ours.map(delete).collect()
}

fn iptables(program: &'static str, words: &[String]) -> Result<String, RulesError> {
    let table = ["-w", PATIENCE, "-t", "raw"].map(str::to_owned);
    run(program, "iptables", &[&table, words].concat(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_rules_are_deleted_each_as_often_as_it_is_there() {
        let ours_then =
            "-A PREROUTING -m mark --mark 0x4c480001 -j NFQUEUE --queue-num 9 --queue-bypass";
        let others = "-P PREROUTING ACCEPT\n-A PREROUTING -m mark --mark 0x1 -j NFQUEUE --queue-num 9\n\
                      -A PREROUTING -m mark --mark 0x4c480001 -j ACCEPT\n";
        let found = ours(&format!("{others}{ours_then}\n{ours_then}\n"));
        assert_eq!(found, [rule("-D", HOSTS, 9), rule("-D", HOSTS, 9)]);
        assert!(ours(others).is_empty());
    }
}

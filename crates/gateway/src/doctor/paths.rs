//! The ways of packets: to the hosts of both sides and to the other gateways, and back.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::Deserialize;

use super::system::ip;
use super::{Check, Finding, links};
use crate::config::{Config, Intercept};
use crate::request::Refusal;
use crate::sight::{Side, Status};

/// Addresses of a network that are tried: the first may be this gateway's own.
const TRIED: usize = 3;
/// Clients of the other side whose routes are looked at.
const CLIENTS: usize = 16;

/// What `ip -j route get` tells.
#[derive(Deserialize)]
struct Route {
    dev: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl Route {
    fn is_here(&self) -> bool {
        matches!(self.kind.as_deref(), Some("local" | "anycast"))
    }
}

/// What `ip -j address` tells.
#[derive(Deserialize)]
struct Holder {
    ifname: Option<String>,
}

/// The interfaces by which packets come and go.
#[derive(Default)]
struct Ways {
    /// Of the hosts of this side.
    hosts: BTreeSet<String>,
    /// Of the trunk.
    trunk: BTreeSet<String>,
}

/// What the gateway that runs, if one does, knows of who calls is looked at too.
pub(super) fn examine(config: &Config, status: Option<&Status>) -> Vec<Check> {
    let peers = peers(config, status);
    let mut ways = Ways::default();
    ways.trunk.extend(peers.iter().filter_map(|(peer, _)| route(*peer).ok()?.dev));
    ways.trunk.extend(config.trunk.listen.and_then(|address| holder(address.ip())));
    let mut checks = Vec::new();
    let mut check = |name, finding| checks.push(Check { name, finding });
    if let Some(intercept) = &config.intercept {
        ways.hosts.extend(intercept.interfaces.iter().cloned());
        check("way to the other side", other_side(intercept));
    }
    if config.deliver.stands_in()
        && let Some(finding) = this_side(config, &mut ways)
    {
        check("way to this side", finding);
    }
    for name in &ways.hosts {
        check("interface", links::towards_hosts(name));
    }
    if let Some(finding) = status.and_then(|status| answers(config, status, &ways)) {
        check("answers to clients", finding);
    }
    if let Some(address) = config.trunk.listen.filter(|address| !address.ip().is_unspecified()) {
        check("own address", own(address.ip()));
    }
    for (peer, setting) in &peers {
        check("way to the other gateway", to_peer(*peer, setting, config));
    }
    if peers.is_empty() {
        let why = "whoever calls is not known before there is a trunk";
        check("way to the other gateway", Finding::Unknown(why.into()));
    }
    if config.is_transparent() {
        // Where servers are is not known if they may be everywhere.
        let known = ways.hosts.union(&ways.trunk).filter(|_| !ways.hosts.is_empty());
        checks.extend(links::filters(known));
    }
    checks
}

/// The other gateways, and which setting names them.
fn peers(config: &Config, status: Option<&Status>) -> Vec<(IpAddr, &'static str)> {
    let named = config.trunk.peers().into_iter().map(|peer| peer.ip());
    let settings = ["trunk.peer"].into_iter().chain(std::iter::repeat("trunk.standby"));
    let mut all: Vec<_> = named.zip(settings).collect();
    if config.trunk.listen.is_some() {
        let heard = status.iter().flat_map(|status| &status.trunk.heard);
        let heard = heard.filter_map(|peer| peer.parse::<SocketAddr>().ok());
        let callers: BTreeSet<_> = heard.map(|peer| peer.ip().to_canonical()).collect();
        all.extend(callers.into_iter().map(|caller| (caller, "its address")));
    }
    all
}

fn route(to: IpAddr) -> Result<Route, String> {
    let mut routes = ip::<Route>(&format!("route get {to}"))?;
    routes.pop().ok_or_else(|| "no route".to_owned())
}

/// The interface that has this address.
fn holder(address: IpAddr) -> Option<String> {
    if address.is_unspecified() {
        return None;
    }
    let holders = ip::<Holder>(&format!("address show to {address}")).ok()?;
    holders.into_iter().find_map(|holder| holder.ifname)
}

/// Clients' packets to the networks on the other side must not be meant for this side.
fn other_side(intercept: &Intercept) -> Finding {
    for net in intercept.to.iter().filter(|net| net.prefix_len() > 0) {
        let host = net.hosts().next().unwrap_or(net.addr());
        let way = match route(host) {
            Ok(way) => way,
            Err(said) => {
                let mend = format!("ip route add {net} via the router towards the other side");
                return Finding::fault(format!("{net}: {said}"), mend);
            }
        };
        let here = way.dev.as_ref().is_some_and(|dev| intercept.interfaces.contains(dev));
        if here || way.kind.as_deref() == Some("local") {
            return Finding::fault(
                format!("{net} is on this side, by {}", way.dev.unwrap_or_default()),
                "correct intercept.to or intercept.interfaces, or the route",
            );
        }
    }
    Finding::Fine("no network of the other side is on this one".into())
}

/// Servers of this side must be reached, and by another way than the other gateway: by that their
/// answers to clients need not come back here. None if no network is named.
fn this_side(config: &Config, ways: &mut Ways) -> Option<Finding> {
    let named = config.deliver.to.iter().filter(|net| net.prefix_len() > 0);
    let mut doubt = None;
    let mut found = BTreeSet::new();
    for net in named {
        match way_into(*net) {
            Err(said) => {
                let mend =
                    format!("ip route add {net} via the router towards it, or correct deliver.to");
                return Some(Finding::fault(format!("{net}: {said}"), mend));
            }
            Ok(Some(dev)) if ways.trunk.contains(&dev) => doubt = Some((net, dev)),
            Ok(dev) => found.extend(dev),
        }
    }
    let shown = found.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let fine = (!found.is_empty()).then(|| Finding::Fine(format!("by {shown}")));
    ways.hosts.extend(found);
    let doubt = doubt.map(|(net, dev)| {
        Finding::Unknown(format!(
            "{net} is reached by {dev}, as the other gateway is: whether what servers answer \
             clients comes back here only their routers know"
        ))
    });
    doubt.or(fine)
}

/// By which interface a network is reached; none if all that was tried is this host.
fn way_into(net: IpNet) -> Result<Option<String>, String> {
    for host in net.hosts().take(TRIED) {
        let way = route(host)?;
        if !way.is_here() {
            return Ok(way.dev);
        }
    }
    Ok(None)
}

/// Whether what servers of this side answer clients of the other comes back here, as far as the
/// connections of the gateway that runs show it. None if they show nothing.
fn answers(config: &Config, status: &Status, ways: &Ways) -> Option<Finding> {
    if !config.deliver.stands_in() {
        return None;
    }
    let why = Refusal::Silence.to_string();
    let silent = status.missed.iter().filter(|it| it.side == Side::Far && it.why == why).count();
    let far: Vec<_> = status.connections.iter().filter(|it| it.side == Side::Far).collect();
    if silent > 0 && far.is_empty() && status.totals.carried == 0 {
        return Some(Finding::fault(
            format!("none of {silent} connections as clients was answered by its server"),
            "have this side's routers send what is for the other side's networks to this gateway, \
             or set deliver.from_client = false",
        ));
    }
    let clients = far.iter().filter_map(|it| it.client.parse::<SocketAddr>().ok());
    let clients: BTreeSet<_> = clients.map(|client| client.ip().to_canonical()).collect();
    for client in clients.iter().take(CLIENTS) {
        match route(*client) {
            Err(said) => {
                return Some(Finding::fault(
                    format!("client {client}: {said}; without a trunk no answer reaches it"),
                    format!("ip route add {client} via the router towards the other side"),
                ));
            }
            Ok(Route { dev: Some(dev), .. })
                if ways.hosts.contains(&dev) && !ways.trunk.contains(&dev) =>
            {
                return Some(Finding::fault(
                    format!("client {client} of the other side has a route by {dev}, on this one"),
                    "correct the route: without a trunk no answer reaches it",
                ));
            }
            Ok(_) => {}
        }
    }
    let count = clients.len();
    (count > 0).then(|| Finding::Fine(format!("come back; {count} clients now")))
}

/// The address at which the trunk is accepted must be this host's.
fn own(address: IpAddr) -> Finding {
    match holder(address) {
        Some(name) => links::towards_gateway(&name),
        None => Finding::fault(
            format!("{address} is no address of this host"),
            "name one of them in trunk.listen (`ip address`), or all by [::]",
        ),
    }
}

fn to_peer(peer: IpAddr, setting: &str, config: &Config) -> Finding {
    let way = match route(peer) {
        Ok(way) => way,
        Err(said) => {
            return Finding::fault(
                format!("{peer}: {said}"),
                format!("ip route add {peer} via the router towards it, or correct {setting}"),
            );
        }
    };
    if way.kind.as_deref() == Some("local") {
        return Finding::fault(
            format!("{peer} is this host"),
            format!("{setting} names the other gateway; `listen` is for the one that is called"),
        );
    }
    let dev = way.dev.unwrap_or_default();
    if config.intercept.iter().any(|intercept| intercept.interfaces.contains(&dev)) {
        return Finding::fault(
            format!("{peer} is reached by {dev}, where clients are said to be"),
            "correct intercept.interfaces or the route to the other gateway",
        );
    }
    match links::towards_gateway(&dev) {
        Finding::Fine(how) => Finding::Fine(format!("{peer} {how}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sight::Missed;

    #[test]
    fn servers_that_all_are_silent_answer_by_another_way() {
        let read = |text: &str| -> Config {
            format!("[trunk]\nlisten = \"[::]:7273\"\nkey = \"k\"\n{text}").parse().unwrap()
        };
        let why = Refusal::Silence.to_string();
        let missed = |side| vec![Missed { side, why: why.clone(), ..Missed::default() }];
        let told = |config: &Config, status: &Status| answers(config, status, &Ways::default());
        let mut status = Status { missed: missed(Side::Far), ..Status::default() };
        let found = told(&read(""), &status).unwrap();
        assert!(found.is_fault(), "{found:?}");
        assert_eq!(told(&read("[deliver]\nfrom_client = false"), &status), None);
        status.totals.carried = 1;
        assert_eq!(told(&read(""), &status), None);
        let near = Status { missed: missed(Side::Near), ..Status::default() };
        assert_eq!(told(&read(""), &near), None);
    }
}

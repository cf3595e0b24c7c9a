//! The ways of packets: interfaces, routes to the other side, and whether answers come back.

use std::net::IpAddr;

use serde::Deserialize;

use super::system::{dotted, ip, setting};
use super::{Check, Finding};
use crate::config::{Config, Intercept};

/// The least MTU of IPv6 (RFC 8200, 5), which the trunk's packets want too.
const LEAST_MTU: u32 = 1280;

/// What `ip -j link` tells.
#[derive(Deserialize)]
struct Link {
    mtu: u32,
    flags: Vec<String>,
}

/// What `ip -j route get` tells.
#[derive(Deserialize)]
struct Route {
    dev: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

pub(super) fn examine(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(intercept) = &config.intercept {
        let all = intercept.interfaces.iter();
        checks.extend(all.clone().map(|name| Check { name: "interface", finding: link(name) }));
        checks.push(Check { name: "way to the other side", finding: other_side(intercept) });
        let path = config.trunk.peer.and_then(|peer| route(peer.ip()).ok()?.dev);
        for name in all.chain(&path) {
            checks.push(Check { name: "reverse path filter", finding: filter(name) });
        }
    }
    if let Some(peer) = config.trunk.peer {
        checks
            .push(Check { name: "way to the other gateway", finding: to_peer(peer.ip(), config) });
    }
    checks
}

fn route(to: IpAddr) -> Result<Route, String> {
    let mut routes = ip::<Route>(&format!("route get {to}"))?;
    routes.pop().ok_or_else(|| "no route".to_owned())
}

fn link(name: &str) -> Finding {
    match ip::<Link>(&format!("link show dev {name}")).map(|mut links| links.pop()) {
        Ok(Some(link)) if !link.flags.iter().any(|flag| flag == "UP") => {
            Finding::fault(format!("{name} is down"), format!("ip link set {name} up"))
        }
        Ok(Some(link)) if link.flags.iter().any(|flag| flag == "NO-CARRIER") => Finding::fault(
            format!("{name} has no carrier"),
            "see to the cable, or to the other end of the link",
        ),
        Ok(Some(link)) => Finding::Fine(format!("{name} is up, MTU {}", link.mtu)),
        Ok(None) | Err(_) => Finding::fault(
            format!("there is no {name}"),
            "name the interfaces towards this side's hosts in intercept.interfaces (`ip link`)",
        ),
    }
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

/// Strictly filtered, packets are dropped that come in by another interface than answers leave by.
fn filter(name: &str) -> Finding {
    let value = |of: &str| setting(&format!("ipv4/conf/{of}/rp_filter"))?.parse::<u8>().ok();
    match value("all").max(value(name)) {
        Some(1) => Finding::fault(
            format!("strict on {name}: connections whose two ways differ are dropped here"),
            format!(
                "sysctl -w net.ipv4.conf.all.rp_filter=2 {}=2",
                dotted(&format!("net/ipv4/conf/{name}/rp_filter"))
            ),
        ),
        Some(0) => Finding::Fine(format!("off on {name}")),
        Some(_) => Finding::Fine(format!("loose on {name}")),
        None => Finding::Unknown(format!("{name} has none that can be read")),
    }
}

fn to_peer(peer: IpAddr, config: &Config) -> Finding {
    let way = match route(peer) {
        Ok(way) => way,
        Err(said) => {
            return Finding::fault(
                format!("{peer}: {said}"),
                format!("ip route add {peer} via the router towards it, or correct trunk.peer"),
            );
        }
    };
    if way.kind.as_deref() == Some("local") {
        return Finding::fault(
            format!("{peer} is this host"),
            "trunk.peer names the other gateway; here `listen` is for the one that is called",
        );
    }
    let dev = way.dev.unwrap_or_default();
    if config.intercept.iter().any(|intercept| intercept.interfaces.contains(&dev)) {
        return Finding::fault(
            format!("{peer} is reached by {dev}, where clients are said to be"),
            "correct intercept.interfaces or the route to the other gateway",
        );
    }
    match ip::<Link>(&format!("link show dev {dev}")).map(|mut links| links.pop()) {
        Ok(Some(link)) if link.mtu < LEAST_MTU => Finding::fault(
            format!("{dev} has an MTU of {}, the trunk wants {LEAST_MTU}", link.mtu),
            format!("ip link set {dev} mtu 1500, or at least {LEAST_MTU}"),
        ),
        Ok(Some(link)) => Finding::Fine(format!("by {dev}, MTU {}", link.mtu)),
        _ => Finding::Unknown(format!("{dev} tells nothing")),
    }
}

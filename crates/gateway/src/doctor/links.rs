//! Interfaces: whether they are up, how large their packets are, and what the kernel drops that
//! comes in by them.

use serde::Deserialize;

use super::system::{dotted, ip, setting};
use super::{Check, Finding};

/// The least MTU of IPv6 (RFC 8200, 5), which the trunk's packets want too.
const LEAST_MTU: u32 = 1280;

/// What `ip -j link` tells.
#[derive(Deserialize)]
struct Link {
    ifname: Option<String>,
    mtu: u32,
    flags: Vec<String>,
}

/// Whether there is one of this name, and it is up.
pub(super) fn towards_hosts(name: &str) -> Finding {
    match ip::<Link>(&format!("link show dev {name}")).map(|mut links| links.pop()) {
        Ok(Some(link)) => dead(name, &link)
            .unwrap_or_else(|| Finding::Fine(format!("{name} is up, MTU {}", link.mtu))),
        Ok(None) | Err(_) => Finding::fault(
            format!("there is no {name}"),
            "name the interfaces towards this side's hosts in intercept.interfaces (`ip link`)",
        ),
    }
}

/// Whether the trunk's packets fit it.
pub(super) fn towards_gateway(name: &str) -> Finding {
    match ip::<Link>(&format!("link show dev {name}")).map(|mut links| links.pop()) {
        Ok(Some(link)) if link.mtu < LEAST_MTU => Finding::fault(
            format!("{name} has an MTU of {}, the trunk wants {LEAST_MTU}", link.mtu),
            format!("ip link set {name} mtu 1500, or at least {LEAST_MTU}"),
        ),
        Ok(Some(link)) => dead(name, &link)
            .unwrap_or_else(|| Finding::Fine(format!("by {name}, MTU {}", link.mtu))),
        _ => Finding::Unknown(format!("{name} tells nothing")),
    }
}

fn dead(name: &str, link: &Link) -> Option<Finding> {
    let is = |wanted: &str| link.flags.iter().any(|flag| flag == wanted);
    if !is("UP") {
        return Some(Finding::fault(format!("{name} is down"), format!("ip link set {name} up")));
    }
    is("NO-CARRIER").then(|| {
        let mend = "see to the cable, or to the other end of the link";
        Finding::fault(format!("{name} has no carrier"), mend)
    })
}

/// Reverse path filters: of these interfaces, or of all where none are known.
pub(super) fn filters<'a>(names: impl Iterator<Item = &'a String>) -> Vec<Check> {
    let check = |finding| Check { name: "reverse path filter", finding };
    let known: Vec<_> = names.map(|name| check(filter(name))).collect();
    if !known.is_empty() {
        return known;
    }
    let up = ip::<Link>("link show up").unwrap_or_default();
    let names = up.into_iter().filter_map(|link| link.ifname).filter(|name| name != "lo");
    let all: Vec<_> = names.map(|name| filter(&name)).collect();
    let fine = || Finding::Fine("strict on no interface".into());
    vec![check(all.into_iter().find(Finding::is_fault).unwrap_or_else(fine))]
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

//! The configuration file (TOML) of one gateway of a pair.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use units::Rate;

use crate::request::Share;

/// The trunk's port, unless another is named.
pub const DEFAULT_PORT: u16 = 7273;

/// Other gateways that one calls.
const MAX_PEERS: usize = 8;

/// One gateway. Both of a pair have the same kinds of settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The trunk between the two gateways.
    pub trunk: Trunk,
    /// Which connections are taken from hosts on this side.
    pub intercept: Option<Intercept>,
    /// Where connections from the other side may go.
    #[serde(default)]
    pub deliver: Deliver,
    /// An explicit proxy for programs on this side.
    pub proxy: Option<Proxy>,
    /// A web page that shows what the gateway does.
    pub web: Option<Web>,
}

/// The trunk.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trunk {
    /// Where the other gateway's trunk is accepted.
    pub listen: Option<SocketAddr>,
    /// The other gateway, if this one is to call it; only one of a pair does.
    pub peer: Option<SocketAddr>,
    /// Gateways that stand in for it, in the order in which they are preferred.
    #[serde(default)]
    pub standby: Vec<SocketAddr>,
    /// A file with a key that both share (`longhaul keygen --shared FILE`).
    pub key: Option<PathBuf>,
    /// The other gateway's public key, as `longhaul fingerprint` prints it there; this side proves
    /// itself by its own identity.
    pub peer_key: Option<String>,
    /// The rate that everything together keeps to; without it the path's is found.
    #[serde(default, deserialize_with = "rate")]
    pub rate: Option<Rate>,
    /// How long connections outlast a trunk that carries nothing; seconds.
    #[serde(default = "minute")]
    pub wait: u64,
}

impl Trunk {
    /// Whom to call, the preferred one first.
    pub(crate) fn peers(&self) -> Vec<SocketAddr> {
        self.peer.iter().chain(&self.standby).copied().collect()
    }
}

fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Rate>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

fn minute() -> u64 {
    60
}

/// Which connections are taken: all that come in by these interfaces, to these networks and ports.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intercept {
    /// Interfaces towards the hosts of this side.
    pub interfaces: Vec<String>,
    /// Networks on the other side of the trunk.
    #[serde(default = "everywhere")]
    pub to: Vec<IpNet>,
    /// Networks that are left alone all the same.
    #[serde(default)]
    pub except: Vec<IpNet>,
    /// Ports of the servers.
    #[serde(default = "all_ports")]
    pub ports: Vec<Ports>,
    /// Ports where the client is answered at once, a round trip sooner: it then takes a server that
    /// refuses for one that hangs up.
    #[serde(default)]
    pub early: Vec<Ports>,
    /// Ports whose bytes go first.
    #[serde(default = "interactive")]
    pub interactive: Vec<Ports>,
    /// Connections that get more of the trunk than their client's others; the first that fits
    /// counts.
    #[serde(default)]
    pub weights: Vec<Weight>,
    /// The netfilter queue to use.
    #[serde(default = "queue")]
    pub queue: u16,
    /// The port on which the kernel hands connections over.
    #[serde(default = "divert_port")]
    pub port: u16,
}

/// Which connections have a weight, and what it is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    /// Networks of the servers.
    #[serde(default = "everywhere")]
    pub to: Vec<IpNet>,
    /// Ports of the servers.
    #[serde(default = "all_ports")]
    pub ports: Vec<Ports>,
    /// So many times the share of one that has none.
    pub weight: NonZeroU8,
}

impl Intercept {
    /// What a connection to this server gets of the trunk.
    pub(crate) fn share(&self, server: SocketAddr) -> Share {
        let among = |all: &[Ports]| all.iter().any(|ports| ports.contain(server.port()));
        let inside = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&server.ip()));
        let weight = self.weights.iter().find(|it| among(&it.ports) && inside(&it.to));
        let weight = weight.map_or(NonZeroU8::MIN, |it| it.weight);
        Share { interactive: among(&self.interactive), weight }
    }
}

fn everywhere() -> Vec<IpNet> {
    vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())]
}

fn all_ports() -> Vec<Ports> {
    vec![Ports { first: 1, last: u16::MAX }]
}

/// Where people type and wait: ssh, telnet, remote desktops.
fn interactive() -> Vec<Ports> {
    [22, 23, 3389, 5900].map(|port| Ports { first: port, last: port }).to_vec()
}

fn queue() -> u16 {
    7273
}

fn divert_port() -> u16 {
    7274
}

/// Where connections from the other side may go, and by which address.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deliver {
    /// Networks that may be connected to.
    #[serde(default = "everywhere")]
    pub to: Vec<IpNet>,
    /// Networks that may not.
    #[serde(default)]
    pub except: Vec<IpNet>,
    /// Servers see the client's own address and port, as without gateways; what they answer must
    /// come back by way of this one.
    #[serde(default = "yes")]
    pub from_client: bool,
}

fn yes() -> bool {
    true
}

impl Default for Deliver {
    fn default() -> Self {
        Self { to: everywhere(), except: Vec::new(), from_client: true }
    }
}

/// A proxy: SOCKS5 (RFC 1928) and HTTP CONNECT (RFC 9110, 9.3.6), told apart by the first byte.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// Where it listens; it asks nobody for a password.
    pub listen: SocketAddr,
}

/// A web page, with the same status as JSON and for Prometheus.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Web {
    /// Where it is served, to whoever can reach that.
    #[serde(default = "web_address")]
    pub listen: SocketAddr,
}

fn web_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 7275).into()
}

/// A port, or a range of them: `80`, `"8000-8099"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last, itself included.
    pub last: u16,
}

impl Ports {
    /// Whether this port is among them.
    pub fn contain(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(Self { first, last }),
            _ => Err(format!("{text:?} is no port: write 443 or \"8000-8099\"")),
        }
    }
}

impl<'de> Deserialize<'de> for Ports {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Spelling {
            Number(u16),
            Text(String),
        }
        let text = match Spelling::deserialize(from)? {
            Spelling::Number(port) => port.to_string(),
            Spelling::Text(text) => text,
        };
        text.parse().map_err(D::Error::custom)
    }
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not as it should be written; the text names the line.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// The settings do not go together.
    #[error("{0}")]
    Contradiction(&'static str),
}

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)?;
        config.contradiction().map_or(Ok(config), |told| Err(ConfigError::Contradiction(told)))
    }
}

impl Config {
    /// Whether packets of hosts are to pass this one.
    pub(crate) fn is_transparent(&self) -> bool {
        self.intercept.is_some() || self.deliver.from_client
    }

    /// Whether some of them are IPv6's.
    pub(crate) fn passes_v6(&self) -> bool {
        let v6 = |nets: &[IpNet]| nets.iter().any(|net| matches!(net, IpNet::V6(_)));
        let delivered = self.deliver.from_client && v6(&self.deliver.to);
        delivered || self.intercept.as_ref().is_some_and(|intercept| v6(&intercept.to))
    }

    fn contradiction(&self) -> Option<&'static str> {
        let trunk = &self.trunk;
        let names = self.intercept.iter().flat_map(|intercept| &intercept.interfaces);
        let mut seen = BTreeSet::new();
        if trunk.listen.is_none() && trunk.peer.is_none() {
            return Some("trunk: name `peer`, the other gateway, or `listen`, where it calls");
        }
        if trunk.listen.is_some() && trunk.peer.is_some() {
            return Some("trunk: name `peer` on one gateway and `listen` on the other");
        }
        if trunk.peer.is_none() && !trunk.standby.is_empty() {
            return Some("trunk.standby: name `peer`, for which they stand in");
        }
        if trunk.standby.len() >= MAX_PEERS {
            return Some("trunk.standby: a few are enough");
        }
        if trunk.key.is_some() == trunk.peer_key.is_some() {
            return Some("trunk: name either `key`, a file both share, or `peer_key`");
        }
        for name in names {
            let fit = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
            if name.is_empty() || name.len() > 15 || !name.chars().all(fit) {
                return Some("intercept.interfaces: no name of an interface");
            }
            if !seen.insert(name) {
                return Some("intercept.interfaces: a name stands there twice");
            }
        }
        self.intercept
            .as_ref()
            .is_some_and(|intercept| intercept.interfaces.is_empty())
            .then_some("intercept.interfaces: name those towards the hosts of this side")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "[trunk]\npeer = \"192.0.2.1:7273\"\nkey = \"k\"\n";

    #[test]
    fn little_is_needed() {
        let config: Config =
            format!("{LEAST}[intercept]\ninterfaces = [\"lan0\"]").parse().unwrap();
        let intercept = config.intercept.unwrap();
        assert!(intercept.ports[0].contain(443) && intercept.early.is_empty());
        assert!(config.deliver.from_client && config.deliver.to.len() == 2);
    }

    #[test]
    fn the_handbook_speaks_of_settings_that_there_are() {
        let book = include_str!("../../../docs/book/gateway.md");
        let examples =
            book.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        let read: Vec<Config> = examples.map(|text| text.parse().unwrap()).collect();
        assert_eq!(read.len(), 3);
        let all = read[2].intercept.as_ref().unwrap();
        assert_eq!((all.weights[0].weight.get(), all.early[0].first), (4, 80));
    }

    #[test]
    fn ipv6_passes_where_it_is_taken_or_delivered() {
        for (text, v6) in [
            ("", true),
            ("[deliver]\nto = [\"10.0.0.0/8\"]", false),
            ("[deliver]\nfrom_client = false", false),
            ("[deliver]\nfrom_client = false\n[intercept]\ninterfaces = [\"a\"]", true),
        ] {
            let config: Config = format!("{LEAST}{text}").parse().unwrap();
            assert_eq!(config.passes_v6(), v6, "{text}");
        }
    }

    #[test]
    fn the_first_weight_that_fits_counts() {
        let text = format!(
            "{LEAST}[intercept]\ninterfaces = [\"a\"]\n\
             [[intercept.weights]]\nports = [873]\nto = [\"10.0.0.0/8\"]\nweight = 4\n\
             [[intercept.weights]]\nports = [\"800-900\"]\nweight = 2"
        );
        let intercept = text.parse::<Config>().unwrap().intercept.unwrap();
        let share = |server: &str| intercept.share(server.parse().unwrap());
        for (server, weight) in
            [("10.1.1.1:873", 4), ("11.1.1.1:873", 2), ("10.1.1.1:80", 1), ("10.1.1.1:22", 1)]
        {
            assert_eq!(share(server).weight.get(), weight, "{server}");
        }
        assert!(share("10.1.1.1:22").interactive && !share("10.1.1.1:873").interactive);
        assert!(text.replace("= 2", "= 0").parse::<Config>().is_err());
    }

    #[test]
    fn ports_are_numbers_or_ranges() {
        let text = format!("{LEAST}[intercept]\ninterfaces = [\"a\"]\nports = [80, \"8000-8099\"]");
        let ports = text.parse::<Config>().unwrap().intercept.unwrap().ports;
        assert_eq!(ports, [Ports { first: 80, last: 80 }, Ports { first: 8000, last: 8099 }]);
        for wrong in ["0", "9-8", "http", "65536", ""] {
            assert!(wrong.parse::<Ports>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_work_is_told() {
        for (text, told) in [
            ("[trunk]\nkey = \"k\"", "name `peer`"),
            ("[trunk]\npeer = \"192.0.2.1:1\"", "either `key`"),
            ("[trunk]\npeer = \"192.0.2.1:1\"\nlisten = \"[::]:1\"", "on one gateway"),
            (&format!("{LEAST}[intercept]\ninterfaces = []"), "name those towards"),
            (&format!("{LEAST}[intercept]\ninterfaces = [\"a\\\" x\"]"), "no name"),
            (&format!("{LEAST}colour = 1"), "unknown field"),
        ] {
            let error = text.parse::<Config>().unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}

//! The configuration file (TOML) of one gateway of a pair.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use net::{Credentials, Identity, PublicKey};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use units::Rate;

use crate::request::{Share, Target};

mod ports;

pub use self::ports::Ports;

/// The trunk's port, unless another is named.
pub const DEFAULT_PORT: u16 = 7273;

/// The kernel's bound (TCP_KEEPIDLE).
const MAX_KEEPALIVE: NonZeroU16 = NonZeroU16::new(32_767).unwrap();

/// Other gateways that one calls.
const MAX_PEERS: usize = 8;

/// One gateway. Both of a pair have the same kinds of settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `status` and the web page show what hosts are called, as far as this host's resolver knows.
    #[serde(default = "yes")]
    pub names: bool,
    /// A host that says nothing for so long is asked whether it is still there; seconds.
    #[serde(default = "ten_minutes")]
    pub keepalive: NonZeroU16,
    /// The trunk between the two gateways.
    pub trunk: Trunk,
    /// Which connections are taken from hosts on this side.
    pub intercept: Option<Intercept>,
    /// Where connections from the other side may go.
    #[serde(default)]
    pub deliver: Deliver,
    /// The explicit ways to the trunk, for programs on this side.
    pub proxy: Option<Proxy>,
    /// A web page that shows what the gateway does.
    pub web: Option<Web>,
}

fn yes() -> bool {
    true
}

fn ten_minutes() -> NonZeroU16 {
    const { NonZeroU16::new(600).unwrap() }
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
    /// An address that the gateways of this side share, of which one has it at a time (VRRP): the
    /// others stand by.
    pub virtual_address: Option<IpAddr>,
    /// A file with a key that both share (`longhaul keygen --shared FILE`).
    pub key: Option<PathBuf>,
    /// The other gateway's public key, as `longhaul fingerprint` prints it there; this side proves
    /// itself by its own identity. Where several call, the keys of all that may; of several that are
    /// called, one that all have, or each one's.
    #[serde(default, deserialize_with = "public_keys")]
    pub peer_key: Vec<PublicKey>,
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

    /// What a gateway of this identity proves itself with, and whom it believes.
    pub fn credentials(&self, identity: Identity) -> Credentials {
        match (self.peer, self.peer_key.first()) {
            (Some(_), Some(key)) => Credentials::client(identity, *key),
            _ => {
                let keys = self.peer_key.clone();
                Credentials::server(identity, Arc::new(move |key| keys.contains(key)))
            }
        }
    }

    /// The same to call this peer.
    pub(crate) fn credentials_for(&self, peer: SocketAddr, own: &Credentials) -> Credentials {
        let rank = self.peers().iter().position(|it| *it == peer);
        match (own, rank.and_then(|rank| self.peer_key.get(rank))) {
            (Credentials::Static { identity, .. }, Some(key)) => {
                Credentials::client(identity.clone(), *key)
            }
            _ => own.clone(),
        }
    }
}

/// One, or a list of them.
fn public_keys<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PublicKey>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Spelling {
        One(String),
        Many(Vec<String>),
    }
    let texts = match Spelling::deserialize(from)? {
        Spelling::One(text) => vec![text],
        Spelling::Many(texts) => texts,
    };
    let key = |text: &String| text.split_whitespace().next().unwrap_or_default().parse();
    texts.iter().map(key).collect::<Result<_, _>>().map_err(D::Error::custom)
}

fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Rate>, D::Error> {
    let rate: Rate = String::deserialize(from)?.parse().map_err(D::Error::custom)?;
    let is_some = rate > Rate::ZERO;
    let wrong = || D::Error::custom("a rate above 0 is wanted, as in 100mbit");
    is_some.then_some(Some(rate)).ok_or_else(wrong)
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
    /// Ports that are left alone all the same.
    #[serde(default)]
    pub except_ports: Vec<Ports>,
    /// This host's own connections are taken too, but for the gateway's.
    #[serde(default)]
    pub own: bool,
    /// Ports where the client is answered at once, a round trip sooner: it then takes a server that
    /// refuses for one that hangs up, and one that the far gateway cannot connect sees this
    /// gateway's address.
    #[serde(default)]
    pub early: Vec<Ports>,
    /// Ports whose bytes go first.
    #[serde(default = "interactive")]
    pub interactive: Vec<Ports>,
    /// Connections that get more of the trunk than their client's others; the first that fits
    /// counts.
    #[serde(default)]
    pub weights: Vec<Weight>,
    /// Connections of one client that are taken at a time; those beyond go direct.
    #[serde(default = "per_client")]
    pub per_client: NonZeroU16,
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

/// What a connection to this server gets of the trunk, whether it was taken or asked for.
pub(crate) fn share(settings: Option<&Intercept>, server: &Target) -> Share {
    let (host, port) = match server {
        Target::Address(address) => (Some(address.ip()), address.port()),
        Target::Name(_, port) => (None, *port),
        Target::Nobody => return Share::default(),
    };
    let among = |all: &[Ports]| all.iter().any(|ports| ports.contain(port));
    // Only the other gateway knows where a name is: networks that are not everywhere do not fit it.
    let fits = |net: &IpNet| host.map_or(net.prefix_len() == 0, |host| net.contains(&host));
    let weights = settings.map_or(&[][..], |settings| &settings.weights[..]);
    let weight = weights.iter().find(|it| among(&it.ports) && it.to.iter().any(fits));
    Share {
        interactive: settings.map_or_else(|| among(&interactive()), |it| among(&it.interactive)),
        weight: weight.map_or(NonZeroU8::MIN, |it| it.weight),
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

/// If nobody read on any of them, their first credits would hold a quarter of the trunk's memory.
fn per_client() -> NonZeroU16 {
    const { NonZeroU16::new(1 << 11).unwrap() }
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
    /// come back by way of this one. If nothing is said, so it is where this process may do it.
    pub from_client: Option<bool>,
}

impl Deliver {
    /// Whether servers are to see clients' addresses.
    pub(crate) fn stands_in(&self) -> bool {
        self.from_client.unwrap_or(true)
    }
}

impl Default for Deliver {
    fn default() -> Self {
        Self { to: everywhere(), except: Vec::new(), from_client: None }
    }
}

/// The explicit ways to the trunk, which ask nobody for a password.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// Where programs name their server: by SOCKS5 (RFC 1928) or HTTP CONNECT (RFC 9110, 9.3.6),
    /// told apart by the first byte.
    pub listen: Option<SocketAddr>,
    /// Addresses here that lead to one server each.
    #[serde(default)]
    pub forward: Vec<Forward>,
}

/// An address here that leads to a server there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forward {
    /// Where it is taken for the server.
    pub listen: SocketAddr,
    /// The server; the other gateway looks its name up.
    #[serde(deserialize_with = "server")]
    pub(crate) to: Target,
}

fn server<'de, D: Deserializer<'de>>(from: D) -> Result<Target, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

impl Proxy {
    /// Where it listens, and for which server if clients name none.
    pub(crate) fn doors(&self) -> impl Iterator<Item = (SocketAddr, Option<&Target>)> {
        let forwards = self.forward.iter().map(|it| (it.listen, Some(&it.to)));
        self.listen.map(|address| (address, None)).into_iter().chain(forwards)
    }
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
    /// How long a host may say nothing.
    pub(crate) fn keepalive(&self) -> Duration {
        Duration::from_secs(self.keepalive.get().into())
    }

    /// Whether packets of hosts are to pass this one.
    pub(crate) fn is_transparent(&self) -> bool {
        self.intercept.is_some() || self.deliver.stands_in()
    }

    /// The same for a process that may not administer the network, if it can do without and was not
    /// told that servers must see clients' addresses.
    pub(crate) fn rootless(&self) -> Option<Self> {
        let free = self.intercept.is_none() && self.deliver.from_client.is_none();
        let deliver = Deliver { from_client: Some(false), ..self.deliver.clone() };
        free.then(|| Self { deliver, ..self.clone() })
    }

    /// Whether some of them are IPv6's.
    pub(crate) fn passes_v6(&self) -> bool {
        let v6 = |nets: &[IpNet]| nets.iter().any(|net| matches!(net, IpNet::V6(_)));
        let delivered = self.deliver.stands_in() && v6(&self.deliver.to);
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
        if self.keepalive > MAX_KEEPALIVE {
            return Some("keepalive: at most 32767, some nine hours");
        }
        if trunk.key.is_some() != trunk.peer_key.is_empty() {
            return Some("trunk: name either `key`, a file both share, or `peer_key`");
        }
        if trunk.peer.is_some() && ![0, 1, trunk.peers().len()].contains(&trunk.peer_key.len()) {
            return Some(
                "trunk.peer_key: name one key, or as many as gateways: of `peer` and each of `standby`",
            );
        }
        if let Some(proxy) = &self.proxy {
            let mut seen = BTreeSet::new();
            if proxy.doors().next().is_none() {
                return Some("proxy: name `listen`, where programs ask, or a [[proxy.forward]]");
            }
            if !proxy.doors().all(|(address, _)| seen.insert(address)) {
                return Some("proxy: an address to listen at stands there twice");
            }
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
            .is_some_and(|intercept| intercept.interfaces.is_empty() && !intercept.own)
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
        assert!(config.deliver.stands_in() && config.deliver.to.len() == 2);
    }

    #[test]
    fn the_handbook_speaks_of_settings_that_there_are() {
        let read = |book: &str| -> Vec<Config> {
            let examples = book.split("```toml\n").skip(1);
            let examples = examples.map(|rest| rest.split("```").next().unwrap());
            examples.map(|text| text.parse().unwrap()).collect()
        };
        let pairs = read(include_str!("../../../docs/book/gateway-pairs.md"));
        assert!(pairs.len() == 2 && pairs.iter().all(|it| it.trunk.virtual_address.is_some()));
        let read = read(include_str!("../../../docs/book/gateway.md"));
        assert_eq!(read.len(), 5);
        let all = read[4].intercept.as_ref().unwrap();
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
        let share_of = |server: &str| share(Some(&intercept), &server.parse().unwrap());
        for (server, weight) in [
            ("10.1.1.1:873", 4),
            ("11.1.1.1:873", 2),
            ("example.org:873", 2),
            ("10.1.1.1:80", 1),
            ("10.1.1.1:22", 1),
        ] {
            assert_eq!(share_of(server).weight.get(), weight, "{server}");
        }
        assert!(share_of("10.1.1.1:22").interactive && share_of("example.org:22").interactive);
        assert!(!share_of("10.1.1.1:873").interactive);
        // Where nothing is taken, ssh goes first all the same.
        let share_of = |server: &str| share(None, &server.parse().unwrap());
        assert!(share_of("example.org:22").interactive);
        assert_eq!(share_of("10.1.1.1:873"), Share::default());
        assert!(text.replace("= 2", "= 0").parse::<Config>().is_err());
    }

    #[test]
    fn without_rights_servers_see_the_gateway_unless_they_must_not() {
        let read = |text: &str| format!("{LEAST}{text}").parse::<Config>().unwrap();
        for text in ["", "[proxy]\nlisten = \"127.0.0.1:1080\"", "[deliver]\nto = [\"10.0.0.0/8\"]"]
        {
            assert!(read(text).is_transparent(), "{text}");
            assert!(!read(text).rootless().unwrap().is_transparent(), "{text}");
        }
        for text in [
            "[deliver]\nfrom_client = true",
            "[deliver]\nfrom_client = false",
            "[intercept]\ninterfaces = [\"a\"]",
        ] {
            assert!(read(text).rootless().is_none(), "{text}");
        }
    }

    #[test]
    fn forwards_lead_to_one_server_each() {
        let text = format!(
            "{LEAST}[[proxy.forward]]\nlisten = \"127.0.0.1:8080\"\nto = \"example.org:80\"\n\
             [[proxy.forward]]\nlisten = \"[::1]:8080\"\nto = \"[fd20::1]:22\""
        );
        let proxy = text.parse::<Config>().unwrap().proxy.unwrap();
        let doors = proxy.doors().map(|(at, to)| (at.to_string(), to.unwrap().to_string()));
        let expected = [("127.0.0.1:8080", "example.org:80"), ("[::1]:8080", "[fd20::1]:22")];
        assert!(doors.eq(expected.map(|(at, to)| (at.to_owned(), to.to_owned()))));
        let error = text.replace("example.org:80", "example.org").parse::<Config>().unwrap_err();
        assert!(error.to_string().contains("is no server"), "{error}");
    }

    #[test]
    fn ports_are_numbers_or_ranges() {
        let text = format!("{LEAST}[intercept]\ninterfaces = [\"a\"]\nports = [80, \"8000-8099\"]");
        let ports = text.parse::<Config>().unwrap().intercept.unwrap().ports;
        assert_eq!(ports, [Ports { first: 80, last: 80 }, Ports { first: 8000, last: 8099 }]);
        let text = text.replace("\nports", "\nexcept_ports");
        assert_eq!(text.parse::<Config>().unwrap().intercept.unwrap().except_ports, ports);
        for wrong in ["0", "9-8", "http", "65536", ""] {
            assert!(wrong.parse::<Ports>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_work_is_told() {
        let key = format!("\"x25519:{}\"", "0".repeat(64));
        for (text, told) in [
            ("[trunk]\nkey = \"k\"", "name `peer`"),
            ("[trunk]\npeer = \"192.0.2.1:1\"", "either `key`"),
            ("[trunk]\npeer = \"192.0.2.1:1\"\nlisten = \"[::]:1\"", "on one gateway"),
            (&format!("{LEAST}[intercept]\ninterfaces = []"), "name those towards"),
            (&format!("{LEAST}[intercept]\ninterfaces = [\"a\\\" x\"]"), "no name"),
            (&format!("{LEAST}colour = 1"), "unknown field"),
            (&LEAST.replace("key = \"k\"", "peer_key = []"), "either `key`"),
            (&LEAST.replace("key = \"k\"", "peer_key = [\"k\"]"), "longhaul fingerprint"),
            (&LEAST.replace("key = \"k\"", &format!("peer_key = [{key}, {key}]")), "as many as"),
            (&format!("keepalive = 0\n{LEAST}"), "nonzero"),
            (&format!("keepalive = 32768\n{LEAST}"), "at most 32767"),
            (&format!("{LEAST}[proxy]"), "or a [[proxy.forward]]"),
            (
                &format!(
                    "{LEAST}[proxy]\nlisten = \"[::1]:1080\"\n\
                     [[proxy.forward]]\nlisten = \"[::1]:1080\"\nto = \"a:1\""
                ),
                "twice",
            ),
        ] {
            let error = text.parse::<Config>().unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}

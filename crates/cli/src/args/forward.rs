//! The flags of `longhaul forward`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::{KeyFile, Sending, Striping, Transport};
use crate::address::{Location, Remote, Server};

/// Carry any TCP application to a server, over UDP or many TCP connections
///
/// Listens here, and lets the server connect to TARGET for every connection that comes: `longhaul
/// forward 8080 lh://far/127.0.0.1:80` shows the far host's web server at http://localhost:8080/.
/// The server runs `longhaul serve --forward 127.0.0.1:80`, and lets this side's key in. --rate-limit bounds all
/// connections together, in each direction by itself: what comes is read no faster.
#[derive(Args)]
pub struct Forward {
    /// Where applications connect to: PORT (of 127.0.0.1), or ADDR:PORT
    #[arg(value_name = "LOCAL", value_parser = local)]
    pub local: SocketAddr,
    /// The server, and what it connects to: `lh://HOST[:PORT]/TARGET:PORT`
    #[arg(value_name = "REMOTE")]
    pub remote: Destination,
    /// What carries the connections: udp, tcp (striped), or auto, which takes TCP where UDP does not
    /// pass, unless --cc, --background or --feedback ask for what UDP alone can do
    #[arg(long, hide_possible_values = true, default_value = "auto", value_parser = transports())]
    pub transport: Transport,
    #[command(flatten)]
    pub striping: Striping,
    #[command(flatten)]
    pub sending: Sending,
    /// Take an unknown server at its word and write its key into `known_hosts`
    #[arg(long)]
    pub accept_new: bool,
    #[command(flatten)]
    pub key: KeyFile,
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// A server, and a place as it sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub server: Server,
    /// `HOST:PORT`.
    pub target: String,
}

impl FromStr for Destination {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = match text.parse()? {
            Location::Remote(Remote { server, path }) => Some(server).zip(path.into_string().ok()),
            _ => None,
        };
        let found = found.filter(|(_, target)| crate::forward::place(target).is_some());
        found
            .map(|(server, target)| Self { server, target })
            .ok_or("write lh://HOST[:PORT]/TARGET:PORT, as in lh://far/127.0.0.1:80".into())
    }
}

/// Those that any application's connections can go by.
fn transports() -> impl TypedValueParser<Value = Transport> {
    PossibleValuesParser::new(["auto", "udp", "tcp"]).map(|word| match &word[..] {
        "udp" => Transport::Udp,
        "tcp" => Transport::Tcp,
        _ => Transport::Auto,
    })
}

fn local(text: &str) -> Result<SocketAddr, String> {
    let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let port = text.parse().ok().map(loopback);
    port.or_else(|| text.parse().ok())
        .ok_or_else(|| format!("'{text}' is neither a PORT nor an ADDR:PORT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        assert_eq!(local("80").unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(local("[::]:80").unwrap().to_string(), "[::]:80");
        assert!(local("far:80").is_err() && local("70000").is_err());
        let far: Destination = "lh://far:9/[::1]:80".parse().unwrap();
        assert_eq!((far.server.port, &*far.target), (9, "[::1]:80"));
        for bad in ["far:80", "lh://far", "lh://far/80", "lh://far/a:*"] {
            assert!(bad.parse::<Destination>().is_err(), "{bad}");
        }
    }
}

//! What the gateways say to each other at the beginning of a stream of the trunk: whom to connect,
//! and what came of it. A frame is a length (u16, little-endian) and that many bytes of postcard.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, io};

use net::udp::{UdpConnection, UdpStream};
use net::{Class, Priority};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest frame: a host's name and two addresses take less than half of it.
const MAX_FRAME: u16 = 1024;
/// So long one that asks may wait where nothing new goes over the trunk.
const CROWDED: Duration = Duration::from_secs(1);
/// It has waited so long.
pub(crate) const NO_ROOM: io::ErrorKind = io::ErrorKind::ResourceBusy;
/// The longest name of a host (RFC 1035, 2.3.4).
pub(crate) const MAX_NAME: usize = 255;

/// Whom to connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Who wants it, as seen by the gateway that asks.
    pub(crate) client: SocketAddr,
    /// To whom.
    pub(crate) server: Target,
    /// The client is not to notice a gateway: it meant this address, and its packets to there and
    /// back cross both gateways.
    pub(crate) transparent: bool,
    /// What it gets of the trunk, both ways.
    pub(crate) share: Share,
}

/// What a connection gets of the trunk, beside its client's others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    /// Its bytes go before those that are not.
    pub(crate) interactive: bool,
    /// In proportion to which it is served.
    pub(crate) weight: NonZeroU8,
}

impl Default for Share {
    fn default() -> Self {
        Self { interactive: false, weight: NonZeroU8::MIN }
    }
}

impl Share {
    /// Clients share the trunk evenly, however many connections each has (paper 2).
    pub(crate) fn priority(self, client: IpAddr) -> Priority {
        let class = if self.interactive { Class::Interactive } else { Class::Bulk };
        Priority { class, group: crate::host(client), weight: self.weight }
    }
}

/// To whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Target {
    /// An address.
    Address(SocketAddr),
    /// A host that the other gateway looks up, and its port.
    Name(String, u16),
    /// Nobody: what comes is thrown away, for it is a trial of the trunk.
    Nobody,
}

impl Target {
    /// A host, by its name or its address as people write it; none if nothing can be there.
    pub(crate) fn of(host: &str, port: u16) -> Option<Self> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.parse() {
            _ if port == 0 => None,
            Ok(address) => Some(Self::Address(SocketAddr::new(address, port))),
            Err(_) if host.is_empty() || host.len() > MAX_NAME => None,
            Err(_) => Some(Self::Name(host.to_owned(), port)),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = text.rsplit_once(':');
        let named = named.and_then(|(host, port)| Self::of(host, port.parse().ok()?));
        named.ok_or_else(|| format!("{text:?} is no server: write \"host:80\" or \"[fd20::1]:80\""))
    }
}

/// Who wants it chose the name: whatever it does to a terminal is left out.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Nobody => f.write_str("nobody"),
            Self::Name(name, port) => {
                let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
                write!(f, "{}:{port}", name.chars().map(plain).collect::<String>())
            }
        }
    }
}

/// What came of it; if nothing went wrong, the server's bytes follow.
pub(crate) type Reply = Result<(), Refusal>;

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The server refused (RST).
    #[error("the server refused")]
    Refused,
    /// There is no way to the host (ICMP host unreachable).
    #[error("the host cannot be reached")]
    HostUnreachable,
    /// There is no way to the network (ICMP network unreachable).
    #[error("the network cannot be reached")]
    NetworkUnreachable,
    /// A firewall forbids it (ICMP administratively prohibited), or the far gateway does.
    #[error("forbidden")]
    Prohibited,
    /// Nobody answered.
    #[error("no answer")]
    Silence,
    /// The host's name is not known.
    #[error("no such host")]
    NoSuchHost,
    /// The far gateway could not, for reasons of its own.
    #[error("the far gateway could not")]
    Failed,
}

/// Asks for a server over a trunk.
///
/// # Errors
/// When the trunk, or what is said over it, fails.
pub(crate) async fn ask(
    over: &UdpConnection,
    request: &Request,
) -> io::Result<Result<UdpStream, Refusal>> {
    let mut stream = over.open().await?;
    // It is little, whatever comes after it.
    let first = Share { interactive: true, ..request.share };
    stream.set_priority(first.priority(request.client.ip()));
    send(&mut stream, request).await?;
    let reply: Reply = receive(&mut stream).await?;
    stream.set_priority(request.share.priority(request.client.ip()));
    Ok(reply.map(|()| stream))
}

/// The same for a client that can go direct: not for long where nothing new goes over the trunk, and
/// then the error is of this kind.
///
/// # Errors
/// The same.
pub(crate) async fn ask_while_there_is_room(
    over: &UdpConnection,
    request: &Request,
) -> io::Result<Result<UdpStream, Refusal>> {
    let crowded = async {
        loop {
            tokio::time::sleep(CROWDED).await;
            if over.is_crowded() {
                return Err(NO_ROOM.into());
            }
        }
    };
    tokio::select! {
        answer = ask(over, request) => answer,
        crowded = crowded => crowded,
    }
}

pub(crate) async fn send(
    to: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let frame = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let length = u16::try_from(frame.len()).ok().filter(|length| *length <= MAX_FRAME);
    let length = length.ok_or(io::ErrorKind::InvalidInput)?;
    to.write_all(&[&length.to_le_bytes()[..], &frame].concat()).await
}

pub(crate) async fn receive<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<T> {
    let length = from.read_u16_le().await?;
    if length > MAX_FRAME {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut frame = vec![0; length.into()];
    from.read_exact(&mut frame).await?;
    postcard::from_bytes(&frame).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use net::Config;

    use super::*;
    use crate::trunk::tests::ends;

    fn bulk() -> Request {
        Request {
            client: "192.0.2.1:1".parse().unwrap(),
            server: Target::Address("192.0.2.2:2".parse().unwrap()),
            transparent: true,
            share: Share::default(),
        }
    }

    #[tokio::test]
    async fn a_request_goes_before_what_others_send() {
        let rate_limit = Some("1mbit".parse().unwrap());
        let (near, far, _endpoints) = ends(Config { rate_limit, ..Config::default() }).await;
        let mut others = Vec::new();
        for group in 0..200 {
            let mut stream = near.open().await.unwrap();
            stream.set_priority(Priority { group, ..Priority::default() });
            stream.write_all(&[0xff; 8192]).await.unwrap();
            others.push(stream);
        }
        let request = bulk();
        let asked = ask(&near, &request);
        let found = async {
            let mut before = 0;
            loop {
                let mut stream = far.accept().await.unwrap();
                if stream.read_u8().await.unwrap() != 0xff {
                    return before;
                }
                before += 1;
            }
        };
        tokio::select! {
            before = found => assert!(before < 150, "{before} before it"),
            _ = asked => panic!("nobody has answered"),
        }
    }

    #[tokio::test]
    async fn who_can_go_direct_does_not_wait_long_for_a_crowded_trunk() {
        let (near, _far, _endpoints) = ends(Config { max_streams: 64, ..Config::default() }).await;
        let mut others = Vec::new();
        while !near.is_crowded() {
            others.push(near.open().await.unwrap());
        }
        let answer = ask_while_there_is_room(&near, &bulk()).await;
        assert_eq!(answer.err().map(|error| error.kind()), Some(NO_ROOM));
        assert_eq!(others.len(), 64);
    }

    #[tokio::test]
    async fn frames_come_back_as_they_were() {
        let request = Request {
            client: "[2001:db8::1]:65535".parse().unwrap(),
            server: Target::Name("x".repeat(MAX_NAME), 80),
            transparent: true,
            share: Share { interactive: true, weight: NonZeroU8::MAX },
        };
        let (mut near, mut far) = tokio::io::duplex(2048);
        send(&mut near, &request).await.unwrap();
        send(&mut near, &Reply::Err(Refusal::Silence)).await.unwrap();
        assert_eq!(receive::<Request>(&mut far).await.unwrap(), request);
        assert_eq!(receive::<Reply>(&mut far).await.unwrap(), Err(Refusal::Silence));
    }

    #[test]
    fn names_do_nothing_to_a_terminal() {
        let shown = Target::Name("a\u{1b}[2J\r\n\u{9b}1m".into(), 80).to_string();
        assert_eq!(shown, "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}1m:80");
    }

    #[test]
    fn servers_are_addresses_or_names() {
        let address = |text: &str| Some(Target::Address(text.parse().unwrap()));
        for (text, server) in [
            ("192.0.2.1:80", address("192.0.2.1:80")),
            ("[2001:db8::1]:80", address("[2001:db8::1]:80")),
            ("example.org:443", Some(Target::Name("example.org".into(), 443))),
            ("example.org", None),
            ("example.org:0", None),
            ("example.org:65536", None),
            (":80", None),
            (&format!("{}:80", "x".repeat(MAX_NAME + 1)), None),
        ] {
            assert_eq!(text.parse().ok(), server, "{text}");
        }
    }

    #[tokio::test]
    async fn what_is_no_frame_is_refused_before_room_is_made_for_it() {
        for bytes in [&[0xff, 0xff, 1][..], &[2, 0, 9, 9], &[1]] {
            assert!(receive::<Request>(&mut &bytes[..]).await.is_err(), "{bytes:?}");
        }
    }
}

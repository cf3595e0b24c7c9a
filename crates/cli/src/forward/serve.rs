//! The server's end of forwarding: connects to targets that it was told to allow.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::pump::{prepare, pump};
use super::wire;

/// A target that has not answered by then counts as unreachable.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Addresses of a target that are tried: those of both families that a large service has.
const MAX_ADDRESSES: usize = 16;

/// What may be connected to, as in `127.0.0.1:80`, `db.example:*` or `*:22`. Names are compared as
/// they are written: a name allows none of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `None` for any.
    host: Option<String>,
    port: Option<u16>,
}

impl Target {
    fn allows(&self, host: &str, port: u16) -> bool {
        self.host.as_ref().is_none_or(|own| own.eq_ignore_ascii_case(host))
            && self.port.is_none_or(|own| own == port)
    }
}

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no target: write HOST:PORT; either may be *");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = match port {
            "*" => None,
            port => Some(port.parse().ok().filter(|&port| port != 0).ok_or_else(wrong)?),
        };
        let host = unbracketed(host).filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        Ok(Self { host: (host != "*").then(|| host.to_owned()), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) if host.contains(':') => write!(f, "[{host}]:")?,
            Some(host) => write!(f, "{host}:")?,
            None => write!(f, "*:")?,
        }
        match self.port {
            Some(port) => write!(f, "{port}"),
            None => write!(f, "*"),
        }
    }
}

/// An IPv6 address stands in brackets; anything else with a colon is none.
fn unbracketed(host: &str) -> Option<&str> {
    match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']'),
        None => (!host.contains(':')).then_some(host),
    }
}

/// A host and a port, as the client names them.
pub fn place(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port| port != 0)?;
    Some((unbracketed(host).filter(|host| !host.is_empty())?, port))
}

/// How a forwarded connection ended.
pub enum Outcome {
    /// Both directions came to their end.
    Done,
    /// The target was not connected, for this reason.
    Refused(String),
    /// One of the two gave up.
    Cut(io::Error),
}

/// Serves one connection behind [`wire::FORWARD`]; gives the target, too. All of `lists` must allow
/// it.
pub async fn forward(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    lists: &[&[Target]],
) -> (String, Outcome) {
    let target = match wire::target(&mut stream).await {
        Ok(target) => target,
        Err(error) => return (String::new(), Outcome::Cut(error)),
    };
    let outcome = match connect(&target, lists).await {
        Ok(socket) => match wire::answer(&mut stream, "").await {
            Ok(()) => pump(socket, stream).await.map_or_else(Outcome::Cut, |()| Outcome::Done),
            Err(error) => Outcome::Cut(error),
        },
        Err(reason) => {
            let told = wire::answer(&mut stream, &reason).await;
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
            told.map_or_else(Outcome::Cut, |()| Outcome::Refused(reason))
        }
    };
    (target, outcome)
}

/// Whether each of these lists allows a host and a port.
pub fn are_allowed(lists: &[&[Target]], (host, port): (&str, u16)) -> bool {
    lists.iter().all(|list| list.iter().any(|one| one.allows(host, port)))
}

async fn connect(target: &str, lists: &[&[Target]]) -> Result<TcpStream, String> {
    let (host, port) = place(target).ok_or_else(|| format!("{target:?} is no HOST:PORT"))?;
    if !are_allowed(lists, (host, port)) {
        return Err(format!(
            "this server does not forward to {target}: it would have to run with --forward \
             {target}, and a forward= of the key to name it too"
        ));
    }
    let socket = match timeout(CONNECT_TIME, lookup_host((host, port))).await {
        Ok(Ok(addresses)) => reach(target, addresses, CONNECT_TIME).await?,
        Ok(Err(error)) => return Err(format!("{target} cannot be reached: {error}")),
        Err(_) => return Err(format!("{target} cannot be reached: its name is not found in time")),
    };
    match prepare(&socket) {
        Ok(()) => Ok(socket),
        Err(error) => Err(format!("{target} was lost at once: {error}")),
    }
}

/// Tries the first of a target's addresses in turn, each for so long: at some nobody may be.
async fn reach(
    target: &str,
    addresses: impl Iterator<Item = SocketAddr>,
    time: Duration,
) -> Result<TcpStream, String> {
    let mut reason = format!("{target} cannot be reached: its name has no address");
    for address in addresses.take(MAX_ADDRESSES) {
        reason = match timeout(time, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                format!("{target} refused the connection")
            }
            Ok(Err(error)) => format!("{target} cannot be reached: {error}"),
            Err(_) => format!("{target} does not answer within {} s", time.as_secs()),
        };
    }
    Err(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_allow_what_they_name() {
        let allows = |target: &str, place: &str| {
            let target: Target = target.parse().unwrap();
            assert_eq!(target.to_string().parse(), Ok(target.clone()));
            let (host, port) = super::place(place).unwrap();
            target.allows(host, port)
        };
        assert!(allows("127.0.0.1:80", "127.0.0.1:80") && !allows("127.0.0.1:80", "127.0.0.1:81"));
        assert!(allows("Web:*", "web:9") && !allows("web:*", "127.0.0.1:9"));
        assert!(allows("*:22", "[::1]:22") && allows("[::1]:22", "[::1]:22"));
        for bad in ["80", "host", "host:", ":80", "::1:80", "host:0", "host:x", "[::1:80"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
        assert_eq!(place("a:*"), None);
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_takes_no_time_from_the_next() {
        const TIME: Duration = Duration::from_secs(1);
        // A queue that is full takes no further connection, and refuses none.
        let silent =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        silent.listen(0).unwrap();
        let nobody = silent.local_addr().unwrap().as_socket().unwrap();
        let waiting = || std::net::TcpStream::connect_timeout(&nobody, Duration::from_millis(100));
        let _waiting = Vec::from_iter(std::iter::from_fn(|| waiting().ok()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let somebody = listener.local_addr().unwrap();
        let reached = reach("far:1", [nobody, somebody].into_iter(), TIME).await.unwrap();
        assert_eq!(reached.peer_addr().unwrap(), somebody);
        drop(listener);
        let refused = reach("far:1", [nobody, somebody].into_iter(), TIME).await.unwrap_err();
        assert_eq!(refused, "far:1 refused the connection");
        let silence = reach("far:1", [nobody].into_iter(), TIME).await.unwrap_err();
        assert_eq!(silence, "far:1 does not answer within 1 s");
    }

    #[tokio::test]
    async fn of_hundreds_of_addresses_some_are_tried() {
        let bind = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (listener, closed) = (bind(), bind().local_addr().unwrap());
        let open = listener.local_addr().unwrap();
        let among = |count| std::iter::repeat_n(closed, count).chain([open]);
        assert!(reach("far:1", among(MAX_ADDRESSES - 1), CONNECT_TIME).await.is_ok());
        let refused = reach("far:1", among(MAX_ADDRESSES), CONNECT_TIME).await.unwrap_err();
        assert_eq!(refused, "far:1 refused the connection");
    }
}

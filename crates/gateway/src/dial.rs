//! The far gateway: connects whom the near one asks for, and says what came of it. The near one
//! connects those itself who asked it while the far one cannot.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use ipnet::IpNet;
use net::udp::UdpStream;
use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, lookup_host};

use crate::config::Deliver;
use crate::request::{Refusal, Reply, Request, Target, receive, send};
use crate::rules::mark;
use crate::sight::{Book, Side};
use crate::splice::{End, Passed, splice};

/// As long as TCP's SYNs are worth waiting for: a client gives up after about two minutes.
const PATIENCE: Duration = Duration::from_secs(75);
/// Attempts to connect while another connection between the same addresses and ports ends, which is a
/// matter of a round trip, and the time between them.
const CHANGEOVER: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(20);
/// Addresses of a name that are tried: those of both families that a large service has.
const MAX_ADDRESSES: usize = 16;
/// The longest trial of a trunk.
const TRIAL: Duration = Duration::from_secs(10);

/// Serves one stream of the trunk; calls `tried` if that is only to be tried.
///
/// # Errors
/// When the stream says nothing that can be understood, or ends before; when a trial takes too long.
pub(crate) async fn serve(
    (deliver, keepalive): (&Deliver, Duration),
    mut stream: UdpStream,
    book: &Book,
    tried: impl FnOnce(),
) -> io::Result<(Request, Result<Passed, Refusal>)> {
    let request: Request = tokio::time::timeout(PATIENCE, receive(&mut stream)).await??;
    stream.set_priority(request.share.priority(request.client.ip()));
    if request.server == Target::Nobody {
        tried();
        send(&mut stream, &Reply::Ok(())).await?;
        let mut nobody = tokio::io::sink();
        let taken = tokio::io::copy(&mut stream, &mut nobody);
        let taken = tokio::time::timeout(TRIAL, taken).await??;
        return Ok((request, Ok(Passed { bytes: (taken, 0), whole: true, ..Passed::default() })));
    }
    // One more that nobody reads would hold up all the others.
    let connected = if stream.is_crowded() {
        Err(Refusal::Failed)
    } else {
        tokio::select! {
            connected = connect(deliver, &request) => connected,
            // Nothing is said before the answer: who asked has given it up, or is no more. A socket at the
            // client's address would be in the way of the client itself, which goes direct now.
            _ = stream.read_u8() => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
    };
    match connected {
        Ok(mut server) => {
            prepare(&server, keepalive)?;
            server.cut_when_dropped();
            send(&mut stream, &Reply::Ok(())).await?;
            let entry = book.enter(Side::Far, request.client, request.server.to_string());
            Ok((request, Ok(splice(stream, server, entry.counters()).await)))
        }
        Err(refusal) => {
            send(&mut stream, &Reply::Err(refusal)).await?;
            tokio::io::AsyncWriteExt::shutdown(&mut stream).await?;
            Ok((request, Err(refusal)))
        }
    }
}

/// Connects a server that the other gateway does not, for a client that asked this one.
pub(crate) async fn direct(server: &Target) -> Result<TcpStream, Refusal> {
    let mut refusal = Refusal::Failed;
    // Whoever named a loopback address meant the other gateway's, not this one's.
    for server in addresses(server, &Deliver::default()).await? {
        match patiently(as_ourselves(server)).await {
            Ok(stream) => return Ok(stream),
            Err(error) => refusal = reason(&error),
        }
    }
    Err(refusal)
}

/// Where a server may be found, as far as the settings allow that.
async fn addresses(server: &Target, deliver: &Deliver) -> Result<Vec<SocketAddr>, Refusal> {
    match server {
        Target::Address(address) => Ok(to_try([*address], deliver)),
        Target::Name(name, port) => {
            let found = lookup_host((name.as_str(), *port)).await;
            found.map(|found| to_try(found, deliver)).map_err(|_| Refusal::NoSuchHost)
        }
        Target::Nobody => Err(Refusal::NoSuchHost),
    }
}

/// So many of those that the settings allow, as these and the kernel know them: an IPv4 address in IPv6's clothes
/// is the IPv4 address.
fn to_try(found: impl IntoIterator<Item = SocketAddr>, deliver: &Deliver) -> Vec<SocketAddr> {
    let canonical = |mut address: SocketAddr| {
        address.set_ip(address.ip().to_canonical());
        address
    };
    let found = found.into_iter().map(canonical).filter(|address| deliver.allows(address.ip()));
    found.take(MAX_ADDRESSES).collect()
}

async fn connect(deliver: &Deliver, request: &Request) -> Result<TcpStream, Refusal> {
    let mut refusal = Refusal::Prohibited;
    for server in addresses(&request.server, deliver).await? {
        let is_named = deliver.names(server.ip()) && !stands_in(deliver, request, server);
        if !is_named && is_own(server).unwrap_or(false) {
            // Who has a way to this host needs no gateway for it; and what it answers to whom we would stand in for goes to
            // himself.
            refusal = Refusal::Failed;
            continue;
        }
        match dial(deliver, request, server).await {
            Ok(stream) => return Ok(stream),
            Err(error) => refusal = reason(&error),
        }
    }
    Err(refusal)
}

/// Whether the server is to see the client's own address.
fn stands_in(deliver: &Deliver, request: &Request, server: SocketAddr) -> bool {
    request.transparent && deliver.stands_in() && same_family(request.client, server)
}

async fn dial(deliver: &Deliver, request: &Request, server: SocketAddr) -> io::Result<TcpStream> {
    match stands_in(deliver, request, server) {
        true => patiently(stand_in(request.client, server)).await,
        false => patiently(as_ourselves(server)).await,
    }
}

/// As long as it is worth waiting.
async fn patiently(connect: impl Future<Output = io::Result<TcpStream>>) -> io::Result<TcpStream> {
    tokio::time::timeout(PATIENCE, connect).await?
}

/// Connects from an address of this host. Its own connections may be taken too, but for these.
async fn as_ourselves(server: SocketAddr) -> io::Result<TcpStream> {
    net::transparent::connect_marked(server, mark::PASSED).await
}

/// Connects as the client. Its last connection from the same port may be about to end here.
async fn stand_in(client: SocketAddr, server: SocketAddr) -> io::Result<TcpStream> {
    let mut attempts = 0;
    loop {
        match net::transparent::connect(client, server, mark::OURS).await {
            Err(error)
                if error.kind() == io::ErrorKind::AddrNotAvailable && attempts < CHANGEOVER =>
            {
                attempts += 1;
                tokio::time::sleep(BETWEEN).await;
            }
            connected => return connected,
        }
    }
}

/// Whether this is an address of this host: one from which the kernel lets it ask itself. It would ask
/// from another one if an interface has several of a network (IPv4).
///
/// # Errors
/// When this cannot be told, for want of files.
pub(crate) fn is_own(server: SocketAddr) -> io::Result<bool> {
    // A socket may have a group's address too.
    if server.ip().is_multicast() {
        return Ok(false);
    }
    let from = match server {
        SocketAddr::V4(_) => server.ip(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let own = UdpSocket::bind((from, 0)).and_then(|socket| {
        socket.connect(server)?;
        socket.local_addr()
    });
    match own {
        Ok(own) => Ok(own.ip() == server.ip()),
        Err(error) if is_shortage(&error) => Err(error),
        Err(_) => Ok(false),
    }
}

fn is_shortage(error: &io::Error) -> bool {
    let shortage = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| shortage.contains(&errno))
}

fn same_family(a: SocketAddr, b: SocketAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}

/// What a gateway wants of every host's connection: no delay of its own, urgent bytes in their place
/// (as RFC 6093 has it), and to learn when the host is gone: when it has said nothing for so long, and
/// then does not answer three times in a tenth of that each. With bytes on the way to it the kernel has its
/// own patience (`tcp_retries2`): TCP_USER_TIMEOUT, which would shorten it, also ends the connection of a
/// host that answers and whose program does not read.
pub(crate) fn prepare(stream: &TcpStream, keepalive: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_out_of_band_inline(true)?;
    let between = (keepalive / 10).max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(keepalive).with_interval(between).with_retries(3);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

fn reason(error: &io::Error) -> Refusal {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::ConnectionRefused | Kind::ConnectionReset => Refusal::Refused,
        Kind::HostUnreachable => Refusal::HostUnreachable,
        Kind::NetworkUnreachable => Refusal::NetworkUnreachable,
        Kind::PermissionDenied => Refusal::Prohibited,
        Kind::TimedOut => Refusal::Silence,
        _ => Refusal::Failed,
    }
}

impl Deliver {
    /// Whether connections to this host may be made. What is no host of a network, this gateway's
    /// own loopback first, is not meant by "everywhere".
    pub(crate) fn allows(&self, host: IpAddr) -> bool {
        let host = host.to_canonical();
        let inside = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&host));
        let special = match host {
            IpAddr::V4(v4) => v4.is_broadcast(),
            IpAddr::V6(_) => false,
        };
        let special = special || host.is_loopback() || host.is_unspecified() || host.is_multicast();
        inside(&self.to) && !inside(&self.except) && (!special || self.names(host))
    }

    /// Whether a network that may be connected to, and is not everywhere, has this host.
    fn names(&self, host: IpAddr) -> bool {
        self.to.iter().any(|net| net.prefix_len() > 0 && net.contains(&host))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use units::Bytes;

    use super::*;
    use crate::request::{Share, ask};
    use crate::trunk::Trunk;
    use crate::trunk::tests::ends;

    fn allows(deliver: &Deliver, host: &str) -> bool {
        deliver.allows(host.parse().unwrap())
    }

    #[test]
    fn everywhere_is_not_the_gateway_itself() {
        let everywhere = Deliver::default();
        for host in ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"] {
            assert!(allows(&everywhere, host), "{host}");
        }
        for host in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "::ffff:127.0.0.1",
            "::ffff:0.0.0.0",
        ] {
            assert!(!allows(&everywhere, host), "{host}");
        }
        let to = vec!["127.0.0.0/8".parse().unwrap()];
        assert!(allows(&Deliver { to, ..Deliver::default() }, "::ffff:127.0.0.1"));
    }

    #[test]
    fn an_exception_holds_however_the_address_is_written() {
        let except = vec!["10.0.0.0/8".parse().unwrap()];
        let deliver = Deliver { except, ..Deliver::default() };
        assert!(!allows(&deliver, "10.1.2.3") && !allows(&deliver, "::ffff:10.1.2.3"));
        assert!(allows(&deliver, "11.1.2.3"));
    }

    #[test]
    fn of_a_name_with_hundreds_of_addresses_some_are_tried() {
        let found = |count| (1..=count).map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        assert_eq!(to_try(found(500), &Deliver::default()), Vec::from_iter(found(16)));
        // Those that may not be connected to take nobody's place.
        let to = vec!["192.0.2.0/24".parse().unwrap()];
        let some = Deliver { to, ..Deliver::default() };
        let others = (1..=16).map(|port| SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
        assert_eq!(to_try(others.chain(found(2)), &some), Vec::from_iter(found(2)));
    }

    #[tokio::test]
    async fn the_other_gateways_loopback_is_not_looked_for_here() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "::ffff:127.0.0.1", "localhost"] {
            let server = Target::of(host, port).unwrap();
            assert_eq!(direct(&server).await.unwrap_err(), Refusal::Failed, "{host}");
        }
    }

    #[tokio::test]
    async fn where_streams_that_nobody_reads_fill_the_memory_no_further_one_is_served() {
        const SOME: usize = 32 << 10;
        let config = net::Config { receive_memory: Bytes::mib(1), ..net::Config::default() };
        let (near, far, _endpoints) = ends(config).await;
        let mut others = Vec::new();
        while !far.is_crowded() {
            let mut stream = near.open().await.unwrap();
            stream.write_all(&[0; SOME]).await.unwrap();
            let unread = far.accept().await.unwrap();
            while unread.unread() < SOME as u64 {
                tokio::time::sleep(BETWEEN / 20).await;
            }
            others.push((stream, unread));
        }
        assert!((16..32).contains(&others.len()), "{}", others.len());
        let request = Request {
            client: "192.0.2.1:1".parse().unwrap(),
            server: Target::Name("localhost".to_owned(), 9),
            transparent: false,
            share: Share::default(),
        };
        let (deliver, book) = (Deliver::default(), Book::new(Trunk::default()));
        let served = async {
            let stream = far.accept().await.unwrap();
            serve((&deliver, PATIENCE), stream, &book, || ()).await
        };
        let (asked, _) = tokio::join!(ask(&near, &request), served);
        assert_eq!(asked.unwrap().err(), Some(Refusal::Failed));
    }

    #[test]
    fn own_addresses_are_known() {
        for (host, own) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("192.0.2.1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
        ] {
            assert_eq!(is_own((host.parse::<IpAddr>().unwrap(), 9).into()).unwrap(), own, "{host}");
        }
    }
}

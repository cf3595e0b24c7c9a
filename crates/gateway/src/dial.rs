//! The far gateway: connects whom the near one asks for, and says what came of it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use net::udp::UdpStream;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};

use crate::config::Deliver;
use crate::request::{Refusal, Reply, Request, Target, receive, send};
use crate::rules::mark;
use crate::splice::{Passed, splice};

/// As long as TCP's SYNs are worth waiting for: a client gives up after about two minutes.
const PATIENCE: Duration = Duration::from_secs(75);
/// A host that answers nothing for so long, then three times for a tenth of it, is gone.
const IDLE: Duration = Duration::from_secs(600);

/// Serves one stream of the trunk.
///
/// # Errors
/// When the stream says nothing that can be understood, or ends before.
pub(crate) async fn serve(
    deliver: &Arc<Deliver>,
    mut stream: UdpStream,
) -> io::Result<(Request, Result<Passed, Refusal>)> {
    let request: Request = tokio::time::timeout(PATIENCE, receive(&mut stream)).await??;
    match connect(deliver, &request).await {
        Ok(server) => {
            send(&mut stream, &Reply::Ok(())).await?;
            Ok((request, Ok(splice(stream, server).await)))
        }
        Err(refusal) => {
            send(&mut stream, &Reply::Err(refusal)).await?;
            tokio::io::AsyncWriteExt::shutdown(&mut stream).await?;
            Ok((request, Err(refusal)))
        }
    }
}

async fn connect(deliver: &Deliver, request: &Request) -> Result<TcpStream, Refusal> {
    let servers = match &request.server {
        Target::Address(address) => vec![*address],
        Target::Name(name, port) => {
            let found = lookup_host((name.as_str(), *port)).await;
            found.map_err(|_| Refusal::NoSuchHost)?.collect()
        }
    };
    let mut refusal = Refusal::NoSuchHost;
    for server in servers {
        if !deliver.allows(server.ip()) {
            refusal = Refusal::Prohibited;
            continue;
        }
        match dial(deliver, request, server).await {
            Ok(stream) => return Ok(stream),
            Err(error) => refusal = reason(&error),
        }
    }
    Err(refusal)
}

async fn dial(deliver: &Deliver, request: &Request, server: SocketAddr) -> io::Result<TcpStream> {
    let client = request.client;
    let stands_in = request.transparent && deliver.from_client && same_family(client, server);
    let connect = async {
        match stands_in {
            true => net::transparent::connect(client, server, mark::OURS).await,
            false => TcpStream::connect(server).await,
        }
    };
    let stream = tokio::time::timeout(PATIENCE, connect).await??;
    prepare(&stream)?;
    Ok(stream)
}

fn same_family(a: SocketAddr, b: SocketAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}

/// What a gateway wants of every host's connection: no delay of its own, and to learn when the host
/// is gone.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(IDLE / 10).with_retries(3);
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
    /// Whether connections to this host may be made.
    pub(crate) fn allows(&self, host: IpAddr) -> bool {
        let inside = |nets: &[ipnet::IpNet]| nets.iter().any(|net| net.contains(&host));
        inside(&self.to) && !inside(&self.except)
    }
}

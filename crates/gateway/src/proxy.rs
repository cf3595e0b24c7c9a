//! The explicit way to the trunk, for programs of users without root: SOCKS5 (RFC 1928) and HTTP
//! CONNECT (RFC 9110, 9.3.6) at one port.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use net::udp::UdpStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::dial::prepare;
use crate::record::{Outcome, Record};
use crate::request::{MAX_NAME, Refusal, Reply, Request, Share, Target, receive, send};
use crate::sight::{Book, Side};
use crate::splice::splice;
use crate::trunk::Trunk;

/// How long a client may take to say whom it wants.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most that the head of an HTTP request may be.
const MAX_HEAD: usize = 8 << 10;
/// Clients at a time.
const MAX_CLIENTS: usize = 4096;

const VERSION: u8 = 5;
const CONNECT: u8 = 1;
const NO_PASSWORD: u8 = 0;
const NO_METHOD: u8 = 0xff;

/// Serves clients until the listener fails.
pub(crate) async fn run(
    listener: TcpListener,
    trunk: Trunk,
    book: Book,
    report: impl Fn(Record),
) -> io::Result<Infallible> {
    let mut clients: JoinSet<Option<Record>> = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if clients.len() < MAX_CLIENTS => {
                // One that is gone already is no failure of the listener.
                let Ok((client, address)) = accepted else {
                    sleep(crate::BREATH).await;
                    continue;
                };
                clients.spawn(serve(client, address, trunk.clone(), book.clone()));
            }
            Some(ended) = clients.join_next() => {
                if let Ok(Some(record)) = ended {
                    report(record);
                }
            }
        }
    }
}

async fn serve(
    mut client: TcpStream,
    address: SocketAddr,
    trunk: Trunk,
    book: Book,
) -> Option<Record> {
    let asked = timeout(PATIENCE, ask(&mut client)).await.ok()?.ok()??;
    let (target, manner) = asked;
    let server = target.to_string();
    let (outcome, stream) = match open(&trunk, address, target).await {
        Ok(Ok(stream)) => (None, Some(stream)),
        Ok(Err(refusal)) => (Some(Outcome::Refused(refusal)), None),
        Err(_) => (Some(Outcome::Lost), None),
    };
    let reply = match outcome {
        None => Ok(()),
        Some(Outcome::Refused(refusal)) => Err(refusal),
        Some(_) => Err(Refusal::Failed),
    };
    client.write_all(&manner.answer(reply)).await.ok()?;
    let outcome = match stream {
        Some(stream) => {
            let entry = book.enter(Side::Near, address, server.clone());
            Outcome::Carried(splice(client, stream, entry.counters()).await)
        }
        None => outcome?,
    };
    Some(Record { client: address, server, outcome })
}

async fn open(
    trunk: &Trunk,
    client: SocketAddr,
    server: Target,
) -> io::Result<Result<UdpStream, Refusal>> {
    let link = trunk.usable().ok_or(io::ErrorKind::NotConnected)?;
    let mut stream = link.connection.open().await?;
    let share = Share::default();
    stream.set_priority(share.priority(client.ip()));
    send(&mut stream, &Request { client, server, transparent: false, share }).await?;
    let reply: Reply = receive(&mut stream).await?;
    Ok(reply.map(|()| stream))
}

/// How a client speaks, and is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    Socks,
    Http,
}

impl Manner {
    fn answer(self, reply: Reply) -> Vec<u8> {
        match self {
            // RFC 1928, 6: the address that follows is of no use to anybody here.
            Self::Socks => vec![VERSION, code(reply), 0, 1, 0, 0, 0, 0, 0, 0],
            Self::Http => match reply {
                Ok(()) => b"HTTP/1.1 200 Connected\r\n\r\n".to_vec(),
                Err(Refusal::Prohibited) => b"HTTP/1.1 403 Forbidden\r\n\r\n".to_vec(),
                Err(Refusal::Silence) => b"HTTP/1.1 504 Gateway Timeout\r\n\r\n".to_vec(),
                Err(refusal) => format!("HTTP/1.1 502 {refusal}\r\n\r\n").into_bytes(),
            },
        }
    }
}

fn code(reply: Reply) -> u8 {
    match reply {
        Ok(()) => 0,
        Err(Refusal::Failed) => 1,
        Err(Refusal::Prohibited) => 2,
        Err(Refusal::NetworkUnreachable) => 3,
        Err(Refusal::HostUnreachable | Refusal::NoSuchHost) => 4,
        Err(Refusal::Refused) => 5,
        Err(Refusal::Silence) => 6,
    }
}

/// Whom the client wants; none if it wants what there is not, which it has been told.
async fn ask(client: &mut TcpStream) -> io::Result<Option<(Target, Manner)>> {
    prepare(client)?;
    let mut first = [0];
    client.peek(&mut first).await?;
    let (target, manner) = match first[0] {
        VERSION => (socks(client).await?, Manner::Socks),
        _ => (http(client).await?, Manner::Http),
    };
    Ok(target.map(|target| (target, manner)))
}

async fn socks(client: &mut TcpStream) -> io::Result<Option<Target>> {
    client.read_u8().await?;
    let mut methods = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&NO_PASSWORD) {
        client.write_all(&[VERSION, NO_METHOD]).await?;
        return Ok(None);
    }
    client.write_all(&[VERSION, NO_PASSWORD]).await?;
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let host = match head[3] {
        1 => Host::Address(Ipv4Addr::from(client.read_u32().await?).into()),
        4 => Host::Address(Ipv6Addr::from(client.read_u128().await?).into()),
        3 => {
            let mut name = vec![0; client.read_u8().await?.into()];
            client.read_exact(&mut name).await?;
            match String::from_utf8(name) {
                Ok(name) => Host::Name(name),
                Err(_) => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    let port = client.read_u16().await?;
    if head[..2] != [VERSION, CONNECT] {
        client.write_all(&[VERSION, 7, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
        return Ok(None);
    }
    Ok(target(host, port))
}

async fn http(client: &mut TcpStream) -> io::Result<Option<Target>> {
    let mut head = Vec::new();
    // Byte by byte, for what follows the head is the server's; it is short and comes at once.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD {
            return Ok(None);
        }
        head.push(client.read_u8().await?);
    }
    let target = connect_line(&head);
    if target.is_none() {
        client.write_all(b"HTTP/1.1 405 CONNECT is all there is\r\n\r\n").await?;
    }
    Ok(target)
}

fn connect_line(head: &[u8]) -> Option<Target> {
    let line = str::from_utf8(head).ok()?.lines().next()?;
    let mut words = line.split(' ');
    let (method, authority) = (words.next()?, words.next()?);
    if method != "CONNECT" || !words.next()?.starts_with("HTTP/1.") {
        return None;
    }
    let (host, port) = authority.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let host = match bare.parse() {
        Ok(address) => Host::Address(address),
        Err(_) => Host::Name(host.to_owned()),
    };
    target(host, port.parse().ok()?)
}

enum Host {
    Address(IpAddr),
    Name(String),
}

fn target(host: Host, port: u16) -> Option<Target> {
    match host {
        _ if port == 0 => None,
        Host::Address(address) => Some(Target::Address(SocketAddr::new(address, port))),
        Host::Name(name) if name.is_empty() || name.len() > MAX_NAME => None,
        Host::Name(name) => Some(Target::Name(name, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_names_an_authority() {
        for (line, to) in [
            ("CONNECT example.org:443 HTTP/1.1", Some("example.org:443")),
            ("CONNECT 192.0.2.1:80 HTTP/1.0", Some("192.0.2.1:80")),
            ("CONNECT [2001:db8::1]:80 HTTP/1.1", Some("[2001:db8::1]:80")),
            ("CONNECT example.org HTTP/1.1", None),
            ("CONNECT example.org:0 HTTP/1.1", None),
            ("CONNECT :80 HTTP/1.1", None),
            ("GET http://example.org/ HTTP/1.1", None),
            ("CONNECT example.org:443", None),
        ] {
            let head = format!("{line}\r\nHost: x\r\n\r\n");
            let target = connect_line(head.as_bytes()).map(|target| target.to_string());
            assert_eq!(target.as_deref(), to, "{line}");
        }
    }
}

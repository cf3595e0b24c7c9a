//! What a client of the proxy says first, and is answered: SOCKS5 (RFC 1928) or HTTP CONNECT
//! (RFC 9110, 9.3.6), told apart by the first byte.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::request::{Refusal, Reply, Target};

/// The most that the head of an HTTP request may be.
const MAX_HEAD: usize = 8 << 10;

const VERSION: u8 = 5;
const CONNECT: u8 = 1;
const NO_PASSWORD: u8 = 0;
const NO_METHOD: u8 = 0xff;
/// Answers that say no (RFC 1928, 6).
const FAILED: u8 = 1;
const NO_SUCH_COMMAND: u8 = 7;
const NO_SUCH_ADDRESS: u8 = 8;

/// How a client is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    Socks,
    Http,
    /// By the server alone.
    Silent,
}

impl Manner {
    pub(crate) fn answer(self, reply: Reply) -> Vec<u8> {
        match self {
            Self::Socks => answer(code(reply)).to_vec(),
            Self::Http => match reply {
                Ok(()) => b"HTTP/1.1 200 Connected\r\n\r\n".to_vec(),
                Err(Refusal::Prohibited) => b"HTTP/1.1 403 Forbidden\r\n\r\n".to_vec(),
                Err(Refusal::Silence) => b"HTTP/1.1 504 Gateway Timeout\r\n\r\n".to_vec(),
                Err(Refusal::Failed) => b"HTTP/1.1 502 Bad Gateway\r\n\r\n".to_vec(),
                Err(refusal) => format!("HTTP/1.1 502 {refusal}\r\n\r\n").into_bytes(),
            },
            Self::Silent => Vec::new(),
        }
    }
}

/// The address that follows is of no use to anybody here.
fn answer(code: u8) -> [u8; 10] {
    [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

fn code(reply: Reply) -> u8 {
    match reply {
        Ok(()) => 0,
        Err(Refusal::Failed) => FAILED,
        Err(Refusal::Prohibited) => 2,
        Err(Refusal::NetworkUnreachable) => 3,
        Err(Refusal::HostUnreachable | Refusal::NoSuchHost) => 4,
        Err(Refusal::Refused) => 5,
        Err(Refusal::Silence) => 6,
    }
}

/// Whom the client wants; none if it wants what there is not, which it has been told. Nothing is
/// read of what is meant for the server.
///
/// # Errors
/// When the client ends before, or fails.
pub(crate) async fn read(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> io::Result<Option<(Target, Manner)>> {
    let (target, manner) = match client.read_u8().await? {
        VERSION => (socks(client).await?, Manner::Socks),
        first => (http(client, first).await?, Manner::Http),
    };
    Ok(target.map(|target| (target, manner)))
}

/// After the version of its first message.
async fn socks(client: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Option<Target>> {
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
        1 => Ipv4Addr::from(client.read_u32().await?).to_string(),
        4 => Ipv6Addr::from(client.read_u128().await?).to_string(),
        3 => {
            let mut name = vec![0; client.read_u8().await?.into()];
            client.read_exact(&mut name).await?;
            // What is no text is nobody's name.
            String::from_utf8(name).unwrap_or_default()
        }
        _ => {
            client.write_all(&answer(NO_SUCH_ADDRESS)).await?;
            return Ok(None);
        }
    };
    let target = Target::of(&host, client.read_u16().await?);
    if head[..2] != [VERSION, CONNECT] {
        client.write_all(&answer(NO_SUCH_COMMAND)).await?;
        return Ok(None);
    }
    if target.is_none() {
        client.write_all(&answer(FAILED)).await?;
    }
    Ok(target)
}

/// After the first byte of its request.
async fn http(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    first: u8,
) -> io::Result<Option<Target>> {
    let mut head = vec![first];
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
    authority.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client that says all this at once is taken for, is answered, and has left for the
    /// server.
    async fn hear(said: &[u8]) -> (io::Result<Option<(Target, Manner)>>, Vec<u8>, Vec<u8>) {
        let (mut client, mut proxy) = tokio::io::duplex(2 * MAX_HEAD);
        client.write_all(said).await.unwrap();
        client.shutdown().await.unwrap();
        let heard = read(&mut proxy).await;
        let (mut answer, mut left) = (Vec::new(), Vec::new());
        proxy.read_to_end(&mut left).await.unwrap();
        drop(proxy);
        client.read_to_end(&mut answer).await.unwrap();
        (heard, answer, left)
    }

    /// A SOCKS5 client without a password that wants this.
    async fn ask(request: &[u8]) -> (io::Result<Option<(Target, Manner)>>, Vec<u8>, Vec<u8>) {
        hear(&[&[VERSION, 2, 2, NO_PASSWORD][..], request].concat()).await
    }

    #[tokio::test]
    async fn socks_names_an_address_or_a_host() {
        let v6 = [&[5u8, 1, 0, 4, 0x20, 1, 0xd, 0xb8][..], &[0; 11], &[1, 0, 80]].concat();
        for (request, server) in [
            (&[5, 1, 0, 1, 192, 0, 2, 1, 0x1f, 0x40][..], "192.0.2.1:8000"),
            (&v6, "[2001:db8::1]:80"),
            (b"\x05\x01\x00\x03\x0bexample.org\x01\xbb", "example.org:443"),
            (b"\x05\x01\x00\x03\x09192.0.2.1\x01\xbb", "192.0.2.1:443"),
        ] {
            let (heard, answer, left) = ask(&[request, b"GET"].concat()).await;
            assert_eq!(heard.unwrap(), Some((server.parse().unwrap(), Manner::Socks)));
            assert_eq!((&answer[..], &left[..]), (&[5, 0][..], &b"GET"[..]), "{server}");
        }
    }

    #[tokio::test]
    async fn who_asks_for_what_there_is_not_is_told() {
        for (request, code) in [
            // BIND, another version, an address of another kind, no port, no name, no text.
            (&[5, 2, 0, 1, 192, 0, 2, 1, 0, 80][..], NO_SUCH_COMMAND),
            (&[4, 1, 0, 1, 192, 0, 2, 1, 0, 80], NO_SUCH_COMMAND),
            (&[5, 1, 0, 2], NO_SUCH_ADDRESS),
            (&[5, 1, 0, 1, 192, 0, 2, 1, 0, 0], FAILED),
            (&[5, 1, 0, 3, 0, 0, 80], FAILED),
            (&[5, 1, 0, 3, 1, 0xff, 0, 80], FAILED),
        ] {
            let (heard, told, _) = ask(request).await;
            assert_eq!(heard.unwrap(), None, "{request:?}");
            assert_eq!(told, [&[5, 0][..], &answer(code)].concat(), "{request:?}");
        }
        let (heard, told, _) = hear(&[5, 1, 2]).await;
        assert_eq!((heard.unwrap(), &told[..]), (None, &[5, NO_METHOD][..]));
        let (heard, told, _) = hear(b"GET http://example.org/ HTTP/1.1\r\n\r\n").await;
        assert_eq!(heard.unwrap(), None);
        assert!(told.starts_with(b"HTTP/1.1 405 "));
        let (heard, told, _) = hear(&[b'x'; 2 * MAX_HEAD]).await;
        assert_eq!((heard.unwrap(), told.len()), (None, 0));
    }

    #[tokio::test]
    async fn who_ends_before_has_asked_for_nothing() {
        for said in [&[][..], &[5], &[5, 1], &[5, 1, 0, 5, 1, 0, 1, 192], b"CONNECT a:1"] {
            let error = hear(said).await.0.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{said:?}");
        }
    }

    #[tokio::test]
    async fn nothing_is_read_of_what_follows_the_head() {
        let (heard, answer, left) =
            hear(b"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\nhello").await;
        let server = "example.org:443".parse().unwrap();
        assert_eq!(heard.unwrap(), Some((server, Manner::Http)));
        assert_eq!((answer.len(), &left[..]), (0, &b"hello"[..]));
    }

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

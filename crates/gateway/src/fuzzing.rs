//! What comes over the network, as the fuzzer says it: every parser of it, over bytes in memory. Here is also
//! what the fuzzer begins with.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::request::{Refusal, Reply, Request, Share, Target, receive, send};
use crate::sight::{Book, Names, answer};
use crate::trunk::Trunk;
use crate::{flows, hello, nfqueue};

/// Reads what the other gateway asks for, and writes it again; also the server, as people are shown it.
///
/// # Errors
/// When it is no request.
pub async fn request(gateway: &mut (impl AsyncRead + Unpin)) -> io::Result<(Vec<u8>, String)> {
    let request: Request = receive(gateway).await?;
    let mut again = Vec::new();
    send(&mut again, &request).await?;
    Ok((again, request.server.to_string()))
}

/// Reads what came of a request, and writes it again.
///
/// # Errors
/// When it is no reply.
pub async fn reply(gateway: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let reply: Reply = receive(gateway).await?;
    let mut again = Vec::new();
    send(&mut again, &reply).await?;
    Ok(again)
}

/// A request for each kind of server.
///
/// # Errors
/// When one is too long: never.
pub async fn requests() -> io::Result<Vec<Vec<u8>>> {
    let address = Target::Address(SocketAddr::from(([192, 0, 2, 2], 80)));
    let name = Target::Name("example.org".to_owned(), 443);
    let mut frames = Vec::new();
    for server in [address, name, Target::Nobody] {
        let client = SocketAddr::from(([0xfd20_u16, 0, 0, 0, 0, 0, 0, 1], 5000));
        let request = Request { client, server, transparent: true, share: Share::default() };
        let mut frame = Vec::new();
        send(&mut frame, &request).await?;
        frames.push(frame);
    }
    Ok(frames)
}

/// A reply of either kind.
///
/// # Errors
/// When one is too long: never.
pub async fn replies() -> io::Result<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    for reply in [Reply::Ok(()), Reply::Err(Refusal::Silence)] {
        let mut frame = Vec::new();
        send(&mut frame, &reply).await?;
        frames.push(frame);
    }
    Ok(frames)
}

/// Whom a client of the proxy wants, if it can be had; the client is told the rest.
///
/// # Errors
/// When the client ends before.
pub async fn proxied(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> io::Result<Option<String>> {
    Ok(hello::read(client).await?.map(|(server, _)| server.to_string()))
}

/// The first bytes of the packets that a datagram from the kernel tells of.
pub fn held(datagram: &[u8]) -> Vec<Vec<u8>> {
    nfqueue::held(datagram).into_iter().map(|held| held.bytes).collect()
}

/// Who a SYN is from and for, and its sequence number.
pub fn flow(packet: &[u8]) -> Option<((SocketAddr, SocketAddr), u32)> {
    flows::read(packet)
}

/// What a visitor of the web page is answered, where nothing is carried.
///
/// # Errors
/// When there is no answer.
pub async fn visit(head: &[u8]) -> io::Result<Vec<u8>> {
    answer(head, &Book::new(Trunk::default()), &Names::none()).await
}

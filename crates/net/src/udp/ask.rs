//! Asks a host for its key, before there is any connection.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::timeout;
use transport::crypto::PublicKey;
use transport::wire::{Echo, Opening};

use crate::error::NetError;

/// The question is put once a second, for as long as a connection is tried for.
const WAIT: Duration = Duration::from_secs(1);
const TRIES: u32 = 10;
/// No answer is longer.
const ANSWER: usize = 128;

/// Asks the host at `address` for its key. Whoever sits on the way may answer in its place: only a
/// connection proves that the host holds the key, and only its owner can say that it is right.
///
/// # Errors
/// [`NetError`] when nobody answers.
pub async fn ask(address: SocketAddr) -> Result<PublicKey, NetError> {
    let unreachable = |source| NetError::Unreachable { address, source };
    let asked = async {
        let any = match address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(address).await?;
        let mut nonce: Echo = [0; 32];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        let mut question = Vec::new();
        Opening::Who { connection: 0, nonce: &nonce }.encode(&mut question);
        for _ in 0..TRIES {
            socket.send(&question).await?;
            if let Ok(answer) = timeout(WAIT, answer(&socket, &nonce)).await {
                return answer.map(Some);
            }
        }
        Ok(None)
    };
    let after = WAIT * TRIES;
    let silence = NetError::NoAnswer { address, after, carrier: "UDP" };
    asked.await.map_err(unreachable)?.ok_or(silence)
}

/// The key that comes with our nonce; whatever else comes is somebody else's.
async fn answer(socket: &UdpSocket, nonce: &Echo) -> io::Result<PublicKey> {
    let mut buffer = [0; ANSWER];
    loop {
        let len = match socket.recv(&mut buffer).await {
            Ok(len) => len,
            // Nobody there yet, or any more: the question is put again.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error),
        };
        match Opening::decode(&buffer[..len]) {
            Ok(Opening::Host { nonce: theirs, key, .. }) if theirs == nonce => return Ok(key),
            _ => {}
        }
    }
}

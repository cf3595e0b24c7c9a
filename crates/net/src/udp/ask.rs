//! Asks a host for its key, before there is any connection.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;
use std::{io, iter};

use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio::time::timeout;
use transport::crypto::PublicKey;
use transport::wire::{Echo, Opening};

use super::errors;
use super::socket::is_fatal;
use crate::error::NetError;

/// The question is put once a second, for as long as a connection is tried for.
const WAIT: Duration = Duration::from_secs(1);
const TRIES: u32 = 10;
/// So often the network may say that nobody is there: the host may be about to start.
const MAX_REFUSALS: usize = 3;
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
        errors::enable(&SockRef::from(&socket), address.is_ipv6())?;
        let mut nonce: Echo = [0; 32];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        let mut question = Vec::new();
        Opening::Who { connection: 0, nonce: &nonce }.encode(&mut question);
        let mut refusals = 0;
        for _ in 0..TRIES {
            send(&socket, &question, address).await?;
            if let Ok(answer) = timeout(WAIT, answer(&socket, &nonce)).await {
                return answer.map(Some);
            }
            let said = iter::from_fn(|| errors::next(socket.as_fd()));
            refusals += said.flatten().filter(|&(destination, _)| destination == address).count();
            if refusals >= MAX_REFUSALS {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
        }
        Ok(None)
    };
    let after = WAIT * TRIES;
    let silence = NetError::NoAnswer { address, after, carrier: "UDP" };
    asked.await.map_err(unreachable)?.ok_or(silence)
}

/// A call fails once for what the network said of the question before: that one is counted.
async fn send(socket: &UdpSocket, question: &[u8], address: SocketAddr) -> io::Result<usize> {
    match socket.send_to(question, address).await {
        Err(error) if !is_fatal(&error) => socket.send_to(question, address).await,
        result => result,
    }
}

/// The key that comes with our nonce; whatever else comes is somebody else's. It may come from
/// another address than was asked: a host with several answers from the one nearest to us.
async fn answer(socket: &UdpSocket, nonce: &Echo) -> io::Result<PublicKey> {
    let mut buffer = [0; ANSWER];
    loop {
        let len = match socket.recv_from(&mut buffer).await {
            Ok((len, _)) => len,
            // Nobody there yet, or any more: the question is put again.
            Err(error) if !is_fatal(&error) => continue,
            Err(error) => return Err(error),
        };
        match Opening::decode(&buffer[..len]) {
            Ok(Opening::Host { nonce: theirs, key, .. }) if theirs == nonce => return Ok(key),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_with_several_addresses_may_answer_from_any() {
        let bound = |host: &'static str| async move { UdpSocket::bind((host, 0)).await.unwrap() };
        let (asked, answers) = (bound("127.0.0.1").await, bound("127.0.0.2").await);
        let key = PublicKey::from_bytes([7; 32]);
        let serving = async {
            let mut buffer = [0; 1500];
            let (len, from) = asked.recv_from(&mut buffer).await.unwrap();
            let Ok(Opening::Who { connection, nonce }) = Opening::decode(&buffer[..len]) else {
                panic!("no question");
            };
            // Not with another nonce.
            for (nonce, byte) in [(&[0; 32], 6), (nonce, 7)] {
                let mut answer = Vec::new();
                let key = PublicKey::from_bytes([byte; 32]);
                Opening::Host { connection, nonce, key }.encode(&mut answer);
                answers.send_to(&answer, from).await.unwrap();
            }
        };
        let (answer, ()) = tokio::join!(ask(asked.local_addr().unwrap()), serving);
        assert_eq!(answer.unwrap(), key);
    }

    #[tokio::test]
    async fn a_closed_port_is_told() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        drop(socket);
        let error = ask(address).await.unwrap_err();
        assert!(matches!(error, NetError::Unreachable { .. }), "{error}");
    }
}

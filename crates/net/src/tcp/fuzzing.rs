//! What strangers say, as the fuzzer says it: every parser of it, over bytes in memory. Here is also what
//! the fuzzer begins with.

use std::net::SocketAddr;

use stripe::count::Policy;
use tokio::io::{AsyncRead, AsyncWrite};
use transport::crypto::{Credentials, PublicKey};

use super::echo::Form;
use super::hello::{self, Hello, SPOKEN};
use crate::error::NetError;

/// What a server answers to all that a client says first: the reply to one that it lets in, or its last words;
/// `None` where it says nothing.
pub async fn answer(
    client: &mut (impl AsyncRead + Unpin),
    credentials: &Credentials,
) -> Option<Result<Vec<u8>, Vec<u8>>> {
    let accepted = hello::accept(client, credentials, SPOKEN).await?;
    Some(accepted.map(|(_, reply, _)| reply))
}

/// Asks whoever is at the other end for its key.
///
/// # Errors
/// [`NetError`] when it is no server, or refuses.
pub async fn ask(
    server: &mut (impl AsyncRead + AsyncWrite + Unpin),
    address: SocketAddr,
) -> Result<PublicKey, NetError> {
    hello::key_of(server, address).await
}

/// Reads what a client says under the seal of its first message, and writes it again.
pub fn hello(payload: &[u8]) -> Option<Vec<u8>> {
    Some(Hello::decode(payload)?.encode().to_vec())
}

/// The first message of a client.
pub fn first_message(credentials: &Credentials) -> Vec<u8> {
    let hello = Hello { group: [7; 16], joins: false, policy: Policy::default() };
    hello::first_message(credentials, [7; 32], hello, SPOKEN).1
}

/// Number and time in the answer to an echo, for each form in which this is one.
pub fn echoes(datagram: &[u8]) -> Vec<(u32, u64)> {
    let icmp = |v6, is_raw| Form::Icmp { v6, is_raw };
    let raw = [icmp(false, true), icmp(true, true)];
    let forms = [Form::Udp, icmp(false, false), icmp(true, false)].into_iter().chain(raw);
    forms.filter_map(|form| form.answer(datagram)).collect()
}

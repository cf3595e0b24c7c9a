//! Streams over real TCP on loopback. Every wait is bounded, so that a stream that hangs fails.

mod carrying;
mod counting;
mod losses;
mod meeting;
mod parting;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use transport::crypto::SharedKey;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

fn key(byte: u8) -> SharedKey {
    SharedKey::from_bytes([byte; 32])
}

fn listener(options: Options) -> (Listener, SocketAddr) {
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(any, key(1), options).unwrap();
    let address = listener.address();
    (listener, address)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(PATIENCE, future).await;
    result.expect("must not hang")
}

async fn pair_with(streams: usize, options: Options) -> (StripedStream, StripedStream) {
    let (mut listener, address) = listener(options.clone());
    let key = key(1);
    let connecting = connect(address, &key, Policy::Fixed(streams as u16), &options);
    let (client, accepted) = within(async { tokio::join!(connecting, listener.accept()) }).await;
    (client.unwrap(), accepted.unwrap().0)
}

async fn pair(streams: usize) -> (StripedStream, StripedStream) {
    pair_with(streams, Options::default()).await
}

/// Bytes that differ everywhere, so that a misplaced record shows.
fn pattern(length: usize, salt: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    let mut state = salt | 1;
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&state.rotate_left(19).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

//! Connections that are lost, damaged or let go while a stream runs.

use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional, split};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// What the relay does to what its connections carry from the client.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Ends the connection in good order.
    Cut,
    /// Ends the connection in good order, every other one before it has answered the client.
    CutUnanswered,
    /// Resets the connection.
    Reset,
    /// Changes a bit.
    Damage,
    /// Goes no further, but keeps the connection.
    Stall,
}

/// Stands between a client and `to`. So many connections suffer a fault, each after it carried a random
/// number of bytes.
async fn relay(to: SocketAddr, fault: Fault, faults: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for connection in 1.. {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = TcpStream::connect(to).await.unwrap();
            tokio::spawn(async move {
                if connection <= faults {
                    if matches!(fault, Fault::CutUnanswered) && connection % 2 == 0 {
                        // All is read, or the end would be a reset.
                        let mut hello = hello::tests::recorded(&key(1).into());
                        near.read_exact(&mut hello).await.unwrap();
                        return;
                    }
                    let random = connection.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                    carry_until(&mut near, &mut far, random % 1_500_000).await;
                    match fault {
                        Fault::Cut | Fault::CutUnanswered => return,
                        Fault::Reset => {
                            SockRef::from(&near).set_linger(Some(Duration::ZERO)).unwrap();
                            SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
                            return;
                        }
                        Fault::Damage => {
                            let Ok(byte) = near.read_u8().await else { return };
                            let _ = far.write_u8(byte ^ 4).await;
                        }
                        Fault::Stall => tokio::time::sleep(PATIENCE).await,
                    }
                }
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    address
}

/// Carries both ways until `limit` bytes came from the client, or either end is done.
async fn carry_until(near: &mut TcpStream, far: &mut TcpStream, limit: u64) {
    let ((near_out, mut near_in), (mut far_out, mut far_in)) = (near.split(), far.split());
    let mut beginning = near_out.take(limit);
    tokio::select! {
        _ = copy(&mut beginning, &mut far_in) => {}
        _ = copy(&mut far_out, &mut near_in) => {}
    }
}

/// Everything arrives both ways although connections are lost.
async fn survives(fault: Fault, streams: u16, faults: u64) {
    let (mut listener, address) = listener(Options::default());
    let relay = relay(address, fault, faults).await;
    let serving = tokio::spawn(async move {
        let (mut server, _) = listener.accept().await.unwrap();
        // Further connections come through the listener.
        let accepting = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        server.write_all(&received).await.unwrap();
        server.shutdown().await.unwrap();
        server.close().await;
        accepting.abort();
    });
    let (key, options) = (key(1), Options::default());
    let client = within(connect(relay, &key, Policy::Fixed(streams), &options)).await.unwrap();
    let (mut reader, mut writer) = split(client);
    let data = pattern(20_000_000, 5);
    let expected = data.clone();
    let writing = tokio::spawn(async move {
        writer.write_all(&data).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    within(reader.read_to_end(&mut received)).await.unwrap();
    assert!(received == expected);
    within(async { tokio::join!(writing, serving) }).await.0.unwrap();
}

#[tokio::test]
async fn connections_that_are_cut_cost_nothing() {
    survives(Fault::Cut, 4, 9).await;
}

#[tokio::test]
async fn a_handshake_that_is_cut_is_no_refusal_even_while_no_connection_lives() {
    survives(Fault::CutUnanswered, 1, 4).await;
}

#[tokio::test]
async fn connections_that_are_reset_cost_nothing() {
    survives(Fault::Reset, 1, 5).await;
}

#[tokio::test]
async fn a_changed_bit_costs_its_connection() {
    survives(Fault::Damage, 3, 5).await;
}

#[tokio::test]
async fn connections_that_stall_hold_nobody_up() {
    survives(Fault::Stall, 4, 3).await;
}

#[tokio::test]
async fn connections_come_and_go_while_a_stream_runs() {
    let (mut listener, address) = listener(Options::default());
    let serving = tokio::spawn(async move {
        let (mut server, _) = listener.accept().await.unwrap();
        let accepting = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        accepting.abort();
        (server, received)
    });
    let key = key(1);
    let mut client =
        within(connect(address, &key, Policy::Fixed(6), &Options::default())).await.unwrap();
    let count = async |client: &StripedStream, count| {
        while client.shared().width() != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(count(&client, 6)).await;
    let data = pattern(30_000_000, 8);
    for (piece, place) in data.chunks(10_000_000).zip(0..) {
        client.write_all(piece).await.unwrap();
        if place == 0 {
            client.shared().drain(2);
            // The keeper opens others.
            within(count(&client, 4)).await;
            within(count(&client, 6)).await;
        }
    }
    within(client.shutdown()).await.unwrap();
    let (server, received) = within(serving).await.unwrap();
    assert!(received == data);
    drop(server);
}

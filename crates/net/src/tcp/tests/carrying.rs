//! What streams carry, both ways, and how they are held back and given up.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use units::Bytes;

use super::*;

async fn both_ways(streams: usize) {
    let (client, server) = pair(streams).await;
    let (there, back) = (pattern(9_000_001, 3), pattern(5_000_003, 4));
    let run = |stream: StripedStream, data: Vec<u8>| {
        tokio::spawn(async move {
            let (mut reader, mut writer) = split(stream);
            let writing = async {
                writer.write_all(&data).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let mut received = Vec::new();
            let reading = async { reader.read_to_end(&mut received).await.unwrap() };
            tokio::join!(writing, reading);
            let stats = reader.unsplit(writer).stats();
            (received, stats)
        })
    };
    let runs = (run(client, there.clone()), run(server, back.clone()));
    let ((at_client, stats), (at_server, _)) = within(async {
        let (client, server) = tokio::join!(runs.0, runs.1);
        (client.unwrap(), server.unwrap())
    })
    .await;
    assert!(at_server == there && at_client == back);
    assert_eq!(stats.sent, Bytes(there.len() as u64));
    assert_eq!(stats.received, Bytes(back.len() as u64));
    assert!((1..=streams).contains(&stats.connections));
    assert!(stats.segments_sent > 0 && stats.rtt_min.unwrap() <= stats.rtt_smoothed.unwrap());
    assert!(stats.busy > Duration::ZERO);
}

#[tokio::test]
async fn one_connection_carries_both_ways() {
    both_ways(1).await;
}

#[tokio::test]
async fn four_connections_carry_both_ways() {
    both_ways(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_connections_carry_both_ways() {
    both_ways(16).await;
}

#[tokio::test]
async fn a_reply_comes_after_half_close_and_streams_may_be_dropped_then() {
    for round in 0..20 {
        let (mut client, mut server) = pair(4).await;
        let request = pattern(300_000, round);
        let expected = request.clone();
        let serving = tokio::spawn(async move {
            let mut received = Vec::new();
            server.read_to_end(&mut received).await.unwrap();
            assert!(received == expected);
            server.write_all(&received).await.unwrap();
            server.shutdown().await.unwrap();
        });
        client.write_all(&request).await.unwrap();
        client.shutdown().await.unwrap();
        assert!(client.write_all(b"more").await.is_err());
        let mut reply = Vec::new();
        within(client.read_to_end(&mut reply)).await.unwrap();
        assert!(reply == request);
        within(serving).await.unwrap();
    }
}

#[tokio::test]
async fn small_messages_go_without_a_flush() {
    let (mut client, mut server) = pair(2).await;
    for i in 0..100 {
        client.write_all(&[i]).await.unwrap();
        assert_eq!(within(server.read_u8()).await.unwrap(), i);
        server.write_all(&[i]).await.unwrap();
        assert_eq!(within(client.read_u8()).await.unwrap(), i);
    }
}

#[tokio::test]
async fn dropping_without_shutdown_is_an_error_at_the_other_side() {
    let (mut client, mut server) = pair(3).await;
    client.write_all(b"almost").await.unwrap();
    client.flush().await.unwrap();
    drop(client);
    let mut received = Vec::new();
    let error = within(server.read_to_end(&mut received)).await.unwrap_err();
    assert!(error.to_string().contains("gave it up"), "{error}");
    assert!(within(server.write_all(&[0; 64])).await.is_err());
}

#[tokio::test]
async fn a_slow_reader_holds_the_writer_back() {
    const STREAMS: usize = 4;
    const TOTAL: usize = 60_000_000;
    let options = Options { buffer: Bytes::mib(2), ..Options::default() };
    let most = options.buffer.0;
    let (mut client, mut server) = pair_with(STREAMS, options.clone()).await;
    let writing = tokio::spawn(async move {
        let data = pattern(TOTAL, 9);
        client.write_all(&data).await.unwrap();
        client.shutdown().await.unwrap();
    });
    let held = || server.stats().received.0;
    within(async {
        while held() < options.buffer.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(held() <= most, "{} bytes held, {most} allowed", held());
    assert!(!writing.is_finished(), "the writer was not held back");
    let mut received = Vec::new();
    within(server.read_to_end(&mut received)).await.unwrap();
    assert!(received == pattern(TOTAL, 9));
    within(writing).await.unwrap();
}

//! Probes: bytes that mean nothing, and leave nothing behind.

use std::fs;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use transfer::{Direction, ServeOptions, probe, serve};

/// Less than what is sent, so that both directions have to wait.
const ROOM: usize = 10_000;

#[tokio::test]
async fn what_is_sent_is_thrown_away_and_zeros_come_back() {
    let root = tempfile::tempdir().unwrap();
    let (mut near, far) = duplex(ROOM);
    let options = ServeOptions { read_only: true, ..ServeOptions::default() };
    let serving = serve(far, root.path(), &options);
    let probing = async {
        probe(&mut near, 300_000).await.unwrap();
        let (mut reading, mut writing) = tokio::io::split(near);
        let mut came = Vec::new();
        let sending = async {
            writing.write_all(&[7; 200_000]).await.unwrap();
            writing.shutdown().await.unwrap();
        };
        let (_, read) = tokio::join!(sending, reading.read_to_end(&mut came));
        assert_eq!(read.unwrap(), 300_000);
        assert!(came.iter().all(|&byte| byte == 0));
    };
    let (served, ()) = tokio::join!(serving, probing);
    let outcome = served.unwrap();
    assert_eq!(outcome.direction, Direction::Probe);
    assert_eq!(outcome.summary.counts.bytes, 500_000);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_client_that_has_seen_enough_ends_it() {
    let root = tempfile::tempdir().unwrap();
    let (mut near, far) = duplex(ROOM);
    let options = ServeOptions::default();
    let serving = serve(far, root.path(), &options);
    let probing = async {
        probe(&mut near, u64::MAX).await.unwrap();
        near.read_exact(&mut [0; 100_000]).await.unwrap();
        drop(near);
    };
    let (served, ()) = tokio::join!(serving, probing);
    assert!(served.unwrap().summary.counts.bytes >= 100_000);
}

//! Every encoding there and back, over connections that are cut anywhere.

use tokio::io::duplex;

use super::*;
use crate::session::Framing;

fn bytes(size: usize) -> Vec<u8> {
    (0..size as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

fn encoding(framing: Framing, ascii: bool) -> Encoding {
    Encoding { ascii, framing }
}

/// Connections whose buffers differ, so that some run ahead of others.
fn pairs(count: usize) -> (Vec<Channel>, Vec<Channel>) {
    (0..count)
        .map(|at| {
            let (near, far) = duplex(100 + 20_000 * at);
            (Box::new(near) as Channel, Box::new(far) as Channel)
        })
        .unzip()
}

async fn carry(data: &[u8], count: usize, encoding: Encoding) -> Vec<u8> {
    let (mut near, far) = pairs(count);
    let (sent, came) = (Moved::default(), Moved::default());
    let mut sink = Vec::new();
    let sending = send(data, &mut near, encoding, &sent);
    let (sent_all, received) = tokio::join!(sending, receive(far, &mut sink, encoding, &came));
    sent_all.unwrap();
    received.unwrap();
    assert_eq!(came.bytes(), sink.len() as u64);
    sink
}

#[tokio::test]
async fn everything_arrives_as_it_was() {
    for size in [0, 1, 8191, 8192, 8193, 100_000, 3_000_000] {
        let data = bytes(size);
        assert!(carry(&data, 1, encoding(Framing::Stream, false)).await == data, "{size}");
        assert!(carry(&data, 1, encoding(Framing::Block, false)).await == data, "{size}");
        for count in [1, 2, 7] {
            assert!(carry(&data, count, encoding(Framing::Striped, false)).await == data, "{size}");
        }
    }
    let text = b"one\ntwo\n\nthree".repeat(40_000);
    for framing in [Framing::Stream, Framing::Block] {
        assert!(carry(&text, 1, encoding(framing, true)).await == text);
    }
}

/// Receives what was recorded of a sender, cut short by so many bytes.
async fn cut(framing: Framing, by: usize) -> Result<Vec<u8>, DataError> {
    let (mut near, far) = duplex(1 << 20);
    let sent = bytes(20_000);
    let (out, mut recorded) = duplex(1 << 20);
    send(&sent[..], &mut [Box::new(out) as Channel], encoding(framing, false), &Moved::default())
        .await?;
    let mut wire = Vec::new();
    recorded.read_to_end(&mut wire).await?;
    near.write_all(&wire[..wire.len() - by]).await?;
    drop(near);
    let mut sink = Vec::new();
    let channels: Vec<Channel> = vec![Box::new(far)];
    receive(channels, &mut sink, encoding(framing, false), &Moved::default()).await?;
    assert_eq!(sink, sent);
    Ok(sink)
}

#[tokio::test]
async fn blocks_and_records_tell_a_cut_from_the_end() {
    for framing in [Framing::Block, Framing::Striped] {
        assert!(cut(framing, 0).await.is_ok());
        for by in [1, 3, 11, 12, 13, 5000, 8204] {
            assert!(matches!(cut(framing, by).await, Err(DataError::Cut)), "{framing:?} {by}");
        }
    }
}

#[tokio::test]
async fn connections_that_contradict_each_other_are_refused() {
    let record = |number: u32| [&number.to_be_bytes()[..], &[7; RECORD_LEN]].concat();
    let end = |bytes: u64| stripe::xftp::closing(bytes).to_vec();
    let lie = [0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1];
    for (one, other) in [
        ([record(0), end(9000)].concat(), end(8192)),
        ([record(0), end(8192)].concat(), [record(0), end(8192)].concat()),
        ([record(1), record(0), end(9000)].concat(), end(9000)),
        ([record(0), end(9000)].concat(), end(9000)),
        ([record(0), record(1), end(8192)].concat(), end(8192)),
        (record(u32::MAX), end(0)),
        (lie.to_vec(), end(1)),
    ] {
        let mut channels: Vec<Channel> = Vec::new();
        for wire in [one, other] {
            let (mut near, far) = duplex(1 << 20);
            near.write_all(&wire).await.unwrap();
            channels.push(Box::new(far));
        }
        let (mut sink, moved) = (Vec::new(), Moved::default());
        let done = receive(channels, &mut sink, encoding(Framing::Striped, false), &moved);
        assert!(matches!(done.await, Err(DataError::Malformed)));
    }
}

#[tokio::test]
async fn restart_markers_are_passed_over() {
    let (mut near, far) = duplex(100);
    near.write_all(&[0, 0, 2, b'a', b'b', 16, 0, 3, b'9', b'9', b'9', 64, 0, 1, b'c'])
        .await
        .unwrap();
    let mut sink = Vec::new();
    receive(vec![Box::new(far)], &mut sink, encoding(Framing::Block, false), &Moved::default())
        .await
        .unwrap();
    assert_eq!(sink, b"abc");
}

//! Every encoding there and back, over connections that are cut anywhere.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use proptest::prelude::*;
use tokio::io::{ReadBuf, duplex};
use tokio::sync::watch;

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

/// What is named rules what is sent, and whatever the kernel can is better than nothing.
#[tokio::test]
async fn data_connections_are_congestion_controlled_as_was_asked() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let congestion_control = || {
        let name = SockRef::from(&stream).tcp_congestion().unwrap();
        String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
    };
    tune(&stream, None);
    let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    if allowed.unwrap().split_whitespace().any(|name| name == "bbr") {
        assert_eq!(congestion_control(), "bbr");
    }
    tune(&stream, Some("reno"));
    assert_eq!(congestion_control(), "reno");
    assert!(SockRef::from(&stream).keepalive().unwrap());
}

async fn carry(data: &[u8], count: usize, encoding: Encoding) -> Vec<u8> {
    let (mut near, far) = pairs(count);
    let (sent, came) = (Moved::default(), Moved::default());
    let mut sink = Vec::new();
    let sending = send(data, &mut near, encoding, Policy::default(), &sent);
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

/// 1500 bytes a second.
#[tokio::test(start_paused = true)]
async fn what_flows_slowly_does_not_stand_still() {
    let text = b"one\ntwo\n\nthree".repeat(50_000);
    for (framing, ascii) in
        [(Framing::Stream, false), (Framing::Block, false), (Framing::Stream, true)]
    {
        let (near, mut far) = duplex(1500);
        let (mut near, moved) = ([Box::new(near) as Channel], Moved::default());
        let encoding = encoding(framing, ascii);
        let sending = send(&text[..], &mut near, encoding, Policy::default(), &moved);
        let taking = async {
            let mut piece = [0; 1500];
            while far.read(&mut piece).await.unwrap() > 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::join!(async { sending.await.unwrap() }, taking);
        assert_eq!(moved.bytes(), text.len() as u64);
    }
    // And what stands still is given up.
    let (near, _unread) = duplex(600);
    let (mut near, moved) = ([Box::new(near) as Channel], Moved::default());
    let encoding = encoding(Framing::Stream, false);
    let sent = send(&text[..], &mut near, encoding, Policy::default(), &moved).await;
    assert!(matches!(sent, Err(DataError::Stalled)));
}

/// Sends over six connections, of which it uses as many as told from one moment to the next; what
/// arrives, and over how many.
async fn carry_over(counts: &[usize], data: &[u8]) -> (Vec<u8>, usize) {
    carry_after(0, counts, data).await
}

/// The same behind so many records.
async fn carry_after(before: u64, counts: &[usize], data: &[u8]) -> (Vec<u8>, usize) {
    let (mut near, far) = pairs(6);
    let (sent, came) = (Moved::default(), Moved::default());
    let used = watch::Sender::new(counts[0]);
    let changing = async {
        for &count in counts.iter().cycle() {
            tokio::task::yield_now().await;
            striped::change(&used, count);
        }
    };
    let mut sink = Vec::new();
    let carrying = async {
        tokio::join!(
            striped::spread(data, &mut near, &used, &sent, before),
            striped::receive_from(before, far, &mut sink, &came)
        )
    };
    tokio::select! {
        (sent_all, received) = carrying => sent_all.and(received).unwrap(),
        () = changing => unreachable!("it goes on for ever"),
    }
    assert_eq!(came.connections(), sent.connections());
    (sink, came.connections())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn everything_arrives_however_many_are_used(
        counts in prop::collection::vec(1_usize..8, 1..12),
        size in 0_usize..600_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let data = bytes(size);
        let (sink, connections) = runtime.block_on(carry_over(&counts, &data));
        prop_assert!(sink == data);
        prop_assert!(Some(&connections) <= counts.iter().max());
    }
}

#[tokio::test]
async fn others_carry_nothing_and_come_in_when_they_are_wanted() {
    let data = bytes(3_000_000);
    assert_eq!(carry_over(&[1], &data).await, (data.clone(), 1));
    assert_eq!(carry_over(&[3], &data).await, (data.clone(), 3));
    assert_eq!(carry_over(&[1, 6], &data).await, (data.clone(), 6));
}

/// As in a file of 32 TiB, and in one of 96.
#[tokio::test]
async fn record_numbers_begin_anew() {
    let wrap = 1 << 32;
    for before in [wrap - 1, wrap - 60, 3 * wrap - 17] {
        for size in [1, 100 * RECORD_LEN, 1_000_001] {
            let data = bytes(size);
            assert!(carry_after(before, &[6], &data).await.0 == data, "{before} {size}");
            assert!(carry_after(before, &[1, 5, 2], &data).await.0 == data, "{before} {size}");
        }
    }
}

/// Receives what was recorded of a sender, cut short by so many bytes.
async fn cut(framing: Framing, by: usize) -> Result<Vec<u8>, DataError> {
    let (mut near, far) = duplex(1 << 20);
    let sent = bytes(20_000);
    let (out, mut recorded) = duplex(1 << 20);
    let (mut out, moved) = ([Box::new(out) as Channel], Moved::default());
    send(&sent[..], &mut out, encoding(framing, false), Policy::default(), &moved).await?;
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

/// Keeps what is written until it is flushed, as TLS may.
struct Holding {
    inner: DuplexStream,
    held: Vec<u8>,
}

impl AsyncRead for Holding {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for Holding {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.held.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while !this.held.is_empty() {
            let len = ready!(Pin::new(&mut this.inner).poll_write(context, &this.held))?;
            this.held.drain(..len);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl Connection for Holding {
    fn tcp(&self) -> Option<&TcpStream> {
        None
    }
}

#[tokio::test]
async fn a_record_goes_out_though_nothing_follows_it() {
    // The first takes a record and is stuck with it; the other one gets the last there is for now.
    let (stuck, _unread) = duplex(1000);
    let (inner, mut far) = duplex(100_000);
    let holding = Holding { inner, held: Vec::new() };
    let mut near: Vec<Channel> = vec![Box::new(stuck), Box::new(holding)];
    let (mut writer, source) = duplex(100_000);
    writer.write_all(&bytes(2 * RECORD_LEN)).await.unwrap();
    let (used, moved) = (watch::Sender::new(2), Moved::default());
    let mut record = vec![0; NUMBER_LEN + RECORD_LEN];
    tokio::select! {
        sent = striped::spread(source, &mut near, &used, &moved, 0) => panic!("{sent:?}"),
        read = far.read_exact(&mut record) => assert_eq!(read.unwrap(), record.len()),
        () = tokio::time::sleep(Duration::from_secs(30)) => panic!("the record is held back"),
    }
    assert_eq!(record[NUMBER_LEN..], bytes(2 * RECORD_LEN)[RECORD_LEN..]);
}

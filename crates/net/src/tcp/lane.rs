//! One TCP connection of a stream: a task that sends, and one that receives.
//!
//! On the wire each record is its header in clear, the sealed payload, and the seal, which covers
//! the header too. The seal's number counts the records of this connection and direction, so a
//! record that is changed, dropped, repeated or moved to another place does not open. Both ends go
//! on to the next key after the same number of records.

use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use socket2::SockRef;
use stripe::{GatherError, HEADER_LEN, Header, HeaderError, MAX_PAYLOAD, TRAILER_ROOM};
use tokio::net::TcpStream;
use transport::crypto::{CryptoError, Opener, Sealer, TAG_LEN};

use super::hello::FIRST_RECORD;
use super::shared::Shared;

const MAX_RECORD: usize = HEADER_LEN + MAX_PAYLOAD + TAG_LEN;
/// Received bytes share blocks of this size. A record split over two is copied to the new one,
/// so a block has room for several.
const BLOCK: usize = 4 * MAX_RECORD;

/// Records under one key: 2^32 blocks at most.
const KEY_RECORDS: u64 = 1 << 20;

const _: () = assert!(MAX_PAYLOAD as u64 / 16 * KEY_RECORDS <= 1 << 32);
const _: () = assert!(TAG_LEN <= TRAILER_ROOM, "the seal must fit behind a record");

/// Why a connection, and with it the stream, ended early.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("a connection was cut before the end of the stream")]
    Cut,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("a damaged or foreign record: {0}")]
    Crypto(#[from] CryptoError),
    #[error("{0}")]
    Header(#[from] HeaderError),
    #[error("{0}")]
    Gather(#[from] GatherError),
}

/// Sends records over `connection` until its fin is sent or the stream fails.
pub(super) async fn send(shared: Arc<Shared>, connection: usize, sealer: Sealer) {
    if let Err(lost) = send_records(&shared, connection, sealer).await {
        shared.fail(lost.to_string());
    }
}

async fn send_records(shared: &Shared, connection: usize, mut sealer: Sealer) -> Result<(), Lost> {
    let socket = &shared.sockets[connection];
    for number in FIRST_RECORD.. {
        if number % KEY_RECORDS == 0 {
            sealer = sealer.next();
        }
        // Asking only when the kernel has room is what makes the assignment dynamic.
        socket.writable().await?;
        let Some(record) = poll_fn(|cx| shared.poll_take(cx, connection)).await else {
            break;
        };
        let mut bytes = record.bytes;
        let (header, payload) = bytes.split_at_mut(HEADER_LEN);
        let seal = sealer.seal(number, header, payload);
        bytes.extend_from_slice(&seal);
        write_all(socket, &bytes).await?;
        if let Header::Fin { .. } = record.header {
            SockRef::from(socket).shutdown(Shutdown::Write)?;
            shared.sent(record.header);
            break;
        }
        shared.sent(record.header);
    }
    Ok(())
}

async fn write_all(socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives records over `connection` until its fin comes or the stream fails.
pub(super) async fn receive(shared: Arc<Shared>, connection: usize, opener: Opener) {
    if let Err(lost) = receive_records(&shared, connection, opener).await {
        shared.fail(lost.to_string());
    }
}

async fn receive_records(
    shared: &Shared,
    connection: usize,
    mut opener: Opener,
) -> Result<(), Lost> {
    let socket = &shared.sockets[connection];
    let mut buffer = BytesMut::new();
    for number in FIRST_RECORD.. {
        if number % KEY_RECORDS == 0 {
            opener = opener.next();
        }
        poll_fn(|cx| shared.poll_can_read(cx, connection)).await;
        let (header, payload) = loop {
            match open(&mut buffer, number, &opener)? {
                Some(record) => break record,
                None => fill(socket, &mut buffer).await?,
            }
        };
        shared.accept(connection, header, payload)?;
        if let Header::Fin { .. } = header {
            break;
        }
    }
    Ok(())
}

/// Splits the first record off `buffer` and opens it; `None` while it is not all there.
fn open(
    buffer: &mut BytesMut,
    number: u64,
    opener: &Opener,
) -> Result<Option<(Header, Bytes)>, Lost> {
    let Some(header) = buffer.first_chunk() else {
        return Ok(None);
    };
    let header = Header::decode(header)?;
    let sealed_len = header.payload() + TAG_LEN;
    if buffer.len() < HEADER_LEN + sealed_len {
        return Ok(None);
    }
    let mut record = buffer.split_to(HEADER_LEN + sealed_len);
    let (associated, sealed) = record.split_at_mut(HEADER_LEN);
    opener.open(number, associated, sealed)?;
    record.advance(HEADER_LEN);
    record.truncate(header.payload());
    Ok(Some((header, record.freeze())))
}

/// Waits for more bytes.
async fn fill(socket: &TcpStream, buffer: &mut BytesMut) -> Result<(), Lost> {
    if buffer.capacity() < MAX_RECORD {
        buffer.reserve(BLOCK);
    }
    loop {
        socket.readable().await?;
        match socket.try_read_buf(buffer) {
            Ok(0) => return Err(Lost::Cut),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

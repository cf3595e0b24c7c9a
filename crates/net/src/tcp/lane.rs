//! One TCP connection of a stream: a task that sends, and one that receives.
//!
//! On the wire each record is its header in clear, the sealed payload, and the seal, which covers
//! the header too. The seal's number counts the records of this connection and direction, so a
//! record that is changed, dropped, repeated or moved to another place does not open. Both ends go
//! on to the next key after the same number of records.
//!
//! A connection that is cut or damaged costs the stream nothing but what it carried, which others
//! carry again. A peer that breaks the rules costs it everything.

use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use socket2::SockRef;
use stripe::{
    ACK_LEN, Ack, AckError, GatherError, HEADER_LEN, Header, HeaderError, LaneId, MAX_PAYLOAD,
};
use tokio::net::TcpStream;
use tokio::time::timeout;
use transport::crypto::{CryptoError, Opener, Sealer, TAG_LEN};
use units::SeqNo;

use super::hello::{Connection, FIRST_RECORD};
use super::shared::Shared;
use super::state::Next;

const MAX_RECORD: usize = HEADER_LEN + MAX_PAYLOAD + TAG_LEN;
/// Received bytes share blocks of this size. A record split over two is copied to the new one,
/// so a block has room for several.
const BLOCK: usize = 4 * MAX_RECORD;

/// Records under one key: 2^32 blocks at most.
const KEY_RECORDS: u64 = 1 << 20;

/// How long a connection of a stream that failed may take to say so.
const FAREWELL: Duration = Duration::from_secs(5);

const _: () = assert!(MAX_PAYLOAD as u64 / 16 * KEY_RECORDS <= 1 << 32);

/// Why a connection ended early.
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
    #[error("{0}")]
    Ack(#[from] AckError),
    #[error("the other side gave it up before its end")]
    Reset,
}

/// Takes a connection into a stream and lets it run, unless the stream takes no more. The other side
/// is told when the stream has ended; when there is no room, it sees the connection closed.
pub(super) fn run(shared: &Arc<Shared>, connection: Connection) {
    let Connection { socket, keys } = connection;
    let socket = Arc::new(socket);
    let Some(id) = shared.join(&socket) else {
        if shared.is_past() {
            tokio::spawn(async move { reset(&socket, &keys.sealer).await });
        }
        return;
    };
    let sending = (shared.clone(), socket.clone());
    tokio::spawn(async move { send(&sending.0, &sending.1, id, keys.sealer).await });
    let shared = shared.clone();
    tokio::spawn(async move { receive(&shared, &socket, id, keys.opener).await });
}

/// Tells a client that the stream which it wants to join is not there.
pub(super) async fn refuse(connection: Connection) {
    reset(&connection.socket, &connection.keys.sealer).await;
}

/// Says of a connection that has not begun that it has nothing to carry.
async fn reset(socket: &TcpStream, sealer: &Sealer) {
    let mut reset = Vec::new();
    seal(sealer, FIRST_RECORD, Header::Reset, &[], &mut reset);
    farewell(socket, &reset).await;
}

/// Sends until both sides have left the connection, or it is lost, or the stream failed.
async fn send(shared: &Shared, socket: &TcpStream, id: LaneId, mut sealer: Sealer) {
    let mut bytes = Vec::new();
    for number in FIRST_RECORD.. {
        if number % KEY_RECORDS == 0 {
            sealer = sealer.next();
        }
        // Asking only when the kernel has room is what makes the assignment dynamic.
        let next = match socket.writable().await {
            Ok(()) => poll_fn(|cx| shared.poll_next(cx, id)).await,
            Err(_) => Next::Gone,
        };
        bytes.clear();
        match &next {
            Next::Data(record) => {
                let length = record.payload.len();
                let header = Header::Data { number: SeqNo(record.number), length };
                seal(&sealer, number, header, &record.payload, &mut bytes);
            }
            Next::Ack(ack) => seal(&sealer, number, Header::Ack, &ack.encode(), &mut bytes),
            Next::Leave => seal(&sealer, number, Header::Leave, &[], &mut bytes),
            Next::Close => {
                // One that is lost meanwhile needs no closing.
                let _ = SockRef::from(socket).shutdown(Shutdown::Write);
                return;
            }
            Next::Reset => {
                seal(&sealer, number, Header::Reset, &[], &mut bytes);
                return farewell(socket, &bytes).await;
            }
            Next::Gone => return,
        }
        if write_all(socket, &bytes).await.is_err() {
            // The receiving task notices too, and may have something left to read.
            let _ = SockRef::from(socket).shutdown(Shutdown::Write);
            return;
        }
    }
}

/// Says that the stream failed, gives the other side time to read it, and closes.
async fn farewell(socket: &TcpStream, reset: &[u8]) {
    let _ = timeout(FAREWELL, write_all(socket, reset)).await;
    let _ = SockRef::from(socket).shutdown(Shutdown::Write);
    tokio::time::sleep(FAREWELL).await;
    let _ = SockRef::from(socket).shutdown(Shutdown::Both);
}

fn seal(sealer: &Sealer, number: u64, header: Header, payload: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&header.encode());
    bytes.extend_from_slice(payload);
    let (header, payload) = bytes.split_at_mut(HEADER_LEN);
    let seal = sealer.seal(number, header, payload);
    bytes.extend_from_slice(&seal);
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

/// Receives until the connection ends, and sees what that means for the stream.
async fn receive(shared: &Shared, socket: &TcpStream, id: LaneId, opener: Opener) {
    let ended = receive_records(shared, socket, id, opener).await;
    let in_order = ended.is_ok();
    match ended {
        // The other side has nothing of this stream any more, so nothing is to be told.
        Err(Lost::Reset) if shared.is_over() => shared.settle(),
        // A stream that is over cannot fail any more.
        Err(_) if shared.is_over() => {}
        Err(lost @ (Lost::Reset | Lost::Gather(_) | Lost::Ack(_))) => {
            shared.fail(lost.to_string());
        }
        // Of a record that does not open nobody knows who wrote it.
        Err(Lost::Cut | Lost::Io(_) | Lost::Header(_) | Lost::Crypto(_)) | Ok(()) => {}
    }
    if shared.has_failed() {
        // Unread bytes would turn the farewell into a reset of TCP.
        let _ = timeout(2 * FAREWELL, drain(socket)).await;
    }
    let _ = SockRef::from(socket).shutdown(Shutdown::Both);
    shared.leave(id, in_order);
}

async fn drain(socket: &TcpStream) {
    let mut scrap = [0; 4096];
    while socket.readable().await.is_ok() {
        match socket.try_read(&mut scrap) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

async fn receive_records(
    shared: &Shared,
    socket: &TcpStream,
    id: LaneId,
    mut opener: Opener,
) -> Result<(), Lost> {
    let mut buffer = BytesMut::new();
    for number in FIRST_RECORD.. {
        if number % KEY_RECORDS == 0 {
            opener = opener.next();
        }
        let (header, payload) = loop {
            if let Some(record) = open(&mut buffer, number, &opener)? {
                break record;
            }
            shared.acknowledge(id);
            if fill(socket, &mut buffer).await? == 0 {
                return if shared.parted(id) { Ok(()) } else { Err(Lost::Cut) };
            }
        };
        if shared.has_failed() {
            return Ok(());
        }
        if number == FIRST_RECORD {
            shared.begin(id);
        }
        match header {
            Header::Data { number, .. } => shared.accept(id, number.0, payload)?,
            Header::Ack => {
                let bytes: &[u8; ACK_LEN] = payload.first_chunk().expect("its length was checked");
                shared.confirm(id, &Ack::decode(bytes))?;
            }
            Header::Leave => shared.peer_leaves(id),
            Header::Reset => return Err(Lost::Reset),
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
    // What is short would hold a whole block for as long as it waits for its turn.
    let is_short = record.len() < MAX_PAYLOAD / 4;
    let payload = if is_short { Bytes::copy_from_slice(&record) } else { record.freeze() };
    Ok(Some((header, payload)))
}

/// Waits for more bytes, and says how many came: none at the end of the connection.
async fn fill(socket: &TcpStream, buffer: &mut BytesMut) -> io::Result<usize> {
    if buffer.capacity() < MAX_RECORD {
        buffer.reserve(BLOCK);
    }
    loop {
        socket.readable().await?;
        match socket.try_read_buf(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}

//! Moves bytes between a TCP connection and a stream until both directions ended, or either was given
//! up: then both are, and the TCP connection is reset.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use super::wire::{HEAD, PIECE_MAX};

/// A host that says nothing for so long is asked whether it is there.
const IDLE: Duration = Duration::from_secs(600);
/// Questions without an answer, a tenth of that apart, after which it is gone.
const QUESTIONS: u32 = 3;

/// What is wanted of every host's connection: no delay of its own, to learn when the host is gone,
/// and to be reset when it is dropped, by whatever way, before [`pump`] brought it to its end. Without
/// that a host would take the middle of the bytes for their end.
pub fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(IDLE).with_interval(IDLE / 10).with_retries(QUESTIONS);
    let socket = SockRef::from(socket);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_linger(Some(Duration::ZERO))
}

/// Moves everything, both ways, of a socket that is prepared. On an error, and when it is given up,
/// the socket is reset and the stream dropped unfinished, so that both applications see what happened
/// to the other.
pub async fn pump(
    socket: TcpStream,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    let (reading, writing) = tokio::io::split(stream);
    let (from, to) = (&socket, &socket);
    let both = async { tokio::try_join!(pack(from, writing), unpack(reading, to)) };
    tokio::select! {
        biased;
        done = both => drop(done?),
        // Where nothing is read any more, and nothing is there to be written, nobody else sees its reset.
        failed = socket.ready(Interest::ERROR) => {
            failed?;
            return Err(socket.take_error()?.unwrap_or(io::ErrorKind::BrokenPipe.into()));
        }
    }
    SockRef::from(&socket).set_linger(None)
}

/// From the application to the stream, in pieces, and the end.
async fn pack(socket: &TcpStream, mut stream: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut piece = vec![0; HEAD + PIECE_MAX];
    loop {
        socket.readable().await?;
        let length = match socket.try_read(&mut piece[HEAD..]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            length => length?,
        };
        piece[..HEAD].copy_from_slice(&(length as u16).to_be_bytes());
        stream.write_all(&piece[..HEAD + length]).await?;
        if length == 0 {
            return stream.shutdown().await;
        }
        stream.flush().await?;
    }
}

/// From the stream to the application, up to the end.
async fn unpack(mut stream: impl AsyncRead + Unpin, mut socket: &TcpStream) -> io::Result<()> {
    let mut piece = vec![0; PIECE_MAX];
    loop {
        let length = usize::from(stream.read_u16().await?);
        let piece = piece.get_mut(..length).ok_or(io::ErrorKind::InvalidData)?;
        if piece.is_empty() {
            return SockRef::from(socket).shutdown(std::net::Shutdown::Write);
        }
        stream.read_exact(piece).await?;
        write_all(&mut socket, piece).await?;
    }
}

async fn write_all(socket: &mut &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.writable().await?;
        match socket.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

//! Moves bytes between a TCP connection and a stream until both directions ended, or either was given
//! up: then both are, and the TCP connection is reset.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::wire::{HEAD, PIECE_MAX};

/// Moves everything, both ways. On an error the socket is reset and the stream dropped unfinished, so
/// that both applications see what happened to the other.
pub async fn pump(
    socket: TcpStream,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let (reading, writing) = tokio::io::split(stream);
    let result = {
        let (from, to) = (&socket, &socket);
        tokio::try_join!(pack(from, writing), unpack(reading, to)).map(drop)
    };
    if result.is_err() {
        reset(&socket);
    }
    result
}

/// Makes closing the socket a reset.
pub fn reset(socket: &TcpStream) {
    // A socket that is gone already needs none.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
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

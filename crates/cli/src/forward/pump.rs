//! Moves bytes between a TCP connection and a stream until both directions ended, or either was given
//! up: then both are, and the TCP connection is reset.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::sync::oneshot::{self, Receiver};

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
    let (ended, has_ended) = oneshot::channel();
    let packing = async {
        pack(from, writing).await?;
        // If nothing is there to be written either, nobody else sees a reset from now on.
        let _ = ended.send(());
        Ok(())
    };
    let both = async { tokio::try_join!(packing, unpack(reading, to)) };
    tokio::select! {
        biased;
        done = both => drop(done?),
        error = reset(&socket, has_ended) => return Err(error),
    }
    SockRef::from(&socket).set_linger(None)
}

/// Why the connection failed, if it does once nothing is read from it any more: what came before is read first.
async fn reset(socket: &TcpStream, has_ended: Receiver<()>) -> io::Error {
    if has_ended.await.is_err() {
        // Whoever reads has met an error.
        return std::future::pending().await;
    }
    let failed = socket.ready(Interest::ERROR).await.and_then(|_| socket.take_error());
    failed.unwrap_or_else(Some).unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
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

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use tokio::net::TcpListener;

    use super::*;

    /// Nothing is read of him any more, and the other side has nothing to say.
    #[tokio::test]
    async fn who_has_closed_one_way_and_is_gone_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let application = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        prepare(&socket).unwrap();
        let (near, mut far) = tokio::io::duplex(1000);
        let pumping = tokio::spawn(pump(socket, near));
        application.shutdown(Shutdown::Write).unwrap();
        assert_eq!(far.read_u16().await.unwrap(), 0, "the end of what he says");
        SockRef::from(&application).set_linger(Some(Duration::ZERO)).unwrap();
        drop(application);
        let ended = tokio::time::timeout(Duration::from_secs(20), pumping).await;
        let error = ended.expect("it ends").unwrap().unwrap_err();
        // What the kernel says of a reset that comes after the end.
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}

//! Streams over a pair of pipes, one after another: what ssh carries where nothing else passes.
//!
//! Each direction is pieces behind their lengths, four bytes, little endian; a piece of length zero
//! ends the direction for this stream, so that the pipes can serve the next.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, ReadBuf};

/// The longest piece, and what waits for the pipe at most.
const PIECE: usize = 64 << 10;
const HEAD: usize = 4;

/// Two pipes.
pub struct Channel<R, W> {
    reader: R,
    writer: W,
}

impl<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin> Channel<R, W> {
    pub fn new(reader: R, writer: W) -> Self {
        Self { reader, writer }
    }

    /// Waits until the other side begins a stream; false when the pipe has ended instead.
    pub async fn incoming(&mut self) -> io::Result<bool> {
        Ok(!self.reader.fill_buf().await?.is_empty())
    }

    /// A new stream. The one before must be finished.
    pub fn stream(&mut self) -> Stream<'_, R, W> {
        let outgoing = Vec::with_capacity(HEAD + PIECE);
        Stream { channel: self, head: Vec::new(), left: 0, ended: false, outgoing, finished: false }
    }
}

/// A stream over the pipes. One that is dropped unfinished leaves them of no further use.
pub struct Stream<'a, R, W> {
    channel: &'a mut Channel<R, W>,
    /// Of the next piece's length, what is here.
    head: Vec<u8>,
    /// Bytes of the piece that are still to come.
    left: usize,
    ended: bool,
    /// Waits for the pipe.
    outgoing: Vec<u8>,
    finished: bool,
}

impl<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin> Stream<'_, R, W> {
    /// Ends this side's direction, and reads away what still comes in the other.
    pub async fn finish(mut self) -> io::Result<()> {
        tokio::io::AsyncWriteExt::shutdown(&mut self).await?;
        tokio::io::copy(&mut self, &mut tokio::io::sink()).await.map(|_| ())
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.left == 0 && !self.ended {
            let available = ready!(Pin::new(&mut self.channel.reader).poll_fill_buf(cx))?;
            if available.is_empty() {
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
            let taken = available.len().min(HEAD - self.head.len());
            self.head.extend_from_slice(&available[..taken]);
            Pin::new(&mut self.channel.reader).consume(taken);
            if let Some(head) = self.head.first_chunk() {
                self.left = u32::from_le_bytes(*head) as usize;
                self.head.clear();
                self.ended = self.left == 0;
            }
            if self.left > PIECE {
                let message = "what comes over ssh is no Longhaul stream";
                return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, message)));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let writer = Pin::new(&mut self.channel.writer);
            match ready!(writer.poll_write(cx, &self.outgoing))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => self.outgoing.drain(..written),
            };
        }
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin> AsyncRead for Stream<'_, R, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_head(cx))?;
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        let this = &mut *self;
        let available = ready!(Pin::new(&mut this.channel.reader).poll_fill_buf(cx))?;
        if available.is_empty() {
            return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
        }
        let taken = available.len().min(this.left).min(buffer.remaining());
        buffer.put_slice(&available[..taken]);
        this.left -= taken;
        Pin::new(&mut this.channel.reader).consume(taken);
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin> AsyncWrite for Stream<'_, R, W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(cx))?;
        let piece = &bytes[..bytes.len().min(PIECE)];
        if !piece.is_empty() {
            self.outgoing.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            self.outgoing.extend_from_slice(piece);
        }
        // What the pipe does not take now goes with the next call.
        let _ = self.poll_drain(cx)?;
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.channel.writer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.finished {
            self.finished = true;
            self.outgoing.extend_from_slice(&[0; HEAD]);
        }
        self.poll_flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, duplex, split};

    use super::*;

    #[tokio::test]
    async fn streams_follow_each_other_over_the_same_pipes() {
        let (near, far) = duplex(100);
        let make = |pipe| {
            let (reader, writer) = split(pipe);
            Channel::new(BufReader::new(reader), writer)
        };
        let (mut near, mut far) = (make(near), make(far));
        let asks = async move {
            for round in 0..3 {
                let mut stream = near.stream();
                let sent = vec![round; 200_000];
                stream.write_all(&sent).await.unwrap();
                stream.shutdown().await.unwrap();
                let mut came = Vec::new();
                stream.read_to_end(&mut came).await.unwrap();
                assert_eq!(came, [round, round]);
                stream.finish().await.unwrap();
            }
        };
        let answers = async move {
            let mut served = 0;
            while far.incoming().await.unwrap() {
                let mut stream = far.stream();
                let first = stream.read_u8().await.unwrap();
                stream.write_all(&[first, first]).await.unwrap();
                // What it did not read is read away.
                stream.finish().await.unwrap();
                served += 1;
            }
            served
        };
        assert_eq!(tokio::join!(asks, answers).1, 3);
    }

    #[tokio::test]
    async fn other_bytes_and_an_end_in_the_middle_are_errors() {
        for bytes in [&b"Last login: yesterday"[..], b"\x05\0\0\0abc", b"\x05\0"] {
            let mut channel = Channel::new(bytes, tokio::io::sink());
            channel.stream().read_to_end(&mut Vec::new()).await.unwrap_err();
        }
    }
}

//! Streams over a pair of pipes, one after another: what ssh carries where nothing else passes.
//!
//! Each direction is pieces behind their lengths, four bytes, little endian; a piece of length zero
//! ends the direction for this stream, so that the pipes can serve the next. The length `0xffffffff`
//! ends it too, for a stream that was given up in the middle.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, ReadBuf};

/// The longest piece, and what waits for the pipe at most.
const PIECE: usize = 64 << 10;
const HEAD: usize = 4;

/// In the place of a length: who sent this has given up the stream. The other side ends it too.
const RESET: u32 = u32::MAX;

/// Two pipes, and how far their present stream is.
pub struct Channel<R, W> {
    reader: R,
    writer: W,
    /// Of the next piece's length, what is here.
    head: Vec<u8>,
    /// Bytes of the piece that are still to come.
    left: usize,
    /// The other side's direction has ended.
    ended: bool,
    /// Waits for the pipe.
    outgoing: Vec<u8>,
    /// This side's direction has ended.
    finished: bool,
}

impl<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin> Channel<R, W> {
    pub fn new(reader: R, writer: W) -> Self {
        let (head, outgoing) = (Vec::new(), Vec::with_capacity(HEAD + PIECE));
        Self { reader, writer, head, left: 0, ended: true, outgoing, finished: true }
    }

    /// Waits until the other side begins a stream; false when the pipe has ended instead.
    pub async fn incoming(&mut self) -> io::Result<bool> {
        Ok(!self.reader.fill_buf().await?.is_empty())
    }

    /// A new stream. The one before must be finished, or given up by [`Channel::reset`].
    pub fn stream(&mut self) -> Stream<'_, R, W> {
        (self.ended, self.finished) = (false, false);
        Stream(self)
    }

    /// Gives up a stream that was dropped in the middle, so that the pipes can serve the next: tells
    /// the other side, and reads away what still comes from there.
    pub async fn reset(&mut self) -> io::Result<()> {
        if !self.finished {
            self.finished = true;
            self.outgoing.extend_from_slice(&RESET.to_le_bytes());
        }
        // The other side may read no more before what it has written is taken.
        std::future::poll_fn(|cx| {
            let told = self.poll_flush(cx)?.is_ready();
            let emptied = self.poll_empty(cx)?.is_ready();
            if told && emptied { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    fn poll_empty(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_head(cx))?;
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            let available = ready!(self.poll_piece(cx))?.len();
            self.consume(available);
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.left == 0 && !self.ended {
            let available = ready!(Pin::new(&mut self.reader).poll_fill_buf(cx))?;
            if available.is_empty() {
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
            let taken = available.len().min(HEAD - self.head.len());
            self.head.extend_from_slice(&available[..taken]);
            Pin::new(&mut self.reader).consume(taken);
            let Some(head) = self.head.first_chunk() else { continue };
            let length = u32::from_le_bytes(*head);
            self.head.clear();
            if length == RESET {
                self.ended = true;
                return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
            }
            if length as usize > PIECE {
                let message = "what comes over ssh is no Longhaul stream";
                return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, message)));
            }
            self.left = length as usize;
            self.ended = self.left == 0;
        }
        Poll::Ready(Ok(()))
    }

    /// What has come of the piece: never nothing.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let available = ready!(Pin::new(&mut self.reader).poll_fill_buf(cx))?;
        if available.is_empty() {
            return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
        }
        Poll::Ready(Ok(&available[..available.len().min(self.left)]))
    }

    fn consume(&mut self, taken: usize) {
        self.left -= taken;
        Pin::new(&mut self.reader).consume(taken);
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let writer = Pin::new(&mut self.writer);
            match ready!(writer.poll_write(cx, &self.outgoing))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => self.outgoing.drain(..written),
            };
        }
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.writer).poll_flush(cx)
    }
}

/// A stream over the pipes. After one that is dropped unfinished comes a [`Channel::reset`].
pub struct Stream<'a, R, W>(&'a mut Channel<R, W>);

impl<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin> Stream<'_, R, W> {
    /// Ends this side's direction, and reads away what still comes in the other.
    pub async fn finish(mut self) -> io::Result<()> {
        tokio::io::AsyncWriteExt::shutdown(&mut self).await?;
        match tokio::io::copy(&mut self, &mut tokio::io::sink()).await {
            // It has given up, which is an end too.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
            read => read.map(|_| ()),
        }
    }
}

impl<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin> AsyncRead for Stream<'_, R, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let channel = &mut self.0;
        ready!(channel.poll_head(cx))?;
        if !channel.ended {
            let available = ready!(channel.poll_piece(cx))?;
            let taken = available.len().min(buffer.remaining());
            buffer.put_slice(&available[..taken]);
            channel.consume(taken);
        }
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncBufRead + Unpin, W: AsyncWrite + Unpin> AsyncWrite for Stream<'_, R, W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let channel = &mut self.0;
        ready!(channel.poll_drain(cx))?;
        let piece = &bytes[..bytes.len().min(PIECE)];
        if !piece.is_empty() {
            channel.outgoing.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            channel.outgoing.extend_from_slice(piece);
        }
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let channel = &mut self.0;
        if !channel.finished {
            channel.finished = true;
            channel.outgoing.extend_from_slice(&[0; HEAD]);
        }
        channel.poll_flush(cx)
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

    #[tokio::test]
    async fn a_stream_that_is_given_up_leaves_the_pipes_to_the_next() {
        let (near, far) = duplex(100);
        let make = |pipe| {
            let (reader, writer) = split(pipe);
            Channel::new(BufReader::new(reader), writer)
        };
        let (mut near, mut far) = (make(near), make(far));
        let gives_up = async move {
            // In the middle of a piece each way, and before anything was said.
            for said in [&[1; 50_000][..], &[2], &[]] {
                let mut stream = near.stream();
                let saying = async {
                    stream.write_all(said).await.unwrap();
                    stream.flush().await.unwrap();
                    stream.read_exact(&mut [0; 10]).await.unwrap();
                };
                let _ = tokio::time::timeout(std::time::Duration::from_millis(20), saying).await;
                near.reset().await.unwrap();
                near.reset().await.unwrap();
            }
            let mut stream = near.stream();
            stream.write_u8(7).await.unwrap();
            stream.flush().await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), 8);
            stream.finish().await.unwrap();
        };
        let answers = async move {
            let mut met = Vec::new();
            while far.incoming().await.unwrap() {
                let mut stream = far.stream();
                let answer = async {
                    met.push(stream.read_u8().await?);
                    if met.last() == Some(&7) {
                        return stream.write_all(&[8]).await;
                    }
                    stream.write_all(&[9; 30_000]).await?;
                    stream.read_to_end(&mut Vec::new()).await.map(|_| ())
                };
                let ended = answer.await.map_err(|error| error.kind());
                assert_eq!(ended.is_ok(), met.last() == Some(&7), "{ended:?}");
                stream.finish().await.unwrap();
            }
            met
        };
        assert_eq!(tokio::join!(gives_up, answers).1, [1, 2, 7]);
    }
}

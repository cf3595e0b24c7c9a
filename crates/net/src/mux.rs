//! Many streams over one that is in order, for what should not need a connection of its own each:
//! yamux, over a striped stream.
//!
//! UDP needs no such thing, for its connections have streams already.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};
use yamux::{Config, Connection, Mode};

use crate::error::NetError;

/// Streams that one end has open at a time, at most; further ones wait until one is dropped. Those to which
/// the other side has not said anything are 256 at most: yamux opens no more before it does.
pub const MAX_MUX_STREAMS: usize = 1024;
/// What all of them together may hold unread, at most: the 256 KiB that yamux sets aside for each there
/// may be on the wire, and what the windows of those may grow by whose readers take more.
pub const MAX_MUX_BUFFER: units::Bytes = units::Bytes::mib(MAX_ON_WIRE as u64 / 4 + 128);

/// Streams that there may be on the wire. A stream dropped here is there until the other side has
/// dropped it too, and one too many ends the whole connection: so this is more than anybody opens.
const MAX_ON_WIRE: usize = 2 * MAX_MUX_STREAMS;
/// Bytes in one frame: what is longer keeps others waiting.
const FRAME: usize = 64 << 10;

type Yamux = Compat<yamux::Stream>;

/// One of the streams. Its end of reading does not tell whether the other side finished or gave up.
pub struct MuxStream {
    stream: Yamux,
    /// Held by the end that opened it.
    _place: Option<OwnedSemaphorePermit>,
}

/// One end of a connection that carries many streams. Dropped, it ends with them.
pub struct Mux {
    /// Streams that may still be opened.
    places: Arc<Semaphore>,
    requests: mpsc::Sender<oneshot::Sender<Yamux>>,
    arrivals: Mutex<mpsc::Receiver<Yamux>>,
    driver: tokio::task::JoinHandle<()>,
}

impl Mux {
    /// The end that connected.
    pub fn client(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self::new(stream, Mode::Client)
    }

    /// The end that accepted.
    pub fn server(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self::new(stream, Mode::Server)
    }

    fn new(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, mode: Mode) -> Self {
        let mut config = Config::default();
        config.set_max_num_streams(MAX_ON_WIRE);
        config.set_max_connection_receive_window(Some(MAX_MUX_BUFFER.0 as usize));
        config.set_split_send_size(FRAME);
        let (requests, requested) = mpsc::channel(1);
        let (arriving, arrivals) = mpsc::channel(MAX_ON_WIRE);
        let places = Arc::new(Semaphore::new(MAX_MUX_STREAMS));
        let connection = Connection::new(stream.compat(), config, mode);
        let mut driver = Driver { connection, requested, pending: None, arriving };
        let driver = tokio::spawn(std::future::poll_fn(move |cx| driver.poll(cx)));
        Self { places, requests, arrivals: Mutex::new(arrivals), driver }
    }

    /// Opens a stream, once there are fewer than [`MAX_MUX_STREAMS`] that this end opened.
    ///
    /// # Errors
    /// [`NetError::Closed`] when the connection has ended.
    pub async fn open(&self) -> Result<MuxStream, NetError> {
        // Those who wait learn of the end, too: it ends the streams, and so frees their places.
        let place = self.places.clone().acquire_owned().await.map_err(|_| NetError::Closed)?;
        let (answer, answered) = oneshot::channel();
        self.requests.send(answer).await.map_err(|_| NetError::Closed)?;
        let stream = answered.await.map_err(|_| NetError::Closed)?;
        Ok(MuxStream { stream, _place: Some(place) })
    }

    /// The next stream that the other side opened; `None` when the connection has ended.
    pub async fn accept(&self) -> Option<MuxStream> {
        let stream = self.arrivals.lock().await.recv().await?;
        Some(MuxStream { stream, _place: None })
    }
}

impl AsyncRead for MuxStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for MuxStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Mux {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

struct Driver<S> {
    connection: Connection<Compat<S>>,
    requested: mpsc::Receiver<oneshot::Sender<Yamux>>,
    /// Waits for the connection to open a stream.
    pending: Option<oneshot::Sender<Yamux>>,
    arriving: mpsc::Sender<Yamux>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    /// Ready when the connection has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // This is what moves all streams' bytes.
            match self.connection.poll_next_inbound(cx) {
                Poll::Ready(Some(Ok(stream))) => {
                    // Dropped, when too many wait, the stream is reset.
                    let _ = self.arriving.try_send(stream.compat());
                    continue;
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {}
            }
            if self.pending.is_none() {
                match Pin::new(&mut self.requested).poll_recv(cx) {
                    Poll::Ready(request) if request.is_some() => self.pending = request,
                    _ => return Poll::Pending,
                }
            }
            match self.connection.poll_new_outbound(cx) {
                Poll::Ready(Ok(stream)) => {
                    if let Some(answer) = self.pending.take() {
                        let _ = answer.send(stream.compat());
                    }
                }
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn many_streams_go_over_one() {
        let (near, far) = duplex(10_000);
        let (client, server) = (Mux::client(near), Mux::server(far));
        let echoing = tokio::spawn(async move {
            while let Some(mut stream) = server.accept().await {
                tokio::spawn(async move {
                    let mut text = Vec::new();
                    stream.read_to_end(&mut text).await.unwrap();
                    stream.write_all(&text).await.unwrap();
                    stream.shutdown().await.unwrap();
                });
            }
        });
        let mut streams = Vec::new();
        for number in 0..20_u8 {
            let mut stream = client.open().await.unwrap();
            stream.write_all(&[number; 5000]).await.unwrap();
            streams.push(stream);
        }
        for (mut stream, number) in streams.into_iter().zip(0..) {
            stream.shutdown().await.unwrap();
            let mut text = Vec::new();
            stream.read_to_end(&mut text).await.unwrap();
            assert_eq!(text, [number; 5000]);
        }
        drop(client);
        echoing.await.unwrap();
    }

    #[tokio::test]
    async fn as_many_as_there_may_be_come_at_once_and_further_ones_wait() {
        const UNANSWERED: usize = 256;
        let (near, far) = duplex(10_000);
        let (client, server) = (Mux::client(near), Mux::server(far));
        let (mut streams, mut accepted) = (Vec::new(), Vec::new());
        while streams.len() < MAX_MUX_STREAMS {
            for _ in 0..UNANSWERED {
                let mut stream = client.open().await.unwrap();
                stream.write_all(b"?").await.unwrap();
                streams.push(stream);
            }
            for _ in 0..UNANSWERED {
                let mut stream = server.accept().await.unwrap();
                assert_eq!(stream.read_u8().await.unwrap(), b'?');
                stream.write_all(b"!").await.unwrap();
                accepted.push(stream);
            }
        }
        for stream in &mut streams {
            assert_eq!(stream.read_u8().await.unwrap(), b'!');
        }
        let mut further = Box::pin(client.open());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(further.as_mut().poll(&mut cx).is_pending());
        drop(streams.pop());
        let mut further = further.await.unwrap();
        further.write_all(b"more").await.unwrap();
        let mut text = [0; 4];
        server.accept().await.unwrap().read_exact(&mut text).await.unwrap();
        assert_eq!(&text, b"more");
    }
}

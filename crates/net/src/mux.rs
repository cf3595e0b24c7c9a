//! Many streams over one that is in order, for what should not need a connection of its own each:
//! yamux, over a striped stream.
//!
//! UDP needs no such thing, for its connections have streams already.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};
use yamux::{Config, Connection, Mode};

use crate::error::NetError;

/// Streams at a time, at most.
pub const MAX_MUX_STREAMS: usize = 512;
/// What all of them together may hold unread, at most; each has a window that grows with what its
/// reader takes.
pub const MAX_MUX_BUFFER: units::Bytes = units::Bytes::mib(256);

/// Streams that wait to be accepted, at most. Further ones are reset.
const MAX_WAITING: usize = 64;
/// Bytes in one frame: what is longer keeps others waiting.
const FRAME: usize = 64 << 10;

/// One of the streams. Its end of reading does not tell whether the other side finished or gave up.
pub type MuxStream = Compat<yamux::Stream>;

/// One end of a connection that carries many streams. Dropped, it ends with them.
pub struct Mux {
    requests: mpsc::Sender<oneshot::Sender<MuxStream>>,
    arrivals: Mutex<mpsc::Receiver<MuxStream>>,
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
        config.set_max_num_streams(MAX_MUX_STREAMS);
        config.set_max_connection_receive_window(Some(MAX_MUX_BUFFER.0 as usize));
        config.set_split_send_size(FRAME);
        let (requests, requested) = mpsc::channel(1);
        let (arriving, arrivals) = mpsc::channel(MAX_WAITING);
        let connection = Connection::new(stream.compat(), config, mode);
        let mut driver = Driver { connection, requested, pending: None, arriving };
        let driver = tokio::spawn(std::future::poll_fn(move |cx| driver.poll(cx)));
        Self { requests, arrivals: Mutex::new(arrivals), driver }
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// [`NetError::Closed`] when the connection has ended.
    pub async fn open(&self) -> Result<MuxStream, NetError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(answer).await.map_err(|_| NetError::Closed)?;
        answered.await.map_err(|_| NetError::Closed)
    }

    /// The next stream that the other side opened; `None` when the connection has ended.
    pub async fn accept(&self) -> Option<MuxStream> {
        self.arrivals.lock().await.recv().await
    }
}

impl Drop for Mux {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

struct Driver<S> {
    connection: Connection<Compat<S>>,
    requested: mpsc::Receiver<oneshot::Sender<MuxStream>>,
    /// Waits for the connection to open a stream.
    pending: Option<oneshot::Sender<MuxStream>>,
    arriving: mpsc::Sender<MuxStream>,
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
}

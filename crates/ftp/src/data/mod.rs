//! Data connections: how a file becomes what is sent over one or several, and back.
//!
//! Both ends use the same: [`send`] reads a source and fills channels, [`receive`] empties channels
//! into a sink. A channel is a connection, with or without TLS. Of several the sender uses as many as
//! [`net::tcp::Choice`] says from time to time.

mod ascii;
mod block;
mod striped;

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use net::tcp::{Policy, System};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

pub use ascii::Ascii;
pub use stripe::xftp::{CLOSING_LEN, NUMBER_LEN, RECORD_LEN};

use crate::session::{Encoding, Framing};

/// Bytes read from a disk or a connection at a time.
pub const PIECE: usize = 256 << 10;

/// Bytes given to a connection at a time: of what flows slowly some still move in each [`STALL`]. Fewer
/// would not help, for the kernel asks for as many at a time.
const STEP: usize = (UNSENT_LOW_WATER / 2) as usize;

/// When nothing moves for so long, a transfer is given up.
pub const STALL: Duration = Duration::from_secs(60);

/// Unsent bytes in the kernel above which a connection counts as busy: what waits there can no longer
/// go to a faster one.
const UNSENT_LOW_WATER: u32 = 128 << 10;

/// A connection that carries nothing for so long, because others are enough or because it is one for
/// commands, is probed: something on the way may forget it, and a transfer needs all of them to its end.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Either end of a control or data connection.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {
    /// The TCP connection it goes over, of which the kernel knows more; `None` where there is none.
    fn tcp(&self) -> Option<&TcpStream>;
}

impl Connection for TcpStream {
    fn tcp(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl<T: Connection> Connection for client::TlsStream<T> {
    fn tcp(&self) -> Option<&TcpStream> {
        self.get_ref().0.tcp()
    }
}

impl<T: Connection> Connection for server::TlsStream<T> {
    fn tcp(&self) -> Option<&TcpStream> {
        self.get_ref().0.tcp()
    }
}

impl Connection for Channel {
    fn tcp(&self) -> Option<&TcpStream> {
        (**self).tcp()
    }
}

impl Connection for DuplexStream {
    fn tcp(&self) -> Option<&TcpStream> {
        None
    }
}

/// A connection, with or without TLS.
pub type Channel = Box<dyn Connection>;

/// Sets up a data connection. The kernel's congestion control is named as in [`net::tcp::Options`].
pub fn tune(stream: &TcpStream, congestion_control: Option<&str>) {
    let socket = SockRef::from(stream);
    // Without these it is slower, or breaks sooner, no more.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_notsent_lowat(UNSENT_LOW_WATER);
    keep_alive(stream);
    // What was named and cannot be had was refused before it came to this.
    let _ = net::tcp::set_congestion_control(&socket, congestion_control);
}

/// Has the kernel find out when the other end of a silent connection is gone.
pub(crate) fn keep_alive(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    // Without it that is noticed later.
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// Has the end of a connection be a reset from now on, or an end in good order.
pub(crate) fn set_reset(stream: &TcpStream, resets: bool) {
    // Without it a cut may be taken for an end, as with any other client.
    let _ = SockRef::from(stream).set_linger(resets.then_some(Duration::ZERO));
}

/// Where received bytes go.
pub trait Sink: Send {
    /// Takes bytes in order.
    fn write(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
}

impl Sink for Vec<u8> {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }
}

/// Counts what went or came; shared with whoever watches.
#[derive(Clone, Debug, Default)]
pub struct Moved(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    connections: AtomicUsize,
    system: Mutex<Option<System>>,
}

impl Moved {
    /// So many bytes of files so far.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Data connections that carried any of them.
    pub fn connections(&self) -> usize {
        self.0.connections.load(Ordering::Relaxed)
    }

    /// What a sender's policy has learnt of the way, if it learns.
    pub fn learnt(&self) -> Option<System> {
        *self.0.system.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, system: Option<System>) {
        if system.is_some() {
            *self.0.system.lock().unwrap_or_else(PoisonError::into_inner) = system;
        }
    }

    /// What went or came beyond this counts for nothing.
    pub(crate) fn fall_back_to(&self, bytes: u64) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn add_connection(&self) {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
    }
}

/// Why data did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The file at this end cannot be read or written.
    #[error("the file here failed: {0}")]
    File(io::Error),
    /// The connection broke.
    #[error("the data connection broke ({0}): try again, it resumes")]
    Connection(io::Error),
    /// It ended before the end of the data.
    #[error("the data connection ended before the end of the file: try again, it resumes")]
    Cut,
    /// TLS ended without `close_notify` where nothing else marks the end: that may be a cut.
    #[error("TLS on the data connection ended without close_notify: try again, it resumes")]
    Unclosed,
    /// What came is no block, or no striped record.
    #[error(
        "the data cannot be understood: the other end breaks the rules of MODE B or of striping"
    )]
    Malformed,
    /// Nothing moved for [`STALL`].
    #[error("no data moved for {} s: check the network, then try again, it resumes", STALL.as_secs())]
    Stalled,
}

impl From<io::Error> for DataError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Cut,
            _ => Self::Connection(error),
        }
    }
}

/// Sends a source to its end over the channels, of which `policy` says how many are used at a time, and
/// ends them; they can still be read then.
///
/// # Errors
/// [`DataError`]; what had been sent by then may have arrived or not.
///
/// # Panics
/// Without a channel.
pub async fn send<R: AsyncRead + Send + Unpin>(
    source: R,
    channels: &mut [Channel],
    encoding: Encoding,
    policy: Policy,
    moved: &Moved,
) -> Result<(), DataError> {
    let sending = async {
        match encoding.framing {
            Framing::Striped => striped::send(source, channels, policy, moved).await,
            framing => one(source, &mut channels[0], encoding.ascii, framing, moved).await,
        }
    };
    watched(sending, moved).await
}

async fn one<R: AsyncRead + Send + Unpin>(
    mut source: R,
    channel: &mut Channel,
    ascii: bool,
    framing: Framing,
    moved: &Moved,
) -> Result<(), DataError> {
    let mut piece = vec![0; PIECE];
    let mut lines = Ascii::default();
    let mut text = Vec::new();
    moved.add_connection();
    loop {
        let read = source.read(&mut piece).await.map_err(DataError::File)?;
        if read == 0 {
            break;
        }
        for step in piece[..read].chunks(STEP) {
            let bytes = match ascii {
                true => {
                    text.clear();
                    lines.encode(step, &mut text);
                    &text[..]
                }
                false => step,
            };
            match framing {
                Framing::Block => block::write(channel, bytes).await?,
                _ => channel.write_all(bytes).await?,
            }
            moved.add(step.len());
        }
    }
    if framing == Framing::Block {
        block::end(channel).await?;
    }
    // TLS may hold on to the last of it.
    channel.flush().await?;
    // All was written: whatever happens from here on, the kernel sends it to its end.
    if let Some(stream) = channel.tcp() {
        set_reset(stream, false);
    }
    Ok(channel.shutdown().await?)
}

/// Reads what the other end still has to say, until it closes too. Under TLS that may be session
/// tickets: a socket closed before they are read resets the connection, and what was sent is lost.
pub async fn drain(channels: &mut [Channel]) {
    const PATIENCE: Duration = Duration::from_secs(5);
    for channel in channels {
        let mut rest = channel.take(PIECE as u64);
        // Who says nothing any more has read everything, or never will.
        let _ = tokio::time::timeout(PATIENCE, tokio::io::copy(&mut rest, &mut tokio::io::sink()))
            .await;
    }
}

/// Receives everything from the channels into the sink.
///
/// # Errors
/// [`DataError`]; what the sink took by then is the beginning of the data.
///
/// # Panics
/// Without a channel.
pub async fn receive(
    mut channels: Vec<Channel>,
    sink: &mut impl Sink,
    encoding: Encoding,
    moved: &Moved,
) -> Result<(), DataError> {
    let receiving = async {
        match encoding.framing {
            Framing::Striped => striped::receive(channels, sink, moved).await,
            framing => {
                let channel = channels.swap_remove(0);
                from_one(channel, sink, encoding.ascii, framing, moved).await
            }
        }
    };
    watched(receiving, moved).await
}

async fn from_one(
    mut channel: Channel,
    sink: &mut impl Sink,
    ascii: bool,
    framing: Framing,
    moved: &Moved,
) -> Result<(), DataError> {
    let mut piece = vec![0; PIECE];
    let mut blocks = block::Reader::default();
    let mut lines = Ascii::default();
    let mut text = Vec::new();
    moved.add_connection();
    let mut unclosed = false;
    loop {
        let read = match framing {
            Framing::Block => blocks.read(&mut channel, &mut piece).await?,
            _ => match channel.read(&mut piece).await {
                // TCP alone says no such thing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    unclosed = true;
                    0
                }
                read => read?,
            },
        };
        let bytes = match ascii {
            true => {
                text.clear();
                lines.decode(&piece[..read], &mut text);
                &text[..]
            }
            false => &piece[..read],
        };
        sink.write(bytes).await.map_err(DataError::File)?;
        moved.add(bytes.len());
        if read == 0 {
            break;
        }
    }
    if unclosed {
        return Err(DataError::Unclosed);
    }
    // An orderly end, which TLS tells from a cut; who is gone already has said so by its end.
    let _ = channel.shutdown().await;
    Ok(())
}

/// Gives up what does not move.
async fn watched(
    moving: impl Future<Output = Result<(), DataError>>,
    moved: &Moved,
) -> Result<(), DataError> {
    let stalled = async {
        let mut before = moved.bytes();
        loop {
            tokio::time::sleep(STALL).await;
            let now = moved.bytes();
            if now == before {
                return Err(DataError::Stalled);
            }
            before = now;
        }
    };
    tokio::select! {
        done = moving => done,
        stalled = stalled => stalled,
    }
}

#[cfg(test)]
mod tests;

//! Data connections: how a file becomes what is sent over one or several, and back.
//!
//! Both ends use the same: [`send`] reads a source and fills channels, [`receive`] empties channels
//! into a sink. A channel is a connection, with or without TLS.

mod ascii;
mod block;
mod striped;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub use ascii::Ascii;
pub use stripe::xftp::{CLOSING_LEN, NUMBER_LEN, RECORD_LEN};

use crate::session::{Encoding, Framing};

/// Bytes read from a disk or a connection at a time.
pub const PIECE: usize = 256 << 10;

/// When nothing moves for so long, a transfer is given up.
pub const STALL: Duration = Duration::from_secs(60);

/// Unsent bytes in the kernel above which a connection counts as busy: what waits there can no longer
/// go to a faster one.
pub const UNSENT_LOW_WATER: u32 = 128 << 10;

/// Either end of a data connection.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// A data connection, with or without TLS.
pub type Channel = Box<dyn Connection>;

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

/// Counts the bytes of the file that went or came; shared with whoever watches.
#[derive(Clone, Debug, Default)]
pub struct Moved(Arc<AtomicU64>);

impl Moved {
    /// So many so far.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
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

/// Sends a source to its end over the channels, and ends them; they can still be read then.
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
    moved: &Moved,
) -> Result<(), DataError> {
    let sending = async {
        match encoding.framing {
            Framing::Striped => striped::send(source, channels, moved).await,
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
    loop {
        let read = source.read(&mut piece).await.map_err(DataError::File)?;
        let bytes = match ascii {
            true => {
                text.clear();
                lines.encode(&piece[..read], &mut text);
                &text[..]
            }
            false => &piece[..read],
        };
        match framing {
            Framing::Block => block::write(channel, bytes, read == 0).await?,
            _ => channel.write_all(bytes).await?,
        }
        moved.add(read);
        if read == 0 {
            break;
        }
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
    loop {
        let read = match framing {
            Framing::Block => blocks.read(&mut channel, &mut piece).await?,
            _ => channel.read(&mut piece).await?,
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

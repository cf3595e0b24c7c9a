//! Bytes that mean nothing, either way, for whoever measures the path.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

use crate::client::request;
use crate::error::TransferError;
use crate::exchange::{Hello, read_message};
use crate::wire::{Message, PROBE_MAX, WireError, append_message, hello};

/// Bytes read and written in one go.
const BLOCK: usize = 64 << 10;

/// Asks the far side to throw away what is written to the stream from now on, and to send `bytes`
/// zeros meanwhile, [`PROBE_MAX`] at most. Returns when it agrees: that took a round trip. Dropping
/// the stream ends both.
///
/// # Errors
/// [`TransferError`] when the far side does not answer, or knows nothing of probes.
pub async fn probe<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    bytes: u64,
) -> Result<(), TransferError> {
    stream.write_all(&request(&Message::Probe { bytes })).await?;
    stream.flush().await?;
    Hello::Expected.read(stream).await?;
    match read_message(stream).await? {
        Message::Probe { .. } => Ok(()),
        Message::Fatal { reason } => Err(TransferError::Far(reason)),
        _ => Err(WireError::Unexpected.into()),
    }
}

/// The far side of [`probe`]; gives how many bytes went, both ways together. A client that gives up
/// either way has seen enough.
pub(crate) async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    bytes: u64,
) -> Result<u64, TransferError> {
    let (reading, mut writing) = tokio::io::split(stream);
    let bytes = bytes.min(PROBE_MAX);
    let mut preamble = hello().to_vec();
    append_message(&Message::Probe { bytes }, &mut preamble);
    writing.write_all(&preamble).await?;
    writing.flush().await?;
    let taking = async {
        let mut reading = BufReader::with_capacity(BLOCK, reading.take(PROBE_MAX));
        let _ = tokio::io::copy_buf(&mut reading, &mut tokio::io::sink()).await;
        PROBE_MAX - reading.get_ref().limit()
    };
    let giving = async {
        let zeros = [0; BLOCK];
        let mut left = bytes;
        while left > 0 {
            let next = left.min(BLOCK as u64) as usize;
            match writing.write(&zeros[..next]).await {
                Ok(written @ 1..) => left -= written as u64,
                _ => break,
            }
            // The other direction has a right to its turn.
            tokio::task::coop::consume_budget().await;
        }
        let _ = writing.shutdown().await;
        bytes - left
    };
    let (taken, given) = tokio::join!(taking, giving);
    Ok(taken + given)
}

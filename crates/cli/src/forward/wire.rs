//! What the two ends of a forwarded connection say to each other, on a stream of either carrier.
//!
//! The client begins with [`FORWARD`] and the target as text behind its length (two bytes, big
//! endian, as all lengths here). The server answers with the length of a reason why not, and the
//! reason; a length of zero says that the target is connected. Then both send pieces behind their
//! lengths; a length of zero ends a direction. A stream that ends without it was given up.
//!
//! A striped stream that is to carry many such connections begins with [`MUX`].

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes by which streams are told apart; those of a transfer begin with "longhaul".
pub const OPENING_LEN: usize = 8;
pub const FORWARD: [u8; OPENING_LEN] = *b"lh-fwd\0\x01";
pub const MUX: [u8; OPENING_LEN] = *b"lh-mux\0\x01";

/// The longest target: a host name and a port.
const TARGET_MAX: usize = 300;
/// The longest piece, and the longest reason.
pub const PIECE_MAX: usize = 32 << 10;
/// Bytes of a length.
pub const HEAD: usize = 2;

const _: () = assert!(PIECE_MAX <= u16::MAX as usize);

/// The first bytes of a stream, less when it ends before.
pub async fn opening(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut head = Vec::with_capacity(OPENING_LEN);
    // Who reads on meets the error again.
    let _ = stream.take(OPENING_LEN as u64).read_to_end(&mut head).await;
    head
}

/// Asks for a target, and waits for the answer: the reason, if it is not to be had.
pub async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    target: &str,
) -> io::Result<Result<(), String>> {
    let length = (target.len() as u16).to_be_bytes();
    stream.write_all(&[&FORWARD[..], &length, target.as_bytes()].concat()).await?;
    stream.flush().await?;
    let reason = text(stream, PIECE_MAX).await?;
    Ok(if reason.is_empty() { Ok(()) } else { Err(reason) })
}

/// Reads what target the client asks for, behind [`FORWARD`].
pub async fn target(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    text(stream, TARGET_MAX).await
}

/// Answers: nothing, or the reason why the target is not connected.
pub async fn answer(stream: &mut (impl AsyncWrite + Unpin), reason: &str) -> io::Result<()> {
    let length = (reason.len().min(PIECE_MAX) as u16).to_be_bytes();
    let reason = &reason.as_bytes()[..reason.len().min(PIECE_MAX)];
    stream.write_all(&[&length[..], reason].concat()).await?;
    stream.flush().await
}

async fn text(stream: &mut (impl AsyncRead + Unpin), most: usize) -> io::Result<String> {
    let length = usize::from(stream.read_u16().await?);
    if length > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

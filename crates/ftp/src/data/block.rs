//! MODE B: blocks behind a descriptor and a count (RFC 959, section 3.4.2). Paper 1 used it, for its
//! end of file is told from a connection that was cut.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Channel, DataError};

/// The last block.
const END: u8 = 64;
/// The block holds a restart marker and no data.
const MARKER: u8 = 16;

/// Writes bytes as blocks.
pub async fn write(channel: &mut Channel, bytes: &[u8]) -> io::Result<()> {
    for block in bytes.chunks(usize::from(u16::MAX)) {
        let [high, low] = (block.len() as u16).to_be_bytes();
        channel.write_all(&[0, high, low]).await?;
        channel.write_all(block).await?;
    }
    Ok(())
}

/// Writes the mark of the end.
pub async fn end(channel: &mut Channel) -> io::Result<()> {
    channel.write_all(&[END, 0, 0]).await
}

/// Takes blocks apart.
#[derive(Debug, Default)]
pub struct Reader {
    left: usize,
    descriptor: u8,
}

impl Reader {
    /// Reads some of the data; none at its end.
    pub async fn read(
        &mut self,
        channel: &mut Channel,
        out: &mut [u8],
    ) -> Result<usize, DataError> {
        loop {
            if self.left == 0 {
                if self.descriptor & END != 0 {
                    return Ok(0);
                }
                let mut header = [0; 3];
                channel.read_exact(&mut header).await?;
                self.descriptor = header[0];
                self.left = u16::from_be_bytes([header[1], header[2]]).into();
                continue;
            }
            let most = self.left.min(out.len());
            let read = channel.read(&mut out[..most]).await?;
            if read == 0 {
                return Err(DataError::Cut);
            }
            self.left -= read;
            if self.descriptor & MARKER == 0 {
                return Ok(read);
            }
        }
    }
}

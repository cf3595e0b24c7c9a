//! The control connection: commands out, replies in.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{ClientError, Stop};
use crate::data::Channel;
use crate::reply::{IAC, Reply, ReplyError, ReplyReader};

/// The longest line of a reply.
const LINE_MAX: usize = 16 << 10;

/// How long a reply may take,
const PATIENCE: Duration = Duration::from_secs(120);

/// and longer where the server has to read or write so many bytes a second first.
const SLOWEST_DISK: u64 = 8 << 20;

/// Reads replies and writes commands.
pub struct Control {
    channel: Channel,
    stop: Stop,
    bytes: Vec<u8>,
    reader: ReplyReader,
}

impl Control {
    /// `stop` ends every wait.
    pub fn new(channel: Channel, stop: Stop) -> Self {
        Self { channel, stop, bytes: Vec::new(), reader: ReplyReader::default() }
    }

    /// The connection, without what was read and not yet taken.
    pub fn take_channel(&mut self) -> Channel {
        let nothing = tokio::io::duplex(1).0;
        std::mem::replace(&mut self.channel, Box::new(nothing))
    }

    /// Sends one line, also when all is to stop. A byte 255 is doubled, for Telnet's sake.
    pub async fn send(&mut self, command: &[u8]) -> Result<(), ClientError> {
        if command.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(ClientError::Name);
        }
        let mut line = Vec::with_capacity(command.len() + 2);
        for &byte in command {
            line.push(byte);
            if byte == IAC {
                line.push(byte);
            }
        }
        line.extend(b"\r\n");
        self.channel.write_all(&line).await.map_err(ClientError::Connection)?;
        self.channel.flush().await.map_err(ClientError::Connection)
    }

    /// The next reply.
    pub async fn reply(&mut self) -> Result<Reply, ClientError> {
        self.reply_after(0).await
    }

    /// The same, for which the server has to read or write so many bytes on its disk.
    pub async fn reply_after(&mut self, bytes: u64) -> Result<Reply, ClientError> {
        let stop = self.stop.clone();
        let reading = async {
            loop {
                let line = self.line().await?;
                if let Some(reply) = self.reader.line(&line)? {
                    return Ok(reply);
                }
            }
        };
        let patience = patience(bytes);
        let reading = async {
            tokio::time::timeout(patience, reading).await.map_err(|_| ClientError::Silent)?
        };
        stop.or(reading).await
    }

    /// The next line, in which a byte 255 is doubled.
    async fn line(&mut self) -> Result<Vec<u8>, ClientError> {
        loop {
            if let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
                let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
                while line.pop_if(|byte| matches!(byte, b'\r' | b'\n')).is_some() {}
                let mut doubled = false;
                line.retain(|&byte| {
                    doubled = byte == IAC && !doubled;
                    byte != IAC || doubled
                });
                return Ok(line);
            }
            if self.bytes.len() > LINE_MAX {
                return Err(ReplyError::TooLong.into());
            }
            let mut piece = [0; 4096];
            match self.channel.read(&mut piece).await.map_err(ClientError::Connection)? {
                0 => {
                    let ended = std::io::ErrorKind::UnexpectedEof;
                    return Err(ClientError::Connection(ended.into()));
                }
                read => self.bytes.extend(&piece[..read]),
            }
        }
    }
}

/// How long a reply may take for which so many bytes are read or written.
fn patience(bytes: u64) -> Duration {
    PATIENCE + Duration::from_secs(bytes / SLOWEST_DISK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_are_waited_for() {
        assert_eq!(patience(0), PATIENCE);
        // 500 GB at 50 MB/s, and then some.
        assert!(patience(500 << 30) > Duration::from_secs(10_000));
    }

    #[tokio::test]
    async fn names_come_in_their_bytes() {
        let (near, mut far) = tokio::io::duplex(1000);
        let mut control = Control::new(Box::new(near), Stop::default());
        far.write_all(b"257-x \r\n\xff\xffy\xff\r\n257 \"/\xe9\"\n").await.unwrap();
        let reply = control.reply().await.unwrap();
        assert_eq!(reply.lines, [&b"x "[..], b"\xffy\xff", b"\"/\xe9\""]);
    }
}

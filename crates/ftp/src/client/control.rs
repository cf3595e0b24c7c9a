//! The control connection: commands out, replies in.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::ClientError;
use crate::data::Channel;
use crate::reply::{Reply, ReplyError, ReplyReader};

/// The longest line of a reply.
const LINE_MAX: usize = 16 << 10;

/// How long a reply may take: a server may have to write a large file to its disk first.
const PATIENCE: Duration = Duration::from_secs(120);

/// Reads replies and writes commands.
pub struct Control {
    channel: Channel,
    bytes: Vec<u8>,
    reader: ReplyReader,
}

impl Control {
    pub fn new(channel: Channel) -> Self {
        Self { channel, bytes: Vec::new(), reader: ReplyReader::default() }
    }

    /// The connection, without what was read and not yet taken.
    pub fn take_channel(&mut self) -> Channel {
        let nothing = tokio::io::duplex(1).0;
        std::mem::replace(&mut self.channel, Box::new(nothing))
    }

    /// Sends one line. A byte 255 is doubled, for Telnet's sake.
    pub async fn send(&mut self, command: &[u8]) -> Result<(), ClientError> {
        if command.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(ClientError::Name);
        }
        let mut line = Vec::with_capacity(command.len() + 2);
        for &byte in command {
            line.push(byte);
            if byte == 255 {
                line.push(byte);
            }
        }
        line.extend(b"\r\n");
        self.channel.write_all(&line).await.map_err(ClientError::Connection)?;
        self.channel.flush().await.map_err(ClientError::Connection)
    }

    /// The next reply.
    pub async fn reply(&mut self) -> Result<Reply, ClientError> {
        let reading = async {
            loop {
                let line = self.line().await?;
                if let Some(reply) = self.reader.line(&line)? {
                    return Ok(reply);
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.map_err(|_| ClientError::Silent)?
    }

    async fn line(&mut self) -> Result<String, ClientError> {
        loop {
            if let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
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

//! Replies (RFC 959, section 4.2; 1123, section 4.1.2.11): three digits and text, in one line or many.

use std::borrow::Cow;
use std::fmt;

use transfer::printable;

/// Telnet's own byte, twice where it is one of a name.
pub const IAC: u8 = 255;

/// Lines that a reply may have before the reader gives up on it.
pub const REPLY_LINES_MAX: usize = 10_000;

/// Lines of a reply that are shown where it is told of.
const LINES_SHOWN: usize = 5;

/// A reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 100 to 599.
    pub code: u16,
    /// Without codes and line ends; at least one line. In bytes, for names are such.
    pub lines: Vec<Vec<u8>>,
}

impl Reply {
    /// A reply of one line.
    pub fn new(code: u16, text: impl Into<Vec<u8>>) -> Self {
        Self { code, lines: vec![text.into()] }
    }

    /// One of many lines.
    pub fn of_lines<T: Into<Vec<u8>>>(code: u16, lines: impl IntoIterator<Item = T>) -> Self {
        Self { code, lines: lines.into_iter().map(T::into).collect() }
    }

    /// The first line.
    pub fn first(&self) -> &[u8] {
        self.lines.first().map_or(b"", Vec::as_slice)
    }

    /// The text of the first line.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.first())
    }

    /// 1 to 5: under way, done, more is wanted, not now, never.
    pub fn class(&self) -> u16 {
        self.code / 100
    }

    /// The wire form. What would end a line is replaced, and what means something to Telnet doubled;
    /// lines in the middle are indented, so that none of them looks like the last.
    pub fn encode(&self) -> Vec<u8> {
        let last = self.lines.len().saturating_sub(1);
        let mut bytes = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let head = match at {
                at if at == last => format!("{} ", self.code),
                0 => format!("{}-", self.code),
                _ => " ".to_owned(),
            };
            bytes.extend(head.bytes());
            for &byte in line {
                bytes.push(if byte.is_ascii_control() { b'?' } else { byte });
                if byte == IAC {
                    bytes.push(IAC);
                }
            }
            bytes.extend(b"\r\n");
        }
        bytes
    }
}

/// Safe on a terminal, and its first lines alone where they are many.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.lines.iter().take(LINES_SHOWN);
        let lines = shown.map(|line| printable(&String::from_utf8_lossy(line)));
        let more = if self.lines.len() > LINES_SHOWN { " / ..." } else { "" };
        write!(f, "{} {}{more}", self.code, lines.collect::<Vec<_>>().join(" / "))
    }
}

/// What is wrong with a server's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// No three digits where they should be.
    #[error("it does not begin with a reply code: is that an FTP server?")]
    Code,
    /// More than [`REPLY_LINES_MAX`] lines.
    #[error("its reply does not end")]
    TooLong,
}

/// Puts a reply together, line by line.
#[derive(Debug, Default)]
pub struct ReplyReader {
    begun: Option<Reply>,
}

impl ReplyReader {
    /// Takes a line without its end; the reply, when this was its last.
    ///
    /// # Errors
    /// [`ReplyError`], after which nothing of that server makes sense.
    pub fn line(&mut self, line: &[u8]) -> Result<Option<Reply>, ReplyError> {
        let code = line.get(..3).filter(|code| code.iter().all(u8::is_ascii_digit));
        let code = code.and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
        let code = code.filter(|code| (100..600).contains(code));
        let (mark, rest) = (line.get(3), line.get(4..).unwrap_or_default());
        match (&mut self.begun, code, mark) {
            (None, Some(code), None | Some(b' ')) => Ok(Some(Reply::new(code, rest))),
            (None, Some(code), Some(b'-')) => {
                self.begun = Some(Reply::new(code, rest));
                Ok(None)
            }
            (None, ..) => Err(ReplyError::Code),
            (Some(begun), code, mark) => {
                let is_last = code == Some(begun.code) && matches!(mark, None | Some(b' '));
                // Some servers repeat the code in front of every line.
                let repeated = code == Some(begun.code) && mark == Some(&b'-');
                begun.lines.push(if is_last || repeated { rest } else { line }.to_owned());
                if begun.lines.len() > REPLY_LINES_MAX {
                    return Err(ReplyError::TooLong);
                }
                Ok(if is_last { self.begun.take() } else { None })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Reply>, ReplyError> {
        let mut reader = ReplyReader::default();
        let mut last = Ok(None);
        for line in text.lines() {
            last = reader.line(line.as_bytes());
        }
        last
    }

    #[test]
    fn what_is_written_can_be_read() {
        let features = Reply::of_lines(211, ["Features:", "211 is no end here", "UTF8", "End"]);
        let bytes = String::from_utf8(features.encode()).unwrap();
        assert_eq!(bytes, "211-Features:\r\n 211 is no end here\r\n UTF8\r\n211 End\r\n");
        let reply = read(&bytes).unwrap().unwrap();
        assert_eq!((reply.code, reply.lines.len()), (211, 4));
        assert_eq!(reply.lines[2].trim_ascii(), b"UTF8");
        assert_eq!(read("220\r\n"), Ok(Some(Reply::new(220, ""))));
        assert_eq!(read("230-a\n230-b\n230 c"), Ok(Some(Reply::of_lines(230, ["a", "b", "c"]))));
    }

    #[test]
    fn a_name_cannot_forge_a_reply() {
        let reply = Reply::new(257, "\"a\r\n226 Done\"");
        assert_eq!(reply.encode(), b"257 \"a??226 Done\"\r\n");
    }

    #[test]
    fn what_is_shown_is_short_and_safe() {
        let reply = Reply::of_lines(550, ["\x1b]0;title\x07no", "\u{9b}2J", "é"]);
        assert_eq!(reply.to_string(), "550 \u{fffd}]0;title\u{fffd}no / \u{fffd}2J / é");
        let long = Reply::of_lines(550, vec!["x"; 1000]);
        assert_eq!(long.to_string(), "550 x / x / x / x / x / ...");
    }

    #[test]
    fn names_are_told_in_their_bytes() {
        let reply = Reply::new(257, &b"\"/\xe9\xfft\xc3\xa9\""[..]);
        assert_eq!(reply.encode(), b"257 \"/\xe9\xff\xfft\xc3\xa9\"\r\n");
    }

    #[test]
    fn what_is_no_reply_is_told() {
        for text in ["SSH-2.0-x", "99 x", "600 x", "é20 x", ""] {
            assert_eq!(
                ReplyReader::default().line(text.as_bytes()),
                Err(ReplyError::Code),
                "{text}"
            );
        }
        assert_eq!(
            read(&format!("220-\n{}", "x\n".repeat(REPLY_LINES_MAX))),
            Err(ReplyError::TooLong)
        );
    }
}

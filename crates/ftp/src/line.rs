//! Lines of the control connection: bounded, and with Telnet's commands taken out.
//!
//! RFC 959 runs the control connection over Telnet. What matters of it: `IAC IP` and `IAC DM` in
//! front of an `ABOR`, an option that somebody asks for (it is ignored, which means no), and
//! `IAC IAC`, which is the byte 255 of a file name.

use std::collections::VecDeque;

use crate::reply::IAC;

/// The longest line, its end not counted: room for the longest path that Linux knows.
pub const LINE_MAX: usize = 4096 + 64;

/// Bytes that wait to be taken, at most; beyond, the connection should not be read.
pub const BUFFER_MAX: usize = 4 * LINE_MAX;

/// Takes bytes and gives lines.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: VecDeque<u8>,
    line: Vec<u8>,
    telnet: Telnet,
    /// The rest of a line that was too long is passed over.
    overlong: bool,
    /// Whole, but not for now.
    waiting: Option<Line>,
}

/// How far into a Telnet command the input is (RFC 854).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Telnet {
    #[default]
    Text,
    /// After IAC.
    Command,
    /// After IAC WILL, WONT, DO or DONT: the option's number comes.
    Option,
    /// Within IAC SB ... IAC SE.
    Negotiation,
    /// After an IAC in there.
    NegotiationCommand,
}

/// A line that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Without its end.
    Text(Vec<u8>),
    /// It was longer than [`LINE_MAX`].
    TooLong,
}

impl Lines {
    /// Adds what was received: at most as much as there is [`Lines::room`] for.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(&bytes[..bytes.len().min(self.room())]);
    }

    /// How many more bytes may wait.
    pub fn room(&self) -> usize {
        BUFFER_MAX - self.bytes.len()
    }

    /// Forgets everything: what was sent in clear must not be taken for what is sent under TLS.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The next whole line that may be taken now. CR LF ends it; a bare LF does too, for hand-typed
    /// sessions. While the session is `busy`, a line that may not come `anytime` waits, and those
    /// behind it too.
    pub fn next_line(&mut self, busy: bool, anytime: impl Fn(&[u8]) -> bool) -> Option<Line> {
        if self.waiting.is_none() {
            self.waiting = self.take_line();
        }
        let may_come = |line: &Line| match line {
            Line::Text(line) => anytime(line),
            Line::TooLong => false,
        };
        self.waiting.take_if(|line| !busy || may_come(line))
    }

    fn take_line(&mut self) -> Option<Line> {
        while let Some(byte) = self.bytes.pop_front() {
            let Some(byte) = self.telnet.step(byte) else { continue };
            if byte == b'\n' {
                let mut line = std::mem::take(&mut self.line);
                if std::mem::take(&mut self.overlong) {
                    return Some(Line::TooLong);
                }
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Some(Line::Text(line));
            }
            if self.line.len() <= LINE_MAX {
                self.line.push(byte);
            } else {
                self.overlong = true;
            }
        }
        None
    }
}

impl Telnet {
    /// Takes a byte in, and gives it back when it is text.
    fn step(&mut self, byte: u8) -> Option<u8> {
        let (next, text) = match (*self, byte) {
            (Self::Text, IAC) => (Self::Command, None),
            (Self::Text, byte) => (Self::Text, Some(byte)),
            (Self::Command, IAC) => (Self::Text, Some(IAC)),
            (Self::Command, 251..=254) => (Self::Option, None),
            (Self::Command, 250) => (Self::Negotiation, None),
            (Self::Command, 240..=249) | (Self::Option, _) => (Self::Text, None),
            // The mark that followed was sent out of band: this byte is text already.
            (Self::Command, byte) => (Self::Text, Some(byte)),
            (Self::Negotiation, IAC) => (Self::NegotiationCommand, None),
            (Self::NegotiationCommand, 240) => (Self::Text, None),
            (Self::Negotiation | Self::NegotiationCommand, _) => (Self::Negotiation, None),
        };
        *self = next;
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8]) -> Vec<Line> {
        let mut lines = Lines::default();
        lines.push(input);
        std::iter::from_fn(|| lines.next_line(false, |_| false)).collect()
    }

    fn text(line: &str) -> Line {
        Line::Text(line.into())
    }

    #[test]
    fn lines_end_with_lf_and_wait_for_it() {
        assert_eq!(lines(b"USER a\r\nPASS b\nNO"), [text("USER a"), text("PASS b")]);
    }

    #[test]
    fn telnet_commands_are_taken_out() {
        assert_eq!(lines(b"\xff\xf4\xff\xf2ABOR\r\n"), [text("ABOR")]);
        assert_eq!(lines(b"\xff\xfd\x06NO\xff\xfa\x01x\n\xff\xf0OP\n"), [text("NOOP")]);
        assert_eq!(lines(b"\xff\xf4\xffABOR\n"), [text("ABOR")], "the mark came out of band");
        assert_eq!(lines(b"CWD \xff\xff\n"), [Line::Text(b"CWD \xff".to_vec())]);
    }

    #[test]
    fn a_line_that_is_too_long_is_told_and_passed_over() {
        let mut input = vec![b'x'; LINE_MAX + 2];
        input.extend(b"\r\nNOOP\r\n");
        assert_eq!(lines(&input), [Line::TooLong, text("NOOP")]);
        input = vec![b'x'; LINE_MAX];
        input.extend(b"\r\n");
        assert_eq!(lines(&input), [Line::Text(vec![b'x'; LINE_MAX])]);
    }

    #[test]
    fn a_busy_session_looks_at_what_may_come_anytime() {
        let mut lines = Lines::default();
        lines.push(b"ABOR\nPWD\nABOR\n");
        let mut next = |busy| lines.next_line(busy, |line| line == b"ABOR");
        assert_eq!((next(true), next(true)), (Some(text("ABOR")), None));
        assert_eq!((next(false), next(true)), (Some(text("PWD")), Some(text("ABOR"))));
    }

    #[test]
    fn no_more_than_the_bound_is_kept() {
        let mut lines = Lines::default();
        for _ in 0..4 {
            lines.push(&[b'x'; BUFFER_MAX]);
        }
        assert_eq!(lines.room(), 0);
    }
}

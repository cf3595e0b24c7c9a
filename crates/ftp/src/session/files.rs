//! Directories, names, sizes, times and checksums.

use super::{Session, Task, text};
use crate::command::Verb;
use crate::hash::Algorithm;
use crate::names::quoted;
use crate::reply::Reply;
use crate::time::read_stamp;

impl Session {
    pub(super) fn file_command(&mut self, verb: Verb, argument: &[u8]) {
        match verb {
            Verb::Pwd => {
                let here = quoted(&self.chosen.here, " is the current directory");
                self.reply(257, here);
            }
            Verb::Stat if argument.is_empty() => self.status(),
            Verb::Site => self.site(argument),
            Verb::Mfmt => self.set_modified(argument),
            Verb::Hash => self.checksum(verb, self.chosen.algorithm, argument, false),
            Verb::Xcrc => self.checksum(verb, Algorithm::Crc32, argument, true),
            Verb::Xmd5 => self.checksum(verb, Algorithm::Md5, argument, true),
            Verb::Xsha1 => self.checksum(verb, Algorithm::Sha1, argument, true),
            Verb::Xsha256 => self.checksum(verb, Algorithm::Sha256, argument, true),
            Verb::Xsha512 => self.checksum(verb, Algorithm::Sha512, argument, true),
            Verb::Size if self.chosen.ascii => {
                self.reply(550, "Lines change their length in TYPE A: set TYPE I first");
            }
            Verb::Cdup => self.with_path(verb, b".."),
            Verb::Cwd if argument.is_empty() => self.with_path(verb, b"/"),
            // `MDTM stamp path` sets the time, in the manner of older clients.
            Verb::Mdtm if timed(argument).is_some() => self.set_modified(argument),
            _ => self.with_path(verb, argument),
        }
    }

    /// Commands that name one path.
    fn with_path(&mut self, verb: Verb, argument: &[u8]) {
        let from = self.chosen.rename_from.take();
        let Some(path) = self.path(argument) else { return };
        let task = match (verb, from) {
            (Verb::Mkd, _) => Task::MakeDirectory(path),
            (Verb::Rmd, _) => Task::RemoveDirectory(path),
            (Verb::Dele, _) => Task::Remove(path),
            (Verb::Rnto, Some(from)) => Task::Rename(from, path),
            (Verb::Rnto, None) => return self.reply(503, "RNFR comes first"),
            (Verb::Stat, _) => Task::Status(path),
            _ => Task::Inspect(path),
        };
        self.ask(verb, task);
    }

    /// `stamp path`.
    fn set_modified(&mut self, argument: &[u8]) {
        let Some((time, path)) = timed(argument) else {
            return self.reply(501, "YYYYMMDDHHMMSS and a path are wanted");
        };
        if !self.may_write() {
            return self.reply(550, "You may read here, but not write");
        }
        if let Some(path) = self.path(path) {
            self.ask(Verb::Mfmt, Task::SetModified(path, time));
        }
    }

    /// `path`, or for the X commands also `"path" [first [end]]`.
    fn checksum(&mut self, verb: Verb, algorithm: Algorithm, argument: &[u8], ranged: bool) {
        let (name, range) = match argument.strip_prefix(b"\"") {
            Some(rest) if ranged => match rest.iter().rposition(|&byte| byte == b'"') {
                Some(end) => (&rest[..end], text(&rest[end + 1..])),
                None => return self.reply(501, "The closing quotation mark is missing"),
            },
            _ => (argument, String::new()),
        };
        let mut numbers = range.split_whitespace().map(str::parse::<u64>);
        let (Ok(first), Ok(end)) = (numbers.next().unwrap_or(Ok(0)), numbers.next().transpose())
        else {
            return self.reply(501, "A range is two numbers of bytes");
        };
        if let Some(path) = self.path(name) {
            self.ask(verb, Task::Hash(path, algorithm, first, end));
        }
    }

    fn site(&mut self, argument: &[u8]) {
        let (what, rest) = split_word(argument);
        match text(what).to_ascii_uppercase().as_str() {
            "CHMOD" => {
                let (mode, path) = split_word(rest);
                let mode = u32::from_str_radix(&text(mode), 8).ok().filter(|&mode| mode <= 0o777);
                match mode {
                    _ if !self.may_write() => self.reply(550, "You may read here, but not write"),
                    Some(mode) if !path.is_empty() => {
                        if let Some(path) = self.path(path) {
                            self.ask(Verb::Site, Task::SetMode(path, mode));
                        }
                    }
                    _ => self.reply(501, "SITE CHMOD wants a mode up to 777 and a path"),
                }
            }
            "HELP" => {
                self.send(&Reply::of_lines(214, ["SITE commands:", "CHMOD HELP", "End"]));
            }
            _ => self.reply(504, "SITE knows CHMOD and HELP"),
        }
    }

    fn may_write(&self) -> bool {
        matches!(&self.stage, super::Stage::In(user) if user.may_write)
    }
}

/// A time and the path behind it.
fn timed(argument: &[u8]) -> Option<(i64, &[u8])> {
    let (stamp, path) = split_word(argument);
    let time = read_stamp(std::str::from_utf8(stamp).ok()?)?;
    (!path.is_empty()).then_some((time, path))
}

fn split_word(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&byte| byte == b' ') {
        Some(blank) => (&bytes[..blank], &bytes[blank + 1..]),
        None => (bytes, b""),
    }
}

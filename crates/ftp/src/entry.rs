//! What a directory holds, as listings write it: facts (RFC 3659, section 7) and lines of `ls -l`.

use crate::time::{ls_date, read_ls_date, read_stamp, stamp};

/// What stands under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, where the server shows such.
    Link,
    /// Anything else: never carried.
    Other,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// In the server's bytes; from a listing it may be anything, also a path.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file.
    pub size: u64,
    /// Last change in seconds since 1970, where it is known.
    pub modified: Option<i64>,
    /// Permissions, where they are known.
    pub mode: Option<u32>,
    /// What tells it from any other of the same server: device and inode.
    pub unique: Option<(u64, u64)>,
}

/// A line of a listing that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// Which facts a client wants (OPTS MLST).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    chosen: [bool; FACTS.len()],
}

const FACTS: [&str; 6] = ["type", "size", "modify", "perm", "unique", "UNIX.mode"];

impl Default for Facts {
    fn default() -> Self {
        Self { chosen: [true; FACTS.len()] }
    }
}

impl Facts {
    /// From `type;size;`: those that there are, in any order.
    pub fn chosen(text: &str) -> Self {
        let wants = |fact: &str| text.split(';').any(|name| name.trim().eq_ignore_ascii_case(fact));
        Self { chosen: FACTS.map(wants) }
    }

    /// The chosen ones, as the answer to OPTS MLST names them.
    pub fn names(self) -> String {
        let chosen = FACTS.iter().zip(self.chosen).filter(|(_, chosen)| *chosen);
        chosen.map(|(name, _)| format!("{name};")).collect()
    }

    /// All of them, the chosen ones with an asterisk, as FEAT shows them.
    pub fn feature(self) -> String {
        let mark =
            |(name, chosen): (&&str, bool)| format!("{name}{};", if chosen { "*" } else { "" });
        FACTS.iter().zip(self.chosen).map(mark).collect()
    }

    /// The facts of an entry and the blank behind them; the name follows.
    pub fn of(self, entry: &Entry, writable: bool) -> String {
        let mode = entry.mode.unwrap_or(0);
        let value = |fact: &str| match fact {
            "type" => Some(match entry.kind {
                Kind::File => "file".to_owned(),
                Kind::Directory => "dir".to_owned(),
                Kind::Link => "OS.unix=symlink".to_owned(),
                Kind::Other => "OS.unix=other".to_owned(),
            }),
            "size" => (entry.kind == Kind::File).then(|| entry.size.to_string()),
            "modify" => entry.modified.map(stamp),
            "perm" => Some(permissions(entry.kind, writable).to_owned()),
            "unique" => entry.unique.map(|(device, inode)| format!("{device:x}g{inode:x}")),
            _ => Some(format!("0{:03o}", mode & 0o7777)),
        };
        let chosen = FACTS.iter().zip(self.chosen).filter(|(_, chosen)| *chosen);
        let facts = chosen.filter_map(|(fact, _)| Some(format!("{fact}={};", value(fact)?)));
        facts.chain([" ".to_owned()]).collect()
    }
}

/// What the client may do with it (RFC 3659, section 7.5.5).
fn permissions(kind: Kind, writable: bool) -> &'static str {
    match (kind, writable) {
        (Kind::Directory, true) => "cdeflmp",
        (Kind::Directory, false) => "el",
        (_, true) => "adfrw",
        (_, false) => "r",
    }
}

/// Reads a line of MLSD or MLST; none where it says nothing of anything in the directory.
///
/// # Errors
/// When it cannot be read.
pub fn read_facts(line: &[u8]) -> Result<Option<Entry>, Unreadable> {
    if line.is_empty() {
        return Ok(None);
    }
    let blank = line.iter().position(|&byte| byte == b' ').ok_or(Unreadable)?;
    let facts = std::str::from_utf8(&line[..blank]).map_err(|_| Unreadable)?;
    let name = &line[blank + 1..];
    let mut entry = Entry {
        name: name.to_vec(),
        kind: Kind::Other,
        size: 0,
        modified: None,
        mode: None,
        unique: None,
    };
    let mut size = Ok(0);
    for fact in facts.split(';') {
        let Some((fact, value)) = fact.split_once('=') else { continue };
        match fact.to_ascii_lowercase().as_str() {
            "type" => {
                entry.kind = match value.to_ascii_lowercase().as_str() {
                    "file" => Kind::File,
                    "dir" => Kind::Directory,
                    // `.` and `..` are no entries.
                    "cdir" | "pdir" => return Ok(None),
                    link if link.starts_with("os.unix=s") => Kind::Link,
                    _ => Kind::Other,
                }
            }
            "size" => size = value.parse().map_err(|_| Unreadable),
            "modify" => entry.modified = read_stamp(value),
            "unix.mode" => {
                entry.mode = u32::from_str_radix(value, 8).ok().map(|mode| mode & 0o7777)
            }
            _ => {}
        }
    }
    // That of a directory means nothing, however it is written.
    entry.size = if entry.kind == Kind::File { size? } else { size.unwrap_or(0) };
    Ok(Some(entry))
}

/// A line of `ls -l`, up to the name.
pub fn ls_line(entry: &Entry, now: i64) -> String {
    let kind = match entry.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Link => 'l',
        Kind::Other => '?',
    };
    let mode = entry.mode.unwrap_or(0);
    let bits = (0..9).map(|bit| match mode >> (8 - bit) & 1 {
        0 => '-',
        _ => ['r', 'w', 'x'][bit % 3],
    });
    let bits: String = bits.collect();
    let date = ls_date(entry.modified.unwrap_or(0), now);
    format!("{kind}{bits} 1 ftp ftp {:>12} {date} ", entry.size)
}

/// Reads a line of `ls -l` as servers on Unix write it, or one of Windows; none where it tells of nothing
/// that has a name.
///
/// # Errors
/// When it cannot be read.
pub fn read_ls_line(line: &[u8], now: i64) -> Result<Option<Entry>, Unreadable> {
    let words = words(line);
    let entry = match words[..] {
        [] => return Ok(None),
        // `total 12`, in any language.
        [_, (start, end)] if is_amount(&line[start..end]) => return Ok(None),
        [(start, _), ..] if line[start].is_ascii_digit() => read_dos_line(line, &words),
        _ => read_unix_line(line, &words, now),
    };
    entry.filter(|entry| !entry.name.is_empty()).map(Some).ok_or(Unreadable)
}

/// `12`, or `4.0K` as of `ls -lh`.
fn is_amount(word: &[u8]) -> bool {
    let number = match word {
        [number @ .., unit] if unit.is_ascii_alphabetic() => number,
        number => number,
    };
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b',');
    number.first().is_some_and(u8::is_ascii_digit) && number.iter().all(is_of_number)
}

/// `-rw-r--r-- 1 owner group 1234 Nov 21 12:30 name`
fn read_unix_line(line: &[u8], words: &[(usize, usize)], now: i64) -> Option<Entry> {
    let text = |range: (usize, usize)| std::str::from_utf8(&line[range.0..range.1]).ok();
    let word = |at: usize| words.get(at).copied().and_then(text);
    let first = word(0)?;
    let kind = match first.as_bytes()[0] {
        b'-' => Kind::File,
        b'd' => Kind::Directory,
        b'l' => Kind::Link,
        b'b' | b'c' | b'p' | b's' => Kind::Other,
        _ => return None,
    };
    // Links, owner and group stand before the size, but some servers leave one of them out.
    let at = (1..6).find(|&at| {
        let date = |at| read_ls_date(word(at + 1)?, word(at + 2)?, word(at + 3)?, now);
        word(at).is_some_and(|size| size.parse::<u64>().is_ok()) && date(at).is_some()
    })?;
    // A line may end with the date.
    let name = line.get(words.get(at + 3)?.1 + 1..)?;
    let name = match kind {
        Kind::Link => {
            name.windows(4).position(|part| part == b" -> ").map_or(name, |end| &name[..end])
        }
        _ => name,
    };
    Some(Entry {
        name: name.to_vec(),
        kind,
        size: word(at)?.parse().ok()?,
        modified: read_ls_date(word(at + 1)?, word(at + 2)?, word(at + 3)?, now),
        mode: read_mode(first),
        unique: None,
    })
}

fn read_mode(text: &str) -> Option<u32> {
    let bits = text.as_bytes().get(1..10)?;
    Some(bits.iter().fold(0, |mode, bit| mode << 1 | u32::from(!matches!(bit, b'-' | b'S' | b'T'))))
}

/// `11-21-26  12:30PM       <DIR>          name`
fn read_dos_line(line: &[u8], words: &[(usize, usize)]) -> Option<Entry> {
    let &(start, end) = words.get(2)?;
    let is_directory = &line[start..end] == b"<DIR>";
    let size = std::str::from_utf8(&line[start..end]).ok()?.parse();
    let name = &line[words.get(3)?.0..];
    let kind = if is_directory { Kind::Directory } else { Kind::File };
    let size = if is_directory { 0 } else { size.ok()? };
    Some(Entry { name: name.to_vec(), kind, size, modified: None, mode: None, unique: None })
}

/// Where the first words of a line stand.
fn words(line: &[u8]) -> Vec<(usize, usize)> {
    const ENOUGH: usize = 10;
    let mut found = Vec::new();
    let mut begin = None;
    for (at, &byte) in line.iter().enumerate() {
        match (begin, byte == b' ') {
            (None, false) => begin = Some(at),
            (Some(start), true) => {
                found.push((start, at));
                begin = None;
            }
            _ => {}
        }
        if found.len() == ENOUGH {
            return found;
        }
    }
    found.extend(begin.map(|start| (start, line.len())));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_709_210_096;

    fn entry(name: &str) -> Entry {
        Entry {
            name: name.into(),
            kind: Kind::File,
            size: 42,
            modified: Some(NOW - 3600 - 56),
            mode: Some(0o640),
            unique: None,
        }
    }

    #[test]
    fn facts_are_read_back() {
        let file = entry(" odd; name ");
        let mut line = Facts::default().of(&file, true).into_bytes();
        line.extend(&file.name);
        assert_eq!(read_facts(&line), Ok(Some(file)));
        let line = b"Type=dir;Modify=20240229123456.5;UNIX.mode=0755; x";
        let entry = read_facts(line).unwrap().unwrap();
        assert_eq!(
            (entry.kind, entry.modified, entry.mode),
            (Kind::Directory, Some(NOW), Some(0o755))
        );
        let odd = read_facts(b"size=-1;type=dir; x").unwrap().unwrap();
        assert_eq!((odd.kind, odd.size), (Kind::Directory, 0));
        for line in [&b"type=cdir; ."[..], b"size=4.0K;type=pdir; ..", b""] {
            assert_eq!(read_facts(line), Ok(None));
        }
        for line in [&b"size=1.5K;type=file; x"[..], b"nonsense", b"\xff=1; x"] {
            assert_eq!(read_facts(line), Err(Unreadable));
        }
        assert_eq!(Facts::chosen("Size;nonsense;TYPE;").names(), "type;size;");
    }

    #[test]
    fn lines_of_ls_are_read_back() {
        let file = entry(" two  blanks");
        let mut line = ls_line(&file, NOW).into_bytes();
        line.extend(&file.name);
        assert_eq!(read_ls_line(&line, NOW), Ok(Some(file)));
    }

    #[test]
    fn lines_of_other_servers() {
        let line = |line: &str| read_ls_line(line.as_bytes(), NOW);
        let read = |text: &str| line(text).unwrap();
        let link = read("lrwxrwxrwx   1 0  0     7 Jan  1  1970 a -> b c").unwrap();
        assert_eq!((link.kind, &link.name[..]), (Kind::Link, &b"a"[..]));
        let no_group = read("drwxr-x--- 2 root 4096 Feb 29 11:30 dir").unwrap();
        assert_eq!((no_group.kind, no_group.mode), (Kind::Directory, Some(0o750)));
        let dos = read("11-21-26  12:30PM       1234 a file.txt").unwrap();
        assert_eq!((dos.size, &dos.name[..]), (1234, &b"a file.txt"[..]));
        assert_eq!(read("11-21-26  12:30PM       <DIR>          d").unwrap().kind, Kind::Directory);
        for text in ["total 12", "insgesamt 12", "total 4.0K", "total 1,5M", ""] {
            assert_eq!(read(text), None, "{text}");
        }
        for text in [
            "drwxr-xr-x 2 a b 4096 Feb 29 11:30 ",
            "drwxr-xr-x 2 a b 4096 Feb 29 11:30",
            "-rw-r--r-- 1 a b 42 2024-02-29 11:30 dated",
            "-rw-r--r-- 1 a b 42 févr. 29 11:30 foreign",
            "11-21-26  12:30PM       <JUNCTION>     j",
            "+i8388621.48594,m825718503,r,s280,\tdjb.html",
            "-",
            "-rw 1 2 3",
            "total K",
            "two words",
            "é",
        ] {
            assert_eq!(line(text), Err(Unreadable), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_listing_is_too_strange(line: Vec<u8>) {
            let _ = read_facts(&line);
            let _ = read_ls_line(&line, NOW);
        }
    }
}

//! The commands of `longhaul ftp`, and how a line names one.

use anyhow::{bail, ensure};

/// Every command and what it does.
pub const COMMANDS: &[(&str, &str)] = &[
    ("!", "COMMAND: run it in a shell here"),
    ("active", "let the server connect here for data"),
    ("append", "LOCAL [NAME]: put a file behind what is there"),
    ("ascii", "translate line ends"),
    ("binary", "leave bytes as they are"),
    ("bye", "end"),
    ("cd", "DIR: go to a directory there"),
    ("cdup", "go to the directory above"),
    ("chmod", "MODE NAME: set permissions there"),
    ("close", "leave the server"),
    ("delete", "NAME: delete a file there"),
    ("dir", "[NAME]: list in full"),
    ("features", "what the server knows beside the usual"),
    ("get", "NAME [LOCAL]: get a file, or a directory with all that is in it"),
    ("hash", "NAME: a checksum of a file there"),
    ("help", "[COMMAND]: this list"),
    ("lcd", "[DIR]: go to a directory here, or home"),
    ("lpwd", "the current directory here"),
    ("ls", "[NAME]: list names"),
    ("mdelete", "PATTERN...: delete the files there that match; nothing is asked"),
    ("mget", "PATTERN...: get the files that match"),
    ("mkdir", "NAME: make a directory there"),
    ("modtime", "NAME: when a file there was changed"),
    ("mput", "PATTERN...: put what matches here"),
    ("mult", "[N]: stripe over N connections (4) at most, or auto; 1 turns it off"),
    ("newer", "NAME [LOCAL]: get a file that is newer than the one here"),
    ("nlist", "[NAME]: list names"),
    ("open", "HOST: go to another server"),
    ("passive", "connect to the server for data"),
    ("put", "LOCAL [NAME]: put a file, or a directory with all that is in it"),
    ("pwd", "the current directory there"),
    ("quit", "end"),
    ("quote", "COMMAND: send it as it is"),
    ("reget", "NAME [LOCAL]: get the rest of a file"),
    ("remotehelp", "[COMMAND]: the server's own help"),
    ("rename", "OLD NEW: rename there"),
    ("reput", "LOCAL [NAME]: put the rest of a file"),
    ("rmdir", "NAME: remove an empty directory there"),
    ("site", "COMMAND: send what this server alone knows"),
    ("size", "NAME: the size of a file there"),
    ("status", "how things stand"),
    ("system", "what the server runs on"),
    ("type", "[ascii|binary]: how bytes go"),
    ("user", "NAME: log in as somebody else"),
];

/// Other names of commands, as other clients have them.
const ALIASES: &[(&str, &str)] = &[
    ("?", "help"),
    ("disconnect", "close"),
    ("exit", "bye"),
    ("image", "binary"),
    ("recv", "get"),
    ("rhelp", "remotehelp"),
    ("send", "put"),
];

/// The command that a word names: by its name, another name of it, or as much of it as no other begins with.
pub fn named(word: &str) -> anyhow::Result<&'static str> {
    let other = ALIASES.iter().find(|(name, _)| *name == word).map(|(_, command)| *command);
    let exact = COMMANDS.iter().map(|(name, _)| *name).find(|name| *name == word);
    if let Some(command) = exact.or(other) {
        return Ok(command);
    }
    let begun: Vec<_> =
        COMMANDS.iter().map(|(name, _)| *name).filter(|name| name.starts_with(word)).collect();
    match begun[..] {
        [command] => Ok(command),
        [] => bail!("no such command: `help` lists them"),
        _ => bail!("that may be {}", begun.join(" or ")),
    }
}

/// Splits a line at blanks; quotation marks keep blanks in a word.
pub fn words(line: &str) -> anyhow::Result<Vec<String>> {
    let Split { words, last, quote } = split(line);
    ensure!(quote.is_none(), "a quotation mark is missing");
    Ok(words.into_iter().chain(last.map(|(_, word)| word)).collect())
}

/// The words before the end of a line that is still being written, where the last one begins, and that.
pub fn unfinished(line: &str) -> (Vec<String>, usize, String) {
    let Split { words, last, .. } = split(line);
    let (start, word) = last.unwrap_or((line.len(), String::new()));
    (words, start, word)
}

/// A word as [`words`] reads it back.
pub fn quoted(word: &str) -> String {
    match word.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')) {
        true => format!("\"{}\"", word.replace('"', r#""'"'""#)),
        false => word.to_owned(),
    }
}

#[derive(Default)]
struct Split {
    /// Those behind which a blank stands.
    words: Vec<String>,
    /// And the one behind which none does, with its place.
    last: Option<(usize, String)>,
    /// The mark that is still open.
    quote: Option<char>,
}

fn split(line: &str) -> Split {
    let Split { mut words, mut last, mut quote } = Split::default();
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                last.get_or_insert((at, String::new()));
            }
            (None, c) if c.is_whitespace() => words.extend(last.take().map(|(_, word)| word)),
            (_, c) => last.get_or_insert((at, String::new())).1.push(c),
        }
    }
    Split { words, last, quote }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_into_words() {
        assert_eq!(words("get 'a b' \"c'd\"e ''").unwrap(), ["get", "a b", "c'de", ""]);
        assert!(words("  ").unwrap().is_empty() && words("get 'a").is_err());
    }

    #[test]
    fn a_word_is_read_back_whatever_is_in_it() {
        for word in ["plain", "two words", "it's", "a \"b\" 'c'", "back\\slash"] {
            assert_eq!(words(&format!("get {}", quoted(word))).unwrap(), ["get", word]);
        }
        let (before, start, word) = unfinished("get 'a b' \"c d");
        assert_eq!(
            (&before[..], start, &word[..]),
            (&["get", "a b"].map(str::to_owned)[..], 10, "c d")
        );
        assert_eq!(unfinished("get ").1, 4);
    }

    #[test]
    fn commands_stand_in_order() {
        assert!(COMMANDS.is_sorted_by_key(|(name, _)| *name));
        assert!(ALIASES.iter().all(|(_, command)| named(command).is_ok_and(|it| it == *command)));
    }

    #[test]
    fn a_beginning_names_what_it_alone_begins() {
        for (word, command) in
            [("bin", "binary"), ("mdel", "mdelete"), ("exit", "bye"), ("ls", "ls"), ("cd", "cd")]
        {
            assert_eq!(named(word).unwrap(), command);
        }
        assert!(named("re").unwrap_err().to_string().contains("reget or remotehelp or rename"));
        assert!(named("frobnicate").is_err());
    }
}

//! `authorized_keys`: whom a server lets in, and to what. A line is `[OPTIONS] KEY [COMMENT]`, with
//! options separated by commas: `root="DIR"`, `read-only`, `rate=100mbit`.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context, anyhow, bail, ensure};
use net::PublicKey;
use units::Rate;

use super::home;

/// Permissions that let others change a file.
const WRITABLE: u32 = 0o022;

/// What the holder of a key may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Sees this folder, below the server's own unless absolute, as /.
    pub root: Option<PathBuf>,
    /// May not write.
    pub read_only: bool,
    /// Is sent no more than this.
    pub rate: Option<Rate>,
}

/// Whom a server lets in. The file is read again whenever it has changed.
pub struct Authorized {
    path: PathBuf,
    /// The server's own key: whoever holds it is the server's own user.
    own: PublicKey,
    read: Mutex<Read>,
}

struct Read {
    changed: Option<SystemTime>,
    grants: HashMap<PublicKey, Grant>,
}

impl Authorized {
    /// Reads the file the user named, which must be there, or the one in `LONGHAUL_HOME`.
    pub fn load(named: Option<&Path>, own: PublicKey) -> anyhow::Result<Self> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => home::folder()?.join("authorized_keys"),
        };
        ensure!(
            named.is_none() || path.exists(),
            "cannot read {}: it is not there",
            path.display()
        );
        let read = read(&path)?;
        Ok(Self { path, own, read: Mutex::new(read) })
    }

    /// What the holder of this key may do; `None`: nothing. A file that can no longer be read lets
    /// in those that it did.
    pub fn grant(&self, key: &PublicKey) -> Option<Grant> {
        if *key == self.own {
            return Some(Grant::default());
        }
        let mut current = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = changed(&self.path);
        if changed != current.changed {
            match read(&self.path) {
                Ok(read) => *current = read,
                Err(error) => {
                    current.changed = changed;
                    tell!("longhaul: {error:#}; the keys read before stay");
                }
            }
        }
        current.grants.get(key).cloned()
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn read(path: &Path) -> anyhow::Result<Read> {
    let shown = path.display();
    // First the time: a change while reading is then seen as one.
    let changed = changed(path);
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Read { changed, grants: HashMap::new() });
        }
        other => other.with_context(|| format!("cannot read {shown}"))?,
    };
    ensure!(
        metadata.mode() & WRITABLE == 0,
        "others may change {shown} (mode {:04o}): run `chmod go-w {shown}`",
        metadata.mode() & 0o7777
    );
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let mut grants = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            let (key, grant) =
                entry(line).with_context(|| format!("{shown} line {}", index + 1))?;
            grants.insert(key, grant);
        }
    }
    Ok(Read { changed, grants })
}

fn entry(line: &str) -> anyhow::Result<(PublicKey, Grant)> {
    let (first, rest) = cut(line, |c| c.is_whitespace());
    if let Ok(key) = first.parse() {
        return Ok((key, Grant::default()));
    }
    let (word, _) = cut(rest.trim_start(), |c| c.is_whitespace());
    let key = word.parse()?;
    let mut grant = Grant::default();
    let mut options = first;
    while !options.is_empty() {
        let (option, after) = cut(options, |c| c == ',');
        allow(&mut grant, option)?;
        options = after.strip_prefix(',').unwrap_or_default();
    }
    Ok((key, grant))
}

fn allow(grant: &mut Grant, option: &str) -> anyhow::Result<()> {
    match option.split_once('=') {
        None if option == "read-only" => grant.read_only = true,
        Some(("root", quoted)) => grant.root = Some(unquoted(quoted)?.into()),
        Some(("rate", rate)) => {
            let rate = rate.parse().map_err(|error| anyhow!("rate={rate}: {error}"))?;
            grant.rate = Some(rate);
        }
        // An option may only take away: one that is not understood must not be passed over.
        _ => bail!("unknown option '{option}': there are root=\"DIR\", read-only and rate=RATE"),
    }
    Ok(())
}

/// Splits before the first character that ends the word outside of quotes.
fn cut(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    let (mut quoted, mut escaped) = (false, false);
    let end = text.char_indices().find(|&(_, c)| {
        let plain = !escaped;
        escaped = plain && quoted && c == '\\';
        quoted ^= plain && c == '"';
        !quoted && ends(c)
    });
    text.split_at(end.map_or(text.len(), |(at, _)| at))
}

fn unquoted(text: &str) -> anyhow::Result<String> {
    let Some(inside) = text.strip_prefix('"') else {
        return Ok(text.to_owned());
    };
    let inside = inside.strip_suffix('"').context("a closing quote is missing")?;
    let mut escaped = false;
    Ok(inside
        .chars()
        .filter(|&c| {
            escaped = c == '\\' && !escaped;
            !escaped
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_with_and_without_options_are_read() {
        let key = PublicKey::from_bytes([1; 32]);
        let grant = |line: &str| entry(&line.replace("KEY", &key.to_string()));
        assert_eq!(grant("KEY").unwrap(), (key, Grant::default()));
        assert_eq!(grant("KEY me@here").unwrap(), (key, Grant::default()));
        let expected = Grant {
            root: Some("/a b,\"c".into()),
            read_only: true,
            rate: Some("10mbit".parse().unwrap()),
        };
        let line = r#"read-only,root="/a b,\"c",rate=10mbit   KEY me"#;
        assert_eq!(grant(line).unwrap(), (key, expected));
        assert_eq!(grant("root=sub KEY").unwrap().1.root, Some("sub".into()));
        for bad in
            ["", "x25519:12", "write-only KEY", "root=\"open KEY", "rate=fast KEY", "read-only"]
        {
            assert!(grant(bad).is_err(), "{bad}");
        }
    }
}

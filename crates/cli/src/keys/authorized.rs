//! `authorized_keys`: whom a server lets in, and to what. A line is `[OPTIONS] KEY [COMMENT]`, with
//! options separated by commas: `root="DIR"`, `read-only`, `rate=100mbit`, `forward="HOST:PORT"`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, anyhow, bail, ensure};
use net::PublicKey;
use units::Rate;

use super::home;
use crate::args::some_rate;
use crate::forward::Target;

/// Permissions that let others change a file.
const WRITABLE: u32 = 0o022;

/// What the holder of a key may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Sees this folder, below the server's own unless absolute, as /.
    pub root: Option<PathBuf>,
    /// May not write.
    pub read_only: bool,
    /// Sends no more than this, and is sent no more, over all connections together.
    pub rate: Option<Rate>,
    /// May be connected to these, as far as the server forwards at all; `None` for all that it does.
    pub forward: Option<Vec<Target>>,
}

/// Whom a server lets in. The file is read again whenever it has changed.
pub struct Authorized {
    path: PathBuf,
    /// The server's own key: whoever holds it is the server's own user.
    own: PublicKey,
    read: Mutex<Read>,
}

/// What tells one state of the file from another, also of a file put in its place or set back in
/// time: device, inode, size, and both times with nanoseconds.
type Stamp = [i64; 7];

struct Read {
    stamp: Option<Stamp>,
    grants: HashMap<PublicKey, Grant>,
    /// The lines passed over.
    bad: Vec<anyhow::Error>,
}

impl Authorized {
    /// Reads the file the user named, which must be there, or the one in `LONGHAUL_HOME`. Whoever
    /// starts a server sees what is wrong with a line: any such is an error here.
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
        let mut read = read(&path)?;
        match read.bad.pop() {
            Some(bad) => Err(bad),
            None => Ok(Self { path, own, read: Mutex::new(read) }),
        }
    }

    /// What the holder of this key may do; `None`: nothing. A file that can no longer be read lets
    /// in those that it did; a line that is wrong lets in nobody, and the others count.
    pub fn grant(&self, key: &PublicKey) -> Option<Grant> {
        if *key == self.own {
            return Some(Grant::default());
        }
        let mut current = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = fs::metadata(&self.path).ok().map(|metadata| stamp(&metadata));
        if stamp != current.stamp {
            match read(&self.path) {
                Ok(read) => {
                    read.bad.iter().for_each(|bad| tell!("longhaul: {bad:#}; it is passed over"));
                    *current = read;
                }
                Err(error) => {
                    current.stamp = stamp;
                    tell!("longhaul: {error:#}; the keys read before stay");
                }
            }
        }
        current.grants.get(key).cloned()
    }
}

fn stamp(metadata: &Metadata) -> Stamp {
    let (modified, changed) = (metadata.mtime(), metadata.ctime());
    let (dev, ino, size) = (metadata.dev() as i64, metadata.ino() as i64, metadata.size() as i64);
    [dev, ino, size, modified, metadata.mtime_nsec(), changed, metadata.ctime_nsec()]
}

fn read(path: &Path) -> anyhow::Result<Read> {
    let shown = path.display();
    let mut file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Read { stamp: None, grants: HashMap::new(), bad: Vec::new() });
        }
        other => other.with_context(|| format!("cannot read {shown}"))?,
    };
    // Before the text: a change while reading is then seen as one.
    let metadata = file.metadata().with_context(|| format!("cannot read {shown}"))?;
    ensure!(
        [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid()),
        "{shown} belongs to somebody else (user {}): run `chown` on it",
        metadata.uid()
    );
    ensure!(
        metadata.mode() & WRITABLE == 0,
        "others may change {shown} (mode {:04o}): run `chmod go-w {shown}`",
        metadata.mode() & 0o7777
    );
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(|| format!("cannot read {shown}"))?;
    let (mut grants, mut bad) = (HashMap::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let added = entry(line).and_then(|(key, grant)| match grants.entry(key) {
            Entry::Occupied(_) => bail!("the key has a line already, which counts"),
            Entry::Vacant(place) => Ok(place.insert(grant)),
        });
        if let Err(error) = added {
            bad.push(error.context(format!("{shown} line {}", index + 1)));
        }
    }
    Ok(Read { stamp: Some(stamp(&metadata)), grants, bad })
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
        Some(("root", quoted)) => {
            let root = unquoted(quoted)?;
            ensure!(!root.is_empty(), "root= names no folder: write root=\"DIR\"");
            grant.root = Some(root.into());
        }
        Some(("rate", rate)) => {
            grant.rate = Some(some_rate(rate).map_err(|error| anyhow!("rate={rate}: {error}"))?);
        }
        Some(("forward", quoted)) => {
            let targets = grant.forward.get_or_insert_default();
            match unquoted(quoted)? {
                nothing if nothing.is_empty() => {}
                target => targets.push(target.parse().map_err(anyhow::Error::msg)?),
            }
        }
        // An option may only take away: one that is not understood must not be passed over.
        _ => bail!(
            "unknown option '{option}': there are root=\"DIR\", read-only, rate=RATE \
             and forward=\"HOST:PORT\""
        ),
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
            forward: Some(vec!["db:5432".parse().unwrap(), "*:80".parse().unwrap()]),
        };
        let line =
            r#"read-only,root="/a b,\"c",forward="db:5432",rate=10mbit,forward=*:80   KEY me"#;
        assert_eq!(grant(line).unwrap(), (key, expected));
        assert_eq!(grant("forward= KEY").unwrap().1.forward, Some(Vec::new()));
        assert_eq!(grant("root=sub KEY").unwrap().1.root, Some("sub".into()));
        for bad in [
            "",
            "x25519:12",
            "write-only KEY",
            "root=\"open KEY",
            "rate=fast KEY",
            "rate=0bit KEY",
            "read-only",
        ] {
            assert!(grant(bad).is_err(), "{bad}");
        }
        for empty in ["root= KEY", "root=\"\" KEY"] {
            assert!(grant(empty).is_err(), "{empty}");
        }
    }

    #[test]
    fn a_changed_file_counts_at_once_whatever_its_time_and_though_a_line_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authorized_keys");
        let [one, two, own] = [1, 2, 3].map(|byte| PublicKey::from_bytes([byte; 32]));
        fs::write(&path, format!("{one}\n{two} x\n")).unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let authorized = Authorized::load(Some(&path), own).unwrap();
        let may = |key| authorized.grant(&key).is_some();
        assert!(may(one) && may(two) && may(own));
        // Another file, of the same size and time, and with a mistake.
        let other = folder.path().join("other");
        fs::write(&other, format!("{one}\nx25519:{}\n", "g".repeat(66))).unwrap();
        File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(may(one) && !may(two) && may(own));
        // The first line of a key counts.
        fs::write(&path, format!("read-only {one}\n{one} again\n{two}\n")).unwrap();
        assert!(authorized.grant(&one).unwrap().read_only && may(two));
        assert!(Authorized::load(Some(&path), own).is_err(), "told at the start");
    }

    #[test]
    fn somebody_elses_file_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authorized_keys");
        fs::write(&path, "").unwrap();
        if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
            return; // only root can give a file away
        }
        let error = read(&path).err().expect("it is refused").to_string();
        assert!(error.contains("belongs to somebody else (user 12345)"), "{error}");
    }
}

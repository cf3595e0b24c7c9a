//! Commands of `longhaul ftp` that move files.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, bail, ensure};
use ftp::client::Copied;
use ftp::data::Moved;
use ftp::entry::Kind;
use ftp::names::is_partial;
use glob::MatchOptions;
use transfer::{Notes, Progress, RelPath};

use super::here::Here;
use super::show::watch;
use crate::args::Output;

/// A name that begins with a dot is matched by a dot alone.
const AS_IN_SHELLS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: false,
    require_literal_leading_dot: true,
};

impl Here {
    /// What gets and puts, with its progress shown.
    pub async fn transfer(&mut self, command: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let (progress, moved) = (Progress::new(), Moved::default());
        let mut copied = Copied::default();
        let moving = async {
            let shown = (&progress, &moved);
            let (from, to) = match arguments {
                _ if command == "mget" => {
                    return self.get_matching(arguments, shown, &mut copied).await;
                }
                _ if command == "mput" => {
                    return self.put_matching(arguments, shown, &mut copied).await;
                }
                [from] => (*from, base_name(from)?),
                [from, to] => (*from, *to),
                _ => bail!("one name, and perhaps another"),
            };
            match command {
                "get" => self.get(from, to, shown, &mut copied).await,
                "newer" => match self.is_newer(from, to).await? {
                    true => self.get(from, to, shown, &mut copied).await,
                    false => Ok(()),
                },
                "put" => self.put(from, to, shown, &mut copied).await,
                "reget" => self.reget(from, to, &moved).await,
                "reput" => self.reput(from, to, &moved).await,
                _ => self.append(from, to, &moved).await,
            }
        };
        let output = Output { json: false, quiet: false, verbose: false };
        let done = watch(output, &progress, &moved, moving).await;
        self.learn(&moved);
        // Whatever became of the rest.
        for note in copied.notes.iter() {
            tell!("{note}");
        }
        done?;
        ensure!(copied.notes.failed() == 0, "{} failed", copied.notes.failed());
        tell!("{} moved", units::Bytes(moved.bytes()));
        Ok(())
    }

    async fn get(
        &mut self,
        path: &str,
        local: &str,
        shown: (&Progress, &Moved),
        copied: &mut Copied,
    ) -> anyhow::Result<()> {
        let (directory, name) = landing(Path::new(local))?;
        let name = RelPath::new(name.as_os_str().as_bytes().to_vec())?;
        Ok(self
            .client()
            .await?
            .get_tree(path.as_bytes(), directory.into(), Some(&name), shown, copied)
            .await?)
    }

    async fn put(
        &mut self,
        local: &str,
        path: &str,
        shown: (&Progress, &Moved),
        copied: &mut Copied,
    ) -> anyhow::Result<()> {
        Ok(self.client().await?.put_tree(Path::new(local), path.as_bytes(), shown, copied).await?)
    }

    async fn reget(&mut self, path: &str, local: &str, moved: &Moved) -> anyhow::Result<()> {
        let (directory, name) = landing(Path::new(local))?;
        let place = (directory.into(), name.as_os_str());
        Ok(self.client().await?.get(path.as_bytes(), place, true, moved).await?)
    }

    async fn reput(&mut self, local: &str, path: &str, moved: &Moved) -> anyhow::Result<()> {
        let file = File::open(local).with_context(|| format!("cannot read {local}"))?;
        let client = self.client().await?;
        let there = client.size(path.as_bytes()).await?.unwrap_or(0);
        let size = file.metadata()?.len();
        ensure!(there <= size, "the server's file is longer already: put it anew");
        Ok(client.put(file, path.as_bytes(), there, moved).await?)
    }

    async fn append(&mut self, local: &str, path: &str, moved: &Moved) -> anyhow::Result<()> {
        let file = File::open(local).with_context(|| format!("cannot read {local}"))?;
        Ok(self.client().await?.append(file, path.as_bytes(), moved).await?)
    }

    /// Whether the server's file was changed later than the one here, if there is one.
    async fn is_newer(&mut self, path: &str, local: &str) -> anyhow::Result<bool> {
        let Ok(here) = std::fs::metadata(local).and_then(|metadata| metadata.modified()) else {
            return Ok(true);
        };
        let there = self.client().await?.modified(path.as_bytes()).await?;
        let there = there.context("the server does not tell when that was changed")?;
        let here = here.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Ok(u64::try_from(there).is_ok_and(|there| there > here))
    }

    /// The files there whose paths match, each with its name: patterns are for the last name of a path.
    /// What the server lists and cannot be read is noted.
    pub(super) async fn matching(
        &mut self,
        patterns: &[&str],
        notes: &mut Notes,
    ) -> anyhow::Result<Vec<(Vec<u8>, RelPath)>> {
        let mut found = Vec::new();
        for pattern in patterns {
            let (directory, pattern) = match pattern.rsplit_once('/') {
                Some(("", name)) => ("/", name),
                Some((directory, name)) => (directory, name),
                None => ("", *pattern),
            };
            let before = found.len();
            let wanted = glob::Pattern::new(pattern).context("that is no pattern")?;
            let listing = self.client().await?.list(directory.as_bytes()).await?;
            listing.notes(directory.as_bytes()).for_each(|note| notes.push(note));
            for entry in listing.entries {
                let matches =
                    wanted.matches_with(&String::from_utf8_lossy(&entry.name), AS_IN_SHELLS);
                let is_file = matches!(entry.kind, Kind::File | Kind::Link);
                if !matches || !is_file || is_partial(&entry.name) {
                    continue;
                }
                let Ok(name) = RelPath::new(entry.name.clone()) else { continue };
                if name.as_bytes().is_empty() || name.as_bytes().contains(&b'/') {
                    continue;
                }
                found.push((joined(directory, &entry.name), name));
            }
            ensure!(found.len() > before, "no file there matches {pattern}");
        }
        Ok(found)
    }

    /// Gets the files whose names match into the current directory.
    async fn get_matching(
        &mut self,
        patterns: &[&str],
        shown: (&Progress, &Moved),
        copied: &mut Copied,
    ) -> anyhow::Result<()> {
        for (path, name) in self.matching(patterns, &mut copied.notes).await? {
            let directory = File::open(".").context("cannot use the current directory")?;
            let client = self.client().await?;
            client.get_tree(&path, directory.into(), Some(&name), shown, copied).await?;
        }
        Ok(())
    }

    /// Puts what matches here, under the last names of their paths.
    async fn put_matching(
        &mut self,
        patterns: &[&str],
        shown: (&Progress, &Moved),
        copied: &mut Copied,
    ) -> anyhow::Result<()> {
        for pattern in patterns {
            for path in here_matching(pattern)? {
                let name = path.file_name().context("that path has no name in it")?;
                let client = self.client().await?;
                client.put_tree(&path, name.as_bytes(), shown, copied).await?;
            }
        }
        Ok(())
    }
}

/// What a pattern stands for here: the name that it is where there is such, and else all that match, but
/// dot files where no dot was written.
fn here_matching(pattern: &str) -> anyhow::Result<Vec<PathBuf>> {
    if Path::new(pattern).exists() {
        return Ok(vec![pattern.into()]);
    }
    let found = glob::glob(pattern).context("that is no pattern")?;
    let mut found = found.collect::<Result<Vec<_>, _>>()?;
    // `glob`'s own option for that panics at a name that is no text.
    let parts = names(Path::new(pattern));
    found.retain(|path| are_meant(&parts, &names(path)));
    ensure!(!found.is_empty(), "nothing here matches {pattern}");
    Ok(found)
}

/// The names in a path that lead somewhere from where it begins.
fn names(path: &Path) -> Vec<Cow<'_, str>> {
    let names = path.iter().map(OsStr::to_string_lossy);
    names.filter(|name| !matches!(&**name, "/" | ".")).collect()
}

/// Whether the parts of a pattern, one by one, mean these names.
fn are_meant(parts: &[Cow<'_, str>], names: &[Cow<'_, str>]) -> bool {
    match (parts, names) {
        ([], []) => true,
        ([any, rest @ ..], _) if any == "**" => {
            let is_below = |(name, below): (&Cow<'_, str>, &[_])| {
                !name.starts_with('.') && are_meant(parts, below)
            };
            are_meant(rest, names) || names.split_first().is_some_and(is_below)
        }
        ([part, parts @ ..], [name, names @ ..]) => {
            // `.*` finds `..` too.
            let is_meant = match &**name {
                ".." => part == "..",
                name => glob::Pattern::new(part)
                    .is_ok_and(|pattern| pattern.matches_with(name, AS_IN_SHELLS)),
            };
            is_meant && are_meant(parts, names)
        }
        _ => false,
    }
}

/// A path there, of a directory and a name in it.
fn joined(directory: &str, name: &[u8]) -> Vec<u8> {
    match directory {
        "" => name.to_vec(),
        directory if directory.ends_with('/') => [directory.as_bytes(), name].concat(),
        directory => [directory.as_bytes(), b"/", name].concat(),
    }
}

/// The directory here that a file lands in, and its name.
pub fn landing(path: &Path) -> anyhow::Result<(File, PathBuf)> {
    let name = path.file_name().context("name a file, not a directory")?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let open =
        File::open(parent).with_context(|| format!("cannot write to {}", parent.display()))?;
    Ok((open, name.into()))
}

/// The last name of a path; what a server's path may not lead by.
fn base_name(path: &str) -> anyhow::Result<&str> {
    let name = Path::new(OsStr::from_bytes(path.as_bytes())).file_name().and_then(OsStr::to_str);
    name.context("that path has no name in it: say under which it shall be kept")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_here() {
        let folder = tempfile::tempdir().unwrap();
        let hidden = OsStr::from_bytes(b".\xff.txt");
        std::fs::create_dir(folder.path().join(".f")).unwrap();
        for name in ["a.txt", "b.txt", "c", "[d]", ".e.txt", ".f/g.txt", ".f/.h.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::write(folder.path().join(hidden), "").unwrap();
        let names = |pattern: &str| -> Vec<String> {
            let found = here_matching(folder.path().join(pattern).to_str().unwrap());
            let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
            found.unwrap_or_default().iter().map(name).collect()
        };
        assert_eq!(names("*.txt"), ["a.txt", "b.txt"]);
        assert_eq!(names("*"), ["[d]", "a.txt", "b.txt", "c"], "no dot files");
        assert_eq!(names(".*"), [".e.txt", ".f"]);
        assert_eq!(names("*/*.txt"), [] as [&str; 0]);
        assert_eq!(names(".f/*.txt"), ["g.txt"]);
        assert_eq!(names(".*/*"), ["g.txt"], "each part for itself");
        assert_eq!(names(".*/.*"), [".h.txt"]);
        assert_eq!(names("**/*.txt"), ["a.txt", "b.txt"]);
        assert_eq!(names("**/.f/./*"), ["g.txt"]);
        assert_eq!(names(".f/../c*"), ["c"]);
        assert_eq!(names("[d]"), ["[d]"], "a name before a pattern");
        assert!(names("*.iso").is_empty());
    }

    #[test]
    fn paths_are_joined() {
        assert_eq!(joined("", b"x"), b"x");
        assert_eq!(joined("/", b"x"), b"/x");
        assert_eq!(joined("a/b", b"x"), b"a/b/x");
    }
}
